//! The rows of the spec's tables, the MWL functions, names in and out of scope, offsets, limits.

use super::*;

mod functions;
mod hostile;
mod limits;
mod names;
mod reads;
mod results;

/// Bindings from a JSON object, with two clocks that stand still.
struct Fixture(Value);

impl Bindings for Fixture {
    fn root(&self, root: Root) -> Option<Value> {
        self.0.get(root.name())
    }

    fn now(&self) -> i128 {
        1_705_311_000_250_000_000
    }

    fn wall_time(&self) -> i128 {
        1_705_311_001_000_000_000
    }
}

const EVERY: Roots = Roots::of(&Root::ALL);

const DATA: &str = r#"{
    "vars": {
        "count": 5, "ratio": 2.5, "big": 1e300, "name": "modis", "none": null, "yes": true, "one": 1,
        "items": ["a", "b", "c"], "numbers": [3, 1, 2], "i": 1, "half": 0.5,
        "object": {"a": 1, "b": {"c": [1, 2]}}, "same": {"b": {"c": [1.0, 2.0]}, "a": 1.0},
        "list": [{"a": 1}, {"a": 2}], "odd key": "odd", "empty": {}, "pattern": "^m.*s$", "emoji": "é😀x"
    },
    "step": {"input": {"features": [{"id": "x", "step": 1}, {"id": "y", "step": 2}]}},
    "failure": {"details": {"status": 503}}
}"#;

fn json(text: &str) -> Value {
    serde_json::from_str::<serde_json::Value>(text).unwrap().into()
}

fn compile(body: &str) -> Program {
    Program::compile(body, EVERY).unwrap_or_else(|errors| panic!("{body}: {errors:?}"))
}

fn evaluate(body: &str) -> Result<Value, EvalError> {
    compile(body).evaluate(&Fixture(json(DATA)))
}

/// The value as JSON text.
fn value(body: &str) -> String {
    evaluate(body).unwrap_or_else(|error| panic!("{body}: {error:?}")).to_string()
}

fn fault(body: &str) -> String {
    match evaluate(body) {
        Err(EvalError::Fault(message)) => message,
        other => panic!("{body}: {other:?}"),
    }
}

fn unrepresentable(body: &str) -> String {
    match evaluate(body) {
        Err(EvalError::Unrepresentable(message)) => message,
        other => panic!("{body}: {other:?}"),
    }
}

fn refused(body: &str, roots: Roots) -> String {
    let errors = Program::compile(body, roots).expect_err(body);
    let lines = errors.iter().map(|error| format!("{}: {}", error.offset, error.message));
    lines.collect::<Vec<_>>().join("\n")
}

fn check(table: &[(&str, &str)]) {
    for (body, expected) in table {
        assert_eq!(value(body), *expected, "{body}");
    }
}
