//! How many plain requests are remembered: a few a second are enough.
//!
//! At thirty thousand requests a second the last hundred successes are three milliseconds of traffic;
//! spread over seconds they say more and cost next to nothing.

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
}

/// The even pace.
const INTERVAL: Duration = Duration::from_millis(100);

/// How many may come at once after a pause.
const BURST: u32 = 32;

impl Default for Pace {
    fn default() -> Self {
        Self { origin: Instant::now(), due: AtomicU64::new(0) }
    }
}

impl Pace {
    /// Whether what happens at `now` is let through.
    pub fn admits(&self, now: Instant) -> bool {
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let now = nanos(now.saturating_duration_since(self.origin));
        let due = self.due.load(Ordering::Relaxed);
        if due.saturating_sub(now) > nanos(INTERVAL * (BURST - 1)) {
            return false;
        }
        self.due.store(due.max(now).saturating_add(nanos(INTERVAL)), Ordering::Relaxed);
        true
    }
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
}
