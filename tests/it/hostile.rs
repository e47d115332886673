//! Hostile expressions where expressions stand: in a definition that runs, in a configuration, on the command
//! line. Each ends as it does by itself, and the unit tests hold how long that takes.

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
