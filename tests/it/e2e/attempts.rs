//! Attempts that run side by side in Steps of one name: what the record, the spans and the tap say of each is its own.

use std::collections::BTreeMap;
use std::sync::Mutex;

use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::{Value, json};

use super::admin::Tap;
use super::tracing::{attribute, collector, spans};
use crate::support::client::{ask, get, request};
use crate::support::origin::{Origin, answer};
use crate::support::program::{Proxy, configuration};

/// In a Gather three dispatches of one Flow, whose Step `one` is retried after a wait of the dispatch's own.
const ROUTES: &str = r#"
  - name: fan
    flow:
      entrypoint: all
      steps:
        all:
          action: Gather
          over: "{{ ['PT0.03S', 'PT0.01S', 'PT0.02S'] }}"
          call:
            flow:
              entrypoint: one
              steps:
                one:
                  action: Call
                  call:
                    provider: mwl:provider.call/mwl-proxy/http/v1
                    with: { upstream: app, method: GET, path: /one, headers: { x-own: "{{ step.input }}" } }
                  middleware:
                    - provider: mwl:provider.middleware/mwl/retry/v1
                      onEntry:
                        with: { policies: [{ match: { codes: ["*"] }, attempts: 3, backoff: { initial: "{{ step.input }}" } }] }
                  next: done
                done: { action: Return, value: "{{ 1 }}" }
          next: end
        end: { action: Return }
"#;

/// The wait of each dispatch, in seconds.
const WAITS: [f64; 3] = [0.03, 0.01, 0.02];

/// Refuses the first two attempts of each dispatch.
fn origin() -> Origin {
    let seen = Mutex::new(BTreeMap::<String, usize>::new());
    Origin::by(move |head, _| {
        let mut seen = seen.lock().unwrap();
        let count = seen.entry(head.field("x-own").unwrap().to_owned()).or_default();
        *count += 1;
        answer(if *count < 3 { 503 } else { 200 }, &[], "")
    })
}

/// By dispatch and number.
fn by_identity<T>(
    all: impl IntoIterator<Item = T>,
    identity: impl Fn(&T) -> (u64, u64),
) -> BTreeMap<(u64, u64), T> {
    let mut map = BTreeMap::new();
    for one in all {
        assert!(map.insert(identity(&one), one).is_none(), "two of one identity");
    }
    map
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

#[test]
fn what_is_told_of_each_is_its_own() {
    let (origin, collector) = (origin(), collector());
    let file = configuration(&[("app", origin.address)], ROUTES);
    let otlp =
        format!("otlp: {{ endpoint: 'http://{}', headers: {{ x-key: k }} }}", collector.address);
    let mut proxy = Proxy::start(&format!("tracing: {{ {otlp}, service: shop }}\n{file}"));
    let mut tap = Tap::open(proxy.admin, "");
    let fields = [("x-request-id", "fanned")];
    assert_eq!(ask(proxy.address, request("GET", "/", &fields, b"")).status, 200);
    tap.until("execution.done\",\"execution\":\"fanned\"");
    let found = get(proxy.admin, "/executions?route=fan").json();
    proxy.stop();

    let attempts = found["executions"][0]["attempts"].as_array().unwrap();
    let attempts = by_identity(attempts, |one| (number(&one["dispatch"]), number(&one["attempt"])));
    assert_eq!(attempts.len(), 9, "{attempts:#?}");
    for ((dispatch, attempt), one) in &attempts {
        let wait = (*attempt > 1).then(|| WAITS[usize::try_from(*dispatch).unwrap()]);
        assert_eq!((&one["step"], &one["waited"]), (&json!("one"), &json!(wait)), "{one}");
        assert_eq!(one["status"], if *attempt < 3 { 503 } else { 200 });
        let Some(wait) = wait else { continue };
        let before = attempts[&(*dispatch, attempt - 1)];
        let seconds = |of: &Value, member: &str| of[member].as_f64().unwrap();
        let gap = seconds(one, "began") - seconds(before, "began") - seconds(before, "took");
        assert!(gap >= wait, "{gap} s before {one}");
    }
    tells_each(&tap, attempts.keys().copied());
    shows_each(&spans(&collector));
}

/// Each began once and ended once, and how long it took is said at its end.
fn tells_each(tap: &Tap, all: impl Iterator<Item = (u64, u64)>) {
    let events = tap.data();
    for (dispatch, attempt) in all {
        let own = events.iter().filter(|event| {
            event["dispatch"] == dispatch
                && event["attempt"] == attempt
                && event["event"].as_str().unwrap().starts_with("attempt.")
        });
        let own: Vec<_> = own.map(|event| (&event["event"], event["duration"].is_f64())).collect();
        let end = if attempt < 3 { "attempt.failed" } else { "attempt.done" };
        assert_eq!(own, [(&json!("attempt.started"), false), (&json!(end), true)]);
    }
}

/// What a span says of an attempt, and of the wait before it.
fn shows_each(spans: &[Span]) {
    let of = |span: &Span, key: &str| attribute(span, key).map(|text| text.parse::<u64>().unwrap());
    let attempts = spans.iter().filter(|span| attribute(span, "mwl.step").is_some());
    let attempts = by_identity(attempts, |span| {
        (of(span, "mwl.dispatch").unwrap(), of(span, "mwl.attempt").unwrap())
    });
    assert_eq!(attempts.len(), 9);
    for ((dispatch, attempt), span) in attempts {
        let wait = (attempt > 1).then(|| WAITS[usize::try_from(dispatch).unwrap()].to_string());
        assert_eq!(attribute(span, "mwl.retry.wait"), wait);
        let resends = of(span, "http.request.resend_count").unwrap_or_default();
        assert_eq!(resends, attempt - 1);
    }
}
