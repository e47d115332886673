//! The read buffer: bytes that were read and not parsed yet.
//!
//! Most messages are small, and most connections are idle. So a read first goes into a buffer on the stack, and
//! the data is then kept in a buffer of just its size: an idle connection holds none. When reads fill their
//! buffer, the next ones get a larger one of their own, without copying.

use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::io::poll_read_buf;

use crate::proxy::io::Io;
use crate::proxy::io::socket::poll_recv;

/// The size of the buffer on the stack.
const FIRST: usize = 8 * 1024;
/// Messages up to this size are read at once if the previous one was as large. For a larger one, the first read
/// should only get the head, because the body may be spliced (see [`splice`](crate::proxy::io::splice)).
const WHOLE: usize = 48 * 1024;
/// After a spliced body, the first read of the next message has room for a head of the same size and this many
/// more bytes.
const BEYOND: usize = 256;
/// The most room of the first read after a head.
const SECOND: usize = 64 * 1024;
/// The most room of any read.
const MOST: usize = 256 * 1024;

/// A read buffer.
#[derive(Debug)]
pub(crate) struct ReadBuffer {
    bytes: BytesMut,
    /// How much room the next read has.
    room: usize,
    /// How much room the first read of the next message has: the messages of a connection are often alike.
    first: usize,
    /// The size of the last head.
    head: usize,
}

impl ReadBuffer {
    /// An empty buffer.
    pub(crate) fn new() -> Self {
        Self { bytes: BytesMut::new(), room: FIRST, first: FIRST, head: 0 }
    }

    /// Whether it is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes in it.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How much memory it holds.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Takes the bytes.
    pub(crate) fn take(&mut self) -> Bytes {
        if self.bytes.capacity() == self.bytes.len() {
            return std::mem::take(&mut self.bytes).freeze();
        }
        self.bytes.split().freeze()
    }

    /// Removes the first `size` bytes.
    pub(crate) fn skip(&mut self, size: usize) {
        self.bytes.advance(size.min(self.bytes.len()));
    }

    /// Puts bytes back that need more data to be parsed.
    pub(crate) fn put_back(&mut self, bytes: Bytes) {
        self.bytes = bytes.into();
    }

    /// A message has begun, with a head of this size. `left` bytes of its body are missing, if that is known.
    pub(crate) fn began(&mut self, head: usize, left: Option<u64>) {
        let left = left.map(room);
        self.room = left.unwrap_or_default().clamp(FIRST, SECOND);
        let all = left.unwrap_or_default().saturating_add(head);
        self.first = if all > WHOLE { FIRST } else { all.max(FIRST) };
        self.head = head;
    }

    /// Part of the body was spliced. Whatever was read together with the next head would be copied for nothing.
    pub(crate) fn spliced(&mut self) {
        self.first = self.head.saturating_add(BEYOND).min(FIRST);
    }

    /// The next message is awaited.
    pub(crate) const fn next(&mut self) {
        self.room = self.first;
    }

    /// Releases all memory that is not needed now.
    pub(crate) fn rest(&mut self) {
        self.bytes = BytesMut::new();
    }

    /// Reads what has arrived: the number of bytes, 0 at the end. If `left` bytes of a body are missing, the
    /// room is not larger than that.
    ///
    /// # Errors
    /// The connection's error.
    pub(crate) fn poll_read(
        &mut self,
        io: &mut Io,
        cx: &mut Context<'_>,
        left: Option<u64>,
    ) -> Poll<std::io::Result<usize>> {
        let wanted = self.room.min(left.map_or(usize::MAX, room));
        let spare = self.bytes.capacity().saturating_sub(self.bytes.len());
        if spare == 0 && wanted <= FIRST {
            return self.poll_read_small(io, cx, wanted);
        }
        if spare <= wanted / 4 {
            // A connection that waits holds no buffer.
            ready!(io.poll_read_ready(cx))?;
            self.bytes.reserve(wanted);
        }
        let room = self.bytes.capacity().saturating_sub(self.bytes.len());
        let polled = poll_read_buf(Pin::new(io), cx, &mut self.bytes);
        if polled.is_pending() && self.bytes.is_empty() {
            self.bytes = BytesMut::new();
        }
        let size = ready!(polled)?;
        self.found(size, room);
        Poll::Ready(Ok(size))
    }

    /// Not inlined, so that the buffer is on the stack only during a read.
    #[inline(never)]
    fn poll_read_small(
        &mut self,
        io: &mut Io,
        cx: &mut Context<'_>,
        wanted: usize,
    ) -> Poll<std::io::Result<usize>> {
        let mut scratch = [MaybeUninit::uninit(); FIRST];
        let room = wanted.min(FIRST);
        let scratch = scratch.get_mut(..room).unwrap_or_default();
        let mut filling;
        let read = if let Io::Tcp(socket) = io {
            ready!(poll_recv(socket, scratch, cx))?
        } else {
            filling = ReadBuf::uninit(scratch);
            ready!(Pin::new(io).poll_read(cx, &mut filling))?;
            filling.filled()
        };
        if self.bytes.is_empty() {
            self.bytes = read.into();
        } else {
            self.bytes.extend_from_slice(read);
        }
        self.found(read.len(), room);
        Poll::Ready(Ok(read.len()))
    }

    /// A read with this `room` found `size` bytes.
    fn found(&mut self, size: usize, room: usize) {
        if size == room && size >= self.room {
            self.room = size.saturating_mul(2).min(MOST);
        }
    }
}

/// Room for the rest of a body and one byte more: a read that does not fill its room has emptied the socket, so
/// the runtime needs no second read to know that.
fn room(left: u64) -> usize {
    usize::try_from(left).unwrap_or(usize::MAX).saturating_add(1)
}
