//! The head of a response: its status, its fields, and the framing of its body.
//!
use std::mem::MaybeUninit;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use httparse::{Header, ParserConfig, Response, Status};

use crate::proxy::h1::{Decoder, FIELDS, HeadFields, Malformed, read};
use crate::proxy::settings::HeadLimits;

/// The head of a response.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: StatusCode,
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
    if heads.fields <= FIELDS {
        let mut room = [const { MaybeUninit::<Header<'_>>::uninit() }; FIELDS];
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
    let mut response = Response::new(&mut []);
    let config = ParserConfig::default();
    let size = match config.parse_response_with_uninit_headers(&mut response, bytes, room) {
        Ok(Status::Complete(size)) if size <= heads.size => size,
        Ok(Status::Partial) if bytes.len() <= heads.size => return Ok(None),
        Ok(Status::Complete(_) | Status::Partial) => {
            return Err(Malformed::HeadTooLarge(heads.size));
        }
        Err(httparse::Error::TooManyHeaders) => {
            return Err(Malformed::TooManyFields(heads.fields));
        }
        Err(error) => return Err(Malformed::Head(error)),
    };
    let status = StatusCode::from_u16(response.code.unwrap_or_default());
    let status = status.map_err(|_below_100| Malformed::Status)?;
    let old = response.version == Some(0);
    let (fields, said) = read(bytes, response.headers)?;
    let mut head = Head { status, fields, body: Decoder::NONE, keep: said.keeps(old) };
    if !status.is_informational() {
        head.body = framing(&said, status, bodiless)?;
        head.keep &= !matches!(head.body, Decoder::UntilClose);
    }
    Ok(Some((head, size)))
}

/// The framing of the body (RFC 9112 §6.3).
fn framing(said: &HeadFields, status: StatusCode, bodiless: bool) -> Result<Decoder, Malformed> {
    if bodiless || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        return Ok(Decoder::NONE);
    }
    match (said.chunked, said.length) {
        (Some(_), Some(_)) => Err(Malformed::TwoFramings),
        (Some(true), None) => Ok(Decoder::chunked()),
        (None, Some(length)) => Ok(Decoder::Length(length)),
        (Some(false) | None, None) => Ok(Decoder::UntilClose),
    }
}
