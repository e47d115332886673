//! How fast a client moves the bytes of its requests' heads and of its answers, for `limits.minimumRate`, and how much
//! memory unfinished heads hold. (The bodies of requests are read by whoever sends them on:
//! [`StallTimer`](crate::proxy::body).)
//!
//! One unfinished head may be as large as `limits` allow; that many connections may not hold as much each. When those of a
//! worker hold [`ALL_HEADS`], whoever sends on a head of more than [`SMALL_HEAD`] is refused. Small heads always have
//! room.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::proxy::settings::MinimumRate;

/// How many bytes the unfinished heads of a worker may hold.
const ALL_HEADS: u64 = 8 * 1024 * 1024;

/// A head of at most this size is not refused for want of room.
const SMALL_HEAD: u64 = 8 * 1024;

/// What was moved since the connection last began to answer. It belongs to one thread.
#[derive(Debug)]
pub(super) struct Pace {
    /// How many bytes of the next head have arrived.
    received: AtomicU64,
    /// The same of all connections of the worker.
    all: Arc<AtomicU64>,
    /// How many bytes of answers were handed over. What the system buffers counts as taken, in the client's favour.
    handed: AtomicU64,
    /// For how many ticks the client accepted none.
    waited: AtomicU32,
}

impl Pace {
    /// Nothing was moved yet. `all` counts the bytes of all unfinished heads of the worker.
    pub(super) const fn new(all: Arc<AtomicU64>) -> Self {
        let (received, handed) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { received, all, handed, waited: AtomicU32::new(0) }
    }

    /// A request begins to be answered.
    pub(super) fn begin(&self) {
        self.release();
        self.handed.store(0, Ordering::Relaxed);
        self.waited.store(0, Ordering::Relaxed);
    }

    /// This many bytes of a head have arrived.
    pub(super) fn received(&self, bytes: usize) {
        add(&self.received, bytes);
        add(&self.all, bytes);
    }

    /// Whether the head is a large one and there is no room for more of it.
    pub(super) fn lacks_room(&self) -> bool {
        self.received.load(Ordering::Relaxed) > SMALL_HEAD
            && self.all.load(Ordering::Relaxed) > ALL_HEADS
    }

    /// The head is read, or its connection is closed.
    fn release(&self) {
        let received = self.received.load(Ordering::Relaxed);
        self.received.store(0, Ordering::Relaxed);
        let all = self.all.load(Ordering::Relaxed);
        self.all.store(all.saturating_sub(received), Ordering::Relaxed);
    }

    /// This many bytes of an answer were handed over.
    pub(super) fn handed(&self, bytes: usize) {
        add(&self.handed, bytes);
    }

    /// Whether a head that has been arriving for this long is slower than `rate`.
    pub(super) fn is_head_slow(&self, rate: MinimumRate, waited: Duration) -> bool {
        waited > rate.patience(self.received.load(Ordering::Relaxed))
    }

    /// The client accepted nothing for one more tick of this `length`: whether that is slower than `rate`.
    pub(super) fn is_answer_slow(&self, rate: MinimumRate, length: Duration) -> bool {
        let waited = self.waited.load(Ordering::Relaxed).saturating_add(1);
        self.waited.store(waited, Ordering::Relaxed);
        length.saturating_mul(waited) > rate.patience(self.handed.load(Ordering::Relaxed))
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.release();
    }
}

fn add(counter: &AtomicU64, bytes: usize) {
    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
    let before = counter.load(Ordering::Relaxed);
    counter.store(before.saturating_add(bytes), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::watch::{ConnectionState, Connections, Timeouts};

    const HOUR: Duration = Duration::from_hours(1);
    const SECOND: Duration = Duration::from_secs(1);
    const TIMEOUTS: Timeouts =
        Timeouts { head: HOUR, idle: HOUR, body: HOUR, rate: MinimumRate::new(100) };

    /// Passes seconds, with `act` in each, until the watch closes the connection; at most 100.
    async fn seconds(
        begin: impl FnOnce(&ConnectionState),
        act: impl Fn(&Arc<ConnectionState>),
    ) -> Option<u32> {
        let connections = Connections::default();
        let (state, registered) = connections.register(None);
        let task = tokio::spawn(std::future::pending::<()>());
        registered.closed_by(task.abort_handle());
        begin(&state);
        for second in 1..=100 {
            act(&state);
            connections.tick.fetch_add(1, Ordering::Relaxed);
            connections.sweep(TIMEOUTS, SECOND);
            tokio::task::yield_now().await;
            if state.is_late() || task.is_finished() {
                return Some(second);
            }
        }
        None
    }

    #[test]
    fn large_heads_that_never_end_leave_room_for_small_ones() {
        let all = Arc::new(AtomicU64::new(0));
        let mut held: Vec<Pace> = Vec::new();
        while !held.last().is_some_and(Pace::lacks_room) {
            let large = Pace::new(Arc::clone(&all));
            large.received(80 * 1024);
            held.push(large);
        }
        assert_eq!(held.len(), 103, "8 MiB");
        let small = Pace::new(Arc::clone(&all));
        small.received(8 * 1024);
        assert!(!small.lacks_room());
        // One is complete, another connection is gone: there is room again.
        held[0].begin();
        drop(held.pop());
        assert!(!held[1].lacks_room());
        drop((held, small));
        assert_eq!(all.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn a_head_must_come_at_the_rate() {
        let head = |bytes: usize| {
            seconds(ConnectionState::heard, move |state: &Arc<ConnectionState>| {
                state.received(bytes);
            })
        };
        assert_eq!(head(100).await, None);
        assert_eq!(head(1).await, Some(6));
        assert_eq!(head(50).await, Some(11));
    }

    #[tokio::test]
    async fn an_answer_must_be_taken_at_the_rate() {
        let answer = |bytes: usize| {
            seconds(ConnectionState::begin, move |state: &Arc<ConnectionState>| {
                state.handed(bytes);
                state.set_blocked(true);
            })
        };
        assert_eq!(answer(100).await, None);
        assert_eq!(answer(1).await, Some(6));
        assert_eq!(answer(50).await, Some(11));
        // One that takes everything is not waited for, however little there is.
        let little =
            seconds(ConnectionState::begin, |state: &Arc<ConnectionState>| state.handed(1));
        assert_eq!(little.await, None);
    }
}
