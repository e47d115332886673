//! The middlewares that know what happened before, as entries of a stack: where they stand decides what they see, and
//! they compose with the others.

use std::sync::Arc;
use std::time::Duration;

use mwl_proxy::language::definition::{Strictness, compile};
use mwl_proxy::language::engine::{Start, run};
use mwl_proxy::language::outcome::{Failure, Outcome};
use mwl_proxy::language::plan::Plan;
use mwl_proxy::language::provider::CallProvider;
use mwl_proxy::language::value::Value;
use mwl_proxy::proxy;
use mwl_proxy::source::{Format, Sources};
use serde_json::{Value as Json, json};
use tokio::time::{Instant, sleep};

use crate::support::law::{EXCEEDED, SCRIPT, duration, in_virtual_time, middleware};
use crate::support::script::{Scripted, Turn};

mod breaker;
mod limit;

const LOST: &str = "Provider.Call.Http.ConnectionClosed";

/// A definition, and the provider that it calls.
struct Played {
    plan: Result<Arc<Plan>, Vec<&'static str>>,
    scripted: Arc<Scripted>,
}

impl Played {
    /// Calls without a `tag` fail with these codes in turn, the last one over and over, each after a millisecond.
    fn of(mut definition: Json, turns: &[Option<&'static str>]) -> Self {
        definition["$schema"] = "https://mwl.dev/v0.1/flow/schema.json".into();
        let text = definition.to_string();
        let node = Sources::default().parse("case.json", &text, Format::Json).unwrap();
        let turn = |code| Turn { after: Duration::from_millis(1), code };
        let scripted = Scripted::new(turns.iter().copied().map(turn).collect());
        let mut catalog = proxy::catalog(None);
        catalog.add_call(Arc::clone(&scripted) as Arc<dyn CallProvider>).unwrap();
        let plan = compile(&node, &catalog, Strictness::Load);
        let codes = |found: mwl_proxy::source::Diagnostics| {
            found.0.iter().map(|found| found.code).collect()
        };
        Self { plan: plan.map(|(plan, _)| plan).map_err(codes), scripted }
    }

    /// Of one call in this stack.
    fn around(stack: &Json, turns: &[Option<&'static str>]) -> Self {
        let work = json!({
            "action": "Call", "call": { "provider": SCRIPT }, "middleware": stack, "next": "done",
        });
        let steps = json!({ "work": work, "done": { "action": "Return" } });
        Self::of(json!({ "entrypoint": "work", "steps": steps }), turns)
    }

    /// Of a Step that makes the call `work`, with this cleanup. The Flow `shared`, which both may call, has `entry` around it.
    fn cleaning(entry: &Json, work: &Json, cleanup: &Json, turns: &[Option<&'static str>]) -> Self {
        let shared = json!({
            "entrypoint": "tell",
            "middleware": [entry],
            "steps": {
                "tell": { "action": "Call", "call": { "provider": SCRIPT }, "next": "told" },
                "told": { "action": "Return" },
            },
        });
        let finally = json!({ "provider": middleware("finally"), "onAlways": { "with": cleanup } });
        let work =
            json!({ "action": "Call", "call": work, "middleware": [finally], "next": "done" });
        let steps = json!({ "work": work, "done": { "action": "Return" } });
        let flows = json!({ "shared": shared });
        Self::of(json!({ "entrypoint": "work", "flows": flows, "steps": steps }), turns)
    }

    async fn outcome(&self) -> Outcome {
        let mut start = Start::new("x");
        run(self.plan.as_ref().unwrap(), &mut start, Value::empty_object(), Value::from(7)).await
    }

    /// The code of one execution's failure, or `ok`.
    async fn run(&self) -> String {
        said(&self.outcome().await)
    }

    /// The codes of so many executions, one after the other.
    async fn runs(&self, count: usize) -> Vec<String> {
        let mut codes = Vec::new();
        for _ in 0..count {
            codes.push(self.run().await);
        }
        codes
    }

    /// How many calls were made.
    fn calls(&self) -> usize {
        self.scripted.seen.lock().unwrap().len()
    }
}

fn said(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Success(_) => "ok".to_owned(),
        Outcome::Failure(failure) => short(&failure.code.to_string()),
    }
}

/// The last two segments of a code.
fn short(code: &str) -> String {
    let parts: Vec<&str> = code.rsplitn(3, '.').collect();
    format!("{}.{}", parts[1], parts[0])
}

/// The codes of a failure's chain.
fn chain(outcome: &Outcome) -> Vec<String> {
    let links = outcome.failure().into_iter().flat_map(|failure| failure.chain());
    links.map(|link: &Failure| short(&link.code.to_string())).collect()
}

fn own(name: &str, with: &Json) -> Json {
    let provider = format!("mwl:provider.middleware/mwl-proxy/{name}/v1");
    json!({ "provider": provider, "onEntry": { "with": with } })
}

fn timeout(bound: u64) -> Json {
    let with = json!({ "duration": duration(bound) });
    json!({ "provider": middleware("timeout"), "onEntry": { "with": with } })
}

fn retry(attempts: u32, wait: u64) -> Json {
    let policy = json!({
        "match": { "codes": ["*"] }, "attempts": attempts, "backoff": { "initial": duration(wait) },
    });
    json!({ "provider": middleware("retry"), "onEntry": { "with": { "policies": [policy] } } })
}
