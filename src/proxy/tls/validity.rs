//! Reads the validity period of a certificate from its DER (RFC 5280 §4.1). The TLS library checks it in a
//! peer's certificate, but not in our own.

use crate::language::temporal::Timestamp;

const SEQUENCE: u8 = 0x30;
/// `[0] EXPLICIT`: the version, which the oldest certificates omit.
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// No known end (RFC 5280 §4.1.2.5).
const NEVER: &str = "99991231235959Z";

/// A period of time, with both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) from: Timestamp,
    pub(super) until: Timestamp,
}

impl Validity {
    /// The validity of a certificate; `None` if the bytes are not one.
    pub(super) fn of(certificate: &[u8]) -> Option<Self> {
        let (whole, _) = element(SEQUENCE, certificate)?;
        let (mut fields, _) = element(SEQUENCE, whole)?;
        if fields.first() == Some(&VERSION) {
            fields = element(VERSION, fields)?.1;
        }
        // The serial number, the signature algorithm, and the issuer.
        for _ in 0..3 {
            fields = element(*fields.first()?, fields)?.1;
        }
        let (validity, _) = element(SEQUENCE, fields)?;
        let (from, rest) = time(validity)?;
        let (until, _) = time(rest)?;
        Some(Self { from, until })
    }
}

/// The content of the element with this tag at the start of `bytes`, and the bytes after it.
fn element(tag: u8, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&[found, first], rest) = bytes.split_first_chunk::<2>()?;
    if found != tag {
        return None;
    }
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        if digits.len() > 4 {
            return None;
        }
        (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
    };
    rest.split_at_checked(length)
}

/// A time in either form, and the bytes after it.
fn time(bytes: &[u8]) -> Option<(Timestamp, &[u8])> {
    let tag = *bytes.first()?;
    let (text, rest) = element(tag, bytes)?;
    let text = std::str::from_utf8(text).ok()?;
    if text == NEVER {
        return Some((Timestamp::from_nanos(i128::MAX), rest));
    }
    let (century, (year, of_year)) = match tag {
        UTC_TIME => {
            let (year, of_year) = text.split_at_checked(2)?;
            (if year < "50" { "20" } else { "19" }, (year, of_year))
        }
        GENERALIZED_TIME => ("", text.split_at_checked(4)?),
        _ => return None,
    };
    let two = |at: usize| of_year.get(at..at + 2);
    let (month, day, hour, minute, second) = (two(0)?, two(2)?, two(4)?, two(6)?, two(8)?);
    if of_year.get(10..) != Some("Z") {
        return None;
    }
    let written = format!("{century}{year}-{month}-{day}T{hour}:{minute}:{second}Z");
    Some((Timestamp::parse(&written)?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::tls::testing::{Authority, days};
    use proptest::prelude::*;

    #[test]
    fn a_certificate_says_how_long_it_is_valid() {
        let authority = Authority::new();
        let of = |from, until| {
            let issued = authority.issue_for(&["a.test"], days(from), days(until));
            let validity = Validity::of(issued.certificate.der()).unwrap();
            (validity.from.to_string(), validity.until.to_string())
        };
        let both = |from: &str, until: &str| (from.to_owned(), until.to_owned());
        assert_eq!(of(0, 1), both("1970-01-01T00:00:00Z", "1970-01-02T00:00:00Z"));
        // From 2050 on the other form is used.
        assert_eq!(of(18_000, 30_000), both("2019-04-14T00:00:00Z", "2052-02-20T00:00:00Z"));
    }

    #[test]
    fn times_have_two_forms() {
        let read = |tag: u8, text: &str| {
            let mut bytes = vec![tag, u8::try_from(text.len()).unwrap()];
            bytes.extend_from_slice(text.as_bytes());
            time(&bytes).map(|(time, rest)| {
                assert!(rest.is_empty());
                time.to_string()
            })
        };
        assert_eq!(read(UTC_TIME, "491231235959Z").unwrap(), "2049-12-31T23:59:59Z");
        assert_eq!(read(UTC_TIME, "500101000000Z").unwrap(), "1950-01-01T00:00:00Z");
        assert_eq!(read(GENERALIZED_TIME, "20500101000000Z").unwrap(), "2050-01-01T00:00:00Z");
        assert_eq!(read(GENERALIZED_TIME, NEVER).unwrap(), "9999-12-31T23:59:59.999999999Z");
        for (tag, text) in [
            (UTC_TIME, "4912312359Z"),
            (UTC_TIME, "491231235959+0000"),
            (UTC_TIME, "491331235959Z"),
            (GENERALIZED_TIME, "491231235959Z"),
            (0x16, "491231235959Z"),
            (UTC_TIME, "ééé"),
        ] {
            assert_eq!(read(tag, text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut certificate = vec![SEQUENCE, 0x84, 0xff, 0xff, 0xff, 0xff];
            certificate.extend_from_slice(&bytes);
            prop_assert_eq!(Validity::of(&certificate), None);
            let _read = Validity::of(&bytes);
        }
    }
}
