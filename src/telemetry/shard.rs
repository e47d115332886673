//! A place for each thread in what all of them write to, so that no two compete for a lock.

use std::sync::atomic::{AtomicUsize, Ordering};

/// How many threads have a place of their own. Further threads share.
pub(super) const COUNT: usize = 64;

/// The place of the next thread that asks, if no place were ever given twice.
static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static PLACE: usize = NEXT.fetch_add(1, Ordering::AcqRel) % COUNT;
}

/// This thread's place, below [`COUNT`].
pub(super) fn of_this_thread() -> usize {
    PLACE.with(|place| *place)
}

/// How many places are in use.
pub(super) fn used() -> usize {
    NEXT.load(Ordering::Acquire).min(COUNT)
}
