//! `execution.id`: the request's own `x-request-id` if it is well-formed, otherwise a new `UUIDv7`.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

/// The field with the id, in both directions.
pub(crate) static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest id that is accepted from a client.
const MAX: usize = 128;

/// Makes ids. Each worker has its own, so it shares nothing and asks the system for no randomness per request.
#[derive(Debug)]
pub(crate) struct Ids {
    random: Mutex<SmallRng>,
}

impl Ids {
    /// Seeded by the system.
    pub(crate) fn new() -> Self {
        Self { random: Mutex::new(SmallRng::from_rng(&mut rand::rng())) }
    }

    /// The same ids in every run, for rehearsals.
    pub(crate) fn seeded(seed: u64) -> Self {
        Self { random: Mutex::new(SmallRng::seed_from_u64(seed)) }
    }

    /// Random bytes for the ids of traces and spans, which must be unique but need not be secret.
    pub(crate) fn random<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.random.lock().unwrap_or_else(PoisonError::into_inner).fill_bytes(&mut bytes);
        bytes
    }

    /// A `UUIDv7` (RFC 9562 §5.7) for the wall time `nanos` since the Unix epoch. HTTP/2 keeps it in no table of fields.
    pub(crate) fn next(&self, nanos: i128) -> HeaderValue {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        let (high, low) = (random.next_u64(), random.next_u64());
        drop(random);
        let millis = u64::try_from(nanos).unwrap_or(0) / 1_000_000;
        let high = (millis << 16) | 0x7000 | (high & 0x0fff);
        let low = 0x8000_0000_0000_0000 | (low >> 2);
        // One allocation. A copied slice would make a second one when it is first cloned.
        let id = HeaderValue::from_maybe_shared(Bytes::from_owner(hyphenated(high, low)));
        let mut id = id.unwrap_or(HeaderValue::from_static("unknown"));
        id.set_sensitive(true);
        id
    }
}

/// The text of the UUID with these halves (RFC 9562 §4).
fn hyphenated(high: u64, low: u64) -> [u8; 36] {
    let [a, b, c, d] = [high >> 32, high & 0xffff_ffff, low >> 32, low & 0xffff_ffff].map(hex);
    let mut text = [b'-'; 36];
    let mut put = |at: usize, digits: &[u8]| {
        if let Some(place) = text.get_mut(at..at + digits.len()) {
            place.copy_from_slice(digits);
        }
    };
    let ((b1, b2), (c1, c2)) = (b.split_at(4), c.split_at(4));
    put(0, &a);
    put(9, b1);
    put(14, b2);
    put(19, c1);
    put(24, c2);
    put(28, &d);
    text
}

/// The eight hexadecimal digits of a number below 2^32, computed at once: the digits are spread over the bytes
/// of a word, and those above nine are shifted to the letters.
fn hex(number: u64) -> [u8; 8] {
    let word = (number | (number << 16)) & 0x0000_ffff_0000_ffff;
    let word = (word | (word << 8)) & 0x00ff_00ff_00ff_00ff;
    let word = (word | (word << 4)) & 0x0f0f_0f0f_0f0f_0f0f;
    let letters = ((word + 0x0606_0606_0606_0606) >> 4) & 0x0101_0101_0101_0101;
    let to_letter = u64::from(b'a' - b'9' - 1);
    (word + 0x3030_3030_3030_3030 + letters * to_letter).to_be_bytes()
}

/// Whether a client's id is used: 1 to 128 characters of RFC 9110's `token`. Anything else would have to be
/// escaped in logs, headers and expressions.
pub(crate) fn is_well_formed(id: &HeaderValue) -> bool {
    let token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    (1..=MAX).contains(&id.len()) && id.as_bytes().iter().all(token)
}

/// The text of an id. All ids are ASCII.
pub(crate) fn text(id: &HeaderValue) -> &str {
    // Faster than the field's own check, which goes byte by byte.
    std::str::from_utf8(id.as_bytes()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn digits_are_what_the_library_writes(number in 0..=u64::from(u32::MAX)) {
            prop_assert_eq!(hex(number).to_vec(), format!("{number:08x}").into_bytes());
        }

        #[test]
        fn hyphens_are_where_the_library_puts_them(high: u64, low: u64) {
            let uuid = uuid::Uuid::from_u64_pair(high, low).hyphenated().to_string();
            prop_assert_eq!(hyphenated(high, low).to_vec(), uuid.into_bytes());
        }
    }

    #[test]
    fn ids_are_of_their_time_and_differ() {
        let ids = Ids::new();
        let nanos = 0x0195_2e3f_0000_i128 * 1_000_000;
        let (a, b) = (ids.next(nanos), ids.next(nanos));
        assert_ne!(a, b);
        let id = uuid::Uuid::parse_str(text(&a)).unwrap();
        assert_eq!(id.get_version_num(), 7);
        assert_eq!(id.get_variant(), uuid::Variant::RFC4122);
        assert!(text(&a).starts_with("01952e3f-0000-7"), "{}", text(&a));
    }

    #[test]
    fn what_is_no_token_is_no_id() {
        for good in ["a", "01952e3f-0000-7abc", "req.1_2~3"] {
            assert!(is_well_formed(&HeaderValue::from_static(good)), "{good}");
        }
        for bad in ["", "a b", "a;b", "a\"b"] {
            assert!(!is_well_formed(&HeaderValue::from_static(bad)), "{bad}");
        }
        let long = HeaderValue::from_str(&"a".repeat(129)).unwrap();
        assert!(!is_well_formed(&long));
        assert!(!is_well_formed(&HeaderValue::from_bytes(b"\xff").unwrap()));
    }
}
