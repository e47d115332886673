//! Faults that a stack injects: what each kind of client gets, and what stands around them makes of them.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::one_route;
use crate::support::h2::{Client, request};
use crate::support::proxy::Proxy;
use crate::support::stack::audit;
use crate::support::upstream::{Upstream, always};

const GET: &str = "GET /a HTTP/1.1\r\nHost: t\r\n\r\n";
const INJECTED: &str = "Provider.Middleware.Fault.Injected";

/// A route whose stack is a fault with these arguments, behind `outer` entries.
fn faulty(outer: &str, with: &str) -> String {
    format!(
        "    middleware:
{outer}      - provider: mwl:provider.middleware/mwl-proxy/fault/v1
        onEntry: {{ with: {{ {with} }} }}
"
    )
}

fn retry() -> String {
    format!(
        "      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry: {{ with: {{ policies: [ {{ match: {{ codes: [{INJECTED}] }}, attempts: 3 }} ] }} }}
"
    )
}

#[tokio::test]
async fn a_client_gets_the_status_and_the_upstream_nothing() {
    let upstream = Upstream::run(|_, _| always(200, "", "good")).await;
    let proxy = Proxy::start(&one_route(&upstream, &faulty("", "share: 1, status: 429")));
    let response = proxy.ask(GET).await;
    assert_eq!(response.status, 429);
    assert_eq!(response.json()["code"], INJECTED);
    assert_eq!(response.field("proxy-status"), ["mwl-proxy; error=proxy_internal_response"]);
    assert!(upstream.requests().is_empty());
    // A Retry around it sees each, and gives up on them.
    let route = faulty(&retry(), "share: 1, status: 503");
    let proxy = Proxy::start(&one_route(&upstream, &route));
    let response = proxy.ask(GET).await;
    assert_eq!(response.status, 503);
    assert_eq!(response.json()["code"], "Provider.Middleware.Retry.Exhausted");
    let series = format!(r#"mwl_retries_total{{code="{INJECTED}",delay="schedule",route="r"}}"#);
    assert_eq!(proxy.metric(&series), 2);
    assert!(upstream.requests().is_empty());
}

#[tokio::test]
async fn a_reset_closes_the_connection_without_an_answer() {
    let upstream = Upstream::run(|_, _| always(200, "", "good")).await;
    let proxy = Proxy::start(&one_route(&upstream, &faulty("", "share: 1, reset: true")));
    let mut client = TcpStream::connect(proxy.address).await.unwrap();
    client.write_all(GET.as_bytes()).await.unwrap();
    let mut said = Vec::new();
    let ended = client.read_to_end(&mut said).await;
    assert_eq!(ended.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    assert_eq!(said, b"");
    let series = r#"mwl_requests_total{route="r",status="444"}"#;
    proxy.until(|proxy| proxy.metric(series) == 1).await;
}

#[tokio::test]
async fn a_client_of_http2_gets_the_status_or_a_reset_of_its_stream_alone() {
    let upstream = Upstream::run(|_, _| always(200, "", "good")).await;
    let proxy = Proxy::start(&one_route(&upstream, &faulty("", "share: 1, status: 503")));
    let mut client = Client::connect(proxy.address).await;
    assert_eq!(client.ask(request("GET", "/a", &[]), b"").await.status, 503);
    // A gRPC client gets what gRPC has for the status.
    let grpc = [("content-type", "application/grpc"), ("te", "trailers")];
    let answer = client.ask(request("POST", "/a", &grpc), b"").await;
    assert_eq!((answer.status, answer.field("grpc-status")), (200, vec!["14"]));

    let proxy = Proxy::start(&one_route(&upstream, &faulty("", "share: 1, reset: true")));
    let mut client = Client::connect(proxy.address).await;
    assert!(client.try_ask(request("GET", "/a", &[]), b"").await.is_err());
    assert!(client.try_ask(request("GET", "/a", &[]), b"").await.is_err());
    let series = r#"mwl_requests_total{route="r",status="444"}"#;
    proxy.until(|proxy| proxy.metric(series) == 2).await;
}

#[tokio::test]
async fn a_cleanup_around_a_fault_runs_once_and_sees_it() {
    let upstream = Upstream::run(|_, _| always(200, "", "noted")).await;
    let cleanup = audit!("u", "/audit", "{ 'code': middleware.result.code }");
    for (failing, status) in [("status: 503", "503"), ("reset: true", "444")] {
        let route = faulty(cleanup, &format!("share: 1, {failing}"));
        let proxy = Proxy::start(&one_route(&upstream, &route));
        let before = upstream.requests().len();
        let mut client = TcpStream::connect(proxy.address).await.unwrap();
        let text = GET.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
        client.write_all(text.as_bytes()).await.unwrap();
        let mut said = Vec::new();
        let ended = client.read_to_end(&mut said).await;
        assert_eq!(ended.is_err(), status == "444", "{failing}: {ended:?}");
        let series = format!(r#"mwl_requests_total{{route="r",status="{status}"}}"#);
        proxy.until(|proxy| proxy.metric(&series) == 1).await;
        let cleanups = r#"mwl_finally_total{outcome="success",route="r"}"#;
        proxy.until(|proxy| proxy.metric(cleanups) == 1).await;
        let seen = &upstream.requests()[before..];
        assert_eq!(seen.len(), 1, "{failing}: the audit, and nothing else");
        assert!(seen[0].head.starts_with("POST /audit "), "{}", seen[0].head);
        let body: serde_json::Value = serde_json::from_slice(&seen[0].body).unwrap();
        assert_eq!(body, serde_json::json!({ "code": INJECTED }));
    }
}

#[tokio::test]
async fn a_retry_inside_a_fault_runs_only_where_the_fault_lets_it() {
    let retry = retry().replace(INJECTED, "Provider.Call.Http.Unavailable");
    for (share, status, attempts) in [(1, 429, 0), (0, 503, 3)] {
        let upstream = Upstream::run(|_, _| always(503, "", "busy")).await;
        let mut route = faulty("", &format!("share: {share}, status: 429"));
        route.push_str(&retry);
        let proxy = Proxy::start(&one_route(&upstream, &route));
        assert_eq!(proxy.ask(GET).await.status, status, "share {share}");
        assert_eq!(upstream.requests().len(), attempts, "share {share}");
    }
}

#[tokio::test]
async fn a_key_decides_for_a_client() {
    let upstream = Upstream::run(|_, _| always(200, "", "good")).await;
    let with = r#"share: 0.5, status: 500, key: "{{ middleware.input.headers['x-user'] }}""#;
    let proxy = Proxy::start(&one_route(&upstream, &faulty("", with)));
    let mut got = Vec::new();
    for user in 0..20 {
        let text = format!("GET /a HTTP/1.1\r\nHost: t\r\nX-User: user-{user}\r\n\r\n");
        let first = proxy.ask(&text).await.status;
        assert_eq!(proxy.ask(&text).await.status, first, "user-{user}");
        got.push(first);
    }
    assert!(got.contains(&200) && got.contains(&500), "{got:?}");
}
