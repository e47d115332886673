//! Parameter schemas: JSON Schema 2020-12 with `format` asserted, closed by default (MWL, "parameters" and
//! "Validation" of the Flow object).
//!
//! A schema is compiled at load. It is refused there if it could not be honoured later: another dialect, a
//! format that we cannot check, a `$ref` that would have to be fetched. Most `with`s of a hot path are empty
//! or open. So these two shapes are recognised at compile time and never reach the validator, which needs the
//! value as a `serde_json` tree.

use jsonschema::error::ValidationErrorKind;
use jsonschema::{Draft, ValidationError, Validator};

use super::code::system;
use super::outcome::Failure;
use super::temporal::{Span, Timestamp};
use super::value::{Map, Value};
use crate::source::with_article;

mod unfolded;

/// The dialect of MWL's schemas.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// How many characters of a value a message shows.
const SHOWN: usize = 80;

/// A compiled parameter schema.
#[derive(Debug)]
pub struct Schema {
    check: Check,
    defaults: Map,
}

/// How values are validated.
#[derive(Debug)]
enum Check {
    /// No member is allowed.
    Empty,
    /// Any object is valid.
    AnyObject,
    /// The validator decides.
    Full(Box<Validator>),
}

/// How a value violates a schema ("System.ParameterValidationFailed").
#[derive(Clone, Debug, PartialEq)]
pub struct Violation {
    /// The place, what is there, and what is wanted.
    pub message: String,
    /// A JSON Pointer to the keyword of the schema that failed.
    pub schema_path: String,
    /// A JSON Pointer to the part of the value that is wrong.
    pub instance_path: String,
    /// That part.
    pub value: Value,
}

impl Schema {
    /// Compiles a `parameters` schema. `"type": "object"` is required at the top level, which is closed
    /// unless it sets `additionalProperties`.
    ///
    /// # Errors
    ///
    /// What is wrong with the schema.
    pub fn compile(schema: &Value) -> Result<Self, String> {
        let Some(written) = schema.as_object() else {
            return Err(format!(
                "a parameter schema is an object, not {}",
                with_article(schema.type_name())
            ));
        };
        let kind = written.get("type");
        if kind.and_then(Value::as_str) != Some("object") {
            let seen =
                kind.map_or_else(|| ": add it".to_owned(), |kind| format!(", not {}", shown(kind)));
            return Err(format!(
                "a parameter schema must have `\"type\": \"object\"` at the top level{seen}"
            ));
        }
        if let Some(dialect) = written.get("$schema")
            && dialect.as_str().map(|uri| uri.trim_end_matches('#')) != Some(DIALECT)
        {
            return Err(format!(
                "`$schema` is {}; parameter schemas are written in {DIALECT}",
                shown(dialect)
            ));
        }
        let mut closed = written.as_ref().clone();
        closed.entry("additionalProperties".into()).or_insert(Value::Bool(false));
        Ok(Self { check: check_of(&closed)?, defaults: defaults_of(&written) })
    }

    /// The schema of no arguments: only an empty object is valid.
    pub fn nothing() -> Self {
        Self { check: Check::Empty, defaults: Map::new() }
    }

    /// Validates `value`. It does not add defaults: that is up to the caller.
    ///
    /// # Errors
    ///
    /// The first violation that the validator meets.
    pub fn validate(&self, value: &Value) -> Result<(), Violation> {
        match &self.check {
            Check::Full(validator) => {
                let json = value.to_json();
                validator.validate(&json).map_err(|error| violation(&error))
            }
            Check::AnyObject if is_object(value) => Ok(()),
            Check::Empty if is_object(value) => nothing_but_empty(value),
            Check::AnyObject | Check::Empty => Err(Violation {
                message: format!(
                    "{} is {}, wanted an object",
                    shown(value),
                    with_article(value.type_name())
                ),
                schema_path: "/type".to_owned(),
                instance_path: String::new(),
                value: value.clone(),
            }),
        }
    }

    /// Validates a part of a value against its part of a schema. That part may refer to definitions of the
    /// whole schema, `root`. If it cannot be compiled alone, everything is valid.
    ///
    /// # Errors
    ///
    /// The first violation that the validator meets.
    pub fn validate_part(
        part: &serde_json::Value,
        root: &serde_json::Value,
        value: &Value,
    ) -> Result<(), Violation> {
        const PART: &str = "part";
        let schema = serde_json::json!({
            "type": "object",
            "properties": { PART: part },
            "$defs": root.get("$defs").cloned().unwrap_or_else(|| serde_json::json!({})),
        });
        let Ok(schema) = Self::compile(&Value::from(schema)) else {
            return Ok(());
        };
        schema.validate(&Value::object([(PART, value.clone())])).map_err(|mut violation| {
            let within = violation.instance_path.strip_prefix("/part").unwrap_or_default();
            violation.message = violation.message.replacen("at /part: ", "", 1);
            violation.message = violation.message.replacen("at /part/", "at /", 1);
            violation.instance_path = within.to_owned();
            violation
        })
    }

    /// Whether it is the schema of no arguments.
    pub const fn takes_nothing(&self) -> bool {
        matches!(self.check, Check::Empty)
    }

    /// The `default`s of the declared top-level properties.
    pub fn defaults(&self) -> &Map {
        &self.defaults
    }
}

fn is_object(value: &Value) -> bool {
    matches!(value, Value::Object(_) | Value::Native(_))
}

fn nothing_but_empty(value: &Value) -> Result<(), Violation> {
    let members = value.as_object().unwrap_or_default();
    if members.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = members.keys().map(AsRef::as_ref).collect();
    Err(Violation {
        message: format!("unexpected {}: no arguments are taken here", quoted(&names)),
        schema_path: "/additionalProperties".to_owned(),
        instance_path: String::new(),
        value: value.clone(),
    })
}

/// Keywords that constrain nothing.
fn is_annotation(keyword: &str) -> bool {
    matches!(
        keyword,
        "$schema"
            | "$id"
            | "$comment"
            | "title"
            | "description"
            | "examples"
            | "default"
            | "deprecated"
    )
}

fn check_of(closed: &Map) -> Result<Check, String> {
    let constrains = |(keyword, value): &(&std::sync::Arc<str>, &Value)| match keyword.as_ref() {
        "type" | "additionalProperties" => false,
        "properties" => value.as_object().is_none_or(|members| !members.is_empty()),
        "required" => value.as_array().is_none_or(|names| !names.is_empty()),
        keyword => !is_annotation(keyword),
    };
    if !closed.iter().any(|member| constrains(&member)) {
        match closed.get("additionalProperties") {
            Some(Value::Bool(false)) => return Ok(Check::Empty),
            Some(Value::Bool(true)) => return Ok(Check::AnyObject),
            _ => {}
        }
    }
    let json = Value::Object(std::sync::Arc::new(closed.clone())).to_json();
    if !unfolded::is_small(&json) {
        return Err(format!(
            "the parameter schema stands for more than {} schemas, since its `$ref`s name some again and again: let fewer name others",
            unfolded::MOST
        ));
    }
    jsonschema::options()
        .with_draft(Draft::Draft202012)
        .offline()
        .should_validate_formats(true)
        .should_ignore_unknown_formats(false)
        .with_format("duration", |text: &str| Span::parse(text).is_some())
        .with_format("date-time", |text: &str| Timestamp::parse(text).is_some())
        .build(&json)
        .map(|validator| Check::Full(Box::new(validator)))
        .map_err(|error| {
            let place = error.instance_path().to_string();
            let place = if place.is_empty() { "/" } else { &place };
            let error = error.to_string();
            match error.strip_prefix("Unknown format: '").and_then(|rest| rest.split_once('\'')) {
                Some((format, _)) => format!(
                    "the parameter schema is not valid at {place}: the format `{format}` cannot be checked here; write a `pattern` in its place"
                ),
                None => format!("the parameter schema is not valid at {place}: {error}"),
            }
        })
}

fn defaults_of(schema: &Map) -> Map {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties
        .iter()
        .flat_map(|properties| properties.iter())
        .filter_map(|(name, property)| Some((name.clone(), property.get("default")?)))
        .collect()
}

fn violation(error: &ValidationError<'_>) -> Violation {
    let instance_path = error.instance_path().to_string();
    let value = Value::from(error.instance().as_ref().clone());
    let problem = problem(error, &value);
    Violation {
        message: if instance_path.is_empty() {
            problem
        } else {
            format!("at {instance_path}: {problem}")
        },
        schema_path: error.schema_path().to_string(),
        instance_path,
        value,
    }
}

/// What was seen and what is wanted. The validator's own message would repeat the whole value, which may be
/// long.
fn problem(error: &ValidationError<'_>, value: &Value) -> String {
    let seen = shown(value);
    match error.kind() {
        ValidationErrorKind::Required { property } => {
            format!("the member {property} is missing, and it is required")
        }
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            let names: Vec<&str> = unexpected.iter().map(String::as_str).collect();
            format!("unexpected {}: not declared by the schema", quoted(&names))
        }
        ValidationErrorKind::Enum { options } => {
            let options = options.as_array().map(Vec::as_slice).unwrap_or_default();
            let options: Vec<String> = options.iter().map(ToString::to_string).collect();
            format!("{seen} is not one of {}", options.join(", "))
        }
        ValidationErrorKind::Format { format } if format == "duration" => {
            format!("{seen} is not a duration, wanted ISO 8601 such as \"PT30S\"")
        }
        ValidationErrorKind::Format { format } if format == "date-time" => {
            format!("{seen} is not a timestamp, wanted RFC 3339 such as \"2024-01-15T09:30:00Z\"")
        }
        _ => error.masked_with(seen).to_string(),
    }
}

fn quoted(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    let noun = if names.len() == 1 { "member" } else { "members" };
    format!("{noun} {}", names.join(", "))
}

/// `value` as JSON, cut if it is long. A host's object is not opened for a message.
fn shown(value: &Value) -> String {
    let text = match value {
        Value::Native(_) => "{…}".to_owned(),
        value => value.to_string(),
    };
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

/// The failure of a call, a phase or a frame whose arguments violate a schema
/// ("System.ParameterValidationFailed").
impl From<Violation> for Failure {
    fn from(violation: Violation) -> Self {
        let Violation { message, schema_path, instance_path, value } = violation;
        let details = [
            ("schemaPath", Value::string(schema_path)),
            ("instancePath", Value::string(instance_path)),
            ("value", value),
        ];
        Self::error(system::PARAMETER_VALIDATION_FAILED, message)
            .with_details(Value::object(details))
    }
}

#[cfg(test)]
mod tests;
