//! Tells the watch whether a client accepts bytes, for connections that a library writes to.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::ConnectionState;
use crate::proxy::io::wrapped::{Hooks, Wrapped};

/// The stream of a client connection that a library reads and writes.
pub(crate) type WriteWatch<T> = Wrapped<T, Watch>;

/// Notes whether its writes make progress.
#[derive(Debug)]
pub(crate) struct Watch {
    state: Arc<ConnectionState>,
    /// Whether the last write found no room.
    blocked: bool,
    /// Whether earlier bytes are still buffered below, because there was no room.
    held: bool,
}

impl<T> WriteWatch<T> {
    /// Watches `io` for `state`.
    pub(crate) const fn new(io: T, state: Arc<ConnectionState>) -> Self {
        Self { io, hooks: Watch { state, blocked: false, held: false } }
    }
}

impl Watch {
    /// Notes whether the client accepts bytes.
    fn wrote<R>(&mut self, polled: Poll<R>) -> Poll<R> {
        if polled.is_pending() != self.blocked {
            self.blocked = polled.is_pending();
            self.state.set_blocked(self.blocked);
        }
        polled
    }
}

impl Hooks for Watch {
    fn write(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(&mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        self.wrote(write(cx))
    }

    /// Notes whether earlier bytes have left. A socket buffers nothing that it reports, but TLS does: there a
    /// client may accept no bytes although every write found room.
    fn flushed(&mut self, polled: Poll<io::Result<()>>) -> Poll<io::Result<()>> {
        if polled.is_ready() && !self.held {
            return polled;
        }
        self.held = polled.is_pending();
        self.wrote(polled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::watch::Connections;
    use std::pin::Pin;
    use tokio::io::AsyncWrite;

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
        let (state, _registered) = connections.register(None);
        let mut watched = WriteWatch::new(Holds { lets_go: false }, Arc::clone(&state));
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
