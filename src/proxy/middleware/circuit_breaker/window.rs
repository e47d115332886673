//! How many runs succeeded and failed within the last while.
//!
//! The window is a ring of slices of time, and there is a ring for each of a few threads, so that two workers write to
//! different cache lines. A slice is one word: writing takes no lock. Only a failure looks at all rings.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::available_parallelism;

/// Into how many slices the window is divided. What it forgets, it forgets a slice at a time.
const SLICES: usize = 10;

/// At most this many threads have a ring of their own.
const RINGS: usize = 16;

/// The results of a window.
#[derive(Debug)]
pub(super) struct Window {
    /// The length of a slice, in nanoseconds.
    slice: u64,
    rings: Box<[Ring]>,
}

/// The slices of one thread, apart from those of others: two cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Ring([AtomicU64; SLICES]);

/// What a window holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) succeeded: u64,
    pub(super) failed: u64,
}

/// A slice's word: the low bits of its number, then how many succeeded and how many failed.
const COUNT_BITS: u32 = 18;
const MOST: u64 = (1 << COUNT_BITS) - 1;
const STAMPS: u64 = 1 << (u64::BITS - 2 * COUNT_BITS);

const fn word(stamp: u64, counted: Counted) -> u64 {
    stamp << (2 * COUNT_BITS) | counted.succeeded << COUNT_BITS | counted.failed
}

const fn stamp_of(word: u64) -> u64 {
    word >> (2 * COUNT_BITS)
}

const fn counted_in(word: u64) -> Counted {
    Counted { succeeded: (word >> COUNT_BITS) & MOST, failed: word & MOST }
}

impl Window {
    /// A window of this length, in nanoseconds.
    pub(super) fn new(length: u64) -> Self {
        let threads = available_parallelism().map_or(1, std::num::NonZero::get).min(RINGS);
        let rings = (0..threads).map(|_| Ring::default()).collect();
        Self { slice: (length / SLICES as u64).max(1), rings }
    }

    /// A run ended at `now`, in nanoseconds.
    pub(super) fn record(&self, now: u64, failed: bool) {
        let number = now / self.slice;
        // Stamps begin at 1: a slice that was never written belongs to no time.
        let stamp = number % (STAMPS - 1) + 1;
        let Some(slice) = self.ring().and_then(|ring| ring.0.get(place(number))) else {
            return;
        };
        let count = |old: u64| {
            let mut counted =
                if stamp_of(old) == stamp { counted_in(old) } else { Counted::default() };
            if counted.succeeded == MOST || counted.failed == MOST {
                // Only the share matters.
                counted = Counted { succeeded: counted.succeeded / 2, failed: counted.failed / 2 };
            }
            counted.succeeded += u64::from(!failed);
            counted.failed += u64::from(failed);
            word(stamp, counted)
        };
        slice.update(Ordering::Relaxed, Ordering::Relaxed, count);
    }

    /// What ended within the window before `now`.
    pub(super) fn counted(&self, now: u64) -> Counted {
        let present = now / self.slice;
        let oldest = present.saturating_sub(SLICES as u64 - 1);
        let mut all = Counted::default();
        for number in oldest..=present {
            let stamp = number % (STAMPS - 1) + 1;
            for ring in &self.rings {
                let word = ring.0.get(place(number)).map_or(0, |word| word.load(Ordering::Relaxed));
                if stamp_of(word) == stamp {
                    let Counted { succeeded, failed } = counted_in(word);
                    all.succeeded += succeeded;
                    all.failed += failed;
                }
            }
        }
        all
    }

    /// Forgets all.
    pub(super) fn clear(&self) {
        for word in self.rings.iter().flat_map(|ring| &ring.0) {
            word.store(0, Ordering::Relaxed);
        }
    }

    fn ring(&self) -> Option<&Ring> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed);
        }
        let mine = MINE.try_with(|mine| *mine).unwrap_or(0);
        self.rings.get(mine % self.rings.len().max(1))
    }
}

/// Where the slice of this number is in its ring.
#[expect(clippy::cast_possible_truncation, reason = "a remainder of ten")]
const fn place(number: u64) -> usize {
    (number % SLICES as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn counts(window: &Window, now: u64) -> (u64, u64) {
        let Counted { succeeded, failed } = window.counted(now);
        (succeeded, failed)
    }

    #[test]
    fn results_leave_the_window_a_slice_at_a_time() {
        let window = Window::new(10 * SECOND);
        for second in 0..10 {
            window.record(second * SECOND, second % 2 == 1);
        }
        assert_eq!(counts(&window, 9 * SECOND), (5, 5));
        assert_eq!(counts(&window, 10 * SECOND), (4, 5));
        assert_eq!(counts(&window, 14 * SECOND), (2, 3));
        window.record(19 * SECOND, true);
        assert_eq!(counts(&window, 19 * SECOND), (0, 1));
        assert_eq!(counts(&window, 1_000 * SECOND), (0, 0));
        window.clear();
        assert_eq!(counts(&window, 19 * SECOND), (0, 0));
    }

    #[test]
    fn a_slice_that_is_full_keeps_its_share() {
        let window = Window::new(10 * SECOND);
        for run in 0..(MOST + 10) {
            window.record(0, run % 4 == 0);
        }
        let Counted { succeeded, failed } = window.counted(0);
        assert!(succeeded <= MOST && succeeded.abs_diff(failed * 3) < 10, "{succeeded} {failed}");
    }

    #[test]
    fn threads_write_to_slices_of_their_own_and_all_are_read() {
        const EACH: u64 = 10_000;
        let window = Window::new(10 * SECOND);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let window = &window;
                scope.spawn(move || (0..EACH).for_each(|_| window.record(SECOND, thread == 0)));
            }
        });
        assert_eq!(counts(&window, SECOND), (3 * EACH, EACH));
    }
}
