//! Access to a tree, and printing it.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::{Kind, Member, Node, Span};

impl Node {
    /// The member `key` of an object.
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.member(key).map(|member| &member.value)
    }

    /// The member `key` of an object, with the place of its key.
    pub fn member(&self, key: &str) -> Option<&Member> {
        self.as_object()?.iter().find(|member| member.key.as_ref() == key)
    }

    /// The members of an object.
    pub fn as_object(&self) -> Option<&[Member]> {
        match &self.kind {
            Kind::Object(members) => Some(members),
            _ => None,
        }
    }

    /// The elements of an array.
    pub fn as_array(&self) -> Option<&[Self]> {
        match &self.kind {
            Kind::Array(items) => Some(items),
            _ => None,
        }
    }

    /// The elements of an array, or the values of an object's members.
    pub fn children(&self) -> impl Iterator<Item = &Self> {
        let items = self.as_array().unwrap_or_default();
        let members = self.as_object().unwrap_or_default();
        items.iter().chain(members.iter().map(|member| &member.value))
    }

    /// The text of a string.
    pub fn as_str(&self) -> Option<&Arc<str>> {
        match &self.kind {
            Kind::String(text) => Some(text),
            _ => None,
        }
    }

    /// The boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match self.kind {
            Kind::Bool(bool) => Some(bool),
            _ => None,
        }
    }

    /// The number.
    pub fn as_number(&self) -> Option<f64> {
        match self.kind {
            Kind::Number(number) => Some(number),
            _ => None,
        }
    }

    /// Whether this is `null`.
    pub fn is_null(&self) -> bool {
        matches!(self.kind, Kind::Null)
    }

    /// The name of the JSON type, for messages (see [`with_article`]).
    pub fn type_name(&self) -> &'static str {
        match self.kind {
            Kind::Null => "null",
            Kind::Bool(_) => "boolean",
            Kind::Number(_) => "number",
            Kind::String(_) => "string",
            Kind::Array(_) => "array",
            Kind::Object(_) => "object",
        }
    }

    /// The value without its places.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// The JSON Pointer (RFC 6901) of the innermost value or key that covers `span`.
    pub(super) fn pointer(&self, span: Span) -> String {
        let covers = |outer: Span| {
            outer.source == span.source && outer.start <= span.start && span.end <= outer.end
        };
        let mut pointer = String::new();
        let mut at = Some(self);
        while let Some(node) = at.take() {
            match &node.kind {
                Kind::Array(items) => {
                    let found = items.iter().enumerate().find(|(_, item)| covers(item.span));
                    if let Some((index, item)) = found {
                        pointer.push('/');
                        pointer.push_str(&index.to_string());
                        at = Some(item);
                    }
                }
                Kind::Object(members) => {
                    let found = members
                        .iter()
                        .find(|member| covers(member.key_span) || covers(member.value.span));
                    if let Some(member) = found {
                        let key = member.key.replace('~', "~0").replace('/', "~1");
                        pointer.push('/');
                        pointer.push_str(&key);
                        at = covers(member.value.span).then_some(&member.value);
                    }
                }
                _ => {}
            }
        }
        pointer
    }
}

/// The name of a JSON type with its article, for messages.
pub fn with_article(name: &str) -> String {
    match name {
        "null" => name.to_owned(),
        "array" | "object" => format!("an {name}"),
        other => format!("a {other}"),
    }
}

/// As it was written, except for white space: the order of members and every `comment` are kept ("The
/// `comment` field").
impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.kind {
            Kind::Null => serializer.serialize_unit(),
            Kind::Bool(bool) => serializer.serialize_bool(*bool),
            Kind::Number(number) => match whole(*number) {
                Some(whole) => serializer.serialize_i64(whole),
                None => serializer.serialize_f64(*number),
            },
            Kind::String(text) => serializer.serialize_str(text),
            Kind::Array(items) => serializer.collect_seq(items.iter()),
            Kind::Object(members) => {
                serializer.collect_map(members.iter().map(|member| (&*member.key, &member.value)))
            }
        }
    }
}

/// `number` as an integer, if it is one and within the range where doubles are exact.
fn whole(number: f64) -> Option<i64> {
    let exact = number.fract() == 0.0
        && number.abs() <= 9_007_199_254_740_992.0
        && !(number == 0.0 && number.is_sign_negative());
    #[expect(clippy::cast_possible_truncation, reason = "checked to be whole and within 2^53")]
    exact.then_some(number as i64)
}

/// Compact JSON.
impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

/// Equality of values: places do not matter, the order of members does.
impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind
    }
}

impl PartialEq for Member {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key && self.value == other.value
    }
}
