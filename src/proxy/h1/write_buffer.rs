//! The write buffer.
//!
//! Small parts (a head, the line before a chunk) are collected in one buffer. A large chunk of a body is kept
//! beside it without copying, and everything goes out in one system call. There is only one chunk at a time, so
//! a body is not read faster than the peer accepts it.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::AsyncWrite;

/// A chunk up to this size is copied into the buffer, which is cheaper than another vector.
const SMALL: usize = 1024;

/// The memory of a usual message: its head, and a body that is copied.
const USUAL: usize = 2 * SMALL;

/// How much memory a thread keeps for its next message.
const SPARED: usize = 2 * USUAL;

thread_local! {
    /// The memory of this thread's last message.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Bytes before a chunk, the chunk, and bytes after it.
#[derive(Debug, Default)]
pub(crate) struct WriteBuffer {
    front: Vec<u8>,
    /// How much of `front` was written.
    at: usize,
    chunk: Bytes,
    /// Empty if there is no chunk.
    back: Vec<u8>,
    /// Whether the stream may buffer bytes that it accepted, as TLS does.
    held: bool,
}

impl WriteBuffer {
    /// The buffer for the next small part.
    pub(crate) fn text(&mut self) -> &mut Vec<u8> {
        if self.chunk.is_empty() { &mut self.front } else { &mut self.back }
    }

    /// Makes room for a head of this size, and for its body if that will be copied.
    pub(crate) fn reserve(&mut self, head: usize, body: Option<u64>) {
        let body = body.and_then(|size| usize::try_from(size).ok());
        let copied = body.filter(|size| *size <= SMALL).unwrap_or_default();
        let (text, size) = (self.text(), head.saturating_add(copied));
        if text.capacity() == 0 {
            *text = SPARE.take();
        }
        // A small one would have to grow for the next message.
        text.reserve(size.max(USUAL));
    }

    /// Puts in the next chunk of a body. There must be none yet: see [`WriteBuffer::is_full`].
    pub(crate) fn chunk(&mut self, chunk: Bytes) {
        if chunk.len() <= SMALL || !self.chunk.is_empty() {
            self.text().extend_from_slice(&chunk);
        } else {
            self.chunk = chunk;
        }
    }

    /// Whether there is no room for another chunk.
    pub(crate) fn is_full(&self) -> bool {
        !self.chunk.is_empty() || self.front.len().saturating_sub(self.at) > 2 * SMALL
    }

    /// Whether everything was written.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_taken() && !self.held
    }

    /// Whether the stream accepted everything.
    fn is_taken(&self) -> bool {
        self.at >= self.front.len() && self.chunk.is_empty()
    }

    /// Writes everything to `io`. `wrote` is set once a byte was written.
    pub(crate) fn poll_write<T: AsyncWrite + Unpin>(
        &mut self,
        io: &mut T,
        cx: &mut Context<'_>,
        wrote: &mut bool,
    ) -> Poll<io::Result<()>> {
        while !self.is_taken() {
            let front = self.front.get(self.at..).unwrap_or_default();
            let written = if self.chunk.is_empty() {
                ready!(Pin::new(&mut *io).poll_write(cx, front))?
            } else if io.is_write_vectored() {
                let parts = [front, &self.chunk, &self.back].map(IoSlice::new);
                ready!(Pin::new(&mut *io).poll_write_vectored(cx, &parts))?
            } else {
                let part = if front.is_empty() { &self.chunk } else { front };
                ready!(Pin::new(&mut *io).poll_write(cx, part))?
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            *wrote = true;
            self.held = true;
            self.advance(written);
        }
        ready!(Pin::new(&mut *io).poll_flush(cx))?;
        self.held = false;
        Poll::Ready(Ok(()))
    }

    /// Removes what was written.
    fn advance(&mut self, written: usize) {
        if self.chunk.is_empty() && self.back.is_empty() {
            self.at += written;
            if self.at >= self.front.len() {
                self.front.clear();
                self.at = 0;
            }
            return;
        }
        let front = written.min(self.front.len().saturating_sub(self.at));
        self.at += front;
        let chunk = (written - front).min(self.chunk.len());
        self.chunk.advance(chunk);
        if self.at < self.front.len() || !self.chunk.is_empty() {
            return;
        }
        self.front.clear();
        // The part after the chunk is now all there is.
        std::mem::swap(&mut self.front, &mut self.back);
        self.at = written - front - chunk;
        if self.at >= self.front.len() {
            self.front.clear();
            self.at = 0;
        }
    }

    /// Everything was written: no memory is kept for the rest of this connection. The next message of any connection gets it:
    /// what was used last is most likely in the cache.
    pub(crate) fn rest(&mut self) {
        if self.front.capacity() == 0 && self.back.capacity() == 0 {
            return;
        }
        let Self { front, back, .. } = std::mem::take(self);
        // They take turns.
        let mut spare = if front.capacity() < back.capacity() { back } else { front };
        if (1..=SPARED).contains(&spare.capacity()) {
            spare.clear();
            SPARE.set(spare);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_message_serves_the_next_one_of_the_thread() {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut peer = Narrow { widths: vec![4096], vectored: true, taken: Vec::new(), calls: 0 };
        let mut places = std::collections::BTreeSet::new();
        for _ in 0..5 {
            let mut buffer = WriteBuffer::default();
            buffer.reserve(100, None);
            buffer.text().extend_from_slice(b"head");
            places.insert(buffer.text().as_ptr().addr());
            assert!(buffer.poll_write(&mut peer, &mut cx, &mut false).is_ready());
            buffer.rest();
        }
        assert_eq!(places.len(), 1);
        assert!(SPARE.take().capacity() >= USUAL);
    }
    use proptest::prelude::*;

    /// Accepts this many bytes per write, in turn, and sometimes none.
    struct Narrow {
        widths: Vec<usize>,
        vectored: bool,
        taken: Vec<u8>,
        calls: usize,
    }

    impl AsyncWrite for Narrow {
        fn poll_write(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.poll_write_vectored(cx, &[IoSlice::new(buf)])
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bufs: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            self.calls += 1;
            let width = self.widths[self.calls % self.widths.len()];
            if width == 0 {
                return Poll::Pending;
            }
            let all: Vec<u8> = bufs.iter().flat_map(|part| part.to_vec()).take(width).collect();
            self.taken.extend_from_slice(&all);
            Poll::Ready(Ok(all.len()))
        }

        fn is_write_vectored(&self) -> bool {
            self.vectored
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    proptest! {
        /// The bytes come out in order, however few are accepted at a time.
        #[test]
        fn all_is_written_in_its_order(
            things in prop::collection::vec((any::<bool>(), 1_usize..4000), 1..12),
            widths in prop::collection::vec(0_usize..3000, 1..5),
            vectored in any::<bool>(),
        ) {
            prop_assume!(widths.iter().any(|width| *width > 0));
            let mut output = WriteBuffer::default();
            let mut narrow = Narrow { widths, vectored, taken: Vec::new(), calls: 0 };
            let mut cx = Context::from_waker(std::task::Waker::noop());
            let (mut wanted, mut wrote) = (Vec::new(), false);
            for (number, (is_chunk, size)) in things.into_iter().enumerate() {
                let bytes = vec![u8::try_from(number).unwrap(); size];
                wanted.extend_from_slice(&bytes);
                while is_chunk && output.is_full() {
                    let _pending = output.poll_write(&mut narrow, &mut cx, &mut wrote);
                }
                if is_chunk { output.chunk(bytes.into()) } else { output.text().extend(bytes) }
            }
            while output.poll_write(&mut narrow, &mut cx, &mut wrote).is_pending() {}
            prop_assert!(output.is_empty() && wrote);
            prop_assert_eq!(narrow.taken, wanted);
        }
    }

    #[test]
    fn a_small_body_is_copied_to_the_room_that_was_made() {
        for (size, least) in [(SMALL, 4000 + SMALL), (SMALL + 1, 4000)] {
            let mut output = WriteBuffer::default();
            output.reserve(4000, Some(size as u64));
            let room = output.front.capacity();
            assert!(room >= least);
            output.text().extend_from_slice(&[b'h'; 4000]);
            output.chunk(vec![b'x'; size].into());
            assert_eq!(output.front.capacity(), room);
        }
    }

    #[test]
    fn a_head_and_a_chunk_go_out_together() {
        let mut output = WriteBuffer::default();
        output.text().extend_from_slice(b"POST / HTTP/1.1\r\n\r\n");
        output.chunk(vec![b'x'; 16_384].into());
        output.text().extend_from_slice(b"\r\n0\r\n\r\n");
        let widths = vec![1 << 20];
        let mut narrow = Narrow { widths, vectored: true, taken: Vec::new(), calls: 0 };
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let written = output.poll_write(&mut narrow, &mut cx, &mut false);
        assert!(matches!(written, Poll::Ready(Ok(()))));
        assert_eq!((narrow.calls, narrow.taken.len()), (1, 19 + 16_384 + 7));
    }
}
