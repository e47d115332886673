//! A stream that counts its bytes.
//!
//! Whether an attempt may be sent again depends on what was written and read when it failed. The HTTP library
//! does not tell that, but byte counts do.
//!
//! A failed write is reported late ([`FailedWrite`]).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::sync::Notify;

use super::failed_write::FailedWrite;
use crate::proxy::io::wrapped::{Hooks, Wrapped};

/// How many bytes went in each direction. The connection's task writes them and the attempt reads them, both on
/// one thread, so relaxed ordering is enough.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    read: AtomicU64,
    written: AtomicU64,
    /// Notified when the first byte is read.
    heard: Notify,
}

/// The counts at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    read: u64,
    written: u64,
}

impl Counts {
    /// The present counts.
    pub(crate) fn mark(&self) -> Mark {
        Mark {
            read: self.read.load(Ordering::Relaxed),
            written: self.written.load(Ordering::Relaxed),
        }
    }

    /// Ready once a byte was read.
    pub(crate) async fn heard(&self) {
        let heard = self.heard.notified();
        if self.read.load(Ordering::Relaxed) == 0 {
            heard.await;
        }
    }

    /// Whether anything was written since `mark`.
    pub(crate) fn wrote_since(&self, mark: Mark) -> bool {
        self.mark().written != mark.written
    }

    /// Whether anything was read since `mark`.
    pub(crate) fn read_since(&self, mark: Mark) -> bool {
        self.mark().read != mark.read
    }
}

/// A stream with its bytes counted.
pub(crate) type Wire<T> = Wrapped<T, Counted>;

/// The counts, and a failed write.
#[derive(Debug)]
pub(crate) struct Counted {
    counts: Arc<Counts>,
    /// Whether there is nothing more to read.
    read_ended: bool,
    /// A failed write, held back while there may be something to read.
    failed: Option<FailedWrite>,
}

impl<T> Wire<T> {
    /// Counts the bytes of `io`.
    pub(crate) fn new(io: T) -> (Self, Arc<Counts>) {
        let counts = Arc::new(Counts::default());
        let hooks = Counted { counts: Arc::clone(&counts), read_ended: false, failed: None };
        (Self { io, hooks }, counts)
    }
}

impl Counted {
    /// The error of a failed write, once it must be reported.
    fn poll_failed(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        match &mut self.failed {
            Some(failed) if self.read_ended => Poll::Ready(failed.error()),
            Some(failed) => failed.poll(cx),
            None => Poll::Pending,
        }
    }
}

impl Hooks for Counted {
    fn has_read(&mut self, polled: Poll<io::Result<()>>, size: usize) -> Poll<io::Result<()>> {
        let before = self.counts.read.fetch_add(size as u64, Ordering::Relaxed);
        if before == 0 && size > 0 {
            self.counts.heard.notify_waiters();
        }
        if polled.is_ready() && size == 0 {
            self.read_ended = true;
        }
        polled
    }

    fn write(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(&mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if self.failed.is_none() {
            match write(cx) {
                Poll::Ready(Err(error)) => {
                    self.failed = Some(FailedWrite::new(error));
                    // Reading comes first, so have the task polled again.
                    cx.waker().wake_by_ref();
                }
                polled => {
                    if let Poll::Ready(Ok(size)) = polled {
                        self.counts.written.fetch_add(size as u64, Ordering::Relaxed);
                    }
                    return polled;
                }
            }
        }
        self.poll_failed(cx).map(Err)
    }
}

#[cfg(test)]
mod tests {
    use super::super::failed_write::HEAR_OUT;
    use super::*;
    use std::pin::Pin;
    use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

    #[tokio::test(start_paused = true)]
    async fn a_failed_write_waits_until_all_is_read() {
        let (near, mut far) = tokio::io::duplex(64);
        far.write_all(b"answer").await.unwrap();
        drop(far);
        let (mut wire, _) = Wire::new(near);
        let mut polled = poll_once(&mut wire);
        assert!(polled.is_pending());
        let mut read = [0; 6];
        wire.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"answer");
        polled = poll_once(&mut wire);
        assert!(polled.is_pending());
        assert_eq!(wire.read(&mut read).await.unwrap(), 0);
        polled = poll_once(&mut wire);
        assert!(matches!(polled, Poll::Ready(Err(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_write_does_not_wait_for_ever() {
        let (near, mut far) = tokio::io::duplex(64);
        far.write_all(b"unread").await.unwrap();
        drop(far);
        let (mut wire, _) = Wire::new(near);
        let begun = tokio::time::Instant::now();
        wire.write_all(b"x").await.unwrap_err();
        assert_eq!(begun.elapsed(), HEAR_OUT);
    }

    fn poll_once(wire: &mut Wire<tokio::io::DuplexStream>) -> Poll<io::Result<usize>> {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        Pin::new(wire).poll_write(&mut cx, b"x")
    }

    #[tokio::test]
    async fn bytes_are_counted_both_ways() {
        let (near, mut far) = tokio::io::duplex(64);
        let (mut wire, counts) = Wire::new(near);
        let mark = counts.mark();
        assert!(!counts.wrote_since(mark) && !counts.read_since(mark));
        wire.write_all(b"abc").await.unwrap();
        assert!(counts.wrote_since(mark) && !counts.read_since(mark));
        far.write_all(b"de").await.unwrap();
        wire.read_exact(&mut [0; 2]).await.unwrap();
        assert_eq!(counts.mark(), Mark { read: 2, written: 3 });
    }
}
