//! The recipe's variations, one by one.

use serde_json::json;

use super::recipe::{sink, told};
use crate::support::client::{self, get, post, request};
use crate::support::origin::{Origin, answer};
use crate::support::program::Proxy;
use crate::support::stack::{audit, retry};

/// A proxy with one route to `billing` that has these further members.
fn one_route(origin: &Origin, members: &str) -> Proxy {
    let route = "  - name: pay\n    match: { pathPrefix: / }\n    upstream: billing\n";
    Proxy::before(
        &[("billing", origin.address)],
        &format!("{route}{}", members.trim_start_matches('\n')),
    )
}

#[test]
fn the_count_of_attempts_is_carried_to_a_response_field() {
    let origin = Origin::script([answer(429, &[], ""), answer(429, &[], ""), answer(200, &[], "")]);
    let proxy = one_route(
        &origin,
        r#"
    parameters: { type: object, properties: { attempts: { type: integer, default: 0 } } }
    middleware:
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry: { with: { policies: [{ match: { codes: [Provider.Call.Http.Throttled] }, attempts: 5 }] } }
        onSuccess: { assign: { attempts: "{{ middleware.metadata.attempt }}" } }
    output: "{{ {'status': 200, 'headers': {'x-attempts': string(vars.attempts)}, 'body': {'paid': true}} }}"
"#,
    );
    let got = get(proxy.address, "/");
    assert_eq!((got.status, got.field("x-attempts")), (200, Some("3")));
    assert_eq!(got.json(), json!({ "paid": true }));
    assert_eq!(origin.count(), 3);
}

#[test]
fn a_parameter_switches_retries_off() {
    let origin = Origin::always(answer(503, &[], "down"));
    let flow = r#"{
      "$schema": "https://mwl.dev/v0.1/flow/schema.json",
      "parameters": { "type": "object", "properties": { "retriesEnabled": { "type": "boolean", "default": true } } },
      "entrypoint": "send",
      "steps": {
        "send": {
          "action": "Call",
          "call": { "provider": "mwl:provider.call/mwl-proxy/http/v1", "with": { "upstream": "billing" } },
          "middleware": [{
            "provider": "mwl:provider.middleware/mwl/retry/v1",
            "onEntry": {
              "when": "{{ vars.retriesEnabled }}",
              "with": { "policies": [{ "match": { "codes": ["Provider.Call.Http.Unavailable"] }, "attempts": 3 }] }
            }
          }],
          "next": "done"
        },
        "done": { "action": "Return" }
      }
    }"#;
    let directory = crate::support::program::Directory::new();
    directory.write("flows/gated.json", flow);
    let routes = r#"
  - name: off
    match: { pathPrefix: /off }
    flow: flows/gated.json
    with: { retriesEnabled: false }
  - name: on
    match: { pathPrefix: /on }
    flow: flows/gated.json
    with: { retriesEnabled: true }
  - name: asked
    match: { pathPrefix: /asked }
    flow: flows/gated.json
    with: { retriesEnabled: "{{ !('x-no-retries' in frame.input.headers) }}" }
  - name: default
    match: { pathPrefix: / }
    flow: flows/gated.json
"#;
    let file = crate::support::program::configuration(&[("billing", origin.address)], routes);
    let proxy = Proxy::start_in(directory, &file);
    for (path, attempts) in [("/off", 1), ("/on", 3), ("/", 3)] {
        let before = origin.count();
        let got = get(proxy.address, path);
        assert_eq!((got.status, got.text()), (503, "down"), "{path}");
        assert_eq!(origin.count() - before, attempts, "{path}");
    }
    // The request itself may say so.
    for (fields, attempts) in [(&[][..], 3), (&[("X-No-Retries", "1")], 1)] {
        let before = origin.count();
        let got = client::ask(proxy.address, request("GET", "/asked", fields, b""));
        assert_eq!((got.status, got.text()), (503, "down"));
        assert_eq!(origin.count() - before, attempts, "{fields:?}");
    }
}

#[test]
fn a_policy_follows_what_the_provider_says_of_retrying() {
    let proxy_of = |origin: &Origin| {
        one_route(
            origin,
            r"
    middleware:
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry: { with: { policies: [{ match: { codes: [Provider.Call.*], retryable: true }, attempts: 3 }] } }
",
        )
    };
    let key = [("Idempotency-Key", "k-1")];
    for (method, fields, status, answered, attempts) in [
        // Not known to be safe to repeat.
        ("POST", &[][..], 503, &[][..], 1),
        ("POST", &[], 502, &[], 1),
        ("PATCH", &[], 500, &[], 1),
        // Idempotent, with a key, or with the upstream's permission.
        ("PUT", &[], 503, &[], 3),
        ("DELETE", &[], 500, &[], 3),
        ("GET", &[], 504, &[], 3),
        ("POST", &key, 502, &[], 3),
        ("POST", &[], 503, &[("Retry-After", "0")], 3),
        ("POST", &[], 429, &[], 3),
        // Fails every time.
        ("GET", &[], 404, &[], 1),
        ("GET", &key, 422, &[], 1),
    ] {
        let origin = Origin::always(answer(status, answered, "no"));
        let proxy = proxy_of(&origin);
        let got = client::ask(proxy.address, request(method, "/", fields, b""));
        assert_eq!((got.status, got.text()), (status, "no"), "{method} {status}");
        assert_eq!(origin.count(), attempts, "{method} {fields:?} {status} {answered:?}");
    }
}

#[test]
fn entries_gated_by_a_predicate_count_each_for_its_own() {
    let origin = Origin::script([
        answer(500, &[], ""),
        answer(429, &[], ""),
        answer(429, &[], ""),
        answer(500, &[], "the second of two"),
    ]);
    let proxy = one_route(
        &origin,
        r#"
    middleware:
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry: { with: { policies: [{ match: { codes: [Provider.Call.Http.*] }, attempts: 2 }] } }
        onFailure: { when: "{{ middleware.result.details.status >= 500 }}" }
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry: { with: { policies: [{ match: { codes: [Provider.Call.Http.*] }, attempts: 3 }] } }
        onFailure: { when: "{{ middleware.result.details.status == 429 }}" }
"#,
    );
    let got = get(proxy.address, "/");
    assert_eq!((got.status, got.text()), (500, "the second of two"));
    assert_eq!(origin.count(), 4);
}

#[test]
fn an_inner_entry_gives_a_failure_the_name_that_a_policy_matches() {
    let origin = Origin::script([
        answer(409, &[], "locked"),
        answer(409, &[], "locked"),
        answer(200, &[], "paid"),
        answer(400, &[("x-field", "amount")], "bad"),
    ]);
    let proxy = one_route(
        &origin,
        r#"
    middleware:
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry: { with: { policies: [{ match: { codes: [Billing.Locked] }, attempts: 5 }] } }
      - provider: mwl:provider.middleware/mwl/timeout/v1
        onEntry: { with: { duration: PT10S } }
        onFailure:
          code: "{{ middleware.result.details.status == 409 ? 'Billing.Locked' : 'Billing.Refused' }}"
"#,
    );
    let got = post(proxy.address, "/", "{}");
    assert_eq!((got.status, got.text()), (200, "paid"));
    assert_eq!(origin.count(), 3);

    let got = post(proxy.address, "/", "{}");
    assert_eq!((got.status, got.text()), (400, "bad"), "the upstream's answer, under its new name");
    assert_eq!(got.field("x-field"), Some("amount"));
    assert_eq!(origin.count(), 4);
}

#[test]
fn a_whole_flow_runs_again_from_the_variables_that_it_began_with() {
    let stock = Origin::always(answer(200, &[], ""));
    let down = answer(503, &[], "down");
    let billing = Origin::script([down.clone(), down, answer(200, &[], "charged")]);
    let routes = r#"
  - name: order
    match: { pathPrefix: / }
    flow:
      parameters:
        type: object
        properties: { mark: { type: string, default: clean }, tries: { type: integer, default: 0 } }
      middleware:
        - provider: mwl:provider.middleware/mwl/retry/v1
          onEntry: { with: { policies: [{ match: { codes: [Provider.Call.Http.Unavailable] }, attempts: 3 }] } }
          onFailure: { assign: { tries: "{{ vars.tries + 1.0 }}" } }
      entrypoint: reserve
      steps:
        reserve:
          action: Call
          call:
            provider: mwl:provider.call/mwl-proxy/http/v1
            with:
              upstream: stock
              path: /reserve
              headers: { x-mark: "{{ vars.mark }}", x-tries: "{{ string(vars.tries) }}" }
          assign: { mark: dirty }
          output: "{{ step.input }}"
          next: charge
        charge:
          action: Call
          call:
            provider: mwl:provider.call/mwl-proxy/http/v1
            with: { upstream: billing, headers: { x-mark: "{{ vars.mark }}" } }
          next: done
        done: { action: Return }
"#;
    let upstreams = [("stock", stock.address), ("billing", billing.address)];
    let proxy = Proxy::before(&upstreams, routes);
    let got = post(proxy.address, "/charge", r#"{"amount":12}"#);
    assert_eq!((got.status, got.text()), (200, "charged"));

    let field = |origin: &Origin, name: &str| -> Vec<String> {
        let seen = origin.seen();
        seen.iter().map(|seen| seen.head.field(name).unwrap_or("none").to_owned()).collect()
    };
    assert_eq!(field(&stock, "x-mark"), ["clean"; 3], "restored for each run");
    assert_eq!(field(&stock, "x-tries"), ["0", "1", "2"], "carried by the gap");
    assert_eq!(field(&billing, "x-mark"), ["dirty"; 3], "assigned anew in each run");
    for seen in stock.seen().iter().chain(&billing.seen()) {
        assert_eq!(seen.body, br#"{"amount":12}"#);
    }
    assert_eq!(stock.seen()[2].head.line, "POST /reserve HTTP/1.1");
    assert_eq!(billing.seen()[2].head.line, "POST /charge HTTP/1.1");
}

const AUDIT: &str = audit!("audit", "/audit", "middleware.result");
const RETRY: &str = retry!("match: { codes: [Provider.Call.Http.Unavailable] }, attempts: 3");

/// The audits of a 503 and a 200 with a stack of these entries.
fn audits(entries: [&str; 2]) -> Vec<serde_json::Value> {
    let billing = Origin::script([answer(503, &[], "down"), answer(200, &[], "up")]);
    let audit = sink();
    let route =
        "  - name: pay\n    match: { pathPrefix: / }\n    upstream: billing\n    middleware:\n";
    let upstreams = [("billing", billing.address), ("audit", audit.address)];
    let mut proxy = Proxy::before(&upstreams, &format!("{route}{}", entries.concat()));
    let got = get(proxy.address, "/");
    assert_eq!((got.status, got.text()), (200, "up"));
    proxy.stop();
    assert_eq!(billing.count(), 2);
    (0..audit.count()).map(|number| told(&audit, number)).collect()
}

#[test]
fn finally_outermost_audits_the_final_outcome_once() {
    let audits = audits([AUDIT, RETRY]);
    assert_eq!(audits.len(), 1);
    assert_eq!(audits[0]["type"], "success");
}

#[test]
fn finally_innermost_audits_every_attempt() {
    let audits = audits([RETRY, AUDIT]);
    assert_eq!(audits.len(), 2);
    assert_eq!(audits[0]["code"], "Provider.Call.Http.Unavailable");
    assert_eq!(audits[1]["type"], "success");
}

#[test]
fn an_audit_that_fails_takes_the_place_of_a_success() {
    let billing = Origin::always(answer(200, &[], "paid"));
    let audit = Origin::always(answer(500, &[], "the audit's own words"));
    let route =
        "  - name: pay\n    match: { pathPrefix: / }\n    upstream: billing\n    middleware:\n";
    let upstreams = [("billing", billing.address), ("audit", audit.address)];
    let proxy = Proxy::before(&upstreams, &format!("{route}{AUDIT}"));
    let got = get(proxy.address, "/");
    assert_eq!(got.status, 500);
    assert_eq!(got.json()["code"], "Provider.Call.Http.NonSuccessStatus");
    assert!(!got.text().contains("own words"), "a cleanup's response is never the client's");
    assert_eq!(proxy.metric("mwl_finally_total", &[("outcome", "failure")]), 1);
}
