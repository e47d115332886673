//! The fields of a head, and what they say about the connection and the body.
//!
//! The values share the memory of the bytes that were read. A message that two readers could understand in two ways
//! is refused (RFC 9112 §6.3): if it ended in different places for them, one message could smuggle in another.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use httparse::Header;

use super::error::Malformed;
use super::names;
use crate::proxy::settings::HeadLimits;

/// How the fields of a message are read, in its head and after its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FieldRules {
    /// The largest head, and the largest trailer section, in bytes (`limits.headSize`).
    pub(crate) size: usize,
    /// The most fields that each may have (`limits.headers`).
    pub(crate) fields: usize,
    /// Whether spaces before a colon are removed. Responses may have them, requests must not (RFC 9112 §5.1).
    pub(crate) space_before_colon: bool,
}

/// What the fields say about the connection and the body.
#[derive(Debug, Default)]
pub(crate) struct HeadFields {
    /// `false`: `Connection` contains `close`. `true`: it contains `keep-alive`, but not `close`.
    stays: Option<bool>,
    /// Whether `Transfer-Encoding`, if present, ends in `chunked`.
    pub(crate) chunked: Option<bool>,
    pub(crate) length: Option<u64>,
    /// How many lengths were given.
    lengths: usize,
    /// Whether there is an `Expect`.
    pub(crate) expects: bool,
    /// Whether there is a `TE`.
    pub(crate) te: bool,
}

impl FieldRules {
    /// The rules for requests.
    pub(crate) const fn of_request(limits: HeadLimits) -> Self {
        Self { size: limits.size, fields: limits.fields, space_before_colon: false }
    }

    /// The rules for responses.
    pub(crate) const fn of_response(limits: HeadLimits) -> Self {
        Self { space_before_colon: true, ..Self::of_request(limits) }
    }
}

/// Converts the fields `read`, whose values are slices of `bytes`. The map has room for `more` fields.
///
/// # Errors
/// When a field is malformed, its line ends in a line feed alone, or `Content-Length` is not a number.
pub(crate) fn read(
    bytes: &Bytes,
    read: &[Header<'_>],
    more: usize,
) -> Result<(HeaderMap, HeadFields), Malformed> {
    let mut fields = HeaderMap::with_capacity(read.len() + more);
    let mut said = HeadFields::default();
    for field in read {
        check_end(bytes, field.value)?;
        let name = names::name(field.name.as_bytes());
        let name = name.map_err(|_| Malformed::Head(httparse::Error::HeaderName))?;
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(field.value));
        let value = value.map_err(|_| Malformed::Head(httparse::Error::HeaderValue))?;
        said.hear(&name, &value)?;
        fields.append(name, value);
    }
    said.give_one_length(&mut fields);
    Ok((fields, said))
}

/// Checks that the line whose last visible part is `part`, a slice of `bytes`, ends in CR and LF (RFC 9112 §2.2). The
/// parser also accepts LF alone.
fn check_end(bytes: &[u8], part: &[u8]) -> Result<(), Malformed> {
    let end = part.as_ptr().addr().wrapping_sub(bytes.as_ptr().addr()).wrapping_add(part.len());
    let mut after = bytes.get(end..).unwrap_or_default();
    while let [b' ' | b'\t', rest @ ..] = after {
        after = rest;
    }
    if after.starts_with(b"\r\n") { Ok(()) } else { Err(Malformed::LineFeed) }
}

/// The fields of a trailer section. Each of its lines ends in CR and LF, and contains neither elsewhere.
pub(super) fn section(bytes: &Bytes, rules: FieldRules) -> Result<HeaderMap, Malformed> {
    let mut fields = HeaderMap::new();
    let lines = bytes.split(|byte| *byte == b'\n').filter_map(|line| line.strip_suffix(b"\r"));
    for line in lines {
        if fields.len() >= rules.fields {
            return Err(Malformed::TooManyTrailers(rules.fields));
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let (name, value) =
            colon.and_then(|at| line.split_at_checked(at)).ok_or(Malformed::Trailers)?;
        let name = if rules.space_before_colon { trim_end(name) } else { name };
        let name = HeaderName::from_bytes(name);
        let value = HeaderValue::from_maybe_shared(
            bytes.slice_ref(trim(value.get(1..).unwrap_or_default())),
        );
        match (name, value) {
            (Ok(name), Ok(value)) => fields.append(name, value),
            _ => return Err(Malformed::Trailers),
        };
    }
    Ok(fields)
}

/// Removes the spaces and tabs around `text` (RFC 9110 §5.6.3).
pub(super) fn trim(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = text {
        text = rest;
    }
    trim_end(text)
}

fn trim_end(mut text: &[u8]) -> &[u8] {
    while let [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

impl HeadFields {
    /// Whether a field with this name says anything that is heard.
    pub(super) fn wants(name: &HeaderName) -> bool {
        matches!(
            *name,
            header::CONTENT_LENGTH
                | header::TRANSFER_ENCODING
                | header::CONNECTION
                | header::EXPECT
                | header::TE
        )
    }

    /// Notes what a field says: only one that [`HeadFields::wants`] says anything.
    ///
    /// # Errors
    /// When it is a `Content-Length` and not a number.
    pub(super) fn hear(&mut self, name: &HeaderName, value: &HeaderValue) -> Result<(), Malformed> {
        match *name {
            header::CONTENT_LENGTH => self.hear_length(value)?,
            header::TRANSFER_ENCODING => {
                let codings = value.as_bytes().rsplit(|byte| *byte == b',');
                let last = codings.map(<[u8]>::trim_ascii).next().unwrap_or_default();
                self.chunked = Some(last.eq_ignore_ascii_case(b"chunked"));
            }
            header::CONNECTION => self.hear_connection(value),
            header::EXPECT => self.expects = true,
            header::TE => self.te = true,
            _ => {}
        }
        Ok(())
    }

    fn hear_connection(&mut self, value: &HeaderValue) {
        for option in value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            if option.eq_ignore_ascii_case(b"close") {
                self.stays = Some(false);
            } else if option.eq_ignore_ascii_case(b"keep-alive") {
                self.stays.get_or_insert(true);
            }
        }
    }

    /// A length, which may be repeated if it is the same (RFC 9112 §6.3, rule 5).
    fn hear_length(&mut self, value: &HeaderValue) -> Result<(), Malformed> {
        if let (Some(length), None) = (number(value.as_bytes()), self.length) {
            (self.length, self.lengths) = (Some(length), 1);
            return Ok(());
        }
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

    /// Whether the connection stays open, according to the fields (RFC 9112 §9.3). `old` means HTTP/1.0. After
    /// an HTTP/1.0 message with a transfer coding it always closes, because its sender may not have meant the
    /// coding (§6.1).
    pub(crate) const fn keeps(&self, old: bool) -> bool {
        match self.stays {
            Some(false) => false,
            Some(true) => !old || self.chunked.is_none(),
            None => !old,
        }
    }

    /// Leaves only one of several equal `Content-Length` values.
    pub(super) fn give_one_length(&self, fields: &mut HeaderMap) {
        if let Some(length) = self.length.filter(|_| self.lengths > 1) {
            fields.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        }
    }
}

/// Parses digits only.
pub(crate) fn number(digits: &[u8]) -> Option<u64> {
    let add = |sum: u64, digit: &u8| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    };
    digits.iter().try_fold(0, add).filter(|_| !digits.is_empty())
}
