//! The fields of a head, and what they say of the connection and the body.
//!
//! Their values share the memory that the head was read into. What two readers could read in two ways is no
//! message (RFC 9112 §6.3): a message that ends elsewhere for the next hop than it does here could put words into
//! another one.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use httparse::Header;

use super::error::Malformed;

/// What the fields say of the connection and the body.
#[derive(Debug, Default)]
pub(crate) struct Said {
    /// False: `Connection` has `close`. True: it has `keep-alive`, and not that.
    stays: Option<bool>,
    /// Whether `Transfer-Encoding` ends in `chunked`, where it is there.
    pub(crate) chunked: Option<bool>,
    pub(crate) length: Option<u64>,
    /// How often the length is given.
    lengths: usize,
    /// Whether there is an `Expect`.
    pub(crate) expects: bool,
    /// Whether there is a `TE`.
    pub(crate) te: bool,
}

/// The fields `read` from `bytes`, whose values are slices of those.
///
/// # Errors
/// Where one is no field, or `Content-Length` is no number.
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

    /// Whether the connection stays open afterwards, as far as the fields say (RFC 9112 §9.3); `old`: in HTTP/1.0.
    /// After a message in HTTP/1.0 that names a coding it never does: its sender may not have meant it (§6.1).
    pub(crate) const fn keeps(&self, old: bool) -> bool {
        match self.stays {
            Some(false) => false,
            Some(true) => !old || self.chunked.is_none(),
            None => !old,
        }
    }

    /// Has `Content-Length` say once what it says several times.
    fn give_one_length(&self, fields: &mut HeaderMap) {
        if let Some(length) = self.length.filter(|_| self.lengths > 1) {
            fields.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        }
    }
}

/// Digits and nothing else.
pub(crate) fn number(digits: &[u8]) -> Option<u64> {
    let add = |sum: u64, digit: &u8| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    };
    digits.iter().try_fold(0, add).filter(|_| !digits.is_empty())
}
