//! The JSON Schema of the configuration, for editors. It is made from the loader's tables. It describes
//! the file as written, so wherever a string may hold a variable, the schema allows one. What is written in MWL is
//! described by [`mwl`], for the providers that a route may name.

mod mwl;
mod providers;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};

use super::root::{ROOT, sections};
use super::shape::{Absent, Field, Section, Shape};

/// Sections that have exactly one of these keys.
const FORMS: [(&str, &[&str]); 1] = [("a route", &["upstream", "call", "flow"])];

/// The schema, JSON Schema 2020-12. `documents` are those of the providers that a route may name.
pub fn schema(documents: &[Value]) -> Value {
    let sections = sections().into_iter();
    let mut defs: Map<String, Value> =
        sections.map(|section| (id(section), object(section).into())).collect();
    defs.extend(mwl::definitions(documents));
    defs.insert("durationText".into(), duration());
    let mut root = object(&ROOT);
    root.insert("$schema".into(), "https://json-schema.org/draft/2020-12/schema".into());
    root.insert("title".into(), "mwl-proxy configuration".into());
    root.insert("$defs".into(), defs.into());
    root.into()
}

/// The name of a section's definition: its letters, without the article and punctuation.
fn id(section: &Section) -> String {
    let name = section.name.trim_start_matches("an ").trim_start_matches("a ");
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    letters.collect()
}

fn object(section: &Section) -> Map<String, Value> {
    let required = section.fields.iter().filter(|field| field.absent == Absent::Required);
    let required: Vec<Value> = required.map(|field| field.key.into()).collect();
    let properties: Map<String, Value> =
        section.fields.iter().map(|field| (field.key.to_owned(), property(field).into())).collect();
    let mut schema = Map::new();
    schema.insert("type".into(), "object".into());
    schema.insert("description".into(), section.doc.into());
    schema.insert("properties".into(), properties.into());
    if !required.is_empty() {
        schema.insert("required".into(), required.into());
    }
    schema.insert("additionalProperties".into(), false.into());
    if let Some((_, forms)) = FORMS.iter().find(|(name, _)| *name == section.name) {
        let forms = forms.iter().map(|key| json!({ "required": [key] }));
        schema.insert("oneOf".into(), forms.collect());
    }
    schema
}

fn property(field: &Field) -> Map<String, Value> {
    let mut schema = match shape(&field.shape) {
        Value::Object(schema) => schema,
        _ => Map::new(),
    };
    schema.insert("description".into(), field.doc.into());
    if let Absent::Default(text) = field.absent {
        let default = serde_json::from_str(text).unwrap_or_default();
        schema.insert("default".into(), default);
    }
    schema
}

fn shape(shape: &Shape) -> Value {
    match shape {
        Shape::Text => json!({ "type": "string" }),
        Shape::Boolean => json!({ "type": "boolean" }),
        Shape::Count(least, most) => {
            json!({ "type": "integer", "minimum": least, "maximum": most })
        }
        Shape::Number(least, most) => {
            json!({ "type": "number", "minimum": least, "maximum": most })
        }
        Shape::Duration => json!({ "$ref": "#/$defs/durationText" }),
        Shape::Size => json!({ "type": "string", "pattern": r"^[0-9]+(B|KiB|MiB|GiB)$|\$\{" }),
        Shape::Path => json!({ "type": "string", "pattern": r"^/|\$\{" }),
        Shape::Address => json!({ "type": "string", "examples": ["127.0.0.1:8080"] }),
        Shape::Url => json!({
            "type": "string",
            "pattern": r"^[Hh][Tt][Tt][Pp][Ss]?://|\$\{",
            "examples": ["http://127.0.0.1:3000"],
        }),
        Shape::Endpoint => json!({
            "type": "string",
            "pattern": r"^[Hh][Tt][Tt][Pp][Ss]?://|^unix:/|\$\{",
            "examples": ["http://127.0.0.1:3000", "unix:/run/app.sock"],
        }),
        Shape::Word(words) => json!({ "enum": words }),
        Shape::Any => json!({}),
        Shape::Null => json!({ "type": "null" }),
        Shape::Object => json!({ "type": "object" }),
        Shape::Mwl(piece) => mwl::piece(*piece),
        Shape::Section(section) => json!({ "$ref": format!("#/$defs/{}", id(section)) }),
        Shape::List(inner) => json!({ "type": "array", "items": self::shape(inner) }),
        Shape::Map(inner) => {
            json!({ "type": "object", "additionalProperties": self::shape(inner) })
        }
        Shape::Either(shapes) => {
            json!({ "anyOf": shapes.iter().map(self::shape).collect::<Vec<_>>() })
        }
    }
}

fn duration() -> Value {
    json!({
        "type": "string",
        "description": "An ISO 8601 duration.",
        "anyOf": [{ "format": "duration" }, { "pattern": r"\$\{" }],
        "examples": ["PT0.25S", "PT30S", "PT5M"],
    })
}
