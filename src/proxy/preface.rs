//! Which protocol a connection speaks: HTTP/2 with prior knowledge begins with 24 bytes that are no HTTP/1
//! request (RFC 9113 §3.4).
//!
//! The bytes are read by the HTTP/1 side, which knows the preface when all of it is there, and are then put
//! back for the HTTP/2 side: an HTTP/1 connection costs no read of its own and no copy. A preface that comes
//! in pieces is held back until it is whole, or is none.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::watched::Line;

/// The client's first bytes in HTTP/2.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection whose reader never sees a part of the preface alone.
#[derive(Debug)]
pub(crate) struct Prefaced<T> {
    io: T,
    /// What was read of a preface so far. `None` once the first bytes were handed on.
    held: Option<Vec<u8>>,
    /// What is read once more.
    back: Bytes,
}

impl<T> Prefaced<T> {
    /// A connection of which nothing was read.
    pub(crate) const fn new(io: T) -> Self {
        Self { io, held: Some(Vec::new()), back: Bytes::new() }
    }

    /// Has `read` come once more, before anything else.
    pub(crate) fn put_back(&mut self, read: Bytes) {
        self.back = read;
    }

    /// Hands on as much of what was put back as there is room for.
    fn give_back(&mut self, buf: &mut ReadBuf<'_>) {
        let size = self.back.len().min(buf.remaining());
        buf.put_slice(&self.back.split_to(size));
    }
}

impl<T: AsyncRead + Unpin> Prefaced<T> {
    /// The first bytes, once they are no mere part of a preface.
    fn poll_first(
        &mut self,
        mut held: Vec<u8>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        loop {
            let polled = Pin::new(&mut self.io).poll_read(cx, buf);
            let read = buf.filled().get(before..).unwrap_or_default();
            if polled.is_pending() {
                self.held = Some(held);
                return Poll::Pending;
            }
            let ended = read.is_empty();
            if held.is_empty() && (ended || !is_part(read)) {
                return polled;
            }
            held.extend_from_slice(read);
            buf.set_filled(before);
            if ended || !is_part(&held) {
                self.back = held.into();
                self.give_back(buf);
                return polled;
            }
        }
    }
}

/// Whether this is the beginning of a preface that is not whole.
fn is_part(bytes: &[u8]) -> bool {
    bytes.len() < PREFACE.len() && PREFACE.starts_with(bytes)
}

impl<T: AsyncRead + Unpin> AsyncRead for Prefaced<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(held) = self.held.take() {
            return self.poll_first(held, cx, buf);
        }
        if self.back.has_remaining() {
            self.give_back(buf);
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Prefaced<T> {
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

impl<T: Line> Line for Prefaced<T> {
    fn breaks_at_end(&self, breaks: bool) {
        self.io.breaks_at_end(breaks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// What one read gives after each of the pieces that the other side sends.
    async fn reads(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let (near, mut far) = tokio::io::duplex(256);
        let mut near = Prefaced::new(near);
        let mut all = Vec::new();
        for piece in pieces {
            far.write_all(piece).await.unwrap();
            let mut read = [0; 64];
            let size = tokio::select! {
                biased;
                size = near.read(&mut read) => size.unwrap(),
                () = tokio::task::yield_now() => 0,
            };
            all.push(read[..size].to_vec());
        }
        all
    }

    #[tokio::test]
    async fn a_request_is_read_as_it_comes() {
        let read = reads(&[b"P", b"OST / HTTP/1.1\r\n"]).await;
        assert_eq!(read, [&b""[..], b"POST / HTTP/1.1\r\n"]);
        let read = reads(&[b"GET /", b" HTTP/1.1\r\n"]).await;
        assert_eq!(read, [&b"GET /"[..], b" HTTP/1.1\r\n"]);
    }

    #[tokio::test]
    async fn a_preface_in_pieces_is_read_whole() {
        let (one, two) = PREFACE.split_at(20);
        let read = reads(&[one, two, b"PRI"]).await;
        assert_eq!(read, [&b""[..], PREFACE, b"PRI"]);
    }

    #[tokio::test]
    async fn a_part_of_a_preface_and_the_end_are_both_read() {
        let (near, mut far) = tokio::io::duplex(64);
        far.write_all(b"PRI *").await.unwrap();
        drop(far);
        let mut read = Vec::new();
        Prefaced::new(near).read_to_end(&mut read).await.unwrap();
        assert_eq!(read, b"PRI *");
    }

    #[tokio::test]
    async fn what_is_put_back_comes_first_in_small_reads_too() {
        let (near, mut far) = tokio::io::duplex(64);
        far.write_all(b"abcdef").await.unwrap();
        let mut near = Prefaced::new(near);
        let mut read = [0; 4];
        near.read_exact(&mut read).await.unwrap();
        near.put_back(Bytes::copy_from_slice(&read));
        let mut again = [0; 6];
        near.read_exact(&mut again).await.unwrap();
        assert_eq!(&again, b"abcdef");
    }
}
