//! A connection from which bytes were read that must be read again, before the rest.
//!
//! With it, another protocol starts with its own first byte: after the 101 that switched to it, or with the
//! preface by which the HTTP/1.1 code recognised HTTP/2.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection, and the bytes to read before it.
#[derive(Debug)]
pub(crate) struct Rewound<T> {
    io: T,
    first: Bytes,
}

impl<T> Rewound<T> {
    /// `io`, from which `first` was already read.
    pub(crate) const fn new(io: T, first: Bytes) -> Self {
        Self { io, first }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Rewound<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.io).poll_read(cx, buf);
        }
        let size = self.first.len().min(buf.remaining());
        buf.put_slice(&self.first.split_to(size));
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Rewound<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    #[tokio::test]
    async fn what_was_read_comes_first_in_small_reads_too() {
        let (near, mut far) = duplex(64);
        far.write_all(b"def").await.unwrap();
        let mut near = Rewound::new(near, Bytes::from_static(b"abc"));
        for wanted in [&b"ab"[..], b"cd", b"ef"] {
            let mut read = [0; 2];
            near.read_exact(&mut read).await.unwrap();
            assert_eq!(read, wanted);
        }
    }

    #[tokio::test]
    async fn what_was_read_comes_before_the_end() {
        let (near, far) = duplex(64);
        drop(far);
        let mut read = Vec::new();
        Rewound::new(near, Bytes::from_static(b"PRI *")).read_to_end(&mut read).await.unwrap();
        assert_eq!(read, b"PRI *");
    }
}
