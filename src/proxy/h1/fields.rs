//! The fields of a head, and what they say about the connection and the body.
//!
//! The values share the memory of the bytes that were read. A message that two readers could understand in two ways
//! is refused (RFC 9112 §6.3): if it ended in different places for them, one message could smuggle in another.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use httparse::Header;

use super::error::Malformed;

/// What the fields say about the connection and the body.
#[derive(Debug, Default)]
pub(crate) struct Said {
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

/// Converts the fields `read`, whose values are slices of `bytes`.
///
/// # Errors
/// When a field is malformed, or `Content-Length` is not a number.
pub(crate) fn read(bytes: &Bytes, read: &[Header<'_>]) -> Result<(HeaderMap, Said), Malformed> {
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
    said.give_one_length(&mut fields);
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
                if option.eq_ignore_ascii_case(b"close") {
                    self.stays = Some(false);
                } else if option.eq_ignore_ascii_case(b"keep-alive") {
                    self.stays.get_or_insert(true);
                }
            }
        }
        self.expects |= *name == header::EXPECT;
        self.te |= *name == header::TE;
        Ok(())
    }

    /// A length, which may be repeated if it is the same (RFC 9112 §6.3, rule 5).
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
    fn give_one_length(&self, fields: &mut HeaderMap) {
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
