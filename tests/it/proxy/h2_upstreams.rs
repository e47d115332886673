use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use crate::support::h2::{Act, Client, Reply, Upstream, fields, reply, request, whole};
use crate::support::proxy::{Proxy, within};

/// A configuration of one route before an upstream that speaks HTTP/2.
pub(super) fn one_route(address: std::net::SocketAddr, upstream: &str, route: &str) -> String {
    format!(
        "upstreams: {{ u: {{ endpoints: ['http://{address}'], protocol: http2{upstream} }} }}\nroutes:\n  - name: r\n    match: {{ pathPrefix: / }}\n    upstream: u\n{route}"
    )
}

fn retry(codes: &str) -> String {
    format!(
        "    middleware:\n      - provider: mwl:provider.middleware/mwl/retry/v1\n        onEntry: {{ with: {{ policies: [ {{ match: {{ codes: [{codes}], retryable: true }}, attempts: 3 }} ] }} }}\n"
    )
}

const GET: &str = "GET /a HTTP/1.1\r\nHost: t.test\r\n\r\n";
const POST: &str = "POST /a HTTP/1.1\r\nHost: t.test\r\nContent-Length: 4\r\n\r\nbody";

#[tokio::test]
async fn an_http_1_request_passes_to_an_http_2_upstream() {
    let good = Reply { fields: fields(&[("x-b", "1")]), ..reply(200, "hello") };
    let upstream = Upstream::play([Act::Answer(good)]).await;
    let proxy = Proxy::start(&one_route(upstream.address, "", ""));
    let request = "POST /a%2Fb?q=%20 HTTP/1.1\r\nHost: T.test:81\r\nConnection: close, x-c\r\nX-C: 1\r\nTE: trailers, gzip\r\nCookie: a=1; b=2\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n";
    let response = proxy.ask(request).await;
    assert_eq!((response.status, response.body.as_str()), (200, "hello"));
    assert_eq!(response.field("x-b"), ["1"]);
    let seen = &upstream.requests()[0];
    assert_eq!((seen.method.as_str(), seen.uri.as_str()), ("POST", "http://T.test:81/a%2Fb?q=%20"));
    assert_eq!(seen.field("te"), ["trailers"]);
    assert_eq!(seen.field("cookie"), ["a=1; b=2"]);
    for gone in ["host", "connection", "x-c", "transfer-encoding", "keep-alive"] {
        assert!(seen.field(gone).is_empty(), "{gone}");
    }
    assert_eq!((seen.body.as_slice(), seen.whole), (&b"body"[..], true));
}

#[tokio::test]
async fn a_head_has_the_length_and_no_body() {
    let told = Reply { fields: fields(&[("content-length", "1234")]), ..reply(200, "") };
    let upstream = Upstream::play([Act::Answer(told), Act::Answer(reply(200, "hello"))]).await;
    let proxy = Proxy::start(&one_route(upstream.address, "", ""));
    let mut client = proxy.connect().await;
    let response = client.ask("HEAD /a HTTP/1.1\r\nHost: t\r\n\r\n").await;
    assert_eq!((response.status, response.field("content-length")), (200, vec!["1234"]));
    assert_eq!(client.ask(GET).await.body, "hello");
}

#[tokio::test]
async fn requests_share_a_connection() {
    let upstream = Upstream::play([Act::Answer(reply(200, "hello"))]).await;
    let proxy = Proxy::start(&one_route(upstream.address, "", ""));
    for _ in 0..3 {
        assert_eq!(proxy.ask(GET).await.body, "hello");
    }
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let address = proxy.address;
        all.spawn(async move {
            let mut client = Client::connect(address).await;
            client.ask(request("GET", "/a", &[]), b"").await.status
        });
    }
    assert!(within(all.join_all()).await.into_iter().all(|status| status == 200));
    assert_eq!((upstream.accepted(), upstream.requests().len()), (1, 23));
    assert_eq!(proxy.metric(r#"mwl_upstream_connections{state="idle",upstream="u"}"#), 1);
    assert_eq!(proxy.metric(r#"mwl_upstream_connections{state="active",upstream="u"}"#), 0);
}

#[tokio::test]
async fn a_full_connection_gets_a_second() {
    let upstream = Upstream::run(2, |_, _| Act::Hang).await;
    let proxy = Proxy::start(&one_route(upstream.address, "", ""));
    let mut client = Client::connect(proxy.address).await;
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(client.begin(request("GET", "/a", &[]), true).await);
        upstream.until(|seen| seen.len() == held.len()).await;
    }
    let seen = upstream.requests();
    let connections: Vec<_> = seen.iter().map(|request| request.connection).collect();
    assert_eq!(connections, [0, 0, 1, 1]);
    assert_eq!(proxy.metric(r#"mwl_upstream_connections{state="active",upstream="u"}"#), 2);
}

#[tokio::test]
async fn an_idle_connection_closes() {
    let upstream = Upstream::play([Act::Answer(reply(200, ""))]).await;
    let proxy = Proxy::start(&one_route(upstream.address, ", keepAlive: PT0.1S", ""));
    proxy.ask(GET).await;
    let series = r#"mwl_upstream_connections{state="idle",upstream="u"}"#;
    proxy.until(|proxy| proxy.metric(series) == 0).await;
    assert_eq!(proxy.ask(GET).await.status, 200);
    assert_eq!(upstream.accepted(), 2);
}

#[tokio::test]
async fn a_refused_stream_may_be_retried_whatever_its_method() {
    let refuse = Act::Reset(Reason::REFUSED_STREAM);
    let upstream = Upstream::play([refuse, Act::Answer(reply(200, "good"))]).await;
    let route = retry("Provider.Call.Http.ConnectionFailed");
    let proxy = Proxy::start(&one_route(upstream.address, "", &route));
    assert_eq!(proxy.ask(POST).await.body, "good");
    let seen = upstream.requests();
    assert_eq!((seen.len(), seen[1].body.as_slice()), (2, &b"body"[..]));
    assert_eq!(proxy.metric(r#"mwl_retries_total{code="Provider.Call.Http.ConnectionFailed",delay="schedule",route="r"}"#), 1);
}

#[tokio::test]
async fn a_refused_stream_on_a_connection_that_was_there_is_sent_again() {
    let good = || Act::Answer(reply(200, "good"));
    let upstream = Upstream::play([good(), Act::Reset(Reason::REFUSED_STREAM), good()]).await;
    // The policy matches nothing of this; with it, bodies are kept.
    let route = retry("Provider.Call.Http.Throttled");
    let proxy = Proxy::start(&one_route(upstream.address, "", &route));
    for _ in 0..2 {
        assert_eq!(proxy.ask(POST).await.body, "good");
    }
    assert_eq!(upstream.requests().len(), 3);
    assert_eq!(proxy.metric(r#"mwl_stale_connection_resends_total{upstream="u"}"#), 1);
}

#[tokio::test]
async fn what_is_refused_says_that_nothing_was_sent() {
    let upstream = Upstream::play([Act::Reset(Reason::REFUSED_STREAM)]).await;
    let route = "    exposeFailures: true\n";
    let proxy = Proxy::start(&one_route(upstream.address, "", route));
    let response = proxy.ask(POST).await;
    assert_eq!(response.status, 502);
    let failure = &response.json()["failures"][0];
    assert_eq!(failure["code"], "Provider.Call.Http.ConnectionFailed");
    assert_eq!(failure["details"]["requestSent"], "none");
    assert_eq!(failure["details"]["phase"], "stream");
    assert_eq!(response.field("proxy-status"), ["mwl-proxy; error=destination_unavailable"]);
}

/// Each of a hundred uploads begins when the upstream has refused its head.
#[tokio::test]
async fn bytes_that_come_late_are_sent_once_after_a_refusal() {
    let seen = std::sync::Mutex::new(std::collections::HashSet::new());
    let upstream = Upstream::run(200, move |_, request| {
        let first = seen.lock().unwrap().insert(request.uri.clone());
        if first { Act::Reset(Reason::REFUSED_STREAM) } else { Act::Answer(reply(200, "good")) }
    })
    .await;
    let route = retry("Provider.Call.Http.ConnectionFailed");
    let proxy = Proxy::start(&one_route(upstream.address, "", &route));
    let mut client = Client::connect(proxy.address).await;
    let mut open = Vec::new();
    for run in 0..100 {
        open.push(client.begin(request("POST", &format!("/{run}"), &[]), false).await);
    }
    // Each was refused, and has begun again.
    upstream.until(|seen| seen.len() == 200).await;
    for (response, mut stream) in open {
        stream.send_data(Bytes::from_static(b"0123456789"), true).unwrap();
        assert_eq!(within(whole(response)).await.unwrap().text(), "good");
    }
    let seen = upstream.requests();
    for run in 0..100 {
        let path = format!("http://t/{run}");
        let of_run: Vec<_> = seen.iter().filter(|request| request.uri == path).collect();
        assert_eq!(of_run.len(), 2, "{path}");
        assert_eq!(of_run[0].body, b"");
        assert_eq!((of_run[1].body.as_slice(), of_run[1].whole), (&b"0123456789"[..], true));
    }
}

/// A server that speaks just enough HTTP/2 to read one request and to say goodbye to it with `goaway` after
/// the whole of it; then it serves properly.
async fn leaving(last_stream: u32, reason: u32) -> Leaving {
    let (stop, stopped) = oneshot::channel();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
        until_end_of_stream(&mut stream).await;
        let mut goaway = vec![0, 0, 8, 7, 0, 0, 0, 0, 0];
        goaway.extend(last_stream.to_be_bytes());
        goaway.extend(reason.to_be_bytes());
        stream.write_all(&goaway).await.unwrap();
        drop(stream);
        let (stream, _) = tokio::select! {
            biased;
            second = listener.accept() => second.unwrap(),
            _ = stopped => return 1,
        };
        let mut second = h2::server::handshake(stream).await.unwrap();
        let mut requests = 1;
        while let Some(Ok((_, mut respond))) = second.accept().await {
            requests += 1;
            respond.send_response(http::Response::new(()), true).unwrap();
        }
        requests
    });
    Leaving { address, stop, task }
}

struct Leaving {
    address: std::net::SocketAddr,
    /// Says that no second connection is waited for any more.
    stop: oneshot::Sender<()>,
    /// How many requests came.
    task: tokio::task::JoinHandle<usize>,
}

/// Reads frames until one that ends a stream.
async fn until_end_of_stream(stream: &mut TcpStream) {
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await.unwrap();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let size = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; size as usize];
        stream.read_exact(&mut payload).await.unwrap();
        if matches!(head[3], 0 | 1) && head[4] & 1 == 1 {
            return;
        }
    }
}

#[tokio::test]
async fn a_goaway_before_the_request_leaves_it_unsent() {
    let Leaving { address, stop: _stop, task } = leaving(0, 0).await;
    let proxy =
        Proxy::start(&one_route(address, "", &retry("Provider.Call.Http.ConnectionFailed")));
    assert_eq!(proxy.ask(POST).await.status, 200);
    drop(proxy);
    assert_eq!(within(task).await.unwrap(), 2);
}

#[tokio::test]
async fn a_goaway_after_the_request_does_not() {
    let Leaving { address, stop, task } = leaving(1, 1).await;
    let route = format!("    exposeFailures: true\n{}", retry("Provider.Call.Http.*"));
    let proxy = Proxy::start(&one_route(address, "", &route));
    let response = proxy.ask(POST).await;
    assert_eq!(response.status, 502);
    let failure = &response.json()["failures"][0];
    assert_eq!(failure["code"], "Provider.Call.Http.ConnectionClosed");
    assert_eq!(failure["details"]["requestSent"], "complete");
    drop(proxy);
    stop.send(()).unwrap();
    assert_eq!(within(task).await.unwrap(), 1);
}

#[tokio::test]
async fn a_reset_stream_leaves_the_connection_and_is_no_refusal() {
    let acts = [
        Act::ReadAndReset(Reason::INTERNAL_ERROR),
        Act::ReadAndReset(Reason::INTERNAL_ERROR),
        Act::Answer(reply(200, "good")),
    ];
    let upstream = Upstream::play(acts).await;
    let proxy = Proxy::start(&one_route(upstream.address, "", ""));
    for _ in 0..2 {
        let response = proxy.ask(GET).await;
        assert_eq!(response.status, 502);
        assert_eq!(response.json()["code"], "Provider.Call.Http.ConnectionClosed");
    }
    assert_eq!(proxy.ask(GET).await.body, "good");
    assert_eq!((upstream.accepted(), upstream.requests().len()), (1, 3));
}

#[tokio::test]
async fn a_connection_that_has_closed_is_not_used_again() {
    let upstream = Upstream::play([Act::Answer(reply(200, "good"))]).await;
    let address = upstream.address;
    let proxy = Proxy::start(&one_route(address, "", ""));
    assert_eq!(proxy.ask(GET).await.body, "good");
    drop(upstream);
    // The listener is gone, and with it every connection.
    let response = proxy.ask(GET).await;
    assert_eq!(response.status, 502);
    assert_eq!(response.json()["code"], "Provider.Call.Http.ConnectionFailed");
}

#[tokio::test]
async fn an_attempt_that_is_dropped_cancels_its_stream_and_counts_as_what_dropped_it() {
    let upstream = Upstream::play([Act::Hang]).await;
    let timeout = "    middleware:\n      - provider: mwl:provider.middleware/mwl/timeout/v1\n        onEntry: { with: { duration: PT0.1S } }\n";
    let proxy = Proxy::start(&one_route(upstream.address, "", timeout));
    assert_eq!(proxy.ask(POST).await.status, 504);
    let seen = upstream.until(|seen| seen[0].reset.is_some()).await;
    assert_eq!(seen[0].reset, Some(Reason::CANCEL));
    let series = |code: &str| {
        proxy.metric(&format!(r#"mwl_attempts_total{{code="{code}",route="r",upstream="u"}}"#))
    };
    assert_eq!(series("Provider.Middleware.Timeout.Exceeded"), 1);
    assert_eq!(series("System.Cancelled"), 0);
}

#[tokio::test]
async fn a_connection_that_has_fallen_silent_is_left_by_the_next_attempt() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (answered, mut told) = tokio::sync::mpsc::channel(1);
    let serving = tokio::spawn(async move {
        let mut silent = Vec::new();
        for connection in 0_usize.. {
            let (stream, _) = listener.accept().await.unwrap();
            let mut server = h2::server::handshake(stream).await.unwrap();
            if connection > 0 {
                tokio::spawn(async move {
                    while let Some(Ok((_, mut respond))) = server.accept().await {
                        respond.send_response(http::Response::new(()), true).unwrap();
                    }
                });
                continue;
            }
            let (_, mut respond) = server.accept().await.unwrap().unwrap();
            respond.send_response(http::Response::new(()), true).unwrap();
            // The answer leaves; after that nobody looks at this connection any more.
            tokio::select! {
                _ = server.accept() => {}
                _ = told.recv() => {}
            }
            silent.push(server);
        }
    });
    let timeout = "      - { provider: mwl:provider.middleware/mwl/timeout/v1, onEntry: { with: { duration: PT1S } } }\n";
    let policy = "{ match: { codes: [Provider.Middleware.Timeout.Exceeded] }, attempts: 3 }";
    let route = format!(
        "    middleware:\n      - provider: mwl:provider.middleware/mwl/retry/v1\n        onEntry: {{ with: {{ policies: [ {policy} ] }} }}\n{timeout}"
    );
    let proxy = Proxy::start(&one_route(address, "", &route));
    assert_eq!(proxy.ask(GET).await.status, 200);
    answered.send(()).await.unwrap();
    assert_eq!(proxy.ask(GET).await.status, 200);
    assert_eq!(proxy.metric(r#"mwl_timeouts_total{route="r"}"#), 1);
    serving.abort();
}

#[tokio::test]
async fn a_head_beyond_its_bound_is_a_protocol_error() {
    let mut large = fields(&[]);
    large.insert("x", "x".repeat(128 * 1024).parse().unwrap());
    let answered = Reply { fields: large, ..reply(200, "hello") };
    let acts = [Act::Answer(answered), Act::Answer(reply(200, "good"))];
    let upstream = Upstream::play(acts).await;
    let proxy = Proxy::start(&one_route(upstream.address, "", ""));
    let response = proxy.ask(GET).await;
    assert_eq!(response.status, 502);
    assert_eq!(response.json()["code"], "Provider.Call.Http.ProtocolError");
    assert_eq!(proxy.ask(GET).await.body, "good");
}

#[tokio::test]
async fn a_client_that_leaves_cancels_the_stream_upstream() {
    let slow = vec![(Duration::ZERO, &b"first"[..])];
    let never = Some((Duration::from_mins(1), fields(&[])));
    let streaming = Reply { status: 200, chunks: slow, trailers: never, ..Reply::default() };
    for (act, answered) in [(Act::Hang, false), (Act::Answer(streaming), true)] {
        let upstream = Upstream::play([act]).await;
        let proxy = Proxy::start(&one_route(upstream.address, "", ""));
        let mut client = proxy.connect().await;
        client.send(GET).await;
        upstream.until(|seen| !seen.is_empty()).await;
        if answered {
            let mut byte = [0];
            within(client.stream.read_exact(&mut byte)).await.unwrap();
        }
        drop(client);
        let seen = upstream.until(|seen| seen[0].reset.is_some()).await;
        assert_eq!(seen[0].reset, Some(Reason::CANCEL));
        proxy.until_idle().await;
    }
}

#[tokio::test]
async fn an_upload_without_its_client_is_cancelled_and_never_ended() {
    let upstream = Upstream::play([Act::Answer(reply(200, ""))]).await;
    let proxy = Proxy::start(&one_route(upstream.address, "", ""));
    let mut client = Client::connect(proxy.address).await;
    let (response, mut stream) = client.begin(request("POST", "/a", &[]), false).await;
    stream.send_data(Bytes::from_static(b"half"), false).unwrap();
    upstream.until(|seen| seen.first().is_some_and(|seen| seen.body == b"half")).await;
    // The connection speaks meanwhile: one that said nothing would be left.
    assert_eq!(client.ask(request("GET", "/b", &[]), b"").await.status, 200);
    stream.send_reset(Reason::CANCEL);
    drop(response);
    proxy.until_idle().await;
    assert!(!upstream.requests()[0].whole);
    assert_eq!(client.ask(request("GET", "/a", &[]), b"").await.status, 200);
    assert_eq!(upstream.accepted(), 1);
}

#[tokio::test]
async fn no_request_is_lost_when_the_upstream_takes_leave_between_two() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        let mut requests = 0;
        while requests < 40 {
            let (stream, _) = listener.accept().await.unwrap();
            let mut server = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((_, mut respond))) = server.accept().await {
                requests += 1;
                respond.send_response(http::Response::new(()), true).unwrap();
                server.graceful_shutdown();
            }
        }
        requests
    });
    let proxy = Proxy::start(&one_route(address, "", &retry("Provider.Call.Http.Throttled")));
    for _ in 0..40 {
        assert_eq!(proxy.ask(POST).await.status, 200);
    }
    assert_eq!(within(serving).await.unwrap(), 40);
}

#[tokio::test]
async fn an_upstream_that_takes_one_at_a_time_is_given_one_at_a_time() {
    let upstream = Upstream::run(1, |_, _| Act::Answer(reply(200, "good"))).await;
    let proxy = Proxy::start(&one_route(upstream.address, "", ""));
    let mut client = Client::connect(proxy.address).await;
    let mut all = Vec::new();
    for _ in 0..30 {
        all.push(client.begin(request("GET", "/a", &[]), true).await.0);
    }
    for response in all {
        assert_eq!(within(whole(response)).await.unwrap().text(), "good");
    }
    assert_eq!(upstream.requests().len(), 30);
}

#[tokio::test]
async fn a_length_that_is_none_is_a_protocol_error() {
    let twice = fields(&[("content-length", "5"), ("content-length", "7")]);
    let upstream =
        Upstream::play([Act::Answer(Reply { fields: twice, ..reply(200, "hello") })]).await;
    let proxy = Proxy::start(&one_route(upstream.address, "", ""));
    let response = proxy.ask(GET).await;
    assert_eq!(response.status, 502);
    assert_eq!(response.json()["code"], "Provider.Call.Http.ProtocolError");
}

#[tokio::test]
async fn an_upload_ends_with_the_answer_that_nobody_waits_beyond() {
    let upstream = Upstream::play([Act::Early(reply(413, "too much"))]).await;
    let proxy = Proxy::start(&one_route(upstream.address, "", ""));
    let mut client = Client::connect(proxy.address).await;
    for _ in 0..5 {
        let (response, mut stream) = client.begin(request("POST", "/a", &[]), false).await;
        stream.send_data(Bytes::from(vec![b'u'; 1 << 20]), true).unwrap();
        let answer = within(whole(response)).await.unwrap();
        assert_eq!((answer.status, answer.text()), (413, "too much"));
    }
    assert_eq!(upstream.accepted(), 1);
}

#[tokio::test]
async fn an_early_answer_is_retried_with_the_whole_upload() {
    let early = Act::Early(reply(503, "busy"));
    let upstream = Upstream::play([early, Act::Answer(reply(200, "good"))]).await;
    let proxy =
        Proxy::start(&one_route(upstream.address, "", &retry("Provider.Call.Http.Unavailable")));
    let mut client = Client::connect(proxy.address).await;
    let (response, mut stream) = client.begin(request("PUT", "/a", &[]), false).await;
    stream.send_data(Bytes::from(vec![b'c'; 1000]), false).unwrap();
    upstream.until(|seen| seen.len() == 2).await;
    stream.send_data(Bytes::from(vec![b'c'; 39_000]), true).unwrap();
    assert_eq!(within(whole(response)).await.unwrap().text(), "good");
    assert_eq!(upstream.requests()[1].body.len(), 40_000);
}

#[tokio::test]
async fn an_answer_that_breaks_off_stays_broken() {
    let broken = Reply { reset: Some(Reason::INTERNAL_ERROR), ..reply(200, "hello") };
    let upstream = Upstream::play([Act::Answer(broken)]).await;
    let proxy = Proxy::start(&one_route(upstream.address, "", ""));
    let response = proxy.ask(GET).await;
    assert_eq!((response.whole, response.body.as_str()), (false, "hello"));
    let mut client = Client::connect(proxy.address).await;
    let error = client.try_ask(request("GET", "/a", &[]), b"").await.unwrap_err();
    assert!(error.is_reset() && error.is_remote(), "{error}");
}

#[tokio::test]
async fn an_upstream_that_does_not_greet_in_http_2_gives_no_connection() {
    use crate::support::upstream as one;
    for act in [one::always(400, "", "hello"), one::Act::Hang, one::Act::Close] {
        let upstream = one::Upstream::play([act]).await;
        let options = ", connectTimeout: PT1S";
        let proxy =
            Proxy::start(&one_route(upstream.address, options, "    exposeFailures: true\n"));
        let response = proxy.ask(POST).await;
        assert_eq!(response.status, 502);
        let failure = &response.json()["failures"][0];
        assert_eq!(failure["code"], "Provider.Call.Http.ConnectionFailed");
        assert_eq!(failure["details"]["phase"], "handshake");
        assert_eq!(failure["details"]["requestSent"], "none");
        let message = failure["message"].as_str().unwrap();
        assert!(message.contains("did not greet in HTTP/2"), "{message}");
        assert_eq!(upstream.accepted(), 1);
    }
}

#[tokio::test]
async fn nobody_waits_longer_than_the_first_for_an_endpoint_that_is_not_there() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let proxy = Proxy::start(&one_route(address, "", ""));
    let mut client = Client::connect(proxy.address).await;
    let mut all = Vec::new();
    for _ in 0..20 {
        all.push(client.begin(request("GET", "/a", &[]), true).await.0);
    }
    for response in all {
        let answer = within(whole(response)).await.unwrap();
        assert_eq!(answer.status, 502);
        assert_eq!(answer.json()["code"], "Provider.Call.Http.ConnectionFailed");
    }
}

#[tokio::test]
async fn trailers_pass_both_ways_and_those_that_must_not_do_not() {
    let answered = Reply {
        fields: fields(&[("x-head", "1")]),
        trailers: Some((Duration::ZERO, fields(&[("x-sum", "2"), ("content-length", "9")]))),
        ..reply(200, "hello")
    };
    let upstream = Upstream::play([Act::Answer(reply(503, "")), Act::Answer(answered)]).await;
    let proxy =
        Proxy::start(&one_route(upstream.address, "", &retry("Provider.Call.Http.Unavailable")));
    let mut client = Client::connect(proxy.address).await;
    let (response, mut stream) = client.begin(request("PUT", "/a", &[]), false).await;
    stream.send_data(Bytes::from_static(b"body"), false).unwrap();
    stream.send_trailers(fields(&[("x-sum", "1"), ("authorization", "z")])).unwrap();
    let answer = within(whole(response)).await.unwrap();
    assert_eq!((answer.text(), answer.trailer("x-sum")), ("hello", Some("2")));
    assert_eq!(answer.trailer("content-length"), None);
    assert!(answer.field("x-sum").is_empty());
    for seen in upstream.requests() {
        let trailers = seen.trailers.as_ref().unwrap();
        assert_eq!((trailers.len(), &trailers["x-sum"]), (1, &"1".parse().unwrap()));
        assert!(seen.field("x-sum").is_empty());
    }
}

#[tokio::test]
async fn trailers_pass_between_the_protocols() {
    use crate::support::upstream as one;
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n";
    let act = one::Act::Answer(format!("{head}2\r\nhi\r\n0\r\nX-Sum: 7\r\n\r\n").into());
    let upstream = one::Upstream::play([act]).await;
    let proxy = Proxy::start(&super::one_route(&upstream, ""));
    let mut client = Client::connect(proxy.address).await;
    let answer = client.ask(request("GET", "/a", &[]), b"").await;
    assert_eq!((answer.text(), answer.trailer("x-sum")), ("hi", Some("7")));
    let act = one::Act::Answer(format!("{head}2\r\nhi\r\n0\r\nContent-Length: 7\r\n\r\n").into());
    let forbidden = one::Upstream::play([act]).await;
    let none = Proxy::start(&super::one_route(&forbidden, ""));
    let answer = Client::connect(none.address).await.ask(request("GET", "/a", &[]), b"").await;
    assert_eq!((answer.text(), &answer.trailers), ("hi", &None));
    // An HTTP/1.1 client gets them where it says that it takes them.
    let ask = |te: &str| format!("GET /a HTTP/1.1\r\nHost: t\r\nConnection: close{te}\r\n\r\n");
    for (te, there) in [("", false), (", te\r\nTE: trailers", true)] {
        let mut client = proxy.connect().await;
        client.send(ask(te)).await;
        let said = String::from_utf8(client.rest().await).unwrap();
        assert_eq!(said.ends_with("0\r\nx-sum: 7\r\n\r\n"), there, "{said}");
    }
}

#[tokio::test]
async fn an_http_1_client_s_trailers_reach_an_http_2_upstream() {
    let upstream = Upstream::play([Act::Answer(reply(200, ""))]).await;
    let proxy = Proxy::start(&one_route(upstream.address, "", ""));
    let head = "PUT /a HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n";
    let response = proxy.ask(&format!("{head}2\r\nhi\r\n0\r\nX-Sum: 1\r\nHost: z\r\n\r\n")).await;
    assert_eq!(response.status, 200);
    let trailers = upstream.requests()[0].trailers.clone().unwrap();
    assert_eq!((trailers.len(), &trailers["x-sum"]), (1, &"1".parse().unwrap()));
}

#[tokio::test]
async fn announced_trailers_reach_an_http_1_upstream_on_every_attempt() {
    use crate::support::upstream as one;
    let acts = [one::always(503, "", ""), one::always(200, "", "good")];
    let upstream = one::Upstream::play(acts).await;
    let proxy =
        Proxy::start(&super::one_route(&upstream, &retry("Provider.Call.Http.Unavailable")));
    let mut client = proxy.connect().await;
    let body = "2\r\nhi\r\n0\r\nX-Sum: 1\r\nContent-Length: 9\r\nAuthorization: z\r\n\r\n";
    let head = "PUT /a HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, Content-Length\r\n\r\n";
    assert_eq!(client.ask(&format!("{head}{body}")).await.body, "good");
    for seen in upstream.requests() {
        assert_eq!(seen.field("trailer"), ["x-sum"]);
        assert!(seen.field("x-sum").is_empty() && seen.field("authorization").is_empty());
        assert_eq!(seen.trailers, ["x-sum: 1"]);
    }
    assert_eq!(client.ask(GET).await.status, 200);
}
