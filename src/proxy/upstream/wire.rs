//! A stream that counts its bytes.
//!
//! Whether an attempt may be sent again depends on what was written and read when it failed. The HTTP library
//! does not tell that, but byte counts do.
//!
//! An upstream may respond and close before it has read the whole request. Then the next write fails while the
//! response is still in the socket. So a failed write is reported only when there is nothing left to read.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Sleep, sleep};

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

/// `io`, with its bytes counted.
#[derive(Debug)]
pub(crate) struct Wire<T> {
    io: T,
    counts: Arc<Counts>,
    /// Whether there is nothing more to read.
    read_ended: bool,
    /// A failed write, held back while there may be something to read.
    failed: Option<Failed>,
}

#[derive(Debug)]
struct Failed {
    error: io::Error,
    /// When it is reported at the latest.
    until: Pin<Box<Sleep>>,
}

/// How long a failed write is held back.
const HEAR_OUT: Duration = Duration::from_secs(1);

impl<T> Wire<T> {
    /// Counts the bytes of `io`.
    pub(crate) fn new(io: T) -> (Self, Arc<Counts>) {
        let counts = Arc::new(Counts::default());
        let wire = Self { io, counts: Arc::clone(&counts), read_ended: false, failed: None };
        (wire, counts)
    }

    /// The result of a write.
    fn wrote(
        &mut self,
        polled: Poll<io::Result<usize>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match polled {
            Poll::Ready(Ok(size)) => {
                let written = &self.counts.written;
                written.fetch_add(size as u64, Ordering::Relaxed);
                Poll::Ready(Ok(size))
            }
            Poll::Ready(Err(error)) => {
                self.failed = Some(Failed { error, until: Box::pin(sleep(HEAR_OUT)) });
                // Reading comes first, so have the task polled again.
                cx.waker().wake_by_ref();
                self.poll_failed(cx).map(Err)
            }
            Poll::Pending => Poll::Pending,
        }
    }

    /// The error of a failed write, once it must be reported.
    fn poll_failed(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let Some(failed) = &mut self.failed else {
            return Poll::Pending;
        };
        if !self.read_ended {
            ready!(failed.until.as_mut().poll(cx));
        }
        Poll::Ready(io::Error::new(failed.error.kind(), failed.error.to_string()))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Wire<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(cx, buf);
        let size = buf.filled().len().saturating_sub(before);
        let before = self.counts.read.fetch_add(size as u64, Ordering::Relaxed);
        if before == 0 && size > 0 {
            self.counts.heard.notify_waiters();
        }
        if polled.is_ready() && size == 0 {
            self.read_ended = true;
        }
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Wire<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.failed.is_some() {
            return self.poll_failed(cx).map(Err);
        }
        let polled = Pin::new(&mut self.io).poll_write(cx, buf);
        self.wrote(polled, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.failed.is_some() {
            return self.poll_failed(cx).map(Err);
        }
        let polled = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.wrote(polled, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

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
