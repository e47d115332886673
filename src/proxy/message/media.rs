//! Bodies as values: JSON media types are parsed, text becomes a string, anything else base64.

use bytes::Bytes;
use http::HeaderValue;

use crate::language::value::{ParseError, Parsing, Value};
use crate::proxy::memory::{Full, Reservation};

/// The room for the value of `body`, if it is to be parsed. It has a reservation of its own.
pub(crate) fn prepare(
    content_type: Option<&HeaderValue>,
    body: &[u8],
    reservation: &Reservation,
) -> Result<Option<Parsing>, Full> {
    if body.is_empty() || !matches!(Kind::of(content_type), Kind::Json) {
        return Ok(None);
    }
    Parsing::begin(body, reservation.another()).map(Some).map_err(|_| Full)
}

/// The value of `body` in expressions, by way of what was prepared for it. What a text takes is added to the body's
/// `reservation`.
pub(crate) fn to_value(
    content_type: Option<&HeaderValue>,
    body: &[u8],
    prepared: Option<Parsing>,
    reservation: &mut Reservation,
) -> Result<Value, Full> {
    if body.is_empty() {
        return Ok(Value::Null);
    }
    match prepared.map(|parsing| parsing.finish(body)) {
        Some(Ok(value)) => return Ok(value),
        Some(Err(ParseError::Full)) => return Err(Full),
        // Text that claims to be JSON but is not is still text.
        Some(Err(ParseError::Invalid(_))) | None => {}
    }
    let kind = Kind::of(content_type);
    let text = match kind {
        Kind::Json | Kind::Text => std::str::from_utf8(body).ok(),
        Kind::Binary => None,
    };
    // No byte is ever replaced: what is no text becomes base64.
    let size = text.map_or_else(|| body.len().div_ceil(3) * 4, str::len);
    if !reservation.grow(size) {
        return Err(Full);
    }
    Ok(text.map_or_else(|| Value::string(base64(body)), Value::from))
}

/// A value as a body, with a media type for when none is given. A string is sent as it is unless the type is
/// JSON; anything else is sent as JSON, and `null` as nothing.
pub(crate) fn from_value(
    value: &Value,
    content_type: Option<&HeaderValue>,
) -> Option<(Bytes, HeaderValue)> {
    const JSON: HeaderValue = HeaderValue::from_static("application/json");
    const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
    match value {
        Value::Null => None,
        Value::String(text) if content_type.is_none() => {
            Some((Bytes::copy_from_slice(text.as_bytes()), TEXT))
        }
        Value::String(text) if !matches!(Kind::of(content_type), Kind::Json) => {
            let ty = content_type.cloned().unwrap_or(TEXT);
            Some((Bytes::copy_from_slice(text.as_bytes()), ty))
        }
        json => {
            let ty = content_type.cloned().unwrap_or(JSON);
            Some((Bytes::from(json.to_string()), ty))
        }
    }
}

enum Kind {
    Json,
    Text,
    Binary,
}

impl Kind {
    fn of(content_type: Option<&HeaderValue>) -> Self {
        let Some(content_type) = content_type else {
            return Self::Text;
        };
        let essence = content_type.as_bytes().split(|byte| *byte == b';').next();
        let essence = essence.unwrap_or_default().trim_ascii().to_ascii_lowercase();
        let is = |text: &str| essence == text.as_bytes();
        let ends = |suffix: &str| essence.ends_with(suffix.as_bytes());
        if is("application/json") || ends("+json") {
            Self::Json
        } else if essence.starts_with(b"text/")
            || is("application/xml")
            || ends("+xml")
            || is("application/x-www-form-urlencoded")
        {
            Self::Text
        } else {
            Self::Binary
        }
    }
}

/// RFC 4648 §4, padded.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let octet = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = octet(0) << 16 | octet(1) << 8 | octet(2);
        for at in 0..4 {
            let index = (bits >> (18 - 6 * at)) & 63;
            let digit = ALPHABET.get(index as usize).copied().unwrap_or(b'=');
            out.push(char::from(if at > group.len() { b'=' } else { digit }));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::memory::{Budget, Parsers};
    use crate::telemetry::metrics::Metrics;

    fn valued(content_type: Option<&HeaderValue>, body: &[u8]) -> Result<Value, Full> {
        let budget = Budget::new(100, Metrics::new().buffers(), Parsers::in_place());
        let mut reservation = budget.reservation();
        let prepared = prepare(content_type, body, &reservation)?;
        to_value(content_type, body, prepared, &mut reservation)
    }

    fn read(content_type: &'static str, body: &[u8]) -> String {
        valued(Some(&HeaderValue::from_static(content_type)), body).unwrap().to_string()
    }

    #[test]
    fn a_value_for_which_there_is_no_room_is_refused() {
        let json = HeaderValue::from_static("application/json");
        assert_eq!(valued(Some(&json), b"[1,2,3,4,5,6,7]"), Err(Full));
        assert_eq!(valued(None, &[b'a'; 101]), Err(Full));
        assert!(valued(None, &[b'a'; 100]).is_ok());
        assert_eq!(valued(None, &[0xff; 76]), Err(Full), "104 characters of base64");
    }

    #[test]
    fn the_media_type_decides_how_a_body_is_read() {
        assert_eq!(read("application/json; charset=utf-8", b"[1]"), "[1]");
        assert_eq!(read("application/problem+JSON", b"{}"), "{}");
        assert_eq!(read("application/json", b"{oops"), r#""{oops""#);
        assert_eq!(read("text/plain", b"[1]"), r#""[1]""#);
        assert_eq!(read("image/png", b"\x00\xff"), r#""AP8=""#);
        assert_eq!(read("text/plain", b"\xff"), r#""/w==""#);
        assert_eq!(valued(None, b"hello").unwrap().to_string(), r#""hello""#);
        assert_eq!(read("text/plain", b""), "null");
    }

    #[test]
    fn base64_agrees_with_the_vectors_of_rfc_4648() {
        let vectors = ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"];
        for (length, wanted) in vectors.into_iter().enumerate() {
            assert_eq!(base64(&b"foobar"[..length]), wanted);
        }
    }

    #[test]
    fn a_value_becomes_a_body() {
        let json = HeaderValue::from_static("application/json");
        let show = |value: &Value, ty: Option<&HeaderValue>| {
            from_value(value, ty).map(|(body, ty)| (body, ty.to_str().unwrap().to_owned()))
        };
        assert_eq!(show(&Value::Null, None), None);
        let text = Value::from("hi");
        let plain = ("hi".into(), "text/plain; charset=utf-8".to_owned());
        assert_eq!(show(&text, None), Some(plain));
        let quoted = ("\"hi\"".into(), "application/json".to_owned());
        assert_eq!(show(&text, Some(&json)), Some(quoted));
        let number = ("5".into(), "application/json".to_owned());
        assert_eq!(show(&Value::Number(5.0), None), Some(number));
    }
}
