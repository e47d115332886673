//! Upstreams that refuse, reset, say goodbye or stop answering.

use bytes::Bytes;
use h2::Reason;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use super::{GET, POST, one_route, retry};
use crate::support::h2::{Act, Client, Reply, Upstream, reply, request, whole};
use crate::support::proxy::{Proxy, within};
use crate::support::stack::timeout;

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
    // The policy matches nothing here, but because of it, bodies are kept.
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

/// Each of a hundred uploads begins after the upstream has refused its head.
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
    // Each was refused, and began again.
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

/// A server that speaks just enough HTTP/2 to read one request and to send `goaway` after it. Then it serves
/// properly.
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
    /// Says that no second connection is expected any more.
    stop: oneshot::Sender<()>,
    /// How many requests arrived.
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
    // The listener is gone, and so is every connection.
    let response = proxy.ask(GET).await;
    assert_eq!(response.status, 502);
    assert_eq!(response.json()["code"], "Provider.Call.Http.ConnectionFailed");
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
            // The answer is sent. After that nobody reads this connection any more.
            tokio::select! {
                _ = server.accept() => {}
                _ = told.recv() => {}
            }
            silent.push(server);
        }
    });
    let timeout = timeout!("PT1S");
    let policy = "{ match: { codes: [Provider.Middleware.Timeout.Exceeded] }, attempts: 3 }";
    let route = format!(
        "    middleware:\n      - provider: mwl:provider.middleware/mwl/retry/v1\n        onEntry: {{ with: {{ policies: [ {policy} ] }} }}\n{timeout}"
    );
    let proxy = Proxy::start(&one_route(address, "", &route));
    assert_eq!(proxy.ask(GET).await.status, 200);
    answered.send(()).await.unwrap();
    assert_eq!(proxy.ask(GET).await.status, 200);
    assert_eq!(proxy.metric(r#"mwl_timeouts_total{entry="r/1",route="r"}"#), 1);
    serving.abort();
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
