//! What an entry of `idempotency` says.

use std::sync::Arc;
use std::time::Duration;

use crate::language::outcome::Failure;
use crate::language::temporal::Span;
use crate::language::value::Value;

/// How long an answer is kept unless the entry says otherwise: a day.
const TTL: Duration = Duration::from_hours(24);
/// How large the body of a kept answer may be unless the entry says otherwise.
const LIMIT: usize = 64 << 10;
/// How large it may be at most.
const MOST: usize = 1 << 20;

/// The terms of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    pub(super) ttl: Duration,
    pub(super) required: bool,
    pub(super) limit: usize,
}

/// What a request's `with` adds to them: the key, if the entry has one.
#[derive(Debug)]
pub(super) struct Key(pub(super) Option<Arc<str>>);

impl Terms {
    /// Reads the members of a `with`, which have passed the contract's schema.
    pub(super) fn read(with: &Value) -> Result<Self, Failure> {
        let written = |name: &str| with.get(name).filter(|value| !value.is_null());
        let ttl = written("ttl").map(|ttl| {
            let span = ttl.as_str().and_then(Span::parse).filter(|span| *span > Span::ZERO);
            let span = span.map(Span::to_duration);
            span.ok_or_else(|| wrong("ttl", "an ISO 8601 duration above zero such as PT24H", ttl))
        });
        let limit = written("responseLimit").map(|limit| {
            let size = limit.as_str().and_then(size).filter(|size| *size <= MOST);
            size.ok_or_else(|| wrong("responseLimit", "a size up to 1MiB such as 64KiB", limit))
        });
        let required = written("required").and_then(|required| required.as_bool());
        Ok(Self {
            ttl: ttl.transpose()?.unwrap_or(TTL),
            required: required.unwrap_or(false),
            limit: limit.transpose()?.unwrap_or(LIMIT),
        })
    }
}

impl Key {
    /// Reads the key of a `with`.
    pub(super) fn read(with: &Value) -> Result<Self, Failure> {
        match with.get("key") {
            None | Some(Value::Null) => Ok(Self(None)),
            Some(Value::String(key)) => Ok(Self(Some(key))),
            Some(other) => Err(wrong("key", "a string", other)),
        }
    }
}

/// A number of bytes with its unit.
fn size(text: &str) -> Option<usize> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let factor = match unit {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        _ => return None,
    };
    number.parse::<usize>().ok()?.checked_mul(factor)
}

fn wrong(name: &str, wanted: &str, observed: Value) -> Failure {
    let message = format!("`{name}` must be {wanted}; it is {} {observed}", observed.type_name());
    Failure::validation(message, format!("/properties/{name}"), observed)
}
