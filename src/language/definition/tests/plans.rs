//! Good definitions: what the plan holds, and what it knows about itself.

use super::*;
use crate::language::expr::Root;
use crate::language::plan::{Action, Construct, FlowId, Target, Template, With};
use crate::language::provider::Phase;
use crate::language::value::Value;

fn plan(text: &str) -> Arc<Plan> {
    plan_and_warnings(text).0
}

pub(super) const EVERYTHING: &str = r#"
$schema: https://mwl.dev/v0.1/flow/schema.json
comment: every action and every field
parameters: { type: object, properties: { limit: { type: integer, default: 2 } } }
middleware:
  - provider: mwl:provider.middleware/mwl/timeout/v1
    comment: the whole run
    onEntry: { with: { duration: PT1M }, assign: { until: "{{ middleware.metadata.deadline }}" }, output: "{{ middleware.input }}" }
    onSuccess: { value: "{{ middleware.result.value }}" }
    onFailure: { code: Run.Failed, details: "{{ middleware.result }}", previous: null }
flows:
  Charge:
    entrypoint: charge
    steps:
      charge:
        action: Call
        input: "{{ step.input }}"
        middleware:
          - provider: mwl:provider.middleware/mwl/finally/v1
            onAlways:
              when: "{{ middleware.result.type != 'success' }}"
              with:
                call:
                  provider: mwl:provider.call/acme/http/v1
                  input: "{{ {'result': middleware.result, 'step': step.name, 'in': call.input} }}"
                  with: { path: /audit }
                  onSuccess: { assign: { audited: "{{ provider.result.value }}" } }
                middleware:
                  - provider: mwl:provider.middleware/mwl/timeout/v1
                    onEntry: { with: { duration: PT5S } }
          - provider: mwl:provider.middleware/mwl/retry/v1
            onEntry: { with: { policies: [{ match: { codes: [Provider.Call.Http.Throttled] }, attempts: 3, backoff: { initial: PT1S } }] } }
        call:
          provider: mwl:provider.call/acme/http/v1
          input: "{{ call.input }}"
          with: { path: "{{ '/' + call.input.id }}" }
          onSuccess: { value: "{{ call.result.value.body }}", assign: { id: "{{ provider.metadata.id }}" } }
          onFailure: { assign: { code: "{{ call.result.code }}" } }
        output: "{{ step.result.value }}"
        assign: { took: "{{ step.metadata.exitedAt }}" }
        next: done
        catch:
          - { match: { types: [timeout] }, output: "{{ failure.code }}", assign: { failed: "{{ step.result.code }}" }, next: done }
      done: { action: Return, value: "{{ vars.id }}" }
entrypoint: fan
steps:
  fan:
    action: Gather
    over: "{{ step.input.items }}"
    call: { flow: Charge, input: "{{ call.index }}", onSuccess: { assign: { last: "{{ flow.vars.id }}" } } }
    concurrency: 2
    completion: { successes: "{{ step.metadata.dispatchCount - 1 }}", wait: false }
    output: "{{ step.results }}"
    catch: [{ match: { codes: [System.GatherCompletionUnmet] }, next: wait }]
    next: choose
  choose:
    action: Match
    input: "{{ step.input.size() }}"
    cases: [{ when: "{{ match.input > 1 }}", output: "{{ match.input }}", assign: { n: 1 }, next: shape }]
    default: { next: wait }
  shape: { action: Pass, output: { a: [1, "{{ vars.n }}"], b: { c: x } }, next: done }
  wait: { action: Sleep, for: PT1S, next: until }
  until: { action: Sleep, until: "{{ vars.until }}", next: fail }
  fail: { action: Raise, result: { type: Domain, code: Run.Gave.Up, retryable: false } }
  done: { action: Return }
"#;

#[test]
fn every_field_of_every_action_compiles() {
    let plan = plan(EVERYTHING);
    let names: Vec<&str> = plan.flows().iter().map(|flow| flow.name.as_ref()).collect();
    assert_eq!(names, ["", "Charge"]);
    let root = plan.flow(FlowId::ROOT);
    let actions: Vec<&str> = root.steps.iter().map(|step| step.action.name()).collect();
    assert_eq!(actions, ["Gather", "Match", "Pass", "Sleep", "Sleep", "Raise", "Return"]);
    assert_eq!(&*root.step(root.entrypoint).name, "fan");
    let Action::Gather(gather) = &root.step(root.entrypoint).action else { panic!() };
    assert!(matches!(gather.calls[0].target, Target::Flow(FlowId(1))));
    assert_eq!((gather.concurrency, gather.wait), (Some(2), false));
    let charge = &plan.flow(FlowId(1)).steps[0];
    let Action::Call(charge) = &charge.action else { panic!() };
    let always = charge.stack[0].phase(Phase::Always);
    assert!(always.acts && always.cleanup.is_some());
    assert!(
        matches!(&always.with, With::Literal { value, prepared: Ok(_) } if *value == Value::empty_object())
    );
}

#[test]
fn what_holds_no_expression_is_constant() {
    let plan = plan(EVERYTHING);
    let Action::Pass(tail) = &plan.flow(FlowId::ROOT).steps[2].action else { panic!() };
    let Some(Template::Object(members)) = &tail.output else { panic!() };
    let [(_, Template::Array(a)), (_, Template::Constant(b))] = &**members else { panic!() };
    assert!(matches!(a[..], [Template::Constant(_), Template::Expression(_)]));
    assert_eq!(*b, Value::object([("c", Value::from("x"))]));
}

#[test]
fn a_plan_knows_what_it_is_made_of() {
    let full = plan(EVERYTHING);
    assert!(full.reruns() && full.needs_unwind());
    let codes: Vec<String> = full.codes().iter().map(ToString::to_string).collect();
    assert_eq!(
        codes,
        [
            "Provider.Call.Http.Throttled",
            "Run.Failed",
            "Run.Gave.Up",
            "System.GatherCompletionUnmet"
        ]
    );
    let bare = plan(&root("steps: { a: { action: Return, value: 1 } }"));
    assert!(!bare.reruns() && !bare.needs_unwind());
    assert!(bare.programs().is_empty());
}

/// A comment ends with the definition: what runs does not have it, so nothing at run time can show it or act by it.
#[test]
fn no_comment_is_in_a_plan() {
    let text = r#"
$schema: https://mwl.dev/v0.1/flow/schema.json
comment: remark 1
entrypoint: a
middleware:
  - comment: remark 2
    provider: mwl:provider.middleware/mwl/finally/v1
    onAlways: { with: { call: { comment: remark 3, provider: mwl:provider.call/mwl/mock/v1 } } }
steps:
  a:
    comment: remark 4
    action: Call
    call: { comment: remark 5, flow: F }
    next: b
    catch: [{ comment: remark 6, match: { codes: ["*"] }, next: b }]
  b:
    comment: remark 7
    action: Match
    cases: [{ comment: remark 8, when: "{{ true }}", next: c }]
    default: { comment: remark 9, next: c }
  c: { comment: remark 10, action: Raise, result: { code: A.B } }
flows: { F: { comment: remark 11, entrypoint: x, steps: { x: { comment: remark 12, action: Return } } } }
"#;
    let (plan, warnings) = compiled(text, Strictness::Runtime).unwrap();
    assert_eq!(
        (format!("{plan:?}").contains("remark"), warnings.contains("remark")),
        (false, false)
    );
}

#[test]
fn every_expression_is_found_where_it_stands() {
    let plan = plan(EVERYTHING);
    let programs = plan.programs();
    let written = EVERYTHING.matches("{{ ").count();
    assert_eq!(programs.len(), written);
    let cleanup: Vec<_> = programs.iter().filter(|(site, _)| site.cleanup).collect();
    assert_eq!(cleanup.len(), 2);
    assert!(cleanup.iter().all(|(site, _)| site.flow == FlowId(1) && site.step.is_some()));
    assert_eq!(cleanup[0].0.construct, Construct::Call);
    assert!(cleanup[0].1.roots().contains(Root::Middleware));
    assert_eq!(cleanup[1].0.construct, Construct::Arm);
    let stack = programs.iter().filter(|(site, _)| site.step.is_none());
    assert!(stack.clone().all(|(site, _)| matches!(site.construct, Construct::Phase(_))));
    assert_eq!(stack.count(), 4);
}

#[test]
fn an_onalways_that_only_captures_needs_an_unwind() {
    let timeout =
        "provider: mwl:provider.middleware/mwl/timeout/v1, onEntry: { with: { duration: PT1S } }";
    let with = |always: &str| {
        plan(&root(&format!(
            "middleware: [{{ {timeout}{always} }}]\nsteps: {{ a: {{ action: Return }} }}"
        )))
    };
    assert!(!with("").needs_unwind());
    assert!(with(", onAlways: { assign: { x: 1 } }").needs_unwind());
}

#[test]
fn literals_that_fail_are_kept_for_run_time() {
    let text = root(
        "middleware: [{ provider: mwl:provider.middleware/mwl/retry/v1 }]\nsteps: { a: { action: Return } }",
    );
    let (plan, _) = compiled(&text, Strictness::Runtime).unwrap();
    let with = &plan.flow(FlowId::ROOT).stack[0].phase(Phase::Entry).with;
    let With::Literal { prepared: Err(failure), .. } = with else { panic!("{with:?}") };
    assert_eq!(failure.code, crate::language::code::system::PARAMETER_VALIDATION_FAILED);
}

#[test]
fn asking_whether_something_is_there_is_always_right() {
    plan(&root(r#"steps: { a: { action: Return, value: "{{ has(step.result) ? 1 : 2 }}" } }"#));
}

#[test]
fn names_resolve_from_where_they_are_declared() {
    let plan = plan(&root("
flows:
  Shared: { entrypoint: a, steps: { a: { action: Return, value: outer } } }
  Caller: { entrypoint: a, steps: { a: { action: Call, call: { flow: Shared }, next: b }, b: { action: Return } } }
  Nest:
    flows: { Shared: { entrypoint: a, steps: { a: { action: Return, value: inner } } } }
    entrypoint: a
    steps: { a: { action: Call, call: { flow: Shared }, next: b }, b: { action: Call, call: { flow: Caller }, next: c }, c: { action: Return } }
steps: { a: { action: Call, call: { flow: Nest }, next: b }, b: { action: Return } }
"));
    let target = |flow: &str, step: usize| {
        let flow = plan.flows().iter().find(|plan| &*plan.name == flow).unwrap();
        let Action::Call(call) = &flow.steps[step].action else { panic!() };
        let Target::Flow(id) = call.call.target else { panic!() };
        let Action::Return(Some(Template::Constant(value))) = &plan.flow(id).steps[0].action else {
            return plan.flow(id).name.to_string();
        };
        value.as_str().unwrap().to_owned()
    };
    assert_eq!(target("Nest", 0), "inner");
    assert_eq!(target("Caller", 0), "outer");
    assert_eq!(target("Nest", 1), "Caller");
}

fn entry(name: &str, rest: &str) -> String {
    format!("{{ provider: mwl:provider.middleware/mwl/{name}/v1, {rest} }}")
}

fn retry(attempts: &[u32]) -> String {
    let policy = |attempts| format!("{{ match: {{ codes: [A] }}, attempts: {attempts} }}");
    let policies: Vec<String> = attempts.iter().map(policy).collect();
    entry("retry", &format!("onEntry: {{ with: {{ policies: [{}] }} }}", policies.join(", ")))
}

const HTTP: &str = "{ provider: mwl:provider.call/acme/http/v1, with: { path: / } }";

fn call_step(stack: &[&str], next: &str) -> String {
    format!("{{ action: Call, call: {HTTP}, middleware: [{}], next: {next} }}", stack.join(", "))
}

fn most_calls(rest: &str) -> Option<u64> {
    plan(&root(&format!("{rest}\n  z: {{ action: Return }}"))).most_calls()
}

#[test]
fn the_most_calls_within_a_stack_are_known() {
    let finally = entry("finally", &format!("onAlways: {{ with: {{ call: {HTTP} }} }}"));
    let endless = entry("loop", "onSuccess: { when: \"{{ vars.more }}\" }");
    let timeout = entry("timeout", "onEntry: { with: { duration: PT1S } }");
    let computed = entry("retry", "onEntry: { with: \"{{ vars.policies }}\" }");
    for (stack, calls) in [
        (&[][..], Some(1)),
        (&[&*timeout], Some(1)),
        (&[&*retry(&[3])], Some(3)),
        (&[&*retry(&[3, 5])], Some(7)),
        (&[&*retry(&[2]), &*timeout, &*retry(&[3])], Some(6)),
        (&[&*finally, &*retry(&[3])], Some(4)),
        (&[&*retry(&[3]), &*finally], Some(6)),
        (&[&*endless], None),
        (&[&*computed], None),
    ] {
        let flow = format!("steps:\n  a: {}", call_step(stack, "z"));
        assert_eq!(most_calls(&flow), calls, "{stack:?}");
    }
    let flow = format!("middleware: [{}]\nsteps:\n  a: {}", retry(&[2]), call_step(&[], "z"));
    assert_eq!(most_calls(&flow), Some(2));
}

#[test]
fn the_most_calls_of_a_graph_are_known() {
    let ways = format!(
        "steps:\n  a: {{ action: Match, cases: [{{ when: true, next: b }}], default: {{ next: c }} }}\n  \
         b: {}\n  c: {}",
        call_step(&[], "c"),
        call_step(&[&*retry(&[4])], "z")
    );
    assert_eq!(most_calls(&ways), Some(5));
    let back = format!("steps:\n  a: {}\n  b: {}", call_step(&[], "b"), call_step(&[], "a"));
    assert_eq!(most_calls(&back), None);
    let idle = "steps:\n  a: { action: Pass, next: b }\n  b: { action: Pass, next: a }";
    assert_eq!(most_calls(idle), Some(0));
    let gather =
        |form: &str| most_calls(&format!("steps:\n  a: {{ action: Gather, {form}, next: z }}"));
    assert_eq!(gather(&format!("calls: [{HTTP}, {HTTP}]")), Some(2));
    assert_eq!(gather(&format!("over: [1, 2, 3], call: {HTTP}")), Some(3));
    assert_eq!(gather(&format!("over: \"{{{{ vars.all }}}}\", call: {HTTP}")), None);
}

/// Literal arguments are said in the middleware's own terms, computed ones as they were written.
#[test]
fn a_stack_in_words() {
    let plan = plan(&root(
        r#"
flows: { Tell: { entrypoint: x, steps: { x: { action: Return } } } }
middleware:
  - { provider: mwl:provider.middleware/mwl/finally/v1, onAlways: { with: { call: { flow: Tell } } } }
  - provider: mwl:provider.middleware/mwl/finally/v1
    onAlways: { with: { call: { flow: { entrypoint: x, steps: { x: { action: Return } } } } } }
  - provider: mwl:provider.middleware/mwl/finally/v1
    onAlways: { when: false, with: { call: { provider: mwl:provider.call/acme/http/v1, with: { path: / } } } }
  - { provider: mwl:provider.middleware/mwl/timeout/v1, onEntry: { with: { duration: PT90S } } }
  - { provider: mwl:provider.middleware/mwl/timeout/v1, onEntry: { with: { duration: "{{ vars.most }}" } } }
  - provider: mwl:provider.middleware/mwl/retry/v1
    onEntry:
      with:
        policies:
          - { match: { codes: [A.B, "C.*"], types: [error] }, attempts: 3, backoff: { initial: PT1S, rate: 2 } }
          - { match: { retryable: true }, attempts: "{{ vars.tries }}" }
    onFailure: { with: { delay: PT2S } }
  - { provider: mwl:provider.middleware/mwl/retry/v1, onEntry: { with: { policies: "{{ vars.policies }}" } } }
  - { provider: mwl:provider.middleware/mwl/loop/v1, onSuccess: { when: "{{middleware.metadata.iteration < 3}}" } }
parameters: { type: object, properties: { most: {}, tries: {}, policies: {} } }
steps: { a: { action: Return } }
"#,
    ));
    insta::assert_snapshot!(plan.described(&plan.flow(FlowId::ROOT).stack).join("\n"), @"
    finally: calls the Flow Tell
    finally: calls a Flow of its own
    finally: calls mwl:provider.call/acme/http/v1; onAlways when false
    timeout: PT1M30S
    timeout: {{ vars.most }}
    retry: A.B or C.*, type error, 3 attempts, waits PT1S ×2; match retryable true, attempts {{ vars.tries }}; waits PT2S where that says so
    retry: policies {{ vars.policies }}
    loop: onSuccess when {{ middleware.metadata.iteration < 3 }}
    ");
}
