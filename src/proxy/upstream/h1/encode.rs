//! The head of a request as bytes, and the framing that it announces (RFC 9112 §3, §6).

use http::header;
use http_body::Body as _;

use crate::proxy::body::request::RequestBody;
use crate::proxy::h1::{Framing, field, line, number};
use crate::proxy::upstream::request_head::RequestHead;

/// Writes the head of a request to `endpoint` that is followed by `body`. Returns how the body must be framed.
pub(super) fn head(
    out: &mut Vec<u8>,
    outgoing: &RequestHead<'_>,
    endpoint: &str,
    body: &RequestBody,
) -> Framing {
    out.extend_from_slice(outgoing.method.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(outgoing.target.as_str().as_bytes());
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
            // A body with a length cannot have trailers (RFC 9112 §6.2).
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

/// The framing of a body whose `length` is in the written fields, or is `known` without them. A body of unknown
/// length is chunked, whatever the method (RFC 9112 §6.3, rule 7).
fn framing(out: &mut Vec<u8>, length: Option<u64>, known: Option<u64>) -> Framing {
    match (length, known) {
        (_, Some(0)) => Framing::NONE,
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
