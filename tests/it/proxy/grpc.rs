use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;

use super::h2_upstreams::one_route;
use crate::support::h2::{Act, Answer, Client, Reply, Upstream, fields, request};
use crate::support::proxy::{Proxy, within};
use crate::support::stack::timeout;

const GRPC: (&str, &str) = ("content-type", "application/grpc");

fn retry(codes: &str, more: &str) -> String {
    format!(
        "    exposeFailures: true\n    middleware:\n      - provider: mwl:provider.middleware/mwl/retry/v1\n        onEntry: {{ with: {{ policies: [ {{ match: {{ codes: [{codes}] }}, attempts: 3 }} ] }} }}\n{more}"
    )
}

/// The delay that a response asks for, else the schedule's.
const HEEDING: &str = "        onFailure: { with: { delay: \"{{ has(middleware.result.details.retryAfter) ? middleware.result.details.retryAfter : null }}\" } }\n";

/// All there is in one header section.
fn trailers_only(all: &[(&'static str, &'static str)]) -> Act {
    let mut head = fields(&[("content-type", "application/grpc")]);
    head.extend(fields(all));
    Act::Answer(Reply { status: 200, fields: head, ..Reply::default() })
}

/// A head, messages, and trailers after a pause.
fn call(messages: &[(u64, &'static str)], pause: u64, status: &'static str) -> Act {
    Act::Answer(called(messages, pause, status))
}

/// The same, where the last message waits for the gate.
fn held(messages: &[(u64, &'static str)]) -> (Act, Arc<Notify>) {
    let gate = Arc::new(Notify::new());
    let reply = Reply { gate: Some(Arc::clone(&gate)), ..called(messages, 0, "0") };
    (Act::Answer(reply), gate)
}

fn called(messages: &[(u64, &'static str)], pause: u64, status: &'static str) -> Reply {
    let millis = Duration::from_millis;
    let chunks = messages.iter().map(|(pause, text)| (millis(*pause), text.as_bytes()));
    Reply {
        status: 200,
        fields: fields(&[("content-type", "application/grpc")]),
        chunks: chunks.collect(),
        trailers: Some((millis(pause), fields(&[("grpc-status", status), ("x-t", "1")]))),
        ..Reply::default()
    }
}

fn good() -> Act {
    call(&[(0, "hello")], 0, "0")
}

async fn ask(proxy: &Proxy) -> Answer {
    let mut client = Client::connect(proxy.address).await;
    let fields = [GRPC, ("te", "trailers"), ("grpc-timeout", "5S")];
    client.ask(request("POST", "/s.S/M", &fields), b"\0\0\0\0\0").await
}

#[tokio::test]
async fn a_call_passes_with_its_trailers() {
    let upstream = Upstream::play([good()]).await;
    let proxy = Proxy::start(&one_route(upstream.address, "", ""));
    let answer = ask(&proxy).await;
    assert_eq!((answer.status, answer.text()), (200, "hello"));
    assert_eq!((answer.trailer("grpc-status"), answer.trailer("x-t")), (Some("0"), Some("1")));
    let seen = &upstream.requests()[0];
    assert_eq!((seen.field("te"), seen.field("grpc-timeout")), (vec!["trailers"], vec!["5S"]));
    assert_eq!(seen.body, b"\0\0\0\0\0");
}

#[tokio::test]
async fn a_call_that_fails_before_its_first_message_is_a_failure() {
    // The last: an empty frame of data is no message.
    let ways =
        [trailers_only(&[("grpc-status", "14")]), call(&[], 0, "14"), call(&[(0, "")], 0, "14")];
    for act in ways {
        let upstream = Upstream::play([act, good()]).await;
        let route = retry("Provider.Call.Http.Grpc.Unavailable", "");
        let proxy = Proxy::start(&one_route(upstream.address, "", &route));
        assert_eq!(ask(&proxy).await.text(), "hello");
        assert_eq!(upstream.requests().len(), 2);
        let series = r#"mwl_attempts_total{code="Provider.Call.Http.Grpc.Unavailable",route="r",upstream="u"}"#;
        assert_eq!(proxy.metric(series), 1);
    }
}

#[tokio::test]
async fn a_failure_that_comes_later_is_passed_on() {
    let after_a_pause = call(&[], 200, "14");
    let after_a_message = call(&[(0, "hello")], 0, "14");
    for (act, body) in [(after_a_pause, ""), (after_a_message, "hello")] {
        let upstream = Upstream::play([act]).await;
        let route = retry("Provider.Call.Http.Grpc.Unavailable", "");
        let proxy = Proxy::start(&one_route(upstream.address, "", &route));
        let answer = ask(&proxy).await;
        assert_eq!((answer.text(), answer.trailer("grpc-status")), (body, Some("14")));
        assert_eq!(upstream.requests().len(), 1);
    }
}

#[tokio::test]
async fn what_is_looked_at_is_not_lost_and_nothing_is_held_back() {
    let (answer, gate) = held(&[(0, "first"), (0, "later")]);
    let upstream = Upstream::play([answer]).await;
    let proxy = Proxy::start(&one_route(upstream.address, "", &retry("Provider.*", "")));
    let mut client = Client::connect(proxy.address).await;
    let (response, mut stream) = client.begin(request("POST", "/s.S/M", &[GRPC]), false).await;
    stream.send_data(Bytes::new(), true).unwrap();
    let mut body = within(response).await.unwrap().into_body();
    assert_eq!(within(body.data()).await.unwrap().unwrap(), "first");
    gate.notify_one();
    assert_eq!(within(body.data()).await.unwrap().unwrap(), "later");
    assert!(body.data().await.is_none());
    assert_eq!(body.trailers().await.unwrap().unwrap()["grpc-status"], "0");
}

#[tokio::test]
async fn a_stream_s_head_does_not_wait_for_its_first_message() {
    let (answer, gate) = held(&[(0, "late")]);
    let upstream = Upstream::play([answer]).await;
    let proxy = Proxy::start(&one_route(upstream.address, "", &retry("Provider.*", "")));
    let mut client = Client::connect(proxy.address).await;
    let (response, _stream) = client.begin(request("POST", "/s.S/M", &[GRPC]), true).await;
    let mut body = within(response).await.unwrap().into_body();
    gate.notify_one();
    assert_eq!(within(body.data()).await.unwrap().unwrap(), "late");
}

#[tokio::test]
async fn a_server_s_push_back_is_heeded() {
    let asks = trailers_only(&[("grpc-status", "8"), ("grpc-retry-pushback-ms", "100")]);
    let upstream = Upstream::play([asks, good()]).await;
    let route = retry("Provider.Call.Http.Grpc.*", HEEDING);
    let proxy = Proxy::start(&one_route(upstream.address, "", &route));
    let begun = tokio::time::Instant::now();
    assert_eq!(ask(&proxy).await.text(), "hello");
    assert!(begun.elapsed() >= Duration::from_millis(100));
    assert_eq!(proxy.metric(r#"mwl_retries_total{code="Provider.Call.Http.Grpc.ResourceExhausted",delay="override",route="r"}"#), 1);
}

#[tokio::test]
async fn a_server_that_wants_no_retry_gets_none() {
    for pushback in ["-1", "x"] {
        let refuses = trailers_only(&[("grpc-status", "14"), ("grpc-retry-pushback-ms", pushback)]);
        let upstream = Upstream::play([refuses, good()]).await;
        let route = retry("Provider.Call.Http.Grpc.*", HEEDING);
        let proxy = Proxy::start(&one_route(upstream.address, "", &route));
        // The client gets what the server said.
        assert_eq!(ask(&proxy).await.field("grpc-status"), ["14"]);
        assert_eq!(upstream.requests().len(), 1);
        let series = r#"mwl_retries_suppressed_total{reason="serverPushback",route="r"}"#;
        assert_eq!(proxy.metric(series), 1);
    }
}

#[tokio::test]
async fn a_status_is_read_where_a_route_reads_bodies_too() {
    let reads = "    output: \"{{ step.result.value.body == 'x' ? null : step.result.value }}\"\n";
    let upstream = Upstream::play([call(&[], 0, "5"), good()]).await;
    let route = retry("Provider.Call.Http.Grpc.NotFound", reads);
    let proxy = Proxy::start(&one_route(upstream.address, "", &route));
    let answer = ask(&proxy).await;
    assert_eq!((answer.text(), answer.trailer("grpc-status")), ("hello", Some("0")));
    assert_eq!(upstream.requests().len(), 2);
}

#[tokio::test]
async fn the_proxy_s_own_failures_are_told_in_grpc() {
    let upstream = Upstream::play([Act::Hang]).await;
    let timeout = concat!("    middleware:\n", timeout!("PT0.05S"));
    let config = one_route(upstream.address, "", timeout);
    let proxy = Proxy::start(&config);
    let answer = ask(&proxy).await;
    assert_eq!((answer.status, answer.text()), (200, ""));
    assert_eq!(answer.field("content-type"), ["application/grpc"]);
    assert_eq!(answer.field("grpc-status"), ["4"]);
    let message = answer.field("grpc-message")[0];
    assert!(message.starts_with("Provider.Middleware.Timeout.Exceeded (execution "), "{message}");
    assert_eq!(answer.field("proxy-status"), ["mwl-proxy; error=http_response_timeout"]);

    let unavailable = Proxy::start(&one_route("127.0.0.1:1".parse().unwrap(), "", ""));
    assert_eq!(ask(&unavailable).await.field("grpc-status"), ["14"]);
    let nowhere = Proxy::start(&config.replace("pathPrefix: /", "path: /x"));
    let answer = ask(&nowhere).await;
    assert_eq!((answer.status, answer.field("grpc-status")), (200, vec!["12"]));
    assert_eq!(answer.field("grpc-message"), ["no route takes this request"]);
}

#[tokio::test]
async fn both_directions_of_a_stream_flow_at_once() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::start(&one_route(listener.local_addr().unwrap(), "", ""));
    let echoing = tokio::spawn(echo(listener));
    let mut client = Client::connect(proxy.address).await;
    let (response, mut stream) = client.begin(request("POST", "/s.S/M", &[GRPC]), false).await;
    let mut body = within(response).await.unwrap().into_body();
    for message in ["one", "two", "three"] {
        stream.send_data(Bytes::from(message), false).unwrap();
        assert_eq!(within(body.data()).await.unwrap().unwrap(), message);
    }
    stream.send_data(Bytes::new(), true).unwrap();
    assert!(within(body.data()).await.is_none());
    assert_eq!(body.trailers().await.unwrap().unwrap()["grpc-status"], "0");
    echoing.abort();
}

/// Answers one call with its own messages, each as it comes.
async fn echo(listener: tokio::net::TcpListener) {
    let (stream, _) = listener.accept().await.unwrap();
    let mut server = h2::server::handshake(stream).await.unwrap();
    let (request, mut respond) = server.accept().await.unwrap().unwrap();
    let answering = async {
        let mut head = http::Response::new(());
        *head.headers_mut() = fields(&[("content-type", "application/grpc")]);
        let mut stream = respond.send_response(head, false).unwrap();
        let mut body = request.into_body();
        while let Some(message) = body.data().await {
            let message = message.unwrap();
            body.flow_control().release_capacity(message.len()).unwrap();
            if !message.is_empty() {
                stream.send_data(message, false).unwrap();
            }
        }
        stream.send_trailers(fields(&[("grpc-status", "0")])).unwrap();
    };
    let serving = async { while server.accept().await.is_some() {} };
    tokio::join!(answering, serving);
}
