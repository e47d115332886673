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
    insta::assert_snapshot!(refused("- a"), @r#"
    error[wrong-type]: the root Flow must be an object; this is an array
     --> f:1:1
      |
    1 | - a
      | ^^^
    "#);
    insta::assert_snapshot!(refused("entrypoint: a\nsteps: { a: { action: Return } }"), @r#"
    error[missing-field]: the root Flow needs `$schema`, which says what it is written in
     --> f:1:1
      |
    1 | entrypoint: a
      | ^^^^^^^^^^^^^
      = help: add "$schema": "https://mwl.dev/v0.1/flow/schema.json"
    "#);
    insta::assert_snapshot!(refused("$schema: https://mwl.dev/v0.2/flow/schema.json\nentrypoint: a\nsteps: { a: { action: Return } }"), @r#"
    error[unknown-schema]: `$schema` is "https://mwl.dev/v0.2/flow/schema.json", which is not read here
     --> f:1:10
      |
    1 | $schema: https://mwl.dev/v0.2/flow/schema.json
      |          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      = help: write "https://mwl.dev/v0.1/flow/schema.json"
    "#);
    insta::assert_snapshot!(refused(&root("stepps: {}\n")), @r#"
    error[missing-field]: the root Flow needs `steps`
     --> f:1:1
      |
    1 | $schema: https://mwl.dev/v0.1/flow/schema.json
      | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

    error[unknown-field]: `stepps` is not a field of the root Flow
     --> f:3:1
      |
    3 | stepps: {}
      | ^^^^^^
      = help: did you mean `steps`?
    "#);
    insta::assert_snapshot!(refused(&root("steps: {}\n")), @r#"
    error[unknown-step]: `entrypoint` names no Step of this Flow: `a`
     --> f:2:13
      |
    2 | entrypoint: a
      |             ^
      = help: the Flow has no Steps; write one, such as { "action": "Return" }
    "#);
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Return } }\ncomment: [1]\n")), @r#"
    error[wrong-type]: `comment` must be a string; this is an array
     --> f:4:10
      |
    4 | comment: [1]
      |          ^^^
    "#);
}

#[test]
fn steps_and_their_fields() {
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Retrun } }")), @r#"
    error[unknown-action]: there is no action `Retrun`
     --> f:3:23
      |
    3 | steps: { a: { action: Retrun } }
      |                       ^^^^^^
      = help: did you mean `Return`?
    "#);
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Wait } }")), @r#"
    error[unknown-action]: there is no action `Wait`
     --> f:3:23
      |
    3 | steps: { a: { action: Wait } }
      |                       ^^^^
      = help: there is `Call`, `Gather`, `Match`, `Pass`, `Sleep`, `Return`, `Raise`
    "#);
    insta::assert_snapshot!(refused(&root("steps: { a: { next: a } }")), @r#"
    error[missing-field]: a Step needs `action`
     --> f:3:13
      |
    3 | steps: { a: { next: a } }
      |             ^^^^^^^^^^^
    "#);
    insta::assert_snapshot!(refused(&root("steps: { a: Return }")), @r#"
    error[wrong-type]: a Step must be an object; this is a string
     --> f:3:13
      |
    3 | steps: { a: Return }
      |             ^^^^^^
    "#);
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Return, output: 1, valeu: 2, next: a } }")), @r#"
    error[unknown-field]: `output` is not a field of a `Return` Step
     --> f:3:31
      |
    3 | steps: { a: { action: Return, output: 1, valeu: 2, next: a } }
      |                               ^^^^^^
      = help: a `Return` shapes its `value`

    error[unknown-field]: `valeu` is not a field of a `Return` Step
     --> f:3:42
      |
    3 | steps: { a: { action: Return, output: 1, valeu: 2, next: a } }
      |                                          ^^^^^
      = help: did you mean `value`?

    error[unknown-field]: `next` is not a field of a `Return` Step
     --> f:3:52
      |
    3 | steps: { a: { action: Return, output: 1, valeu: 2, next: a } }
      |                                                    ^^^^
      = help: a terminal Step has no successor; remove it
    "#);
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Pass, catch: [] } }")), @r#"
    error[no-exit-path]: a `Pass` Step has no way out: `next` is missing
     --> f:3:13
      |
    3 | steps: { a: { action: Pass, catch: [] } }
      |             ^^^^^^^^^^^^^^^^^^^^^^^^^^^
      = help: name its successor, or end the Flow with a `Return` or `Raise` Step

    error[unknown-field]: `catch` is not a field of a `Pass` Step
     --> f:3:29
      |
    3 | steps: { a: { action: Pass, catch: [] } }
      |                             ^^^^^
      = help: `catch` stands on `Call` and `Gather` Steps
    "#);
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Pass, assign: [1], next: a } }")), @r#"
    error[wrong-type]: `assign` must be an object of names and values; this is an array
     --> f:3:37
      |
    3 | steps: { a: { action: Pass, assign: [1], next: a } }
      |                                     ^^^
    "#);
}

#[test]
fn references_to_steps() {
    insta::assert_snapshot!(refused(&root("steps: { b: { action: Return } }")), @r#"
    error[unknown-step]: `entrypoint` names no Step of this Flow: `a`
     --> f:2:13
      |
    2 | entrypoint: a
      |             ^
      = help: did you mean `b`?
    "#);
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Pass, next: deliver }, delivered: { action: Return } }")), @r#"
    error[unknown-step]: `next` names no Step of this Flow: `deliver`
     --> f:3:35
      |
    3 | steps: { a: { action: Pass, next: deliver }, delivered: { action: Return } }
      |                                   ^^^^^^^
      = help: did you mean `delivered`?
    "#);
    // A Step of another graph is out of reach.
    insta::assert_snapshot!(refused(&root("\
flows: { F: { entrypoint: x, steps: { x: { action: Pass, next: a } } } }
steps: { a: { action: Call, call: { flow: F }, next: x } }
")), @r#"
    error[unknown-step]: `next` names no Step of this Flow: `a`
     --> f:3:64
      |
    3 | flows: { F: { entrypoint: x, steps: { x: { action: Pass, next: a } } } }
      |                                                                ^
      = help: did you mean `x`?

    error[unknown-step]: `next` names no Step of this Flow: `x`
     --> f:4:54
      |
    4 | steps: { a: { action: Call, call: { flow: F }, next: x } }
      |                                                      ^
      = help: did you mean `a`?
    "#);
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
"#), @r#"
    error[expression-in-structure]: `entrypoint` cannot be an expression: it is read before anything runs
     --> f:3:13
      |
    3 | entrypoint: "{{ 'a' }}"
      |             ^^^^^^^^^^^

    error[expression-in-structure]: a parameter schema holds no expressions: it is read before anything runs
     --> f:4:57
      |
    4 | parameters: { type: object, properties: { p: { default: "{{ 1 }}" } } }
      |                                                         ^^^^^^^^^

    error[expression-in-structure]: `flow` cannot be an expression: it is read before anything runs
     --> f:6:36
      |
    6 |   a: { action: Call, call: { flow: "{{ vars.f }}" }, next: "{{ 'b' }}", catch: [{ match: { codes: ["{{ 'x' }}"] }, next:
      |                                    ^^^^^^^^^^^^^^

    error[expression-in-structure]: `next` cannot be an expression: it is read before anything runs
     --> f:6:60
      |
    6 |   a: { action: Call, call: { flow: "{{ vars.f }}" }, next: "{{ 'b' }}", catch: [{ match: { codes: ["{{ 'x' }}"] }, next:
      |                                                            ^^^^^^^^^^^

    error[expression-in-structure]: a code pattern cannot be an expression: it is read before anything runs
     --> f:6:100
      |
    6 | vars.f }}" }, next: "{{ 'b' }}", catch: [{ match: { codes: ["{{ 'x' }}"] }, next: b }] }
      |                                                             ^^^^^^^^^^^

    error[expression-in-structure]: `provider` cannot be an expression: it is read before anything runs
     --> f:7:40
      |
    7 |   b: { action: Call, call: { provider: "{{ vars.p }}" }, next: "{{'c'}}" }
      |                                        ^^^^^^^^^^^^^^

    error[expression-in-structure]: `next` cannot be an expression: it is read before anything runs
     --> f:7:64
      |
    7 |   b: { action: Call, call: { provider: "{{ vars.p }}" }, next: "{{'c'}}" }
      |                                                                ^^^^^^^^^

    error[expression-in-structure]: `action` cannot be an expression: it is read before anything runs
     --> f:8:16
      |
    8 |   c: { action: "{{ 'Pass' }}" }
      |                ^^^^^^^^^^^^^^

    error[expression-in-structure]: a Step's name cannot be an expression: it is read before anything runs
     --> f:9:3
      |
    9 |   "{{ d }}": { action: Pass, assign: { "{{ x }}": 1 }, next: a }
      |   ^^^^^^^^^

    error[expression-in-structure]: a variable's name cannot be an expression: it is read before anything runs
     --> f:9:40
      |
    9 |   "{{ d }}": { action: Pass, assign: { "{{ x }}": 1 }, next: a }
      |                                        ^^^^^^^^^

    error[expression-in-structure]: a Flow's name cannot be an expression: it is read before anything runs
      --> f:10:10
       |
    10 | flows: { "{{ f }}": { entrypoint: a, steps: { a: { action: Return } } } }
       |          ^^^^^^^^^
    "#);
}

#[test]
fn flow_names() {
    insta::assert_snapshot!(refused(&root("\
flows: { Charge: { entrypoint: a, steps: { a: { action: Return } } } }
steps: { a: { action: Call, call: { flow: Chagre }, next: b }, b: { action: Return } }
")), @r#"
    error[unknown-flow]: no Flow in scope is named `Chagre`
     --> f:4:43
      |
    4 | steps: { a: { action: Call, call: { flow: Chagre }, next: b }, b: { action: Return } }
      |                                           ^^^^^^
      = help: did you mean `Charge`?
    "#);
    // A name is seen from within, never from outside.
    insta::assert_snapshot!(refused(&root("\
flows:
  Outer:
    flows: { Inner: { entrypoint: a, steps: { a: { action: Return } } } }
    entrypoint: a
    steps: { a: { action: Return } }
steps: { a: { action: Call, call: { flow: Inner }, next: b }, b: { action: Return } }
")), @r#"
    error[unknown-flow]: no Flow in scope is named `Inner`
     --> f:8:43
      |
    8 | steps: { a: { action: Call, call: { flow: Inner }, next: b }, b: { action: Return } }
      |                                           ^^^^^
      = help: there is `Outer`
    "#);
    insta::assert_snapshot!(refused(&root("\
steps: { a: { action: Call, call: { flow: { $schema: x, entrypoint: a, steps: { a: { action: Return } } } }, next: b }, b: { action: Return } }
")), @r#"
    error[unknown-field]: `$schema` is not a field of an inline Flow
     --> f:3:45
      |
    3 | steps: { a: { action: Call, call: { flow: { $schema: x, entrypoint: a, steps: { a: { action: Return } } } }, next: b },
      |                                             ^^^^^^^
      = help: only the root Flow carries `$schema`; remove it
    "#);
}

#[test]
fn flow_cycles() {
    insta::assert_snapshot!(refused(&root("\
flows:
  A: { entrypoint: x, steps: { x: { action: Call, call: { flow: B }, next: y }, y: { action: Return } } }
  B: { entrypoint: x, steps: { x: { action: Call, call: { flow: A }, next: y }, y: { action: Return } } }
  C: { entrypoint: x, steps: { x: { action: Gather, calls: [{ flow: C }], next: y }, y: { action: Return } } }
steps: { a: { action: Return } }
")), @r#"
    error[flow-cycle]: this call closes a cycle: a Flow would run within itself
     --> f:5:65
      |
    5 |   B: { entrypoint: x, steps: { x: { action: Call, call: { flow: A }, next: y }, y: { action: Return } } }
      |                                                                 ^
     ::: f:4:65
      |
    4 |   A: { entrypoint: x, steps: { x: { action: Call, call: { flow: B }, next: y }, y: { action: Return } } }
      |                                                                 ^ by way of this call
      = help: repeat by routing `next` back within one Flow, or with the Loop middleware

    error[flow-cycle]: this call closes a cycle: a Flow would run within itself
     --> f:6:69
      |
    6 |   C: { entrypoint: x, steps: { x: { action: Gather, calls: [{ flow: C }], next: y }, y: { action: Return } } }
      |                                                                     ^
      = help: repeat by routing `next` back within one Flow, or with the Loop middleware
    "#);
    // Through an inline Flow that stands within the named one.
    insta::assert_snapshot!(refused(&root("\
flows:
  A:
    entrypoint: x
    steps:
      x: { action: Call, call: { flow: { entrypoint: i, steps: { i: { action: Call, call: { flow: A }, next: j }, j: { action: Return } } } }, next: y }
      y: { action: Return }
steps: { a: { action: Return } }
")), @r#"
    error[flow-cycle]: this call closes a cycle: a Flow would run within itself
     --> f:7:99
      |
    7 |  { entrypoint: i, steps: { i: { action: Call, call: { flow: A }, next: j }, j: { action: Return } } } }, next: y }
      |                                                             ^
     ::: f:7:40
      |
    7 |       x: { action: Call, call: { flow: { entrypoint: i, steps: { i: { action: Call, call: { flow: A }, next: j }, j: { a
      |                                        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ by way of this call
      = help: repeat by routing `next` back within one Flow, or with the Loop middleware
    "#);
}

#[test]
fn parameter_schemas() {
    insta::assert_snapshot!(refused(&root("parameters: { properties: {} }\nsteps: { a: { action: Return } }")), @r#"
    error[invalid-parameters]: a parameter schema must have `"type": "object"` at the top level: add it
     --> f:3:13
      |
    3 | parameters: { properties: {} }
      |             ^^^^^^^^^^^^^^^^^^
    "#);
    insta::assert_snapshot!(refused(&root("parameters: { type: object, properties: { p: { type: text } } }\nsteps: { a: { action: Return } }")), @r#"
    error[invalid-parameters]: the parameter schema is not valid at /properties/p/type: "text" is not valid under any of the schemas listed in the 'anyOf' keyword
     --> f:3:13
      |
    3 | parameters: { type: object, properties: { p: { type: text } } }
      |             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    "#);
}

#[test]
fn calls() {
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Call, call: {}, next: b }, b: { action: Call, call: { provider: 'mwl:provider.call/acme/http/v1', flow: F }, next: a } }")), @r#"
    error[call-target]: a call names no target: write `provider` or `flow`
     --> f:3:35
      |
    3 | steps: { a: { action: Call, call: {}, next: b }, b: { action: Call, call: { provider: 'mwl:provider.call/acme/http/v1',
      |                                   ^^

    error[call-target]: a call names both `provider` and `flow`; it has exactly one target
     --> f:3:75
      |
    3 | action: Call, call: {}, next: b }, b: { action: Call, call: { provider: 'mwl:provider.call/acme/http/v1', flow: F }, nex
      |                                                             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    "#);
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Call, next: b }, b: { action: Return } }")), @r#"
    error[missing-field]: a `Call` Step needs `call`
     --> f:3:13
      |
    3 | steps: { a: { action: Call, next: b }, b: { action: Return } }
      |             ^^^^^^^^^^^^^^^^^^^^^^^^^
    "#);
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Call, call: { flow: 3, onFailure: { value: 1 }, middleware: [] }, next: b }, b: { action: Return } }")), @r#"
    error[wrong-type]: `flow` must be a Flow's name or a Flow object; this is a number
     --> f:3:43
      |
    3 | steps: { a: { action: Call, call: { flow: 3, onFailure: { value: 1 }, middleware: [] }, next: b }, b: { action: Return }
      |                                           ^

    error[unknown-field]: `value` is not a field of an `onFailure` arm
     --> f:3:59
      |
    3 | steps: { a: { action: Call, call: { flow: 3, onFailure: { value: 1 }, middleware: [] }, next: b }, b: { action: Return }
      |                                                           ^^^^^
      = help: a failure rises as it is; reshape it in a middleware's `onFailure`

    error[unknown-field]: `middleware` is not a field of a call
     --> f:3:71
      |
    3 | : { action: Call, call: { flow: 3, onFailure: { value: 1 }, middleware: [] }, next: b }, b: { action: Return } }
      |                                                             ^^^^^^^^^^
      = help: `middleware` stands on a `Call` Step or on a Flow
    "#);
}

#[test]
fn provider_uris() {
    let call = |uri: &str| {
        let steps = "steps: { a: { action: Call, call: { with: { path: / }, provider: 'URI' }, next: b }, b: { action: Return } }";
        refused(&root(&steps.replace("URI", uri)))
    };
    insta::assert_snapshot!(call("http"), @r#"
    error[invalid-uri]: `http` is not a provider URI: it does not start with `mwl:`; write `mwl:provider.call/NAMESPACE/NAME` or `mwl:provider.middleware/NAMESPACE/NAME`
     --> f:3:66
      |
    3 | steps: { a: { action: Call, call: { with: { path: / }, provider: 'http' }, next: b }, b: { action: Return } }
      |                                                                  ^^^^^^
    "#);
    insta::assert_snapshot!(call("mwl:provider.middleware/mwl/retry/v1"), @r#"
    error[wrong-provider-kind]: `mwl:provider.middleware/mwl/retry/v1` is a middleware; a call names a `provider.call`
     --> f:3:66
      |
    3 | : { a: { action: Call, call: { with: { path: / }, provider: 'mwl:provider.middleware/mwl/retry/v1' }, next: b }, b: { ac
      |                                                             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    "#);
    insta::assert_snapshot!(call("mwl:provider.call/acme/htpp/v1"), @r#"
    error[unknown-provider]: the catalog has no `mwl:provider.call/acme/htpp/v1`
     --> f:3:66
      |
    3 | : { a: { action: Call, call: { with: { path: / }, provider: 'mwl:provider.call/acme/htpp/v1' }, next: b }, b: { action:
      |                                                             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      = help: did you mean `mwl:provider.call/acme/http/v1`?
    "#);
    insta::assert_snapshot!(call("mwl:provider.call/example/http/v1"), @r#"
    error[reserved-namespace]: `mwl:provider.call/example/http/v1` names nothing real: `example` is reserved for documentation
     --> f:3:66
      |
    3 | : { a: { action: Call, call: { with: { path: / }, provider: 'mwl:provider.call/example/http/v1' }, next: b }, b: { actio
      |                                                             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      = help: use `mwl:provider.call/acme/http/v1`
    "#);
    insta::assert_snapshot!(call("mwl:provider.call/example/container/v1"), @r#"
    error[reserved-namespace]: `mwl:provider.call/example/container/v1` names nothing real: `example` is reserved for documentation
     --> f:3:66
      |
    3 | : { a: { action: Call, call: { with: { path: / }, provider: 'mwl:provider.call/example/container/v1' }, next: b }, b: {
      |                                                             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      = help: there is `mwl:provider.call/acme/http/v1`, `mwl:provider.call/mwl/mock/v1`
    "#);
    insta::assert_snapshot!(refused(&root("middleware: [{ provider: 'mwl:provider.middleware/acme/cache/v1' }, { provider: 'mwl:provider.call/mwl/mock/v1' }, {}]\nsteps: { a: { action: Return } }")), @r#"
    error[wrong-attachment]: `mwl:provider.middleware/acme/cache/v1` does not attach to a Flow
     --> f:3:26
      |
    3 | middleware: [{ provider: 'mwl:provider.middleware/acme/cache/v1' }, { provider: 'mwl:provider.call/mwl/mock/v1' }, {}]
      |                          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      = help: it attaches to Steps only

    error[wrong-provider-kind]: `mwl:provider.call/mwl/mock/v1` is a call provider; a middleware entry names a `provider.middleware`
     --> f:3:81
      |
    3 | middleware: [{ provider: 'mwl:provider.middleware/acme/cache/v1' }, { provider: 'mwl:provider.call/mwl/mock/v1' }, {}]
      |                                                                                 ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

    error[missing-field]: a middleware entry needs `provider`
     --> f:3:116
      |
    3 | middleware: [{ provider: 'mwl:provider.middleware/acme/cache/v1' }, { provider: 'mwl:provider.call/mwl/mock/v1' }, {}]
      |                                                                                                                    ^^
    "#);
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
      --> f:10:9
       |
    10 |       - { next: b }
       |         ^^^^^^^^^^^

    error[invalid-matcher]: a failure matcher needs at least one of `codes`, `types` and `retryable`
      --> f:11:18
       |
    11 |       - { match: {}, next: b }
       |                  ^^
      = help: to match every failure write { "codes": ["*"] }

    error[invalid-matcher]: a matcher's `codes` must not be empty: it would match nothing
      --> f:12:27
       |
    12 |       - { match: { codes: [], types: [] }, next: b }
       |                           ^^

    error[invalid-matcher]: a matcher's `types` must not be empty: it would match nothing
      --> f:12:38
       |
    12 |       - { match: { codes: [], types: [] }, next: b }
       |                                      ^^

    error[invalid-pattern]: `A.*.B` is not a code pattern: `*` may stand only alone or as the last segment; write `Prefix.Code`, `Prefix.*` or `*`
      --> f:13:28
       |
    13 |       - { match: { codes: [A.*.B, 3] }, next: b }
       |                            ^^^^^

    error[wrong-type]: a code pattern must be a string; this is a number
      --> f:13:35
       |
    13 |       - { match: { codes: [A.*.B, 3] }, next: b }
       |                                   ^

    error[invalid-matcher]: `success` is no failure type: no success reaches a matcher
      --> f:14:28
       |
    14 |       - { match: { types: [success, timeout] }, next: b }
       |                            ^^^^^^^

    error[wrong-type]: a matcher's `retryable` must be `true` or `false`; this is a string
      --> f:15:31
       |
    15 |       - { match: { retryable: yes }, next: b }
       |                               ^^^
      = help: `yes` is a string here; write `true`

    error[wrong-type]: a matcher's `retryable` must be `true` or `false`; this is an expression
      --> f:16:31
       |
    16 |       - { match: { retryable: "{{ true }}" }, next: b }
       |                               ^^^^^^^^^^^^

    error[unknown-field]: `code` is not a field of a failure matcher
      --> f:17:20
       |
    17 |       - { match: { code: [A.B] }, next: b }
       |                    ^^^^
      = help: did you mean `codes`?

    error[no-exit-path]: a `catch` clause has no way out: `next` is missing
      --> f:18:9
       |
    18 |       - { match: { codes: ["*"] } }
       |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^
      = help: name its successor, or end the Flow with a `Return` or `Raise` Step
    "#);
}

#[test]
fn middleware() {
    insta::assert_snapshot!(refused(&root(r#"
middleware:
  provider: mwl:provider.middleware/mwl/retry/v1
steps: { a: { action: Return } }
"#)), @r#"
    error[wrong-type]: `middleware` must be an array; this is an object
     --> f:5:3
      |
    5 |   provider: mwl:provider.middleware/mwl/retry/v1
      |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    "#);
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
     --> f:5:5
      |
    5 |   - provider: mwl:provider.middleware/mwl/loop/v1
      |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      = help: write onSuccess: { "when": "{{ … }}" }: the loop goes on while it is true

    error[endless-loop]: a Loop whose `onSuccess.when` is always true never ends
     --> f:6:73
      |
    6 |   - { provider: mwl:provider.middleware/mwl/loop/v1, onSuccess: { when: true } }
      |                                                                         ^^^^
      = help: write onSuccess: { "when": "{{ … }}" }: the loop goes on while it is true

    error[unknown-field]: `value` is not a field of an `onEntry` block
     --> f:7:94
      |
    7 |   - { provider: mwl:provider.middleware/mwl/timeout/v1, onEntry: { with: { duration: PT1S }, value: 1 }, onFailuer: {} }
      |                                                                                              ^^^^^
      = help: its fields are `when`, `with`, `assign`, `output`

    error[unknown-field]: `onFailuer` is not a field of a middleware entry
     --> f:7:106
      |
    7 |   - { provider: mwl:provider.middleware/mwl/timeout/v1, onEntry: { with: { duration: PT1S }, value: 1 }, onFailuer: {} }
      |                                                                                                          ^^^^^^^^^
      = help: did you mean `onFailure`?

    error[wrong-type]: `when` must be `true`, `false` or an expression; this is a string
     --> f:8:100
      |
    8 |   - { provider: mwl:provider.middleware/mwl/timeout/v1, onEntry: { with: { duration: PT1S }, when: "no" } }
      |                                                                                                    ^^^^
      = help: `no` is a string here; write `false`

    error[wrong-type]: `when` must be `true`, `false` or an expression; this is a string
     --> f:9:100
      |
    9 | /mwl/timeout/v1, onEntry: { with: { duration: PT1S }, when: "vars.x" }, onFailure: { type: success } }
      |                                                             ^^^^^^^^
      = help: an expression stands between `{{` and `}}`

    error[success-type]: `type` must be a non-success type: a failure cannot become a success
     --> f:9:131
      |
    9 | h: { duration: PT1S }, when: "vars.x" }, onFailure: { type: success } }
      |                                                             ^^^^^^^
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
    error[expression-in-structure]: this `with` cannot be one expression: `call` and `middleware` is a definition
     --> f:5:75
      |
    5 |   - { provider: mwl:provider.middleware/mwl/finally/v1, onAlways: { with: "{{ vars.w }}" } }
      |                                                                           ^^^^^^^^^^^^^^

    error[unknown-flow]: no Flow in scope is named `Nowhere`
     --> f:6:91
      |
    6 | iddleware/mwl/finally/v1, onAlways: { with: { call: { flow: Nowhere }, middleware: [{ provider: x }] } } }
      |                                                             ^^^^^^^
      = help: there is none

    error[invalid-uri]: `x` is not a provider URI: it does not start with `mwl:`; write `mwl:provider.call/NAMESPACE/NAME` or `mwl:provider.middleware/NAMESPACE/NAME`
     --> f:6:127
      |
    6 | { with: { call: { flow: Nowhere }, middleware: [{ provider: x }] } } }
      |                                                             ^

    error[wrong-type]: a call must be an object; this is a string
     --> f:7:83
      |
    7 |   - { provider: mwl:provider.middleware/mwl/finally/v1, onAlways: { with: { call: "{{ vars.c }}" } } }
      |                                                                                   ^^^^^^^^^^^^^^
    "#);
    insta::assert_snapshot!(load_only(&root(r#"
middleware:
  - provider: mwl:provider.middleware/mwl/finally/v1
  - { provider: mwl:provider.middleware/mwl/finally/v1, onAlways: { with: { call: { flow: { entrypoint: x, steps: { x: { action: Return } } } }, when: 1 } } }
steps: { a: { action: Return } }
"#)), @r#"
    error[invalid-with]: the parameter `call` is missing
     --> f:5:15
      |
    5 |   - provider: mwl:provider.middleware/mwl/finally/v1
      |               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

    error[invalid-with]: `when` is not a parameter
     --> f:6:146
      |
    6 | low: { entrypoint: x, steps: { x: { action: Return } } } }, when: 1 } } }
      |                                                             ^^^^
      = help: there is `call`, `middleware`
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
     --> f:5:6
      |
    5 |   a: { action: Gather, next: b }
      |      ^^^^^^^^^^^^^^^^^^^^^^^^^^^
      = help: it has none

    error[gather-form]: a Gather has exactly one of its forms: `over` with `call`, or `calls`
     --> f:6:6
      |
    6 |   b: { action: Gather, over: [1], next: c }
      |      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      = help: it has `over`

    error[gather-form]: a Gather has exactly one of its forms: `over` with `call`, or `calls`
     --> f:7:6
      |
    7 |   c: { action: Gather, over: [1], call: { flow: F }, calls: [{ flow: F }], next: d }
      |      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      = help: it has `over`, `call`, `calls`

    error[empty-calls]: `calls` is empty: the Gather would dispatch nothing
     --> f:8:31
      |
    8 |   d: { action: Gather, calls: [], next: e }
      |                               ^^

    error[invalid-concurrency]: `concurrency` must be a whole number from 1, or null for no limit; this is 0
     --> f:9:59
      |
    9 |   e: { action: Gather, calls: [{ flow: F }], concurrency: 0, completion: { wait: "{{ true }}" }, next: f }
      |                                                           ^

    error[missing-field]: `completion` needs `successes`
     --> f:9:74
      |
    9 |   e: { action: Gather, calls: [{ flow: F }], concurrency: 0, completion: { wait: "{{ true }}" }, next: f }
      |                                                                          ^^^^^^^^^^^^^^^^^^^^^^

    error[wrong-type]: `wait` must be `true` or `false`; this is an expression
     --> f:9:82
      |
    9 |   e: { action: Gather, calls: [{ flow: F }], concurrency: 0, completion: { wait: "{{ true }}" }, next: f }
      |                                                                                  ^^^^^^^^^^^^

    error[invalid-concurrency]: `concurrency` must be a whole number from 1, or null for no limit; this is "{{ 1 }}"
      --> f:10:59
       |
    10 |   f: { action: Gather, calls: [{ flow: F }], concurrency: "{{ 1 }}", middleware: [], next: g }
       |                                                           ^^^^^^^^^

    error[unknown-field]: `middleware` is not a field of a `Gather` Step
      --> f:10:70
       |
    10 |   f: { action: Gather, calls: [{ flow: F }], concurrency: "{{ 1 }}", middleware: [], next: g }
       |                                                                      ^^^^^^^^^^
      = help: call a Flow that carries the `middleware`: a dispatch is wrapped inside its own frame
    "#);
    insta::assert_snapshot!(load_only(&root(r#"
steps:
  a: { action: Gather, over: 3, call: { flow: F }, completion: { successes: 1.5 }, next: b }
  b: { action: Return }
flows: { F: { entrypoint: x, steps: { x: { action: Return } } } }
"#)), @r#"
    error[wrong-type]: `over` must be an array or an expression; this is a number
     --> f:5:30
      |
    5 |   a: { action: Gather, over: 3, call: { flow: F }, completion: { successes: 1.5 }, next: b }
      |                              ^

    error[wrong-type]: `successes` must be a whole number or an expression; this is a number
     --> f:5:77
      |
    5 |   a: { action: Gather, over: 3, call: { flow: F }, completion: { successes: 1.5 }, next: b }
      |                                                                             ^^^
    "#);
}

#[test]
fn matches() {
    insta::assert_snapshot!(refused(&root(r#"
steps:
  a: { action: Match }
  b: { action: Match, cases: [{ next: a }, { when: 1, next: a }, { when: "{{ true }}" }], default: { when: true, next: a }, output: 1 }
"#)), @r#"
    error[missing-field]: a `Match` Step needs `cases`
     --> f:5:6
      |
    5 |   a: { action: Match }
      |      ^^^^^^^^^^^^^^^^^

    error[missing-field]: a `Match` Step needs `default`
     --> f:5:6
      |
    5 |   a: { action: Match }
      |      ^^^^^^^^^^^^^^^^^

    error[missing-field]: a clause of a `Match` needs `when`
     --> f:6:31
      |
    6 |   b: { action: Match, cases: [{ next: a }, { when: 1, next: a }, { when: "{{ true }}" }], default: { when: true, next: a
      |                               ^^^^^^^^^^^

    error[wrong-type]: `when` must be `true`, `false` or an expression; this is a number
     --> f:6:52
      |
    6 |   b: { action: Match, cases: [{ next: a }, { when: 1, next: a }, { when: "{{ true }}" }], default: { when: true, next: a
      |                                                    ^

    error[no-exit-path]: a clause of a `Match` has no way out: `next` is missing
     --> f:6:66
      |
    6 | { action: Match, cases: [{ next: a }, { when: 1, next: a }, { when: "{{ true }}" }], default: { when: true, next: a }, o
      |                                                             ^^^^^^^^^^^^^^^^^^^^^^
      = help: name its successor, or end the Flow with a `Return` or `Raise` Step

    error[unknown-field]: `when` is not a field of the `default` clause
     --> f:6:102
      |
    6 | , { when: 1, next: a }, { when: "{{ true }}" }], default: { when: true, next: a }, output: 1 }
      |                                                             ^^^^
      = help: `default` is what is left; move it to `cases`

    error[unknown-field]: `output` is not a field of a `Match` Step
     --> f:6:125
      |
    6 |  { when: "{{ true }}" }], default: { when: true, next: a }, output: 1 }
      |                                                             ^^^^^^
      = help: `output` stands on each clause of a `Match`
    "#);
}

#[test]
fn sleeps() {
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Sleep, next: b }, b: { action: Sleep, for: PT1S, until: '2030-01-01T00:00:00Z', next: a } }")), @r#"
    error[sleep-form]: a Sleep has exactly one of `for` and `until`; this has neither
     --> f:3:13
      |
    3 | steps: { a: { action: Sleep, next: b }, b: { action: Sleep, for: PT1S, until: '2030-01-01T00:00:00Z', next: a } }
      |             ^^^^^^^^^^^^^^^^^^^^^^^^^^

    error[sleep-form]: a Sleep has exactly one of `for` and `until`; this has both
     --> f:3:44
      |
    3 | steps: { a: { action: Sleep, next: b }, b: { action: Sleep, for: PT1S, until: '2030-01-01T00:00:00Z', next: a } }
      |                                            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    "#);
    insta::assert_snapshot!(load_only(&root("steps: { a: { action: Sleep, for: 30s, next: b }, b: { action: Sleep, until: 5, next: a } }")), @r#"
    error[invalid-time]: `for` must be an ISO 8601 duration such as "PT30S"; this is `30s`
     --> f:3:35
      |
    3 | steps: { a: { action: Sleep, for: 30s, next: b }, b: { action: Sleep, until: 5, next: a } }
      |                                   ^^^

    error[invalid-time]: `until` must be an RFC 3339 timestamp such as "2030-01-15T09:30:00Z"; this is a number
     --> f:3:78
      |
    3 | steps: { a: { action: Sleep, for: 30s, next: b }, b: { action: Sleep, until: 5, next: a } }
      |                                                                              ^
    "#);
}

#[test]
fn raises() {
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Raise, result: { type: success, cod: A.B } } }")), @r#"
    error[missing-field]: a `Raise`'s `result` needs `code`
     --> f:3:38
      |
    3 | steps: { a: { action: Raise, result: { type: success, cod: A.B } } }
      |                                      ^^^^^^^^^^^^^^^^^^^^^^^^^^^

    error[success-type]: `type` must be a non-success type: a failure cannot become a success
     --> f:3:46
      |
    3 | steps: { a: { action: Raise, result: { type: success, cod: A.B } } }
      |                                              ^^^^^^^

    error[unknown-field]: `cod` is not a field of a `Raise`'s `result`
     --> f:3:55
      |
    3 | steps: { a: { action: Raise, result: { type: success, cod: A.B } } }
      |                                                       ^^^
      = help: did you mean `code`?
    "#);
    insta::assert_snapshot!(load_only(&root("steps: { a: { action: Raise, result: { type: 1, code: 2, message: {}, retryable: yes, previous: x } } }")), @r#"
    error[wrong-type]: `type` must be a string; this is a number
     --> f:3:46
      |
    3 | steps: { a: { action: Raise, result: { type: 1, code: 2, message: {}, retryable: yes, previous: x } } }
      |                                              ^

    error[wrong-type]: `code` must be a string; this is a number
     --> f:3:55
      |
    3 | steps: { a: { action: Raise, result: { type: 1, code: 2, message: {}, retryable: yes, previous: x } } }
      |                                                       ^

    error[wrong-type]: `message` must be a string; this is an object
     --> f:3:67
      |
    3 | steps: { a: { action: Raise, result: { type: 1, code: 2, message: {}, retryable: yes, previous: x } } }
      |                                                                   ^^

    error[wrong-type]: `retryable` must be a boolean or null; this is a string
     --> f:3:82
      |
    3 | steps: { a: { action: Raise, result: { type: 1, code: 2, message: {}, retryable: yes, previous: x } } }
      |                                                                                  ^^^
      = help: `yes` is a string here; write `true`

    error[wrong-type]: `previous` must be a failure or null; this is a string
     --> f:3:97
      |
    3 | steps: { a: { action: Raise, result: { type: 1, code: 2, message: {}, retryable: yes, previous: x } } }
      |                                                                                                 ^
    "#);
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
"#)), @r#"
    error[invalid-expression]: `step` is not in scope; in scope here: `vars`, `execution`, `frame`, `middleware` and `failure`
     --> f:6:38
      |
    6 |     onEntry: { with: { duration: "{{ step.input }}" } }
      |                                      ^

    error[invalid-expression]: `call` is not in scope; in scope here: `vars`, `execution`, `frame`, `step` and `failure`
      --> f:10:16
       |
    10 |     input: "{{ call.input }}"
       |                ^

    error[invalid-expression]: `provider` is not in scope; in scope here: `vars`, `execution`, `frame`, `step`, `call` and `failure`
      --> f:13:25
       |
    13 |       with: { path: "{{ provider.result }}" }
       |                         ^

    error[invalid-expression]: `flow` is not in scope; in scope here: `vars`, `execution`, `frame`, `step`, `call`, `provider` and `failure`
      --> f:14:31
       |
    14 |       onSuccess: { value: "{{ flow.result }}" }
       |                               ^

    error[invalid-expression]: `middleware` is not in scope; in scope here: `vars`, `execution`, `frame`, `step` and `failure`
      --> f:15:17
       |
    15 |     output: "{{ middleware.result }}"
       |                 ^

    error[invalid-expression]: `match` is not in scope; in scope here: `vars`, `execution`, `frame`, `step` and `failure`
      --> f:17:35
       |
    17 |   b: { action: Return, value: "{{ match.input }}" }
       |                                   ^
    "#);
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
"#)), @r#"
    error[unreadable-binding]: `middleware.result` cannot be read here: nothing has run yet in `onEntry`; the ascent phases have a result
     --> f:8:19
      |
    8 |       output: "{{ middleware.result.value }}"
      |                   ^

    error[unreadable-binding]: `middleware.metadata.attempts` cannot be read here: this entry's record has `attempt`, `enteredAt`
     --> f:9:35
      |
    9 |     onFailure: { assign: { n: "{{ middleware.metadata.attempts }}" } }
      |                                   ^

    error[unreadable-binding]: `step.result` cannot be read here: it is there in a `Call` Step's `output`, `assign` and `catch`
      --> f:13:16
       |
    13 |     input: "{{ step.result }}"
       |                ^

    error[unreadable-binding]: `call.result` cannot be read here: it is there in the call's arms, `onSuccess` and `onFailure`
      --> f:16:18
       |
    16 |       input: "{{ call.result }}"
       |                  ^

    error[unreadable-binding]: `call.index` cannot be read here: only a call that a `Gather` dispatches has an index
      --> f:17:25
       |
    17 |       with: { path: "{{ call.index }}" }
       |                         ^

    error[unreadable-binding]: `step.results` cannot be read here: it is there in a `Gather` Step's `output`, `assign` and `catch`
      --> f:18:17
       |
    18 |     output: "{{ step.results }}"
       |                 ^

    error[unreadable-binding]: `step.inptu` cannot be read here: did you mean `input`?
      --> f:20:35
       |
    20 |   b: { action: Return, value: "{{ step.inptu + frame.vars.x }}" }
       |                                   ^

    error[unreadable-binding]: `frame.vars` cannot be read here: a frame reads its own variables as `vars`
      --> f:20:48
       |
    20 |   b: { action: Return, value: "{{ step.inptu + frame.vars.x }}" }
       |                                                ^
    "#);
}

#[test]
fn expressions_that_do_not_compile() {
    insta::assert_snapshot!(refused(&root(r#"
steps:
  a: { action: Return, value: { b: ["{{ 1 + }}", "{{ nothing }}"] } }
"#)), @r#"
    error[invalid-expression]: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}
     --> f:5:44
      |
    5 |   a: { action: Return, value: { b: ["{{ 1 + }}", "{{ nothing }}"] } }
      |                                            ^

    error[invalid-expression]: `nothing` is unknown; in scope here: `vars`, `execution`, `frame`, `step` and `failure`
     --> f:5:54
      |
    5 |   a: { action: Return, value: { b: ["{{ 1 + }}", "{{ nothing }}"] } }
      |                                                      ^
    "#);
    // The column is exact behind escapes.
    let json = r#"{"$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": "a",
  "steps": {"a": {"action": "Return", "value": "{{ \"é\" + nothing }}"}}}"#;
    insta::assert_snapshot!(refused(json), @r#"
    error[invalid-expression]: `nothing` is unknown; in scope here: `vars`, `execution`, `frame`, `step` and `failure`
     --> f:2:61
      |
    2 |   "steps": {"a": {"action": "Return", "value": "{{ \"é\" + nothing }}"}}}
      |                                                             ^
    "#);
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
"#)), @r#"
    error[invalid-with]: the parameter `duration` is missing
      --> f:14:19
       |
    14 |       - provider: mwl:provider.middleware/mwl/timeout/v1
       |                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

    error[invalid-with]: at /duration: "30s" is not a duration, wanted ISO 8601 such as "PT30S"
      --> f:15:90
       |
    15 | der.middleware/mwl/timeout/v1, onEntry: { with: { duration: 30s } }, onSuccess: { with: { x: 1 } } }
       |                                                             ^^^

    error[invalid-with]: `x` is not a parameter
      --> f:15:120
       |
    15 |  onEntry: { with: { duration: 30s } }, onSuccess: { with: { x: 1 } } }
       |                                                             ^
      = help: it takes no arguments; remove it

    error[invalid-with]: `A.*.B` is not a code pattern: `*` may stand only alone or as the last segment; write `Prefix.Code`, `Prefix.*` or `*`
      --> f:16:76
       |
    16 | der: mwl:provider.middleware/mwl/retry/v1, onEntry: { with: { policies: [{ match: { codes: [A.*.B] }, attempts: 2, backo
       |                                                             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

    error[invalid-with]: the parameter `path` is missing
      --> f:17:61
       |
    17 |     call: { provider: mwl:provider.call/acme/http/v1, with: { pathh: /, retries: many } }
       |                                                             ^^^^^^^^^^^^^^^^^^^^^^^^^^^

    error[invalid-with]: `pathh` is not a parameter
      --> f:17:63
       |
    17 |     call: { provider: mwl:provider.call/acme/http/v1, with: { pathh: /, retries: many } }
       |                                                               ^^^^^
      = help: did you mean `path`?

    error[wrong-type]: `with` must be an object or an expression; this is a number
      --> f:22:45
       |
    22 |   e: { action: Call, call: { flow: F, with: 3 }, next: f }
       |                                             ^
    "#);
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
