use tokio::time::Instant;

use super::one_route;
use crate::support::piped::Piped;
use crate::support::proxy::Proxy;
use crate::support::stack::timeout;
use crate::support::upstream::{Act, Door, Upstream, always};

const GET: &str = "GET /a HTTP/1.1\r\nHost: t\r\n\r\n";
const POST: &str = "POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\nhi";

/// A Retry of three attempts on these codes.
fn retry(codes: &str, more: &str) -> String {
    format!(
        "    middleware:
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry: {{ with: {{ policies: [ {{ match: {{ codes: [{codes}] }}, attempts: 3 }} ] }} }}
{more}"
    )
}

#[tokio::test]
async fn a_retry_hides_the_failures_and_uses_their_connection_again() {
    let body = "x".repeat(20_000);
    let acts = [always(429, "x-a: old\r\n", &body), always(200, "", "good")];
    let upstream = Upstream::play(acts).await;
    let route = retry("Provider.Call.Http.Throttled", "");
    let proxy = Proxy::start(&one_route(&upstream, &route));
    let response = proxy.ask(POST).await;
    assert_eq!((response.status, response.body.as_str()), (200, "good"));
    assert!(response.field("x-a").is_empty());
    let seen = upstream.requests();
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|request| request.body == b"hi"));
    assert_eq!(seen[0].field("x-request-id"), seen[1].field("x-request-id"));
    let code = "Provider.Call.Http.Throttled";
    let series = format!(r#"mwl_retries_total{{code="{code}",delay="schedule",route="r"}}"#);
    assert_eq!(proxy.metric(&series), 1);
}

#[tokio::test]
async fn an_exhausted_retry_passes_the_last_answer_on() {
    let upstream = Upstream::run(|number, _| always(503, "", &format!("no {number}"))).await;
    let route = retry("Provider.Call.Http.Unavailable", "");
    let proxy = Proxy::start(&one_route(&upstream, &route));
    let response = proxy.ask(GET).await;
    assert_eq!((response.status, response.body.as_str()), (503, "no 2"));
    assert_eq!(upstream.requests().len(), 3);
    assert_eq!(proxy.metric(r#"mwl_retries_exhausted_total{entry="r/0",policy="0",route="r"}"#), 1);
}

#[tokio::test]
async fn connections_that_die_at_once_are_attempts_and_nothing_more() {
    let upstream = Upstream::guarded(|_| Door::Shut, |_, _| Act::Hang).await;
    let route = retry("Provider.Call.Http.ConnectionClosed", "");
    let proxy = Proxy::start(&one_route(&upstream, &route));
    let response = proxy.ask(GET).await;
    assert_eq!(response.status, 502);
    assert_eq!(response.json()["code"], "Provider.Middleware.Retry.Exhausted");
    assert_eq!(response.json()["attempts"], 3);
    let terminated = ["mwl-proxy; error=connection_terminated"];
    assert_eq!(response.field("proxy-status"), terminated);
    assert_eq!(upstream.accepted(), 3);
}

#[tokio::test]
async fn a_refused_connect_is_tried_on_the_other_endpoint() {
    let upstream = Upstream::play([always(200, "", "good")]).await;
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = free.local_addr().unwrap();
    drop(free);
    let route = retry("Provider.Call.Http.ConnectionFailed", "");
    let both = format!("['http://{dead}', 'http://{}']", upstream.address);
    let one = format!("['http://{}']", upstream.address);
    let proxy = Proxy::start(&one_route(&upstream, &route).replace(&one, &both));
    for _ in 0..4 {
        assert_eq!(proxy.ask(POST).await.body, "good");
    }
    assert!(upstream.requests().iter().all(|request| request.body == b"hi"));
}

#[tokio::test]
async fn an_attempt_after_any_failure_goes_to_an_endpoint_that_was_not_tried() {
    let bad = Upstream::run(|_, _| always(503, "", "bad")).await;
    let good = Upstream::run(|_, _| always(200, "", "good")).await;
    let route = retry("'*'", "");
    let both = format!("['http://{}', 'http://{}']", bad.address, good.address);
    let one = format!("['http://{}']", good.address);
    let route = one_route(&good, &route).replace(&one, &both).replace("attempts: 3", "attempts: 2");
    let proxy = Proxy::start(&route);
    for _ in 0..20 {
        assert_eq!(proxy.ask(GET).await.body, "good");
    }
    assert_eq!(good.requests().len(), 20);
    assert!(!bad.requests().is_empty());
}

#[tokio::test]
async fn a_refused_connect_is_a_502_that_says_so() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let proxy = Proxy::start(&format!("{}    exposeFailures: true\n", one_route(&upstream, "")));
    drop(upstream);
    tokio::task::yield_now().await;
    let response = proxy.ask(GET).await;
    assert_eq!(response.status, 502);
    let refused = ["mwl-proxy; error=connection_refused"];
    assert_eq!(response.field("proxy-status"), refused);
    let failure = &response.json()["failures"][0];
    assert_eq!(failure["code"], "Provider.Call.Http.ConnectionFailed");
    assert_eq!(failure["message"], "r: attempt 1: upstream u refused the connection");
    assert_eq!(failure["details"]["phase"], "connect");
    assert_eq!(failure["details"]["requestSent"], "none");
}

#[tokio::test]
async fn an_idle_connection_that_was_closed_costs_no_get_and_doubles_no_post() {
    let last = Act::AnswerAndClose(crate::support::upstream::answer(200, "", "x"));
    let upstream = Upstream::play([last]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = proxy.connect().await;
    for number in 1..20 {
        assert_eq!(client.ask(GET).await.status, 200);
        upstream.ended(number).await;
    }
    assert_eq!(upstream.requests().len(), 19);
}

#[tokio::test]
async fn a_get_on_a_connection_that_dies_under_it_is_sent_once_more() {
    // The second request on each connection is answered with a close.
    let seen = std::sync::Mutex::new(std::collections::HashSet::new());
    let script = move |_: usize, request: &crate::support::upstream::Arrived| {
        if seen.lock().unwrap().insert(request.connection) {
            always(200, "", "x")
        } else {
            Act::Close
        }
    };
    let upstream = Upstream::run(script).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = proxy.connect().await;
    for _ in 0..3 {
        assert_eq!(client.ask(GET).await.status, 200);
    }
    assert_eq!(proxy.metric(r#"mwl_stale_connection_resends_total{upstream="u"}"#), 2);
    // A POST may have had an effect, so it is not sent again, and the client is told.
    let response = client.ask(POST).await;
    assert_eq!(response.status, 502);
    assert_eq!(response.json()["code"], "Provider.Call.Http.ConnectionClosed");
    assert_eq!(proxy.metric(r#"mwl_stale_connection_resends_total{upstream="u"}"#), 2);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_inside_a_retry_bounds_each_attempt() {
    let timeout = timeout!("PT1S");
    let route = retry("Provider.Middleware.Timeout.Exceeded", timeout);
    let acts = [Act::Hang, Act::Hang, always(200, "", "good")];
    let (mut piped, upstream) = Piped::before(acts, "", &route);
    let begun = Instant::now();
    assert_eq!(piped.client.ask(GET).await.body, "good");
    assert_eq!(begun.elapsed().as_millis() / 100, 20);
    upstream.ended(2).await;
    assert_eq!(piped.metric(r#"mwl_timeouts_total{entry="r/1",route="r"}"#), 2);
    let code = "Provider.Middleware.Timeout.Exceeded";
    let series = format!(r#"mwl_attempts_total{{code="{code}",route="r",upstream="u"}}"#);
    assert_eq!(piped.metric(&series), 2);
}

#[tokio::test]
async fn a_timeout_alone_is_a_504() {
    let upstream = Upstream::play([Act::Hang]).await;
    let timeout = concat!("    middleware:\n", timeout!("PT0.1S"));
    let proxy = Proxy::start(&one_route(&upstream, timeout));
    let response = proxy.ask(GET).await;
    assert_eq!(response.status, 504);
    assert_eq!(response.json()["code"], "Provider.Middleware.Timeout.Exceeded");
    let late = ["mwl-proxy; error=http_response_timeout"];
    assert_eq!(response.field("proxy-status"), late);
}

#[tokio::test]
async fn a_response_s_own_wait_overrides_the_schedule() {
    let acts = [always(429, "retry-after: 0\r\n", ""), always(200, "", "good")];
    let upstream = Upstream::play(acts).await;
    let route = "    middleware:
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry: { with: { policies: [ { match: { codes: [Provider.Call.Http.Throttled] }, attempts: 3, backoff: { initial: PT1H } } ] } }
        onFailure: { with: { delay: \"{{ has(middleware.result.details.retryAfter) ? middleware.result.details.retryAfter : null }}\" } }
";
    let proxy = Proxy::start(&one_route(&upstream, route));
    assert_eq!(proxy.ask(GET).await.body, "good");
    let code = "Provider.Call.Http.Throttled";
    let series = format!(r#"mwl_retries_total{{code="{code}",delay="override",route="r"}}"#);
    assert_eq!(proxy.metric(&series), 1);
}

/// Every form that a server may send, and some that it may not. The response is made at noon.
const WAITS: [(&[u8], &str); 26] = [
    (b"30", "PT30S"),
    (b"0", "PT0S"),
    (b" 30 ", "PT30S"),
    (b"0030", "PT30S"),
    (b"-5", ""),
    (b"+5", ""),
    (b"1.5", ""),
    (b"1e3", ""),
    (b"0x10", ""),
    (b"30s", ""),
    (b"", ""),
    (b"soon", ""),
    (b"120, 60", ""),
    ("\u{663}\u{660}".as_bytes(), ""),
    (b"Sun, 01 Mar 2026 12:00:30 GMT", "PT30S"),
    (b"Sunday, 01-Mar-26 12:00:30 GMT", "PT30S"),
    (b"Sun Mar  1 12:00:30 2026", "PT30S"),
    (b"Sun, 01 Mar 2026 11:59:00 GMT", "PT0S"),
    (b"Sun, 01 Mar 2026 13:00:30 +0100", ""),
    (b"2026-03-01T12:00:30Z", ""),
    (b"Sun, 31 Feb 2026 12:00:30 GMT", ""),
    (b"Mon, 01 Mar 2026 12:00:30 GMT", "PT30S"),
    (b"3600", "PT5M"),
    (b"99999999999999999999999999", "PT5M"),
    (b"5\r\nRetry-After: 60", "PT5S"),
    (b"\xff\xfe", ""),
];

/// The delay that a response with this status and field asks for.
fn asking(status: u16, wait: &[u8]) -> Vec<u8> {
    let date = "Date: Sun, 01 Mar 2026 12:00:00 GMT";
    let head = format!("HTTP/1.1 {status} X\r\n{date}\r\nContent-Length: 0\r\nRetry-After:");
    [head.as_bytes(), wait, b"\r\n\r\n"].concat()
}

#[tokio::test]
async fn a_wait_is_read_in_every_form_that_the_grammar_has_and_in_no_other() {
    let told = "has(failure.details.retryAfter) ? failure.details.retryAfter : ''";
    let route = format!(
        "    catch: [ {{ match: {{ codes: ['*'] }}, output: \"{{{{ {told} }}}}\", next: told }} ]
    steps: {{ told: {{ action: Return }} }}
"
    );
    for status in [429, 503] {
        let acts = WAITS.map(|(wait, _)| Act::Answer(asking(status, wait)));
        let upstream = Upstream::play(acts).await;
        let proxy = Proxy::start(&one_route(&upstream, &route));
        let mut client = proxy.connect().await;
        for (wait, wanted) in WAITS {
            let response = client.ask(GET).await;
            let wait = String::from_utf8_lossy(wait);
            assert_eq!(response.json(), wanted, "{status}: {wait:?}");
        }
        assert_eq!(upstream.requests().len(), WAITS.len());
    }
    // A response that is no reason to retry asks for no delay, whatever its fields.
    let upstream =
        Upstream::play([Act::Answer(asking(404, b"30")), Act::Answer(asking(200, b"30"))]).await;
    let proxy = Proxy::start(&one_route(&upstream, &route));
    assert_eq!(proxy.ask(GET).await.json(), "");
    let passed = proxy.ask(GET).await;
    assert_eq!((passed.status, passed.field("retry-after")), (200, vec!["30"]));
}

#[tokio::test(start_paused = true)]
async fn a_wait_beyond_the_bound_is_not_begun_and_the_client_gets_the_response() {
    let route = "    middleware:
      - { provider: mwl:provider.middleware/mwl/timeout/v1, onEntry: { with: { duration: PT2S } } }
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry: { with: { policies: [ { match: { codes: [Provider.Call.Http.Throttled] }, attempts: 3 } ] } }
        onFailure: { with: { delay: \"{{ middleware.result.details.retryAfter }}\" } }
";
    let (mut piped, upstream) = Piped::before([always(429, "retry-after: 60\r\n", "")], "", route);
    let begun = Instant::now();
    let response = piped.client.ask(GET).await;
    assert_eq!(begun.elapsed(), std::time::Duration::ZERO);
    assert_eq!(response.status, 429);
    assert_eq!(response.field("retry-after"), ["60"]);
    assert_eq!(upstream.requests().len(), 1);
    let suppressed = r#"mwl_retries_suppressed_total{reason="beyondBound",route="r"}"#;
    assert_eq!(piped.metric(suppressed), 1);
}

/// A route whose Step is retried until it succeeds, and whose Flow then fails with `end`.
fn fails_afterwards(upstream: &Upstream, end: &str) -> String {
    format!(
        "upstreams: {{ u: {{ endpoints: ['http://{}'] }} }}
routes:
  - name: r
    flow:
      entrypoint: one
      steps:
        one: {{ action: Call, call: {HTTP}, middleware: [{RETRY}], next: end }}
        end: {end}
        done: {{ action: Return }}
",
        upstream.address,
    )
}

const HTTP: &str =
    "{ provider: 'mwl:provider.call/mwl-proxy/http/v1', with: { upstream: u, method: GET } }";
const RETRY: &str = "{ provider: 'mwl:provider.middleware/mwl/retry/v1', onEntry: { with: { policies: [ \
    { match: { codes: [Provider.Call.Http.Throttled] }, attempts: 3 } ] } } }";

#[tokio::test]
async fn a_wait_that_was_asked_of_an_attempt_that_was_made_again_is_not_the_client_s() {
    let asks = always(429, "retry-after: 60\r\n", "");
    let upstream = Upstream::play([asks.clone(), always(200, "", "")]).await;
    let raises = "{ action: Raise, result: { code: Own.Failure } }";
    let proxy = Proxy::start(&fails_afterwards(&upstream, raises));
    let response = proxy.ask(GET).await;
    assert_eq!((response.status, response.json()["code"].as_str()), (500, Some("Own.Failure")));
    assert!(response.field("retry-after").is_empty(), "{}", response.head);

    // Nor is that of another dispatch of a Gather, whose failures are no chain.
    let gathers = format!("{{ action: Gather, calls: [{HTTP}, {HTTP}], next: done }}");
    let upstream = Upstream::play([always(200, "", ""), asks.clone(), asks]).await;
    let proxy = Proxy::start(&fails_afterwards(&upstream, &gathers));
    let response = proxy.ask(GET).await;
    assert_eq!(response.json()["code"], "System.GatherCompletionUnmet");
    assert!(response.field("retry-after").is_empty(), "{}", response.head);
}

#[tokio::test]
async fn an_invalid_response_is_said_once() {
    let acts = [Act::AnswerAndClose(b"HTTP/1.1 abc OK\r\n\r\n".to_vec())];
    let upstream = Upstream::play(acts).await;
    let told =
        "    catch: [ { match: { codes: ['*'] }, output: \"{{ failure.message }}\", next: told } ]
    steps: { told: { action: Return } }
";
    let proxy = Proxy::start(&one_route(&upstream, told));
    let message = "r: attempt 1: upstream u sent no valid response: the head cannot be read: invalid response status (not retryable: a POST without an Idempotency-Key)";
    assert_eq!(proxy.ask(POST).await.json(), message);
}

#[tokio::test]
async fn a_route_s_own_classification_is_caught_and_answered() {
    let upstream = Upstream::play([always(402, "", "declined")]).await;
    let route = "    classify: [ { status: [402], code: Provider.Call.Payments.CardDeclined, retryable: false } ]
    catch: [ { match: { codes: [Provider.Call.Payments.CardDeclined] }, next: declined } ]
    steps:
      declined: { action: Return, value: { status: 402, body: { error: card declined } } }
";
    let proxy = Proxy::start(&one_route(&upstream, route));
    let response = proxy.ask(GET).await;
    assert_eq!(response.status, 402);
    assert_eq!(response.body, r#"{"error":"card declined"}"#);
}

#[tokio::test]
async fn a_post_s_connection_is_used_again_and_its_details_say_that_all_was_sent() {
    let upstream = Upstream::play([always(503, "", "")]).await;
    let route = "    output: \"{{ {'status': 200} }}\"
    catch: [ { match: { codes: ['*'] }, output: \"{{ failure.details.requestSent }}\", next: told } ]
    steps: { told: { action: Return } }
";
    let proxy = Proxy::start(&one_route(&upstream, route));
    for _ in 0..3 {
        assert_eq!(proxy.ask(POST).await.body, r#""complete""#);
    }
    assert_eq!(upstream.accepted(), 1);
}
