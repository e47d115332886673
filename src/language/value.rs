//! The data model: the JSON types and nothing more (MWL, "The data model").
//!
//! Three choices carry the rest of the crate. Numbers are doubles, because the model has one number
//! type and `5` is `5.0`. Strings, arrays and objects are shared, so a value crosses a Step, a phase
//! or an attempt by a reference count, never by a copy. And a value may be [`Native`]: an object that
//! the host owns (a request, a response) and that becomes JSON member by member, only when something
//! reads it. That is how a body streams through a Flow that never looks at it.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use indexmap::IndexMap;
use serde::ser::{Error as _, SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};

/// The members of an object. Key order is kept for printing and never read for meaning.
pub type Map = IndexMap<Arc<str>, Value>;

/// A value of the MWL data model ("The JSON data model").
#[derive(Clone, Debug, Default)]
pub enum Value {
    /// `null`.
    #[default]
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A finite number; the model does not tell integers from fractions. Never NaN or infinite: the
    /// constructors that take outside numbers refuse those.
    Number(f64),
    /// A string of Unicode scalar values, compared by code point and never normalised.
    String(Arc<str>),
    /// An array.
    Array(Arc<Vec<Self>>),
    /// An object.
    Object(Arc<Map>),
    /// An object that the host owns, read member by member.
    Native(Arc<dyn Native>),
}

/// An object that lives outside the data plane until an expression reads it.
///
/// The language carries such a value unopened. Only a read makes JSON of it: a single
/// [`member`](Native::member) where an expression names one, all of it ([`to_map`](Native::to_map))
/// where an expression takes the value whole.
pub trait Native: Any + fmt::Debug + Send + Sync {
    /// The member `name`, or `None` where the object has no such member.
    fn member(&self, name: &str) -> Option<Value>;

    /// What the path of `member` and then `rest` leads to. An object with large members overrides this, so
    /// that reading one field makes one field.
    ///
    /// # Errors
    /// Where the path ends before its end; `member` is its first.
    fn at(&self, member: &str, rest: &[Arc<str>]) -> Result<Value, Missing> {
        Missing::follow(self.member(member), rest)
    }

    /// All members, as plain values.
    fn to_map(&self) -> Map;

    /// Told once when the failure or value that carries this object was consumed by a re-run and
    /// nobody will look at it again: what it holds (a connection, an unread body) can be given back.
    fn discard(&self) {}

    /// Why a failure that carries this object cannot be answered by running the work again, where that
    /// is so: a word for `details.reason` (what the work consumed is gone, say).
    fn rerun_refusal(&self) -> Option<&'static str> {
        None
    }

    /// For the host, which alone knows the type behind the value.
    fn as_any(&self) -> &dyn Any;
}

/// Where a path of member names ends before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// How many of its members were there.
    pub found: usize,
    /// What stands at that place.
    pub place: Place,
}

/// What stands where a path cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nothing at all: the root holds nothing here.
    Unset,
    /// An object without the next member.
    Object,
    /// A value of this type, which has no members.
    Other(&'static str),
}

impl Missing {
    /// There is not even a root.
    pub const UNSET: Self = Self { found: 0, place: Place::Unset };
    /// The first member is not there.
    pub const MEMBER: Self = Self { found: 0, place: Place::Object };

    /// What `rest` leads to from a first member, which is `found` if there is one.
    ///
    /// # Errors
    /// Where the path ends before its end, counted from before the first member.
    pub fn follow(found: Option<Value>, rest: &[Arc<str>]) -> Result<Value, Self> {
        found.ok_or(Self::MEMBER)?.at(rest).map_err(Self::below)
    }

    /// The same place, of a path that has one more member in front.
    #[must_use]
    pub const fn below(self) -> Self {
        Self { found: self.found + 1, ..self }
    }
}

impl Value {
    /// A string value.
    pub fn string(text: impl Into<Arc<str>>) -> Self {
        Self::String(text.into())
    }

    /// An array value.
    pub fn array(items: Vec<Self>) -> Self {
        Self::Array(Arc::new(items))
    }

    /// An object value of these members.
    pub fn object<K: Into<Arc<str>>>(members: impl IntoIterator<Item = (K, Self)>) -> Self {
        Self::Object(Arc::new(
            members.into_iter().map(|(key, value)| (key.into(), value)).collect(),
        ))
    }

    /// An object without members.
    pub fn empty_object() -> Self {
        Self::Object(Arc::new(Map::new()))
    }

    /// A number, or `None` where `number` is not finite and so not a value of the model.
    pub fn number(number: f64) -> Option<Self> {
        number.is_finite().then_some(Self::Number(number))
    }

    /// The member `name` of an object; `None` for a missing member and for any other type.
    pub fn get(&self, name: &str) -> Option<Self> {
        match self {
            Self::Object(map) => map.get(name).cloned(),
            Self::Native(native) => native.member(name),
            _ => None,
        }
    }

    /// What `path` leads to: the value itself where it is empty.
    ///
    /// # Errors
    /// Where the path ends before its end.
    pub fn at(&self, path: &[Arc<str>]) -> Result<Self, Missing> {
        let Some((member, rest)) = path.split_first() else {
            return Ok(self.clone());
        };
        match self {
            Self::Object(map) => match map.get(member.as_ref()) {
                Some(value) => value.at(rest).map_err(Missing::below),
                None => Err(Missing::MEMBER),
            },
            Self::Native(native) => native.at(member, rest),
            other => Err(Missing { found: 0, place: Place::Other(other.type_name()) }),
        }
    }

    /// The text of a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The number, where this is one.
    pub fn as_number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// The number, where this is a whole one within `u64` as a double carries it exactly.
    pub fn as_u64(&self) -> Option<u64> {
        let number = self.as_number()?;
        let whole = number.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&number);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked")]
        whole.then_some(number as u64)
    }

    /// The boolean, where this is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(bool) => Some(*bool),
            _ => None,
        }
    }

    /// The elements of an array.
    pub fn as_array(&self) -> Option<&[Self]> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }

    /// The members of an object. A [`Native`] one is taken whole, which is why this gives a shared map.
    pub fn as_object(&self) -> Option<Arc<Map>> {
        match self {
            Self::Object(map) => Some(Arc::clone(map)),
            Self::Native(native) => Some(Arc::new(native.to_map())),
            _ => None,
        }
    }

    /// The host's object of type `T` behind this value.
    pub fn as_native<T: Native>(&self) -> Option<&T> {
        match self {
            Self::Native(native) => native.as_any().downcast_ref(),
            _ => None,
        }
    }

    /// Whether this is `null`.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// The name of the JSON type, for messages.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "boolean",
            Self::Number(_) => "number",
            Self::String(_) => "string",
            Self::Array(_) => "array",
            Self::Object(_) | Self::Native(_) => "object",
        }
    }

    /// The same value as a `serde_json` tree, for libraries that take one.
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Null => serde_json::Value::Null,
            Self::Bool(bool) => (*bool).into(),
            Self::Number(number) => whole(*number).map_or_else(|| (*number).into(), Into::into),
            Self::String(text) => serde_json::Value::String(text.as_ref().to_owned()),
            Self::Array(items) => items.iter().map(Self::to_json).collect(),
            Self::Object(map) => json_members(map),
            Self::Native(native) => json_members(&native.to_map()),
        }
    }
}

fn json_members(map: &Map) -> serde_json::Value {
    map.iter().map(|(key, value)| (key.as_ref().to_owned(), value.to_json())).collect()
}

/// The integer that `number` is, within the range where doubles are exact.
fn whole(number: f64) -> Option<i64> {
    let exact = number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_992.0;
    #[expect(clippy::cast_possible_truncation, reason = "checked to be whole and within 2^53")]
    exact.then_some(number as i64)
}

impl From<serde_json::Value> for Value {
    /// A number beyond the double range becomes the nearest double ("Numbers": inbound conversion
    /// cannot fail).
    fn from(json: serde_json::Value) -> Self {
        match json {
            serde_json::Value::Null => Self::Null,
            serde_json::Value::Bool(bool) => Self::Bool(bool),
            serde_json::Value::Number(number) => Self::Number(number.as_f64().unwrap_or(f64::MAX)),
            serde_json::Value::String(text) => Self::string(text),
            serde_json::Value::Array(items) => {
                Self::array(items.into_iter().map(Self::from).collect())
            }
            serde_json::Value::Object(members) => {
                Self::object(members.into_iter().map(|(key, value)| (key, Self::from(value))))
            }
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::string(text)
    }
}

impl From<bool> for Value {
    fn from(bool: bool) -> Self {
        Self::Bool(bool)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(f64::from(number))
    }
}

/// Deep equality: numbers by value, strings by code point, members without order.
impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Number(a), Self::Number(b)) => a == b,
            (Self::String(a), Self::String(b)) => a == b,
            (Self::Array(a), Self::Array(b)) => a == b,
            (Self::Object(a), Self::Object(b)) => a == b,
            (Self::Native(_), Self::Object(_) | Self::Native(_))
            | (Self::Object(_), Self::Native(_)) => self.as_object() == other.as_object(),
            _ => false,
        }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(bool) => serializer.serialize_bool(*bool),
            Self::Number(number) if !number.is_finite() => {
                Err(S::Error::custom("a number that is not finite has no JSON form"))
            }
            Self::Number(number) => match whole(*number) {
                Some(whole) => serializer.serialize_i64(whole),
                None => serializer.serialize_f64(*number),
            },
            Self::String(text) => serializer.serialize_str(text),
            Self::Array(items) => {
                let mut seq = serializer.serialize_seq(Some(items.len()))?;
                for item in items.iter() {
                    seq.serialize_element(item)?;
                }
                seq.end()
            }
            Self::Object(map) => serialize_members(map, serializer),
            Self::Native(native) => serialize_members(&native.to_map(), serializer),
        }
    }
}

fn serialize_members<S: Serializer>(map: &Map, serializer: S) -> Result<S::Ok, S::Error> {
    let mut members = serializer.serialize_map(Some(map.len()))?;
    for (key, value) in map {
        members.serialize_entry(key.as_ref(), value)?;
    }
    members.end()
}

/// Compact JSON.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

#[cfg(test)]
mod tests;
