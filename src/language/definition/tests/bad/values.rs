//! Values and expressions.

use super::super::*;
use super::load_only;

#[test]
fn matches() {
    insta::assert_snapshot!(refused(&root(r#"
steps:
  a: { action: Match }
  b: { action: Match, cases: [{ next: a }, { when: 1, next: a }, { when: "{{ true }}" }], default: { when: true, next: a }, output: 1 }
"#)), @r#"
    error[missing-field]: a `Match` Step needs `cases`
     --> f:5:6 `{ action: Match }`
    error[missing-field]: a `Match` Step needs `default`
     --> f:5:6 `{ action: Match }`
    error[missing-field]: a clause of a `Match` needs `when`
     --> f:6:31 `{ next: a }`
    error[wrong-type]: `when` must be `true`, `false` or an expression; this is a number
     --> f:6:52 `1`
    error[no-exit-path]: a clause of a `Match` has no way out: `next` is missing
     --> f:6:66 `{ when: "{{ true }}" }`
      = help: name its successor, or end the Flow with a `Return` or `Raise` Step
    error[unknown-field]: `when` is not a field of the `default` clause
     --> f:6:102 `when`
      = help: `default` is what is left; move it to `cases`
    error[unknown-field]: `output` is not a field of a `Match` Step
     --> f:6:125 `output`
      = help: `output` stands on each clause of a `Match`
    "#);
}

#[test]
fn sleeps() {
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Sleep, next: b }, b: { action: Sleep, for: PT1S, until: '2030-01-01T00:00:00Z', next: a } }")), @"
    error[sleep-form]: a Sleep has exactly one of `for` and `until`; this has neither
     --> f:3:13 `{ action: Sleep, next: b }`
    error[sleep-form]: a Sleep has exactly one of `for` and `until`; this has both
     --> f:3:44 `{ action: Sleep, for: PT1S, until: '2030-01-01T00:00:00Z', next: a }`
    ");
    insta::assert_snapshot!(load_only(&root("steps: { a: { action: Sleep, for: 30s, next: b }, b: { action: Sleep, until: 5, next: c }, c: { action: Return } }")), @r#"
    error[invalid-time]: `for` must be an ISO 8601 duration such as "PT30S"; this is `30s`
     --> f:3:35 `30s`
      = help: write `PT30S`
    error[invalid-time]: `until` must be an RFC 3339 timestamp such as "2030-01-15T09:30:00Z"; this is a number
     --> f:3:78 `5`
    "#);
}

#[test]
fn raises() {
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Raise, result: { type: success, cod: A.B } } }")), @"
    error[missing-field]: a `Raise`'s `result` needs `code`
     --> f:3:38 `{ type: success, cod: A.B }`
    error[success-type]: `type` must be a non-success type: a failure cannot become a success
     --> f:3:46 `success`
    error[unknown-field]: `cod` is not a field of a `Raise`'s `result`
     --> f:3:55 `cod`
      = help: did you mean `code`?
    ");
    insta::assert_snapshot!(load_only(&root("steps: { a: { action: Raise, result: { type: 1, code: 2, message: {}, retryable: yes, previous: x } } }")), @"
    error[wrong-type]: `type` must be a string; this is a number
     --> f:3:46 `1`
    error[wrong-type]: `code` must be a string; this is 2
     --> f:3:55 `2`
    error[wrong-type]: `message` must be a string; this is an object
     --> f:3:67 `{}`
    error[wrong-type]: `retryable` must be a boolean or null; this is a string
     --> f:3:82 `yes`
      = help: `yes` is a string here; write `true`
    error[wrong-type]: `previous` must be a failure or null; this is a string
     --> f:3:97 `x`
    ");
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
"#)), @"
    error[invalid-expression]: `step` is not in scope; in scope here: `vars`, `execution`, `frame`, `middleware` and `failure`
     --> f:6:38 `s`
    error[invalid-expression]: `call` is not in scope; in scope here: `vars`, `execution`, `frame`, `step` and `failure`
     --> f:10:16 `c`
    error[invalid-expression]: `provider` is not in scope; in scope here: `vars`, `execution`, `frame`, `step`, `call` and `failure`
     --> f:13:25 `p`
    error[invalid-expression]: `flow` is not in scope; in scope here: `vars`, `execution`, `frame`, `step`, `call`, `provider` and `failure`
     --> f:14:31 `f`
    error[invalid-expression]: `middleware` is not in scope; in scope here: `vars`, `execution`, `frame`, `step` and `failure`
     --> f:15:17 `m`
    error[invalid-expression]: `match` is not in scope; in scope here: `vars`, `execution`, `frame`, `step` and `failure`
     --> f:17:35 `m`
    ");
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
  b: { action: Return, value: "{{ step.inptu + frame.vars.x + step.metadata.entered }}" }
"#)), @"
    error[unreadable-binding]: `middleware.result` cannot be read here: nothing has run yet in `onEntry`; the ascent phases have a result
     --> f:8:19 `m`
    error[unreadable-binding]: `middleware.metadata.attempts` cannot be read here: did you mean `attempt`?
     --> f:9:35 `m`
    error[unreadable-binding]: `step.result` cannot be read here: it is there in a `Call` Step's `output`, `assign` and `catch`
     --> f:13:16 `s`
    error[unreadable-binding]: `call.result` cannot be read here: it is there in the call's arms, `onSuccess` and `onFailure`
     --> f:16:18 `c`
    error[unreadable-binding]: `call.index` cannot be read here: only a call that a `Gather` dispatches has an index
     --> f:17:25 `c`
    error[unreadable-binding]: `step.results` cannot be read here: it is there in a `Gather` Step's `output`, `assign` and `catch`
     --> f:18:17 `s`
    error[unreadable-binding]: `step.inptu` cannot be read here: did you mean `input`?
     --> f:20:35 `s`
    error[unreadable-binding]: `frame.vars` cannot be read here: a frame reads its own variables as `vars`
     --> f:20:48 `f`
    error[unreadable-binding]: `step.metadata.entered` cannot be read here: did you mean `enteredAt`?
     --> f:20:63 `s`
    ");
}

#[test]
fn expressions_that_do_not_compile() {
    insta::assert_snapshot!(refused(&root(r#"
steps:
  a: { action: Return, value: { b: ["{{ 1 + }}", "{{ nothing }}"] } }
"#)), @"
    error[invalid-expression]: the expression ends here, where a value is wanted
     --> f:5:44 ` `
    error[invalid-expression]: `nothing` is unknown; in scope here: `vars`, `execution`, `frame`, `step` and `failure`
     --> f:5:54 `n`
    ");
    // The column is exact after escapes, too.
    let json = r#"{"$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": "a",
  "steps": {"a": {"action": "Return", "value": "{{ \"é\" + nothing }}"}}}"#;
    insta::assert_snapshot!(refused(json), @"
    error[invalid-expression]: `nothing` is unknown; in scope here: `vars`, `execution`, `frame`, `step` and `failure`
     --> f:2:60 `n`
    ");
}

#[test]
fn a_binding_is_pointed_at_where_it_is_read() {
    insta::assert_snapshot!(load_only(&root(r#"
steps:
  a: { action: Return, value: "{{ 'step.result' == step.result ? 1 : 2 }}" }
"#)), @"
    error[unreadable-binding]: `step.result` cannot be read here: it is there in a `Call` Step's `output`, `assign` and `catch`
     --> f:5:52 `s`
    ");
    // Either brace will do: the body is `{` itself.
    let found = refused(&root("steps:\n  a: { action: Return, value: \"{{   {   }}\" }"));
    assert!(["4:37", "4:38"].iter().any(|place| found.contains(place)), "{found}");
}
