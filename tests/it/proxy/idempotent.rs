//! `idempotency` on sockets: an answer is kept and given again.

use super::one_route;
use crate::support::proxy::{Proxy, Response};
use crate::support::upstream::{Act, Upstream, always};

/// A route whose stack is `idempotency` with these arguments, behind `outer` entries.
pub(super) fn idempotent(outer: &str, with: &str) -> String {
    format!(
        "    middleware:
{outer}      - provider: mwl:provider.middleware/mwl-proxy/idempotency/v1
        onEntry: {{ with: {{ {with} }} }}
"
    )
}

/// A Retry that waits for the first request's answer.
pub(super) const WAITING: &str =
    "      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry: { with: { policies: [ { match: { codes: [Provider.Middleware.Idempotency.InProgress] }, attempts: 200, backoff: { initial: PT0.02S } } ] } }
";

pub(super) fn post(key: &str, path: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: t\r\nIdempotency-Key: \"{key}\"\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

fn code(response: &Response) -> String {
    response.json()["code"].as_str().unwrap().trim_start_matches("Provider.Middleware.").to_owned()
}

#[tokio::test]
async fn a_repeated_request_gets_the_kept_answer() {
    let answers = ["first", "second"].map(|body| always(201, "x-made: by-the-upstream\r\n", body));
    let upstream = Upstream::play(answers).await;
    let proxy = Proxy::start(&one_route(&upstream, &idempotent("", "")));
    let first = proxy.ask(&post("k", "/pay?a=1", "ten")).await;
    assert_eq!((first.status, &*first.body), (201, "first"));
    assert!(first.field("idempotency-replayed").is_empty());
    let again = proxy.ask(&post("k", "/pay?a=1", "ten")).await;
    assert_eq!((again.status, &*again.body), (201, "first"));
    assert_eq!(again.field("idempotency-replayed"), ["true"]);
    assert_eq!(again.field("x-made"), ["by-the-upstream"]);
    assert_eq!(again.field("content-length"), ["5"]);
    assert_eq!(upstream.requests().len(), 1);
    // Another request under the same key: another body, path, query, method.
    for other in [
        post("k", "/pay?a=1", "eleven"),
        post("k", "/play?a=1", "ten"),
        post("k", "/pay?a=2", "ten"),
        post("k", "/pay?a=1", "ten").replace("POST", "PUT"),
    ] {
        let refused = proxy.ask(&other).await;
        assert_eq!((refused.status, &*code(&refused)), (422, "Idempotency.Mismatch"), "{other}");
    }
    assert_eq!(upstream.requests().len(), 1);
    // Another key, and no key, are other work.
    assert_eq!(proxy.ask(&post("l", "/pay?a=1", "ten")).await.body, "second");
    let keyless = post("k", "/pay", "ten").replace("Idempotency-Key", "X-Other");
    assert_eq!(proxy.ask(&keyless).await.body, "second");
    assert_eq!(upstream.requests().len(), 3);
}

#[tokio::test]
async fn while_the_first_is_at_work_another_is_told_so_or_waits_for_its_answer() {
    let parts = vec![b"HTTP/1.1 200 OK\r\n".to_vec(), b"content-length: 4\r\n\r\ndone".to_vec()];
    let slow = Act::Slowly(std::time::Duration::from_millis(300), parts);
    let upstream = Upstream::run(move |_, _| slow.clone()).await;
    let proxy = Proxy::start(&one_route(&upstream, &idempotent("", "")));
    let mut first = proxy.connect().await;
    first.send(post("k", "/pay", "ten")).await;
    upstream.until(|seen| seen.len() == 1).await;
    let refused = proxy.ask(&post("k", "/pay", "ten")).await;
    assert_eq!((refused.status, &*code(&refused)), (409, "Idempotency.InProgress"));
    assert_eq!(refused.field("retry-after"), ["1"]);
    assert_eq!(first.response(false).await.body, "done");
    let proxy = Proxy::start(&one_route(&upstream, &idempotent(WAITING, "")));
    let request = post("k", "/pay", "ten");
    let (one, other) = tokio::join!(proxy.ask(&request), proxy.ask(&request));
    assert_eq!((&*one.body, &*other.body), ("done", "done"));
    let replayed = |one: &Response| one.field("idempotency-replayed").len();
    assert_eq!(replayed(&one) + replayed(&other), 1);
    assert_eq!(upstream.requests().len(), 2, "one for each proxy");
}

#[tokio::test]
async fn a_key_may_be_required_and_may_be_something_else() {
    let upstream = Upstream::run(|_, _| always(200, "", "x")).await;
    let required = r#"required: true, key: "{{ 'x-id' in frame.input.headers ? frame.input.headers['x-id'] : '' }}""#;
    let proxy = Proxy::start(&one_route(&upstream, &idempotent("", required)));
    let refused = proxy.ask(&post("k", "/pay", "ten")).await;
    assert_eq!((refused.status, &*code(&refused)), (400, "Idempotency.Missing"));
    assert!(upstream.requests().is_empty());
    let keyed = post("k", "/pay", "ten").replace("Host: t", "Host: t\r\nX-Id: 7");
    for _ in 0..2 {
        assert_eq!(proxy.ask(&keyed).await.status, 200);
    }
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn a_final_refusal_is_kept_and_a_failure_that_may_pass_is_not() {
    for (status, kept) in [(404, true), (422, true), (500, false), (503, false), (429, false)] {
        let answers = [always(status, "", "no"), always(200, "", "yes")];
        let upstream = Upstream::play(answers).await;
        let proxy = Proxy::start(&one_route(&upstream, &idempotent("", "")));
        let first = proxy.ask(&post("k", "/pay", "ten")).await;
        assert_eq!((first.status, &*first.body), (status, "no"));
        let again = proxy.ask(&post("k", "/pay", "ten")).await;
        let wanted = if kept { (status, "no", 1) } else { (200, "yes", 2) };
        assert_eq!((again.status, &*again.body, upstream.requests().len()), wanted, "{status}");
    }
    // Nor is what no upstream has answered.
    let upstream = Upstream::play([Act::Close, always(200, "", "yes")]).await;
    let proxy = Proxy::start(&one_route(&upstream, &idempotent("", "")));
    assert_eq!(proxy.ask(&post("k", "/pay", "ten")).await.status, 502);
    assert_eq!(proxy.ask(&post("k", "/pay", "ten")).await.body, "yes");
}

#[tokio::test]
async fn an_interrupted_first_gives_its_key_back() {
    let upstream = Upstream::play([Act::Hang, always(200, "", "yes")]).await;
    let proxy = Proxy::start(&one_route(&upstream, &idempotent("", "")));
    let mut leaving = proxy.connect().await;
    leaving.send(post("k", "/pay", "ten")).await;
    upstream.until(|seen| seen.len() == 1).await;
    drop(leaving);
    proxy.until_idle().await;
    assert_eq!(proxy.ask(&post("k", "/pay", "ten")).await.body, "yes");
    assert_eq!(upstream.requests().len(), 2);
}

#[tokio::test]
async fn a_chunked_answer_is_kept_and_one_over_the_limit_passes_whole() {
    let chunked =
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n";
    let upstream = Upstream::run(|_, _| Act::Answer(chunked.to_vec())).await;
    for (limit, seen) in [("6B", 1), ("5B", 2)] {
        let before = upstream.requests().len();
        let with = format!("responseLimit: {limit}");
        let proxy = Proxy::start(&one_route(&upstream, &idempotent("", &with)));
        for _ in 0..2 {
            let response = proxy.ask(&post("k", "/pay", "ten")).await;
            assert_eq!((response.status, &*response.body, response.whole), (200, "abcdef", true));
        }
        assert_eq!(upstream.requests().len() - before, seen, "{limit}");
        let lost = r#"mwl_idempotency_answers_lost_total{entry="r/0",reason="tooLarge",route="r"}"#;
        assert_eq!(proxy.metric(lost), if seen == 1 { 0 } else { 2 });
    }
}

/// The client leaves within the answer: the rest is read for the copy, so that the repeated request gets it.
#[tokio::test]
async fn an_answer_whose_client_has_left_is_kept_all_the_same() {
    let parts = vec![b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nabc".to_vec(), b"def".to_vec()];
    let slow = Act::Slowly(std::time::Duration::from_millis(200), parts);
    let upstream = Upstream::run(move |_, _| slow.clone()).await;
    let proxy = Proxy::start(&one_route(&upstream, &idempotent(WAITING, "")));
    let mut leaving = proxy.connect().await;
    leaving.send(post("k", "/pay", "ten")).await;
    let mut part = [0; 64];
    tokio::io::AsyncReadExt::read(&mut leaving.stream, &mut part).await.unwrap();
    drop(leaving);
    let again = proxy.ask(&post("k", "/pay", "ten")).await;
    assert_eq!((again.status, &*again.body), (200, "abcdef"));
    assert_eq!(again.field("idempotency-replayed"), ["true"]);
    assert_eq!(upstream.requests().len(), 1);
}

/// A Retry inside makes several attempts of one work; what is kept is what it comes to.
#[tokio::test]
async fn a_retry_inside_is_part_of_the_work() {
    let upstream = Upstream::play([always(503, "", "no"), always(200, "", "yes")]).await;
    let route = idempotent("", "")
        + "      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry: { with: { policies: [ { match: { retryable: true }, attempts: 3 } ] } }
";
    let proxy = Proxy::start(&one_route(&upstream, &route));
    for _ in 0..2 {
        assert_eq!(proxy.ask(&post("k", "/pay", "ten")).await.body, "yes");
    }
    assert_eq!(upstream.requests().len(), 2);
}
