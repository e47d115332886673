//! The bytes of a client's connection: when a request's head begins to arrive, and how it is closed.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::watch::State;

/// What a client is told whose head did not come in time (RFC 9110 §15.5.9).
const TOO_LATE: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
/// How long, and how much, a client may go on sending after its answer.
const LINGER_TIME: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 64 * 1024;

/// The connection's bytes; notes when the head of a request begins to arrive.
///
/// A connection that is closed while its client still sends is reset by the system, and the reset may
/// overtake the answer. So where a request was answered before it was read, the way back is closed first,
/// and what still comes is read for a while (RFC 9112 §9.6).
///
/// A client whose head is late is answered here: the HTTP library answers heads, not the want of one. It
/// then finds the connection at its end.
#[derive(Debug)]
pub(crate) struct Watched<T> {
    io: T,
    state: Arc<State>,
    /// Whether the last write found no room.
    blocked: bool,
    linger: Option<Linger>,
}

/// What is left of the patience with a client that still sends.
#[derive(Debug)]
struct Linger {
    until: Pin<Box<Sleep>>,
    bytes: usize,
}

impl<T> Watched<T> {
    /// Watches `io` for `state`.
    pub(crate) const fn new(io: T, state: Arc<State>) -> Self {
        Self { io, state, blocked: false, linger: None }
    }

    /// What is watched.
    pub(crate) fn into_inner(self) -> T {
        self.io
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Watched<T> {
    /// The last word to a client whose head is late. There is room for it, unless an earlier answer still
    /// waits to go out: then there is nothing to say that would be understood.
    fn say_late(&mut self, cx: &mut Context<'_>) {
        if !self.blocked
            && let Poll::Ready(Err(error)) = Pin::new(&mut self.io).poll_write(cx, TOO_LATE)
        {
            tracing::debug!(%error, "A client whose head is late was gone already.");
        }
    }

    /// Notes whether the client takes bytes.
    fn wrote<R>(&mut self, polled: Poll<R>) -> Poll<R> {
        if polled.is_pending() != self.blocked {
            self.blocked = polled.is_pending();
            self.state.set_blocked(self.blocked);
        }
        polled
    }

    /// Ready when the client has ended, or patience has.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut sink = [MaybeUninit::uninit(); 4096];
        let linger = self.linger.get_or_insert_with(|| Linger {
            until: Box::pin(sleep(LINGER_TIME)),
            bytes: LINGER_BYTES,
        });
        loop {
            let mut buf = ReadBuf::uninit(&mut sink);
            match Pin::new(&mut self.io).poll_read(cx, &mut buf) {
                Poll::Ready(Ok(())) if !buf.filled().is_empty() => {
                    linger.bytes = linger.bytes.saturating_sub(buf.filled().len());
                    if linger.bytes == 0 {
                        return Poll::Ready(());
                    }
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return linger.until.as_mut().poll(cx),
            }
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for Watched<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.state.is_late() {
            self.say_late(cx);
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.state.heard();
        }
        polled
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Watched<T> {
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
        ready!(Pin::new(&mut self.io).poll_shutdown(cx))?;
        if self.state.leaves_unread() {
            ready!(self.poll_linger(cx));
        }
        Poll::Ready(Ok(()))
    }
}
