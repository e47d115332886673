//! Flows, Steps and their names.

use super::super::*;

#[test]
fn the_root() {
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
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Retrun } }")), @r"
    error[unknown-action]: there is no action `Retrun`
     --> f:3:23
      |
    3 | steps: { a: { action: Retrun } }
      |                       ^^^^^^
      = help: did you mean `Return`?
    ");
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Wait } }")), @r"
    error[unknown-action]: there is no action `Wait`
     --> f:3:23
      |
    3 | steps: { a: { action: Wait } }
      |                       ^^^^
      = help: there is `Call`, `Gather`, `Match`, `Pass`, `Sleep`, `Return`, `Raise`
    ");
    insta::assert_snapshot!(refused(&root("steps: { a: { next: a } }")), @r"
    error[missing-field]: a Step needs `action`
     --> f:3:13
      |
    3 | steps: { a: { next: a } }
      |             ^^^^^^^^^^^
    ");
    insta::assert_snapshot!(refused(&root("steps: { a: Return }")), @r"
    error[wrong-type]: a Step must be an object; this is a string
     --> f:3:13
      |
    3 | steps: { a: Return }
      |             ^^^^^^
    ");
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Return, output: 1, valeu: 2, next: a } }")), @r"
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
    ");
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Pass, catch: [] } }")), @r"
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
    ");
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Pass, assign: [1], next: a } }")), @r"
    error[wrong-type]: `assign` must be an object of names and values; this is an array
     --> f:3:37
      |
    3 | steps: { a: { action: Pass, assign: [1], next: a } }
      |                                     ^^^
    ");
}

#[test]
fn references_to_steps() {
    insta::assert_snapshot!(refused(&root("steps: { b: { action: Return } }")), @r"
    error[unknown-step]: `entrypoint` names no Step of this Flow: `a`
     --> f:2:13
      |
    2 | entrypoint: a
      |             ^
      = help: there is `b`
    ");
    insta::assert_snapshot!(refused(&root("steps: { a: { action: Pass, next: deliver }, delivered: { action: Return } }")), @r"
    error[unknown-step]: `next` names no Step of this Flow: `deliver`
     --> f:3:35
      |
    3 | steps: { a: { action: Pass, next: deliver }, delivered: { action: Return } }
      |                                   ^^^^^^^
      = help: did you mean `delivered`?
    ");
    // A Step of another graph cannot be named.
    insta::assert_snapshot!(refused(&root("\
flows: { F: { entrypoint: x, steps: { x: { action: Pass, next: a } } } }
steps: { a: { action: Call, call: { flow: F }, next: x } }
")), @r"
    error[unknown-step]: `next` names no Step of this Flow: `a`
     --> f:3:64
      |
    3 | flows: { F: { entrypoint: x, steps: { x: { action: Pass, next: a } } } }
      |                                                                ^
      = help: there is `x`

    error[unknown-step]: `next` names no Step of this Flow: `x`
     --> f:4:54
      |
    4 | steps: { a: { action: Call, call: { flow: F }, next: x } }
      |                                                      ^
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
")), @r"
    error[unknown-flow]: no Flow in scope is named `Chagre`
     --> f:4:43
      |
    4 | steps: { a: { action: Call, call: { flow: Chagre }, next: b }, b: { action: Return } }
      |                                           ^^^^^^
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
")), @r"
    error[unknown-flow]: no Flow in scope is named `Inner`
     --> f:8:43
      |
    8 | steps: { a: { action: Call, call: { flow: Inner }, next: b }, b: { action: Return } }
      |                                           ^^^^^
      = help: there is `Outer`
    ");
    insta::assert_snapshot!(refused(&root("\
steps: { a: { action: Call, call: { flow: { $schema: x, entrypoint: a, steps: { a: { action: Return } } } }, next: b }, b: { action: Return } }
")), @r"
    error[unknown-field]: `$schema` is not a field of an inline Flow
     --> f:3:45
      |
    3 | steps: { a: { action: Call, call: { flow: { $schema: x, entrypoint: a, steps: { a: { action: Return } } } }, next: b },
      |                                             ^^^^^^^
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
")), @r"
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
")), @r"
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
    ");
}

#[test]
fn flows_within_flows() {
    let chain = |count: usize| {
        let flow = |n: usize| {
            let call =
                if n == count { String::new() } else { format!("call: {{ flow: F{} }}, ", n + 1) };
            let action = if n == count {
                "action: Return".to_owned()
            } else {
                format!("action: Call, {call}next: b")
            };
            let rest = if n == count { "" } else { ", b: { action: Return }" };
            format!("  F{n}: {{ entrypoint: a, steps: {{ a: {{ {action} }}{rest} }} }}\n")
        };
        let flows: String = (1..=count).map(flow).collect();
        root(&format!(
            "flows:\n{flows}steps: {{ a: {{ action: Call, call: {{ flow: F1 }}, next: b }}, b: {{ action: Return }} }}"
        ))
    };
    assert_eq!(warned(&chain(31)), "");
    insta::assert_snapshot!(refused(&chain(32)), @r"
    error[flows-too-deep]: Flows call Flows 33 deep; at most 32 are run
      --> f:36:43
       |
    36 | steps: { a: { action: Call, call: { flow: F1 }, next: b }, b: { action: Return } }
       |                                           ^^
    ");
    assert_eq!(refused(&chain(5000)).matches("error[").count(), 1);
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
