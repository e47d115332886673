use std::sync::Arc;
use std::time::Duration;

use super::one_route;
use crate::support::proxy::Proxy;
use crate::support::stack::{audit, retry, timeout};
use crate::support::upstream::{Act, Arrived, Upstream, always};

const GET: &str = "GET /a HTTP/1.1\r\nHost: t\r\n\r\n";

/// A cleanup that reports the request's outcome to `/audit`.
const AUDIT: &str =
    concat!("    middleware:\n", audit!("u", "/audit", "{'type': middleware.result.type}"),);

fn audits(seen: &[Arrived]) -> Vec<String> {
    seen.iter()
        .filter(|request| request.line().starts_with("POST /audit "))
        .filter(|request| request.whole)
        .map(|request| String::from_utf8_lossy(&request.body).into_owned())
        .collect()
}

async fn audited(slow: Act) -> Upstream {
    Upstream::run(move |_, request| {
        if request.line().starts_with("POST /audit ") {
            always(200, "", "noted")
        } else {
            slow.clone()
        }
    })
    .await
}

#[tokio::test]
async fn a_cleanup_s_answer_is_never_the_client_s() {
    let upstream = audited(always(200, "", "mine")).await;
    let proxy = Proxy::start(&one_route(&upstream, AUDIT));
    assert_eq!(proxy.ask(GET).await.body, "mine");
    assert_eq!(audits(&upstream.requests()), [r#"{"type":"success"}"#]);
    assert_eq!(proxy.metric(r#"mwl_finally_total{outcome="success",route="r"}"#), 1);
}

#[tokio::test]
async fn a_client_that_leaves_cancels_and_the_cleanup_still_runs_once() {
    let upstream = audited(Act::Hang).await;
    let proxy = Proxy::start(&one_route(&upstream, AUDIT));
    let mut client = proxy.connect().await;
    client.send(GET).await;
    upstream.until(|seen| seen.len() == 1).await;
    drop(client);
    let seen = upstream.until(|seen| audits(seen).len() == 1).await;
    assert_eq!(audits(&seen), [r#"{"type":"cancellation"}"#]);
    upstream.ended(1).await;
    proxy.until_idle().await;
    assert_eq!(audits(&upstream.requests()).len(), 1);
    assert_eq!(proxy.metric(r#"mwl_requests_total{route="r",status="499"}"#), 1);
    assert_eq!(proxy.metric(r#"mwl_requests_in_flight{route="r"}"#), 0);
}

#[tokio::test]
async fn a_request_ends_by_the_configuration_that_it_began_with() {
    let pause = Duration::from_millis(100);
    let slow = vec![Vec::new(), crate::support::upstream::answer(200, "", "old")];
    let old = Upstream::play([Act::Slowly(pause, slow)]).await;
    let new = Upstream::play([always(200, "", "new")]).await;
    let proxy = Proxy::start(&one_route(&old, ""));
    let mut client = proxy.connect().await;
    client.send(GET).await;
    old.until(|seen| seen.len() == 1).await;
    proxy.replace(&one_route(&new, "")).await;
    assert_eq!(client.response(false).await.body, "old");
    assert_eq!(client.ask(GET).await.body, "new");
}

#[tokio::test]
async fn a_reload_keeps_the_connections_of_an_upstream_that_stays() {
    let upstream = Upstream::play([always(200, "", "x")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    for number in 0..4 {
        assert_eq!(proxy.ask(GET).await.status, 200);
        let buffer = format!("    buffer: {{ replay: {}B }}\n", number + 1);
        proxy.replace(&one_route(&upstream, &buffer)).await;
    }
    assert_eq!(upstream.accepted(), 1);
}

/// A table of ten thousand routes is not kept twice.
#[tokio::test]
async fn a_configuration_that_was_replaced_is_gone() {
    let upstream = Upstream::play([always(200, "", "x")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut idle = proxy.connect().await;
    for _ in 0..2 {
        assert_eq!(idle.ask(GET).await.status, 200);
        let last = Arc::downgrade(&proxy.server.runtime());
        proxy.replace(&one_route(&upstream, "")).await;
        assert!(last.upgrade().is_none());
    }
}

#[tokio::test]
async fn a_drain_lets_requests_end_and_closes_what_idles() {
    let pause = Duration::from_millis(100);
    let slow = vec![Vec::new(), crate::support::upstream::answer(200, "", "last")];
    let upstream = Upstream::play([always(200, "", "x"), Act::Slowly(pause, slow)]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut idle = proxy.connect().await;
    assert_eq!(idle.ask(GET).await.body, "x");
    let mut busy = proxy.connect().await;
    busy.send(GET).await;
    upstream.until(|seen| seen.len() == 2).await;
    let (cut, response) = tokio::join!(proxy.server.drain(Duration::from_secs(5)), async {
        let response = busy.response(false).await;
        assert!(busy.rest().await.is_empty());
        response
    });
    assert_eq!((cut, response.body.as_str()), (0, "last"));
    assert_eq!(response.field("connection"), ["close"]);
    assert!(idle.rest().await.is_empty());
    assert!(tokio::net::TcpStream::connect(proxy.address).await.is_err());
}

#[tokio::test]
async fn a_drain_s_deadline_cancels_and_cleanups_still_run() {
    let upstream = audited(Act::Hang).await;
    let proxy = Proxy::start(&one_route(&upstream, AUDIT));
    let mut client = proxy.connect().await;
    client.send(GET).await;
    upstream.until(|seen| seen.len() == 1).await;
    let grace = Duration::from_millis(50);
    let (cut, response) = tokio::join!(proxy.server.drain(grace), client.response(false));
    assert_eq!((cut, response.status), (1, 503));
    assert_eq!(response.json()["code"], "System.Cancelled");
    let cancelled = [r#"{"type":"cancellation"}"#];
    assert_eq!(audits(&upstream.requests()), cancelled);
}

#[tokio::test]
async fn a_drain_s_deadline_answers_requests_without_cleanups() {
    let upstream = Upstream::play([Act::Hang]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = proxy.connect().await;
    client.send(GET).await;
    upstream.until(|seen| seen.len() == 1).await;
    let grace = Duration::from_millis(50);
    let (cut, response) = tokio::join!(proxy.server.drain(grace), client.response(false));
    assert_eq!((cut, response.status), (1, 503));
}

/// A Retry with a wait longer than any test.
const PATIENT: &str = retry!("match: { codes: ['*'] }, attempts: 9, backoff: { initial: PT1H }");

const RETRIES: &str =
    r#"mwl_retries_total{code="Provider.Call.Http.Unavailable",delay="schedule",route="r"}"#;

fn suppressed(proxy: &Proxy, reason: &str) -> u64 {
    proxy.metric(&format!(r#"mwl_retries_suppressed_total{{reason="{reason}",route="r"}}"#))
}

/// A request to `proxy` that waits for its second attempt.
async fn in_a_gap(proxy: &Proxy) -> crate::support::proxy::Client {
    let mut client = proxy.connect().await;
    client.send(GET).await;
    let failed =
        r#"mwl_attempts_total{code="Provider.Call.Http.Unavailable",route="r",upstream="u"}"#;
    proxy.until(|proxy| proxy.metric(failed) > 0).await;
    client
}

#[tokio::test]
async fn a_retry_that_is_cut_in_its_wait_counts_as_not_made() {
    // With something to unwind, and without.
    for head in [AUDIT, "    middleware:\n"] {
        let upstream = audited(always(503, "", "")).await;
        let route = format!("{head}{PATIENT}");
        let proxy = Proxy::start(&one_route(&upstream, &route));
        let mut client = in_a_gap(&proxy).await;
        let grace = Duration::from_millis(20);
        let (cut, response) = tokio::join!(proxy.server.drain(grace), client.response(false));
        assert_eq!((cut, response.status), (1, 503), "{}", response.body);
        assert_eq!((suppressed(&proxy, "draining"), suppressed(&proxy, "clientGone")), (1, 0));
        assert_eq!(proxy.metric(RETRIES), 0, "none was made");

        let proxy = Proxy::start(&one_route(&upstream, &route));
        drop(in_a_gap(&proxy).await);
        proxy.until_idle().await;
        assert_eq!((suppressed(&proxy, "draining"), suppressed(&proxy, "clientGone")), (0, 1));
        assert_eq!(proxy.metric(RETRIES), 0, "none was made");
    }
}

#[tokio::test]
async fn a_wait_that_a_bound_would_cut_is_a_retry_that_was_not_made() {
    let upstream = Upstream::play([always(503, "", "")]).await;
    let bound = concat!("    middleware:\n", timeout!("PT10S"));
    let proxy = Proxy::start(&one_route(&upstream, &format!("{bound}{PATIENT}")));
    assert_eq!(proxy.ask(GET).await.status, 503);
    assert_eq!(proxy.metric(r#"mwl_timeouts_total{entry="r/0",route="r"}"#), 0);
    assert_eq!(suppressed(&proxy, "beyondBound"), 1);
}

#[tokio::test]
async fn a_request_whose_body_breaks_is_not_tried_again() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let proxy = Proxy::start(&one_route(&upstream, &format!("    middleware:\n{PATIENT}")));
    let mut client = proxy.connect().await;
    client.send("PUT /a HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n").await;
    upstream.until(|seen| seen.first().is_some_and(|seen| seen.body == b"a")).await;
    client.send("no size\r\n").await;
    let response = client.response(false).await;
    assert_eq!(response.json()["code"], "Provider.Middleware.Retry.Exhausted");
    assert_eq!(suppressed(&proxy, "requestAborted"), 1);
}

#[tokio::test]
async fn a_client_that_dies_in_its_body_is_a_cancellation() {
    let upstream = audited(always(200, "", "")).await;
    let proxy = Proxy::start(&one_route(&upstream, AUDIT));
    let mut client = proxy.connect().await;
    let head = "PUT /a HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\nhello";
    client.send(head).await;
    upstream.until(|seen| seen.first().is_some_and(|seen| seen.body.len() == 5)).await;
    drop(client);
    let seen = upstream.until(|seen| audits(seen).len() == 1).await;
    assert_eq!(audits(&seen), [r#"{"type":"cancellation"}"#]);
    assert!(!seen[0].whole);
}
