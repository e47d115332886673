//! Query strings: read as `application/x-www-form-urlencoded` pairs, and changed without touching the bytes of
//! the other pairs.

use std::borrow::Cow;
use std::sync::Arc;

use crate::language::value::{Map, Missing, Value};

/// The pairs of a query, decoded.
pub(crate) fn pairs(query: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    raw(query).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(name), decode(value))
    })
}

/// Whether the parameter `name` is present, with the value `wanted` if that is given.
pub(crate) fn has(query: &str, name: &str, wanted: Option<&str>) -> bool {
    pairs(query).any(|(key, value)| key == name && wanted.is_none_or(|wanted| value == wanted))
}

/// The object that expressions read. A repeated name becomes an array.
pub(crate) fn to_value(query: &str) -> Value {
    let mut all: indexmap::IndexMap<Cow<'_, str>, Vec<Value>> = indexmap::IndexMap::new();
    for (name, value) in pairs(query) {
        all.entry(name).or_default().push(Value::string(value));
    }
    let member = |(name, values): (Cow<'_, str>, _)| Some((name.into(), one_or_all(values)?));
    Value::Object(Arc::new(all.into_iter().filter_map(member).collect::<Map>()))
}

/// The value at `path` in [`to_value`]. Only this member is made.
pub(crate) fn at(query: &str, path: &[Arc<str>]) -> Result<Value, Missing> {
    let Some((name, rest)) = path.split_first() else {
        return Ok(to_value(query));
    };
    let values = pairs(query).filter(|(key, _)| **key == **name);
    let values = values.map(|(_, value)| Value::string(value)).collect();
    Missing::follow(one_or_all(values), rest)
}

fn one_or_all(mut values: Vec<Value>) -> Option<Value> {
    if values.len() > 1 { Some(Value::array(values)) } else { values.pop() }
}

/// `query` with `changes` applied: each name's pairs are replaced by the given ones, or removed if there are none.
pub(crate) fn overlay(query: &str, changes: &[(Box<str>, Vec<String>)]) -> String {
    let replaced = |pair: &&str| {
        let name = decode(pair.split_once('=').map_or(*pair, |(name, _)| name));
        changes.iter().any(|(key, _)| **key == *name)
    };
    let mut out = String::with_capacity(query.len());
    for pair in raw(query).filter(|pair| !replaced(pair)) {
        separate(&mut out);
        out.push_str(pair);
    }
    for (name, values) in changes {
        for value in values {
            separate(&mut out);
            encode(name, &mut out);
            out.push('=');
            encode(value, &mut out);
        }
    }
    out
}

fn raw(query: &str) -> impl Iterator<Item = &str> {
    query.split('&').filter(|pair| !pair.is_empty())
}

fn separate(out: &mut String) {
    if !out.is_empty() {
        out.push('&');
    }
}

/// Decodes percent-encoding, and `+` as a space. An invalid escape stays as it is; bytes that are not UTF-8
/// become U+FFFD.
/// A segment of a path, decoded: a `+` is no space there.
pub(crate) fn decoded(segment: &str) -> Cow<'_, str> {
    if segment.contains('+') {
        Cow::Owned(decode(&segment.replace('+', "%2B")).into_owned())
    } else {
        decode(segment)
    }
}

fn decode(text: &str) -> Cow<'_, str> {
    if !text.contains(['%', '+']) {
        return Cow::Borrowed(text);
    }
    let mut bytes = text.as_bytes().iter();
    let mut out = Vec::with_capacity(text.len());
    while let Some(&byte) = bytes.next() {
        out.push(match byte {
            b'+' => b' ',
            b'%' => match hex_pair(bytes.as_slice()) {
                Some(decoded) => {
                    bytes.nth(1);
                    decoded
                }
                None => b'%',
            },
            other => other,
        });
    }
    Cow::Owned(String::from_utf8_lossy(&out).into_owned())
}

/// The byte that the first two hexadecimal digits of `text` encode.
pub(crate) fn hex_pair(text: &[u8]) -> Option<u8> {
    let [high, low, ..] = text else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()
}

fn encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            escape(byte, out);
        }
    }
}

/// Writes the escape of a byte (RFC 3986 §2.1).
pub(crate) fn escape(byte: u8, out: &mut String) {
    const HEX: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'];
    let hex = |nibble: u8| HEX.get(usize::from(nibble)).copied().unwrap_or('0');
    out.extend(['%', hex(byte >> 4), hex(byte & 15)]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn repeated_names_are_arrays() {
        assert_eq!(
            to_value("a=1&b=x+y%21&a=2&&c").to_string(),
            r#"{"a":["1","2"],"b":"x y!","c":""}"#
        );
    }

    #[test]
    fn one_parameter_reads_as_in_the_whole() {
        let query = "a=1&b=x+y%21&a=2&&c";
        for path in ["", "a", "b", "c", "d", "b more"] {
            let path: Vec<Arc<str>> = path.split_whitespace().map(Arc::from).collect();
            assert_eq!(at(query, &path), to_value(query).at(&path), "{path:?}");
        }
    }

    #[test]
    fn what_is_no_escape_stands_for_itself() {
        assert_eq!(decode("100%"), "100%");
        assert_eq!(decode("%zz%4"), "%zz%4");
        assert_eq!(decode("%ff"), "\u{fffd}");
    }

    #[test]
    fn an_overlay_leaves_the_other_pairs_as_they_are() {
        let changes = [("b".into(), vec!["x y".to_owned()]), ("c".into(), Vec::new())];
        assert_eq!(overlay("a=%2f+&b=1&c=2&%62=3", &changes), "a=%2f+&b=x%20y");
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes_to_itself(text in ".*") {
            let mut out = String::new();
            encode(&text, &mut out);
            prop_assert_eq!(decode(&out), text);
        }
    }
}
