//! How a value violates a schema, and in which words that is told.

use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind;

use crate::language::code::system;
use crate::language::outcome::Failure;
use crate::language::value::Value;

/// How many characters of a value a message shows.
const SHOWN: usize = 80;

/// How many values of an `enum` a message lists.
const OPTIONS: usize = 12;

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

/// The violation of a value that is not checked.
pub(super) fn too_long(value: &Value) -> Violation {
    Violation {
        message: format!(
            "{} would take too long to check: the schema names itself again and again for the same part, or has patterns that look around",
            shown(value)
        ),
        schema_path: String::new(),
        instance_path: String::new(),
        value: value.clone(),
    }
}

pub(super) fn violation(error: &ValidationError<'_>) -> Violation {
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
            let listed: Vec<String> =
                options.iter().take(OPTIONS).map(ToString::to_string).collect();
            let more = match options.len().saturating_sub(OPTIONS) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("{seen} is not one of {}{more}", listed.join(", "))
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

pub(super) fn quoted(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    let noun = if names.len() == 1 { "member" } else { "members" };
    format!("{noun} {}", names.join(", "))
}

/// `value` as JSON, cut if it is long. A host's object is not opened for a message.
pub(super) fn shown(value: &Value) -> String {
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
