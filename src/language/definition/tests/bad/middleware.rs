//! Entries and phase blocks.

use super::super::*;
use super::load_only;

#[test]
fn middleware() {
    insta::assert_snapshot!(refused(&root(r"
middleware:
  provider: mwl:provider.middleware/mwl/retry/v1
steps: { a: { action: Return } }
")), @"
    error[wrong-type]: `middleware` must be an array; this is an object
     --> f:5:3 `provider: mwl:provider.middleware/mwl/retry/v1`
    ");
    insta::assert_snapshot!(refused(&root(r#"
middleware:
  - provider: mwl:provider.middleware/mwl/loop/v1
  - { provider: mwl:provider.middleware/mwl/loop/v1, onSuccess: { when: true } }
  - { provider: mwl:provider.middleware/mwl/timeout/v1, onEntry: { with: { duration: PT1S }, value: 1 }, onFailuer: {} }
  - { provider: mwl:provider.middleware/mwl/timeout/v1, onEntry: { with: { duration: PT1S }, when: "no" } }
  - { provider: mwl:provider.middleware/mwl/timeout/v1, onEntry: { with: { duration: PT1S }, when: "vars.x" }, onFailure: { type: success } }
steps: { a: { action: Return } }
"#)), @r#"
    error[endless-loop]: a Loop without `onSuccess.when` never ends
     --> f:5:5 `provider: mwl:provider.middleware/mwl/loop/v1`
      = help: write onSuccess: { "when": "{{ … }}" }: the loop goes on while it is true
    warning[endless-loop]: a Loop whose `onSuccess.when` is always true ends only by a failure or a bound
     --> f:6:73 `true`
      = help: write onSuccess: { "when": "{{ … }}" }: the loop goes on while it is true
    error[unknown-field]: `value` is not a field of an `onEntry` block
     --> f:7:94 `value`
      = help: its fields are `when`, `with`, `assign`, `output`
    error[unknown-field]: `onFailuer` is not a field of a middleware entry
     --> f:7:106 `onFailuer`
      = help: did you mean `onFailure`?
    error[wrong-type]: `when` must be `true`, `false` or an expression; this is a string
     --> f:8:100 `"no"`
      = help: `no` is a string here; write `false`
    error[wrong-type]: `when` must be `true`, `false` or an expression; this is a string
     --> f:9:100 `"vars.x"`
      = help: an expression stands between `{{` and `}}`
    error[success-type]: `type` must be a non-success type: a failure cannot become a success
     --> f:9:131 `success`
    "#);
}

#[test]
fn structural_parameters() {
    insta::assert_snapshot!(refused(&root(r#"
middleware:
  - { provider: mwl:provider.middleware/mwl/finally/v1, onAlways: { with: "{{ vars.w }}" } }
  - { provider: mwl:provider.middleware/mwl/finally/v1, onAlways: { with: { call: { flow: Nowhere }, middleware: [{ provider: x }] } } }
  - { provider: mwl:provider.middleware/mwl/finally/v1, onAlways: { with: { call: "{{ vars.c }}" } } }
steps: { a: { action: Return } }
"#)), @r#"
    error[expression-in-structure]: this `with` cannot be one expression: `call`, `middleware` are definitions
     --> f:5:75 `"{{ vars.w }}"`
    error[unknown-flow]: no Flow in scope is named `Nowhere`
     --> f:6:91 `Nowhere`
      = help: declare it under `flows`
    error[invalid-uri]: `x` is not a provider URI: it does not start with `mwl:`; write `mwl:provider.call/NAMESPACE/NAME` or `mwl:provider.middleware/NAMESPACE/NAME`
     --> f:6:127 `x`
    error[wrong-type]: a call must be an object; this is a string
     --> f:7:83 `"{{ vars.c }}"`
    "#);
    insta::assert_snapshot!(load_only(&root(r"
middleware:
  - provider: mwl:provider.middleware/mwl/finally/v1
  - { provider: mwl:provider.middleware/mwl/finally/v1, onAlways: { with: { call: { flow: { entrypoint: x, steps: { x: { action: Return } } } }, when: 1 } } }
steps: { a: { action: Return } }
")), @"
    error[invalid-with]: the parameter `call` is missing
     --> f:5:15 `mwl:provider.middleware/mwl/finally/v1`
    error[invalid-with]: `when` is not a parameter
     --> f:6:146 `when`
      = help: there is `call`, `middleware`
    ");
}

/// What people write who have seen other proxies' files.
#[test]
fn short_forms() {
    let refused = |entry: &str| {
        refused(&root(&format!("middleware: [{entry}]\nsteps: {{ a: {{ action: Return }} }}")))
    };
    for (entry, help) in [
        ("{ provider: retry }", "write `mwl:provider.middleware/mwl/retry/v1`"),
        ("{ provider: Timeout }", "write `mwl:provider.middleware/mwl/timeout/v1`"),
        (
            "{ retry: { attempts: 3 } }",
            "write `provider: mwl:provider.middleware/mwl/retry/v1`, and its arguments in a phase: `onEntry: { with: … }`",
        ),
        (
            "{ provider: mwl:provider.middleware/mwl/timeout/v1, with: { duration: PT1S } }",
            "arguments belong to a phase: write `onEntry: { with: … }`",
        ),
    ] {
        let told = refused(entry);
        assert!(told.contains(&format!("= help: {help}")), "{told}");
    }
    // No name of one: what the fields are.
    assert!(refused("{ rertyy: 3 }").contains("its fields are"));
}
