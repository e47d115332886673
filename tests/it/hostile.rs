//! Hostile expressions where expressions stand: in a definition that runs, in a configuration, on the command
//! line. Each ends as it does by itself, and the unit tests hold how long that takes.

use std::future::Future as _;
use std::path::Path;

use mwl_proxy::app::build;
use mwl_proxy::config::{self, Origin};
use mwl_proxy::language::code::system;
use mwl_proxy::language::definition::{Strictness, compile};
use mwl_proxy::language::engine::{Start, run};
use mwl_proxy::language::outcome::Outcome;
use mwl_proxy::language::provider::Catalog;
use mwl_proxy::language::value::Value;
use mwl_proxy::proxy::UpstreamRegistry;
use mwl_proxy::source::{Format, Sources};
use mwl_proxy::telemetry::metrics::Metrics;
use serde_json::{Value as Json, json};

use self::hostile_table::{End, hostile, vars};
use crate::support::program::{self, Directory};

#[path = "../../src/language/expr/tests/hostile_table.rs"]
mod hostile_table;

/// A Flow that binds `vars` and then gives the value of `body`.
fn flow(body: &str, vars: &Json) -> Json {
    json!({
        "$schema": "https://mwl.dev/v0.1/flow/schema.json",
        "entrypoint": "bind",
        "steps": {
            "bind": { "action": "Pass", "assign": vars, "next": "give" },
            "give": { "action": "Return", "value": format!("{{{{ {body} }}}}") },
        },
    })
}

/// How a definition that holds the expression ends: refused with a place, or by its Result.
async fn ends(definition: &Json) -> End {
    let mut sources = Sources::default();
    let node = sources.parse("hostile.json", &definition.to_string(), Format::Json).unwrap();
    let plan = match compile(&node, &Catalog::spec_defined(None), Strictness::Load) {
        Ok((plan, _advice)) => plan,
        Err(found) => {
            assert!(found.0.iter().all(|diagnostic| diagnostic.code == "invalid-expression"));
            assert!(sources.render(&found).contains("hostile.json:1:"));
            return End::Refused;
        }
    };
    match run(&plan, &mut Start::new("hostile"), Value::empty_object(), Value::Null).await {
        Outcome::Success(_) => End::Value,
        Outcome::Failure(failure) => {
            assert_eq!(failure.code, system::EXPRESSION_EVALUATION_ERROR);
            End::Failed
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_holds_one_ends() {
    let vars = vars();
    for (what, body, wanted) in hostile() {
        assert_eq!(ends(&flow(&body, &vars)).await, wanted, "{what}");
    }
}

#[test]
fn a_configuration_that_holds_one_loads_or_is_refused() {
    for (what, body, wanted) in hostile() {
        let config = json!({
            "listeners": [{ "address": "127.0.0.1:0" }],
            "upstreams": { "billing": { "endpoints": ["http://127.0.0.1:3000"] } },
            "routes": [{
                "name": "all",
                "match": { "pathPrefix": "/" },
                "upstream": "billing",
                "input": format!("{{{{ {body} }}}}"),
            }],
        });
        let text = config.to_string();
        let loaded =
            config::parse(Path::new("hostile.json"), text.as_str(), Origin::system()).unwrap();
        let built = build(
            loaded,
            &mwl_proxy::proxy::catalog(None),
            &Metrics::new(),
            &UpstreamRegistry::default(),
        );
        match built {
            Ok(_) => assert_ne!(wanted, End::Refused, "{what}"),
            Err(refused) => {
                let told = refused.sources.render(&refused.diagnostics);
                assert!(told.contains("hostile.json:1:"), "{what}: {told}");
                assert_eq!(wanted, End::Refused, "{what}: {told}");
            }
        }
    }
}

#[test]
fn eval_of_one_ends() {
    let directory = Directory::new();
    let bindings = directory.write("bindings.json", &json!({ "vars": vars() }).to_string());
    let bindings = bindings.to_str().unwrap();
    for (what, body, wanted) in hostile() {
        let output = program::run(&["eval", "--bindings", bindings, "--", &body]);
        let ended = match output.status.code() {
            Some(0) => End::Value,
            Some(1) => End::Failed,
            Some(2) => End::Refused,
            other => panic!("{what}: {other:?}"),
        };
        assert_eq!(ended, wanted, "{what}");
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(told.is_empty(), wanted == End::Value, "{what}: {told}");
    }
}

/// A Flow with a list in `vars`, whose other Steps are these.
fn busy_flow(first: &str, steps: &Json) -> Json {
    let list: Vec<u32> = (0..150).collect();
    let begin = json!({ "action": "Pass", "assign": { "list": list, "seen": [] }, "next": first });
    let mut all = json!({ "begin": begin, "end": { "action": "Return" } });
    all.as_object_mut().unwrap().extend(steps.as_object().unwrap().clone());
    json!({
        "$schema": "https://mwl.dev/v0.1/flow/schema.json",
        "entrypoint": "begin",
        "steps": all,
    })
}

/// An expression that does a good part of the work that one evaluation may do.
const COSTLY: &str = "{{ vars.list.all(a, vars.list.all(b, a + b >= 0)) }}";

/// In how many turns `definition` comes to its Result, and that.
async fn turns(definition: &Json) -> (u32, Outcome) {
    let mut sources = Sources::default();
    let node = sources.parse("busy.json", &definition.to_string(), Format::Json).unwrap();
    let compiled = compile(&node, &Catalog::spec_defined(None), Strictness::Load);
    let (plan, _advice) = compiled.unwrap_or_else(|found| panic!("{}", sources.render(&found)));
    let mut start = Start::new("busy");
    let mut work = std::pin::pin!(run(&plan, &mut start, Value::empty_object(), Value::Null));
    let mut turns = 0;
    let turn = std::future::poll_fn(|cx| {
        turns += 1;
        work.as_mut().poll(cx)
    });
    let outcome = turn.await;
    (turns, outcome)
}

#[tokio::test(start_paused = true)]
async fn a_loop_of_costly_steps_shares_its_thread() {
    let steps = json!({
        "grow": {
            "action": "Pass",
            "assign": { "seen": format!("{{{{ vars.seen + [{}] }}}}", &COSTLY[3..COSTLY.len() - 3]) },
            "next": "enough",
        },
        "enough": {
            "action": "Match",
            "cases": [{ "when": "{{ vars.seen.size() < 20 }}", "next": "grow" }],
            "default": { "next": "end", "output": "{{ double(vars.seen.size()) }}" },
        },
    });
    let (turns, outcome) = turns(&busy_flow("grow", &steps)).await;
    assert_eq!(outcome, Outcome::Success(Value::from(20_u32)));
    // There are 43 Steps, so without a regard for their work it would be one.
    assert!(turns >= 20, "{turns}");
}

#[tokio::test(start_paused = true)]
async fn a_gather_of_costly_dispatches_and_arms_shares_its_thread() {
    let steps = json!({
        "fan": {
            "action": "Gather",
            "over": "{{ vars.list.filter(n, n < 20) }}",
            "call": {
                "provider": "mwl:provider.call/mwl/mock/v1",
                "with": { "value": 1, "delay": "PT1S" },
                "input": COSTLY,
                "onSuccess": { "value": COSTLY },
            },
            "output": "{{ double(size(step.results)) }}",
            "next": "end",
        },
    });
    let (turns, outcome) = turns(&busy_flow("fan", &steps)).await;
    assert_eq!(outcome, Outcome::Success(Value::from(20_u32)));
    assert!(turns >= 40, "{turns}");
}

#[tokio::test(start_paused = true)]
async fn what_one_step_evaluates_has_a_bound_in_all() {
    let costly = |names: std::ops::Range<u32>| -> Json {
        names.map(|name| (format!("v{name}"), Json::from(COSTLY))).collect()
    };
    let in_one = json!({ "all": { "action": "Pass", "assign": costly(0..40), "next": "end" } });
    let (_, outcome) = turns(&busy_flow("all", &in_one)).await;
    let failure = outcome.failure().unwrap();
    assert_eq!(failure.code, system::EXPRESSION_EVALUATION_ERROR);
    assert!(failure.message.as_ref().unwrap().contains("over several Steps"), "{failure}");

    let mut spread = serde_json::Map::new();
    for step in 0..10 {
        let next = if step == 9 { "end".to_owned() } else { format!("s{}", step + 1) };
        let assign = costly(4 * step..4 * step + 4);
        spread.insert(
            format!("s{step}"),
            json!({ "action": "Pass", "assign": assign, "next": next }),
        );
    }
    let (_, outcome) = turns(&busy_flow("s0", &Json::Object(spread))).await;
    assert!(outcome.is_success(), "{outcome:?}");
}
