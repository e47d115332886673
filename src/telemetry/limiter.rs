//! Limits how many similar things are recorded or logged.
//!
//! Of plain requests, a few per second are recorded ([`RateLimiter`]). At thirty thousand requests per second the last
//! hundred successes would be three milliseconds of traffic; spread over seconds they tell more and cost almost
//! nothing. Of a route's failures the first is logged at once, and then one every few seconds, with the number
//! of those in between ([`LogLimiter`]); so are refusals of each reason ([`ReasonLimiter`]). One line tells that an upstream is down; thirty thousand lines per second
//! would be an outage of their own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// Admits a burst, then one per interval (the generic cell rate algorithm). Belongs to one worker, so its loads
/// and stores do not race.
#[derive(Debug)]
pub struct RateLimiter {
    origin: Instant,
    /// When the next one is due at a steady rate, in nanoseconds since `origin`.
    due: AtomicU64,
    /// The steady rate's interval, in nanoseconds.
    interval: u64,
    /// How far ahead of the steady rate something may come, in nanoseconds.
    ahead: u64,
}

/// Admits one per interval, and counts those that it does not admit. Belongs to one worker.
#[derive(Debug)]
pub struct LogLimiter {
    pace: RateLimiter,
    /// How many were not admitted since the last one that was.
    held: AtomicU64,
}

/// A [`LogLimiter`] for each of a closed list of reasons: many refusals of one reason do not hide another.
#[derive(Debug)]
pub struct ReasonLimiter(Box<[LogLimiter]>);

/// The steady interval of plain requests.
const INTERVAL: Duration = Duration::from_millis(100);

/// How many of them may come at once after a pause.
const BURST: u32 = 32;

/// The interval between logged failures.
pub const QUIET: Duration = Duration::from_secs(10);

impl Default for RateLimiter {
    fn default() -> Self {
        Self::new(BURST, INTERVAL)
    }
}

impl RateLimiter {
    fn new(burst: u32, interval: Duration) -> Self {
        let ahead = interval.saturating_mul(burst.saturating_sub(1));
        let (interval, ahead) = (nanos(interval), nanos(ahead));
        Self { origin: Instant::now(), due: AtomicU64::new(0), interval, ahead }
    }

    /// Whether something that happens at `now` is admitted.
    pub fn admits(&self, now: Instant) -> bool {
        let now = nanos(now.saturating_duration_since(self.origin));
        let due = self.due.load(Ordering::Relaxed);
        if due.saturating_sub(now) > self.ahead {
            return false;
        }
        self.due.store(due.max(now).saturating_add(self.interval), Ordering::Relaxed);
        true
    }
}

impl Default for LogLimiter {
    fn default() -> Self {
        Self { pace: RateLimiter::new(1, QUIET), held: AtomicU64::new(0) }
    }
}

impl LogLimiter {
    /// Whether something that happens at `now` is admitted; if so, how many were not since the last one.
    pub fn admits(&self, now: Instant) -> Option<u64> {
        if self.pace.admits(now) {
            return Some(self.held.swap(0, Ordering::Relaxed));
        }
        self.held.fetch_add(1, Ordering::Relaxed);
        None
    }
}

impl ReasonLimiter {
    /// For this many reasons.
    pub fn new(reasons: usize) -> Self {
        Self((0..reasons).map(|_| LogLimiter::default()).collect())
    }

    /// Whether one more for the reason with this index is admitted; if so, how many were not since the last one.
    pub fn admits(&self, reason: usize, now: Instant) -> Option<u64> {
        self.0.get(reason)?.admits(now)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_then_an_even_pace() {
        let pace = RateLimiter::default();
        let admitted = || (0..100).filter(|_| pace.admits(Instant::now())).count();
        assert_eq!(admitted(), 32);
        tokio::time::advance(Duration::from_millis(250)).await;
        assert_eq!(admitted(), 2);
        tokio::time::advance(Duration::from_hours(1)).await;
        assert_eq!(admitted(), 32);
    }

    #[tokio::test(start_paused = true)]
    async fn one_reason_does_not_hide_another() {
        let paced = ReasonLimiter::new(2);
        let admits = |reason| paced.admits(reason, Instant::now());
        assert_eq!((admits(0), admits(0), admits(1), admits(1)), (Some(0), None, Some(0), None));
        assert_eq!(admits(2), None);
        tokio::time::advance(QUIET).await;
        assert_eq!((admits(0), admits(1)), (Some(1), Some(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_at_once_and_then_one_for_all_that_came_meanwhile() {
        let sparse = LogLimiter::default();
        let admits = || sparse.admits(Instant::now());
        assert_eq!((admits(), admits(), admits()), (Some(0), None, None));
        tokio::time::advance(QUIET.saturating_sub(Duration::from_nanos(1))).await;
        assert_eq!(admits(), None);
        tokio::time::advance(Duration::from_nanos(1)).await;
        assert_eq!((admits(), admits()), (Some(3), None));
        tokio::time::advance(Duration::from_hours(1)).await;
        assert_eq!(admits(), Some(1));
    }
}
