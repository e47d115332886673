//! The cost of the engine around a call that costs almost nothing: a bare call, stacks, a graph.
//!
//! Times can only be compared within one run. The allocations are asserted: they are the same in every
//! run, and a careless change shows first as one more of them.

#![expect(clippy::print_stdout, reason = "a bench says what it measured")]
#![expect(clippy::unwrap_used, reason = "a bench that cannot run ends")]

use std::hint::black_box;
use std::sync::Arc;

use criterion::Criterion;
use mwl_proxy::language::definition::{Strictness, compile};
use mwl_proxy::language::engine::{Start, run};
use mwl_proxy::language::plan::Plan;
use mwl_proxy::language::value::Value;
use mwl_proxy::proxy::catalog;
use mwl_proxy::source::{Format, Sources};
use serde_json::{Value as Json, json};
use tokio::runtime::{Builder, Runtime};

/// The name of a case, its definition, and the allocations of one run.
struct Case {
    name: &'static str,
    definition: Json,
    allocations: u64,
}

fn cases() -> Vec<Case> {
    let timeout = || entry("timeout", &json!({ "duration": "PT5S" }));
    let policies = json!({ "policies": [{ "match": { "codes": ["*"] }, "attempts": 3 }] });
    let retry = || entry("retry", &policies);
    let breaker = own("circuit-breaker", &json!({}));
    let at_once = own("concurrency-limit", &json!({ "max": 100 }));
    let in_a_time = own("rate-limit", &json!({ "rate": 1_000_000_000 }));
    let works = json!({ "value": 1 });
    let fails = json!({ "failure": { "type": "error", "code": "Bench.Failed" } });
    let case = |name, with: &Json, stack: Vec<Json>, allocations| Case {
        name,
        definition: definition(with, &stack, None),
        allocations,
    };
    vec![
        // The provider's own future, and the empty `platform` at the start.
        case("a bare call", &works, vec![], 2),
        // Entries that a success passes cost nothing, nor does a timeout around a call that does not wait.
        case("Timeout", &works, vec![timeout()], 2),
        case("Timeout over Retry over Timeout", &works, vec![timeout(), retry(), timeout()], 2),
        case("three attempts that fail", &fails, vec![retry()], 22),
        // What decides in place makes no state for a run that passes.
        case("a breaker over two limits", &works, vec![breaker, at_once, in_a_time], 2),
        Case {
            name: "a graph of two Steps",
            definition: definition(&works, &[], Some(&json!({ "action": "Pass", "next": "done" }))),
            allocations: 3,
        },
    ]
}

fn entry(name: &str, with: &Json) -> Json {
    let provider = format!("mwl:provider.middleware/mwl/{name}/v1");
    json!({ "provider": provider, "onEntry": { "with": with } })
}

/// One of the proxy's own middlewares.
fn own(name: &str, with: &Json) -> Json {
    let provider = format!("mwl:provider.middleware/mwl-proxy/{name}/v1");
    json!({ "provider": provider, "onEntry": { "with": with } })
}

fn definition(with: &Json, stack: &[Json], between: Option<&Json>) -> Json {
    let call = json!({ "provider": "mwl:provider.call/mwl/mock/v1", "with": with });
    let next = if between.is_some() { "between" } else { "done" };
    let work = json!({ "action": "Call", "call": call, "middleware": stack, "next": next });
    let mut steps = json!({ "work": work, "done": { "action": "Return" } });
    if let (Some(between), Some(steps)) = (between, steps.as_object_mut()) {
        steps.insert("between".to_owned(), between.clone());
    }
    let schema = "https://mwl.dev/v0.1/flow/schema.json";
    json!({ "$schema": schema, "entrypoint": "work", "steps": steps })
}

fn plan(definition: &Json) -> Arc<Plan> {
    let text = definition.to_string();
    let node = Sources::default().parse("bench.json", &text, Format::Json).unwrap();
    compile(&node, &catalog(None), Strictness::Load).unwrap().0
}

fn once(runtime: &Runtime, plan: &Plan, with: &Value) {
    let mut start = Start::new("bench");
    let outcome = run(plan, &mut start, with.clone(), Value::Null);
    black_box(runtime.block_on(outcome));
}

fn main() {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    let mut criterion = Criterion::default().configure_from_args();
    let with = Value::empty_object();
    let mut wrong = Vec::new();
    for Case { name, definition, allocations } in cases() {
        let plan = plan(&definition);
        // Everything that is made only once is made before the count.
        once(&runtime, &plan, &with);
        let counted = allocation_counter::measure(|| once(&runtime, &plan, &with)).count_total;
        println!("{name}: {counted} allocations");
        if counted > allocations {
            wrong.push(format!("{name}: {counted} allocations, more than {allocations}"));
        }
        criterion.bench_function(name, |bencher| {
            bencher.iter(|| once(&runtime, &plan, &with));
        });
    }
    criterion.final_summary();
    assert!(wrong.is_empty(), "{}", wrong.join("; "));
}
