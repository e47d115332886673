//! The two clocks of a Flow: the wall clock, whose instants are in records and expressions, and the timer,
//! which waits.
//!
//! The timer is tokio's clock. It never steps, and a paused runtime stops it. The wall clock is an instant of
//! the timer and what the wall showed then, so a record's `enteredAt` and a Sleep's deadline cannot disagree,
//! and an hour of backoff takes no time in a test. A clock that serves follows the system's when somebody sets
//! it: the two are compared from time to time, so that telling the time costs one look at the timer.

use std::future::Future;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use super::temporal::Timestamp;

/// How often work may be polled at one instant of virtual time. A graph yields once every 64 Steps, and a
/// re-run without a wait yields each time.
pub const BUSY: u32 = 20_000;

/// How often a clock that follows the system's is compared with it, if anybody asks for the time.
const COMPARED: Duration = Duration::from_millis(100);

/// A difference that is left as it is: the two clocks are read one after the other.
const TOLERATED: Duration = Duration::from_millis(1);

/// Reads both clocks. Cheap to copy.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
    wall: Wall,
}

/// What the wall clock showed at the origin.
#[derive(Clone, Copy, Debug)]
enum Wall {
    Fixed(i128),
    Followed(&'static Followed),
}

/// The wall time at the origin by the system's present clock. When that is set, the origin's time changes too.
#[derive(Debug)]
struct Followed {
    /// In nanoseconds since the Unix epoch.
    wall: AtomicI64,
    /// When to compare again, in nanoseconds after the origin.
    due: AtomicU64,
}

impl Clock {
    /// The system's clock, followed when it is set. There is one for the whole process, so that instants from
    /// different places can be compared.
    pub fn system() -> Self {
        static SYSTEM: OnceLock<(Instant, Followed)> = OnceLock::new();
        let (origin, followed) = SYSTEM.get_or_init(|| (Instant::now(), Followed::at(system())));
        Self { origin: *origin, wall: Wall::Followed(followed) }
    }

    /// A clock that starts at the system's time and then advances with the timer alone, for work that may
    /// run in virtual time.
    pub fn starting_now() -> Self {
        Self { origin: Instant::now(), wall: Wall::Fixed(system().into()) }
    }

    /// A clock that starts at `now`, for tests and simulations.
    pub fn starting_at(now: Timestamp) -> Self {
        Self { origin: Instant::now(), wall: Wall::Fixed(now.as_nanos()) }
    }

    /// The wall time at which the clock started.
    pub fn begun(self) -> Timestamp {
        Timestamp::from_nanos(self.wall.nanos())
    }

    /// The wall time now.
    pub fn now(self) -> Timestamp {
        self.at(Instant::now())
    }

    /// The wall time at `instant` of the timer.
    pub fn at(self, instant: Instant) -> Timestamp {
        let after = instant.checked_duration_since(self.origin);
        if let Wall::Followed(followed) = self.wall
            && after.is_some_and(|after| nanos(after) >= followed.due.load(Ordering::Relaxed))
        {
            let shown = system();
            followed.compare(shown, self.origin.elapsed());
        }
        let (wall, nanos) = (self.wall.nanos(), |span: Duration| i128::from(nanos(span)));
        Timestamp::from_nanos(match after {
            Some(after) => wall.saturating_add(nanos(after)),
            None => wall.saturating_sub(nanos(self.origin.duration_since(instant))),
        })
    }

    /// The timer's instant at which the wall clock will show `timestamp`, unless it is set. An instant in the
    /// past if that has passed; `None` if no timer can wait that long.
    pub fn instant_of(self, timestamp: Timestamp) -> Option<Instant> {
        let ahead = timestamp.as_nanos().saturating_sub(self.wall.nanos());
        let Ok(ahead) = u64::try_from(ahead) else {
            return if ahead < 0 { Some(self.origin) } else { None };
        };
        self.origin.checked_add(Duration::from_nanos(ahead))
    }
}

impl Wall {
    fn nanos(self) -> i128 {
        match self {
            Self::Fixed(nanos) => nanos,
            Self::Followed(followed) => followed.wall.load(Ordering::Relaxed).into(),
        }
    }
}

impl Followed {
    /// For a clock whose origin is now.
    const fn at(shown: i64) -> Self {
        Self { wall: AtomicI64::new(shown), due: AtomicU64::new(0) }
    }

    /// The system's clock shows `shown` so long `after` the origin. Threads that compare at once do no harm:
    /// each stores what is true.
    fn compare(&self, shown: i64, after: Duration) {
        self.due.store(nanos(after.saturating_add(COMPARED)), Ordering::Relaxed);
        let wall = shown.saturating_sub_unsigned(nanos(after));
        if self.wall.load(Ordering::Relaxed).abs_diff(wall) >= nanos(TOLERATED) {
            self.wall.store(wall, Ordering::Relaxed);
        }
    }
}

/// The system's wall time, in nanoseconds since the Unix epoch.
fn system() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the system clock")]
    let now = SystemTime::now();
    let since = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

fn nanos(duration: Duration) -> u64 {
    let seconds = duration.as_secs().saturating_mul(1_000_000_000);
    seconds.saturating_add(duration.subsec_nanos().into())
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

/// The output of `work` in real time. `None` if it was polled `most` times: no work that waits for something comes to that.
pub async fn unless_endless<F: Future>(work: F, most: u32) -> Option<F::Output> {
    let mut work = std::pin::pin!(work);
    let mut polls = 0_u32;
    std::future::poll_fn(|cx| {
        if let Poll::Ready(output) = work.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        polls += 1;
        if polls >= most { Poll::Ready(None) } else { Poll::Pending }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_without_an_end_is_given_up_in_real_time_too() {
        let rounds = |count: u32| async move {
            for _ in 0..count {
                tokio::task::yield_now().await;
            }
            count
        };
        assert_eq!(unless_endless(rounds(9), 10).await, Some(9));
        assert_eq!(unless_endless(rounds(10), 10).await, None);
    }

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

    fn second(clock: Clock) -> i128 {
        clock.now().as_nanos() / 1_000_000_000
    }

    /// One origin for a clock of the test's own, which the test sets.
    fn followed(second: i64) -> (Clock, &'static Followed) {
        let followed = Box::leak(Box::new(Followed::at(second * 1_000_000_000)));
        followed.due.store(u64::MAX, Ordering::Relaxed);
        (Clock { origin: Instant::now(), wall: Wall::Followed(followed) }, followed)
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_of_the_system_s_clock_is_followed_and_moves_no_timer() {
        let (clock, followed) = followed(100_000);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(second(clock), 100_010);
        let begun = Instant::now();
        for (shown, after) in [(103_610, 103_610), (96_410, 96_410), (100_010, 100_010)] {
            followed.compare(shown * 1_000_000_000, Duration::from_secs(10));
            assert_eq!(second(clock), after);
            let ahead = Timestamp::from_nanos(clock.now().as_nanos() + 3_000_000_000);
            assert_eq!(clock.instant_of(ahead).unwrap() - begun, Duration::from_secs(3));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn two_readings_that_differ_a_little_are_no_step() {
        let (clock, followed) = followed(100_000);
        let before = clock.now();
        followed.compare(100_000 * 1_000_000_000 + 900_000, Duration::ZERO);
        assert_eq!(clock.now(), before);
        followed.compare(100_000 * 1_000_000_000 + 1_100_000, Duration::ZERO);
        assert_eq!(clock.now().as_nanos() - before.as_nanos(), 1_100_000);
    }

    #[tokio::test(start_paused = true)]
    async fn the_system_s_clock_is_looked_at_again_when_it_is_due() {
        let (clock, followed) = followed(100_000);
        let at = |millis| clock.at(clock.origin + Duration::from_millis(millis)).as_nanos();
        followed.due.store(nanos(Duration::from_millis(50)), Ordering::Relaxed);
        assert_eq!(at(49), 100_000_049_000_000);
        let system = i128::from(system());
        assert!(at(50) >= system, "the system's own time");
        assert_eq!(followed.due.load(Ordering::Relaxed), nanos(COMPARED));
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_for_virtual_time_follows_nothing() {
        let clock = Clock::starting_now();
        let before = clock.now();
        tokio::time::advance(Duration::from_hours(1)).await;
        assert_eq!(clock.now().as_nanos() - before.as_nanos(), 3_600_000_000_000);
    }
}
