//! The example of the retry-composition recipe, as a route.

use serde_json::{Value, json};

use crate::support::client::{self, Answer};
use crate::support::origin::{Origin, Port, State, Turn, answer};
use crate::support::program::Proxy;

/// The recipe's stack inside of an audit, its catch, and the Steps to which the catch leads.
const RECIPE: &str = r#"
  - name: charge-payment
    match: { methods: [POST], pathPrefix: /billing/charge }
    upstream: billing
    classify:
      - { status: [402], code: Provider.Call.Payments.CardDeclined, retryable: false }
    middleware:
      - provider: mwl:provider.middleware/mwl/finally/v1
        onAlways:
          with:
            call:
              provider: mwl:provider.call/mwl-proxy/http/v1
              input: "{{ {'execution': execution.id, 'result': middleware.result} }}"
              with: { upstream: audit, method: POST, path: /audit }
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry:
          with:
            policies:
              - match: { codes: [Provider.Call.Http.Throttled] }
                attempts: 5
                backoff: { initial: PT10S, rate: 2, max: PT2M, jitter: full }
              - match: { codes: [Provider.Call.Http.ConnectionFailed] }
                attempts: 3
                backoff: { initial: PT0.4S, rate: 2 }
        onFailure:
          with:
            delay: "{{ has(middleware.result.details.retryAfter) ? middleware.result.details.retryAfter : null }}"
      - provider: mwl:provider.middleware/mwl/timeout/v1
        onEntry: { with: { duration: PT2S } }
    catch:
      - match: { codes: [Provider.Call.Payments.CardDeclined] }
        next: notify-customer
    steps:
      notify-customer:
        action: Call
        input: "{{ {'code': failure.code, 'status': failure.details.status} }}"
        call:
          provider: mwl:provider.call/mwl-proxy/http/v1
          with: { upstream: notify, method: POST, path: /notify }
        next: declined
      declined: { action: Return, value: { status: 402, body: { error: card declined } } }
"#;

/// Answers everything with 204.
pub(super) fn sink() -> Origin {
    Origin::always(Turn::Say(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec()))
}

/// The body of the sink's request with this number.
pub(super) fn told(origin: &Origin, number: usize) -> Value {
    let seen = origin.until_state(number, State::Served);
    serde_json::from_slice(&seen.body).unwrap()
}

/// A charge that carries its execution's id.
fn charge(proxy: &Proxy) -> Answer {
    let fields = [("X-Request-Id", "order-17"), ("Content-Type", "application/json")];
    let request = client::request("POST", "/billing/charge?now=1", &fields, br#"{"amount":12}"#);
    client::ask(proxy.address, request)
}

struct Scene {
    proxy: Proxy,
    audit: Origin,
    notify: Origin,
}

fn scene(billing: std::net::SocketAddr) -> Scene {
    let (audit, notify) = (sink(), sink());
    let upstreams = [("billing", billing), ("audit", audit.address), ("notify", notify.address)];
    Scene { proxy: Proxy::before(&upstreams, RECIPE), audit, notify }
}

#[test]
#[expect(clippy::cognitive_complexity, reason = "assertions, in order")]
fn a_throttled_request_waits_as_told_and_is_audited_once() {
    let throttled = |after| answer(429, &[("Retry-After", after)], "slow down");
    let charged = answer(200, &[("x-charge", "c-1")], "charged");
    let billing = Origin::script([throttled("1"), throttled("0"), charged]);
    let mut scene = scene(billing.address);

    let got = charge(&scene.proxy);
    assert_eq!((got.status, got.text(), got.field("x-charge")), (200, "charged", Some("c-1")));

    let seen = billing.seen();
    assert_eq!(seen.len(), 3);
    for attempt in &seen {
        assert_eq!(attempt.head.line, "POST /billing/charge?now=1 HTTP/1.1");
        assert_eq!(attempt.head.field("x-request-id"), Some("order-17"));
        assert_eq!(attempt.body, br#"{"amount":12}"#);
    }
    let gap = |n: usize| (seen[n].at - seen[n - 1].at).as_secs_f64();
    assert!((1.0..1.6).contains(&gap(1)), "told to wait 1 s, waited {} s", gap(1));
    assert!((0.0..0.6).contains(&gap(2)), "told to wait 0 s, waited {} s", gap(2));

    let told = told(&scene.audit, 0);
    assert_eq!(told["execution"], "order-17");
    assert_eq!(told["result"]["type"], "success");
    assert_eq!(told["result"]["value"]["status"], 200);
    assert_eq!(told["result"]["value"]["headers"]["x-charge"], "c-1");
    assert_eq!(
        told["result"]["value"].get("body"),
        None,
        "nothing reads the body, so none is kept"
    );
    assert_eq!(scene.audit.seen()[0].head.line, "POST /audit HTTP/1.1");

    let route = ("route", "charge-payment");
    let proxy = &scene.proxy;
    assert_eq!(proxy.metric("mwl_retries_total", &[route, ("delay", "override")]), 2);
    assert_eq!(proxy.metric("mwl_retries_total", &[route, ("delay", "schedule")]), 0);
    let attempts = |code| {
        let labels = [route, ("upstream", "billing"), ("code", code)];
        proxy.metric("mwl_attempts_total", &labels)
    };
    assert_eq!(attempts("success"), 1);
    assert_eq!(attempts("Provider.Call.Http.Throttled"), 2);
    assert_eq!(proxy.metric("mwl_requests_total", &[route, ("status", "200")]), 1);
    assert_eq!(proxy.metric("mwl_finally_total", &[route, ("outcome", "success")]), 1);

    scene.proxy.stop();
    assert_eq!((billing.count(), scene.audit.count(), scene.notify.count()), (3, 1, 0));
}

#[test]
#[expect(clippy::cognitive_complexity, reason = "assertions, in order")]
fn five_throttled_attempts_exhaust_the_policy_and_the_client_gets_the_upstreams_own_answer() {
    let fields = [("Retry-After", "0"), ("x-quota", "7"), ("content-type", "text/x-quota")];
    let billing = Origin::always(answer(429, &fields, "the quota is used up"));
    let mut scene = scene(billing.address);

    let got = charge(&scene.proxy);
    assert_eq!((got.status, got.text()), (429, "the quota is used up"));
    let mut names = got.head.fields;
    for (name, _) in &mut names {
        name.make_ascii_lowercase();
    }
    names.sort();
    let sent = [
        ("content-length", "20"),
        ("content-type", "text/x-quota"),
        ("date", "Sun, 01 Mar 2026 12:00:00 GMT"),
        ("retry-after", "0"),
        ("x-quota", "7"),
    ];
    let sent: Vec<_> = sent.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    assert_eq!(names, sent, "the upstream's own fields, and none of ours");

    let result = &told(&scene.audit, 0)["result"];
    assert_eq!(result["type"], "error");
    assert_eq!(result["code"], "Provider.Middleware.Retry.Exhausted");
    assert_eq!(result["details"]["attempts"].as_f64(), Some(5.0));
    assert_eq!(result["details"]["policy"].as_f64(), Some(0.0));
    let last = &result["previous"];
    assert_eq!(last["code"], "Provider.Call.Http.Throttled");
    assert_eq!(last["retryable"], true);
    assert_eq!(last["details"]["status"].as_f64(), Some(429.0));
    assert_eq!(last["details"]["retryAfter"], "PT0S");
    assert_eq!(last["details"]["headers"]["x-quota"], "7");
    assert_eq!(last["details"]["requestSent"], "complete");

    let labels = [("route", "charge-payment"), ("policy", "0")];
    assert_eq!(scene.proxy.metric("mwl_retries_exhausted_total", &labels), 1);
    scene.proxy.stop();
    assert_eq!((billing.count(), scene.audit.count()), (5, 1));
}

#[test]
#[expect(clippy::cognitive_complexity, reason = "assertions, in order")]
fn a_refused_connection_is_tried_three_times_then_the_client_gets_a_problem() {
    let billing = Port::hold();
    let mut scene = scene(billing.address);
    let begun = tokio::time::Instant::now();

    let got = charge(&scene.proxy);
    let took = begun.elapsed().as_secs_f64();
    assert!((1.2..10.0).contains(&took), "gaps of 0.4 s and 0.8 s took {took} s");
    assert_eq!(got.status, 502);
    assert_eq!(got.field("content-type"), Some("application/problem+json"));
    let proxy_status = got.field("proxy-status").unwrap();
    assert!(proxy_status.starts_with("mwl-proxy"), "{proxy_status}");
    assert!(proxy_status.contains("error=connection_refused"), "{proxy_status}");
    let problem = got.json();
    assert_eq!(problem["status"].as_f64(), Some(502.0));
    assert_eq!(problem["executionId"], "order-17");
    assert_eq!(problem["attempts"].as_f64(), Some(3.0));
    assert!(problem["title"].is_string() && problem["code"].is_string(), "{problem}");
    assert_eq!(problem.get("previous"), None, "the chain is shown only where the route says so");

    let result = &told(&scene.audit, 0)["result"];
    assert_eq!(result["code"], "Provider.Middleware.Retry.Exhausted");
    assert_eq!(result["details"], json!({ "attempts": 3, "policy": 1 }));
    assert_eq!(result["previous"]["code"], "Provider.Call.Http.ConnectionFailed");
    assert_eq!(result["previous"]["details"]["requestSent"], "none");
    assert_eq!(result["previous"]["retryable"], true);

    let labels = [("upstream", "billing"), ("code", "Provider.Call.Http.ConnectionFailed")];
    assert_eq!(scene.proxy.metric("mwl_attempts_total", &labels), 3);
    scene.proxy.stop();
    assert_eq!(scene.audit.count(), 1);
}

#[test]
fn an_upstream_that_comes_up_between_attempts_gets_the_request() {
    let port = Port::hold();
    let scene = scene(port.address);
    let mut client = client::Client::connect(scene.proxy.address);
    client.send(client::request("POST", "/billing/charge", &[], b"amount=12"));
    scene.proxy.until_metric("mwl_attempts_total", &[("route", "charge-payment")], 1);

    let billing = port.listen(|_, _| answer(200, &[], "charged"));
    let got = client.answer();
    assert_eq!((got.status, got.text()), (200, "charged"));
    assert_eq!(billing.count(), 1);
    assert_eq!(billing.seen()[0].body, b"amount=12");
    assert_eq!(told(&scene.audit, 0)["result"]["type"], "success");
}

#[test]
fn a_declined_card_is_classified_caught_and_answered_by_the_routes_steps() {
    let declined = answer(402, &[("content-type", "application/json")], r#"{"reason":"funds"}"#);
    let billing = Origin::script([declined]);
    let mut scene = scene(billing.address);

    let got = charge(&scene.proxy);
    assert_eq!(got.status, 402);
    assert_eq!(got.json(), json!({ "error": "card declined" }));
    let told_customer = told(&scene.notify, 0);
    assert_eq!(told_customer["code"], "Provider.Call.Payments.CardDeclined");
    assert_eq!(told_customer["status"].as_f64(), Some(402.0));
    assert_eq!(scene.notify.seen()[0].head.line, "POST /notify HTTP/1.1");
    assert_eq!(
        scene.notify.seen()[0].head.field("content-type"),
        Some("application/json"),
        "an input that is not the request is sent as JSON"
    );

    let result = &told(&scene.audit, 0)["result"];
    assert_eq!(result["code"], "Provider.Call.Payments.CardDeclined");
    assert_eq!(result["retryable"], false);
    scene.proxy.stop();
    assert_eq!((billing.count(), scene.audit.count(), scene.notify.count()), (1, 1, 1));
}

#[test]
fn a_hung_attempt_times_out_and_no_policy_of_the_recipe_matches_that() {
    let billing = Origin::always(Turn::Hang);
    let mut scene = scene(billing.address);
    let got = charge(&scene.proxy);
    assert_eq!(got.status, 504);
    assert_eq!(got.json()["code"], "Provider.Middleware.Timeout.Exceeded");
    assert!(got.field("proxy-status").unwrap().starts_with("mwl-proxy"));
    billing.until_state(0, State::Left);
    let result = &told(&scene.audit, 0)["result"];
    assert_eq!((&result["type"], &result["code"]), (&json!("timeout"), &got.json()["code"]));
    assert_eq!(scene.proxy.metric("mwl_timeouts_total", &[("route", "charge-payment")]), 1);
    scene.proxy.stop();
    assert_eq!((billing.count(), scene.audit.count()), (1, 1));
}

/// A route with these entries as its stack.
fn stacked(entries: &str) -> String {
    let route =
        "  - name: pay\n    match: { pathPrefix: / }\n    upstream: billing\n    middleware:\n";
    format!("{route}{entries}")
}

const RETRY_HANGS: &str = "      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry: { with: { policies: [{ match: { codes: [Provider.Middleware.Timeout.Exceeded] }, attempts: 3 }] } }
";

fn bound(duration: &str) -> String {
    format!(
        "      - provider: mwl:provider.middleware/mwl/timeout/v1
        onEntry: {{ with: {{ duration: {duration} }} }}
"
    )
}

#[test]
fn retry_over_timeout_gives_each_attempt_its_own_bound() {
    let billing = Origin::always(Turn::Hang);
    let routes = stacked(&(RETRY_HANGS.to_owned() + &bound("PT0.7S")));
    let mut proxy = Proxy::before(&[("billing", billing.address)], &routes);
    let begun = tokio::time::Instant::now();
    let got = client::get(proxy.address, "/slow");
    let took = begun.elapsed().as_secs_f64();
    assert_eq!(got.status, 504);
    assert_eq!(got.json()["attempts"].as_f64(), Some(3.0));
    assert!((2.1..10.0).contains(&took), "three bounds of 0.7 s took {took} s");
    for number in 0..3 {
        billing.until_state(number, State::Left);
    }
    assert_eq!(proxy.metric("mwl_timeouts_total", &[("route", "pay")]), 3);
    proxy.stop();
    assert_eq!(billing.count(), 3);
}

#[test]
fn timeout_over_retry_bounds_all_attempts_together() {
    let billing = Origin::always(Turn::Hang);
    let routes = stacked(&(bound("PT4S") + RETRY_HANGS + &bound("PT1.5S")));
    let mut proxy = Proxy::before(&[("billing", billing.address)], &routes);
    let begun = tokio::time::Instant::now();
    let got = client::get(proxy.address, "/slow");
    let took = begun.elapsed().as_secs_f64();
    assert_eq!(got.status, 504);
    assert_eq!(got.json()["code"], "Provider.Middleware.Timeout.Exceeded");
    assert!((4.0..10.0).contains(&took), "a bound of 4 s took {took} s");
    let last = billing.until_state(2, State::Left);
    assert_eq!(last.head.line, "GET /slow HTTP/1.1");
    proxy.stop();
    assert_eq!(billing.count(), 3, "the third attempt was cut by the bound over all");
}

#[test]
fn a_wait_beyond_the_bound_over_all_is_not_begun_and_nothing_is_sent_again() {
    let billing = Origin::always(answer(429, &[("Retry-After", "60")], "later"));
    let retry = "      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry: { with: { policies: [{ match: { codes: [Provider.Call.Http.Throttled] }, attempts: 3 }] } }
        onFailure: { with: { delay: \"{{ middleware.result.details.retryAfter }}\" } }
";
    let routes = stacked(&(bound("PT30S") + retry));
    let mut proxy = Proxy::before(&[("billing", billing.address)], &routes);
    let got = client::get(proxy.address, "/slow");
    assert_eq!(got.status, 429, "no re-run consumed it: it is the client's answer");
    proxy.stop();
    assert_eq!(billing.count(), 1);
}
