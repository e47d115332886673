//! `execution.id`: the request's own `x-request-id` where that is well-formed, else a new `UUIDv7`.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use uuid::Builder;

/// The field that carries the id, both ways.
pub(crate) static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// How long an id that a client sends may be.
const MAX: usize = 128;

/// Makes ids. One a worker: it is neither shared nor asks the system for randomness per request.
#[derive(Debug)]
pub(crate) struct Ids {
    random: Mutex<SmallRng>,
}

impl Ids {
    /// Seeded by the system.
    pub(crate) fn new() -> Self {
        Self { random: Mutex::new(SmallRng::from_rng(&mut rand::rng())) }
    }

    /// Random bytes: for ids of traces and spans, which must differ and need not be secret.
    pub(crate) fn random<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.random.lock().unwrap_or_else(PoisonError::into_inner).fill_bytes(&mut bytes);
        bytes
    }

    /// A `UUIDv7` (RFC 9562 §5.7) for the wall time `nanos` since the Unix epoch.
    pub(crate) fn next(&self, nanos: i128) -> HeaderValue {
        let mut bytes = [0; 10];
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        random.fill_bytes(&mut bytes);
        drop(random);
        let millis = u64::try_from(nanos).unwrap_or(0) / 1_000_000;
        let id = Builder::from_unix_timestamp_millis(millis, &bytes).into_uuid();
        let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
        id.hyphenated().encode_lower(&mut text);
        // One allocation: a copied slice makes a second one when it is first cloned.
        HeaderValue::from_maybe_shared(Bytes::from_owner(text))
            .unwrap_or(HeaderValue::from_static("unknown"))
    }
}

/// Whether an id that a client sends is used: 1 to 128 characters of RFC 9110's `token`. Anything else
/// would have to be escaped in logs, headers and expressions.
pub(crate) fn is_well_formed(id: &HeaderValue) -> bool {
    let token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    (1..=MAX).contains(&id.len()) && id.as_bytes().iter().all(token)
}

/// The text of an id. Ids are ASCII, both made and taken.
pub(crate) fn text(id: &HeaderValue) -> &str {
    id.to_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_of_their_time_and_differ() {
        let ids = Ids::new();
        let nanos = 0x0195_2e3f_0000_i128 * 1_000_000;
        let (a, b) = (ids.next(nanos), ids.next(nanos));
        assert_ne!(a, b);
        let id = uuid::Uuid::parse_str(text(&a)).unwrap();
        assert_eq!(id.get_version_num(), 7);
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
