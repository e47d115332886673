//! What an entry of `rate-limit` says.

use std::time::Duration;

use super::bucket::Pace;
use crate::language::outcome::Failure;
use crate::language::temporal::Span;
use crate::language::value::Value;
use crate::proxy::middleware::written::{count, duration};
use crate::proxy::store::Rate;

/// The shortest time in which anything is counted.
const SHORTEST: Duration = Duration::from_nanos(1);

/// The rate of an entry, and how patient it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) rate: u32,
    pub(super) per: Duration,
    pub(super) burst: u32,
    pub(super) wait: Duration,
}

impl Limit {
    /// Reads the members of a `with`, which have passed the contract's schema.
    pub(super) fn read(with: &Value) -> Result<Self, Failure> {
        let rate = count(with, "rate", (1, u32::MAX))?.unwrap_or(1);
        Ok(Self {
            rate,
            per: duration(with, "per", SHORTEST)?.unwrap_or(Duration::from_secs(1)),
            burst: count(with, "burst", (1, u32::MAX))?.unwrap_or(rate),
            wait: duration(with, "wait", Duration::ZERO)?.unwrap_or(Duration::ZERO),
        })
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

/// In nanoseconds.
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
