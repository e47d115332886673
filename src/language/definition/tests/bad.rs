//! One case for each thing that is refused.

use super::*;

/// What is refused at load, and at run time fails with a failure of its own instead.
fn load_only(text: &str) -> String {
    assert!(
        compiled(text, Strictness::Runtime).is_ok(),
        "left to run time: {text}"
    );
    refused(text)
}

#[test]
fn the_root() {
    insta::assert_snapshot!(refused("- a"), @"");
    insta::assert_snapshot!(refused("entrypoint: a\nsteps: { a: { action: Return } }"), @"");
    insta::assert_snapshot!(refused("$schema: https://mwl.dev/v0.2/flow/schema.json\nentrypoint: a\nsteps: { a: { action: Return } }"), @"");
    insta::assert_snapshot!(refused(&root("stepps: {}\n")), @"");
    insta::assert_snapshot!(refused(&root("steps: {}\n")), @"");
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Return } }\ncomment: [1]\n")), @"");
}

#[test]
fn steps_and_their_fields() {
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Retrun } }")), @"");
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Wait } }")), @"");
    insta::assert_snapshot!(refused(&root("steps: { a: { next: a } }")), @"");
    insta::assert_snapshot!(refused(&root("steps: { a: Return }")), @"");
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Return, output: 1, valeu: 2, next: a } }")), @"");
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Pass, catch: [] } }")), @"");
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Pass, assign: [1], next: a } }")), @"");
}

#[test]
fn references_to_steps() {
    insta::assert_snapshot!(refused(&root("steps: { b: { action: Return } }")), @"");
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Pass, next: deliver }, delivered: { action: Return } }")), @"");
    // A Step of another graph is out of reach.
    insta::assert_snapshot!(refused(&root("\
flows: { F: { entrypoint: x, steps: { x: { action: Pass, next: a } } } }
steps: { a: { action: Call, call: { flow: F }, next: x } }
")), @"");
}

#[test]
fn expressions_in_structure() {
    insta::assert_snapshot!(refused(r#"
$schema: https://mwl.dev/v0.1/flow/schema.json
entrypoint: "{{ 'a' }}"
parameters: { type: object, properties: { p: { default: "{{ 1 }}" } } }
steps:
  a: { action: Call, call: { flow: "{{ vars.f }}" }, next: "{{ 'b' }}", catch: [{ match: { codes: ["{{ 'x' }}"] }, next: b }] }
  b: { action: Call, call: { provider: "{{ vars.p }}" }, next: "{{'c'}}" }
  c: { action: "{{ 'Pass' }}" }
  "{{ d }}": { action: Pass, assign: { "{{ x }}": 1 }, next: a }
flows: { "{{ f }}": { entrypoint: a, steps: { a: { action: Return } } } }
"#), @"");
}

#[test]
fn flow_names() {
    insta::assert_snapshot!(refused(&root("\
flows: { Charge: { entrypoint: a, steps: { a: { action: Return } } } }
steps: { a: { action: Call, call: { flow: Chagre }, next: b }, b: { action: Return } }
")), @"");
    // A name is seen from within, never from outside.
    insta::assert_snapshot!(refused(&root("\
flows:
  Outer:
    flows: { Inner: { entrypoint: a, steps: { a: { action: Return } } } }
    entrypoint: a
    steps: { a: { action: Return } }
steps: { a: { action: Call, call: { flow: Inner }, next: b }, b: { action: Return } }
")), @"");
    insta::assert_snapshot!(refused(&root("\
steps: { a: { action: Call, call: { flow: { $schema: x, entrypoint: a, steps: { a: { action: Return } } } }, next: b }, b: { action: Return } }
")), @"");
}

#[test]
fn flow_cycles() {
    insta::assert_snapshot!(refused(&root("\
flows:
  A: { entrypoint: x, steps: { x: { action: Call, call: { flow: B }, next: y }, y: { action: Return } } }
  B: { entrypoint: x, steps: { x: { action: Call, call: { flow: A }, next: y }, y: { action: Return } } }
  C: { entrypoint: x, steps: { x: { action: Gather, calls: [{ flow: C }], next: y }, y: { action: Return } } }
steps: { a: { action: Return } }
")), @"");
    // Through an inline Flow that stands within the named one.
    insta::assert_snapshot!(refused(&root("\
flows:
  A:
    entrypoint: x
    steps:
      x: { action: Call, call: { flow: { entrypoint: i, steps: { i: { action: Call, call: { flow: A }, next: j }, j: { action: Return } } } }, next: y }
      y: { action: Return }
steps: { a: { action: Return } }
")), @"");
}

#[test]
fn parameter_schemas() {
    insta::assert_snapshot!(refused(&root("parameters: { properties: {} }\nsteps: { a: { action: Return } }")), @"");
    insta::assert_snapshot!(refused(&root("parameters: { type: object, properties: { p: { type: text } } }\nsteps: { a: { action: Return } }")), @"");
}

#[test]
fn calls() {
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Call, call: {}, next: b }, b: { action: Call, call: { provider: 'mwl:provider.call/acme/http/v1', flow: F }, next: a } }")), @"");
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Call, next: b }, b: { action: Return } }")), @"");
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Call, call: { flow: 3, onFailure: { value: 1 }, middleware: [] }, next: b }, b: { action: Return } }")), @"");
}

#[test]
fn provider_uris() {
    let call = |uri: &str| {
        let steps = "steps: { a: { action: Call, call: { with: { path: / }, provider: 'URI' }, next: b }, b: { action: Return } }";
        refused(&root(&steps.replace("URI", uri)))
    };
    insta::assert_snapshot!(call("http"), @"");
    insta::assert_snapshot!(call("mwl:provider.middleware/mwl/retry/v1"), @"");
    insta::assert_snapshot!(call("mwl:provider.call/acme/htpp/v1"), @"");
    insta::assert_snapshot!(call("mwl:provider.call/example/http/v1"), @"");
    insta::assert_snapshot!(call("mwl:provider.call/example/container/v1"), @"");
    insta::assert_snapshot!(refused(&root("middleware: [{ provider: 'mwl:provider.middleware/acme/cache/v1' }, { provider: 'mwl:provider.call/mwl/mock/v1' }, {}]\nsteps: { a: { action: Return } }")), @"");
}

#[test]
fn matchers() {
    insta::assert_snapshot!(refused(&root(r#"
steps:
  a:
    action: Call
    call: { flow: { entrypoint: x, steps: { x: { action: Return } } } }
    next: b
    catch:
      - { next: b }
      - { match: {}, next: b }
      - { match: { codes: [], types: [] }, next: b }
      - { match: { codes: [A.*.B, 3] }, next: b }
      - { match: { types: [success, timeout] }, next: b }
      - { match: { retryable: yes }, next: b }
      - { match: { retryable: "{{ true }}" }, next: b }
      - { match: { code: [A.B] }, next: b }
      - { match: { codes: ["*"] } }
  b: { action: Return }
"#)), @"");
}

#[test]
fn middleware() {
    insta::assert_snapshot!(refused(&root(r#"
middleware:
  provider: mwl:provider.middleware/mwl/retry/v1
steps: { a: { action: Return } }
"#)), @"");
    insta::assert_snapshot!(refused(&root(r#"
middleware:
  - provider: mwl:provider.middleware/mwl/loop/v1
  - { provider: mwl:provider.middleware/mwl/loop/v1, onSuccess: { when: true } }
  - { provider: mwl:provider.middleware/mwl/timeout/v1, onEntry: { with: { duration: PT1S }, value: 1 }, onFailuer: {} }
  - { provider: mwl:provider.middleware/mwl/timeout/v1, onEntry: { with: { duration: PT1S }, when: "no" } }
  - { provider: mwl:provider.middleware/mwl/timeout/v1, onEntry: { with: { duration: PT1S }, when: "vars.x" }, onFailure: { type: success } }
steps: { a: { action: Return } }
"#)), @"");
}

#[test]
fn structural_parameters() {
    insta::assert_snapshot!(refused(&root(r#"
middleware:
  - { provider: mwl:provider.middleware/mwl/finally/v1, onAlways: { with: "{{ vars.w }}" } }
  - { provider: mwl:provider.middleware/mwl/finally/v1, onAlways: { with: { call: { flow: Nowhere }, middleware: [{ provider: x }] } } }
  - { provider: mwl:provider.middleware/mwl/finally/v1, onAlways: { with: { call: "{{ vars.c }}" } } }
steps: { a: { action: Return } }
"#)), @"");
    insta::assert_snapshot!(load_only(&root(r#"
middleware:
  - provider: mwl:provider.middleware/mwl/finally/v1
  - { provider: mwl:provider.middleware/mwl/finally/v1, onAlways: { with: { call: { flow: { entrypoint: x, steps: { x: { action: Return } } } }, when: 1 } } }
steps: { a: { action: Return } }
"#)), @"");
}

#[test]
fn gathers() {
    insta::assert_snapshot!(refused(&root(r#"
steps:
  a: { action: Gather, next: b }
  b: { action: Gather, over: [1], next: c }
  c: { action: Gather, over: [1], call: { flow: F }, calls: [{ flow: F }], next: d }
  d: { action: Gather, calls: [], next: e }
  e: { action: Gather, calls: [{ flow: F }], concurrency: 0, completion: { wait: "{{ true }}" }, next: f }
  f: { action: Gather, calls: [{ flow: F }], concurrency: "{{ 1 }}", middleware: [], next: g }
  g: { action: Return }
flows: { F: { entrypoint: x, steps: { x: { action: Return } } } }
"#)), @"");
    insta::assert_snapshot!(load_only(&root(r#"
steps:
  a: { action: Gather, over: 3, call: { flow: F }, completion: { successes: 1.5 }, next: b }
  b: { action: Return }
flows: { F: { entrypoint: x, steps: { x: { action: Return } } } }
"#)), @"");
}

#[test]
fn matches() {
    insta::assert_snapshot!(refused(&root(r#"
steps:
  a: { action: Match }
  b: { action: Match, cases: [{ next: a }, { when: 1, next: a }, { when: "{{ true }}" }], default: { when: true, next: a }, output: 1 }
"#)), @"");
}

#[test]
fn sleeps() {
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Sleep, next: b }, b: { action: Sleep, for: PT1S, until: '2030-01-01T00:00:00Z', next: a } }")), @"");
    insta::assert_snapshot!(load_only(&root("steps: { a: { action: Sleep, for: 30s, next: b }, b: { action: Sleep, until: 5, next: a } }")), @"");
}

#[test]
fn raises() {
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Raise, result: { type: success, cod: A.B } } }")), @"");
    insta::assert_snapshot!(load_only(&root("steps: { a: { action: Raise, result: { type: 1, code: 2, message: {}, retryable: yes, previous: x } } }")), @"");
}

#[test]
fn bindings_out_of_scope() {
    insta::assert_snapshot!(refused(&root(r#"
middleware:
  - provider: mwl:provider.middleware/mwl/timeout/v1
    onEntry: { with: { duration: "{{ step.input }}" } }
steps:
  a:
    action: Call
    input: "{{ call.input }}"
    call:
      provider: mwl:provider.call/acme/http/v1
      with: { path: "{{ provider.result }}" }
      onSuccess: { value: "{{ flow.result }}" }
    output: "{{ middleware.result }}"
    next: b
  b: { action: Return, value: "{{ match.input }}" }
"#)), @"");
}

#[test]
fn members_that_cannot_be_there() {
    insta::assert_snapshot!(load_only(&root(r#"
middleware:
  - provider: mwl:provider.middleware/mwl/retry/v1
    onEntry:
      with: { policies: [{ match: { codes: ["*"] }, attempts: 2, backoff: { initial: PT1S } }] }
      output: "{{ middleware.result.value }}"
    onFailure: { assign: { n: "{{ middleware.metadata.attempts }}" } }
steps:
  a:
    action: Call
    input: "{{ step.result }}"
    call:
      provider: mwl:provider.call/acme/http/v1
      input: "{{ call.result }}"
      with: { path: "{{ call.index }}" }
    output: "{{ step.results }}"
    next: b
  b: { action: Return, value: "{{ step.inptu + frame.vars.x }}" }
"#)), @"");
}

#[test]
fn expressions_that_do_not_compile() {
    insta::assert_snapshot!(refused(&root(r#"
steps:
  a: { action: Return, value: { b: ["{{ 1 + }}", "{{ nothing }}"] } }
"#)), @"");
    // The column is exact behind escapes.
    let json = r#"{"$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": "a",
  "steps": {"a": {"action": "Return", "value": "{{ \"é\" + nothing }}"}}}"#;
    insta::assert_snapshot!(refused(json), @"");
}

#[test]
fn literal_arguments() {
    insta::assert_snapshot!(load_only(&root(r#"
parameters: { type: object, properties: { tries: { type: integer } } }
flows:
  F:
    parameters: { type: object, properties: { tries: { type: integer } }, required: [tries] }
    entrypoint: x
    steps: { x: { action: Return } }
steps:
  a:
    action: Call
    middleware:
      - provider: mwl:provider.middleware/mwl/timeout/v1
      - { provider: mwl:provider.middleware/mwl/timeout/v1, onEntry: { with: { duration: 30s } }, onSuccess: { with: { x: 1 } } }
      - { provider: mwl:provider.middleware/mwl/retry/v1, onEntry: { with: { policies: [{ match: { codes: [A.*.B] }, attempts: 2, backoff: { initial: PT1S } }] } } }
    call: { provider: mwl:provider.call/acme/http/v1, with: { pathh: /, retries: many } }
    next: b
  b: { action: Call, call: { flow: F }, next: c }
  c: { action: Call, call: { flow: F, with: { tries: x } }, next: d }
  d: { action: Call, call: { flow: F, with: { trise: "{{ vars.tries }}" } }, next: e }
  e: { action: Call, call: { flow: F, with: 3 }, next: f }
  f: { action: Return }
"#)), @"");
    // What is never looked at is not.
    assert_eq!(
        warned(&root(
            r#"
middleware: [{ provider: mwl:provider.middleware/mwl/timeout/v1, onEntry: { when: false } }]
steps: { a: { action: Return } }
"#
        )),
        ""
    );
}
