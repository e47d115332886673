//! The two times a Flow lives in: the wall clock, whose instants its records and expressions carry,
//! and the timer, which waits.
//!
//! Both come from tokio's clock, so a paused runtime stops them together: the wall clock is read once,
//! at start, and advances by what the timer advanced. A record's `enteredAt` and a Sleep's deadline can
//! then never disagree, and an hour of backoff takes a test no time.

use std::future::Future;
use std::sync::OnceLock;
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use super::temporal::Timestamp;

/// How often work may go on at one instant of virtual time. A graph yields once in 64 Steps, a scope that is run
/// again without a wait each time.
pub const BUSY: u32 = 20_000;

/// Reads both clocks. Copied freely.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
    wall: i128,
}

impl Clock {
    /// A clock that shows the system's wall time now.
    pub fn system() -> Self {
        #[expect(clippy::disallowed_methods, reason = "the one place that reads the system clock")]
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Self { origin: Instant::now(), wall: i128::try_from(wall.as_nanos()).unwrap_or(i128::MAX) }
    }

    /// A clock that shows `now` now: for tests and simulations.
    pub fn starting_at(now: Timestamp) -> Self {
        Self { origin: Instant::now(), wall: now.as_nanos() }
    }

    /// The wall time when it was made.
    pub fn begun(self) -> Timestamp {
        Timestamp::from_nanos(self.wall)
    }

    /// The wall time now.
    pub fn now(self) -> Timestamp {
        self.at(Instant::now())
    }

    /// The wall time at `instant` of the timer.
    pub fn at(self, instant: Instant) -> Timestamp {
        let nanos = |duration: Duration| i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX);
        Timestamp::from_nanos(match instant.checked_duration_since(self.origin) {
            Some(after) => self.wall.saturating_add(nanos(after)),
            None => self.wall.saturating_sub(nanos(self.origin.duration_since(instant))),
        })
    }

    /// The timer's instant at which the wall clock will show `timestamp`; now, where that is past, and
    /// `None` where it lies beyond what a timer can wait for.
    pub fn instant_of(self, timestamp: Timestamp) -> Option<Instant> {
        let ahead = timestamp.as_nanos().saturating_sub(self.wall);
        let Ok(ahead) = u64::try_from(ahead) else {
            return if ahead < 0 { Some(self.origin) } else { None };
        };
        self.origin.checked_add(Duration::from_nanos(ahead))
    }
}

/// What `work` comes to in virtual time, which passes only while everybody waits; `None` where it was polled
/// [`BUSY`] times at one instant: it does not wait, and nothing in that time would ever end it.
pub async fn unless_busy<F: Future>(work: F) -> Option<F::Output> {
    let mut work = std::pin::pin!(work);
    let (mut at, mut polls) = (Instant::now(), 0_u32);
    std::future::poll_fn(|cx| {
        if let Poll::Ready(output) = work.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        let now = Instant::now();
        polls = if now == at { polls.saturating_add(1) } else { 0 };
        at = now;
        if polls >= BUSY { Poll::Ready(None) } else { Poll::Pending }
    })
    .await
}

/// The process's start on the wall clock: what `Clock::system` drifts from, kept for the curious.
pub fn process_clock() -> Clock {
    static CLOCK: OnceLock<Clock> = OnceLock::new();
    *CLOCK.get_or_init(Clock::system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_that_never_waits_is_given_up_in_virtual_time() {
        let busy = async {
            loop {
                tokio::task::yield_now().await;
            }
        };
        assert_eq!(unless_busy(busy).await, None::<()>);
        let waits = async {
            for _ in 0..2 * BUSY {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            "done"
        };
        assert_eq!(unless_busy(waits).await, Some("done"));
    }
}
