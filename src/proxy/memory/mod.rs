//! What all bodies together may keep in memory: `limits.bufferedBytes`.
//!
//! There is one count for all workers and all configurations. A body that only streams is not in it, and costs
//! nothing. Whoever keeps bytes has a [`Reservation`], which gives them back when it is dropped, with the last
//! of the bytes. Large bodies are parsed on threads of their own ([`Budget::apart`]), so that no other request
//! of the worker waits for that.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use crate::language::value::Account;
use crate::telemetry::limiter::LogLimiter;
use crate::telemetry::metrics::{BodyUse, BufferMetrics};

/// Up to this size a body is parsed where it was read. This takes less than a millisecond.
const AT_ONCE: usize = 64 * 1024;

/// The budget as one worker sees it.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: usize,
    metrics: BufferMetrics,
    parsers: Parsers,
    /// Limits which refusals are logged.
    told: LogLimiter,
}

/// The threads that parse large bodies. All workers share them.
#[derive(Clone, Debug)]
pub(crate) struct Parsers(Option<Arc<Semaphore>>);

/// A part of the budget.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<Budget>,
    bytes: usize,
}

/// There is no room in the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// Bytes with their part of the budget.
#[derive(Debug)]
struct Reserved {
    bytes: Bytes,
    _reservation: Reservation,
}

impl Parsers {
    /// For so many workers: half as many threads, so that parsing never takes all processors.
    pub(crate) fn beside(workers: usize) -> Self {
        Self(Some(Arc::new(Semaphore::new((workers / 2).clamp(1, Semaphore::MAX_PERMITS)))))
    }

    /// Without threads of their own. A rehearsal has one request, and its time is virtual.
    pub(crate) const fn in_place() -> Self {
        Self(None)
    }
}

impl Budget {
    /// All bodies together may take `limit` bytes.
    pub(crate) fn new(limit: usize, metrics: BufferMetrics, parsers: Parsers) -> Arc<Self> {
        let told = LogLimiter::new("A body found no room in limits.bufferedBytes.", None);
        Arc::new(Self { limit, metrics, parsers, told })
    }

    /// A part of the budget, empty for now.
    pub(crate) fn reservation(self: &Arc<Self>) -> Reservation {
        Reservation { budget: Arc::clone(self), bytes: 0 }
    }

    /// Counts and logs that a body was not kept for want of room.
    pub(crate) fn refused(&self, body: BodyUse) {
        self.metrics.refused(body);
        if let Some(untold) = self.told.admits(Instant::now()) {
            let (body, limit) = (body.as_str(), self.limit);
            tracing::warn!(body, limit, untold, "A body found no room in limits.bufferedBytes.");
        }
    }

    /// Does `work` on a body of `size` bytes, on another thread if it is large. `None` if the work panicked.
    pub(crate) async fn apart<T: Send + 'static>(
        &self,
        size: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let Some(threads) = self.parsers.0.as_ref().filter(|_| size > AT_ONCE) else {
            return Some(work());
        };
        let turn = Arc::clone(threads).acquire_owned().await.ok()?;
        let working = spawn_blocking(move || {
            // Held by the work itself, which goes on when nobody waits for it any more.
            let _turn = turn;
            work()
        });
        working.await.ok()
    }
}

impl Reservation {
    /// Another part of the same budget.
    pub(crate) fn another(&self) -> Self {
        self.budget.reservation()
    }

    /// Takes `more` bytes, if there is room.
    pub(crate) fn grow(&mut self, more: usize) -> bool {
        let Budget { metrics, limit, .. } = &*self.budget;
        let held = metrics.take(more);
        if held > *limit {
            metrics.give_back(more);
            return false;
        }
        self.bytes = self.bytes.saturating_add(more);
        true
    }

    /// Counts and logs that there was no room for a body.
    pub(crate) fn refused(&self, body: BodyUse) {
        self.budget.refused(body);
    }

    /// Joins the reservation to `bytes`: it ends with the last reference to them.
    pub(crate) fn join(self, bytes: Bytes) -> Bytes {
        if self.bytes == 0 {
            bytes
        } else {
            Bytes::from_owner(Reserved { bytes, _reservation: self })
        }
    }

    /// Does work with the reservation, on another thread if the body of `size` bytes is large.
    pub(crate) async fn apart<T: Send + 'static>(
        self,
        size: usize,
        work: impl FnOnce(Self) -> Result<T, Full> + Send + 'static,
    ) -> Result<T, Full> {
        let budget = Arc::clone(&self.budget);
        budget.apart(size, move || work(self)).await.unwrap_or(Err(Full))
    }
}

impl Account for Reservation {
    fn resize(&mut self, bytes: usize) -> bool {
        match bytes.checked_sub(self.bytes) {
            Some(0) => true,
            Some(more) => self.grow(more),
            None => {
                self.budget.metrics.give_back(self.bytes - bytes);
                self.bytes = bytes;
                true
            }
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.metrics.give_back(self.bytes);
        }
    }
}

impl AsRef<[u8]> for Reserved {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::Metrics;

    #[test]
    fn what_one_configuration_holds_counts_for_the_next() {
        let metrics = Metrics::new();
        let budget = |limit| Budget::new(limit, metrics.buffers(), Parsers::in_place());
        let (old, new) = (budget(100), budget(50));
        let mut held = old.reservation();
        assert!(held.grow(60));
        assert!(!new.reservation().grow(1), "60 of 50 are taken");
        assert!(held.resize(20));
        let mut more = new.reservation();
        assert!(more.grow(30) && !more.grow(1));
        drop(held);
        assert!(more.grow(20) && !more.grow(1));
    }

    #[test]
    fn bytes_keep_their_part_until_the_last_of_them_is_gone() {
        let budget = Budget::new(10, Metrics::new().buffers(), Parsers::in_place());
        let mut part = budget.reservation();
        assert!(part.grow(10));
        let bytes = part.join(Bytes::from_static(b"0123456789"));
        let tail = bytes.slice(8..);
        drop(bytes);
        assert!(!budget.reservation().grow(1));
        drop(tail);
        assert!(budget.reservation().grow(1));
    }

    #[tokio::test(start_paused = true)]
    async fn large_work_is_done_elsewhere_and_takes_no_virtual_time() {
        let parsers = Parsers::beside(1);
        let budget = Budget::new(10, Metrics::new().buffers(), parsers);
        let (here, begun) = (std::thread::current().id(), Instant::now());
        let thread = || std::thread::current().id();
        assert_eq!(budget.apart(AT_ONCE, thread).await, Some(here));
        let pair = tokio::join!(budget.apart(AT_ONCE + 1, thread), budget.apart(1 << 20, thread));
        assert!(pair.0.is_some_and(|id| id != here) && pair.1.is_some_and(|id| id != here));
        assert_eq!(begun.elapsed(), std::time::Duration::ZERO);
        let panicked = budget.apart(1 << 20, || assert!(std::hint::black_box(false))).await;
        assert_eq!(panicked, None);
        assert_eq!(budget.apart(1 << 20, || 7).await, Some(7), "the thread is free again");
    }
}
