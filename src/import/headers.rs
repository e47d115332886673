//! Which header fields a route may change.

use http::{HeaderName, HeaderValue};

use crate::proxy::message::shape::reserved;

/// Whether a configuration may give the field `name` this value.
pub(super) fn may_change(name: &str, value: &str, request: bool) -> bool {
    let Ok(field) = HeaderName::from_bytes(name.as_bytes()) else { return false };
    let plain = name.len() <= 100 && value.is_ascii() && !value.contains("{{");
    plain && HeaderValue::from_str(value).is_ok() && reserved(&field, request).is_none()
}
