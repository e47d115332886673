//! A pool of idle connections, last in, first out.
//!
//! This order keeps a few connections busy and lets the others grow old. Old ones are closed before common
//! servers would close them. The pool knows nothing of HTTP: it is generic over its items, so its rules can be
//! tested with numbers.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// How often, at least, to look for connections that the other side has closed: each holds a descriptor.
const LOOK: Duration = Duration::from_secs(1);

/// An item of a pool.
pub(crate) trait Idle {
    /// Whether the other side has closed it, or sent something that makes it useless.
    fn is_closed(&mut self) -> bool;
}

/// The idle items of one worker and one upstream.
#[derive(Debug)]
pub(crate) struct Pool<T> {
    /// Each with the instant until which it is kept; `None` if that is too far for the clock. The oldest is at the front.
    idle: VecDeque<(Option<Instant>, T)>,
    keep_alive: Duration,
    max: usize,
}

impl<T: Idle> Pool<T> {
    /// Keeps at most `max` items, each for at most `keep_alive`.
    pub(crate) const fn new(keep_alive: Duration, max: usize) -> Self {
        Self { idle: VecDeque::new(), keep_alive, max }
    }

    /// The newest item that `wanted` accepts. Closed and old ones among these are dropped on the way, and the second value
    /// counts them.
    pub(crate) fn take(&mut self, now: Instant, wanted: impl Fn(&T) -> bool) -> (Option<T>, usize) {
        let before = self.idle.len();
        let mut found = None;
        for at in (0..before).rev() {
            let Some((until, item)) = self.idle.get_mut(at) else {
                continue;
            };
            if !wanted(item) {
                continue;
            }
            let dead = dead(*until, item, now);
            let taken = self.idle.remove(at);
            if !dead {
                found = taken.map(|(_, item)| item);
                break;
            }
        }
        let taken = usize::from(found.is_some());
        let dropped = before.saturating_sub(self.idle.len() + taken);
        (found, dropped)
    }

    /// Keeps `item`, or returns it if there are enough.
    pub(crate) fn put(&mut self, now: Instant, item: T) -> Result<(), T> {
        if self.idle.len() >= self.max {
            return Err(item);
        }
        self.idle.push_back((now.checked_add(self.keep_alive), item));
        Ok(())
    }

    /// Keeps `item` in the place of the oldest one. Returns false if there is none: then `item` is dropped.
    pub(crate) fn put_for_oldest(&mut self, now: Instant, item: T) -> bool {
        self.idle.pop_front().is_some() && self.put(now, item).is_ok()
    }

    /// Drops items that are closed or too old. Returns how many, and when the next one is due; `None` if none
    /// is left.
    pub(crate) fn sweep(&mut self, now: Instant) -> (usize, Option<Instant>) {
        let before = self.idle.len();
        self.idle.retain_mut(|(until, item)| !dead(*until, item, now));
        let due = self.idle.front().and_then(|(until, _)| *until);
        let next = due.into_iter().chain(now.checked_add(LOOK)).min();
        let next = next.filter(|_| !self.idle.is_empty());
        (before.saturating_sub(self.idle.len()), next)
    }

    /// Drops the items that should not `stay`, and returns how many.
    pub(crate) fn retain(&mut self, stay: impl Fn(&T) -> bool) -> usize {
        let before = self.idle.len();
        self.idle.retain(|(_, item)| stay(item));
        before.saturating_sub(self.idle.len())
    }

    /// How many are kept.
    pub(crate) fn len(&self) -> usize {
        self.idle.len()
    }
}

fn dead<T: Idle>(until: Option<Instant>, item: &mut T, now: Instant) -> bool {
    until.is_some_and(|until| now >= until) || item.is_closed()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An even number is open.
    impl Idle for u32 {
        fn is_closed(&mut self) -> bool {
            *self % 2 == 1
        }
    }

    const KEEP: Duration = Duration::from_secs(4);

    #[tokio::test(start_paused = true)]
    async fn the_latest_comes_first_and_closed_ones_are_let_go() {
        let now = Instant::now();
        let mut pool = Pool::new(KEEP, 9);
        for item in [2, 4, 5] {
            pool.put(now, item).unwrap();
        }
        assert_eq!(pool.take(now, |_| true), (Some(4), 1));
        assert_eq!(pool.take(now, |_| true), (Some(2), 0));
        assert_eq!(pool.take(now, |_| true), (None, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_not_wanted_stays() {
        let now = Instant::now();
        let mut pool = Pool::new(KEEP, 9);
        pool.put(now, 2).unwrap();
        pool.put(now, 4).unwrap();
        assert_eq!(pool.take(now, |item| *item == 2), (Some(2), 0));
        assert_eq!(pool.len(), 1);
        // Whether it is closed is for the next sweep, or for who wants it.
        pool.put(now, 3).unwrap();
        assert_eq!(pool.take(now, |item| *item == 2), (None, 0));
        assert_eq!(pool.take(now, |_| true), (Some(4), 1));
    }

    #[tokio::test(start_paused = true)]
    async fn old_ones_are_neither_handed_out_nor_kept() {
        let then = Instant::now();
        let mut pool = Pool::new(KEEP, 9);
        pool.put(then, 2).unwrap();
        // Within a second, or when the next one is due.
        assert_eq!(pool.sweep(then), (0, then.checked_add(LOOK)));
        let nearly = then + KEEP - LOOK / 2;
        assert_eq!(pool.sweep(nearly), (0, then.checked_add(KEEP)));
        let later = then + KEEP;
        assert_eq!(pool.take(later, |_| true), (None, 1));
        pool.put(then, 2).unwrap();
        assert_eq!(pool.sweep(later), (1, None));
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_are_not_to_stay_go() {
        let mut pool = Pool::new(KEEP, 9);
        for item in [2, 4, 6] {
            pool.put(Instant::now(), item).unwrap();
        }
        assert_eq!(pool.retain(|item| *item == 4), 2);
        assert_eq!(pool.take(Instant::now(), |_| true), (Some(4), 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_pool_gives_back() {
        let mut pool = Pool::new(KEEP, 1);
        pool.put(Instant::now(), 2).unwrap();
        assert_eq!(pool.put(Instant::now(), 4), Err(4));
        assert!(pool.put_for_oldest(Instant::now(), 4));
        assert_eq!((pool.take(Instant::now(), |_| true), pool.len()), ((Some(4), 0), 0));
        assert!(!Pool::new(KEEP, 0).put_for_oldest(Instant::now(), 4_u32));
    }
}
