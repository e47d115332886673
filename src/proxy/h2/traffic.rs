//! Counts of a connection's bytes.
//!
//! Whether an attempt may be sent again depends on whether a byte was written or read before it failed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

/// Counts of a connection. Its task writes them, and those whose messages it carries read them, all on one thread. So
/// the orderings are relaxed.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    read: AtomicU64,
    written: AtomicU64,
    /// How often everything written was flushed.
    flushes: AtomicU64,
    /// Whether the socket has no room.
    blocked: AtomicBool,
    /// When everything written was last flushed late.
    unblocked_at: Mutex<Option<Instant>>,
    /// Notified of the first byte that is read.
    heard: Notify,
}

/// The byte counts at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CountsSnapshot {
    read: u64,
    written: u64,
}

impl Traffic {
    /// The current byte counts.
    pub(crate) fn mark(&self) -> CountsSnapshot {
        CountsSnapshot {
            read: self.read.load(Ordering::Relaxed),
            written: self.written.load(Ordering::Relaxed),
        }
    }

    /// Waits until a byte was read.
    pub(crate) async fn first_byte(&self) {
        let heard = self.heard.notified();
        if self.read.load(Ordering::Relaxed) == 0 {
            heard.await;
        }
    }

    /// Whether a byte was written since `mark`.
    pub(crate) fn wrote_since(&self, mark: CountsSnapshot) -> bool {
        self.mark().written != mark.written
    }

    /// Whether a byte was read since `mark`.
    pub(crate) fn read_since(&self, mark: CountsSnapshot) -> bool {
        self.mark().read != mark.read
    }

    /// How often everything written was flushed.
    pub(crate) fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Relaxed)
    }

    /// When everything written was last flushed late, because the socket had no room.
    pub(crate) fn unblocked_at(&self) -> Option<Instant> {
        *lock(&self.unblocked_at)
    }

    /// `size` bytes were read.
    pub(crate) fn read(&self, size: usize) {
        if add(&self.read, size as u64) == 0 {
            self.heard.notify_waiters();
        }
    }

    /// `size` bytes were written.
    pub(crate) fn wrote(&self, size: usize) {
        add(&self.written, size as u64);
    }

    /// Everything written was flushed, or (`all` is false) the socket had no room.
    pub(crate) fn flushed(&self, all: bool) {
        if all {
            add(&self.flushes, 1);
            if self.blocked.load(Ordering::Relaxed) {
                *lock(&self.unblocked_at) = Some(Instant::now());
            }
        }
        self.blocked.store(!all, Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds `more`, and returns the count before. There is one writer.
fn add(count: &AtomicU64, more: u64) -> u64 {
    let before = count.load(Ordering::Relaxed);
    count.store(before.wrapping_add(more), Ordering::Relaxed);
    before
}
