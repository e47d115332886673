//! Literal arguments, checked against parameters before anything runs.

use super::super::*;
use super::load_only;

#[test]
fn literal_arguments_of_middleware() {
    insta::assert_snapshot!(load_only(&root(r"
steps:
  a:
    action: Call
    middleware:
      - provider: mwl:provider.middleware/mwl/timeout/v1
      - { provider: mwl:provider.middleware/mwl/timeout/v1, onEntry: { with: { duration: 30s } }, onSuccess: { with: { x: 1 } } }
      - { provider: mwl:provider.middleware/mwl/retry/v1, onEntry: { with: { policies: [{ match: { codes: [A.*.B] }, attempts: 2, backoff: { initial: PT1S } }] } } }
    call: { provider: mwl:provider.call/acme/http/v1, with: { path: / } }
    next: b
  b: { action: Return }
")), @r#"
    error[invalid-with]: the parameter `duration` is missing
     --> f:8:19 `mwl:provider.middleware/mwl/timeout/v1`
    error[invalid-with]: "30s" is not a duration, wanted ISO 8601 such as "PT30S"
     --> f:9:90 `30s`
      = help: write `PT30S`
    error[invalid-with]: `x` is not a parameter
     --> f:9:120 `x`
      = help: it takes no arguments; remove it
    error[invalid-pattern]: `A.*.B` is not a code pattern: `*` may stand only alone or as the last segment; write `Prefix.Code`, `Prefix.*` or `*`
     --> f:10:108 `A.*.B`
    "#);
    // A `with` that is never used is not checked.
    insta::assert_snapshot!(warned(&root(r"
middleware: [{ provider: mwl:provider.middleware/mwl/timeout/v1, onEntry: { when: false } }]
steps: { a: { action: Return } }
")), @"");
}

#[test]
fn literal_arguments_of_calls() {
    insta::assert_snapshot!(load_only(&root(r#"
flows:
  F:
    parameters: { type: object, properties: { tries: { type: integer } }, required: [tries] }
    entrypoint: x
    steps: { x: { action: Return } }
steps:
  a: { action: Call, call: { provider: mwl:provider.call/acme/http/v1, with: { pathh: /, retries: many } }, next: b }
  b: { action: Call, call: { flow: F }, next: c }
  c: { action: Call, call: { flow: F, with: { tries: x } }, next: d }
  d: { action: Call, call: { flow: F, with: { trise: "{{ vars.tries }}" } }, next: e }
  e: { action: Call, call: { flow: F, with: 3 }, next: f }
  f: { action: Call, call: { provider: mwl:provider.call/acme/http/v1, with: { path: /, retries: many } }, next: g }
  g: { action: Return }
"#)), @r#"
    error[invalid-with]: `pathh` is not a parameter
     --> f:10:80 `pathh`
      = help: did you mean `path`?
    error[invalid-with]: "many" is not of type "integer"
     --> f:10:99 `many`
      = help: write a whole number
    error[invalid-with]: the parameter `tries` is missing
     --> f:11:36 `F`
    error[invalid-with]: "x" is not of type "integer"
     --> f:12:54 `x`
      = help: write a whole number
    error[invalid-with]: `trise` is not a parameter
     --> f:13:47 `trise`
      = help: did you mean `tries`?
    error[wrong-type]: `with` must be an object or an expression; this is 3
     --> f:14:45 `3`
    error[invalid-with]: "many" is not of type "integer"
     --> f:15:98 `many`
      = help: write a whole number
    "#);
}

#[test]
fn literal_parts_of_computed_arguments() {
    insta::assert_snapshot!(load_only(&root(r#"
middleware:
  - provider: mwl:provider.middleware/mwl/retry/v1
    onEntry:
      with:
        policies:
          - match: { codes: ["*"] }
            attempts: "{{ vars.n }}"
            backoff: { initial: 1s }
          - match: { codes: ["*"], retryable: "{{ vars.r }}", type: [error] }
            attempts: 0
steps:
  a:
    action: Call
    call:
      provider: mwl:provider.call/acme/http/v1
      with: { path: "{{ vars.path }}", retries: many }
    next: b
  b: { action: Return }
"#)), @r#"
    error[invalid-with]: "1s" is not a duration, wanted ISO 8601 such as "PT30S"
     --> f:11:33 `1s`
      = help: write `PT1S`
    error[invalid-with]: `type` is not a parameter
     --> f:12:63 `type`
      = help: did you mean `types`?
    error[invalid-with]: 0 is less than the minimum of 1
     --> f:13:23 `0`
      = help: write a number from 1
    error[invalid-with]: "many" is not of type "integer"
     --> f:19:49 `many`
      = help: write a whole number
    "#);
}

#[test]
fn a_computed_argument_is_not_checked_before_it_has_a_value() {
    warned(&root(
        r#"
middleware:
  - provider: mwl:provider.middleware/mwl/retry/v1
    onEntry:
      with:
        policies:
          - match: { codes: ["*"] }
            attempts: "{{ vars.n }}"
            backoff: { initial: "{{ vars.first }}", max: PT5S }
steps:
  a: { action: Return }
"#,
    ));
}

/// Each mistake has its own line, and is told what to write.
#[test]
fn every_mistake_of_a_policy_at_once() {
    let said = load_only(&root(
        r#"
middleware:
  - provider: mwl:provider.middleware/mwl/retry/v1
    onEntry:
      with:
        policies:
          - match: { codes: [Provider.Call.Http.Throttled] }
            retries: 3
            backoff: { initial: 10s, max: 2m, jitter: Full, rate: "2" }
          - match: { codes: System.Cancelled, retryable: "yes" }
            attempts: 0
            backof: { initial: PT1S }
steps: { a: { action: Return } }
"#,
    ));
    for (line, message, help) in [
        (10, "`retries` is not a parameter", "did you mean `attempts`?"),
        (11, "\"10s\" is not a duration", "write `PT10S`"),
        (11, "\"2m\" is not a duration", "write `PT2M`"),
        (11, "\"Full\" is not one of \"none\", \"full\"", "did you mean `full`?"),
        (11, "\"2\" is not of type \"number\"", "write 2, without quotes"),
        (
            12,
            "\"System.Cancelled\" is not of type \"array\"",
            "write a list: `[\"System.Cancelled\"]`",
        ),
        (12, "\"yes\" is not of type \"boolean\"", ""),
        (13, "0 is less than the minimum of 1", ""),
        (14, "`backof` is not a parameter", "did you mean `backoff`?"),
    ] {
        let told = said.split("error[").find(|told| told.contains(message));
        let told = told.unwrap_or_else(|| panic!("{message} is not told:\n{said}"));
        assert!(told.contains(&format!("--> f:{line}:")) && told.contains(help), "{told}");
    }
    assert_eq!(said.matches("error[").count(), 9, "{said}");
}
