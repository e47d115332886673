//! The parts of MWL in the schema of the configuration: entries, calls, Flows and Steps. What is inside a `with` comes from
//! the documents of the providers, so that an editor completes and refuses there as `check` does.
//!
//! The language itself is checked by its compiler, which says more. A test holds both against the same files.

use serde_json::{Map, Value, json};

use super::providers::{call, described, entry, name_of, of_provider};
use crate::config::shape::Piece;

/// Begins with `{{` and ends with `}}`, or contains a variable of the environment or of a stack.
const EXPRESSION: &str = r"^\s*\{\{[\s\S]*\}\}\s*$|\$\{";

/// What each action's Step may have, beside `action` and `comment`: its fields, and those that it must have.
const ACTIONS: [(&str, &[&str], &[&str]); 7] = [
    (
        "Call",
        &["call", "input", "output", "assign", "middleware", "catch", "next"],
        &["call", "next"],
    ),
    (
        "Gather",
        &[
            "over",
            "call",
            "calls",
            "completion",
            "concurrency",
            "output",
            "assign",
            "catch",
            "next",
        ],
        &["next"],
    ),
    ("Match", &["input", "cases", "default"], &["cases", "default"]),
    ("Pass", &["output", "assign", "next"], &["next"]),
    ("Sleep", &["for", "until", "next"], &["next"]),
    ("Return", &["value"], &[]),
    ("Raise", &["result"], &[]),
];

/// The fields of a failure that an author makes.
pub(super) const FAILURE: [&str; 6] =
    ["type", "code", "message", "details", "retryable", "previous"];

/// The definitions, for the providers of these documents.
pub(super) fn definitions(documents: &[Value]) -> Map<String, Value> {
    let mut defs = Map::new();
    let mut add = |name: &str, schema: Value| {
        defs.insert(name.to_owned(), schema);
    };
    add("expression", expression());
    add("codePattern", code_pattern(documents));
    add("matcher", matcher());
    add(
        "clause",
        closed(&fields(&["match", "output", "assign", "next", "comment"]), &["match", "next"]),
    );
    add("call", call(documents));
    add("flow", flow());
    add("step", step());
    for (action, own, required) in ACTIONS {
        let names = [&["action", "comment"], own].concat();
        let required = [&["action"], required].concat();
        let mut schema = closed(&fields(&names), &required);
        if action == "Sleep" {
            put(&mut schema, "oneOf", json!([{ "required": ["for"] }, { "required": ["until"] }]));
        }
        if action == "Gather" {
            put(
                &mut schema,
                "oneOf",
                json!([{ "required": ["over", "call"] }, { "required": ["calls"] }]),
            );
        }
        add(&format!("step{action}"), schema);
    }
    add("middleware", json!({ "type": "array", "items": { "$ref": "#/$defs/entry" } }));
    add("entry", entry(documents));
    for document in documents {
        add(&name_of(document), described(document, of_provider(document)));
    }
    defs
}

/// The schema of a key of the file that holds MWL.
pub(super) fn piece(piece: Piece) -> Value {
    match piece {
        Piece::Flow => reference("flow"),
        Piece::Call => reference("call"),
        Piece::Middleware => reference("middleware"),
        Piece::Assign => field("assign"),
        Piece::Catch => field("catch"),
        Piece::Steps => field("steps"),
        Piece::Flows => field("flows"),
        Piece::Parameters => field("parameters"),
    }
}

pub(super) fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{name}") })
}

/// Adds a keyword to a schema, which is an object.
pub(super) fn put(schema: &mut Value, keyword: &str, value: impl Into<Value>) {
    if let Value::Object(members) = schema {
        members.insert(keyword.to_owned(), value.into());
    }
}

/// An object with these properties and no others.
pub(super) fn closed(properties: &Map<String, Value>, required: &[&str]) -> Value {
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

/// The fields of the language, each of which means the same wherever it stands.
pub(super) fn fields(names: &[&str]) -> Map<String, Value> {
    names.iter().map(|name| ((*name).to_owned(), field(name))).collect()
}

fn field(name: &str) -> Value {
    let text = || json!({ "type": "string" });
    match name {
        "action" => json!({ "enum": ACTIONS.map(|(action, ..)| action) }),
        "assign" => json!({
            "type": "object",
            "description": "Variables and their new values.",
        }),
        "call" => reference("call"),
        "calls" => json!({ "type": "array", "minItems": 1, "items": reference("call") }),
        "cases" => json!({
            "type": "array",
            "items": closed(&fields(&["when", "output", "assign", "next", "comment"]), &["when", "next"]),
        }),
        "catch" => json!({
            "type": "array",
            "description": "In order: the first clause that matches the failure takes it.",
            "items": reference("clause"),
        }),
        "code" | "comment" | "message" => text(),
        "completion" => closed(
            &Map::from_iter([
                ("successes".to_owned(), or_expression(&json!({ "type": "integer" }))),
                ("wait".to_owned(), json!({ "type": "boolean" })),
            ]),
            &["successes"],
        ),
        "concurrency" => json!({ "type": ["integer", "null"], "minimum": 1 }),
        "default" => closed(&fields(&["output", "assign", "next", "comment"]), &["next"]),
        "entrypoint" | "next" => json!({ "type": "string", "description": "The name of a Step." }),
        "flows" => json!({ "type": "object", "additionalProperties": reference("flow") }),
        "for" => or_expression(&json!({ "type": "string", "format": "duration" })),
        "until" => or_expression(&json!({ "type": "string", "format": "date-time" })),
        "match" => reference("matcher"),
        "middleware" => reference("middleware"),
        "over" => or_expression(&json!({ "type": "array" })),
        "parameters" => json!({
            "type": "object",
            "description": "A JSON Schema of the arguments.",
            "properties": { "type": { "const": "object" } },
            "required": ["type"],
        }),
        "previous" => or_expression(&json!({ "type": ["object", "null"] })),
        "result" => closed(&fields(&FAILURE), &["code"]),
        "retryable" => or_expression(&json!({ "type": ["boolean", "null"] })),
        "steps" => json!({ "type": "object", "additionalProperties": reference("step") }),
        "type" => json!({ "type": "string", "not": { "const": "success" } }),
        "when" => json!({
            "description": "Whether this happens: `true`, `false` or an expression.",
            "anyOf": [{ "type": "boolean" }, reference("expression")],
        }),
        // Any value, with expressions in it.
        _ => json!({}),
    }
}

fn expression() -> Value {
    json!({
        "type": "string",
        "description": "A CEL expression, which gives the value: `{{ … }}`.",
        "pattern": EXPRESSION,
    })
}

/// A value that an expression may give.
pub(super) fn or_expression(schema: &Value) -> Value {
    json!({ "anyOf": [schema, reference("expression")] })
}

fn code_pattern(documents: &[Value]) -> Value {
    let codes = documents.iter().filter_map(|document| document.pointer("/failureCatalog/closed"));
    let codes: Vec<&Value> = codes.filter_map(Value::as_array).flatten().collect();
    json!({
        "type": "string",
        "description": "A failure's code: `Prefix.Code`, `Prefix.*` or `*`.",
        "pattern": r"^(\*|[^.*]+(\.[^.*]+)*(\.\*)?)$|\$\{",
        "examples": codes,
    })
}

fn matcher() -> Value {
    let list = |items: Value| json!({ "type": "array", "minItems": 1, "items": items });
    let mut schema = closed(
        &Map::from_iter([
            ("codes".to_owned(), list(reference("codePattern"))),
            ("types".to_owned(), list(json!({ "type": "string", "not": { "const": "success" } }))),
            ("retryable".to_owned(), json!({ "type": "boolean" })),
        ]),
        &[],
    );
    put(&mut schema, "minProperties", 1);
    put(&mut schema, "description", "Which failures: every member present must match.");
    schema
}

fn flow() -> Value {
    let names = ["$schema", "comment", "entrypoint", "flows", "middleware", "parameters", "steps"];
    closed(&fields(&names), &["entrypoint", "steps"])
}

fn step() -> Value {
    let of = |(action, ..): (&str, &[&str], &[&str])| {
        json!({
            "if": { "properties": { "action": { "const": action } }, "required": ["action"] },
            "then": reference(&format!("step{action}")),
        })
    };
    json!({
        "type": "object",
        "properties": { "action": field("action") },
        "required": ["action"],
        "allOf": ACTIONS.map(of),
    })
}
