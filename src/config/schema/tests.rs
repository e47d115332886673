//! The schema against what the loader reads.

use std::sync::Arc;

use super::*;
use crate::config::tests::{all_sections, shipped};
use crate::proxy::provider::http::HttpProvider;
use crate::proxy::settings::Paths;

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
