//! What waits for a connection's socket.

use std::cell::RefCell;

use bytes::BytesMut;

/// How many bytes are gathered before streams wait.
pub(super) const GATHERED: usize = 64 * 1024;
/// How many bytes of answers about the connection, which nobody reads, may wait before no more is read.
const MAX_CONTROL: usize = 16 * 1024;

thread_local! {
    /// A buffer for the next connection that has something to say. So a worker has one, and a connection that says nothing
    /// has none.
    static SPARE: RefCell<BytesMut> = RefCell::new(BytesMut::new());
}

/// Frames that wait for the socket.
#[derive(Debug, Default)]
pub(super) struct Out {
    bytes: BytesMut,
    /// How many of them were written.
    written: usize,
    /// How many bytes of control frames were appended since everything was last written.
    control: usize,
}

impl Out {
    /// Where frames are appended.
    pub(super) fn buffer(&mut self) -> &mut BytesMut {
        if self.bytes.capacity() == 0 {
            self.bytes = SPARE.try_with(RefCell::take).unwrap_or_default();
            self.bytes.reserve(GATHERED);
        }
        &mut self.bytes
    }

    /// The same, for a frame that answers or is about the connection.
    pub(super) fn control(&mut self) -> &mut BytesMut {
        self.control += 17;
        self.buffer()
    }

    /// Whether streams may append.
    pub(super) fn has_room(&self) -> bool {
        self.bytes.len() < GATHERED
    }

    /// Whether so many answers wait that nothing more should be read.
    pub(super) const fn is_congested(&self) -> bool {
        self.control > MAX_CONTROL
    }

    /// What is to be written.
    pub(super) fn unwritten(&self) -> &[u8] {
        self.bytes.get(self.written..).unwrap_or_default()
    }

    /// So much was written.
    pub(super) fn wrote(&mut self, size: usize) {
        self.written += size;
        if self.written >= self.bytes.len() {
            self.clear();
        }
    }

    /// Drops everything, and gives the buffer back.
    pub(super) fn clear(&mut self) {
        let mut spare = std::mem::take(&mut self.bytes);
        self.written = 0;
        self.control = 0;
        spare.clear();
        if (GATHERED..=2 * GATHERED).contains(&spare.capacity()) {
            let _kept = SPARE.try_with(|kept| kept.replace(spare)).is_ok();
        }
    }

    /// The socket has no room. What is left keeps the memory that it needs: there may be many connections whose other side
    /// reads nothing.
    pub(super) fn keep_left(&mut self) {
        let left = self.unwritten();
        if left.len() < self.bytes.capacity() / 2 {
            let (left, control) = (BytesMut::from(left), self.control);
            self.clear();
            self.bytes = left;
            self.control = control;
        }
    }

    /// How much memory it has.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_keeps_no_more_than_it_needs_and_nothing_keeps_nothing() {
        let mut out = Out::default();
        assert_eq!(out.capacity(), 0);
        out.buffer().extend_from_slice(&[7; 10_000]);
        assert!(out.capacity() >= GATHERED && out.has_room());
        out.wrote(9_999);
        out.keep_left();
        assert_eq!((out.unwritten(), out.capacity()), (&[7][..], 1));
        out.buffer().extend_from_slice(&[8]);
        assert_eq!(out.unwritten(), [7, 8]);
        out.wrote(2);
        assert_eq!((out.unwritten().len(), out.capacity()), (0, 0));
    }

    #[test]
    fn answers_that_nobody_reads_have_a_bound() {
        let mut out = Out::default();
        while !out.is_congested() {
            out.control().extend_from_slice(&[0; 17]);
        }
        assert!(out.unwritten().len() < 2 * MAX_CONTROL);
        out.wrote(out.unwritten().len());
        assert!(!out.is_congested());
    }
}
