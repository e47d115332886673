//! The head of a request: its request line, its fields, and the framing of its body (RFC 9112 §3, §5, §6).

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::{HeaderMap, Method, Version};
use httparse::{Error, Header, ParserConfig, Status};

use crate::proxy::boxed::boxed;
use crate::proxy::h1::{
    ClientIo, Decoder, FieldRules, HeadFields, Malformed, PlainFields, first_line, plain_fields,
    read,
};
use crate::proxy::message::headers;
use crate::proxy::message::refusal::Refusal;
use crate::proxy::message::target::{Absolute, Target, TargetError};
use crate::proxy::request::head::ReceivedHead;
use crate::proxy::settings::Limits;

/// This many fields are parsed on the stack.
const USUAL_FIELDS: usize = 100;

/// The map of a request's fields has room for those that the proxy usually adds: the id, and who the client is.
const ADDED: usize = 4;

/// The head of a request.
#[derive(Debug)]
pub(super) struct Head {
    /// The request line and the fields.
    pub(super) request: Box<ReceivedHead>,
    /// The decoder of the body after it.
    pub(super) body: Decoder,
    /// Whether the connection stays open afterwards (RFC 9112 §9.3).
    pub(super) keeps: bool,
    /// Whether the client waits for a 100 before it sends the body (RFC 9110 §10.1.1).
    pub(super) asks: bool,
    /// Whether the client accepts trailers (RFC 9110 §10.1.4).
    pub(super) trailers: bool,
}

/// A request line, as slices of the bytes that were read.
struct Line<'a> {
    method: &'a str,
    target: &'a str,
    version: Version,
}

/// The next head of `conn`, once it is complete.
///
/// # Errors
/// When it is malformed or exceeds the limits.
pub(super) fn take(conn: &mut ClientIo, limits: &Limits) -> Result<Option<Head>, Refusal> {
    conn.take_head(|bytes| {
        let parsed = parse(bytes, limits)?;
        Ok(parsed.map(|(head, size)| {
            let length = head.body.left();
            (head, size, length)
        }))
    })
}

/// Parses the head at the start of `bytes`. Also returns its length. `None` if it is incomplete.
///
/// # Errors
/// When it is malformed or exceeds the limits.
fn parse(bytes: &Bytes, limits: &Limits) -> Result<Option<(Head, usize)>, Refusal> {
    match plain(bytes, limits) {
        Some(read) => Ok(Some(read)),
        None => general(bytes, limits),
    }
}

/// The same for a plain head: `None` if it is none, or is refused.
fn plain(bytes: &Bytes, limits: &Limits) -> Option<(Head, usize)> {
    let (line, next) = first_line(bytes)?;
    let (line, version) = match line.split_last_chunk()? {
        (line, b" HTTP/1.1") => (line, Version::HTTP_11),
        (line, b" HTTP/1.0") => (line, Version::HTTP_10),
        _ => return None,
    };
    let space = line.iter().position(|byte| *byte == b' ')?;
    let method = Method::from_bytes(line.get(..space)?).ok()?;
    let target = line.get(space + 1..)?;
    // More than the HTTP library checks.
    if target.len() > limits.target_size || !target.iter().all(u8::is_ascii_graphic) {
        return None;
    }
    let read = plain_fields(bytes, next, limits.headers)?;
    let PlainFields { fields, said, end } = read;
    if end.saturating_sub(target.len()) > limits.head_size {
        return None;
    }
    let target = Target::read(&bytes.slice_ref(target)).ok()?;
    let head = whole((method, target, version), (fields, &said), limits).ok()?;
    Some((head, end))
}

/// The same for any head.
fn general(bytes: &Bytes, limits: &Limits) -> Result<Option<(Head, usize)>, Refusal> {
    if limits.headers <= USUAL_FIELDS {
        let mut room = [const { MaybeUninit::<Header<'_>>::uninit() }; USUAL_FIELDS];
        parse_in(bytes, limits, room.get_mut(..limits.headers).unwrap_or_default())
    } else {
        let mut room = vec![MaybeUninit::<Header<'_>>::uninit(); limits.headers];
        parse_in(bytes, limits, &mut room)
    }
}

fn parse_in<'a>(
    bytes: &'a Bytes,
    limits: &Limits,
    room: &mut [MaybeUninit<Header<'a>>],
) -> Result<Option<(Head, usize)>, Refusal> {
    if bytes.first() == Some(&b'\n') {
        // The parser would skip it.
        return Err(Malformed::LineFeed.into());
    }
    let mut request = httparse::Request::new(&mut []);
    let config = ParserConfig::default();
    let parsed = config.parse_request_with_uninit_headers(&mut request, bytes, room);
    let size = match parsed {
        Ok(Status::Complete(size)) => {
            check_size(&request, size, limits)?;
            size
        }
        Ok(Status::Partial) => {
            check_size(&request, bytes.len(), limits)?;
            return Ok(None);
        }
        Err(Error::TooManyHeaders) => return Err(Refusal::too_many_fields(limits.headers)),
        Err(error) => return Err(Malformed::Head(error).into()),
    };
    let line = Line {
        method: request.method.unwrap_or_default(),
        target: request.path.unwrap_or_default(),
        version: if request.version == Some(0) { Version::HTTP_10 } else { Version::HTTP_11 },
    };
    check_lines(bytes.get(..size).unwrap_or_default(), &line)?;
    Ok(Some((head(bytes, &line, request.headers, limits)?, size)))
}

/// Checks the size of a head of which `read` bytes are here. The target has a limit of its own, and what it leaves unused
/// is not for the fields.
fn check_size(
    request: &httparse::Request<'_, '_>,
    read: usize,
    limits: &Limits,
) -> Result<(), Refusal> {
    let target = request.path.unwrap_or_default().len();
    if request.version.is_none() || target > limits.target_size {
        let most = limits.head_size.saturating_add(limits.target_size);
        let fits = read <= most;
        return if fits { Ok(()) } else { Err(Refusal::target_too_long(limits.target_size)) };
    }
    let fits = read.saturating_sub(target) <= limits.head_size;
    if fits { Ok(()) } else { Err(Refusal::head_too_large(limits.head_size)) }
}

/// Checks the ends of the first line and of the last. `read` checks those of the fields.
fn check_lines(head: &[u8], line: &Line<'_>) -> Result<(), Malformed> {
    // The parser has read the version: it comes after one space, and its length is fixed.
    let version = line.target.len() + " HTTP/1.1".len();
    let end = line.target.as_ptr().addr().wrapping_sub(head.as_ptr().addr()).wrapping_add(version);
    let ends = head.get(end..).is_some_and(|rest| rest.starts_with(b"\r\n"));
    if ends && head.ends_with(b"\r\n") { Ok(()) } else { Err(Malformed::LineFeed) }
}

fn head(
    bytes: &Bytes,
    line: &Line<'_>,
    fields: &[Header<'_>],
    limits: &Limits,
) -> Result<Head, Refusal> {
    let method = Method::from_bytes(line.method.as_bytes()).map_err(|_| Malformed::Method)?;
    let target = Target::read(&bytes.slice_ref(line.target.as_bytes()));
    let target = target.map_err(|error| match error {
        TargetError::TooLong => Refusal::target_too_long(limits.target_size),
        error => error.into(),
    })?;
    let (headers, said) = read(bytes, fields, ADDED)?;
    Ok(whole((method, target, line.version), (headers, &said), limits)?)
}

/// The head of a request with this line and these fields.
#[inline]
fn whole(
    (method, (absolute, target), version): (Method, (Absolute, Target), Version),
    (headers, said): (HeaderMap, &HeadFields),
    limits: &Limits,
) -> Result<Head, Malformed> {
    let old = version == Version::HTTP_10;
    let body = framing(said, old, FieldRules::of_request(limits.heads()))?;
    let asks = !old && said.expects;
    let trailers = said.te && headers::takes_trailers(&headers);
    let request = boxed(|| ReceivedHead { method, absolute, target, version, headers });
    Ok(Head { request, body, keeps: said.keeps(old), asks, trailers })
}

/// The framing of the body (RFC 9112 §6.3). A request with two framings is refused, because that is how request
/// smuggling works (§11.2).
fn framing(said: &HeadFields, old: bool, rules: FieldRules) -> Result<Decoder, Malformed> {
    match (said.chunked, said.length) {
        (None, None) => Ok(Decoder::NONE),
        (None, Some(length)) => Ok(Decoder::Length(length)),
        (Some(_), _) if old => Err(Malformed::OldCoding),
        (Some(_), Some(_)) => Err(Malformed::TwoFramings),
        (Some(true), None) => Ok(Decoder::chunked(rules)),
        (Some(false), None) => Err(Malformed::Coding),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::limits as usual_limits;
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::select;

    /// The first line of a head: mostly a good one.
    fn first() -> impl Strategy<Value = String> {
        let methods = select(vec!["GET", "GET", "POST", "X-y", "", "G@T", " GET", "OPTIONS"]);
        let targets = [
            "/",
            "/a?b=c",
            "/a<b>",
            "*",
            "http://h/a",
            "h:1",
            "/a b",
            "",
            "/\u{7f}",
            "/é",
            "/#a",
            "/\t",
        ];
        let versions = select(vec![
            "HTTP/1.1",
            "HTTP/1.1",
            "HTTP/1.0",
            "HTTP/1.2",
            "HTTP/2",
            "http/1.1",
            " HTTP/1.1",
            "",
        ]);
        (methods, select(targets.to_vec()), versions)
            .prop_map(|(method, target, version)| format!("{method} {target} {version}"))
    }

    fn field() -> impl Strategy<Value = String> {
        let names = select(vec![
            "Host",
            "host",
            "X-Some-Name",
            "a",
            "",
            "X Y",
            "Content-Length",
            "Transfer-Encoding",
            "TE",
            "Connection",
            "Expect",
            "Accept ",
            " Accept",
            "Cookie",
            "é",
        ]);
        let values = select(vec![
            "a.test",
            "",
            " ",
            "\t",
            "1",
            "1, 1",
            "x",
            "chunked",
            "close",
            "keep-alive",
            "a\rb",
            "a\0b",
            "a\u{7f}",
            "é",
            "100-continue",
            "trailers",
            "  two  words\t ",
            "a:b: c",
        ]);
        let colons = select(vec![":", ": ", ": ", ":  ", " :", ""]);
        (names, colons, values).prop_map(|(name, colon, value)| format!("{name}{colon}{value}"))
    }

    fn limits() -> impl Strategy<Value = Limits> {
        let sizes = (select(vec![1, 5, 100]), select(vec![40, 80, 4000]), select(vec![3, 4000]));
        sizes.prop_map(|(headers, head_size, target_size)| Limits {
            head_size,
            target_size,
            headers,
            ..usual_limits()
        })
    }

    fn ends() -> impl Strategy<Value = &'static str> {
        select(vec!["\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\n", "\r"])
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        /// What is read of a plain head is what the general parser reads of it, also when its lines are known.
        #[test]
        fn a_plain_head_means_what_it_means_to_the_parser(
            first in first(),
            fields in prop::collection::vec(field(), 0..6),
            ends in prop::collection::vec(ends(), 8),
            limits in limits(),
            cut in 0..200_usize,
        ) {
            let lines = std::iter::once(&first).chain(&fields).map(String::as_str).chain([""]);
            let head: String = lines.zip(ends).flat_map(|(line, end)| [line, end]).collect();
            let mut bytes = format!("{head}body").into_bytes();
            if cut < 60 {
                bytes.truncate(bytes.len().saturating_sub(cut));
            }
            let bytes = Bytes::from(bytes);
            for _ in 0..3 {
                if let Some(read) = plain(&bytes, &limits) {
                    let wanted = general(&bytes, &limits);
                    prop_assert_eq!(format!("{:?}", Ok::<_, Refusal>(Some(read))), format!("{wanted:?}"));
                }
            }
        }
    }

    #[test]
    fn usual_heads_are_plain() {
        let head = "GET /a?b=c HTTP/1.1\r\nHost: a.test\r\nUser-Agent: b/1 (c; d)\r\nAccept: */*\r\nConnection: keep-alive\r\n\r\nGET";
        let bytes = Bytes::from(head);
        for _ in 0..4 {
            let (read, size) = plain(&bytes, &usual_limits()).unwrap();
            assert_eq!((read.request.headers.len(), size), (4, head.len() - 3));
            assert_eq!(read.request.headers["host"], "a.test");
            assert!(read.keeps && read.body.is_done());
        }
    }
}
