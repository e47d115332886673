use std::time::Duration;

use tokio::time::Instant;

use super::one_route;
use crate::support::piped::Piped;
use crate::support::proxy::Proxy;
use crate::support::upstream::{Act, Upstream, always};

const GET: &str = "GET /a HTTP/1.1\r\nHost: t\r\n\r\n";

fn refused(proxy: &Proxy, reason: &str) -> u64 {
    proxy.metric(&format!(r#"mwl_requests_refused_total{{reason="{reason}"}}"#))
}

/// Waits until a refusal is counted.
async fn until_refused(proxy: &Proxy, reason: &str, count: u64) {
    proxy.until(|proxy| refused(proxy, reason) == count).await;
}

/// In paused time, in which a timeout may only be late by one tick of the timer.
fn is_at(begun: Instant, seconds: u64) -> bool {
    (Duration::from_secs(seconds)..Duration::from_secs(seconds + 2)).contains(&begun.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_late_head_is_answered_408_and_idle_clients_have_a_bound_of_their_own() {
    let limits = "headTimeout: PT2S, idleTimeout: PT6S, ";
    let piped = || Piped::before([always(200, "", "x")], limits, "");
    let begun = Instant::now();
    let (mut slow, _unasked) = piped();
    slow.client.send("GET /a HT").await;
    let late = slow.client.response(false).await;
    assert_eq!((late.status, late.field("connection")), (408, vec!["close"]));
    assert_eq!(
        late.json()["detail"],
        "the head did not come in time (limits.headTimeout, limits.minimumRate)"
    );
    assert!(slow.client.rest().await.is_empty());
    assert!(is_at(begun, 2), "{:?}", begun.elapsed());
    assert_eq!(slow.metric(r#"mwl_requests_refused_total{reason="headTimeout"}"#), 1);
    let begun = Instant::now();
    let (mut silent, _unasked) = piped();
    assert!(silent.client.rest().await.is_empty(), "nothing was asked, nothing is answered");
    assert!(is_at(begun, 2), "{:?}", begun.elapsed());
    let begun = Instant::now();
    let (mut kept, _upstream) = piped();
    assert_eq!(kept.client.ask(GET).await.body, "x");
    assert!(kept.client.rest().await.is_empty());
    assert!(is_at(begun, 6), "an idle client waits longer: {:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_head_that_comes_a_byte_at_a_time_is_not_kept_alive_by_it() {
    let limits = "headTimeout: PT3S, ";
    let (mut piped, upstream) = Piped::before([always(200, "", "x")], limits, "");
    assert_eq!(piped.client.ask(GET).await.status, 200);
    let late = r#"mwl_requests_refused_total{reason="headTimeout"}"#;
    for byte in "GET /slow-and-slower-and-never-done HTTP/1.1".bytes() {
        if !piped.client.offer(&[byte]).await || piped.metric(late) == 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(piped.metric(late), 1);
    assert!(piped.client.rest().await.starts_with(b"HTTP/1.1 408 "));
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_body_is_cut_when_it_stands_still_and_never_for_being_long() {
    let limits = "bodyTimeout: PT3S, ";
    let (mut piped, upstream) = Piped::before([always(200, "", "x")], limits, "");
    let client = &mut piped.client;
    client.send("POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 8\r\n\r\n").await;
    for _ in 0..8 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        client.send("b").await;
    }
    assert_eq!(client.response(false).await.status, 200);
    client.send("POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 8\r\n\r\nbbbb").await;
    let response = client.response(false).await;
    assert_eq!(response.status, 408);
    assert_eq!(response.json()["code"], "Provider.Call.Http.RequestAborted");
    assert!(client.rest().await.is_empty(), "the rest of the body is no request");
    upstream.ended(1).await;
    assert!(!upstream.requests()[1].whole);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_a_route_reads_has_the_same_bound() {
    let reads = "    output: \"{{ frame.input.body }}\"\n";
    let (mut piped, upstream) = Piped::before([always(200, "", "x")], "bodyTimeout: PT1S, ", reads);
    let begun = Instant::now();
    let client = &mut piped.client;
    client.send("POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 8\r\n\r\nbbbb").await;
    let response = client.response(false).await;
    assert_eq!((response.status, response.field("connection")), (408, vec!["close"]));
    assert!(is_at(begun, 1), "{:?}", begun.elapsed());
    assert_eq!(piped.metric(r#"mwl_requests_refused_total{reason="bodyTimeout"}"#), 1);
    assert!(upstream.requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_nothing_of_its_answer_is_cut_off() {
    let large =
        format!("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n{}", "r".repeat(1_000_000));
    let acts = [Act::Answer(large.into_bytes())];
    let (mut piped, upstream) = Piped::before(acts, "bodyTimeout: PT3S, ", "");
    let begun = Instant::now();
    piped.client.send(GET).await;
    (&mut piped.served).await.unwrap();
    assert!(is_at(begun, 3), "{:?}", begun.elapsed());
    upstream.ended(1).await;
    assert_eq!(piped.metric(r#"mwl_requests_total{route="r",status="499"}"#), 1);
    assert!(piped.client.rest().await.len() < 1_000_000);
}

#[tokio::test]
async fn a_target_a_field_and_their_number_have_bounds_and_statuses() {
    let long = |status: u16| {
        Act::Answer(
            format!(
                "HTTP/1.1 {status} OK\r\nContent-Length: 0\r\nX: {}\r\n\r\n",
                "x".repeat(131_072)
            )
            .into_bytes(),
        )
    };
    let upstream = Upstream::play([long(200), always(200, "", "")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut other = proxy.connect().await;
    for (target, field, fields, status, reason) in [
        (70_000, 0, 0, 414, "targetTooLong"),
        (200_000, 0, 0, 414, "targetTooLong"),
        (16_385, 0, 0, 414, "targetTooLong"),
        (70_000, 66_000, 0, 414, "targetTooLong"),
        (1, 131_072, 0, 431, "headTooLarge"),
        (1, 66_000, 0, 431, "headTooLarge"),
        (16_384, 66_000, 0, 431, "headTooLarge"),
        (1, 0, 101, 431, "headTooLarge"),
    ] {
        let before = refused(&proxy, reason);
        let target = format!("/{}", "t".repeat(target - 1));
        let field = format!("X: {}\r\n", "x".repeat(field));
        let fields = "Y: y\r\n".repeat(fields);
        let mut client = proxy.connect().await;
        client.send(format!("GET {target} HTTP/1.1\r\nHost: t\r\n{field}{fields}\r\n")).await;
        let response = client.response(false).await;
        assert_eq!(response.status, status, "{reason}");
        assert!(client.rest().await.is_empty());
        until_refused(&proxy, reason, before + 1).await;
    }
    assert_eq!(upstream.accepted(), 0);
    assert_eq!(other.ask(GET).await.status, 502, "the upstream's own head is too large");
    assert_eq!(other.ask(GET).await.status, 200);
}

/// Nor does it lend the fields what it leaves unused.
#[tokio::test]
async fn a_target_is_not_counted_in_the_size_of_its_head() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let beside = "GET  HTTP/1.1\r\nHost: t\r\nX: \r\n\r\n".len();
    for target in [1, 16_384] {
        for (size, status) in [(65_536, 200), (65_537, 431)] {
            let (target, field) = ("t".repeat(target - 1), "x".repeat(size - beside));
            let bytes = format!("GET /{target} HTTP/1.1\r\nHost: t\r\nX: {field}\r\n\r\n");
            assert_eq!(proxy.ask(&bytes).await.status, status, "{} {size}", target.len());
        }
    }
}

#[tokio::test]
async fn one_request_more_than_may_run_is_answered_503_and_its_connection_goes_on() {
    let upstream = Upstream::play([Act::Hang]).await;
    let proxy = Proxy::limited("requests: 2, ", &one_route(&upstream, ""));
    let (mut first, mut second) = (proxy.connect().await, proxy.connect().await);
    first.send(GET).await;
    second.send(GET).await;
    upstream.until(|seen| seen.len() == 2).await;
    let mut third = proxy.connect().await;
    for count in 1..=2 {
        let response = third.ask(GET).await;
        assert_eq!(response.status, 503);
        assert_eq!(response.json()["code"], "Proxy.Overloaded");
        assert_eq!(response.field("proxy-status"), ["mwl-proxy; error=http_request_denied"]);
        assert_eq!(refused(&proxy, "overloaded"), count);
    }
    drop(first);
    proxy.until(|proxy| proxy.server.in_flight() <= 1).await;
    third.send(GET).await;
    upstream.until(|seen| seen.len() == 3).await;
}

#[tokio::test]
async fn one_connection_more_than_may_be_open_waits() {
    let upstream = Upstream::play([always(200, "", "x")]).await;
    let proxy = Proxy::limited("connections: 1, ", &one_route(&upstream, ""));
    let mut first = proxy.connect().await;
    assert_eq!(first.ask(GET).await.status, 200);
    let mut second = proxy.connect().await;
    second.send(GET).await;
    assert_eq!(first.ask(GET).await.status, 200);
    assert_eq!(upstream.requests().len(), 2);
    drop(first);
    assert_eq!(second.response(false).await.status, 200);
}

#[tokio::test]
async fn every_refusal_is_counted_by_its_reason() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let proxy = Proxy::start(&one_route(&upstream, "").replace("pathPrefix: /", "path: /a"));
    for (request, status, reason) in [
        ("GET /x HTTP/1.1\r\nHost: t\r\n\r\n", 404, "noRoute"),
        ("GET /../a HTTP/1.1\r\nHost: t\r\n\r\n", 400, "badTarget"),
        ("GET t:80 HTTP/1.1\r\nHost: t\r\n\r\n", 400, "badTarget"),
        ("GET * HTTP/1.1\r\nHost: t\r\n\r\n", 400, "badTarget"),
        ("GET /a HTTP/1.1\r\n\r\n", 400, "badHost"),
        ("CONNECT t:80 HTTP/1.1\r\nHost: t:80\r\n\r\n", 405, "connect"),
        ("GET /a HTTP/1.1\r\nHost: t\r\nExpect: a-miracle\r\n\r\n", 417, "expectation"),
        (
            "POST /a HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            501,
            "transferCoding",
        ),
        ("OPTIONS /a HTTP/1.1\r\nHost: t\r\nMax-Forwards: 0\r\n\r\n", 405, "maxForwards"),
        ("GET /a HTTP/1.1\r\nHost : t\r\n\r\n", 400, "malformedHead"),
        ("GET /a HTTP/1.1\nHost: t\r\n\r\n", 400, "malformedHead"),
        ("GET /a#b HTTP/1.1\r\nHost: t\r\n\r\n", 400, "badTarget"),
        (
            "GET /a HTTP/1.1\r\nHost: t\r\nAuthorization: a\r\nAuthorization: a\r\n\r\n",
            400,
            "malformedHead",
        ),
    ] {
        let before = refused(&proxy, reason);
        assert_eq!(proxy.ask(request).await.status, status, "{request:?}");
        until_refused(&proxy, reason, before + 1).await;
    }
    assert_eq!(upstream.accepted(), 0);
}
