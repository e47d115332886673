//! How many of many alike are told.
//!
//! Of plain requests a few a second are remembered: at thirty thousand requests a second the last hundred successes are
//! three milliseconds of traffic; spread over seconds they say more and cost next to nothing ([`Pace`]). Of a route's
//! failures the first is told at once, and while more follow one every few seconds, which says how many there were
//! ([`Sparse`]): an upstream that is down is news, and thirty thousand lines a second of it are an outage of their own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// Lets through so many at once, and then one an interval (the generic cell rate algorithm). One
/// worker's: its loads and stores race with nobody's.
#[derive(Debug)]
pub struct Pace {
    origin: Instant,
    /// When the next would be due at an even pace, in nanoseconds since `origin`.
    due: AtomicU64,
    /// The even pace, in nanoseconds.
    interval: u64,
    /// By how much what comes may be ahead of it, in nanoseconds.
    ahead: u64,
}

/// Of what comes sooner than this after one that was told none is told, but counted. One worker's, too.
#[derive(Debug)]
pub struct Sparse {
    pace: Pace,
    /// How many were not let through since the last that was.
    held: AtomicU64,
}

/// The even pace of plain requests.
const INTERVAL: Duration = Duration::from_millis(100);

/// How many of them may come at once after a pause.
const BURST: u32 = 32;

/// How long after a failure that was told the next is.
pub const QUIET: Duration = Duration::from_secs(10);

impl Default for Pace {
    fn default() -> Self {
        Self::new(BURST, INTERVAL)
    }
}

impl Pace {
    fn new(burst: u32, interval: Duration) -> Self {
        let ahead = interval.saturating_mul(burst.saturating_sub(1));
        let (interval, ahead) = (nanos(interval), nanos(ahead));
        Self { origin: Instant::now(), due: AtomicU64::new(0), interval, ahead }
    }

    /// Whether what happens at `now` is let through.
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

impl Default for Sparse {
    fn default() -> Self {
        Self { pace: Pace::new(1, QUIET), held: AtomicU64::new(0) }
    }
}

impl Sparse {
    /// Whether what happens at `now` is let through, and how many before it were not since the last.
    pub fn admits(&self, now: Instant) -> Option<u64> {
        if self.pace.admits(now) {
            return Some(self.held.swap(0, Ordering::Relaxed));
        }
        self.held.fetch_add(1, Ordering::Relaxed);
        None
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
        let pace = Pace::default();
        let admitted = || (0..100).filter(|_| pace.admits(Instant::now())).count();
        assert_eq!(admitted(), 32);
        tokio::time::advance(Duration::from_millis(250)).await;
        assert_eq!(admitted(), 2);
        tokio::time::advance(Duration::from_hours(1)).await;
        assert_eq!(admitted(), 32);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_at_once_and_then_one_for_all_that_came_meanwhile() {
        let sparse = Sparse::default();
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
