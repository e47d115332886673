//! What is known of a connection's bytes and frames.
//!
//! Whether an attempt may be sent again depends on whether a byte was written or read before it failed. The library does
//! not report that, so the bytes are counted here.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use h2::Reason;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How many streams of one connection may have a header block that is too large.
const LARGE_BLOCKS: usize = 16;
/// How many opened streams are remembered until they are accepted.
const OPENED: usize = 1024;

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
    /// Why nothing more is read, if the peer has broken the protocol.
    violation: OnceLock<Violation>,
    /// Whether a request waits to be written.
    queued: AtomicBool,
    /// Whether nothing is read for the moment.
    held: AtomicBool,
    /// Notified of the first byte that is read.
    heard: Notify,
    streams: Mutex<Streams>,
}

/// What is known of a connection's streams.
#[derive(Debug, Default)]
struct Streams {
    /// Those with a header block that is too large.
    large: Vec<u32>,
    /// Those whose heads were read and that the library has not handed out yet, in order.
    opened: VecDeque<u32>,
    /// How the library refused some of them.
    refused: Vec<Refused>,
}

/// How a peer breaks the protocol without the library noticing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    /// It floods the connection with frames.
    Flood,
    /// Its first frame is not SETTINGS (RFC 9113 §3.4).
    NoSettings,
}

/// How the library refused a stream: the reset's error code, or `None` for a 431.
pub(crate) type Refused = Option<Reason>;

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

    /// How the peer has broken the protocol, if it has.
    pub(crate) fn violation(&self) -> Option<Violation> {
        self.violation.get().copied()
    }

    /// A request was handed to the library, which writes it when the connection is polled next.
    pub(crate) fn queue(&self) {
        self.queued.store(true, Ordering::Relaxed);
    }

    /// Whether a request was handed to the library since the last call.
    pub(crate) fn take_queued(&self) -> bool {
        self.queued.swap(false, Ordering::Relaxed)
    }

    /// Sets whether nothing is read for the moment.
    pub(crate) fn hold_reads(&self, held: bool) {
        self.held.store(held, Ordering::Relaxed);
    }

    /// Whether nothing is read for the moment.
    pub(super) fn are_reads_held(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }

    /// Whether a header block of this stream was too large. The library drops fields beyond its own limit, so trailers in
    /// such a block are incomplete.
    pub(super) fn is_large(&self, stream: u32) -> bool {
        self.streams().large.contains(&stream)
    }

    /// The library has handed out this stream.
    pub(crate) fn accepted(&self, stream: u32) {
        let opened = &mut self.streams().opened;
        while opened.pop_front_if(|opened| *opened <= stream).is_some() {}
    }

    /// How the library refused streams since the last call.
    pub(crate) fn take_refused(&self) -> Vec<Refused> {
        std::mem::take(&mut self.streams().refused)
    }

    /// `size` bytes were read.
    pub(super) fn read(&self, size: usize) {
        if add(&self.read, size as u64) == 0 {
            self.heard.notify_waiters();
        }
    }

    /// `size` bytes were written.
    pub(super) fn wrote(&self, size: usize) {
        add(&self.written, size as u64);
    }

    /// Everything written was flushed, or (`all` is false) the socket had no room.
    pub(super) fn flushed(&self, all: bool) {
        if all {
            add(&self.flushes, 1);
            if self.blocked.load(Ordering::Relaxed) {
                *lock(&self.unblocked_at) = Some(Instant::now());
            }
        }
        self.blocked.store(!all, Ordering::Relaxed);
    }

    /// The peer has broken the protocol. The first time counts.
    pub(super) fn violated(&self, violation: Violation) {
        let _first = self.violation.set(violation).is_ok();
    }

    /// The first header block of a stream was read.
    pub(super) fn opened(&self, stream: u32) {
        let opened = &mut self.streams().opened;
        if opened.len() >= OPENED {
            opened.pop_front();
        }
        opened.push_back(stream);
    }

    /// A header block of a stream is too large.
    pub(super) fn large_block(&self, stream: u32) {
        let large = &mut self.streams().large;
        if large.len() < LARGE_BLOCKS {
            large.push(stream);
        } else {
            self.violated(Violation::Flood);
        }
    }

    /// A stream was answered or reset. If it was not handed out yet, the library did that.
    pub(super) fn ended(&self, stream: u32, how: Refused) {
        let mut streams = self.streams();
        let Streams { opened, refused, .. } = &mut *streams;
        if let Some(place) = opened.iter().position(|opened| *opened == stream) {
            opened.remove(place);
            refused.push(how);
        }
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        lock(&self.streams)
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
