//! Integers, and strings as they are (RFC 7541 §5).

use super::CompressionError;
use bytes::{BufMut, BytesMut};

/// The most octets of an integer: its prefix and four more hold 28 bits, which is more than any block is long.
const MAX_OCTETS: usize = 5;

/// Reads a block from its beginning to its end.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads all of `block`.
    pub(super) fn new(block: &'a [u8]) -> Self {
        Self { rest: block }
    }

    /// How many octets are unread.
    pub(super) fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The next octet, or none at the end.
    #[inline]
    pub(super) fn octet(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    /// The integer that begins in the lowest bits of `first`, which has been read. `mask` has those bits.
    #[inline]
    pub(super) fn integer(&mut self, first: u8, mask: u8) -> Result<usize, CompressionError> {
        let value = first & mask;
        if value < mask { Ok(usize::from(value)) } else { self.long_integer(mask) }
    }

    /// The integer whose first octet has all its bits set.
    #[cold]
    fn long_integer(&mut self, mask: u8) -> Result<usize, CompressionError> {
        let mut value = usize::from(mask);
        for place in 0..MAX_OCTETS - 1 {
            let octet = self.octet().ok_or(CompressionError)?;
            value += usize::from(octet & 0x7f) << (7 * place);
            if octet < 0x80 {
                return Ok(value);
            }
        }
        Err(CompressionError)
    }

    /// A string as it is written, and whether that is Huffman's code.
    #[inline]
    pub(super) fn string(&mut self) -> Result<(&'a [u8], bool), CompressionError> {
        let first = self.octet().ok_or(CompressionError)?;
        let length = self.integer(first, 0x7f)?;
        let (text, rest) = self.rest.split_at_checked(length).ok_or(CompressionError)?;
        self.rest = rest;
        Ok((text, first & 0x80 != 0))
    }
}

/// Writes `value` into the lowest bits of an octet, those of `mask`, and as many octets as it needs besides. `kind` has the
/// octet's other bits.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "checked to fit")]
pub(super) fn write(kind: u8, mask: u8, value: usize, out: &mut BytesMut) {
    if value < usize::from(mask) {
        out.put_u8(kind | value as u8);
    } else {
        write_long(kind, mask, value, out);
    }
}

/// Writes an integer that doesn't fit in its first octet.
#[cold]
#[expect(clippy::cast_possible_truncation, reason = "seven bits fit")]
fn write_long(kind: u8, mask: u8, value: usize, out: &mut BytesMut) {
    out.put_u8(kind | mask);
    let mut value = value - usize::from(mask);
    while value >= 0x80 {
        out.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

/// Writes a string as it is (RFC 7541 §5.2).
pub(super) fn write_string(text: &[u8], out: &mut BytesMut) {
    write(0, 0x7f, text.len(), out);
    out.extend_from_slice(text);
}
