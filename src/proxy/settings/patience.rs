//! How long the proxy waits for the bytes of a client.

use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

/// How many bytes a second a client must move at least, on average.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MinimumRate(NonZeroU64);

/// How long the proxy waits for the bytes of a client's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyPatience {
    /// For the next ones.
    pub stall: Duration,
    /// For all of them.
    pub rate: Option<MinimumRate>,
}

impl MinimumRate {
    /// Waiting that counts for nothing: a connection takes its time to begin.
    const GRACE: Duration = Duration::from_secs(5);

    /// At least `bytes` a second; `None` for 0.
    pub const fn new(bytes: u64) -> Option<Self> {
        match NonZeroU64::new(bytes) {
            Some(bytes) => Some(Self(bytes)),
            None => None,
        }
    }

    /// How long one may have waited, altogether, for a client that has moved this many bytes.
    pub fn patience(self, bytes: u64) -> Duration {
        const NANOS: u128 = 1_000_000_000;
        let nanos = u128::from(bytes % self.0) * NANOS / u128::from(self.0.get());
        let nanos = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let seconds = Duration::from_secs(bytes / self.0);
        Self::GRACE.saturating_add(seconds).saturating_add(nanos)
    }
}

/// Bytes a second.
impl fmt::Display for MinimumRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes a second", self.0)
    }
}

/// Without a minimum rate.
impl From<Duration> for BodyPatience {
    fn from(stall: Duration) -> Self {
        Self { stall, rate: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_grows_with_the_bytes() {
        let rate = MinimumRate::new(1000).unwrap();
        assert_eq!(rate.patience(0), Duration::from_secs(5));
        assert_eq!(rate.patience(2500), Duration::from_millis(7500));
        assert_eq!(rate.patience(u64::MAX).as_secs(), u64::MAX / 1000 + 5);
        assert_eq!(MinimumRate::new(0), None);
    }
}
