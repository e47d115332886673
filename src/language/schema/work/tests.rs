use super::*;

fn visits(schema: &Json, value: &Json) -> u64 {
    work(schema, value, u64::MAX).unwrap_or(u64::MAX) / VISIT
}

#[test]
fn a_tree_takes_as_long_as_it_is_large_and_one_that_is_checked_twice_doubles() {
    let tree = serde_json::json!({ "properties": { "l": { "$ref": "#" }, "r": { "$ref": "#" } } });
    let twice = serde_json::json!({ "allOf": [{ "$ref": "#/$defs/n" }], "$defs": { "n": { "allOf": [
        { "properties": { "l": { "$ref": "#/$defs/n" } } }, { "properties": { "l": { "$ref": "#/$defs/n" } } } ] } } });
    let deep = |levels: usize| {
        (0..levels).fold(serde_json::json!({}), |inner, _| serde_json::json!({ "l": inner }))
    };
    assert!(visits(&tree, &deep(64)) < 200);
    assert!(visits(&twice, &deep(10)) > 1 << 10);
    assert_eq!(work(&twice, &deep(64), 1_000_000), None);
    assert_eq!(
        work(&serde_json::json!({ "allOf": [{ "$ref": "#" }] }), &deep(1), 1_000_000),
        None,
        "in a circle"
    );
}

#[test]
fn references_are_followed_as_the_validator_follows_them() {
    let value = serde_json::json!([1, 2, 3]);
    let items = serde_json::json!({ "items": { "enum": [1, 2, 3] } });
    let named = |reference: &str| {
        serde_json::json!({ "$ref": reference, "$defs": {
        "a b": items, "c": { "$anchor": "c", "items": { "enum": [1, 2, 3] } },
        "d": { "$id": "http://x/d", "$ref": "#/$defs/e", "$defs": { "e": items } } } })
    };
    let plain = visits(&items, &value);
    for reference in ["#/$defs/a%20b", "#/$defs/c", "#c", "d", "http://x/d", "d#/$defs/e"] {
        assert!(visits(&named(reference), &value) > plain, "{reference}");
    }
}
