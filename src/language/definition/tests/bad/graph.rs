//! Flows, Steps and their names.

use super::super::*;

/// As users see them.
#[test]
fn the_root() {
    let refused =
        |text: &str| compiled_saying(Sources::render, text, Strictness::Load).unwrap_err();
    insta::assert_snapshot!(refused("- a"), @r"
    error[wrong-type]: the root Flow must be an object; this is an array
     --> f:1:1
      |
    1 | - a
      | ^^^
    ");
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
    insta::assert_snapshot!(refused(&root("stepps: {}\n")), @r"
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
    ");
    insta::assert_snapshot!(refused(&root("steps: {}\n")), @r#"
    error[unknown-step]: `entrypoint` names no Step of this Flow: `a`
     --> f:2:13
      |
    2 | entrypoint: a
      |             ^
      = help: the Flow has no Steps; write one, such as { "action": "Return" }
    "#);
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Return } }\ncomment: [1]\n")), @r"
    error[wrong-type]: `comment` must be a string; this is an array
     --> f:4:10
      |
    4 | comment: [1]
      |          ^^^
    ");
}

#[test]
fn steps_and_their_fields() {
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Retrun } }")), @"
    error[unknown-action]: there is no action `Retrun`
     --> f:3:23 `Retrun`
      = help: did you mean `Return`?
    ");
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Wait } }")), @"
    error[unknown-action]: there is no action `Wait`
     --> f:3:23 `Wait`
      = help: there is `Call`, `Gather`, `Match`, `Pass`, `Sleep`, `Return`, `Raise`
    ");
    insta::assert_snapshot!(refused(&root("steps: { a: { next: a } }")), @"
    error[missing-field]: a Step needs `action`
     --> f:3:13 `{ next: a }`
    ");
    insta::assert_snapshot!(refused(&root("steps: { a: Return }")), @"
    error[wrong-type]: a Step must be an object; this is a string
     --> f:3:13 `Return`
    ");
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Return, output: 1, valeu: 2, next: a } }")), @"
    error[unknown-field]: `output` is not a field of a `Return` Step
     --> f:3:31 `output`
      = help: a `Return` shapes its `value`
    error[unknown-field]: `valeu` is not a field of a `Return` Step
     --> f:3:42 `valeu`
      = help: did you mean `value`?
    error[unknown-field]: `next` is not a field of a `Return` Step
     --> f:3:52 `next`
      = help: a terminal Step has no successor; remove it
    ");
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Pass, catch: [] } }")), @"
    error[no-exit-path]: a `Pass` Step has no way out: `next` is missing
     --> f:3:13 `{ action: Pass, catch: [] }`
      = help: name its successor, or end the Flow with a `Return` or `Raise` Step
    error[unknown-field]: `catch` is not a field of a `Pass` Step
     --> f:3:29 `catch`
      = help: `catch` stands on `Call` and `Gather` Steps
    ");
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Pass, assign: [1], next: a } }")), @"
    error[wrong-type]: `assign` must be an object of names and values; this is an array
     --> f:3:37 `[1]`
    ");
}

/// Each action but the two that end a Flow, and each clause, leads on.
#[test]
fn ways_out() {
    insta::assert_snapshot!(refused(&root(r#"
steps:
  a: { action: Call, call: { flow: F }, catch: [{ match: { codes: ["*"] } }] }
  b: { action: Gather, calls: [{ flow: F }] }
  c: { action: Match, cases: [{ when: "{{ true }}" }], default: {} }
  d: { action: Pass }
  e: { action: Sleep, for: PT1S }
  f: { action: Return }
  g: { action: Raise }
flows: { F: { entrypoint: x, steps: { x: { action: Return } } } }
"#)), @r#"
    error[no-exit-path]: a `Call` Step has no way out: `next` is missing
     --> f:5:6 `{ action: Call, call: { flow: F }, catch: [{ match: { codes: ["*"] } }] }`
      = help: name its successor, or end the Flow with a `Return` or `Raise` Step
    error[no-exit-path]: a `catch` clause has no way out: `next` is missing
     --> f:5:49 `{ match: { codes: ["*"] } }`
      = help: name its successor, or end the Flow with a `Return` or `Raise` Step
    error[no-exit-path]: a `Gather` Step has no way out: `next` is missing
     --> f:6:6 `{ action: Gather, calls: [{ flow: F }] }`
      = help: name its successor, or end the Flow with a `Return` or `Raise` Step
    error[no-exit-path]: a clause of a `Match` has no way out: `next` is missing
     --> f:7:31 `{ when: "{{ true }}" }`
      = help: name its successor, or end the Flow with a `Return` or `Raise` Step
    error[no-exit-path]: the `default` clause has no way out: `next` is missing
     --> f:7:65 `{}`
      = help: name its successor, or end the Flow with a `Return` or `Raise` Step
    error[no-exit-path]: a `Pass` Step has no way out: `next` is missing
     --> f:8:6 `{ action: Pass }`
      = help: name its successor, or end the Flow with a `Return` or `Raise` Step
    error[no-exit-path]: a `Sleep` Step has no way out: `next` is missing
     --> f:9:6 `{ action: Sleep, for: PT1S }`
      = help: name its successor, or end the Flow with a `Return` or `Raise` Step
    "#);
}

#[test]
fn references_to_steps() {
    insta::assert_snapshot!(refused(&root("steps: { b: { action: Return } }")), @"
    error[unknown-step]: `entrypoint` names no Step of this Flow: `a`
     --> f:2:13 `a`
      = help: there is `b`
    ");
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Pass, next: deliver }, delivered: { action: Return } }")), @"
    error[unknown-step]: `next` names no Step of this Flow: `deliver`
     --> f:3:35 `deliver`
      = help: did you mean `delivered`?
    ");
    // A Step of another graph cannot be named.
    insta::assert_snapshot!(refused(&root("\
flows: { F: { entrypoint: x, steps: { x: { action: Pass, next: a } } } }
steps: { a: { action: Call, call: { flow: F }, next: x } }
")), @"
    error[unknown-step]: `next` names no Step of this Flow: `a`
     --> f:3:64 `a`
      = help: there is `x`
    error[unknown-step]: `next` names no Step of this Flow: `x`
     --> f:4:54 `x`
      = help: there is `a`
    ");
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
     --> f:3:13 `"{{ 'a' }}"`
    error[expression-in-structure]: a parameter schema holds no expressions: it is read before anything runs
     --> f:4:57 `"{{ 1 }}"`
    error[expression-in-structure]: `flow` cannot be an expression: it is read before anything runs
     --> f:6:36 `"{{ vars.f }}"`
    error[expression-in-structure]: `next` cannot be an expression: it is read before anything runs
     --> f:6:60 `"{{ 'b' }}"`
    error[expression-in-structure]: a code pattern cannot be an expression: it is read before anything runs
     --> f:6:100 `"{{ 'x' }}"`
    error[expression-in-structure]: `provider` cannot be an expression: it is read before anything runs
     --> f:7:40 `"{{ vars.p }}"`
    error[expression-in-structure]: `next` cannot be an expression: it is read before anything runs
     --> f:7:64 `"{{'c'}}"`
    error[expression-in-structure]: `action` cannot be an expression: it is read before anything runs
     --> f:8:16 `"{{ 'Pass' }}"`
    error[expression-in-structure]: a Step's name cannot be an expression: it is read before anything runs
     --> f:9:3 `"{{ d }}"`
    error[expression-in-structure]: a variable's name cannot be an expression: it is read before anything runs
     --> f:9:40 `"{{ x }}"`
    error[expression-in-structure]: a Flow's name cannot be an expression: it is read before anything runs
     --> f:10:10 `"{{ f }}"`
    "#);
}

#[test]
fn flow_names() {
    insta::assert_snapshot!(refused(&root("\
flows: { Charge: { entrypoint: a, steps: { a: { action: Return } } } }
steps: { a: { action: Call, call: { flow: Chagre }, next: b }, b: { action: Return } }
")), @"
    error[unknown-flow]: no Flow in scope is named `Chagre`
     --> f:4:43 `Chagre`
      = help: did you mean `Charge`?
    ");
    // A name is visible inside its Flow, not outside.
    insta::assert_snapshot!(refused(&root("\
flows:
  Outer:
    flows: { Inner: { entrypoint: a, steps: { a: { action: Return } } } }
    entrypoint: a
    steps: { a: { action: Return } }
steps: { a: { action: Call, call: { flow: Inner }, next: b }, b: { action: Return } }
")), @"
    error[unknown-flow]: no Flow in scope is named `Inner`
     --> f:8:43 `Inner`
      = help: there is `Outer`
    ");
    insta::assert_snapshot!(refused(&root("\
steps: { a: { action: Call, call: { flow: { $schema: x, entrypoint: a, steps: { a: { action: Return } } } }, next: b }, b: { action: Return } }
")), @"
    error[unknown-field]: `$schema` is not a field of an inline Flow
     --> f:3:45 `$schema`
      = help: only the root Flow carries `$schema`; remove it
    ");
}

#[test]
fn flow_cycles() {
    insta::assert_snapshot!(refused(&root("\
flows:
  A: { entrypoint: x, steps: { x: { action: Call, call: { flow: B }, next: y }, y: { action: Return } } }
  B: { entrypoint: x, steps: { x: { action: Call, call: { flow: A }, next: y }, y: { action: Return } } }
  C: { entrypoint: x, steps: { x: { action: Gather, calls: [{ flow: C }], next: y }, y: { action: Return } } }
steps: { a: { action: Return } }
")), @"
    error[flow-cycle]: this call closes a cycle: a Flow would run within itself
     --> f:5:65 `A`
     ::: f:4:65 `B` by way of this call
      = help: repeat by routing `next` back within one Flow, or with the Loop middleware
    error[flow-cycle]: this call closes a cycle: a Flow would run within itself
     --> f:6:69 `C`
      = help: repeat by routing `next` back within one Flow, or with the Loop middleware
    ");
    // By way of an inline Flow within the named one.
    insta::assert_snapshot!(refused(&root("\
flows:
  A:
    entrypoint: x
    steps:
      x: { action: Call, call: { flow: { entrypoint: i, steps: { i: { action: Call, call: { flow: A }, next: j }, j: { action: Return } } } }, next: y }
      y: { action: Return }
steps: { a: { action: Return } }
")), @"
    error[flow-cycle]: this call closes a cycle: a Flow would run within itself
     --> f:7:99 `A`
     ::: f:7:40 `{ entrypoint: i, steps: { i: { action: Call, call: { flow: A }, next: j }, j: { action: Return } } }` by way of this call
      = help: repeat by routing `next` back within one Flow, or with the Loop middleware
    ");
}

#[test]
fn flows_within_flows() {
    let chain = |count: usize| {
        let flow = |n: usize| {
            let call = format!("action: Call, call: {{ flow: F{} }}, next: b", n + 1);
            let action = if n == count { "action: Return" } else { &call };
            let rest = if n == count { "" } else { ", b: { action: Return }" };
            format!("  F{n}: {{ entrypoint: a, steps: {{ a: {{ {action} }}{rest} }} }}\n")
        };
        let flows: String = (1..=count).map(flow).collect();
        root(&format!(
            "flows:\n{flows}steps: {{ a: {{ action: Call, call: {{ flow: F1 }}, next: b }}, b: {{ action: Return }} }}"
        ))
    };
    assert_eq!(warned(&chain(31)), "");
    insta::assert_snapshot!(refused(&chain(32)), @"
    error[flows-too-deep]: Flows call Flows 33 deep; at most 32 are run
     --> f:36:43 `F1`
    ");
    assert_eq!(refused(&chain(5000)).matches("error[").count(), 1);
}

#[test]
fn parameter_schemas() {
    insta::assert_snapshot!(refused(&root("parameters: { properties: {} }\nsteps: { a: { action: Return } }")), @r#"
    error[invalid-parameters]: a parameter schema must have `"type": "object"` at the top level: add it
     --> f:3:13 `{ properties: {} }`
    "#);
    insta::assert_snapshot!(refused(&root("parameters: { type: object, properties: { p: { type: text } } }\nsteps: { a: { action: Return } }")), @r#"
    error[invalid-parameters]: the parameter schema is not valid at /properties/p/type: "text" is not valid under any of the schemas listed in the 'anyOf' keyword
     --> f:3:13 `{ type: object, properties: { p: { type: text } } }`
    "#);
}
