//! Numbers, equality, paths.

use super::*;

#[test]
fn whole_numbers_print_without_a_fraction() {
    assert_eq!(Value::Number(5.0).to_string(), "5");
    assert_eq!(Value::Number(-0.5).to_string(), "-0.5");
    assert_eq!(Value::Number(1e300).to_string(), "1e+300");
}

#[test]
fn equality_is_by_value_and_without_member_order() {
    let a: serde_json::Value = serde_json::from_str(r#"{"a":5,"b":[1,null]}"#).unwrap();
    let b: serde_json::Value = serde_json::from_str(r#"{"b":[1.0,null],"a":5.0}"#).unwrap();
    assert_eq!(Value::from(a), Value::from(b));
}

#[test]
fn a_path_says_how_far_it_leads() {
    let value: serde_json::Value = serde_json::from_str(r#"{"a":{"b":[1]}}"#).unwrap();
    let value = Value::from(value);
    let at = |path: &[&str]| {
        let path: Vec<Arc<str>> = path.iter().map(|name| (*name).into()).collect();
        value.at(&path).map(|value| value.to_string())
    };
    let missing = |found, from| Err(Missing { found, from });
    assert_eq!(at(&["a", "b"]).as_deref(), Ok("[1]"));
    assert_eq!(at(&["x", "b"]), missing(0, MissingFrom::Object));
    assert_eq!(at(&["a", "x"]), missing(1, MissingFrom::Object));
    assert_eq!(at(&["a", "b", "0"]), missing(2, MissingFrom::Other("array")));
}

#[test]
fn what_is_not_finite_is_not_a_value() {
    assert!(Value::number(f64::NAN).is_none());
    assert!(Value::number(f64::INFINITY).is_none());
    assert_eq!(Value::number(1.5), Some(Value::Number(1.5)));
}
