//! Frames as bytes (RFC 9113 §4, §6).

use bytes::BytesMut;

use super::error::{Fault, Reason};

/// The size of a frame's head.
pub(super) const HEAD: usize = 9;
/// The largest payload, unless a side allows larger ones (RFC 9113 §4.2). Ours does not.
pub(super) const MAX_PAYLOAD: usize = 16_384;
/// What a client sends first (RFC 9113 §3.4).
pub(super) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The types of frames.
pub(super) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const PRIORITY: u8 = 2;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PUSH_PROMISE: u8 = 5;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
}

pub(super) const ACK: u8 = 0x1;
pub(super) const END_STREAM: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) length: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl Head {
    /// Reads it.
    pub(super) fn parse(bytes: &[u8; HEAD]) -> Self {
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = *bytes;
        Self {
            length: u32::from_be_bytes([0, l0, l1, l2]) as usize,
            kind,
            flags,
            stream: u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]),
        }
    }

    /// Whether a flag is set.
    pub(super) const fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The payload of a DATA or HEADERS frame without its padding (RFC 9113 §6.1).
    pub(super) fn unpadded(self, payload: &[u8]) -> Result<&[u8], Fault> {
        if !self.has(PADDED) {
            return Ok(payload);
        }
        let unpadded = payload.split_first().and_then(|(pad, rest)| {
            let length = rest.len().checked_sub(usize::from(*pad))?;
            rest.get(..length)
        });
        unpadded.ok_or(Fault::Connection(Reason::PROTOCOL_ERROR, "too much padding"))
    }

    /// The fields of a HEADERS frame, without its padding and its priority (RFC 9113 §6.2).
    pub(super) fn fields(self, payload: &[u8]) -> Result<&[u8], Fault> {
        let fields = self.unpadded(payload)?;
        if !self.has(PRIORITY) {
            return Ok(fields);
        }
        fields.get(5..).ok_or(Fault::Connection(Reason::FRAME_SIZE_ERROR, "no room for a priority"))
    }
}

/// Appends the head of a frame. `length` is less than 2^24.
pub(super) fn put_head(out: &mut BytesMut, length: usize, kind: u8, flags: u8, stream: u32) {
    let [s0, s1, s2, s3] = stream.to_be_bytes();
    let [.., l0, l1, l2] = length.to_be_bytes();
    out.extend_from_slice(&[l0, l1, l2, kind, flags, s0, s1, s2, s3]);
}

/// Appends an `RST_STREAM`.
pub(super) fn put_reset(out: &mut BytesMut, stream: u32, reason: Reason) {
    put_head(out, 4, kind::RST_STREAM, 0, stream);
    out.extend_from_slice(&reason.code().to_be_bytes());
}

/// Appends a `WINDOW_UPDATE`.
pub(super) fn put_window_update(out: &mut BytesMut, stream: u32, size: u32) {
    put_head(out, 4, kind::WINDOW_UPDATE, 0, stream);
    out.extend_from_slice(&size.to_be_bytes());
}

/// Appends a PING, or with the flag [`ACK`] the answer to one.
pub(super) fn put_ping(out: &mut BytesMut, flags: u8, payload: [u8; 8]) {
    put_head(out, 8, kind::PING, flags, 0);
    out.extend_from_slice(&payload);
}

/// Appends a GOAWAY.
pub(super) fn put_goaway(out: &mut BytesMut, last: u32, reason: Reason, text: &[u8]) {
    put_head(out, 8 + text.len(), kind::GOAWAY, 0, 0);
    out.extend_from_slice(&last.to_be_bytes());
    out.extend_from_slice(&reason.code().to_be_bytes());
    out.extend_from_slice(text);
}

/// The four bytes at this place of a payload, as a number.
pub(super) fn number_at(payload: &[u8], at: usize) -> Option<u32> {
    payload.get(at..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_and_priority_are_taken_off() {
        let head = |flags| Head { length: 0, kind: kind::HEADERS, flags, stream: 1 };
        assert_eq!(head(0).fields(b"abc"), Ok(&b"abc"[..]));
        assert_eq!(head(PADDED).fields(&[2, b'a', 0, 0]), Ok(&b"a"[..]));
        assert_eq!(head(PADDED).fields(&[0]), Ok(&b""[..]));
        assert_eq!(head(PRIORITY).fields(&[0, 0, 0, 1, 9, b'a']), Ok(&b"a"[..]));
        assert_eq!(head(PADDED | PRIORITY).fields(&[1, 0, 0, 0, 1, 9, b'a', 0]), Ok(&b"a"[..]));
        assert!(head(PADDED).fields(&[]).is_err());
        assert!(head(PADDED).fields(&[3, 0, 0]).is_err());
        assert!(head(PRIORITY).fields(&[0; 4]).is_err());
    }

    #[test]
    fn a_head_is_read_as_it_was_written() {
        let mut out = BytesMut::new();
        put_head(&mut out, 0x01_02_03, 9, 5, 0x7fff_ffff);
        let head = Head::parse(out.first_chunk().unwrap());
        assert_eq!(head, Head { length: 0x01_02_03, kind: 9, flags: 5, stream: 0x7fff_ffff });
    }
}
