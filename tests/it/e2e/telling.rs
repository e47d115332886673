//! What the log says about failed requests by default.

use serde_json::{Value, json};

use crate::support::client::{Client, request};
use crate::support::h2;
use crate::support::origin::{Origin, Port, State, Turn, answer};
use crate::support::program::Proxy;

/// What the log said about failed requests, after the proxy has ended.
fn told(mut proxy: Proxy) -> Vec<Value> {
    proxy.program().signal("TERM");
    assert_eq!(proxy.exit().code(), Some(0));
    let lines = proxy.program().lines();
    let failed = lines.iter().filter(|line| line.contains("A request failed."));
    failed.map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn of_an_upstream_that_is_down_the_log_tells_at_once_and_once() {
    let down = Port::hold();
    let proxy = Proxy::before(
        &[("gone", down.address)],
        "  - { name: down, match: { pathPrefix: /down }, upstream: gone }\n  \
           - name: retried\n    match: { pathPrefix: /retried }\n    upstream: gone\n    middleware:\n      \
             - provider: mwl:provider.middleware/mwl/retry/v1\n        onEntry: { with: { policies: [{ match: \
               { codes: [Provider.Call.Http.ConnectionFailed] }, attempts: 2, backoff: { initial: PT0S } }] } }\n",
    );
    // One connection stays on one worker.
    let mut client = Client::connect(proxy.address);
    for path in ["/down/a?secret=1", "/down/b", "/retried/c", "/down/d", "/retried/e"] {
        let id = &[("x-request-id", path.split('?').next().unwrap())];
        assert_eq!(client.ask(request("GET", path, id, b"")).status, 502);
    }
    let told = told(proxy);
    let said = |line: &Value| {
        ["level", "route", "method", "path", "status", "untold"].map(|member| line[member].clone())
    };
    assert_eq!(
        told.iter().map(said).collect::<Vec<_>>(),
        [
            [json!("WARN"), json!("down"), json!("GET"), json!("/down/a"), json!(502), json!(0)],
            [
                json!("WARN"),
                json!("retried"),
                json!("GET"),
                json!("/retried/c"),
                json!(502),
                json!(0)
            ],
        ]
    );
    let refused = "Provider.Call.Http.ConnectionFailed: ";
    let text = |line: &Value, member: &str| line[member].as_str().unwrap_or_default().to_owned();
    assert!(text(&told[0], "error").starts_with(refused) && told[0].get("cause").is_none());
    // A policy's failure shows the original failure as its cause.
    assert!(text(&told[1], "error").starts_with("Provider.Middleware."), "{}", told[1]);
    assert!(text(&told[1], "cause").starts_with(refused), "{}", told[1]);
}

/// The HTTP status is 200; gRPC's own status tells the failure.
#[tokio::test]
async fn a_call_of_grpc_that_fails_is_told_too() {
    let down = Port::hold();
    let routes = "  - { name: calls, match: { pathPrefix: / }, upstream: gone }\n";
    let proxy = Proxy::before(&[("gone", down.address)], routes);
    let mut client = h2::Client::connect(proxy.address).await;
    let fields = [("content-type", "application/grpc"), ("te", "trailers")];
    assert_eq!(client.ask(h2::request("POST", "/pay.Till/Charge", &fields), b"").await.status, 200);
    let told = told(proxy);
    assert_eq!(told.len(), 1, "{told:#?}");
    let said = ["route", "path", "status", "grpc"].map(|member| told[0][member].clone());
    assert_eq!(said, [json!("calls"), json!("/pay.Till/Charge"), json!(200), json!("Unavailable")]);
}

#[test]
fn what_is_no_servers_failure_and_a_client_that_leaves_are_not_told() {
    let origin = Origin::script([
        answer(404, &[], ""),
        answer(200, &[], ""),
        answer(429, &[], ""),
        Turn::Hang,
    ]);
    let routes = "  - { name: all, match: { pathPrefix: / }, upstream: billing }\n";
    let proxy = Proxy::before(&[("billing", origin.address)], routes);
    let mut client = Client::connect(proxy.address);
    for status in [404, 200, 429] {
        assert_eq!(client.ask(request("GET", "/", &[], b"")).status, status);
    }
    client.send(request("GET", "/", &[], b""));
    origin.until_state(3, State::Whole);
    drop(client);
    origin.until_state(3, State::Left);
    assert_eq!(told(proxy), Vec::<Value>::new());
}

/// A flood of refusals is a few lines, each of which names what was asked for.
#[test]
fn of_each_reason_one_refusal_is_told_with_what_was_asked_for() {
    let origin = Origin::always(answer(200, &[], ""));
    let routes = "  - { name: pay, match: { pathPrefix: /pay }, upstream: billing }\n";
    let mut proxy = Proxy::before(&[("billing", origin.address)], routes);
    // One connection stays on one worker.
    let mut client = Client::connect(proxy.address);
    for number in 0..100 {
        let path = format!("/nowhere/{number}?token=s3cret");
        assert_eq!(client.ask(request("GET", &path, &[], b"")).status, 404);
    }
    client.send(b"BREW /pot?token=s3cret HTTP/1.1\r\nHost: kitchen.test\r\nno field\r\n\r\n");
    assert_eq!(client.answer().status, 400);
    proxy.stop();
    let lines = proxy.program().lines();
    let refused = lines.iter().filter(|line| line.contains("A request was refused."));
    let said: Vec<_> = refused
        .map(|line| {
            assert!(!line.contains("s3cret"), "{line}");
            let line: Value = serde_json::from_str(line).unwrap();
            ["reason", "method", "path", "host", "untold"].map(|member| line[member].clone())
        })
        .collect();
    assert_eq!(
        said,
        [
            [json!("noRoute"), json!("GET"), json!("/nowhere/0"), json!("localhost"), json!(0)],
            [json!("malformedHead"), json!("BREW"), json!("/pot"), json!("kitchen.test"), json!(0)],
        ]
    );
}
