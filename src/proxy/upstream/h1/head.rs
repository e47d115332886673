//! The head of a response: its status, its fields, and the framing of its body.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use httparse::{Error, Header, ParserConfig, Response, Status};

use crate::proxy::h1::{
    Decoder, FieldRules, HeadFields, Malformed, PlainFields, first_line, plain_fields, read,
};
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
    match plain(bytes, bodiless, heads) {
        Some(read) => Ok(Some(read)),
        None => general(bytes, bodiless, heads),
    }
}

/// The same for a plain head: `None` if it is none, or is malformed.
fn plain(bytes: &Bytes, bodiless: bool, heads: HeadLimits) -> Option<(Head, usize)> {
    let (line, next) = first_line(bytes)?;
    let (version, line) = line.split_first_chunk()?;
    let old = match version {
        b"HTTP/1.1 " => false,
        b"HTTP/1.0 " => true,
        _ => return None,
    };
    let (status, reason) = line.split_at_checked(3)?;
    let status = StatusCode::from_bytes(status).ok()?;
    if reason.strip_prefix(b" ")? != status.canonical_reason()?.as_bytes() {
        return None;
    }
    let PlainFields { fields, said, end } = plain_fields(bytes, next, heads.fields)?;
    if end > heads.size {
        return None;
    }
    let head = whole((status, None, old), (fields, &said), bodiless, heads).ok()?;
    Some((head, end))
}

/// The same for any head.
fn general(
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
    let head = whole((status, reason, old), (fields, &said), bodiless, heads)?;
    Ok(Some((head, size)))
}

/// The head of a response with this line and these fields.
#[inline]
fn whole(
    (status, reason, old): (StatusCode, Option<Bytes>, bool),
    (fields, said): (HeaderMap, &HeadFields),
    bodiless: bool,
    heads: HeadLimits,
) -> Result<Head, Malformed> {
    let mut head = Head { status, reason, fields, body: Decoder::NONE, keep: said.keeps(old) };
    if !status.is_informational() {
        head.body = framing(said, status, bodiless, heads)?;
        head.keep &= !matches!(head.body, Decoder::UntilClose);
    }
    Ok(head)
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::select;

    fn first() -> impl Strategy<Value = &'static str> {
        select(vec![
            "HTTP/1.1 200 OK",
            "HTTP/1.1 404 Not Found",
            "HTTP/1.0 200 OK",
            "HTTP/1.1 200 Fine",
            "HTTP/1.1 200 ",
            "HTTP/1.1 200",
            "HTTP/1.1  200 OK",
            "HTTP/1.1 200  OK",
            "HTTP/1.1 099 No",
            "HTTP/1.1 999 ",
            "HTTP/1.1 100 Continue",
            "HTTP/1.1 204 No Content",
            "HTTP/1.1 2000 OK",
            "HTTP/2 200 OK",
            " HTTP/1.1 200 OK",
        ])
    }

    fn field() -> impl Strategy<Value = String> {
        let names = select(vec![
            "Server",
            "X-A",
            "",
            "X Y",
            "Content-Length",
            "Transfer-Encoding",
            "Connection",
            "Accept ",
            " Accept",
        ]);
        let values = select(vec!["b", "", "1", "1, 1", "chunked", "close", "a\rb", "é", "  c\t "]);
        (names, select(vec![":", ": ", " :"]), values)
            .prop_map(|(name, colon, value)| format!("{name}{colon}{value}"))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        /// What is read of a plain head is what the general parser reads of it, also when its lines are known.
        #[test]
        fn a_plain_head_means_what_it_means_to_the_parser(
            first in first(),
            fields in prop::collection::vec(field(), 0..5),
            ends in prop::collection::vec(select(vec!["\r\n", "\r\n", "\r\n", "\r\n", "\n"]), 7),
            (size, most) in (select(vec![30, 4000]), select(vec![1, 100])),
            (bodiless, cut) in (any::<bool>(), 0..200_usize),
        ) {
            let lines = std::iter::once(first).chain(fields.iter().map(String::as_str)).chain([""]);
            let head: String = lines.zip(ends).flat_map(|(line, end)| [line, end]).collect();
            let mut bytes = format!("{head}body").into_bytes();
            if cut < 60 {
                bytes.truncate(bytes.len().saturating_sub(cut));
            }
            let (bytes, heads) = (Bytes::from(bytes), HeadLimits { size, fields: most });
            for _ in 0..3 {
                if let Some(read) = plain(&bytes, bodiless, heads) {
                    let wanted = general(&bytes, bodiless, heads);
                    prop_assert_eq!(format!("{:?}", Ok::<_, Malformed>(Some(read))), format!("{wanted:?}"));
                }
            }
        }
    }

    #[test]
    fn usual_heads_are_plain() {
        let heads = HeadLimits { size: 4000, fields: 100 };
        for head in [
            "HTTP/1.1 200 OK\r\nServer: a\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\n",
            "HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.0 503 Service Unavailable\r\n\r\n",
        ] {
            let bytes = Bytes::from(format!("{head}body"));
            for _ in 0..4 {
                assert_eq!(plain(&bytes, false, heads).unwrap().1, head.len());
            }
        }
    }
}
