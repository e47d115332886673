//! Chunked bodies with a request after them, against a decoder that knows only the grammar.

use super::{answers, exchange};

/// How a chunked body ends.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// Before this byte.
    At(usize),
    /// More of it is missing.
    Open,
    /// Nobody knows where.
    Malformed,
}

/// The request before the body. Its route reads the body.
const HEAD: &[u8] = b"POST /body HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n";
/// The request after it.
const NEXT: &[u8] = b"GET /next HTTP/1.1\r\nHost: t\r\n\r\n";

/// Sends a chunked body and another request right after it.
///
/// # Panics
/// When a malformed body is accepted, a well-formed one is refused, or the request after it is lost or invented.
pub fn chunked_body(data: &[u8]) {
    let sent = [HEAD, data, NEXT].concat();
    let body = [data, NEXT].concat();
    let statuses = answers(&exchange(&sent, b""), false);
    match end(&body) {
        End::Malformed => assert_eq!(statuses, [400], "nothing after a malformed body is read"),
        End::Open => assert!(matches!(statuses[..], [400 | 408]), "{statuses:?}"),
        End::At(end) if end == data.len() => assert_eq!(statuses, [200, 200]),
        // What follows the body is a request that nobody meant: it has an answer of its own, or none.
        End::At(_) => assert_eq!(statuses.first(), Some(&200)),
    }
}

/// Where the body at the start of `bytes` ends (RFC 9112 §7.1).
fn end(bytes: &[u8]) -> End {
    let mut at = 0;
    loop {
        let line = match line(&bytes[at..]) {
            Ok(line) => line,
            Err(end) => return end.unless(|| begins_a_size(&bytes[at..])),
        };
        at += line.len() + 2;
        let Some(size) = size(line) else { return End::Malformed };
        if size == 0 {
            break;
        }
        let Some(next) = usize::try_from(size).ok().and_then(|size| at.checked_add(size)) else {
            return End::Open;
        };
        match bytes.get(next..).unwrap_or_default() {
            [b'\r', b'\n', ..] => at = next + 2,
            [] | [b'\r'] => return End::Open,
            _ => return End::Malformed,
        }
    }
    loop {
        match line(&bytes[at..]) {
            Ok([]) => return End::At(at + 2),
            Ok(field) if !is_field(field) => return trailers_end(&bytes[at..]),
            Ok(field) => at += field.len() + 2,
            Err(end) => return end,
        }
    }
}

impl End {
    /// Malformed unless the bytes so far can be the beginning of something well-formed.
    fn unless(self, can_be: impl FnOnce() -> bool) -> Self {
        if self == Self::Open && !can_be() { Self::Malformed } else { self }
    }
}

/// A wrong field is noticed at the end of its section, if that comes.
fn trailers_end(mut bytes: &[u8]) -> End {
    loop {
        match line(bytes) {
            Ok([]) => return End::Malformed,
            Ok(field) => bytes = &bytes[field.len() + 2..],
            Err(end) => return end,
        }
    }
}

/// The line at the start of `bytes`, without its end. It contains neither CR nor LF.
fn line(bytes: &[u8]) -> Result<&[u8], End> {
    let end = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n')).ok_or(End::Open)?;
    match bytes[end..] {
        [b'\r', b'\n', ..] => Ok(&bytes[..end]),
        [b'\r'] => Err(End::Open),
        _ => Err(End::Malformed),
    }
}

/// Whether an unfinished line can become that of a size.
fn begins_a_size(line: &[u8]) -> bool {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    line.is_empty() || size(line).is_some()
}

/// The size in a chunk's first line, with spaces after it, which some senders write, and extensions.
fn size(line: &[u8]) -> Option<u64> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (digits, rest) = line.split_at(digits);
    let size = u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    let blanks = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    let visible = |byte: &u8| matches!(byte, b'\t' | b' '..=b'~' | 0x80..);
    match &rest[blanks..] {
        [] => Some(size),
        [b';', extension @ ..] if extension.iter().all(visible) => Some(size),
        _ => None,
    }
}

/// Whether a line of a trailer section is a field (RFC 9112 §5).
fn is_field(line: &[u8]) -> bool {
    let Some(colon) = line.iter().position(|byte| *byte == b':') else { return false };
    let token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let value = |byte: &u8| matches!(byte, b'\t' | b' '..=b'~' | 0x80..);
    colon > 0 && line[..colon].iter().all(token) && line[colon + 1..].iter().all(value)
}
