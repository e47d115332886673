//! A request as bytes: its head, and its body in the framing that the head announces (RFC 9112 §3, §6, §7).

use std::io::Write as _;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http_body::Body as _;

use super::head::number;
use super::outbox::Outbox;
use crate::proxy::body::request::RequestBody;
use crate::proxy::upstream::outgoing::Outgoing;

/// How a body is framed, and how much of it is still to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// So many bytes.
    Length(u64),
    /// Chunks, until an empty one.
    Chunked,
}

/// Writes the head of a request to `endpoint` that is followed by `body`; says how the body is to be framed.
pub(super) fn head(
    out: &mut Vec<u8>,
    outgoing: &Outgoing<'_>,
    endpoint: &str,
    body: &RequestBody,
) -> Framing {
    out.reserve(64 + 48 * outgoing.fields.len());
    out.extend_from_slice(outgoing.method.as_str().as_bytes());
    out.push(b' ');
    let (root, target) = outgoing.target();
    out.extend_from_slice(root.as_bytes());
    out.extend_from_slice(target.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    let (mut hosted, mut length) = (false, None);
    let known = body.size_hint().exact();
    for (name, value) in outgoing.fields.as_ref() {
        if *name == header::HOST {
            if outgoing.names_endpoint {
                continue;
            }
            hosted = true;
        } else if *name == header::CONTENT_LENGTH {
            // What trails a body has no place behind one with a length (RFC 9112 §6.2).
            if known.is_none() {
                continue;
            }
            length = number(value.as_bytes());
        }
        field(out, name, value);
    }
    if !hosted {
        line(out, &header::HOST, endpoint.as_bytes());
    }
    let framing = framing(out, length, known);
    if let Some(upgrade) = &outgoing.upgrade {
        line(out, &header::CONNECTION, b"upgrade");
        field(out, &header::UPGRADE, upgrade);
    }
    out.extend_from_slice(b"\r\n");
    framing
}

/// How a body is framed of a `length` that the written fields give, or that is `known` without them. One of which
/// nobody knows the length comes in chunks, whatever the method (RFC 9112 §6.3, rule 7).
fn framing(out: &mut Vec<u8>, length: Option<u64>, known: Option<u64>) -> Framing {
    match (length, known) {
        (_, Some(0)) => Framing::Length(0),
        (Some(length), _) => Framing::Length(length),
        (None, Some(known)) => {
            line(out, &header::CONTENT_LENGTH, itoa::Buffer::new().format(known).as_bytes());
            Framing::Length(known)
        }
        (None, None) => {
            line(out, &header::TRANSFER_ENCODING, b"chunked");
            Framing::Chunked
        }
    }
}

fn field(out: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    line(out, name, value.as_bytes());
}

fn line(out: &mut Vec<u8>, name: &HeaderName, value: &[u8]) {
    out.extend_from_slice(name.as_str().as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// The body is not of the length that was announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WrongLength;

impl Framing {
    /// Nothing is to come any more.
    pub(super) const fn is_done(self) -> bool {
        matches!(self, Self::Length(0))
    }

    /// Puts the next piece of a body into `outbox`.
    pub(super) fn data(&mut self, outbox: &mut Outbox, data: Bytes) -> Result<(), WrongLength> {
        match self {
            // An empty chunk would be the end.
            _ if data.is_empty() => {}
            Self::Length(left) => {
                *left = left.checked_sub(data.len() as u64).ok_or(WrongLength)?;
                outbox.chunk(data);
            }
            Self::Chunked => {
                size(outbox.text(), data.len());
                outbox.chunk(data);
                outbox.text().extend_from_slice(b"\r\n");
            }
        }
        Ok(())
    }

    /// Puts the end of a body into `outbox`, with its trailers where the framing has a place for them.
    pub(super) fn end(
        &mut self,
        outbox: &mut Outbox,
        trailers: Option<&HeaderMap>,
    ) -> Result<(), WrongLength> {
        match self {
            Self::Length(0) => {}
            Self::Length(_) => return Err(WrongLength),
            Self::Chunked => {
                let out = outbox.text();
                out.extend_from_slice(b"0\r\n");
                for (name, value) in trailers.into_iter().flatten() {
                    field(out, name, value);
                }
                out.extend_from_slice(b"\r\n");
                *self = Self::Length(0);
            }
        }
        Ok(())
    }
}

/// The line before a chunk.
fn size(out: &mut Vec<u8>, size: usize) {
    // A vector takes whatever is written.
    let _written = write!(out, "{size:x}\r\n").is_ok();
}
