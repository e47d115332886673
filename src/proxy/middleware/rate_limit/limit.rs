//! What an entry of `rate-limit` says.

use std::sync::Arc;
use std::time::Duration;

use super::bucket::Pace;
use crate::language::outcome::Failure;
use crate::language::temporal::Span;
use crate::language::value::Value;
use crate::proxy::store::Rate;

/// The rate of an entry, and how patient it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) rate: u32,
    pub(super) per: Duration,
    pub(super) burst: u32,
    pub(super) wait: Duration,
}

/// What a request's `with` adds to it.
#[derive(Debug)]
pub(super) struct Key(pub(super) Option<Arc<str>>);

impl Limit {
    /// Reads the members of a `with`, which have passed the contract's schema.
    pub(super) fn read(with: &Value) -> Result<Self, Failure> {
        let rate = whole(with, "rate")?.unwrap_or(1);
        let limit = Self {
            rate,
            per: duration(with, "per")?.unwrap_or(Duration::from_secs(1)),
            burst: whole(with, "burst")?.unwrap_or(rate),
            wait: duration(with, "wait")?.unwrap_or(Duration::ZERO),
        };
        if limit.per.is_zero() {
            let per = with.get("per").unwrap_or_default();
            return Err(wrong("per", "longer than nothing", per));
        }
        Ok(limit)
    }

    /// For the counters of this process.
    pub(super) fn pace(self) -> Pace {
        let interval = nanos(self.per).div_ceil(u64::from(self.rate.max(1))).max(1);
        let ahead = interval.saturating_mul(u64::from(self.burst.saturating_sub(1)));
        Pace { interval, ahead }
    }

    /// For a store.
    pub(super) fn for_store(self) -> Rate {
        Rate { interval: Duration::from_nanos(self.pace().interval), burst: self.burst }
    }

    /// In words: `100 per PT1S, at most 20 at once`.
    pub(super) fn words(self) -> String {
        let per = Span::from_duration(self.per);
        let most = if self.burst == self.rate {
            String::new()
        } else {
            format!(", at most {} at once", self.burst)
        };
        format!("{} per {per}{most}", self.rate)
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

/// In nanoseconds.
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn whole(with: &Value, name: &str) -> Result<Option<u32>, Failure> {
    let Some(value) = with.get(name).filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
    let number = number.filter(|number| *number > 0);
    number.map(Some).ok_or_else(|| wrong(name, "a whole number above 0", value))
}

fn duration(with: &Value, name: &str) -> Result<Option<Duration>, Failure> {
    let Some(value) = with.get(name).filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    let span = value.as_str().and_then(Span::parse).filter(|span| *span >= Span::ZERO);
    let span = span.ok_or_else(|| wrong(name, "an ISO 8601 duration such as PT1S", value))?;
    Ok(Some(span.to_duration()))
}

fn wrong(name: &str, wanted: &str, observed: Value) -> Failure {
    let message = format!("`{name}` must be {wanted}; it is {} {observed}", observed.type_name());
    Failure::validation(message, format!("/properties/{name}"), observed)
}
