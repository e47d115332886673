//! Parameter schemas: JSON Schema 2020-12 with `format` asserted, closed by default (MWL, "parameters" and
//! "Validation" of the Flow object).
//!
//! A schema is compiled at load. It is refused there if it could not be honoured later: another dialect, a
//! format that we cannot check, a `$ref` that would have to be fetched. Most `with`s of a hot path are empty
//! or open. So these two shapes are recognised at compile time and never reach the validator, which needs the
//! value as a `serde_json` tree.

use jsonschema::{Draft, PatternOptions, Validator};

pub use self::room::Room;
use self::unfolded::{Unfolded, unfolded};
pub use self::violation::Violation;
use self::violation::{quoted, shown, too_long, violation};

use super::temporal::{Span, Timestamp};
use super::value::{Map, Value};
use crate::source::with_article;

mod pattern;
mod room;
mod targets;
mod unfolded;
mod violation;
mod work;

/// The dialect of MWL's schemas.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// The largest schema for which a value is checked without asking first how long that takes.
const SMALL: usize = 2_000;

/// How long it takes to compile a part of a schema, and each value in it, in nanoseconds.
const COMPILED: u64 = 20_000;
const COMPILED_PART: u64 = 1_000;

/// How long the check of one request's arguments may take, in nanoseconds.
const MOST_WORK: u64 = 100_000_000;

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
    Full(Box<Compiled>),
}

/// A schema for the validator.
#[derive(Debug)]
struct Compiled {
    validator: Validator,
    schema: serde_json::Value,
    /// Whether the length of a value doesn't tell how long its check takes.
    heavy: bool,
}

/// Why a schema is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// What is wrong, and what to do.
    pub message: String,
    /// A JSON Pointer to the part that is wrong, or to the whole.
    pub pointer: String,
}

impl Schema {
    /// Compiles a `parameters` schema. `"type": "object"` is required at the top level, which is closed
    /// unless it sets `additionalProperties`.
    ///
    /// # Errors
    ///
    /// What is wrong with the schema.
    pub fn compile(schema: &Value) -> Result<Self, Invalid> {
        Self::compile_within(schema, None)
    }

    /// Compiles one of the schemas of a file, in whose `room` its patterns must find place.
    ///
    /// # Errors
    ///
    /// As [`compile`](Self::compile).
    pub fn compile_in(schema: &Value, room: &Room) -> Result<Self, Invalid> {
        Self::compile_within(schema, Some(room))
    }

    fn compile_within(schema: &Value, room: Option<&Room>) -> Result<Self, Invalid> {
        let Some(written) = schema.as_object() else {
            return Err(Invalid::whole(format!(
                "a parameter schema is an object, not {}",
                with_article(schema.type_name())
            )));
        };
        let kind = written.get("type");
        if kind.and_then(Value::as_str) != Some("object") {
            let seen =
                kind.map_or_else(|| ": add it".to_owned(), |kind| format!(", not {}", shown(kind)));
            return Err(Invalid::whole(format!(
                "a parameter schema must have `\"type\": \"object\"` at the top level{seen}"
            )));
        }
        if let Some(dialect) = written.get("$schema")
            && dialect.as_str().map(|uri| uri.trim_end_matches('#')) != Some(DIALECT)
        {
            return Err(Invalid::whole(format!(
                "`$schema` is {}; parameter schemas are written in {DIALECT}",
                shown(dialect)
            )));
        }
        let mut closed = written.as_ref().clone();
        closed.entry("additionalProperties".into()).or_insert(Value::Bool(false));
        Ok(Self { check: check_of(&closed, room)?, defaults: defaults_of(&written) })
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
            Check::Full(compiled) => {
                let json = value.to_json();
                if compiled.heavy && work::work(&compiled.schema, &json, MOST_WORK).is_none() {
                    return Err(too_long(value));
                }
                compiled.validate(&json)
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

    /// Validates a literal of a file, if there is `room` for that. If not, everything is valid until run time.
    ///
    /// # Errors
    ///
    /// The first violation that the validator meets.
    pub fn validate_in(&self, value: &Value, room: &Room) -> Result<(), Violation> {
        let Check::Full(compiled) = &self.check else {
            return self.validate(value);
        };
        let json = value.to_json();
        let work = work::work(&compiled.schema, &json, room.left());
        if work.is_some_and(|work| room.takes(work)) { compiled.validate(&json) } else { Ok(()) }
    }

    /// Validates a part of a literal of a file against its part of a schema, if there is `room` for that. That part may
    /// refer to definitions of the `whole` schema. If it cannot be compiled alone, everything is valid.
    ///
    /// # Errors
    ///
    /// The first violation that the validator meets.
    pub fn validate_part(
        part: &serde_json::Value,
        whole: &serde_json::Value,
        value: &Value,
        room: &Room,
    ) -> Result<(), Violation> {
        const PART: &str = "part";
        const DEFINITIONS: &str = "$defs";
        let mut schema = serde_json::json!({ "type": "object", "properties": { PART: part } });
        let definitions = whole.get(DEFINITIONS).filter(|_| targets::refers(part));
        let size = work::size(part).saturating_add(definitions.map_or(0, work::size));
        if !room.takes(COMPILED.saturating_add(COMPILED_PART.saturating_mul(size))) {
            return Ok(());
        }
        if let (Some(definitions), Some(members)) = (definitions, schema.as_object_mut()) {
            members.insert(DEFINITIONS.to_owned(), definitions.clone());
        }
        let Ok(schema) = Self::compile_in(&Value::from(schema), room) else {
            return Ok(());
        };
        let value = Value::object([(PART, value.clone())]);
        schema.validate_in(&value, room).map_err(|mut violation| {
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

impl Compiled {
    fn validate(&self, json: &serde_json::Value) -> Result<(), Violation> {
        self.validator.validate(json).map_err(|error| violation(&error))
    }
}

impl Invalid {
    fn whole(message: String) -> Self {
        Self { message, pointer: String::new() }
    }
}

impl std::fmt::Display for Invalid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
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

fn check_of(closed: &Map, room: Option<&Room>) -> Result<Check, Invalid> {
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
    let Unfolded { size, recursive } = unfolded(&json);
    if size > unfolded::MOST {
        return Err(Invalid::whole(format!(
            "the parameter schema stands for more than {} schemas, since its `$ref`s name some again and again: let fewer name others",
            unfolded::MOST
        )));
    }
    let backtracks = patterns_of(&json, room)?;
    let mut options = jsonschema::options()
        .with_draft(Draft::Draft202012)
        .offline()
        .should_validate_formats(true)
        .should_ignore_unknown_formats(false)
        .with_format("duration", |text: &str| Span::parse(text).is_some())
        .with_format("date-time", |text: &str| Timestamp::parse(text).is_some());
    if let Some(room) = room {
        options = options.with_pattern_cache(room.patterns.clone());
    }
    if backtracks {
        let limited = PatternOptions::fancy_regex().backtrack_limit(pattern::BACKTRACKS);
        options = options.with_pattern_options(limited);
    }
    let validator = options.build(&json).map_err(|error| {
        let place = error.instance_path().to_string();
        let place = if place.is_empty() { "/" } else { &place };
        let error = error.to_string();
        let format = error.strip_prefix("Unknown format: '").and_then(|rest| rest.split_once('\''));
        Invalid::whole(match format {
            Some((format, _)) => format!(
                "the parameter schema is not valid at {place}: the format `{format}` cannot be checked here; write a `pattern` in its place"
            ),
            None => format!("the parameter schema is not valid at {place}: {error}"),
        })
    })?;
    let heavy = recursive || backtracks || size > SMALL;
    Ok(Check::Full(Box::new(Compiled { validator, schema: json, heavy })))
}

/// Finds room for the patterns of a schema, and returns whether a match of one may take long.
fn patterns_of(json: &serde_json::Value, room: Option<&Room>) -> Result<bool, Invalid> {
    let (mut backtracks, mut too_large) = (false, None);
    pattern::each(json, &mut |pointer, text| {
        backtracks |= pattern::backtracks(text);
        if too_large.is_none() && room.is_some_and(|room| !room.takes_pattern(text)) {
            too_large = Some(pointer.to_owned());
        }
    });
    match too_large {
        None => Ok(backtracks),
        Some(pointer) => Err(Invalid {
            message: format!(
                "the pattern at {pointer} takes too long to compile, with those before it in this file: let it repeat less (each turn of `{{50}}` is a copy), or check the value by an expression"
            ),
            pointer,
        }),
    }
}

fn defaults_of(schema: &Map) -> Map {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties
        .iter()
        .flat_map(|properties| properties.iter())
        .filter_map(|(name, property)| Some((name.clone(), property.get("default")?)))
        .collect()
}

#[cfg(test)]
mod tests;
