//! Names, targets and arguments of routes.

use super::{of_file, of_route, of_target};

#[test]
fn none() {
    insta::assert_snapshot!(of_target("match: {}"), @r"
    error[route-target]: the route has no target
     --> c.yaml:4:9
      |
    4 | - name: r
      |         ^
      = help: give it exactly one of `upstream`, `call` and `flow`
    ");
}

#[test]
fn two() {
    insta::assert_snapshot!(of_route("call: { provider: x }"), @r"
    error[route-target]: the route has more than one target
     --> c.yaml:4:9
      |
    4 | - name: r
      |         ^
     ::: c.yaml:5:3
      |
    5 |   upstream: billing
      |   ^^^^^^^^ a target
     ::: c.yaml:6:3
      |
    6 |   call: { provider: x }
      |   ^^^^ a target
      = help: keep one of `upstream`, `call` and `flow`
    ");
}

#[test]
fn an_unknown_upstream() {
    insta::assert_snapshot!(of_target("upstream: biling"), @r"
    error[unknown-upstream]: no upstream is called `biling`
     --> c.yaml:5:13
      |
    5 |   upstream: biling
      |             ^^^^^^
      = help: did you mean `billing`?
    ");
}

#[test]
fn an_unknown_upstream_like_no_other() {
    insta::assert_snapshot!(of_target("upstream: zzz"), @r"
    error[unknown-upstream]: no upstream is called `zzz`
     --> c.yaml:5:13
      |
    5 |   upstream: zzz
      |             ^^^
      = help: name it under `upstreams:` at the top of the file
    ");
}

#[test]
fn a_flow_with_the_step_keys() {
    insta::assert_snapshot!(of_target("flow: { entrypoint: a, steps: {} }\ncatch: []"), @r"
    error[conflicting-keys]: `catch` beside `flow`: the Flow itself says it: move it there
     --> c.yaml:6:3
      |
    6 |   catch: []
      |   ^^^^^
     ::: c.yaml:5:3
      |
    5 |   flow: { entrypoint: a, steps: {} }
      |   ^^^^ the route's Flow
    ");
}

#[test]
fn a_flow_file_that_is_not_there() {
    insta::assert_snapshot!(of_target("flow: flows/none.json"), @r"
    error[unreadable]: the Flow flows/none.json cannot be read: no such file
     --> c.yaml:5:9
      |
    5 |   flow: flows/none.json
      |         ^^^^^^^^^^^^^^^
      = help: a Flow's file is named relative to the configuration's folder
    ");
}

#[test]
fn a_flow_file_that_is_ill_formed() {
    insta::assert_snapshot!(of_target("flow: bad.json"), @r#"
    error[invalid-json]: not JSON: expected value
     --> bad.json:1:17
      |
    1 | { "entrypoint": }
      |                 ^
    "#);
}

#[test]
fn a_flow_that_is_a_number() {
    insta::assert_snapshot!(of_target("flow: 1"), @r"
    error[wrong-type]: `flow` is the number 1; wanted: a file beside this one, or a Flow object
     --> c.yaml:5:9
      |
    5 |   flow: 1
      |         ^
    ");
}

#[test]
fn a_step_with_the_route_name() {
    insta::assert_snapshot!(of_route("steps: { r: { action: Return } }"), @r"
    error[duplicate-name]: the Step `r` has the route's name, which is that of its own Call Step
     --> c.yaml:6:12
      |
    6 |   steps: { r: { action: Return } }
      |            ^
      = help: give the Step another name
    ");
}

#[test]
fn no_name() {
    let rest = r#"routes: [{ upstream: billing }, { name: "a b", upstream: billing }, { name: "", upstream: billing }]"#;
    insta::assert_snapshot!(of_file(rest), @r#"
    error[missing-key]: a route needs `name`: Its name: the label of its metrics, and of its Call Step.
     --> c.yaml:3:10
      |
    3 | routes: [{ upstream: billing }, { name: "a b", upstream: billing }, { name: "", upstream: billing }]
      |          ^^^^^^^^^^^^^^^^^^^^^

    error[bad-name]: `a b` is not a name: it is empty or holds white space
     --> c.yaml:3:41
      |
    3 | routes: [{ upstream: billing }, { name: "a b", upstream: billing }, { name: "", upstream: billing }]
      |                                         ^^^^^

    error[bad-name]: `` is not a name: it is empty or holds white space
     --> c.yaml:3:77
      |
    3 | routes: [{ upstream: billing }, { name: "a b", upstream: billing }, { name: "", upstream: billing }]
      |                                                                             ^^

    warning[unreachable-route]: the route `` is never reached: `a b` takes its requests before it
     --> c.yaml:3:77
      |
    3 | routes: [{ upstream: billing }, { name: "a b", upstream: billing }, { name: "", upstream: billing }]
      |                                                                             ^^
     ::: c.yaml:3:41
      |
    3 | routes: [{ upstream: billing }, { name: "a b", upstream: billing }, { name: "", upstream: billing }]
      |                                         ^^^^^ takes them all
      = help: put the narrower route first
    "#);
}

#[test]
fn one_name_twice() {
    let rest = "routes: [{ name: r, match: { path: /a }, upstream: billing }, { name: r, upstream: billing }]";
    insta::assert_snapshot!(of_file(rest), @r"
    error[duplicate-name]: two routes are called `r`: give one of them another name
     --> c.yaml:3:71
      |
    3 | routes: [{ name: r, match: { path: /a }, upstream: billing }, { name: r, upstream: billing }]
      |                                                                       ^
     ::: c.yaml:3:18
      |
    3 | routes: [{ name: r, match: { path: /a }, upstream: billing }, { name: r, upstream: billing }]
      |                  ^ the first
    ");
}

#[test]
fn a_route_that_is_never_reached() {
    let rest = "routes: [{ name: a, upstream: billing }, { name: b, match: { path: /b }, upstream: billing }]\n\
         x: 1";
    insta::assert_snapshot!(of_file(rest), @r"
    warning[unreachable-route]: the route `b` is never reached: `a` takes its requests before it
     --> c.yaml:3:50
      |
    3 | routes: [{ name: a, upstream: billing }, { name: b, match: { path: /b }, upstream: billing }]
      |                                                  ^
     ::: c.yaml:3:18
      |
    3 | routes: [{ name: a, upstream: billing }, { name: b, match: { path: /b }, upstream: billing }]
      |                  ^ takes them all
      = help: put the narrower route first

    error[unknown-key]: `x` is not a key of the configuration
     --> c.yaml:4:1
      |
    4 | x: 1
      | ^
      = help: the configuration has the keys `environment`, `listeners`, `admin`, `upstreams`, `stores`, `forwarded`, `requestIdHeader`, `paths`, `stacks`, `middleware`, `routes`, `metrics`, `log`, `tracing`, `limits`, `shutdown`
    ");
}

#[test]
fn arguments_that_no_parameter_takes() {
    insta::assert_snapshot!(of_route("with: { n: 1 }"), @r"
    error[bad-arguments]: the arguments do not fit the Flow's parameters: unexpected member `n`: no arguments are taken here
     --> c.yaml:6:9
      |
    6 |   with: { n: 1 }
      |         ^^^^^^^^
      = help: declare them under `parameters`
    ");
}

#[test]
fn arguments_of_the_wrong_type() {
    let keys = "parameters: { type: object, properties: { n: { type: number } } }\n\
         with: { n: \"1\" }";
    insta::assert_snapshot!(of_route(keys), @r#"
    error[bad-arguments]: the arguments do not fit the Flow's parameters: at /n: "1" is not of type "number"
     --> c.yaml:7:9
      |
    7 |   with: { n: "1" }
      |         ^^^^^^^^^^
     ::: c.yaml:6:15
      |
    6 |   parameters: { type: object, properties: { n: { type: number } } }
      |               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ the parameters
    "#);
}
