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
    request: { set: { x-jwt: s3, x-from: "${JWT}", x-or: "${JWT:-s3}" }, remove: [cookie] }
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

#[test]
fn secrets_are_hidden_wherever_they_stand() {
    let shown = seen(SECRETS);
    let text = shown.to_string();
    assert!(!text.contains("s3") && !text.contains("31337"), "{shown:#}");
    insta::assert_snapshot!(shown["routes"][0]["call"], @"");
    insta::assert_snapshot!(shown["routes"][0]["middleware"], @"");
    insta::assert_snapshot!(shown["routes"][0]["match"], @"");
    insta::assert_snapshot!(shown["routes"][0]["request"], @"");
    insta::assert_snapshot!(shown["routes"][0]["steps"], @"");
    insta::assert_snapshot!(shown["routes"][1], @"");
    insta::assert_snapshot!(shown["routes"][2]["flow"], @"");
    insta::assert_snapshot!(shown["upstreams"], @"");
    insta::assert_snapshot!(shown["admin"], @"");
    insta::assert_snapshot!(shown["tracing"], @"");
}

/// A row that names no text would hide a renamed field from this list's reader.
#[test]
fn each_row_is_a_text_of_the_file() {
    let all = sections();
    for (name, key) in TEXTS {
        let found = all.iter().filter(|section| section.name == *name);
        let field = found.filter_map(|section| section.field(key)).next();
        assert!(field.is_some(), "{name} has no `{key}`");
    }
}

#[test]
fn what_is_shown_of_the_reference_says_what_runs() {
    let shown = seen(include_str!("../../../config/recipe.yaml"));
    assert_eq!(shown["routes"][0]["name"], json!("charge-payment"));
}
