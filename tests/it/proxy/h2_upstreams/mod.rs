/// Refusals, resets, goodbyes.
mod dying;
mod leaving;
/// Trailers.
mod trailers;

use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use tokio::io::AsyncReadExt;

use crate::support::h2::{Act, Client, Reply, Upstream, fields, reply, request, whole};
use crate::support::proxy::{Proxy, within};
use crate::support::stack::timeout;

/// A configuration with one route to an HTTP/2 upstream.
pub(in crate::proxy) fn one_route(
    address: std::net::SocketAddr,
    upstream: &str,
    route: &str,
) -> String {
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
async fn an_attempt_that_is_dropped_cancels_its_stream_and_counts_as_what_dropped_it() {
    let upstream = Upstream::play([Act::Hang]).await;
    let timeout = concat!("    middleware:\n", timeout!("PT0.1S"));
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
    // The connection carries bytes meanwhile; otherwise it would be given up.
    assert_eq!(client.ask(request("GET", "/b", &[]), b"").await.status, 200);
    stream.send_reset(Reason::CANCEL);
    drop(response);
    proxy.until_idle().await;
    assert!(!upstream.requests()[0].whole);
    assert_eq!(client.ask(request("GET", "/a", &[]), b"").await.status, 200);
    assert_eq!(upstream.accepted(), 1);
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
