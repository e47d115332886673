//! Calls, their targets, and the matchers of their failures.

use super::super::*;
use super::load_only;

#[test]
fn calls() {
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Call, call: {}, next: b }, b: { action: Call, call: { provider: 'mwl:provider.call/acme/http/v1', flow: F }, next: a } }")), @"
    error[call-target]: a call names no target: write `provider` or `flow`
     --> f:3:35 `{}`
    error[call-target]: a call names both `provider` and `flow`; it has exactly one target
     --> f:3:75 `{ provider: 'mwl:provider.call/acme/http/v1', flow: F }`
    ");
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Call, next: b }, b: { action: Return } }")), @"
    error[missing-field]: a `Call` Step needs `call`
     --> f:3:13 `{ action: Call, next: b }`
    ");
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Call, call: { flow: 3, onFailure: { value: 1 }, middleware: [] }, next: b }, b: { action: Return } }")), @"
    error[wrong-type]: `flow` must be a Flow's name or a Flow object; this is a number
     --> f:3:43 `3`
    error[unknown-field]: `value` is not a field of an `onFailure` arm
     --> f:3:59 `value`
      = help: a failure rises as it is; reshape it in a middleware's `onFailure`
    error[unknown-field]: `middleware` is not a field of a call
     --> f:3:71 `middleware`
      = help: `middleware` stands on a `Call` Step or on a Flow
    ");
}

#[test]
fn provider_uris() {
    let call = |uri: &str| {
        let steps = "steps: { a: { action: Call, call: { with: { path: / }, provider: 'URI' }, next: b }, b: { action: Return } }";
        refused(&root(&steps.replace("URI", uri)))
    };
    insta::assert_snapshot!(call("http"), @"
    error[invalid-uri]: `http` is not a provider URI: it does not start with `mwl:`; write `mwl:provider.call/NAMESPACE/NAME` or `mwl:provider.middleware/NAMESPACE/NAME`
     --> f:3:66 `'http'`
      = help: write `mwl:provider.call/acme/http/v1`
    ");
    insta::assert_snapshot!(call("mwl:provider.middleware/mwl/retry/v1"), @"
    error[wrong-provider-kind]: `mwl:provider.middleware/mwl/retry/v1` is a middleware; a call names a `provider.call`
     --> f:3:66 `'mwl:provider.middleware/mwl/retry/v1'`
    ");
    insta::assert_snapshot!(call("mwl:provider.call/acme/htpp/v1"), @"
    error[unknown-provider]: the catalog has no `mwl:provider.call/acme/htpp/v1`
     --> f:3:66 `'mwl:provider.call/acme/htpp/v1'`
      = help: did you mean `mwl:provider.call/acme/http/v1`?
    ");
    insta::assert_snapshot!(call("mwl:provider.call/example/http/v1"), @"
    error[reserved-namespace]: `mwl:provider.call/example/http/v1` names nothing real: `example` is reserved for documentation
     --> f:3:66 `'mwl:provider.call/example/http/v1'`
      = help: use `mwl:provider.call/acme/http/v1`
    ");
    insta::assert_snapshot!(call("mwl:provider.call/example/container/v1"), @"
    error[reserved-namespace]: `mwl:provider.call/example/container/v1` names nothing real: `example` is reserved for documentation
     --> f:3:66 `'mwl:provider.call/example/container/v1'`
      = help: there is `mwl:provider.call/acme/http/v1`, `mwl:provider.call/mwl/mock/v1`
    ");
    insta::assert_snapshot!(refused(&root("middleware: [{ provider: 'mwl:provider.middleware/acme/cache/v1' }, { provider: 'mwl:provider.call/mwl/mock/v1' }, {}]\nsteps: { a: { action: Return } }")), @"
    error[wrong-attachment]: `mwl:provider.middleware/acme/cache/v1` does not attach to a Flow
     --> f:3:26 `'mwl:provider.middleware/acme/cache/v1'`
      = help: it attaches to Steps only
    error[wrong-provider-kind]: `mwl:provider.call/mwl/mock/v1` is a call provider; a middleware entry names a `provider.middleware`
     --> f:3:81 `'mwl:provider.call/mwl/mock/v1'`
    error[missing-field]: a middleware entry needs `provider`
     --> f:3:116 `{}`
    ");
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
"#)), @r#"
    error[missing-field]: a `catch` clause needs `match`
     --> f:10:9 `{ next: b }`
    error[invalid-matcher]: a failure matcher needs at least one of `codes`, `types` and `retryable`
     --> f:11:18 `{}`
      = help: to match every failure write { "codes": ["*"] }
    error[invalid-matcher]: a matcher's `codes` must not be empty: it would match nothing
     --> f:12:27 `[]`
    error[invalid-matcher]: a matcher's `types` must not be empty: it would match nothing
     --> f:12:38 `[]`
    error[invalid-pattern]: `A.*.B` is not a code pattern: `*` may stand only alone or as the last segment; write `Prefix.Code`, `Prefix.*` or `*`
     --> f:13:28 `A.*.B`
    error[wrong-type]: a code pattern must be a string; this is a number
     --> f:13:35 `3`
    error[invalid-matcher]: `success` is no failure type: no success reaches a matcher; remove it
     --> f:14:28 `success`
    error[wrong-type]: a matcher's `retryable` must be `true` or `false`; this is a string
     --> f:15:31 `yes`
      = help: `yes` is a string here; write `true`
    error[wrong-type]: a matcher's `retryable` must be `true` or `false`; this is an expression
     --> f:16:31 `"{{ true }}"`
    error[unknown-field]: `code` is not a field of a failure matcher
     --> f:17:20 `code`
      = help: did you mean `codes`?
    error[no-exit-path]: a `catch` clause has no way out: `next` is missing
     --> f:18:9 `{ match: { codes: ["*"] } }`
      = help: name its successor, or end the Flow with a `Return` or `Raise` Step
    "#);
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
"#)), @r#"
    error[gather-form]: a Gather has exactly one of its forms: `over` with `call`, or `calls`
     --> f:5:6 `{ action: Gather, next: b }`
      = help: it has none
    error[gather-form]: a Gather has exactly one of its forms: `over` with `call`, or `calls`
     --> f:6:6 `{ action: Gather, over: [1], next: c }`
      = help: it has `over`
    error[gather-form]: a Gather has exactly one of its forms: `over` with `call`, or `calls`
     --> f:7:6 `{ action: Gather, over: [1], call: { flow: F }, calls: [{ flow: F }], next: d }`
      = help: it has `over`, `call`, `calls`
    error[empty-calls]: `calls` is empty: the Gather would dispatch nothing
     --> f:8:31 `[]`
    error[invalid-concurrency]: `concurrency` must be a whole number from 1, or null for no limit; this is 0
     --> f:9:59 `0`
    error[missing-field]: `completion` needs `successes`
     --> f:9:74 `{ wait: "{{ true }}" }`
    error[wrong-type]: `wait` must be `true` or `false`; this is an expression
     --> f:9:82 `"{{ true }}"`
    error[invalid-concurrency]: `concurrency` must be a whole number from 1, or null for no limit; this is "{{ 1 }}"
     --> f:10:59 `"{{ 1 }}"`
    error[unknown-field]: `middleware` is not a field of a `Gather` Step
     --> f:10:70 `middleware`
      = help: call a Flow that carries the `middleware`: a dispatch is wrapped inside its own frame
    "#);
    insta::assert_snapshot!(load_only(&root(r"
steps:
  a: { action: Gather, over: 3, call: { flow: F }, completion: { successes: 1.5 }, next: b }
  b: { action: Return }
flows: { F: { entrypoint: x, steps: { x: { action: Return } } } }
")), @"
    error[wrong-type]: `over` must be an array or an expression; this is 3
     --> f:5:30 `3`
    error[wrong-type]: `successes` must be a whole number or an expression; this is 1.5
     --> f:5:77 `1.5`
    ");
}
