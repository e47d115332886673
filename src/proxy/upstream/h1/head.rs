//! The head of a response: its status, its fields, and the framing of its body.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use httparse::{Error, Header, ParserConfig, Response, Status};

use crate::proxy::h1::{Decoder, FieldRules, HeadFields, Malformed, read};
use crate::proxy::settings::HeadLimits;

/// This many fields are parsed on the stack.
const USUAL_FIELDS: usize = 100;
/// The length of a status line up to its status.
const STATUS_END: usize = "HTTP/1.1 200".len();

/// The head of a response.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: StatusCode,
    /// The reason phrase, if it is not the usual one.
    pub(super) reason: Option<Bytes>,
    pub(super) fields: HeaderMap,
    /// The decoder of the body after it.
    pub(super) body: Decoder,
    /// Whether the connection stays open afterwards (RFC 9112 §9.3).
    pub(super) keep: bool,
}

/// Parses the head at the start of `bytes`. Also returns its length. `None` if it is incomplete. `bodiless`:
/// the response answers a HEAD.
pub(super) fn parse(
    bytes: &Bytes,
    bodiless: bool,
    heads: HeadLimits,
) -> Result<Option<(Head, usize)>, Malformed> {
    if heads.fields <= USUAL_FIELDS {
        let mut room = [const { MaybeUninit::<Header<'_>>::uninit() }; USUAL_FIELDS];
        let room = room.get_mut(..heads.fields).unwrap_or_default();
        parse_in(bytes, bodiless, heads, room)
    } else {
        let mut room = vec![MaybeUninit::<Header<'_>>::uninit(); heads.fields];
        parse_in(bytes, bodiless, heads, &mut room)
    }
}

fn parse_in<'a>(
    bytes: &'a Bytes,
    bodiless: bool,
    heads: HeadLimits,
    room: &mut [MaybeUninit<Header<'a>>],
) -> Result<Option<(Head, usize)>, Malformed> {
    if bytes.first().is_some_and(|first| *first != b'H') {
        // The parser would skip empty lines.
        return Err(Malformed::Head(Error::Version));
    }
    let mut response = Response::new(&mut []);
    let mut config = ParserConfig::default();
    config.allow_spaces_after_header_name_in_responses(true);
    let parsed = config.parse_response_with_uninit_headers(&mut response, bytes, room);
    let size = match parsed {
        Ok(Status::Complete(size)) if size <= heads.size => size,
        Ok(Status::Partial) if bytes.len() <= heads.size => return Ok(None),
        Ok(Status::Complete(_) | Status::Partial) => {
            return Err(Malformed::HeadTooLarge(heads.size));
        }
        Err(Error::TooManyHeaders) => return Err(Malformed::TooManyFields(heads.fields)),
        Err(error) => return Err(Malformed::Head(error)),
    };
    let status = StatusCode::from_u16(response.code.unwrap_or_default());
    let status = status.map_err(|_below_100| Malformed::Status)?;
    let reason = reason(bytes, size, status)?;
    let old = response.version == Some(0);
    let (fields, said) = read(bytes, response.headers, 0)?;
    let mut head = Head { status, reason, fields, body: Decoder::NONE, keep: said.keeps(old) };
    if !status.is_informational() {
        head.body = framing(&said, status, bodiless, heads)?;
        head.keep &= !matches!(head.body, Decoder::UntilClose);
    }
    Ok(Some((head, size)))
}

/// The reason phrase of a head of this size, if it is not the usual one. Also checks the ends of the first line and of
/// the last; `read` checks those of the fields.
fn reason(bytes: &Bytes, size: usize, status: StatusCode) -> Result<Option<Bytes>, Malformed> {
    let rest = bytes.get(STATUS_END..size).unwrap_or_default();
    let line = rest.iter().position(|byte| *byte == b'\n').and_then(|end| rest.get(..end));
    let line = line.and_then(|line| line.strip_suffix(b"\r")).filter(|_| rest.ends_with(b"\r\n"));
    let reason = line.map(|line| line.strip_prefix(b" ").unwrap_or(line));
    let reason = reason.ok_or(Malformed::LineFeed)?;
    let usual = status.canonical_reason().unwrap_or_default();
    Ok((reason != usual.as_bytes()).then(|| bytes.slice_ref(reason)))
}

/// The framing of the body (RFC 9112 §6.3).
fn framing(
    said: &HeadFields,
    status: StatusCode,
    bodiless: bool,
    heads: HeadLimits,
) -> Result<Decoder, Malformed> {
    if bodiless || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        return Ok(Decoder::NONE);
    }
    match (said.chunked, said.length) {
        (Some(_), Some(_)) => Err(Malformed::TwoFramings),
        (Some(true), None) => Ok(Decoder::chunked(FieldRules::of_response(heads))),
        (None, Some(length)) => Ok(Decoder::Length(length)),
        (Some(false) | None, None) => Ok(Decoder::UntilClose),
    }
}
