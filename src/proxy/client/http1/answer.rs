//! The head of an answer as bytes, and the framing that it announces (RFC 9112 §4, §6).

use http::header::{self, HeaderValue};
use http::{StatusCode, Version, response};

use crate::proxy::h1::{Framing, field, line, status_line};

/// The parts of a request on which its answer's head depends.
#[derive(Debug)]
pub(super) struct AnswerContext {
    /// The request's HTTP version.
    pub(super) version: Version,
    /// Whether it is a HEAD. Its answer has no body, whatever its fields say.
    pub(super) head: bool,
    /// Whether the connection may carry another request.
    pub(super) keeps: bool,
    /// Whether an answer without a date gets one.
    pub(super) dates: bool,
}

/// What the answer's fields say.
#[derive(Default)]
struct AnswerFields<'a> {
    length: Option<&'a HeaderValue>,
    close: bool,
    dated: bool,
}

/// Writes the head of the answer to `asking`, for a body of this `length` if that is known. Returns how the
/// body must be framed, and whether the connection stays open after it. The version sent is always HTTP/1.1,
/// even to an older client (RFC 9110 §6.2).
pub(super) fn head(
    out: &mut Vec<u8>,
    parts: &response::Parts,
    reason: Option<&[u8]>,
    length: Option<u64>,
    asking: &AnswerContext,
    date: impl FnOnce() -> HeaderValue,
) -> (Framing, bool) {
    status_line(out, parts.status, reason);
    let mut said = AnswerFields::default();
    for (name, value) in &parts.headers {
        match *name {
            header::CONTENT_LENGTH => {
                said.length = Some(value);
                continue;
            }
            header::CONNECTION if parts.status != StatusCode::SWITCHING_PROTOCOLS => {
                said.close |= value.as_bytes().eq_ignore_ascii_case(b"close");
                continue;
            }
            header::DATE => said.dated = true,
            _ => {}
        }
        field(out, name, value);
    }
    let framing = framing(out, parts.status, &said, length, asking);
    let keeps = asking.keeps && !said.close && framing != Framing::UntilClose;
    if parts.status != StatusCode::SWITCHING_PROTOCOLS {
        connection(out, keeps, asking.version);
    }
    if asking.dates && !said.dated {
        // A recipient with a clock adds a missing date (RFC 9110 §6.6.1).
        line(out, &header::DATE, date().as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    (framing, keeps)
}

/// Writes how the body is framed (RFC 9112 §6.3, RFC 9110 §8.6).
fn framing(
    out: &mut Vec<u8>,
    status: StatusCode,
    said: &AnswerFields<'_>,
    length: Option<u64>,
    asking: &AnswerContext,
) -> Framing {
    if status.is_informational() || status == StatusCode::NO_CONTENT {
        return Framing::NONE;
    }
    if asking.head || status == StatusCode::NOT_MODIFIED {
        // The length that the answer to a GET would have.
        if let Some(length) = said.length {
            field(out, &header::CONTENT_LENGTH, length);
        }
        return Framing::NONE;
    }
    match length {
        Some(length) => {
            line(out, &header::CONTENT_LENGTH, itoa::Buffer::new().format(length).as_bytes());
            Framing::Length(length)
        }
        None if asking.version == Version::HTTP_10 => Framing::UntilClose,
        None => {
            line(out, &header::TRANSFER_ENCODING, b"chunked");
            Framing::Chunked
        }
    }
}

/// Writes whether the connection stays open, if that differs from the version's default (RFC 9112 §9.3).
fn connection(out: &mut Vec<u8>, keeps: bool, version: Version) {
    match (keeps, version) {
        (true, Version::HTTP_10) => line(out, &header::CONNECTION, b"keep-alive"),
        (true, _) => {}
        (false, _) => line(out, &header::CONNECTION, b"close"),
    }
}
