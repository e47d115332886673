//! A connection's stream, with its bytes counted and its frames watched.
//!
//! A failed write is reported late ([`FailedWrite`]).
//!
//! Reads pause after each [`SLICE`]. Otherwise a fast client could make a connection's task read for ever, and never
//! work on what it has read.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frames::Frames;
use super::guard::Guard;
use super::traffic::Traffic;
use crate::proxy::io::failed_write::FailedWrite;

/// How many bytes are read before the task must work on them.
const SLICE: usize = 64 * 1024;

/// The stream of one connection.
#[derive(Debug)]
pub(crate) struct GuardedIo<T> {
    io: T,
    read: Frames,
    written: Frames,
    guard: Guard,
    /// How many bytes were read since the last pause.
    slice: usize,
    /// Whether the other side has closed its direction, or reading failed.
    read_ended: bool,
    /// A failed write that is not reported yet.
    failed: Option<FailedWrite>,
}

impl<T> GuardedIo<T> {
    /// A client's connection. Heads may have `max_head` bytes.
    pub(crate) fn of_client(io: T, max_head: usize) -> Self {
        Self::new(io, max_head, true)
    }

    /// A connection to a server. Heads may have `max_head` bytes.
    pub(crate) fn of_server(io: T, max_head: usize) -> Self {
        Self::new(io, max_head, false)
    }

    fn new(io: T, max_head: usize, serves: bool) -> Self {
        let (asked, answered) = (Frames::of_client(), Frames::of_server());
        let (read, written) = if serves { (asked, answered) } else { (answered, asked) };
        let guard = Guard::new(max_head, serves);
        Self { io, read, written, guard, slice: 0, read_ended: false, failed: None }
    }

    /// The counts of this connection.
    pub(crate) fn traffic(&self) -> Arc<Traffic> {
        Arc::clone(self.guard.traffic())
    }

    /// `bytes` were read.
    fn received(&mut self, bytes: &[u8]) {
        let Self { read, guard, .. } = self;
        guard.traffic().read(bytes.len());
        read.pass(bytes, |frame| guard.received(frame));
    }

    /// `bytes` were written.
    fn sent(&mut self, bytes: &[u8]) {
        let Self { written, guard, .. } = self;
        guard.traffic().wrote(bytes.len());
        written.pass(bytes, |frame| guard.sent(frame));
    }

    /// Handles the result of writing `parts`.
    fn wrote(
        &mut self,
        polled: Poll<io::Result<usize>>,
        parts: &[IoSlice<'_>],
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match polled {
            Poll::Ready(Ok(size)) => {
                let mut left = size;
                for part in parts {
                    let taken = part.get(..left.min(part.len())).unwrap_or_default();
                    left -= taken.len();
                    self.sent(taken);
                }
                Poll::Ready(Ok(size))
            }
            Poll::Ready(Err(error)) => {
                self.failed = Some(FailedWrite::new(error));
                // The task must read first.
                cx.waker().wake_by_ref();
                self.poll_failed(cx).map(Err)
            }
            Poll::Pending => {
                self.guard.traffic().flushed(false);
                Poll::Pending
            }
        }
    }

    /// Ready with the error of the failed write when it must be reported.
    fn poll_failed(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let Some(failed) = &mut self.failed else {
            return Poll::Pending;
        };
        if self.read_ended { Poll::Ready(failed.error()) } else { failed.poll(cx) }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for GuardedIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let traffic = self.guard.traffic();
        if traffic.violation().is_some() || traffic.are_reads_held() {
            // The connection's task knows this: it closes a connection after a violation, and polls a held one again.
            return Poll::Pending;
        }
        if self.slice >= SLICE {
            self.slice = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(cx, buf);
        let filled = buf.filled().get(before..).unwrap_or_default();
        if filled.is_empty() {
            self.slice = 0;
            self.read_ended |= polled.is_ready();
        } else {
            self.slice += filled.len();
            self.received(filled);
            if self.guard.traffic().violation().is_some() {
                // The library gets nothing of what came with it.
                buf.set_filled(before);
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for GuardedIo<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.failed.is_some() {
            return self.poll_failed(cx).map(Err);
        }
        let polled = Pin::new(&mut self.io).poll_write(cx, buf);
        self.wrote(polled, &[IoSlice::new(buf)], cx)
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
        self.wrote(polled, bufs, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.io).poll_flush(cx);
        self.guard.traffic().flushed(polled.is_ready());
        polled
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
