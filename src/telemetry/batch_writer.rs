//! Lines that requests append to a buffer of their thread, and that one thread writes in batches.
//!
//! A request formats its line once, into memory that the thread keeps, and goes on: no allocation, no system call and no
//! lock for which another request competes. The writing thread sleeps while nothing is there. It writes the first line at
//! once, and then lets some time pass, so that under load one write carries many lines. If the reader of our output stalls
//! (a full pipe, a slow disk), requests must not stall and memory must not grow. So when a thread's buffer is full, its
//! newest lines are dropped and counted. The lines of a thread stay in their order.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use prometheus::IntCounter;
use tokio::time::Instant;

use super::limiter::LogLimiter;
use super::shard;

/// The most bytes that may wait in the buffer of a thread, beside the line that reaches this.
const WAITING: usize = 1024 * 1024;

/// A buffer with this many bytes is written without waiting for more.
const HURRY: usize = WAITING / 4;

/// How much memory a buffer keeps while there are no lines.
const KEPT: usize = 16 * 1024;

/// How long the lines after a write may wait for others.
const GATHER: Duration = Duration::from_millis(10);

/// How often a flush checks whether everything was written.
const LOOK: Duration = Duration::from_millis(2);

/// Appends lines. `S` is what a thread remembers from one line to the next.
#[derive(Debug)]
pub struct BatchWriter<S> {
    shared: Arc<Shared<S>>,
    writer: Thread,
}

#[derive(Debug)]
struct Shared<S> {
    /// One for each thread, up to a number that no machine has workers.
    buffers: Box<[Mutex<Buffer<S>>]>,
    /// Whether the writing thread sleeps until it is woken.
    sleeps: AtomicBool,
    /// Whether nobody appends any more.
    closed: AtomicBool,
    /// How many lines were written, or lost in writing.
    settled: AtomicU64,
    /// Counts lost lines: the buffer was full, or the writer failed.
    dropped: IntCounter,
    /// Limits how often the log says so.
    told: LogLimiter,
}

/// The lines of a thread that wait.
#[derive(Debug, Default)]
struct Buffer<S> {
    bytes: Vec<u8>,
    /// How many lines these are.
    lines: u64,
    /// How many lines were appended since the start.
    appended: u64,
    state: S,
}

impl<S: Default + Send + 'static> BatchWriter<S> {
    /// Starts the thread `name`, which writes to `out`. Lost lines are counted in `dropped`, and told as `told` admits.
    ///
    /// # Errors
    /// When the system provides no thread.
    pub fn start(
        name: &str,
        (dropped, told): (IntCounter, LogLimiter),
        out: impl Write + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            buffers: (0..shard::COUNT).map(|_| Mutex::default()).collect(),
            sleeps: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            settled: AtomicU64::new(0),
            dropped,
            told,
        });
        let written = Arc::clone(&shared);
        let thread = thread::Builder::new().name(name.into()).spawn(move || written.write(out))?;
        Ok(Self { shared, writer: thread.thread().clone() })
    }
}

impl<S> BatchWriter<S> {
    /// Appends the line that `format` writes, without waiting for anything. If this thread's buffer is full, the line is
    /// dropped and counted, and never formatted.
    pub fn append(&self, format: impl FnOnce(&mut S, &mut Vec<u8>)) {
        let Some(buffer) = self.shared.buffers.get(shard::of_this_thread()) else { return };
        let mut buffer = lock(buffer);
        if buffer.bytes.len() >= WAITING {
            drop(buffer);
            self.shared.lost(1);
            return;
        }
        let Buffer { bytes, lines, appended, state } = &mut *buffer;
        format(state, bytes);
        *lines += 1;
        *appended += 1;
        let hurries = bytes.len() >= HURRY;
        drop(buffer);
        let sleeps = &self.shared.sleeps;
        // The writing thread says that it sleeps before it looks at the buffers, so it either sees this line or is woken.
        if hurries || sleeps.load(Ordering::Acquire) && sleeps.swap(false, Ordering::AcqRel) {
            self.writer.unpark();
        }
    }

    /// How many lines were lost since the start.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.get()
    }

    /// Waits, at most `patience`, until every line that was appended is written. For the end of the process.
    #[expect(clippy::disallowed_methods, reason = "no worker runs any more: nothing is blocked")]
    pub fn flush(&self, patience: Duration) {
        let appended: u64 = self.shared.buffers.iter().map(|buffer| lock(buffer).appended).sum();
        let mut left = patience;
        while self.shared.settled.load(Ordering::Acquire) < appended && !left.is_zero() {
            self.writer.unpark();
            thread::sleep(LOOK);
            left = left.saturating_sub(LOOK);
        }
    }
}

impl<S> Drop for BatchWriter<S> {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.writer.unpark();
    }
}

impl<S> Shared<S> {
    /// The writing thread. It ends once nobody appends any more and everything is written.
    fn write(&self, mut out: impl Write) {
        let mut batch = Vec::new();
        loop {
            let closed = self.closed.load(Ordering::Acquire);
            if self.write_waiting(&mut batch, &mut out) {
                thread::park_timeout(GATHER);
                continue;
            }
            // Only now does a line wake this thread, so that under load none pays for that.
            self.sleeps.store(true, Ordering::SeqCst);
            if self.write_waiting(&mut batch, &mut out) {
                self.sleeps.store(false, Ordering::SeqCst);
                thread::park_timeout(GATHER);
            } else if closed {
                return;
            } else {
                batch = Vec::new();
                thread::park();
            }
        }
    }

    /// Writes what waits. Returns whether there was anything.
    fn write_waiting(&self, batch: &mut Vec<u8>, out: &mut impl Write) -> bool {
        let mut any = false;
        for buffer in self.buffers.iter().take(shard::used()) {
            let lines = {
                let mut buffer = lock(buffer);
                if buffer.lines == 0 {
                    // A burst is over.
                    buffer.bytes.shrink_to(KEPT);
                    continue;
                }
                // The thread goes on with the memory of the last batch.
                std::mem::swap(&mut buffer.bytes, batch);
                std::mem::take(&mut buffer.lines)
            };
            any = true;
            if out.write_all(batch).and_then(|()| out.flush()).is_err() {
                self.lost(lines);
            }
            self.settled.fetch_add(lines, Ordering::Release);
            batch.clear();
        }
        any
    }

    /// Counts lost lines, and says so now and then.
    fn lost(&self, lines: u64) {
        self.dropped.inc_by(lines);
        if let Some(untold) = self.told.admits(Instant::now()) {
            let dropped = self.dropped.get();
            tracing::warn!(
                dropped,
                untold,
                "Records of the access log were dropped: its reader is slow, or gone."
            );
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
