//! The two clocks of a Flow: the wall clock, whose instants are in records and expressions, and the timer,
//! which waits.
//!
//! Both come from tokio's clock, so a paused runtime stops them together: the wall clock is read once, at the
//! start, and then advances with the timer. So a record's `enteredAt` and a Sleep's deadline can never
//! disagree, and an hour of backoff takes no time in a test.

use std::future::Future;
use std::sync::OnceLock;
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use super::temporal::Timestamp;

/// How often work may be polled at one instant of virtual time. A graph yields once every 64 Steps, and a
/// re-run without a wait yields each time.
pub const BUSY: u32 = 20_000;

/// Reads both clocks. Cheap to copy.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
    wall: i128,
}

impl Clock {
    /// A clock that starts at the system's wall time.
    pub fn system() -> Self {
        #[expect(clippy::disallowed_methods, reason = "the one place that reads the system clock")]
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Self { origin: Instant::now(), wall: i128::try_from(wall.as_nanos()).unwrap_or(i128::MAX) }
    }

    /// A clock that starts at `now`, for tests and simulations.
    pub fn starting_at(now: Timestamp) -> Self {
        Self { origin: Instant::now(), wall: now.as_nanos() }
    }

    /// The wall time at which the clock started.
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

    /// The timer's instant at which the wall clock will show `timestamp`. An instant in the past if that has
    /// passed; `None` if no timer can wait that long.
    pub fn instant_of(self, timestamp: Timestamp) -> Option<Instant> {
        let ahead = timestamp.as_nanos().saturating_sub(self.wall);
        let Ok(ahead) = u64::try_from(ahead) else {
            return if ahead < 0 { Some(self.origin) } else { None };
        };
        self.origin.checked_add(Duration::from_nanos(ahead))
    }
}

/// The output of `work` in virtual time, which passes only while all tasks wait. `None` if `work` was polled
/// [`BUSY`] times at one instant: it never waits, so virtual time stands still and nothing would ever end it.
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

/// One clock for the whole process, so that instants from different places can be compared.
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
