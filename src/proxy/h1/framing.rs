//! Writes a body in the framing that its head announces (RFC 9112 §6, §7).

use std::io::Write as _;

use bytes::Bytes;
use http::StatusCode;
use http::header::{HeaderMap, HeaderName, HeaderValue};

use super::write_buffer::WriteBuffer;

/// How a body is framed, and how much of it is left to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// This many bytes.
    Length(u64),
    /// Chunks, up to an empty one.
    Chunked,
    /// The end of the connection ends the body.
    UntilClose,
}

/// The body does not have the announced length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WrongLength;

/// Writes the status line of an answer, with this reason phrase or the usual one.
pub(crate) fn status_line(out: &mut Vec<u8>, status: StatusCode, reason: Option<&[u8]>) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    let usual = || status.canonical_reason().unwrap_or_default().as_bytes();
    out.extend_from_slice(reason.unwrap_or_else(usual));
    out.extend_from_slice(b"\r\n");
}

/// Writes a field.
pub(crate) fn field(out: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    line(out, name, value.as_bytes());
}

/// Writes a field with this value.
pub(crate) fn line(out: &mut Vec<u8>, name: &HeaderName, value: &[u8]) {
    out.extend_from_slice(name.as_str().as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

impl Framing {
    /// Nothing is left to send.
    pub(crate) const NONE: Self = Self::Length(0);

    /// Whether nothing is left to send.
    pub(crate) const fn is_done(self) -> bool {
        matches!(self, Self::NONE)
    }

    /// Counts bytes of the body that were spliced.
    ///
    /// # Errors
    /// When there are more bytes than announced, or the body has no length.
    pub(crate) fn pass(&mut self, size: usize) -> Result<(), WrongLength> {
        match self {
            Self::Length(left) => {
                *left = left.checked_sub(size as u64).ok_or(WrongLength)?;
                Ok(())
            }
            Self::Chunked | Self::UntilClose => Err(WrongLength),
        }
    }

    /// Puts the next piece of a body into `output`.
    pub(super) fn data(
        &mut self,
        output: &mut WriteBuffer,
        data: Bytes,
    ) -> Result<(), WrongLength> {
        match self {
            // An empty chunk would end the body.
            _ if data.is_empty() => {}
            Self::Length(left) => {
                *left = left.checked_sub(data.len() as u64).ok_or(WrongLength)?;
                output.chunk(data);
            }
            Self::Chunked => {
                size(output.text(), data.len());
                output.chunk(data);
                output.text().extend_from_slice(b"\r\n");
            }
            Self::UntilClose => output.chunk(data),
        }
        Ok(())
    }

    /// Puts the end of a body into `output`, with its trailers if the framing allows any.
    pub(super) fn end(
        &mut self,
        output: &mut WriteBuffer,
        trailers: Option<&HeaderMap>,
    ) -> Result<(), WrongLength> {
        match self {
            Self::Length(0) | Self::UntilClose => {}
            Self::Length(_) => return Err(WrongLength),
            Self::Chunked => {
                let out = output.text();
                out.extend_from_slice(b"0\r\n");
                for (name, value) in trailers.into_iter().flatten() {
                    field(out, name, value);
                }
                out.extend_from_slice(b"\r\n");
            }
        }
        *self = Self::NONE;
        Ok(())
    }
}

/// The line before a chunk.
fn size(out: &mut Vec<u8>, size: usize) {
    // Writing to a vector cannot fail.
    let _written = write!(out, "{size:x}\r\n").is_ok();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::h1::{Decoded, Decoder, FieldRules};
    use proptest::prelude::*;
    use std::task::{Context, Waker};

    proptest! {
        /// A body that is encoded in any pieces decodes to itself.
        #[test]
        fn a_body_in_any_pieces_is_itself(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..3000), 0..8),
            chunked in any::<bool>(),
            trailed in any::<bool>(),
        ) {
            let whole = pieces.concat();
            let rules = FieldRules { size: 100, fields: 1, space_before_colon: false };
            let mut framing =
                if chunked { Framing::Chunked } else { Framing::Length(whole.len() as u64) };
            let mut decoder =
                if chunked { Decoder::chunked(rules) } else { Decoder::Length(whole.len() as u64) };
            let trailers = HeaderMap::from_iter([("x-sum".parse().unwrap(), "1".parse().unwrap())]);
            let trailers = (trailed && chunked).then_some(trailers);
            let (mut output, mut wire) = (WriteBuffer::default(), Vec::new());
            let mut cx = Context::from_waker(Waker::noop());
            for piece in pieces {
                framing.data(&mut output, piece.into()).unwrap();
                prop_assert!(output.poll_write(&mut wire, &mut cx, &mut false).is_ready());
            }
            framing.end(&mut output, trailers.as_ref()).unwrap();
            prop_assert!(output.poll_write(&mut wire, &mut cx, &mut false).is_ready());
            prop_assert!(framing.is_done());
            let (mut bytes, mut read, mut behind) = (Bytes::from(wire), Vec::new(), None);
            while !decoder.is_done() {
                match decoder.decode(&mut bytes).unwrap() {
                    Decoded::Data(data) => read.extend_from_slice(&data),
                    Decoded::Trailers(fields) => behind = Some(fields),
                    Decoded::End => {}
                    Decoded::More => prop_assert!(false, "it does not end"),
                }
            }
            prop_assert_eq!(read, whole);
            prop_assert_eq!((behind, bytes.len()), (trailers, 0));
        }
    }

    #[test]
    fn a_body_of_another_length_than_was_said_is_refused() {
        let mut output = WriteBuffer::default();
        assert_eq!(Framing::Length(2).data(&mut output, "abc".into()), Err(WrongLength));
        assert_eq!(Framing::Length(2).end(&mut output, None), Err(WrongLength));
    }
}
