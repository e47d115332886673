//! The head of an answer: its status, its fields, and what frames its body.
//!
//! The field values share the memory that the head was read into. What two readers could read in two ways is no
//! answer (RFC 9112 §6.3): an upstream whose messages end elsewhere for the next hop than they do here could put
//! words into another client's answer.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::StatusCode;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use httparse::{Header, ParserConfig, Response, Status};

use super::decode::Decoder;
use super::error::Malformed;

/// How large a head may be, in bytes.
pub(super) const SIZE: usize = 64 * 1024;
/// How many fields it may have.
pub(super) const FIELDS: usize = 100;

/// A head.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: StatusCode,
    pub(super) fields: HeaderMap,
    /// What frames the body behind it.
    pub(super) body: Decoder,
    /// Whether the connection stays open afterwards (RFC 9112 §9.3).
    pub(super) keep: bool,
}

/// What the fields say of the connection and the body.
#[derive(Debug, Default)]
struct Said {
    /// `Connection` has `close`, or `keep-alive`.
    close: bool,
    keep_alive: bool,
    /// Whether `Transfer-Encoding` ends in `chunked`, where it is there.
    chunked: Option<bool>,
    length: Option<u64>,
    /// How often the length is given.
    lengths: usize,
}

/// The head at the start of `bytes`, and how many bytes it takes; `None` where it is not all there. `bodiless`
/// is the answer to a HEAD.
pub(super) fn parse(bytes: &Bytes, bodiless: bool) -> Result<Option<(Head, usize)>, Malformed> {
    let mut fields = [const { MaybeUninit::<Header<'_>>::uninit() }; FIELDS];
    let mut response = Response::new(&mut []);
    let config = ParserConfig::default();
    let parsed = config.parse_response_with_uninit_headers(&mut response, bytes, &mut fields);
    let size = match parsed.map_err(Malformed::Head)? {
        Status::Complete(size) if size <= SIZE => size,
        Status::Partial if bytes.len() <= SIZE => return Ok(None),
        Status::Complete(_) | Status::Partial => return Err(Malformed::HeadTooLarge),
    };
    let status = StatusCode::from_u16(response.code.unwrap_or_default());
    let status = status.map_err(|_below_100| Malformed::Status)?;
    let old = response.version == Some(0);
    let (fields, said) = read(bytes, response.headers)?;
    let mut head = Head { status, fields, body: Decoder::NONE, keep: said.keeps(old) };
    if !status.is_informational() {
        head.body = said.framing(status, bodiless)?;
        head.keep &= !matches!(head.body, Decoder::UntilClose);
        if said.lengths > 1 {
            said.give_one_length(&mut head.fields);
        }
    }
    Ok(Some((head, size)))
}

/// The fields, whose values are slices of `bytes`.
fn read(bytes: &Bytes, read: &[Header<'_>]) -> Result<(HeaderMap, Said), Malformed> {
    let mut fields = HeaderMap::with_capacity(read.len());
    let mut said = Said::default();
    for field in read {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let name = name.map_err(|_| Malformed::Head(httparse::Error::HeaderName))?;
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(field.value));
        let value = value.map_err(|_| Malformed::Head(httparse::Error::HeaderValue))?;
        said.hear(&name, &value)?;
        fields.append(name, value);
    }
    Ok((fields, said))
}

impl Said {
    fn hear(&mut self, name: &HeaderName, value: &HeaderValue) -> Result<(), Malformed> {
        if *name == header::CONTENT_LENGTH {
            return self.hear_length(value);
        }
        if *name == header::TRANSFER_ENCODING {
            let mut codings = value.as_bytes().rsplit(|byte| *byte == b',').map(<[u8]>::trim_ascii);
            let last = codings.next().unwrap_or_default();
            self.chunked = Some(last.eq_ignore_ascii_case(b"chunked"));
        } else if *name == header::CONNECTION {
            for option in value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                self.close |= option.eq_ignore_ascii_case(b"close");
                self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            }
        }
        Ok(())
    }

    /// A length, or several that are the same (RFC 9112 §6.3, rule 5).
    fn hear_length(&mut self, value: &HeaderValue) -> Result<(), Malformed> {
        for element in value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            let length = number(element).ok_or(Malformed::ContentLength)?;
            if self.length.is_some_and(|before| before != length) {
                return Err(Malformed::ContentLength);
            }
            self.length = Some(length);
            self.lengths += 1;
        }
        Ok(())
    }

    /// Whether the connection stays open afterwards (RFC 9112 §9.3), as far as the fields say. After an answer
    /// in HTTP/1.0 that names a coding it never does: its sender may not have meant it (§6.1).
    const fn keeps(&self, old: bool) -> bool {
        !self.close && (!old || (self.keep_alive && self.chunked.is_none()))
    }

    /// What frames the body (RFC 9112 §6.3).
    fn framing(&self, status: StatusCode, bodiless: bool) -> Result<Decoder, Malformed> {
        if bodiless || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
            return Ok(Decoder::NONE);
        }
        match (self.chunked, self.length) {
            (Some(_), Some(_)) => Err(Malformed::TwoFramings),
            (Some(true), None) => Ok(Decoder::chunked()),
            (None, Some(length)) => Ok(Decoder::Length(length)),
            (Some(false) | None, None) => Ok(Decoder::UntilClose),
        }
    }

    /// Has `Content-Length` say once what it says several times.
    fn give_one_length(&self, fields: &mut HeaderMap) {
        if let Some(length) = self.length {
            fields.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        }
    }
}

/// Digits and nothing else.
pub(super) fn number(digits: &[u8]) -> Option<u64> {
    let add = |sum: u64, digit: &u8| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    };
    digits.iter().try_fold(0, add).filter(|_| !digits.is_empty())
}
