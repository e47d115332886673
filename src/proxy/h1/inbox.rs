//! What was read and is not made sense of yet.
//!
//! Most messages are small, and most connections wait. So a read goes into room on the stack first, and what came
//! is kept in just as much memory as it takes: a connection that waits holds nothing, one that is busy holds what
//! it is busy with. Where reads find their room full, the next have more of it, and of their own, uncopied.

use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::io::poll_read_buf;

use crate::proxy::io::Io;

/// The room on the stack.
const FIRST: usize = 8 * 1024;
/// Messages up to this size come in one read, where the one before them was as large. Of a larger one the first read is
/// to bring the head: the rest need not come this way (see [`pour`](crate::proxy::io::pour)).
const WHOLE: usize = 48 * 1024;
/// Where a message's body was poured, the first read of the next has room for as large a head, and for so much more.
const BEYOND: usize = 256;
/// The room of the first read behind a head is at most this.
const SECOND: usize = 64 * 1024;
/// And no read has more.
const MOST: usize = 256 * 1024;

/// Where bytes are read into.
#[derive(Debug)]
pub(crate) struct Inbox {
    bytes: BytesMut,
    /// How much room the next read has.
    room: usize,
    /// How much the first read of the next message has: messages of one connection are often alike.
    first: usize,
    /// How large the last head was.
    head: usize,
}

impl Inbox {
    /// An empty one.
    pub(crate) fn new() -> Self {
        Self { bytes: BytesMut::new(), room: FIRST, first: FIRST, head: 0 }
    }

    /// Whether there is nothing in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What is in it.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How much memory it holds.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Takes what is in it.
    pub(crate) fn take(&mut self) -> Bytes {
        if self.bytes.capacity() == self.bytes.len() {
            return std::mem::take(&mut self.bytes).freeze();
        }
        self.bytes.split().freeze()
    }

    /// Lets go of the first `size` bytes in it.
    pub(crate) fn skip(&mut self, size: usize) {
        self.bytes.advance(size.min(self.bytes.len()));
    }

    /// Puts back what was taken: more must come to make sense of it.
    pub(crate) fn put_back(&mut self, bytes: Bytes) {
        self.bytes = bytes.into();
    }

    /// A message has begun with a head of this size; of its body so much is `left`, where that is known.
    pub(crate) fn began(&mut self, head: usize, left: Option<u64>) {
        let left = left.map(room);
        self.room = left.unwrap_or_default().clamp(FIRST, SECOND);
        let all = left.unwrap_or_default().saturating_add(head);
        self.first = if all > WHOLE { FIRST } else { all.max(FIRST) };
        self.head = head;
    }

    /// Of its body some went past without being read here. What comes with the next head is copied for nothing.
    pub(crate) fn poured(&mut self) {
        self.first = self.head.saturating_add(BEYOND).min(FIRST);
    }

    /// The next message is awaited.
    pub(crate) const fn next(&mut self) {
        self.room = self.first;
    }

    /// Holds no more than it must from now on.
    pub(crate) fn rest(&mut self) {
        self.bytes = BytesMut::new();
    }

    /// Reads what there is: how many bytes, none at the end. Of a body of which so much is `left`, no more room is
    /// made than for that.
    ///
    /// # Errors
    /// The connection's.
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
            // Whoever only waits holds no room.
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

    /// Not inlined: the room is only on the stack of whoever reads.
    #[inline(never)]
    fn poll_read_small(
        &mut self,
        io: &mut Io,
        cx: &mut Context<'_>,
        wanted: usize,
    ) -> Poll<std::io::Result<usize>> {
        let mut scratch = [MaybeUninit::uninit(); FIRST];
        let room = wanted.min(FIRST);
        let mut read = ReadBuf::uninit(scratch.get_mut(..room).unwrap_or_default());
        ready!(Pin::new(io).poll_read(cx, &mut read))?;
        let read = read.filled();
        self.bytes.extend_from_slice(read);
        self.found(read.len(), room);
        Poll::Ready(Ok(read.len()))
    }

    /// So much was found by a read that had this `room`.
    fn found(&mut self, size: usize, room: usize) {
        if size == room && size >= self.room {
            self.room = size.saturating_mul(2).min(MOST);
        }
    }
}

/// The room for what is left of a body, and a byte more: a read that leaves room has emptied the socket, and the
/// runtime need not be told so by another.
fn room(left: u64) -> usize {
    usize::try_from(left).unwrap_or(usize::MAX).saturating_add(1)
}
