//! The rows of the spec's tables, the MWL functions, names in and out of scope, offsets and limits.

use self::table::DATA;
use super::*;

mod functions;
mod hostile;
mod hostile_table;
mod limits;
mod names;
mod reads;
mod results;
mod simple;
mod table;

/// Bindings from a JSON object, with two clocks that do not move.
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

/// The bindings that [`table::TYPICAL`] reads.
const LIVE: &str = r#"{
    "vars": {"n": 2},
    "execution": {"platform": {"environment": "production"}},
    "step": {"input": {"method": "POST", "headers": {"x-tier": "gold", "content-type": "application/json"}}},
    "middleware": {
        "metadata": {"attempt": 2},
        "result": {
            "type": "error", "code": "Provider.Call.Http.Unavailable", "retryable": true,
            "details": {"status": 503, "retryAfter": "PT2S"}
        }
    }
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

/// The expressions of the tables.
pub(super) fn bodies() -> Vec<String> {
    let rows = table::ALL.iter().flat_map(|(_, rows)| *rows).chain(table::TYPICAL);
    let rows = rows.map(|(body, _)| (*body).to_owned());
    rows.chain(hostile_table::hostile().into_iter().map(|(_, body, _)| body)).collect()
}

#[test]
fn typical_predicates_hold() {
    let live = Fixture(json(LIVE));
    for (body, expected) in table::TYPICAL {
        let value = compile(body).evaluate(&live).unwrap();
        assert_eq!(value.to_string(), *expected, "{body}");
    }
}

#[test]
fn no_expression_is_twice_in_the_table() {
    let mut seen = std::collections::BTreeSet::new();
    for (group, rows) in table::ALL {
        assert!(!rows.is_empty(), "{group}");
        for (body, _) in *rows {
            assert!(seen.insert(body), "{body}");
        }
    }
}
