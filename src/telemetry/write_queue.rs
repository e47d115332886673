//! A bounded queue in front of a slow writer, for the log's lines, the access log's records and recordings.
//!
//! Requests hand their items over and go on; a thread writes them. If the reader of our output stalls (a full
//! pipe, a slow disk), requests must not stall and memory must not grow. So when the queue is full, the newest
//! item is dropped and counted. Items are formatted by the writing thread, to save the workers' time.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use prometheus::IntCounter;
use tokio::time::Instant;

use super::limiter::LogLimiter;

/// How many items may wait.
const QUEUE: usize = 4096;

/// The most bytes that are gathered into one write.
const BATCH: usize = 64 * 1024;

/// How often a flush checks whether everything was written.
const LOOK: Duration = Duration::from_millis(2);

/// The queue's sending end. Cheap to clone.
#[derive(Debug)]
pub struct WriteQueue<T> {
    queue: SyncSender<T>,
    counts: Arc<QueueCounts>,
}

impl<T> Clone for WriteQueue<T> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), counts: Arc::clone(&self.counts) }
    }
}

#[derive(Debug)]
struct QueueCounts {
    /// Handed over, whether written later or not.
    accepted: AtomicU64,
    /// Written, or lost in writing.
    settled: AtomicU64,
    loss: Loss,
}

/// What becomes of the number of items that are lost: the queue was full, or the writer failed.
#[derive(Debug)]
pub struct Loss {
    dropped: IntCounter,
    /// What the log says of it, and how often, if it does.
    told: Option<(LogLimiter, &'static str)>,
}

impl Loss {
    /// It is counted.
    pub const fn counted(dropped: IntCounter) -> Self {
        Self { dropped, told: None }
    }

    /// It is counted, and the log says `line` as `pace` admits.
    pub const fn told(dropped: IntCounter, pace: LogLimiter, line: &'static str) -> Self {
        Self { dropped, told: Some((pace, line)) }
    }

    /// Counts lost items, and says so now and then.
    fn add(&self, items: u64) {
        self.dropped.inc_by(items);
        let Some((pace, line)) = &self.told else { return };
        if let Some(untold) = pace.admits(Instant::now()) {
            let dropped = self.dropped.get();
            tracing::warn!(dropped, untold, "{line}");
        }
    }
}

impl<T: Send + 'static> WriteQueue<T> {
    /// Starts the thread `name`, which writes to `out` whatever `format` appends for each item.
    ///
    /// # Errors
    /// When the system provides no thread.
    pub fn start(
        name: &str,
        loss: Loss,
        out: impl Write + Send + 'static,
        format: fn(&T, &mut Vec<u8>),
    ) -> io::Result<Self> {
        Self::spawn(name, QUEUE, loss, move |items, counts| write_all(items, out, format, counts))
    }

    /// Starts the thread `name`, which calls `write` once with nothing, and then with each item, of which `room` may wait.
    /// It returns whether it has written the item.
    ///
    /// # Errors
    /// When the system provides no thread.
    pub fn start_each(
        name: &str,
        room: usize,
        loss: Loss,
        mut write: impl FnMut(Option<T>) -> bool + Send + 'static,
    ) -> io::Result<Self> {
        Self::spawn(name, room, loss, move |items, counts| {
            write(None);
            while let Ok(item) = items.recv() {
                if !write(Some(item)) {
                    counts.loss.add(1);
                }
                counts.settled.fetch_add(1, Ordering::Release);
            }
        })
    }

    fn spawn(
        name: &str,
        room: usize,
        loss: Loss,
        work: impl FnOnce(&Receiver<T>, &QueueCounts) + Send + 'static,
    ) -> io::Result<Self> {
        let (queue, items) = sync_channel(room);
        let (accepted, settled) = (AtomicU64::new(0), AtomicU64::new(0));
        let counts = Arc::new(QueueCounts { accepted, settled, loss });
        let shared = Arc::clone(&counts);
        thread::Builder::new().name(name.into()).spawn(move || work(&items, &shared))?;
        Ok(Self { queue, counts })
    }

    /// Hands `item` over without waiting. When the queue is full, it is dropped and counted.
    pub fn send(&self, item: T) {
        self.counts.accepted.fetch_add(1, Ordering::Relaxed);
        if self.queue.try_send(item).is_err() {
            self.counts.loss.add(1);
            self.counts.settled.fetch_add(1, Ordering::Release);
        }
    }
}

impl<T> WriteQueue<T> {
    /// How many items were lost since the start.
    pub fn dropped(&self) -> u64 {
        self.counts.loss.dropped.get()
    }

    /// Waits, at most `patience`, until everything handed over is written. For the end of the process.
    #[expect(clippy::disallowed_methods, reason = "no worker runs any more: nothing is blocked")]
    pub fn flush(&self, patience: Duration) {
        let accepted = self.counts.accepted.load(Ordering::Relaxed);
        let mut left = patience;
        while self.counts.settled.load(Ordering::Acquire) < accepted && !left.is_zero() {
            thread::sleep(LOOK);
            left = left.saturating_sub(LOOK);
        }
    }
}

/// The writing thread. It ends when all senders are gone.
fn write_all<T>(
    items: &Receiver<T>,
    mut out: impl Write,
    format: fn(&T, &mut Vec<u8>),
    counts: &QueueCounts,
) {
    let mut buffer = Vec::new();
    while let Ok(first) = items.recv() {
        format(&first, &mut buffer);
        let mut held = 1;
        while buffer.len() < BATCH
            && let Ok(next) = items.try_recv()
        {
            format(&next, &mut buffer);
            held += 1;
        }
        if out.write_all(&buffer).and_then(|()| out.flush()).is_err() {
            counts.loss.add(held);
        }
        counts.settled.fetch_add(held, Ordering::Release);
        buffer.clear();
        // One huge item must not hold its memory forever.
        buffer.shrink_to(2 * BATCH);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Condvar, Mutex};

    /// A writer that waits until it is opened.
    #[derive(Clone, Default)]
    struct Gate(Arc<(Mutex<Written>, Condvar)>);

    #[derive(Default)]
    struct Written {
        open: bool,
        /// Whether a write waits, or has waited.
        reached: bool,
        bytes: Vec<u8>,
    }

    impl Gate {
        fn open(&self) {
            self.0.0.lock().unwrap().open = true;
            self.0.1.notify_all();
        }

        /// Waits until a write waits.
        fn reached(&self) {
            let (state, changed) = &*self.0;
            drop(changed.wait_while(state.lock().unwrap(), |state| !state.reached).unwrap());
        }

        fn text(&self) -> String {
            String::from_utf8(self.0.0.lock().unwrap().bytes.clone()).unwrap()
        }
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let (state, changed) = &*self.0;
            let mut state = state.lock().unwrap();
            state.reached = true;
            changed.notify_all();
            let mut state = changed.wait_while(state, |state| !state.open).unwrap();
            state.bytes.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn start(out: impl Write + Send + 'static) -> WriteQueue<u32> {
        let dropped = IntCounter::new("dropped", "x").unwrap();
        let line = "Lines were dropped.";
        let loss = Loss::told(dropped, LogLimiter::new(line, None), line);
        WriteQueue::start("lines", loss, out, number).unwrap()
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "as records are formatted")]
    fn number(item: &u32, out: &mut Vec<u8>) {
        writeln!(out, "{item}").unwrap();
    }

    #[test]
    fn what_is_sent_is_written_in_order() {
        let gate = Gate::default();
        gate.open();
        let lines = start(gate.clone());
        (0..3).for_each(|n| lines.send(n));
        lines.flush(Duration::MAX);
        assert_eq!((gate.text().as_str(), lines.dropped()), ("0\n1\n2\n", 0));
    }

    #[test]
    fn a_writer_that_stalls_costs_records_and_no_time() {
        let gate = Gate::default();
        let lines = start(gate.clone());
        lines.send(0);
        // From here on the thread takes nothing out of the queue.
        gate.reached();
        let room = u32::try_from(QUEUE).unwrap();
        (1..=3 * room).for_each(|n| lines.send(n));
        assert_eq!(lines.dropped(), u64::from(2 * room), "the queue is bounded");
        gate.open();
        lines.flush(Duration::MAX);
        let kept: Vec<String> = (0..=room).map(|n| n.to_string()).collect();
        assert!(gate.text().lines().eq(kept), "each is written or counted; the newest are dropped");
    }

    #[test]
    fn what_cannot_be_written_is_counted() {
        struct Broken;
        impl Write for Broken {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let lines = start(Broken);
        (0..5).for_each(|n| lines.send(n));
        lines.flush(Duration::MAX);
        assert_eq!(lines.dropped(), 5);
    }
}
