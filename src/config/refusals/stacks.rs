//! Named stacks.

use super::{of_file, rendered};

#[test]
fn unknown() {
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         stacks: { patient: [] }\n\
         upstreams: { billing: { endpoints: [http://a] } }\n\
         middleware: [{ stack: patent }]\n\
         routes: [{ name: r, upstream: billing, middleware: [{ stack: patient }, { stack: 1 }] }]\n";
    insta::assert_snapshot!(rendered(text), @r"
    error[unknown-stack]: no stack is called `patent`
     --> c.yaml:4:23
      |
    4 | middleware: [{ stack: patent }]
      |                       ^^^^^^
      = help: did you mean `patient`?

    error[wrong-type]: `stack` is the number 1; wanted: a string
     --> c.yaml:5:82
      |
    5 | routes: [{ name: r, upstream: billing, middleware: [{ stack: patient }, { stack: 1 }] }]
      |                                                                                  ^
    ");
}

#[test]
fn in_a_circle() {
    let rest = "stacks:\n\
         \x20 a: [{ stack: b }]\n\
         \x20 b: [{ stack: a }]\n\
         \x20 c: [{ stack: c }]\n\
         routes: [{ name: r, upstream: billing, middleware: [{ stack: a }, { stack: c }] }]";
    insta::assert_snapshot!(of_file(rest), @r"
    error[stack-cycle]: the stack `a` holds itself: `a` → `b` → `a`; remove one of these items
     --> c.yaml:5:16
      |
    5 |   b: [{ stack: a }]
      |                ^

    error[stack-cycle]: the stack `c` holds itself: `c` → `c`; remove one of these items
     --> c.yaml:6:16
      |
    6 |   c: [{ stack: c }]
      |                ^
    ");
}

#[test]
fn that_grow_without_bound() {
    let list = |n| format!("  s{n}: [{{ stack: s{0} }}, {{ stack: s{0} }}]\n", n + 1);
    let lists = (0..24).map(list).collect::<Vec<_>>().concat();
    let text = format!(
        "listeners: [{{ address: 127.0.0.1:0 }}]\nstacks:\n{lists}  s24: [{{ provider: p }}]\nroutes: [{{ name: r, call: {{}}, middleware: [{{ stack: s0 }}] }}]\n"
    );
    insta::assert_snapshot!(rendered(&text), @r"
    error[stacks-too-large]: all that stacks stand for holds more than 100000 values
      --> c.yaml:13:18
       |
    13 |   s10: [{ stack: s11 }, { stack: s11 }]
       |                  ^^^
      = help: let fewer stacks name others
    ");
}

#[test]
fn that_are_used_without_bound() {
    let twice = |n: usize| format!("  s{n}: [{{ stack: s{0} }}, {{ stack: s{0} }}]\n", n - 1);
    let lists = (1..=10).map(twice).collect::<Vec<_>>().concat();
    let entries = ["{ provider: p }"; 5].join(", ");
    let uses = vec!["{ stack: s10 }"; 62].join(",\n    ");
    let text = format!(
        "listeners: [{{ address: 127.0.0.1:0 }}]\nstacks:\n  s0: [{entries}]\n{lists}routes: [{{ name: r, call: {{}}, middleware: [\n    {uses}] }}]\n"
    );
    insta::assert_snapshot!(rendered(&text), @r"
    error[stacks-too-large]: all uses of stacks, of the stack around all routes and of Flows' files hold more than 30000 values
      --> c.yaml:15:14
       |
    15 |     { stack: s10 },
       |              ^^^
      = help: name them in fewer places; a longer file may hold more
    ");
}

#[test]
fn around_all_routes_without_bound() {
    let entries = vec!["{ provider: p }"; 600].join(", ");
    let routes: Vec<String> = (0..100)
        .map(|n| format!("\n- {{ name: r{n}, call: {{}}, match: {{ path: /{n} }} }}"))
        .collect();
    let text = format!(
        "listeners: [{{ address: 127.0.0.1:0 }}]\nmiddleware: [{entries}]\nroutes:{}\n",
        routes.concat()
    );
    insta::assert_snapshot!(rendered(&text), @r"
    error[stacks-too-large]: all uses of stacks, of the stack around all routes and of Flows' files hold more than 30000 values
      --> c.yaml:12:3
       |
    12 | - { name: r8, call: {}, match: { path: /8 } }
       |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      = help: name them in fewer places; a longer file may hold more
    ");
}

#[test]
fn in_a_long_row() {
    let stack = |n: usize| format!("  s{n}: [{{ stack: s{} }}]\n", n + 1);
    let rows: [Vec<String>; 2] =
        [(0..2000).map(stack).collect(), (0..2000).rev().map(stack).collect()];
    for rows in rows {
        let rest = format!(
            "stacks:\n{}  s2000: []\nroutes: [{{ name: r, upstream: billing, middleware: [{{ stack: s0 }}] }}]",
            rows.concat()
        );
        let said = of_file(&rest);
        let first = said.lines().next().unwrap_or_default();
        let wanted = "error[stacks-too-deep]: more than 100 stacks name one another in a row";
        assert_eq!(first, wanted);
        assert_eq!(said.matches("error[").count(), 1, "{said}");
    }
}

#[test]
fn with_more_beside_it() {
    let rest = "stacks: { a: [], b: {} }\n\
         routes: [{ name: r, upstream: billing, middleware: [{ stack: a, onEntry: {} }] }]";
    insta::assert_snapshot!(of_file(rest), @r"
    warning[unused-stack]: no list names the stack `b`
     --> c.yaml:3:18
      |
    3 | stacks: { a: [], b: {} }
      |                  ^

    error[wrong-type]: `b` is an object; wanted: a list of middleware entries
     --> c.yaml:3:21
      |
    3 | stacks: { a: [], b: {} }
      |                     ^^

    error[unknown-key]: `onEntry` beside `stack`: the item stands for the whole list; write another item for it
     --> c.yaml:4:65
      |
    4 | routes: [{ name: r, upstream: billing, middleware: [{ stack: a, onEntry: {} }] }]
      |                                                                 ^^^^^^^
    ");
}

#[test]
fn outside_of_a_list() {
    let rest = "stacks: { a: [] }\n\
         routes: [{ name: r, upstream: billing, middleware: { stack: a } }]";
    insta::assert_snapshot!(of_file(rest), @r"
    warning[unused-stack]: no list names the stack `a`
     --> c.yaml:3:11
      |
    3 | stacks: { a: [] }
      |           ^

    error[wrong-type]: a stack is named inside a list
     --> c.yaml:4:52
      |
    4 | routes: [{ name: r, upstream: billing, middleware: { stack: a } }]
      |                                                    ^^^^^^^^^^^^
      = help: write `[{ stack: NAME }]`
    ");
}

/// A stack with two parameters, used with these arguments.
fn of_use(arguments: &str) -> String {
    of_file(&format!(
        "stacks:
  patient:
    parameters: {{ attempts: {{ type: integer, minimum: 1 }}, wait: {{ type: string, format: duration, default: PT1S }} }}
    middleware: [{{ provider: p, comment: \"${{with.attempts}} times ${{with.wait}}\" }}]
routes:
- {{ name: r, upstream: billing, middleware: [{{ stack: patient{arguments} }}] }}"
    ))
}

#[test]
fn whose_arguments_are_wrong() {
    insta::assert_snapshot!(of_use(", with: { atempts: 3, wait: 5s }"), @r#"
    error[bad-arguments]: the stack `patient` needs `attempts`
     --> c.yaml:8:70
      |
    8 | - { name: r, upstream: billing, middleware: [{ stack: patient, with: { atempts: 3, wait: 5s } }] }
      |                                                                      ^^^^^^^^^^^^^^^^^^^^^^^^
     ::: c.yaml:5:19
      |
    5 |     parameters: { attempts: { type: integer, minimum: 1 }, wait: { type: string, format: duration, default: PT1S } }
      |                   ^^^^^^^^ required
      = help: write `with: { attempts: … }` beside `stack`

    error[bad-arguments]: `atempts` is no parameter of the stack `patient`
     --> c.yaml:8:72
      |
    8 | - { name: r, upstream: billing, middleware: [{ stack: patient, with: { atempts: 3, wait: 5s } }] }
      |                                                                        ^^^^^^^
      = help: did you mean `attempts`?

    error[bad-arguments]: `wait`: "5s" is not a duration, wanted ISO 8601 such as "PT30S"
     --> c.yaml:8:90
      |
    8 | - { name: r, upstream: billing, middleware: [{ stack: patient, with: { atempts: 3, wait: 5s } }] }
      |                                                                                          ^^
     ::: c.yaml:5:60
      |
    5 |     parameters: { attempts: { type: integer, minimum: 1 }, wait: { type: string, format: duration, default: PT1S } }
      |                                                            ^^^^ the parameter
      = help: write `PT5S`
    "#);
}

#[test]
fn whose_arguments_are_missing_or_out_of_range() {
    insta::assert_snapshot!(of_use(""), @r"
    error[bad-arguments]: the stack `patient` needs `attempts`
     --> c.yaml:8:55
      |
    8 | - { name: r, upstream: billing, middleware: [{ stack: patient }] }
      |                                                       ^^^^^^^
     ::: c.yaml:5:19
      |
    5 |     parameters: { attempts: { type: integer, minimum: 1 }, wait: { type: string, format: duration, default: PT1S } }
      |                   ^^^^^^^^ required
      = help: write `with: { attempts: … }` beside `stack`
    ");
    insta::assert_snapshot!(of_use(", with: { attempts: 0 }, comment: x"), @r"
    error[bad-arguments]: `attempts`: 0 is less than the minimum of 1
     --> c.yaml:8:82
      |
    8 | - { name: r, upstream: billing, middleware: [{ stack: patient, with: { attempts: 0 }, comment: x }] }
      |                                                                                  ^
     ::: c.yaml:5:19
      |
    5 |     parameters: { attempts: { type: integer, minimum: 1 }, wait: { type: string, format: duration, default: PT1S } }
      |                   ^^^^^^^^ the parameter

    error[unknown-key]: `comment` beside `stack`: the item stands for the whole list; write another item for it
     --> c.yaml:8:87
      |
    8 | - { name: r, upstream: billing, middleware: [{ stack: patient, with: { attempts: 0 }, comment: x }] }
      |                                                                                       ^^^^^^^
    ");
}

#[test]
fn whose_parameters_are_wrong() {
    let rest = "stacks:
  a: { parameters: { n: { type: nothing } }, midleware: [], middleware: [{ provider: \"${with.m}\" }] }
  b: [{ stack: a, with: { n: 1 } }]
environment: \"${with.n}\"
routes:
- { name: r, upstream: billing, middleware: [{ stack: b, with: { n: 1 } }] }";
    insta::assert_snapshot!(of_file(rest), @r#"
    error[bad-parameter]: the parameter schema is not valid at /properties/n/type: "nothing" is not valid under any of the schemas listed in the 'anyOf' keyword
     --> c.yaml:4:25
      |
    4 |   a: { parameters: { n: { type: nothing } }, midleware: [], middleware: [{ provider: "${with.m}" }] }
      |                         ^^^^^^^^^^^^^^^^^

    error[unknown-key]: `midleware` is not a key of a stack
     --> c.yaml:4:46
      |
    4 |   a: { parameters: { n: { type: nothing } }, midleware: [], middleware: [{ provider: "${with.m}" }] }
      |                                              ^^^^^^^^^
      = help: did you mean `middleware`?

    error[unknown-parameter]: the stack has no parameter `m`
     --> c.yaml:4:86
      |
    4 |   a: { parameters: { n: { type: nothing } }, midleware: [], middleware: [{ provider: "${with.m}" }] }
      |                                                                                      ^^^^^^^^^^^
      = help: declare it under the stack's `parameters`

    error[bad-variable]: `with.n` is a stack's parameter, and this is not in a stack
     --> c.yaml:6:15
      |
    6 | environment: "${with.n}"
      |               ^
      = help: write the value, or a variable as `${NAME}`

    error[bad-arguments]: `n` is no parameter of the stack `b`
     --> c.yaml:8:66
      |
    8 | - { name: r, upstream: billing, middleware: [{ stack: b, with: { n: 1 } }] }
      |                                                                  ^
      = help: it has none; remove it
    "#);
}
