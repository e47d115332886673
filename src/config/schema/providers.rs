//! The parts of the schema that the documents of the providers make: what a call and an entry may name, and what is inside
//! the `with` of each.

use serde_json::{Map, Value, json};

use super::mwl::{FAILURE, closed, fields, or_expression, put, reference};

/// The phases of an entry, each with the fields of its block beside `when`, `with` and `assign`.
const PHASES: [(&str, &[&str]); 4] = [
    ("onEntry", &["output"]),
    ("onSuccess", &["value"]),
    ("onFailure", &FAILURE),
    ("onAlways", &[]),
];

/// A call: of a provider, or of a Flow.
pub(super) fn call(documents: &[Value]) -> Value {
    let calls: Vec<&Value> = documents.iter().filter(|one| one.get("phases").is_none()).collect();
    let success = closed(&fields(&["value", "assign"]), &[]);
    let failure = closed(&fields(&["assign"]), &[]);
    let properties = json!({
        "provider": providers(&calls),
        "flow": { "anyOf": [
            { "type": "string", "description": "The name of a Flow." },
            reference("flow"),
        ] },
        "input": {},
        "with": or_expression(&json!({ "type": "object" })),
        "onSuccess": success,
        "onFailure": failure,
        "comment": { "type": "string" },
    });
    json!({
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
        "oneOf": [{ "required": ["provider"] }, { "required": ["flow"] }],
        "allOf": by_provider(&calls),
    })
}

/// An entry of a stack: a middleware, or a named stack in its place.
pub(super) fn entry(documents: &[Value]) -> Value {
    let all: Vec<&Value> = documents.iter().filter(|one| one.get("phases").is_some()).collect();
    let stack = json!({
        "type": "object",
        "description": "The stack of this name, in place.",
        "properties": {
            "stack": {
                "type": "string",
                "description": "A name in `stacks`, or `mwl-proxy/standard`.",
                "examples": ["mwl-proxy/standard"],
            },
            "with": { "type": "object", "description": "Arguments for its parameters." },
        },
        "required": ["stack"],
        "additionalProperties": false,
    });
    let mut properties = fields(&["comment"]);
    properties.insert("provider".to_owned(), providers(&all));
    for (phase, _) in PHASES {
        properties.insert(phase.to_owned(), json!({ "type": "object" }));
    }
    let mut entry = closed(&properties, &["provider"]);
    put(&mut entry, "description", "A middleware entry, as MWL writes it.");
    put(&mut entry, "allOf", by_provider(&all));
    json!({
        "type": "object",
        "if": { "required": ["stack"] },
        "then": stack,
        "else": entry,
    })
}

/// The URIs, each with what its provider does.
fn providers(documents: &[&Value]) -> Value {
    let known = documents
        .iter()
        .map(|document| described(document, json!({ "const": document.get("uri") })));
    let variable = json!({ "type": "string", "pattern": r"\$\{" });
    json!({ "anyOf": known.chain([variable]).collect::<Vec<_>>() })
}

fn by_provider(documents: &[&Value]) -> Vec<Value> {
    let of = |document: &&Value| {
        let uri = document.get("uri");
        json!({
            "if": { "properties": { "provider": { "const": uri } }, "required": ["provider"] },
            "then": reference(&name_of(document)),
        })
    };
    documents.iter().map(of).collect()
}

/// The name of a provider's definition: its URI, which a JSON Pointer can hold with other slashes.
pub(super) fn name_of(document: &Value) -> String {
    let uri = document.get("uri").and_then(Value::as_str).unwrap_or_default();
    uri.trim_start_matches("mwl:provider.").replace('/', ".")
}

/// The first paragraph of a document's description is for the reader of an editor's hover.
pub(super) fn described(document: &Value, mut schema: Value) -> Value {
    let text = document.get("description").and_then(Value::as_str).unwrap_or_default();
    put(&mut schema, "description", text.lines().next().unwrap_or_default());
    schema
}

/// What a provider's document adds to a call or to an entry.
pub(super) fn of_provider(document: &Value) -> Value {
    let Some(phases) = document.get("phases").and_then(Value::as_object) else {
        let parameters = document.get("parameters").cloned().unwrap_or_else(|| json!({}));
        let with = or_expression(&open_to_expressions(&parameters, &[]));
        return json!({ "properties": { "with": with } });
    };
    let mut properties = Map::new();
    let mut required = Vec::new();
    for (phase, more) in PHASES {
        let declared = phases.get(phase);
        let parameters = declared.and_then(|declared| declared.get("parameters"));
        let structural = declared.and_then(|declared| declared.get("structural"));
        let structural: Vec<&str> = structural
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let needed = parameters.and_then(|schema| schema.get("required")?.as_array());
        let needs = needed.is_some_and(|names| !names.is_empty());
        let with = match parameters {
            None => json!({ "type": "object", "maxProperties": 0 }),
            Some(schema) if structural.is_empty() => {
                or_expression(&open_to_expressions(schema, &[]))
            }
            Some(schema) => open_to_expressions(schema, &structural),
        };
        let mut schema = block(more, with);
        if needs {
            required.push(phase);
            // One that is switched off needs none.
            put(
                &mut schema,
                "anyOf",
                json!([{ "required": ["with"] }, { "properties": { "when": { "const": false } } , "required": ["when"] }]),
            );
        }
        if let Some(does) = declared.and_then(|declared| declared.pointer("/action/description")) {
            put(&mut schema, "description", does.clone());
        }
        properties.insert(phase.to_owned(), schema);
    }
    json!({ "properties": properties, "required": required })
}

/// A phase block.
fn block(more: &[&str], with: Value) -> Value {
    let names = [&["when", "assign"], more].concat();
    let mut properties = fields(&names);
    properties.insert("with".to_owned(), with);
    closed(&properties, &[])
}

/// A parameter schema in which each value may be given by an expression, except the `structural` ones.
fn open_to_expressions(schema: &Value, structural: &[&str]) -> Value {
    let Some(members) = schema.as_object() else {
        return schema.clone();
    };
    let mut open = Map::new();
    for (keyword, value) in members {
        let value = match (keyword.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                let properties = properties.iter().map(|(name, inner)| {
                    let inner = match name.as_str() {
                        name if structural.contains(&name) => reference(name),
                        "codes" => codes(inner),
                        _ => value_of(inner),
                    };
                    (name.clone(), inner)
                });
                Value::Object(properties.collect())
            }
            ("items" | "additionalProperties", Value::Object(_)) => value_of(value),
            _ => value.clone(),
        };
        open.insert(keyword.clone(), value);
    }
    open.into()
}

/// A list of code patterns.
fn codes(schema: &Value) -> Value {
    let mut schema = schema.clone();
    put(&mut schema, "items", reference("codePattern"));
    or_expression(&schema)
}

/// A value that an expression may give, with its documentation outside, where editors look for it.
fn value_of(schema: &Value) -> Value {
    let mut inner = open_to_expressions(schema, &[]);
    let kind = inner.get("type").cloned();
    let takes_text = match &kind {
        None => true,
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "string"),
        Some(kind) => kind == "string",
    };
    let limited =
        ["enum", "const", "format", "pattern"].iter().any(|word| inner.get(word).is_some());
    if takes_text && !limited {
        return inner;
    }
    let mut outer = Map::new();
    if let Value::Object(members) = &mut inner {
        for word in ["description", "default"] {
            outer.extend(members.remove(word).map(|said| (word.to_owned(), said)));
        }
    }
    outer.insert("anyOf".to_owned(), json!([inner, reference("expression")]));
    outer.into()
}
