//! Schemas: what is refused at load, what validates, and the messages.

use super::*;

fn json(text: &str) -> Value {
    serde_json::from_str::<serde_json::Value>(text).unwrap().into()
}

fn schema(text: &str) -> Schema {
    Schema::compile(&json(text)).unwrap()
}

fn refused(text: &str) -> String {
    Schema::compile(&json(text)).unwrap_err().to_string()
}

fn broken(schema: &Schema, value: &str) -> Violation {
    schema.validate(&json(value)).unwrap_err()
}

const RETRY: &str = r#"{
    "type": "object",
    "required": ["initial"],
    "properties": {
        "initial": { "type": "string", "format": "duration" },
        "rate": { "type": "number", "minimum": 1, "default": 2 },
        "until": { "type": "string", "format": "date-time" },
        "jitter": { "enum": ["none", "full"], "default": "none" }
    }
}"#;

#[test]
fn the_top_level_is_an_object_in_2020_12() {
    insta::assert_snapshot!(refused("[]"), @"a parameter schema is an object, not an array");
    insta::assert_snapshot!(refused("{}"), @r#"a parameter schema must have `"type": "object"` at the top level: add it"#);
    insta::assert_snapshot!(refused(r#"{"type":"string"}"#), @r#"a parameter schema must have `"type": "object"` at the top level, not "string""#);
    insta::assert_snapshot!(refused(r#"{"type":["object","null"]}"#), @r#"a parameter schema must have `"type": "object"` at the top level, not ["object","null"]"#);
    insta::assert_snapshot!(refused(r#"{"type":"object","$schema":"http://json-schema.org/draft-07/schema#"}"#), @r#"`$schema` is "http://json-schema.org/draft-07/schema#"; parameter schemas are written in https://json-schema.org/draft/2020-12/schema"#);
    assert!(
        Schema::compile(&json(&format!(r#"{{"type":"object","$schema":"{DIALECT}"}}"#))).is_ok()
    );
}

#[test]
fn what_could_not_be_honoured_is_refused_at_compile() {
    assert!(
        refused(r#"{"type":"object","properties":{"a":{"type":"strnig"}}}"#)
            .contains("/properties/a/type")
    );
    let message =
        refused(r#"{"type":"object","properties":{"a":{"$ref":"https://example.com/s.json"}}}"#);
    assert!(message.contains("https://example.com/s.json"), "{message}");
    for format in ["zodiac", "idn-email", "idn-hostname"] {
        let schema = format!(r#"{{"type":"object","properties":{{"a":{{"format":"{format}"}}}}}}"#);
        let says =
            format!("the format `{format}` cannot be checked here; write a `pattern` in its place");
        assert!(refused(&schema).ends_with(&says), "{}", refused(&schema));
    }
    let message = refused(r#"{"type":"object","properties":{"a":{"$ref":"file:///etc/passwd"}}}"#);
    assert!(message.contains("/etc/passwd"), "{message}");
}

#[test]
fn the_top_level_is_closed_unless_it_says_otherwise() {
    let closed = schema(r#"{"type":"object","properties":{"a":{}}}"#);
    assert!(closed.validate(&json(r#"{"a":1}"#)).is_ok());
    assert_eq!(
        broken(&closed, r#"{"a":1,"b":2}"#),
        Violation {
            message: "unexpected member `b`: not declared by the schema".to_owned(),
            schema_path: "/additionalProperties".to_owned(),
            instance_path: String::new(),
            value: json(r#"{"a":1,"b":2}"#),
        }
    );
    let open = schema(r#"{"type":"object","additionalProperties":true}"#);
    assert!(open.validate(&json(r#"{"b":2}"#)).is_ok());
    let typed = schema(r#"{"type":"object","additionalProperties":{"type":"string"}}"#);
    assert!(typed.validate(&json(r#"{"b":"x"}"#)).is_ok());
    assert_eq!(broken(&typed, r#"{"b":2}"#).instance_path, "/b");
    let nested = schema(r#"{"type":"object","properties":{"a":{"type":"object"}}}"#);
    assert!(nested.validate(&json(r#"{"a":{"free":true}}"#)).is_ok());
}

#[test]
fn nothing_takes_nothing() {
    let nothing = Schema::nothing();
    assert!(nothing.validate(&Value::empty_object()).is_ok());
    insta::assert_snapshot!(broken(&nothing, r#"{"a":1,"b":2}"#).message, @"unexpected members `a`, `b`: no arguments are taken here");
    insta::assert_snapshot!(broken(&nothing, "[1]").message, @"[1] is an array, wanted an object");
    let declared = schema(r#"{"type":"object","title":"none","properties":{},"required":[]}"#);
    assert!(matches!(declared.check, Check::Empty));
    let open = schema(r#"{"type":"object","additionalProperties":true}"#);
    assert!(matches!(open.check, Check::AnyObject));
    assert_eq!(broken(&open, "null").schema_path, "/type");
}

#[test]
fn formats_are_asserted() {
    let retry = schema(RETRY);
    for good in ["PT30S", "-PT1S", "P2W", "PT0S", "PT0,5S"] {
        assert!(retry.validate(&json(&format!(r#"{{"initial":"{good}"}}"#))).is_ok(), "{good}");
    }
    insta::assert_snapshot!(broken(&retry, r#"{"initial":"30s"}"#).message, @r#"at /initial: "30s" is not a duration, wanted ISO 8601 such as "PT30S""#);
    insta::assert_snapshot!(broken(&retry, r#"{"initial":"PT1S","until":"tomorrow"}"#).message, @r#"at /until: "tomorrow" is not a timestamp, wanted RFC 3339 such as "2024-01-15T09:30:00Z""#);
    let email = schema(r#"{"type":"object","properties":{"to":{"format":"email"}}}"#);
    assert_eq!(broken(&email, r#"{"to":"nobody"}"#).schema_path, "/properties/to/format");
}

#[test]
fn a_violation_says_where_what_and_why() {
    let retry = schema(RETRY);
    insta::assert_snapshot!(broken(&retry, "{}").message, @r#"the member "initial" is missing, and it is required"#);
    let rate = broken(&retry, r#"{"initial":"PT1S","rate":0.5}"#);
    insta::assert_snapshot!(rate.message, @"at /rate: 0.5 is less than the minimum of 1");
    assert_eq!(rate.schema_path, "/properties/rate/minimum");
    assert_eq!(rate.instance_path, "/rate");
    assert_eq!(rate.value, Value::Number(0.5));
    insta::assert_snapshot!(broken(&retry, r#"{"initial":3}"#).message, @r#"at /initial: 3 is not of type "string""#);
    insta::assert_snapshot!(broken(&retry, r#"{"initial":"PT1S","jitter":"some"}"#).message, @r#"at /jitter: "some" is not one of "none", "full""#);
}

#[test]
fn a_long_value_is_cut_in_the_message_and_whole_in_the_violation() {
    let retry = schema(RETRY);
    let long = "é".repeat(500);
    let violation = broken(&retry, &format!(r#"{{"initial":"{long}"}}"#));
    assert!(violation.message.chars().count() < 200, "{}", violation.message);
    assert_eq!(violation.value, Value::from(long.as_str()));
}

#[test]
fn defaults_are_those_of_the_declared_properties() {
    let retry = schema(RETRY);
    let defaults: Vec<String> = retry.defaults().iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(defaults, ["jitter=\"none\"", "rate=2"]);
    assert!(Schema::nothing().defaults().is_empty());
}

#[test]
fn a_whole_number_is_an_integer_however_it_was_written() {
    let count = schema(r#"{"type":"object","properties":{"n":{"type":"integer"}}}"#);
    assert!(count.validate(&json(r#"{"n":5.0}"#)).is_ok());
    assert!(count.validate(&json(r#"{"n":5.5}"#)).is_err());
}

#[test]
fn references_that_multiply_are_refused() {
    let doubling = |levels: usize| {
        let step = |level| {
            let next = format!(r##"{{ "$ref": "#/$defs/d{}" }}"##, level + 1);
            format!(r#""d{level}": {{ "anyOf": [{next}, {next}] }}"#)
        };
        let steps: Vec<String> = (0..levels).map(step).collect();
        format!(
            r##"{{ "type": "object", "properties": {{ "a": {{ "$ref": "#/$defs/d0" }} }},
                   "$defs": {{ {}, "d{levels}": {{ "type": "string" }} }} }}"##,
            steps.join(",")
        )
    };
    assert_eq!(broken(&schema(&doubling(8)), r#"{ "a": 1 }"#).instance_path, "/a");
    insta::assert_snapshot!(refused(&doubling(40)), @"the parameter schema stands for more than 100000 schemas, since its `$ref`s name some again and again: let fewer name others");
    // A tree's schema names itself.
    let tree =
        r##"{ "type": "object", "properties": { "l": { "$ref": "#" }, "r": { "$ref": "#" } } }"##;
    assert_eq!(schema(tree).validate(&json(r#"{ "l": { "r": {} } }"#)), Ok(()));
}

/// A schema of one pattern for each of `texts`.
fn of_patterns(texts: impl IntoIterator<Item = String>) -> Value {
    let named = texts.into_iter().enumerate();
    let properties = named
        .map(|(at, text)| (format!("p{at}"), Value::object([("pattern", Value::string(text))])));
    Value::object([("type", Value::from("object")), ("properties", Value::object(properties))])
}

#[test]
fn patterns_share_the_room_of_a_file() {
    let room = Room::default();
    let usual = |count: usize| of_patterns((0..count).map(|at| format!("^[a-z]{{1,63}}-{at}$")));
    assert!(Schema::compile_in(&usual(100), &room).is_ok());
    // The same ones again cost nothing.
    let left = room.left();
    assert!(Schema::compile_in(&usual(100), &room).is_ok());
    assert_eq!(room.left(), left);
    for large in ["(a{900}){90}", r"\p{L}{100}", "(?=x)(((a|b){50}){50}){50}", "(?<!x)[^a]{9999}"] {
        let room = Room::default();
        let two = of_patterns(["a".to_owned(), large.to_owned()]);
        let refused = Schema::compile_in(&two, &room).unwrap_err();
        assert_eq!(refused.pointer, "/properties/p1/pattern", "{large}");
        let keys = serde_json::json!({ "type": "object", "patternProperties": { large: {} } });
        let keys = Value::from(keys);
        assert!(Schema::compile_in(&keys, &Room::default()).is_err(), "{large}");
    }
    let many = of_patterns((0..5000).map(|at| format!("[ab]{at}")));
    let refused = Schema::compile_in(&many, &Room::default()).unwrap_err();
    insta::assert_snapshot!(refused.message.replace(&refused.pointer, "…"), @"the pattern at … takes too long to compile, with those before it in this file: let it repeat less (each turn of `{50}` is a copy), or check the value by an expression");
}

#[test]
fn a_literal_is_checked_while_there_is_room() {
    let room = Room::default();
    let schema = schema(r#"{"type":"object","properties":{"a":{"items":{"enum":[1,2,3]}}}}"#);
    let wrong =
        |count: usize| Value::object([("a", Value::array(vec![Value::Number(4.0); count]))]);
    assert!(schema.validate_in(&wrong(1), &room).is_err());
    assert!(schema.validate_in(&wrong(1_000_000), &room).is_ok(), "left to run time");
    assert!(schema.validate_in(&wrong(1), &room).is_err(), "what isn't done takes no room");
    let part = serde_json::json!({ "enum": (0..1000).collect::<Vec<_>>() });
    let check = |room: &Room| Schema::validate_part(&part, &part, &Value::Number(-1.0), room);
    assert!(check(&room).unwrap_err().message.ends_with("10, 11 and 988 more"));
    assert!((0..100).any(|_| check(&room).is_ok()), "nothing is left");
}

/// A value that nests this deep.
fn nested(levels: usize) -> Value {
    (0..levels).fold(Value::Number(1.0), |inner, _| Value::object([("a", inner)]))
}

#[test]
fn what_would_take_too_long_is_refused_before_it_is_checked() {
    // Twice as long for each level.
    let doubling = r##"{"type":"object","properties":{"a":{"$ref":"#/$defs/n"}},
        "$defs":{"n":{"allOf":[{"properties":{"a":{"$ref":"#/$defs/n"}}},{"properties":{"a":{"$ref":"#/$defs/n"}}}]}}}"##;
    let schema = schema(doubling);
    assert!(schema.validate(&nested(10)).is_ok());
    let message = schema.validate(&nested(90)).unwrap_err().message;
    insta::assert_snapshot!(message.split_once('…').unwrap().1, @" would take too long to check: the schema names itself again and again for the same part, or has patterns that look around");
    // A text's length, squared.
    let around = r#"{"type":"object","properties":{"a":{"pattern":"^((?=.*q)a)*$"}}}"#;
    let schema = self::schema(around);
    let text = |length: usize| Value::object([("a", Value::string("a".repeat(length)))]);
    assert!(schema.validate(&text(0)).is_ok());
    assert!(schema.validate(&text(100)).unwrap_err().message.contains("does not match"));
    assert!(schema.validate(&text(60_000)).unwrap_err().message.contains("too long to check"));
    // Each reference of a long list counts, however its target is named.
    for (mark, name, key) in
        [("$anchor", "", "$ref"), ("$dynamicAnchor", "", "$dynamicRef"), ("$id", "x", "$ref")]
    {
        let hash = if name.is_empty() { "#" } else { "" };
        let step = |at: usize| {
            let next = format!(r#"{{"{key}":"{hash}x{}"}}"#, at + 1);
            let all = if at < 40 { format!(r#","allOf":[{next},{next}]"#) } else { String::new() };
            format!(r#""d{at}":{{"{mark}":"x{at}"{all}}}"#)
        };
        let steps: Vec<String> = (0..=40).map(step).collect();
        let whole = format!(
            r#"{{"type":"object","properties":{{"a":{{"{key}":"{hash}x0"}}}},"$defs":{{{}}}}}"#,
            steps.join(",")
        );
        assert!(refused(&whole).contains("more than 100000 schemas"), "{mark}");
    }
}
