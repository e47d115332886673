use super::one_route;
use crate::support::proxy::{Client, Proxy};
use crate::support::upstream::{Act, Upstream, always};

const HELD: &str = "mwl_buffered_bytes";
const FULL: &str = r#"mwl_requests_refused_total{reason="bufferedBytes"}"#;
const READS: &str = "    output: \"{{ frame.input.body }}\"\n";
const KEEPS: &str = "    buffer: { replay: 1MiB }
    middleware:
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry: { with: { policies: [ { match: { codes: [Provider.Call.Http.*] }, attempts: 2 } ] } }
";

fn put(size: usize, path: &str) -> String {
    let body = "b".repeat(size);
    format!("PUT {path} HTTP/1.1\r\nHost: t\r\nContent-Length: {size}\r\n\r\n{body}")
}

/// An upstream that hangs for `/hang`, and a proxy of one MiB before it.
async fn full(route: &str, other: Act) -> (Upstream, Proxy) {
    let upstream =
        Upstream::run(
            move |_, head| {
                if head.line().contains("/hang") { Act::Hang } else { other.clone() }
            },
        );
    let upstream = upstream.await;
    let proxy = Proxy::limited("bufferedBytes: 1MiB, ", &one_route(&upstream, route));
    (upstream, proxy)
}

/// A request that holds `size` bytes and hangs.
async fn hold(proxy: &Proxy, upstream: &Upstream, size: usize) -> Client {
    let mut client = proxy.connect().await;
    client.send(put(size, "/hang")).await;
    upstream.until(|seen| seen.iter().any(|seen| seen.body.len() == size)).await;
    client
}

#[tokio::test]
async fn a_body_that_must_be_read_and_finds_no_room_is_refused() {
    let (upstream, proxy) = full(READS, always(200, "", "x")).await;
    let held = hold(&proxy, &upstream, 300_000).await;
    assert_eq!(proxy.metric(HELD), 600_000, "the body, and the text that an expression reads");
    let refused = proxy.ask(&put(300_000, "/a")).await;
    assert_eq!((refused.status, refused.field("connection")), (503, vec!["close"]));
    assert_eq!(refused.json()["code"], "Proxy.Overloaded");
    assert_eq!(
        refused.json()["detail"],
        "this route reads the request's body, and there is no room for it (limits.bufferedBytes)"
    );
    assert_eq!(proxy.metric(FULL), 1);
    assert_eq!(proxy.metric(r#"mwl_bodies_not_buffered_total{body="request"}"#), 1);
    assert_eq!(proxy.metric(HELD), 600_000, "a refused request holds nothing");
    assert_eq!(proxy.ask(&put(100_000, "/a")).await.status, 200, "a smaller one finds room");
    drop(held);
    proxy.until(|proxy| proxy.metric(HELD) == 0).await;
    assert_eq!(proxy.ask(&put(300_000, "/a")).await.status, 200);
    proxy.until(|proxy| proxy.metric(HELD) == 0).await;
}

#[tokio::test]
async fn parsed_values_count_by_what_they_take() {
    let (upstream, proxy) = full(READS, always(200, "", "x")).await;
    let json = |count: usize| {
        let body = format!("[{}0]", "[],".repeat(count));
        let size = body.len();
        format!(
            "PUT /a HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n{body}"
        )
    };
    // Each element has three bytes in the text and sixteen in memory.
    assert_eq!(proxy.ask(&json(10_000)).await.status, 200);
    assert_eq!(proxy.ask(&json(60_000)).await.status, 503);
    assert_eq!((proxy.metric(FULL), proxy.metric(HELD)), (1, 0));
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn a_response_that_must_be_read_and_finds_no_room_is_a_failure() {
    let reads = "    buffer: { request: 1MiB, response: 1MiB }\n    output: \"{{ [frame.input.body, step.result.value.body] }}\"\n";
    let body = "r".repeat(300_000);
    let (upstream, proxy) = full(reads, always(200, "Content-Type: text/plain\r\n", &body)).await;
    let held = hold(&proxy, &upstream, 300_000).await;
    let refused = proxy.ask("GET /a HTTP/1.1\r\nHost: t\r\n\r\n").await;
    assert_eq!(refused.status, 503);
    let problem = refused.json();
    assert_eq!(problem["code"], "Provider.Call.Http.BodyNotBuffered");
    assert_eq!(proxy.metric(r#"mwl_bodies_not_buffered_total{body="response"}"#), 1);
    drop(held);
    proxy.until(|proxy| proxy.metric(HELD) == 0).await;
    assert_eq!(proxy.ask("GET /a HTTP/1.1\r\nHost: t\r\n\r\n").await.status, 200);
}

#[tokio::test]
async fn a_body_that_is_only_kept_goes_on_without_replay() {
    let (upstream, proxy) = full(KEEPS, always(503, "", "busy")).await;
    let held = hold(&proxy, &upstream, 700_000).await;
    assert_eq!(proxy.metric(HELD), 700_000);
    let answer = proxy.ask(&put(700_000, "/a")).await;
    assert_eq!((answer.status, answer.body.as_str()), (503, "busy"));
    assert_eq!(upstream.requests().len(), 2, "it was not sent again");
    let reason = r#"mwl_retries_suppressed_total{reason="bodyNotReplayable",route="r"}"#;
    assert_eq!(proxy.metric(reason), 1);
    assert_eq!(proxy.metric(r#"mwl_bodies_not_buffered_total{body="replay"}"#), 1);
    drop(held);
    proxy.until(|proxy| proxy.metric(HELD) == 0).await;
    proxy.ask(&put(700_000, "/a")).await;
    assert_eq!(upstream.requests().len(), 4, "now it was");
}

#[tokio::test]
async fn the_budget_outlives_a_configuration() {
    let (upstream, proxy) = full(KEEPS, always(200, "", "x")).await;
    let held = hold(&proxy, &upstream, 700_000).await;
    proxy.replace(&one_route(&upstream, READS)).await;
    assert_eq!(proxy.metric(HELD), 700_000);
    drop(held);
    proxy.until(|proxy| proxy.metric(HELD) == 0).await;
}
