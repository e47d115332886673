//! A connection that counts its bytes.
//!
//! Whether an attempt may be sent again depends on what was on the wire when it failed: nothing
//! written, or not a byte of a response read. The HTTP library does not say; the byte counts do.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How many bytes went each way. Written by the connection's task and read by the attempt, both on one
/// thread, so the orderings are relaxed.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    read: AtomicU64,
    written: AtomicU64,
}

/// The counts at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    read: u64,
    written: u64,
}

impl Counts {
    /// The counts now.
    pub(crate) fn mark(&self) -> Mark {
        Mark {
            read: self.read.load(Ordering::Relaxed),
            written: self.written.load(Ordering::Relaxed),
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

/// `io`, counted.
#[derive(Debug)]
pub(crate) struct Wire<T> {
    io: T,
    counts: Arc<Counts>,
}

impl<T> Wire<T> {
    /// Counts what goes over `io`.
    pub(crate) fn new(io: T) -> (Self, Arc<Counts>) {
        let counts = Arc::new(Counts::default());
        let wire = Self {
            io,
            counts: Arc::clone(&counts),
        };
        (wire, counts)
    }

    fn wrote(&self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(size)) = polled {
            self.counts
                .written
                .fetch_add(size as u64, Ordering::Relaxed);
        }
        polled
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
        self.counts.read.fetch_add(size as u64, Ordering::Relaxed);
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Wire<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write(cx, buf);
        self.wrote(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.wrote(polled)
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
        assert_eq!(
            counts.mark(),
            Mark {
                read: 2,
                written: 3
            }
        );
    }
}
