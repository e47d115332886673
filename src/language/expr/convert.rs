//! Turns a CEL result into a value of the data model ("Result values", "Numbers").
//!
//! Only types with exactly one lossless JSON form pass. For the others the author must choose a form in the
//! expression, and the message says how. The CEL crate's own JSON conversion would choose for them.

use std::fmt;
use std::sync::Arc;

use cel::common::types::{
    CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelOptional, CelUInt, Kind,
};
use cel::common::value::Val;

use super::values;
use crate::language::value::{Map, Value};

/// How deep a value may nest. A deeper one could not be dropped, printed or compared safely on a worker's
/// stack, and a Flow that wraps a variable in itself again and again would make one.
pub(super) const DEPTH: usize = 128;

/// Up to this magnitude, a double holds every integer exactly.
pub(super) const EXACT: u64 = 1 << 53;

/// Why a result is not a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoValue {
    /// It has no form in the data model.
    Unrepresentable { place: String, problem: String },
    /// It nests deeper than [`DEPTH`].
    TooDeep,
}

impl fmt::Display for NoValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unrepresentable { place, problem } if place.is_empty() => {
                write!(f, "the result is {problem}")
            }
            Self::Unrepresentable { place, problem } => {
                write!(f, "the result holds, at {place}, {problem}")
            }
            Self::TooDeep => write!(f, "the result nests deeper than {DEPTH} levels"),
        }
    }
}

/// `val` as a value of the data model.
pub(super) fn to_value(val: &dyn Val) -> Result<Value, NoValue> {
    convert(val, 0)
}

fn convert(val: &dyn Val, depth: usize) -> Result<Value, NoValue> {
    if let Some(value) = values::unwrap(val) {
        // A value that is passed on whole is as deep as before; one that is put into another gets deeper.
        if depth > 0 && !fits(&value, depth) {
            return Err(NoValue::TooDeep);
        }
        return Ok(value);
    }
    if depth > DEPTH {
        return Err(NoValue::TooDeep);
    }
    if let Some(text) = values::text_of(val) {
        return Ok(Value::from(text));
    }
    if let Some(double) = val.downcast_ref::<CelDouble>() {
        let double = *double.inner();
        return Value::number(double).ok_or_else(|| {
            unrepresentable(format!("{}, which JSON has no number for", spelled(double)))
        });
    }
    if let Some(bool) = val.downcast_ref::<CelBool>() {
        return Ok(Value::Bool(*bool.inner()));
    }
    if let Some(int) = val.downcast_ref::<CelInt>() {
        return integer(i128::from(*int.inner()));
    }
    if let Some(uint) = val.downcast_ref::<CelUInt>() {
        return integer(i128::from(*uint.inner()));
    }
    if let Some(list) = val.downcast_ref::<CelList<'_>>() {
        return array(list, depth);
    }
    if let Some(map) = val.downcast_ref::<CelMap<'_>>() {
        return object(map, depth);
    }
    other(val)
}

fn other(val: &dyn Val) -> Result<Value, NoValue> {
    let advice = match val.get_type().kind() {
        Kind::NullType => return Ok(Value::Null),
        Kind::Bytes => "bytes: write `base64.encode(…)` for text",
        Kind::Timestamp => "a timestamp: write `string(…)` for RFC 3339 text",
        Kind::Duration => {
            "a duration: write `durationToIso8601(…)` for ISO 8601 text, or `string(…)` for seconds"
        }
        Kind::Type => "a type: compare it, or write its name as a string",
        _ if val.downcast_ref::<CelOptional<'_>>().is_some() => {
            "an optional: write `….orValue(…)` for the value or a default"
        }
        _ => {
            let name = val.get_type().name();
            return Err(unrepresentable(format!("a {name}, which has no JSON form")));
        }
    };
    Err(unrepresentable(advice.to_owned()))
}

fn unrepresentable(problem: String) -> NoValue {
    NoValue::Unrepresentable { place: String::new(), problem }
}

fn spelled(double: f64) -> &'static str {
    match double {
        _ if double.is_nan() => "NaN",
        _ if double > 0.0 => "+Inf",
        _ => "-Inf",
    }
}

fn integer(int: i128) -> Result<Value, NoValue> {
    if int.unsigned_abs() > u128::from(EXACT) {
        return Err(unrepresentable(format!(
            "the integer {int}, beyond 2^53: write `double(…)` to accept the loss, or `string(…)` to keep \
             every digit"
        )));
    }
    #[expect(clippy::cast_precision_loss, reason = "checked to be exact")]
    Ok(Value::Number(int as f64))
}

fn array(list: &CelList<'_>, depth: usize) -> Result<Value, NoValue> {
    let items = list.inner().iter().enumerate().map(|(index, item)| {
        convert(item.as_ref(), depth + 1).map_err(|problem| below(index, problem))
    });
    Ok(Value::array(items.collect::<Result<_, _>>()?))
}

/// The members, sorted by name: the CEL crate keeps no order.
fn object(map: &CelMap<'_>, depth: usize) -> Result<Value, NoValue> {
    let mut members = Map::with_capacity(map.inner().len());
    for (key, value) in map.inner() {
        let CelMapKey::String(name) = key else {
            return Err(unrepresentable(format!(
                "a map with the {} key {}: build it with string keys",
                key.inner().get_type().name(),
                key_text(key)
            )));
        };
        let value =
            convert(value.as_ref(), depth + 1).map_err(|problem| below(name.inner(), problem))?;
        members.insert(Arc::from(name.inner()), value);
    }
    members.sort_unstable_keys();
    Ok(Value::Object(Arc::new(members)))
}

fn key_text(key: &CelMapKey<'_>) -> String {
    match key {
        CelMapKey::Bool(bool) => bool.inner().to_string(),
        CelMapKey::Int(int) => int.inner().to_string(),
        CelMapKey::UInt(uint) => format!("{}u", uint.inner()),
        CelMapKey::String(name) => name.inner().to_owned(),
    }
}

/// `problem`, with `step` put before its place, which is a JSON Pointer.
fn below(step: impl fmt::Display, problem: NoValue) -> NoValue {
    match problem {
        NoValue::Unrepresentable { place, problem } => NoValue::Unrepresentable {
            place: format!("/{}{place}", step.to_string().replace('~', "~0").replace('/', "~1")),
            problem,
        },
        NoValue::TooDeep => NoValue::TooDeep,
    }
}

/// Whether `value` may stand `depth` levels below the top of a result.
pub(super) fn fits(value: &Value, depth: usize) -> bool {
    shallower(value, DEPTH.saturating_sub(depth))
}

/// Whether `value` nests at most `levels` deep. A host's object counts as one level: it is not opened.
fn shallower(value: &Value, levels: usize) -> bool {
    match (value, levels.checked_sub(1)) {
        (Value::Array(_) | Value::Object(_) | Value::Native(_), None) => false,
        (Value::Array(items), Some(levels)) => items.iter().all(|item| shallower(&item, levels)),
        (Value::Object(members), Some(levels)) => {
            members.values().all(|member| shallower(member, levels))
        }
        _ => true,
    }
}
