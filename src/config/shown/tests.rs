//! What `/config` shows of files full of secrets.

use serde_json::json;

use super::super::root::sections;
use super::*;
use crate::source::{Format, Sources};

fn seen(text: &str) -> Json {
    shown(&Sources::default().parse("c.yaml", text, Format::Yaml).unwrap())
}

/// Every place of a configuration in which an author may put a secret, each with one that begins with `s3`.
const SECRETS: &str = r#"
environment: staging
listeners: [{ address: "${LISTEN:-127.0.0.1:8080}" }]
admin: { address: 127.0.0.1:9900, token: s3-token, executions: 5 }
upstreams: { billing: { endpoints: ["http://127.0.0.1:3000", "http://u:s3@b.test"], connectTimeout: PT1S } }
tracing: { otlp: { endpoint: "http://c.test", headers: { dd-api-key: s3, x-other: s3 } }, sample: 0.5 }
routes:
  - name: pay
    match: { hosts: [a.test], pathPrefix: /pay, methods: [POST], headers: { x-auth: s3, x-any: null }, query: { pw: s3 } }
    rewrite: { host: b.test }
    requestHeaders: { set: { x-jwt: s3, x-from: "${JWT}", x-or: "${JWT:-s3}" }, remove: [cookie] }
    call:
      provider: mwl:provider.call/mwl-proxy/http/v1
      input: { pin: 31337, note: "{{ 'kept ' + frame.input.path + \"s3\" + r's3\\' }}" }
      with: { upstream: billing, method: POST, path: /hooks/s3, headers: { Authorization: s3, code: s3, x-n: 31337 }, idempotencyKey: true }
    classify: [{ status: [402], when: "{{ response.body == 's3' }}", code: Provider.Call.Pay.Declined, retryable: false }]
    middleware:
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry: { with: { policies: [{ match: { codes: ["Provider.Call.*"], retryable: true }, attempts: 5, backoff: { initial: PT1S, rate: 2, jitter: full } }] } }
        onFailure: { with: { delay: "{{ middleware.result.code == 's3' ? 'PT1S' : null }}" } }
      - { stack: named }
    catch: [{ match: { codes: ["*"] }, next: sorry }]
    steps: { sorry: { action: Return, comment: s3, value: { status: 503, body: { code: s3 } } } }
  - name: whole
    flow: flows/a.json
    with: { code: s3, next: s3, limit: 31337, enabled: true }
  - name: inline
    flow: { entrypoint: a, steps: { a: { action: Call, call: { flow: inner, with: { code: s3 } }, next: b }, b: { action: Raise, result: { type: failure, code: A.B, message: s3, details: { code: s3 } } } } }
"#;

/// What is seen of it.
const SHOWN: &str = r#"
environment: staging
listeners: [{ address: "${LISTEN:-127.0.0.1:8080}" }]
admin: { address: 127.0.0.1:9900, token: (hidden), executions: 5 }
upstreams: { billing: { endpoints: ["http://127.0.0.1:3000", (hidden)], connectTimeout: PT1S } }
tracing: { otlp: { endpoint: (hidden), headers: { dd-api-key: (hidden), x-other: (hidden) } }, sample: 0.5 }
routes:
  - name: pay
    match: { hosts: [a.test], pathPrefix: /pay, methods: [POST], headers: { x-auth: (hidden), x-any: null }, query: { pw: (hidden) } }
    rewrite: { host: b.test }
    requestHeaders: { set: { x-jwt: (hidden), x-from: "${JWT}", x-or: (hidden) }, remove: [cookie] }
    call:
      provider: mwl:provider.call/mwl-proxy/http/v1
      input: { pin: (hidden), note: "{{ '(hidden)' + frame.input.path + '(hidden)' + r'(hidden)' }}" }
      with: { upstream: billing, method: POST, path: (hidden), headers: { Authorization: (hidden), code: (hidden), x-n: (hidden) }, idempotencyKey: true }
    classify: [{ status: [402], when: "{{ response.body == '(hidden)' }}", code: Provider.Call.Pay.Declined, retryable: false }]
    middleware:
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry: { with: { policies: [{ match: { codes: ["Provider.Call.*"], retryable: true }, attempts: 5, backoff: { initial: PT1S, rate: 2, jitter: full } }] } }
        onFailure: { with: { delay: "{{ middleware.result.code == '(hidden)' ? '(hidden)' : null }}" } }
      - { stack: named }
    catch: [{ match: { codes: ["*"] }, next: sorry }]
    steps: { sorry: { action: Return, comment: (hidden), value: { status: (hidden), body: { code: (hidden) } } } }
  - name: whole
    flow: flows/a.json
    with: { code: (hidden), next: (hidden), limit: (hidden), enabled: true }
  - name: inline
    flow: { entrypoint: a, steps: { a: { action: Call, call: { flow: inner, with: { code: (hidden) } }, next: b }, b: { action: Raise, result: { type: failure, code: A.B, message: (hidden), details: { code: (hidden) } } } } }
"#;

#[test]
fn secrets_are_hidden_wherever_they_stand() {
    let shown = seen(SECRETS);
    let wanted = Sources::default().parse("c.yaml", SHOWN, Format::Yaml).unwrap().to_json();
    assert_eq!(shown, wanted, "{shown:#}");
    let text = shown.to_string();
    assert!(!text.contains("s3") && !text.contains("31337"), "{shown:#}");
}

/// A row that names no text would hide a renamed field from this list's reader.
#[test]
fn each_row_is_a_text_of_the_file() {
    let all = [sections(), vec![&ROOT]].concat();
    for (name, key) in TEXTS {
        let mut found = all.iter().filter(|section| section.name == *name);
        let field = found.find_map(|section| section.field(key));
        assert!(field.is_some(), "{name} has no `{key}`");
    }
}

#[test]
fn what_is_shown_of_the_reference_says_what_runs() {
    let shown = seen(include_str!("../../../config/recipe.yaml"));
    assert_eq!(shown["routes"][0]["name"], json!("charge-payment"));
}
