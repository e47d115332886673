//! An expression that is evaluated without the CEL crate's evaluator has the same value as with it.

use super::*;
use crate::language::expr::convert::DEPTH;

/// Whether `body` needs no evaluator.
fn is_simple(body: &str) -> bool {
    matches!(compile(body).0.body, Body::Simple(_))
}

#[test]
fn literals_and_paths_in_objects_need_no_evaluator() {
    for (body, simple) in [
        ("vars.name", true),
        ("'x'", true),
        ("{}", true),
        ("{'b': vars.name, 'a': {'n': 1, 'x': null, 't': true}}", true),
        ("{'a': 9007199254740993}", false),
        ("{'a': 1u}", false),
        ("{'a': b'x'}", false),
        ("{'a': now()}", false),
        ("{'a': has(vars.name)}", false),
        ("{'a': vars.items[0]}", false),
        ("{'a': [1]}", false),
        ("{1: 'a'}", false),
        ("{'a': 1, 'a': 2}", false),
        ("{?'a': optional.of(1)}", false),
    ] {
        assert_eq!(is_simple(body), simple, "{body}");
    }
}

#[test]
fn the_evaluator_gives_the_same() {
    for body in [
        "{}",
        "{'b': vars.name, 'a': vars.count, 'c': 'x'}",
        "{'z': {'y': vars.object, 'x': {}}, 'n': -1.5, 'i': 3, 'nothing': null, 'b': false}",
        "{'all': vars}",
        "{'b': vars.absent, 'a': match.value}",
        "{'a': vars.name.length}",
    ] {
        assert!(is_simple(body), "{body}");
        let evaluator = format!("true ? {body} : null");
        assert!(!is_simple(&evaluator), "{evaluator}");
        let (simple, evaluated) = (evaluate(body), evaluate(&evaluator));
        assert_eq!(simple, evaluated, "{body}");
        // The members are in the same order, too.
        let text = |value: Result<Value, _>| value.map(|value| value.to_string());
        assert_eq!(text(simple), text(evaluated), "{body}");
    }
}

#[test]
fn a_value_inside_another_counts_as_deeper() {
    let deep = |levels| (0..levels).fold(Value::Null, |inner, _| Value::array(vec![inner]));
    let vars = |levels| Fixture(Value::object([("vars", Value::object([("deep", deep(levels))]))]));
    for body in ["{'a': {'b': vars.deep}}", "true ? {'a': {'b': vars.deep}} : null"] {
        assert!(compile(body).evaluate(&vars(DEPTH - 2)).is_ok(), "{body}");
        let fault = compile(body).evaluate(&vars(DEPTH - 1)).unwrap_err();
        assert_eq!(fault.to_string(), "the result nests deeper than 128 levels", "{body}");
    }
}
