//! The schema against what the loader reads.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::*;
use crate::config::tests::{all_sections, shipped};
use crate::language::definition::{SCHEMA_URI, Strictness, compile};
use crate::proxy::provider::http::HttpProvider;
use crate::proxy::settings::Paths;
use crate::source::{Format, Sources};

/// The documents of the providers that a route may name.
fn documents() -> Vec<Value> {
    let mut catalog = crate::proxy::catalog(None);
    let http = HttpProvider::new(Arc::default(), None, Paths::default());
    catalog.add_call(Arc::new(http)).unwrap();
    catalog.contracts().map(|contract| contract.document.clone()).collect()
}

#[test]
fn the_schema_knows_what_the_loader_knows() {
    let schema = schema(&documents());
    let value = crate::language::value::Value::from;
    let compiled = crate::language::schema::Schema::compile(&value(schema.clone())).unwrap();
    for name in [
        "minimal.yaml",
        "recipe.yaml",
        "quickstart.yaml",
        "reference.yaml",
        "faults.yaml",
        "health.yaml",
        "limits.yaml",
    ] {
        let variables = [("LISTEN", "127.0.0.1:1"), ("ADMIN", "127.0.0.1:2"), ("FLAKY", "a:1")];
        let loaded = shipped(name, &variables);
        if let Err(violation) = compiled.validate(&value(loaded.written.to_json())) {
            panic!("{name}: {violation:?}");
        }
    }
    // Every section is closed, as in the loader, because the tables make both.
    for section in all_sections() {
        let own = schema["$defs"].get(id(section)).unwrap_or(&schema);
        assert_eq!(own["additionalProperties"], false, "{}", section.name);
    }
    for (key, known) in [("listeners", true), ("listners", false)] {
        let mut config = serde_json::json!({ "listeners": [], "routes": [] });
        config[key] = serde_json::json!([]);
        assert_eq!(compiled.validate(&value(config)).is_ok(), known, "{key}");
    }
}

/// A definition with one of each construct of the language.
fn definition() -> Value {
    let call = json!({
        "provider": "mwl:provider.call/mwl/mock/v1",
        "with": { "value": 1 },
        "onSuccess": {},
        "onFailure": {},
    });
    let policies = json!([{ "match": { "codes": ["*"] }, "attempts": 2 }]);
    json!({
        "$schema": SCHEMA_URI,
        "entrypoint": "call",
        "steps": {
            "call": {
                "action": "Call",
                "call": call,
                "middleware": [{
                    "provider": "mwl:provider.middleware/mwl/retry/v1",
                    "onEntry": { "with": { "policies": policies } },
                    "onSuccess": {},
                    "onFailure": {},
                    "onAlways": {},
                }],
                "catch": [{ "match": { "codes": ["*"] }, "next": "gather" }],
                "next": "gather",
            },
            "gather": {
                "action": "Gather",
                "calls": [call],
                "completion": { "successes": 1 },
                "next": "match",
            },
            "match": {
                "action": "Match",
                "cases": [{ "when": true, "next": "pass" }],
                "default": { "next": "pass" },
            },
            "pass": { "action": "Pass", "next": "sleep" },
            "sleep": { "action": "Sleep", "for": "PT1S", "next": "return" },
            "return": { "action": "Return" },
            "raise": { "action": "Raise", "result": { "code": "A.B" } },
        },
    })
}

/// Where each construct is in that definition, and in `$defs` of the schema.
const CONSTRUCTS: [(&str, &str); 22] = [
    ("", "flow"),
    ("/steps/call", "stepCall"),
    ("/steps/gather", "stepGather"),
    ("/steps/match", "stepMatch"),
    ("/steps/pass", "stepPass"),
    ("/steps/sleep", "stepSleep"),
    ("/steps/return", "stepReturn"),
    ("/steps/raise", "stepRaise"),
    ("/steps/call/call", "call"),
    ("/steps/call/call/onSuccess", "call/properties/onSuccess"),
    ("/steps/call/call/onFailure", "call/properties/onFailure"),
    ("/steps/call/middleware/0", "entry/else"),
    ("/steps/call/middleware/0/onEntry", "middleware.mwl.retry.v1/properties/onEntry"),
    ("/steps/call/middleware/0/onSuccess", "middleware.mwl.retry.v1/properties/onSuccess"),
    ("/steps/call/middleware/0/onFailure", "middleware.mwl.retry.v1/properties/onFailure"),
    ("/steps/call/middleware/0/onAlways", "middleware.mwl.retry.v1/properties/onAlways"),
    ("/steps/call/catch/0", "clause"),
    ("/steps/call/catch/0/match", "matcher"),
    ("/steps/gather/completion", "stepGather/properties/completion"),
    ("/steps/match/cases/0", "stepMatch/properties/cases/items"),
    ("/steps/match/default", "stepMatch/properties/default"),
    ("/steps/raise/result", "stepRaise/properties/result"),
];

/// Both have lists of the fields of each construct: each field is known to both, or to none.
#[test]
fn the_schema_knows_the_fields_that_the_compiler_knows() {
    let schema = schema(&documents());
    let catalog = crate::proxy::catalog(None);
    let refused = |definition: &Value| {
        let text = definition.to_string();
        let node = Sources::default().parse("d.json", &text, Format::Json).unwrap();
        let compiled = compile(&node, &catalog, Strictness::Runtime);
        let found = compiled.map_or_else(|errors| errors, |(_, warnings)| warnings);
        found.0.into_iter().find(|one| one.code == "unknown-field").map(|one| one.message)
    };
    assert_eq!(refused(&definition()), None);
    let properties = |of: &str| {
        let of = schema.pointer(&format!("/$defs/{of}/properties"));
        of.and_then(Value::as_object).unwrap_or_else(|| panic!("{schema:#}"))
    };
    let all: BTreeSet<&String> =
        CONSTRUCTS.iter().flat_map(|(_, of)| properties(of).keys()).collect();
    assert!(all.len() > 30, "{all:?}");
    for (place, of) in CONSTRUCTS {
        for field in all.iter().copied().chain([&"nonsense".to_owned()]) {
            let mut definition = definition();
            let construct = definition.pointer_mut(place).unwrap().as_object_mut().unwrap();
            construct.entry(field.as_str()).or_insert(Value::Null);
            let known = properties(of).contains_key(field);
            let told = refused(&definition);
            assert_eq!(told.is_none(), known, "`{field}` at {place}: {told:?}");
        }
    }
}
