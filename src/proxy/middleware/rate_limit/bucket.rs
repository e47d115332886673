//! The generic cell rate algorithm, in one atomic number.
//!
//! A limit is the time at which it is unused again. Each run moves that on by one interval, and may begin if it is then not
//! further ahead than the burst allows; otherwise it is due later. Whoever waits has its turn reserved, so turns come in the
//! order in which they were asked for. One that is given back before its time serves the next one who would have to wait.
//!
//! A request takes a lock only where it would have to wait and a turn was given back.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many turns that were given back a limit remembers. Further ones pass unused.
const RETURNED: usize = 1024;

/// A limit's state. Times are nanoseconds since an origin that its owner keeps.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    /// When the limit is unused again.
    unused: AtomicU64,
    /// Turns in the future that were given back.
    returned: Mutex<Vec<u64>>,
    /// How many these are. Only if there are any are they locked.
    kept: AtomicUsize,
}

/// A rate, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    /// The interval at which one more is due.
    pub(super) interval: u64,
    /// How far ahead of that one may come.
    pub(super) ahead: u64,
}

/// What came of taking from a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Took {
    /// There is a turn at this time, which may be now; so many are left.
    Turn { at: u64, left: u32 },
    /// There is none. One may ask again after this time.
    Nothing { again: u64 },
}

impl Bucket {
    /// Takes one at the time `now`, if its turn comes within `patience`.
    pub(super) fn take(&self, now: u64, pace: Pace, patience: u64) -> Took {
        let mut unused = self.unused.load(Ordering::Relaxed);
        loop {
            let at = unused.max(now).saturating_sub(pace.ahead).max(now);
            if at > now {
                if let Some(at) = self.take_returned(now, at.min(now.saturating_add(patience))) {
                    return Took::Turn { at, left: 0 };
                }
                if at - now > patience {
                    return Took::Nothing { again: at - now };
                }
            }
            let next = unused.max(now).saturating_add(pace.interval);
            let order = Ordering::Relaxed;
            match self.unused.compare_exchange_weak(unused, next, order, order) {
                Ok(_) => {
                    let room = (now.saturating_add(pace.ahead).saturating_add(pace.interval))
                        .saturating_sub(next);
                    let left = room / pace.interval.max(1);
                    return Took::Turn { at, left: u32::try_from(left).unwrap_or(u32::MAX) };
                }
                Err(other) => unused = other,
            }
        }
    }

    /// Takes one at the time `now`, if that need not wait: how many are left. It says the same as [`take`](Self::take).
    pub(super) fn take_now(&self, now: u64, pace: Pace) -> Option<u32> {
        let order = Ordering::Relaxed;
        let mut unused = self.unused.load(order);
        loop {
            let from = unused.max(now);
            // How far ahead of its time one more would come, beyond which it would have to wait.
            let room = pace.ahead.checked_sub(from - now)?;
            let next = from.saturating_add(pace.interval);
            match self.unused.compare_exchange_weak(unused, next, order, order) {
                Ok(_) => {
                    return Some(u32::try_from(room / pace.interval.max(1)).unwrap_or(u32::MAX));
                }
                Err(other) => unused = other,
            }
        }
    }

    /// Gives the turn back that was reserved for the time `at`, which has not come.
    pub(super) fn give_back(&self, at: u64, pace: Pace) {
        let last = at.saturating_add(pace.ahead).saturating_add(pace.interval);
        let before = last.saturating_sub(pace.interval);
        let order = Ordering::Relaxed;
        if self.unused.compare_exchange(last, before, order, order).is_err() {
            let mut returned = self.lock();
            if returned.len() < RETURNED {
                returned.push(at);
                self.kept.store(returned.len(), order);
            }
        }
    }

    /// Whether the limit is unused, so that it holds nothing that a new one would not.
    pub(super) fn is_unused(&self, now: u64) -> bool {
        self.unused.load(Ordering::Relaxed) <= now
    }

    /// The first turn that was given back and comes from `now` until `latest`.
    fn take_returned(&self, now: u64, latest: u64) -> Option<u64> {
        if self.kept.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut returned = self.lock();
        returned.retain(|at| *at >= now);
        let first = returned.iter().copied().enumerate().min_by_key(|(_, at)| *at);
        let first = first.filter(|(_, at)| *at <= latest);
        let at = first.map(|(place, _)| returned.swap_remove(place));
        self.kept.store(returned.len(), Ordering::Relaxed);
        at
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u64>> {
        self.returned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
