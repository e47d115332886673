//! A stream with hooks around its reads and writes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The hooks. Each default does nothing.
pub(crate) trait Hooks {
    /// Before a read: fills `buf` with bytes that come before the stream's own, or returns false if there are none.
    fn first(&mut self, _: &mut ReadBuf<'_>) -> bool {
        false
    }

    /// After a read of so many bytes: may change its outcome.
    fn has_read(&mut self, polled: Poll<io::Result<()>>, _: usize) -> Poll<io::Result<()>> {
        polled
    }

    /// Around a write, of one part or of several.
    fn write(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(&mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        write(cx)
    }

    /// After a flush or a shutdown: may change its outcome.
    fn flushed(&mut self, polled: Poll<io::Result<()>>) -> Poll<io::Result<()>> {
        polled
    }
}

/// A stream and its hooks.
#[derive(Debug)]
pub(crate) struct Wrapped<T, H> {
    pub(crate) io: T,
    pub(crate) hooks: H,
}

impl<T: AsyncRead + Unpin, H: Hooks + Unpin> AsyncRead for Wrapped<T, H> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { io, hooks } = self.get_mut();
        if hooks.first(buf) {
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        let polled = Pin::new(io).poll_read(cx, buf);
        hooks.has_read(polled, buf.filled().len().saturating_sub(before))
    }
}

impl<T: AsyncWrite + Unpin, H: Hooks + Unpin> AsyncWrite for Wrapped<T, H> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Self { io, hooks } = self.get_mut();
        hooks.write(cx, |cx| Pin::new(io).poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Self { io, hooks } = self.get_mut();
        hooks.write(cx, |cx| Pin::new(io).poll_write_vectored(cx, parts))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { io, hooks } = self.get_mut();
        hooks.flushed(Pin::new(io).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { io, hooks } = self.get_mut();
        hooks.flushed(Pin::new(io).poll_shutdown(cx))
    }
}
