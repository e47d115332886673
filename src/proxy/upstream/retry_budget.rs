//! The retry budget of an upstream: how many re-runs of work that has failed there are allowed, as a share of the requests that
//! it gets anyway.
//!
//! A fixed number of attempts multiplies the load of an upstream just when it fails: with three attempts an upstream that is
//! down gets three times its requests, for as long as it is down. With a budget, it gets the requests and a fifth more, say,
//! and most failures are passed on at once. The budget counts over a sliding window, in [`SLOTS`] parts, for all workers.
//! A request is an attempt that is no re-run, and counts on the worker's own cache line. A re-run is rare, and counts under a
//! lock, so that the budget holds exactly.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::proxy::settings;

/// Into how many parts the window is divided. What happened in a part is forgotten at once.
const SLOTS: usize = 10;
/// How many workers count apart.
const SHARDS: usize = 16;

/// What an upstream's budget has counted.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    settings: settings::RetryBudget,
    origin: Instant,
    /// The length of a slot, in nanoseconds.
    slot: u64,
    requests: [Shard; SHARDS],
    reruns: Mutex<Reruns>,
}

/// Requests that some of the workers counted: in each slot its tick in the upper half, and the count in the lower.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard([AtomicU64; SLOTS]);

/// Re-runs, with the tick of each slot.
#[derive(Debug, Default)]
struct Reruns([(u32, u32); SLOTS]);

impl RetryBudget {
    /// A budget of which nothing is spent.
    pub(super) fn new(settings: settings::RetryBudget) -> Self {
        let parts = u32::try_from(SLOTS).unwrap_or(1);
        Self {
            settings,
            origin: Instant::now(),
            slot: nanos((settings.window / parts).max(Duration::from_millis(1))),
            requests: std::array::from_fn(|_| Shard::default()),
            reruns: Mutex::default(),
        }
    }

    /// Counts a request that is no re-run.
    pub(crate) fn count(&self, now: Instant) {
        if let Some(shard) = self.requests.get(shard()) {
            shard.count(self.tick(now));
        }
    }

    /// Takes a re-run from the budget. Returns false if nothing is left of it.
    pub(crate) fn take(&self, now: Instant) -> bool {
        let tick = self.tick(now);
        let mut reruns = self.reruns.lock().unwrap_or_else(PoisonError::into_inner);
        let requests: u64 = self.requests.iter().map(|shard| shard.sum(tick)).sum();
        if reruns.sum(tick) >= self.settings.most(requests) {
            return false;
        }
        reruns.count(tick);
        true
    }

    /// The number of the slot that `now` is in. The first is 1, so that an empty slot belongs to none.
    fn tick(&self, now: Instant) -> u32 {
        let ticks = nanos(now.saturating_duration_since(self.origin)) / self.slot.max(1);
        u32::try_from(ticks).unwrap_or(u32::MAX - 1).saturating_add(1)
    }
}

impl Shard {
    fn count(&self, tick: u32) {
        let Some(slot) = self.0.get(place(tick)) else { return };
        let mut seen = slot.load(Ordering::Relaxed);
        loop {
            let (of, _) = parts(seen);
            // Another worker may be ahead by a little. Its slot counts then.
            if of >= tick {
                slot.fetch_add(1, Ordering::Relaxed);
                return;
            }
            let new = u64::from(tick) << 32 | 1;
            match slot.compare_exchange_weak(seen, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    fn sum(&self, tick: u32) -> u64 {
        let counts = self.0.iter().map(|slot| parts(slot.load(Ordering::Relaxed)));
        counts.filter(|(of, _)| within(*of, tick)).map(|(_, count)| u64::from(count)).sum()
    }
}

impl Reruns {
    fn count(&mut self, tick: u32) {
        if let Some((of, count)) = self.0.get_mut(place(tick)) {
            if *of < tick {
                (*of, *count) = (tick, 0);
            }
            *count = count.saturating_add(1);
        }
    }

    fn sum(&self, tick: u32) -> u64 {
        let counts = self.0.iter().filter(|(of, _)| within(*of, tick));
        counts.map(|(_, count)| u64::from(*count)).sum()
    }
}

impl settings::RetryBudget {
    /// How many re-runs a window with so many requests allows.
    fn most(&self, requests: u64) -> u64 {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "counts of some seconds, and a share that is not negative"
        )]
        let [shared, least] = [
            (requests as f64 * self.share).floor() as u64,
            (f64::from(self.min_per_second) * self.window.as_secs_f64()).floor() as u64,
        ];
        shared.max(least)
    }
}

/// In nanoseconds: 64 bits are divided in one instruction.
fn nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}

/// Whether the slot of tick `of` is in the window that ends with `tick`.
fn within(of: u32, tick: u32) -> bool {
    of > 0 && usize::try_from(tick.saturating_sub(of)).is_ok_and(|ago| ago < SLOTS)
}

fn place(tick: u32) -> usize {
    usize::try_from(tick).unwrap_or_default() % SLOTS
}

/// The tick and the count of a slot.
fn parts(slot: u64) -> (u32, u32) {
    let half = |half: u64| u32::try_from(half & u64::from(u32::MAX)).unwrap_or_default();
    (half(slot >> 32), half(slot))
}

/// The shard of this thread.
fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
    }
    OWN.with(|own| *own)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WINDOW: Duration = Duration::from_secs(10);

    fn budget(share: f64, min_per_second: u32) -> RetryBudget {
        RetryBudget::new(settings::RetryBudget { share, min_per_second, window: WINDOW })
    }

    #[test]
    fn a_fifth_of_the_requests_or_the_minimum_may_be_run_again() {
        let budget = budget(0.2, 1);
        let now = budget.origin;
        // Ten in ten seconds are always allowed.
        assert_eq!((0..100).filter(|_| budget.take(now)).count(), 10);
        for _ in 0..1000 {
            budget.count(now);
        }
        assert_eq!((0..1000).filter(|_| budget.take(now)).count(), 190);
        // What was counted leaves the window together.
        let later = now + WINDOW - Duration::from_millis(1);
        assert!(!budget.take(later));
        assert_eq!((0..100).filter(|_| budget.take(now + WINDOW)).count(), 10);
    }

    #[test]
    fn a_share_of_nothing_and_no_minimum_allow_none() {
        let budget = budget(0.0, 0);
        budget.count(budget.origin);
        assert!(!budget.take(budget.origin));
    }

    #[test]
    fn all_threads_count_for_one_budget() {
        let budget = budget(0.5, 0);
        let now = budget.origin;
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..1000).for_each(|_| budget.count(now)));
            }
        });
        let taken: usize = std::thread::scope(|scope| {
            let take = || (0..1000).filter(|_| budget.take(now)).count();
            let all: Vec<_> = (0..8).map(|_| scope.spawn(take)).collect();
            all.into_iter().map(|one| one.join().unwrap()).sum()
        });
        assert_eq!(taken, 4000);
    }

    proptest! {
        /// Against a list of all that happened.
        #[test]
        fn no_window_has_more_re_runs_than_its_requests_allow(
            steps in prop::collection::vec((0_u64..3000, any::<bool>()), 1..300),
            share in 0.0_f64..1.0,
            least in 0_u32..3,
        ) {
            let budget = budget(share, least);
            let mut now = budget.origin;
            let (mut requests, mut taken) = (Vec::new(), Vec::new());
            for (millis, asks) in steps {
                now += Duration::from_millis(millis);
                if !asks {
                    budget.count(now);
                    requests.push(now);
                } else if budget.take(now) {
                    taken.push(now);
                }
                // A slot is a second, and slots begin at whole seconds.
                let slot = |at: &Instant| at.duration_since(budget.origin).as_secs();
                let recent = |all: &[Instant]| {
                    all.iter().filter(|at| slot(at) + 10 > slot(&now)).count() as u64
                };
                prop_assert!(recent(&taken) <= budget.settings.most(requests.len() as u64));
                if taken.last() == Some(&now) && asks {
                    prop_assert!(recent(&taken) <= budget.settings.most(recent(&requests)));
                }
            }
        }
    }
}
