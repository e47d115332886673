use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use super::{one_route, refusing};
use crate::support::h2;
use crate::support::proxy::{Client, Proxy, within};
use crate::support::upstream::{Act, Upstream, always, answer};

fn retry(more: &str) -> String {
    format!(
        "    middleware:
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry: {{ with: {{ policies: [ {{ match: {{ codes: [Provider.Call.Http.*] }}, attempts: 3 }} ] }} }}
{more}"
    )
}

fn put(size: usize) -> String {
    format!("PUT /a HTTP/1.1\r\nHost: t\r\nContent-Length: {size}\r\n\r\n{}", "b".repeat(size))
}

#[tokio::test]
async fn a_body_at_the_replay_limit_is_sent_again_and_one_over_it_is_not() {
    let upstream = Upstream::run(|number, _| {
        if number % 2 == 0 { always(503, "", "busy") } else { always(200, "", "good") }
    })
    .await;
    let proxy = Proxy::start(&one_route(&upstream, &retry("")));
    assert_eq!(proxy.ask(&put(65_536)).await.body, "good");
    let seen = upstream.requests();
    assert_eq!((seen.len(), seen[1].body.len()), (2, 65_536));
    let response = proxy.ask(&put(65_537)).await;
    assert_eq!((response.status, response.body.as_str()), (503, "busy"));
    assert_eq!(upstream.requests().len(), 3);
    let series = r#"mwl_retries_suppressed_total{reason="bodyNotReplayable",route="r"}"#;
    assert_eq!(proxy.metric(series), 1);
}

#[tokio::test]
async fn chunks_are_replayed_as_chunks() {
    let upstream = Upstream::play([always(500, "", ""), always(200, "", "good")]).await;
    let proxy = Proxy::start(&one_route(&upstream, &retry("")));
    let request = "PUT / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n1a\r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\nX-Sum: 1\r\n\r\n";
    assert_eq!(proxy.ask(request).await.body, "good");
    for seen in upstream.requests() {
        assert_eq!(seen.body, b"abcdefghijklmnopqrstuvwxyz");
        assert_eq!(seen.field("transfer-encoding"), ["chunked"]);
        assert!(seen.field("content-length").is_empty() && seen.field("x-sum").is_empty());
    }
}

#[tokio::test]
async fn an_upload_that_is_answered_early_is_whole_for_the_next_attempt() {
    let early = Act::Early(answer(503, "", "busy"));
    let upstream = Upstream::play([early, always(200, "", "good")]).await;
    let proxy = Proxy::start(&one_route(&upstream, &retry("")));
    let mut client = proxy.connect().await;
    client.send("PUT /a HTTP/1.1\r\nHost: t\r\nContent-Length: 40000\r\n\r\n").await;
    client.send("c".repeat(1000)).await;
    upstream.until(|seen| seen.len() == 2).await;
    client.send("c".repeat(39_000)).await;
    assert_eq!(client.response(false).await.body, "good");
    let seen = upstream.requests();
    assert_eq!((seen.len(), seen[1].body.len()), (2, 40_000));
}

#[tokio::test]
async fn empty_bodies_stay_empty() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = proxy.connect().await;
    for framing in ["Transfer-Encoding: chunked\r\n\r\n0\r\n", "Content-Length: 0\r\n", ""] {
        let method = if framing.is_empty() { "GET" } else { "POST" };
        let request = format!("{method} /a HTTP/1.1\r\nHost: t\r\n{framing}\r\n");
        assert_eq!(client.ask(&request).await.status, 200);
    }
    let seen = upstream.requests();
    assert!(seen.iter().all(|request| request.whole && request.body.is_empty()));
    assert!(seen[2].field("transfer-encoding").is_empty());
}

#[tokio::test]
async fn a_get_with_a_body_keeps_it() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let request =
        "GET /a HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n";
    assert_eq!(proxy.ask(request).await.status, 200);
    assert_eq!(upstream.requests()[0].body, b"hi");
}

#[tokio::test]
async fn a_chunked_body_that_breaks_is_never_sent_as_whole() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = proxy.connect().await;
    client.send("POST /a HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n\r\n\r\n").await;
    client.rest().await;
    upstream.ended(1).await;
    assert!(upstream.requests().iter().all(|request| !request.whole));
}

#[tokio::test]
async fn a_client_that_dies_in_its_body_aborts_the_upstream_s_request() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let proxy = Proxy::start(&one_route(&upstream, &retry("")));
    let mut client = proxy.connect().await;
    client.send("PUT /a HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\nhello").await;
    upstream.until(|seen| seen.first().is_some_and(|seen| seen.body.len() == 5)).await;
    client.stream.set_zero_linger().unwrap();
    drop(client);
    upstream.ended(1).await;
    let seen = upstream.requests();
    assert_eq!((seen.len(), seen[0].whole), (1, false));
}

#[tokio::test]
async fn a_truncated_answer_stays_truncated() {
    let short = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789".to_vec();
    let chunk = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n".to_vec();
    let upstream = Upstream::play([Act::AnswerAndClose(short), Act::AnswerAndClose(chunk)]).await;
    let proxy = Proxy::start(&one_route(&upstream, &retry("")));
    for wanted in ["0123456789", "hello"] {
        let response = proxy.ask("GET /a HTTP/1.1\r\nHost: t\r\n\r\n").await;
        assert_eq!((response.whole, response.body.as_str()), (false, wanted));
    }
    assert_eq!(upstream.requests().len(), 2);
}

#[tokio::test]
async fn a_body_that_stalls_breaks_off() {
    let part = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789".to_vec();
    let upstream = Upstream::play([Act::AnswerAndHang(part)]).await;
    let config = one_route(&upstream, "");
    let config = config.replace("] } }", "], idleTimeout: PT0.1S } }");
    let proxy = Proxy::start(&config);
    let response = proxy.ask("GET /a HTTP/1.1\r\nHost: t\r\n\r\n").await;
    assert_eq!((response.whole, response.body.as_str()), (false, "0123456789"));
}

#[tokio::test]
async fn a_long_answer_streams() {
    let parts = vec![
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n".to_vec(),
        b"5\r\nworld\r\n0\r\n\r\n".to_vec(),
    ];
    let upstream = Upstream::play([Act::Slowly(Duration::from_millis(50), parts)]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let response = proxy.ask("GET /a HTTP/1.1\r\nHost: t\r\n\r\n").await;
    assert_eq!((response.whole, response.body.as_str()), (true, "helloworld"));
}

#[tokio::test]
async fn a_body_that_a_route_reads_has_a_limit() {
    let upstream = Upstream::play([always(200, "", &"r".repeat(101))]).await;
    let reads = "    buffer: { request: 100B, response: 100B }\n    output: \"{{ step.result.value.body == frame.input.body }}\"\n";
    let proxy = Proxy::start(&one_route(&upstream, reads));
    let response = proxy.ask(&put(101)).await;
    assert_eq!(response.status, 413);
    assert_eq!(response.json()["code"], "Provider.Call.Http.BodyTooLarge");
    let response = proxy.ask(&put(100)).await;
    assert_eq!(response.status, 500);
    assert_eq!(response.json()["code"], "Provider.Call.Http.BodyTooLarge");
    assert_eq!(upstream.requests().len(), 1);
}

/// Sends ten megabytes like a usual client: until the proxy takes no more. Then it reads, and must get the 413
/// and the end.
async fn uploads_and_reads(mut client: Client, run: usize) {
    client.send("POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 10485760\r\n\r\n").await;
    let mut left = 10 * 1024;
    let part = [b'u'; 1024];
    while left > 0 && client.offer(&part).await {
        left -= 1;
    }
    let response = client.response(false).await;
    assert_eq!((response.status, response.body.as_str()), (413, "too much"), "run {run}");
    assert_eq!(response.field("connection"), ["close"]);
    assert!(client.rest().await.is_empty());
}

/// If a connection is closed while its client still sends, it is reset, and the reset may overtake the answer.
/// Two hundred runs are enough to see that happen.
#[tokio::test]
async fn an_answer_that_comes_before_the_upload_ends_reaches_the_client() {
    let upstream = Upstream::play([Act::EarlyAndClose(1024, answer(413, "", "too much"))]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    for run in 0..200 {
        uploads_and_reads(proxy.connect().await, run).await;
    }
    assert_eq!(upstream.requests().len(), 200);
}

/// The same with a long delay, so that the upload and the answer cross.
#[tokio::test]
async fn an_answer_that_comes_before_the_upload_ends_reaches_a_client_that_is_far_away() {
    let upstream = Upstream::play([Act::EarlyAndClose(1024, answer(413, "", "too much"))]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let far = far_away(proxy.address, Duration::from_millis(10)).await;
    for round in 0..2 {
        let mut clients = tokio::task::JoinSet::new();
        for run in 0..20 {
            let stream = TcpStream::connect(far).await.unwrap();
            clients.spawn(uploads_and_reads(Client::over(stream), 20 * round + run));
        }
        clients.join_all().await;
    }
    assert_eq!(upstream.requests().len(), 40);
}

/// An address from which bytes to `address` take this long in each direction.
async fn far_away(address: SocketAddr, delay: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let begins = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let (from_near, to_near) = near.into_split();
            let (from_far, to_far) = TcpStream::connect(address).await.unwrap().into_split();
            tokio::spawn(slowly(from_near, to_far, delay));
            tokio::spawn(slowly(from_far, to_near, delay));
        }
    });
    begins
}

/// Passes bytes on after `delay`; at most as many are on the way as on a long line.
async fn slowly(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: Duration) {
    let (sent, mut under_way) = tokio::sync::mpsc::channel::<(Instant, Vec<u8>)>(16);
    let reading = async move {
        let mut bytes = vec![0; 4096];
        while let Ok(size @ 1..) = from.read(&mut bytes).await {
            if sent.send((Instant::now() + delay, bytes[..size].to_vec())).await.is_err() {
                return;
            }
        }
    };
    let writing = async move {
        while let Some((due, bytes)) = under_way.recv().await {
            tokio::time::sleep_until(due).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(reading, writing);
}

#[tokio::test]
async fn a_refusal_that_comes_before_the_upload_ends_reaches_the_client() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let config = one_route(&upstream, "").replace("pathPrefix: /", "path: /x");
    let proxy = Proxy::start(&config);
    for _ in 0..20 {
        let mut client = proxy.connect().await;
        let head = "POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 1048576\r\n\r\n";
        client.send(head).await;
        let mut left = 1024;
        while left > 0 && client.offer(&[b'u'; 1024]).await {
            left -= 1;
        }
        let response = client.response(false).await;
        assert_eq!((response.status, response.field("connection")), (404, vec!["close"]));
    }
}

/// The part of a body that has already arrived is discarded, so that a refused upload need not cost a connection.
#[tokio::test]
async fn a_refusal_of_a_body_that_is_here_keeps_the_connection() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let chunks =
        "PUT /a HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    for (proxy, status) in refusing(&upstream) {
        let mut client = proxy.connect().await;
        for request in [put(10), put(5000), chunks.to_owned(), put(0)] {
            let response = client.ask(&request).await;
            assert_eq!(response.status, status);
            assert!(response.field("connection").is_empty(), "{}", response.head);
        }
        client.send("PUT /a HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\nhello").await;
        let response = client.response(false).await;
        assert_eq!((response.status, response.field("connection")), (status, vec!["close"]));
        assert!(client.rest().await.is_empty());
    }
    assert_eq!(upstream.accepted(), 0);
}

/// A successful answer may be one of two streams that run side by side: its connection can be reused if the
/// upload ends.
#[tokio::test]
async fn an_early_success_closes_nothing_by_itself() {
    let begun = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n".to_vec();
    let upstream =
        Upstream::play([Act::Before(begun, b"0\r\n\r\n".to_vec()), always(200, "", "next")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = proxy.connect().await;
    client.send("PUT /a HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\nhello").await;
    upstream.until(|seen| seen.first().is_some_and(|seen| seen.body.len() == 5)).await;
    client.send("world").await;
    let response = client.response(false).await;
    assert_eq!((response.body.as_str(), response.field("connection")), ("hello", vec![]));
    assert_eq!(client.ask("GET /a HTTP/1.1\r\nHost: t\r\n\r\n").await.body, "next");
    assert_eq!(upstream.requests()[0].body, b"helloworld");
}

const TRAILED: &str = "PUT / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, Content-Length\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 1\r\nContent-Length: 9\r\nAuthorization: z\r\n\r\n";

/// A body that a route reads keeps its trailers, like one that streams: with every attempt, and only those that
/// may pass. A body of the route's own has none.
#[tokio::test]
async fn a_body_that_a_route_reads_keeps_its_trailers() {
    let reads = "    output: \"{{ {'status': 200, 'body': frame.input.body} }}\"\n";
    for more in ["", reads] {
        let upstream = Upstream::play([always(503, "", ""), always(200, "", "good")]).await;
        let proxy = Proxy::start(&one_route(&upstream, &retry(more)));
        let mut client = proxy.connect().await;
        assert_eq!(client.ask(TRAILED).await.status, 200);
        assert_eq!(upstream.requests().len(), 2);
        for seen in upstream.requests() {
            assert_eq!((seen.body.as_slice(), seen.whole), (&b"abc"[..], true));
            assert_eq!(seen.field("transfer-encoding"), ["chunked"]);
            assert_eq!(seen.field("trailer"), ["x-sum"]);
            assert_eq!(seen.trailers, ["x-sum: 1"]);
            for name in ["content-length", "authorization", "x-sum"] {
                assert!(seen.field(name).is_empty(), "{name}");
            }
        }
        assert_eq!(client.ask("GET / HTTP/1.1\r\nHost: t\r\n\r\n").await.status, 200);
    }
    let upstream = Upstream::play([always(200, "", "good")]).await;
    let call = one_route(&upstream, "").replace("    upstream: u\n", "    call: { provider: 'mwl:provider.call/mwl-proxy/http/v1', with: { upstream: u, body: other } }\n");
    let proxy = Proxy::start(&call);
    assert_eq!(proxy.ask(TRAILED).await.status, 200);
    let seen = &upstream.requests()[0];
    assert_eq!((seen.body.as_slice(), seen.field("content-length")), (&b"other"[..], vec!["5"]));
    assert!(seen.field("trailer").is_empty() && seen.trailers.is_empty());
}

#[tokio::test]
async fn a_body_that_a_route_reads_keeps_its_trailers_to_an_http_2_upstream() {
    let upstream = h2::Upstream::play([h2::Act::Answer(h2::reply(200, "good"))]).await;
    let reads = "    output: \"{{ {'status': 200, 'body': frame.input.body} }}\"\n";
    let proxy = Proxy::start(&super::h2_upstreams::one_route(upstream.address, "", reads));
    let response = proxy.ask(TRAILED).await;
    assert_eq!((response.status, response.body.as_str()), (200, "abc"));
    let seen = &upstream.requests()[0];
    assert_eq!((seen.body.as_slice(), seen.whole), (&b"abc"[..], true));
    let trailers = seen.trailers.as_ref().unwrap();
    assert_eq!((trailers.len(), &trailers["x-sum"]), (1, &"1".parse().unwrap()));
}

#[tokio::test]
async fn a_reset_is_a_lost_connection() {
    let upstream = Upstream::play([Act::Reset]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let response = proxy.ask(&put(10)).await;
    assert_eq!(response.status, 502);
    assert_eq!(response.json()["code"], "Provider.Call.Http.ConnectionClosed");
}

/// A client that reads nothing before it has sent its whole request, and an upstream that responds from the
/// first byte on: the proxy does not make one wait for the other.
#[tokio::test]
async fn an_upload_goes_on_while_its_answer_waits_to_be_read() {
    const SIZE: usize = 24 << 20;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = format!(
        "upstreams: {{ u: {{ endpoints: ['http://{}'] }} }}\nroutes: [{{ name: r, upstream: u }}]\n",
        listener.local_addr().unwrap()
    );
    let upstream = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let (mut read, mut write) = stream.into_split();
        let answer = async {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n");
            write.write_all(head.as_bytes()).await.unwrap();
            write.write_all(&vec![b'a'; SIZE]).await.unwrap();
        };
        let request = async {
            let mut all = Vec::new();
            while !all.ends_with(b"!") {
                read.read_buf(&mut all).await.unwrap();
            }
            assert!(all.len() > SIZE);
        };
        tokio::join!(answer, request);
    });
    let proxy = Proxy::start(&config);
    let mut client = proxy.connect().await;
    client.send(format!("PUT / HTTP/1.1\r\nHost: t\r\nContent-Length: {SIZE}\r\n\r\n")).await;
    let upload = [vec![b'~'; SIZE - 1], b"!".to_vec()].concat();
    within(client.stream.write_all(&upload)).await.unwrap();
    let response = client.response(false).await;
    assert_eq!((response.status, response.whole, response.body.len()), (200, true, SIZE));
    within(upstream).await.unwrap();
}
