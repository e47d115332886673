//! What a policy keeps from its clients is told to its operators: failures that a `catch` takes, cleanups that came to
//! nothing, and slips of the policy's own author.

use serde_json::{Value, json};

use super::admin::Tap;
use super::operators::with_id;
use crate::support::client::{Client, ask, get};
use crate::support::origin::{Origin, Port, answer};
use crate::support::program::{Proxy, configuration};
use crate::support::stack::{retry, timeout};

/// Answers with 200 whatever its upstream does.
const FALLBACK: &str = concat!(
    "  - name: pay\n    match: { pathPrefix: /pay }\n    upstream: billing\n",
    "    catch: [{ match: { codes: [\"*\"] }, next: apologize }]\n",
    "    steps: { apologize: { action: Return, value: { status: 200, body: later } } }\n",
);

/// The best-effort audit of docs/configuration.md.
const AUDITED: &str = r#"
  - name: pay
    upstream: billing
    middleware:
      - provider: mwl:provider.middleware/mwl/finally/v1
        onAlways:
          with:
            call:
              input: "{{ middleware.result.type }}"
              flow:
                entrypoint: tell
                steps:
                  tell:
                    action: Call
                    call:
                      provider: mwl:provider.call/mwl-proxy/http/v1
                      with: { upstream: audit, method: POST, path: /audit }
                    next: told
                    catch: [{ match: { codes: ["*"] }, next: told }]
                  told: { action: Return }
"#;

/// The lines with this message.
fn said(proxy: &Proxy, message: &str) -> Vec<Value> {
    let lines = proxy.program().lines();
    let lines = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["message"] == message).collect()
}

fn members<const N: usize>(of: &Value, names: [&str; N]) -> Value {
    Value::Array(names.map(|name| of[name].clone()).to_vec())
}

#[test]
fn a_failure_that_a_catch_takes_is_told_as_any_other() {
    let origin = Origin::always(answer(503, &[], ""));
    let file = configuration(&[("billing", origin.address)], FALLBACK);
    let mut proxy = Proxy::start(&format!("log: {{ access: {{ when: failures }} }}\n{file}"));
    let mut tap = Tap::open(proxy.admin, "?outcome=degraded");
    // One connection stays on one worker.
    let mut client = Client::connect(proxy.address);
    for id in ["one", "two"] {
        let got = client.ask(with_id("GET", "/pay", id, ""));
        assert_eq!((got.status, got.text()), (200, "later"));
    }
    let labels = [("route", "pay"), ("step", "pay"), ("code", "Provider.Call.Http.Unavailable")];
    assert_eq!(proxy.metric("mwl_catches_total", &labels), 2);
    let kept = get(proxy.admin, "/executions?outcome=degraded&execution=one").json();
    let [one] = kept["executions"].as_array().unwrap().as_slice() else { panic!("{kept}") };
    assert_eq!(members(one, ["execution", "status", "result"]), json!(["one", 200, "success"]));
    let caught = members(&one["caught"][0], ["step", "next", "code"]);
    assert_eq!(caught, json!(["pay", "apologize", "Provider.Call.Http.Unavailable"]));
    let message = one["caught"][0]["failures"][0]["message"].as_str().unwrap();
    assert_eq!(
        message,
        "pay: attempt 1: upstream billing answered 503 (retryable: GET is idempotent)"
    );
    for outcome in ["success", "failure"] {
        let page = get(proxy.admin, &format!("/executions?outcome={outcome}")).json();
        assert_eq!(page["executions"], json!([]), "{outcome}");
    }
    tap.until("execution.done");
    let events = tap.data();
    let event = events.iter().find(|event| event["event"] == "failure.caught").unwrap();
    assert_eq!(members(event, ["step", "next", "code"]), caught);
    proxy.stop();
    let lines = said(&proxy, "A failure was caught.");
    assert_eq!(lines.len(), 1, "paced: {lines:#?}");
    let told = members(&lines[0], ["level", "execution", "route", "step", "next", "untold"]);
    assert_eq!(told, json!(["WARN", "one", "pay", "pay", "apologize", 0]));
    assert_eq!(lines[0]["error"], format!("Provider.Call.Http.Unavailable: {message}"));
    let lines = proxy.program().lines();
    let records = lines.iter().filter(|line| line.contains("\"bytesOut\""));
    let records: Vec<Value> = records.map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records.len(), 2);
    let code = json!([{ "step": "pay", "next": "apologize", "code": labels[2].1 }]);
    assert_eq!(records[0]["caught"], code);
}

#[test]
fn a_cleanup_whose_flow_caught_a_failure_is_degraded() {
    let (origin, down) = (Origin::always(answer(200, &[], "")), Port::hold());
    let upstreams = [("billing", origin.address), ("audit", down.address)];
    let mut proxy = Proxy::before(&upstreams, AUDITED);
    assert_eq!(ask(proxy.address, with_id("GET", "/", "one", "")).status, 200);
    let of = |outcome| proxy.metric("mwl_finally_total", &[("outcome", outcome)]);
    assert_eq!([of("degraded"), of("success"), of("failure")], [1, 0, 0]);
    let kept = get(proxy.admin, "/executions?outcome=degraded").json();
    let caught = &kept["executions"][0]["caught"][0];
    let told = members(caught, ["step", "cleanup", "code"]);
    assert_eq!(told, json!(["tell", true, "Provider.Call.Http.ConnectionFailed"]));
    proxy.stop();
    assert_eq!(said(&proxy, "A failure was caught.").len(), 1);
}

/// The entry whose slip it is lets the failure rise, so the client's answer says nothing.
#[test]
fn a_slip_that_switches_a_policy_off_is_told_though_the_client_gets_its_429() {
    let origin = Origin::always(answer(429, &[], ""));
    let routes = format!(
        "  - name: pay\n    upstream: billing\n    middleware:\n{}        onFailure: {{ with: {{ delay: \"{{{{ middleware.result.details.retryAfter }}}}\" }} }}\n",
        retry!("match: { codes: [\"*\"] }, attempts: 3")
    );
    let mut proxy = Proxy::before(&[("billing", origin.address)], &routes);
    let mut client = Client::connect(proxy.address);
    for id in ["one", "two"] {
        assert_eq!(client.ask(with_id("GET", "/", id, "")).status, 429);
    }
    let code = "System.ExpressionEvaluationError";
    let labels = [("route", "pay"), ("step", "pay"), ("code", code)];
    assert_eq!(proxy.metric("mwl_definition_faults_total", &labels), 2);
    assert_eq!(origin.count(), 2, "no policy, no retry");
    proxy.stop();
    let lines = said(&proxy, "A definition is at fault.");
    assert_eq!(lines.len(), 1, "paced: {lines:#?}");
    let told = members(&lines[0], ["level", "execution", "route", "step", "untold"]);
    assert_eq!(told, json!(["WARN", "one", "pay", "pay", 0]));
    let error = lines[0]["error"].as_str().unwrap();
    assert!(error.starts_with(&format!("{code}: pay: ")), "{error}");
}

/// A rule of `classify` that cannot be evaluated does not apply.
#[test]
fn a_slip_in_a_rule_leaves_a_good_answer_good_and_is_told() {
    let origin = Origin::always(answer(200, &[], "fine"));
    let routes = "  - name: pay\n    upstream: billing\n    classify:\n      \
        - { when: \"{{ response.headers['x-state'] == 'bad' }}\", code: Provider.Call.Pay.Bad }\n";
    let mut proxy = Proxy::before(&[("billing", origin.address)], routes);
    let got = ask(proxy.address, with_id("GET", "/", "one", ""));
    assert_eq!((got.status, got.text()), (200, "fine"));
    assert_eq!(proxy.metric("mwl_definition_faults_total", &[("step", "pay")]), 1);
    proxy.stop();
    let lines = said(&proxy, "A definition is at fault.");
    let error = lines[0]["error"].as_str().unwrap();
    assert!(error.contains("pay: a rule of `classify` does not apply: "), "{error}");
}

/// Every place where a field of a definition is evaluated.
#[test]
fn a_slip_is_told_wherever_it_is() {
    let origin =
        Origin::by(|head, _| answer(if head.line.contains("/bad-") { 500 } else { 200 }, &[], ""));
    let retried = |phase: &str| {
        format!(
            "upstream: billing, middleware: [{{ provider: \"mwl:provider.middleware/mwl/retry/v1\", onEntry: {{ with: {{ policies: [{{ match: {{ codes: [\"*\"] }}, attempts: 2 }}] }} }}, {phase} }}]"
        )
    };
    let slip = "\"{{ vars.missing }}\"";
    let places = [
        ("good-input", format!("upstream: billing, input: {slip}")),
        ("good-output", format!("upstream: billing, output: {slip}")),
        ("good-assign", format!("upstream: billing, assign: {{ x: {slip} }}")),
        ("bad-when", retried(&format!("onFailure: {{ when: {slip} }}"))),
        ("bad-delay", retried(&format!("onFailure: {{ with: {{ delay: {slip} }} }}"))),
        ("bad-number", retried("onFailure: { with: { delay: \"{{ 2.0 }}\" } }")),
        ("bad-carried", retried(&format!("onFailure: {{ assign: {{ x: {slip} }} }}"))),
        ("good-entry", retried("onSuccess: { assign: { x: \"{{ vars.missing }}\" } }")),
        (
            "bad-catch",
            format!(
                "upstream: billing, catch: [{{ match: {{ codes: [\"*\"] }}, next: end, output: {slip} }}], steps: {{ end: {{ action: Return }} }}"
            ),
        ),
        (
            "good-raise",
            "flow: { entrypoint: again, steps: { again: { action: Raise } } }".to_owned(),
        ),
    ];
    let mut routes = String::new();
    for (name, route) in &places {
        let route = format!("  - {{ name: {name:?}, match: {{ path: /{name} }}, {route} }}\n");
        routes.push_str(&route);
    }
    let proxy = Proxy::before(&[("billing", origin.address)], &routes);
    for (name, _) in &places {
        ask(proxy.address, with_id("GET", &format!("/{name}"), name, ""));
        let faults = proxy.metric("mwl_definition_faults_total", &[("route", name)]);
        assert_eq!(faults, 1, "{name}");
    }
}

#[test]
fn bounds_and_policies_are_counted_by_their_entry_and_say_their_step() {
    let origin = Origin::always(answer(503, &[], ""));
    let hanging = Origin::always(crate::support::origin::Turn::Hang);
    let routes = concat!(
        "  - name: pay\n    match: { pathPrefix: /pay }\n    upstream: billing\n    middleware:\n",
        retry!("match: { codes: [\"*\"] }, attempts: 2"),
        retry!("match: { codes: [Provider.Call.*] }, attempts: 3"),
        "  - name: slow\n    upstream: hanging\n    middleware:\n",
        retry!("match: { types: [timeout] }, attempts: 2"),
        timeout!("PT0.05S"),
    );
    let upstreams = [("billing", origin.address), ("hanging", hanging.address)];
    let proxy = Proxy::before(&upstreams, routes);
    let bound = [("route", "slow"), ("entry", "slow/1")];
    let page = get(proxy.admin, "/metrics");
    assert!(page.text().contains("mwl_timeouts_total{entry=\"slow/1\",route=\"slow\"} 0"));
    assert_eq!(ask(proxy.address, with_id("GET", "/pay", "one", "")).status, 503);
    assert_eq!(ask(proxy.address, with_id("GET", "/slow", "two", "")).status, 504);
    let exhausted = |entry| {
        let labels = [("route", "pay"), ("entry", entry), ("policy", "0")];
        proxy.metric("mwl_retries_exhausted_total", &labels)
    };
    assert_eq!([exhausted("pay/0"), exhausted("pay/1")], [1, 2]);
    assert_eq!(proxy.metric("mwl_timeouts_total", &bound), 2);
    let kept = get(proxy.admin, "/executions?outcome=failure&route=slow").json();
    let messages: Vec<&str> = kept["executions"][0]["failures"]
        .as_array()
        .unwrap()
        .iter()
        .map(|failure| failure["message"].as_str().unwrap())
        .collect();
    assert_eq!(
        messages[..2],
        [
            "slow: policy 0 is exhausted after 2 runs",
            "slow: attempt 2 of 2: no Result was accepted in time: the bound is PT0.05S",
        ]
    );
}

/// A failure that a rule makes of a 200 reaches the client as a 200.
#[test]
fn a_failure_that_looks_like_a_success_has_a_line() {
    let origin = Origin::always(answer(200, &[], "soft error"));
    let routes = "  - name: pay\n    upstream: billing\n    classify:\n      \
        - { status: [200], code: Provider.Call.Pay.Soft }\n";
    let mut proxy = Proxy::before(&[("billing", origin.address)], routes);
    assert_eq!(ask(proxy.address, with_id("GET", "/", "one", "")).status, 200);
    proxy.stop();
    let lines = said(&proxy, "A request failed.");
    let told = members(&lines[0], ["execution", "status", "error"]);
    let error = "Provider.Call.Pay.Soft: pay: attempt 1: upstream billing answered 200";
    assert_eq!(told, json!(["one", 200, error]));
}

#[test]
fn a_gather_s_failure_names_the_dispatch_and_its_cause() {
    let origin =
        Origin::by(|head, _| answer(if head.line.contains("/b") { 500 } else { 200 }, &[], ""));
    let routes = r#"
  - name: all
    flow:
      entrypoint: each
      steps:
        each:
          action: Gather
          over: "{{ ['/a', '/b'] }}"
          concurrency: 1
          call:
            provider: mwl:provider.call/mwl-proxy/http/v1
            input: null
            with: { upstream: billing, method: GET, path: "{{ call.input }}" }
          next: end
        end: { action: Return, value: done }
"#;
    let mut proxy = Proxy::before(&[("billing", origin.address)], routes);
    assert_eq!(ask(proxy.address, with_id("GET", "/", "one", "")).status, 500);
    proxy.stop();
    let lines = said(&proxy, "A request failed.");
    let error = "System.GatherCompletionUnmet: each: 1 of 2 dispatches succeeded; 2 must; dispatch 1: Provider.Call.Http.NonSuccessStatus: each: attempt 1: upstream billing answered 500 (retryable: GET is idempotent)";
    assert_eq!(lines[0]["error"], error);
}
