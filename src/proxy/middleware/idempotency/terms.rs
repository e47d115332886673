//! What an entry of `idempotency` says.

use std::time::Duration;

use crate::language::outcome::Failure;
use crate::language::value::Value;
use crate::proxy::middleware::written::{duration, member, size};

/// How long an answer is kept unless the entry says otherwise: a day.
const TTL: Duration = Duration::from_hours(24);
/// The shortest time for which one may be kept.
const SHORTEST: Duration = Duration::from_millis(1);
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

impl Terms {
    /// Reads the members of a `with`, which have passed the contract's schema.
    pub(super) fn read(with: &Value) -> Result<Self, Failure> {
        let required = member(with, "required").and_then(|required| required.as_bool());
        Ok(Self {
            ttl: duration(with, "ttl", SHORTEST)?.unwrap_or(TTL),
            required: required.unwrap_or(false),
            limit: size(with, "responseLimit", MOST)?.unwrap_or(LIMIT),
        })
    }
}
