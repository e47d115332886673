//! The data model: the JSON types and nothing more (MWL, "The data model").
//!
//! The rest of the crate builds on three choices. Numbers are doubles, because the model has one number type,
//! and `5` is `5.0`. Strings, arrays and objects are shared: to pass a value through a Step, a phase or an
//! attempt costs a reference count and never a copy. And a value may be [`Native`]: an object that the host
//! owns (a request, a response). It becomes JSON member by member, and only when something reads it. So a
//! body streams through a Flow that never looks at it.

mod array;
mod parsed;

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use serde::ser::Error as _;
use serde::{Serialize, Serializer};

pub use self::array::Array;
use self::parsed::Block;
pub use self::parsed::{Account, ParseError, Parsing};

/// The members of an object. The order of keys is kept for printing; it has no meaning.
pub type Map = IndexMap<Arc<str>, Value>;

/// A value of the MWL data model ("The JSON data model").
#[derive(Clone, Debug, Default)]
pub enum Value {
    /// `null`.
    #[default]
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A finite number; the model does not distinguish integers from fractions. It is never NaN or infinite:
    /// the constructors for numbers from outside refuse those.
    Number(f64),
    /// A string of Unicode scalar values, compared by code point and never normalised.
    String(Arc<str>),
    /// An array.
    Array(Array),
    /// An object.
    Object(Arc<Map>),
    /// An object that the host owns. It is read member by member.
    Native(Arc<dyn Native>),
}

/// An object of the host. An expression sees only what it reads of it.
///
/// The language passes such a value on unopened. Only reading it makes JSON of it: of one
/// [`member`](Native::member) if an expression names one, of everything ([`to_map`](Native::to_map)) if an
/// expression uses the value as a whole.
pub trait Native: Any + fmt::Debug + Send + Sync {
    /// The member `name`, or `None` if the object has no such member.
    fn member(&self, name: &str) -> Option<Value>;

    /// The value at the path that begins with `member` and goes on with `rest`. An object with large members
    /// overrides this, so that reading one field builds only that field.
    ///
    /// # Errors
    /// If a member of the path is missing.
    fn at(&self, member: &str, rest: &[Arc<str>]) -> Result<Value, Missing> {
        Missing::follow(self.member(member), rest)
    }

    /// All members, as plain values.
    fn to_map(&self) -> Map;

    /// Called once when a re-run has consumed the failure or value that carries this object. Nothing will
    /// look at it again, so what it holds (a connection, an unread body) can be given back.
    fn discard(&self) {}

    /// Why running the work again cannot help with a failure that carries this object, if that is so: a word
    /// for `details.reason`. For example, the input of the work is gone.
    fn rerun_refusal(&self) -> Option<&'static str> {
        None
    }

    /// Takes a re-run of the work that has failed with this object from the budget that it has, if any. `None`: the object
    /// knows of no such work.
    fn take_rerun(&self) -> Option<RerunGrant> {
        None
    }

    /// The wait that the peer asked for, if it is longer than the one that the members show.
    fn longer_wait(&self) -> Option<Duration> {
        None
    }

    /// For the host: only it knows the type behind the value.
    fn as_any(&self) -> &dyn Any;
}

/// The answer to a re-run that wants its part of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RerunGrant {
    /// It may be made.
    Granted,
    /// It may not, for this reason: a word for `details.reason`.
    Refused(&'static str),
}

/// Which member of a path is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// How many members before it were found.
    pub found: usize,
    /// What it is missing from.
    pub from: MissingFrom,
}

/// What a member is missing from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingFrom {
    /// The root itself holds nothing here.
    Unset,
    /// An object.
    Object,
    /// A value of this type, which has no members.
    Other(&'static str),
}

impl Missing {
    /// The root holds nothing.
    pub const UNSET: Self = Self { found: 0, from: MissingFrom::Unset };
    /// The first member is missing.
    pub const MEMBER: Self = Self { found: 0, from: MissingFrom::Object };

    /// The value at `rest` below a first member, which is `found` if there is one.
    ///
    /// # Errors
    /// If a member is missing, counted from the first.
    pub fn follow(found: Option<Value>, rest: &[Arc<str>]) -> Result<Value, Self> {
        found.ok_or(Self::MEMBER)?.at(rest).map_err(Self::below)
    }

    /// The same, for a path that has one more member in front.
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
        Self::Array(items.into())
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

    /// A number, or `None` if `number` is not finite and so not a value of the model.
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

    /// The value at `path`, or the value itself if the path is empty.
    ///
    /// # Errors
    /// If a member of the path is missing.
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
            other => Err(Missing { found: 0, from: MissingFrom::Other(other.type_name()) }),
        }
    }

    /// The text of a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The number, if this is one.
    pub fn as_number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// The number, if it is whole, not negative, and small enough to be exact as a double.
    pub fn as_u64(&self) -> Option<u64> {
        let number = self.as_number()?;
        let whole = number.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&number);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked")]
        whole.then_some(number as u64)
    }

    /// The boolean, if this is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(bool) => Some(*bool),
            _ => None,
        }
    }

    /// The elements of an array.
    pub fn as_array(&self) -> Option<&Array> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }

    /// The members of an object. This is a shared map because a [`Native`] object makes one for it.
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
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// `number` as an integer, if it is one and within the range where doubles are exact.
fn whole(number: f64) -> Option<i64> {
    let exact = number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_992.0;
    #[expect(clippy::cast_possible_truncation, reason = "checked to be whole and within 2^53")]
    exact.then_some(number as i64)
}

impl From<serde_json::Value> for Value {
    /// A number beyond the range of doubles becomes the nearest double ("Numbers": inbound conversion cannot
    /// fail).
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

/// Deep equality: numbers by value, strings by code point, members in any order.
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
            Self::Array(Array::Parsed(block)) => block.serialize_array(serializer),
            Self::Array(Array::Values(items)) => serializer.collect_seq(items.iter()),
            Self::Object(map) => serialize_members(map, serializer),
            Self::Native(native) => match native.as_any().downcast_ref::<Block>() {
                Some(parsed) => parsed.serialize_object(serializer),
                None => serialize_members(&native.to_map(), serializer),
            },
        }
    }
}

fn serialize_members<S: Serializer>(map: &Map, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(map.iter().map(|(key, value)| (key.as_ref(), value)))
}

/// Compact JSON.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

#[cfg(test)]
mod tests;
