//! Tells the watch whether a client accepts bytes, for connections that a library writes to.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::State;

/// The stream of a client connection that a library reads and writes.
#[derive(Debug)]
pub(crate) struct Watched<T> {
    io: T,
    state: Arc<State>,
    /// Whether the last write found no room.
    blocked: bool,
    /// Whether earlier bytes are still buffered below, because there was no room.
    held: bool,
}

impl<T> Watched<T> {
    /// Watches `io` for `state`.
    pub(crate) const fn new(io: T, state: Arc<State>) -> Self {
        Self { io, state, blocked: false, held: false }
    }

    /// Notes whether the client accepts bytes.
    fn wrote<R>(&mut self, polled: Poll<R>) -> Poll<R> {
        if polled.is_pending() != self.blocked {
            self.blocked = polled.is_pending();
            self.state.set_blocked(self.blocked);
        }
        polled
    }

    /// Notes whether earlier bytes have left. A socket buffers nothing that it reports, but TLS does: there a
    /// client may accept no bytes although every write found room.
    fn pushed<R>(&mut self, polled: Poll<R>) -> Poll<R> {
        if polled.is_ready() && !self.held {
            return polled;
        }
        self.held = polled.is_pending();
        self.wrote(polled)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Watched<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Watched<T> {
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
        let polled = Pin::new(&mut self.io).poll_flush(cx);
        self.pushed(polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.io).poll_shutdown(cx);
        self.pushed(polled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::watch::Connections;

    /// Accepts every byte, and passes them on when told to.
    struct Holds {
        lets_go: bool,
    }

    impl AsyncWrite for Holds {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buf: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(buf.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            if self.lets_go { Poll::Ready(Ok(())) } else { Poll::Pending }
        }

        fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.poll_flush(cx)
        }
    }

    #[test]
    fn a_client_that_makes_no_room_takes_nothing_though_writes_succeed() {
        let connections = Connections::default();
        let (state, _registered) = connections.register();
        let mut watched = Watched::new(Holds { lets_go: false }, Arc::clone(&state));
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let polled = Pin::new(&mut watched).poll_write(&mut cx, b"answer");
        assert!(polled.is_ready() && !state.is_blocked());
        assert!(Pin::new(&mut watched).poll_flush(&mut cx).is_pending());
        assert!(state.is_blocked());
        watched.io.lets_go = true;
        assert!(Pin::new(&mut watched).poll_flush(&mut cx).is_ready());
        assert!(!state.is_blocked());
        watched.io.lets_go = false;
        assert!(Pin::new(&mut watched).poll_shutdown(&mut cx).is_pending());
        assert!(state.is_blocked(), "a farewell is held, too");
    }
}
