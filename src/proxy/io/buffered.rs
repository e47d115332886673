//! How long the other side may be reading what it has buffered.
//!
//! When it takes nothing more, it may still be reading what it has already taken. That cannot be seen from here, so a rate is
//! assumed, for a while.

use std::time::Duration;

/// The assumed rate, in bytes per second.
const RATE: u64 = 10_000;
/// The longest time.
const LONGEST: Duration = Duration::from_secs(10);

/// How long it may be reading the `bytes` that it took last, beyond a timeout of `limit`: at most twice that.
pub(crate) fn reading_time(bytes: u64, limit: Duration) -> Duration {
    let time = Duration::from_millis(bytes.saturating_mul(1000) / RATE);
    time.min(LONGEST).min(limit.saturating_mul(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_assumed_for_a_while() {
        let time = |bytes, limit| reading_time(bytes, Duration::from_secs(limit)).as_millis();
        assert_eq!([time(0, 5), time(1, 5), time(50_000, 5)], [0, 0, 5000]);
        assert_eq!([time(50_000, 1), time(1 << 40, 60)], [2000, 10_000]);
    }
}
