//! Who wants the next turn of a connection's task: the connection, its streams, or somebody else.
//!
//! What a stream sends wakes the task that is just about to send it, and a request that waits for its upstream gives the
//! connection nothing to do. So the connection and the streams each have a waker of their own. A wake-up within a turn only is
//! noted, and each of them is polled only if it was woken.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

/// A turn is under way.
const TURNING: u8 = 1;
const CONNECTION: u8 = 2;
const STREAMS: u8 = 4;

/// The turns of one task.
#[derive(Debug)]
pub(super) struct Turns {
    shared: Arc<Shared>,
    pub(super) connection: Waker,
    pub(super) streams: Waker,
}

#[derive(Debug)]
struct Shared {
    /// Who was woken, and whether a turn is under way.
    woken: AtomicU8,
    /// Wakes the task.
    task: Mutex<Waker>,
}

/// One of those who are woken.
struct Source {
    shared: Arc<Shared>,
    bit: u8,
}

impl Turns {
    /// No turn is under way, and nobody was woken.
    pub(super) fn new() -> Self {
        let task = Mutex::new(Waker::noop().clone());
        let shared = Arc::new(Shared { woken: AtomicU8::new(0), task });
        let source = |bit| Waker::from(Arc::new(Source { shared: Arc::clone(&shared), bit }));
        let (connection, streams) = (source(CONNECTION), source(STREAMS));
        Self { shared, connection, streams }
    }

    /// A turn of the task of `cx` begins. Returns whether the connection must be polled in it: it was woken, or neither it nor
    /// a stream was.
    pub(super) fn begin(&self, cx: &Context<'_>) -> bool {
        let mut task = self.shared.task.lock().unwrap_or_else(PoisonError::into_inner);
        if !task.will_wake(cx.waker()) {
            task.clone_from(cx.waker());
        }
        drop(task);
        self.shared.woken.swap(TURNING, Ordering::AcqRel) != STREAMS
    }

    /// Whether the connection was woken since the turn began, or since the last call.
    pub(super) fn connection_woken(&self) -> bool {
        self.shared.woken.fetch_and(!CONNECTION, Ordering::AcqRel) & CONNECTION != 0
    }

    /// All streams that were woken so far are polled from here on.
    pub(super) fn poll_streams(&self) {
        self.shared.woken.fetch_and(!STREAMS, Ordering::AcqRel);
    }

    /// The turn ends. If anybody was woken who was not polled since, there is another one.
    pub(super) fn end(&self) {
        if self.shared.woken.fetch_and(!TURNING, Ordering::AcqRel) != TURNING {
            self.shared.wake();
        }
    }
}

impl Shared {
    fn wake(&self) {
        self.task.lock().unwrap_or_else(PoisonError::into_inner).wake_by_ref();
    }
}

impl Wake for Source {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let before = self.shared.woken.fetch_or(self.bit, Ordering::AcqRel);
        if before & (TURNING | self.bit) == 0 {
            self.shared.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_wake_up_within_a_turn_is_noted_and_one_between_two_wakes_the_task() {
        let (turns, wakes) = (Turns::new(), Arc::new(Wakes::default()));
        let (task, woken) = (Waker::from(Arc::clone(&wakes)), || wakes.0.load(Ordering::Relaxed));
        let cx = Context::from_waker(&task);
        assert!(turns.begin(&cx), "nobody says who wants the first turn");
        // What the connection is polled for needs no turn of its own.
        turns.connection.wake_by_ref();
        assert!(turns.connection_woken() && !turns.connection_woken());
        turns.end();
        assert_eq!(woken(), 0);
        turns.streams.wake_by_ref();
        turns.streams.wake_by_ref();
        assert_eq!(woken(), 1);
        assert!(!turns.begin(&cx), "only a stream was woken");
        turns.poll_streams();
        // While the connection is polled.
        turns.streams.wake_by_ref();
        assert!(!turns.connection_woken());
        turns.end();
        assert_eq!(woken(), 2);
        turns.connection.wake_by_ref();
        assert_eq!(woken(), 3);
        assert!(turns.begin(&cx));
        turns.poll_streams();
        turns.connection.wake_by_ref();
        turns.end();
        assert_eq!(woken(), 4, "the connection was woken after it was polled");
    }
}
