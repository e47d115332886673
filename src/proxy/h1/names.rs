//! Names of fields as they were last written, so that a name which comes again is not read again.
//!
//! Clients and upstreams write the same few names in every message. To read one means to check and convert each of its
//! characters, to find it among the standard names, and to allocate it if it is none of them. To find it here is one
//! comparison.

use std::cell::RefCell;

use http::HeaderName;
use http::header::InvalidHeaderName;

/// How many names a thread remembers. Two that share a place take turns.
const PLACES: usize = 128;

/// The longest name that is remembered.
const LONGEST: usize = 64;

/// A name, as it was written and as it is meant.
struct Known {
    written: Box<[u8]>,
    name: HeaderName,
}

thread_local! {
    /// Empty until this thread reads a name.
    static KNOWN: RefCell<Vec<Option<Known>>> = const { RefCell::new(Vec::new()) };
}

/// Reads the name of a field.
///
/// # Errors
/// When it is not a token (RFC 9110 §5.6.2).
pub(super) fn name(written: &[u8]) -> Result<HeaderName, InvalidHeaderName> {
    KNOWN.with_borrow_mut(|known| {
        if known.is_empty() {
            known.resize_with(PLACES, || None);
        }
        let Some(place) = known.get_mut(place(written)).filter(|_| written.len() <= LONGEST) else {
            return HeaderName::from_bytes(written);
        };
        if let Some(known) = place.as_ref().filter(|known| *known.written == *written) {
            return Ok(known.name.clone());
        }
        let name = HeaderName::from_bytes(written)?;
        *place = Some(Known { written: written.into(), name: name.clone() });
        Ok(name)
    })
}

/// Where a name is remembered: by its length, and by the characters in which names of one length differ most.
fn place(written: &[u8]) -> usize {
    let at = |place: usize| usize::from(written.get(place).copied().unwrap_or_default());
    let middle = at(written.len() / 2);
    (written.len() + (at(0) + middle) * 3 + at(written.len().wrapping_sub(1))) % PLACES
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// However many names share a place.
        #[test]
        fn a_name_is_what_the_library_reads(written in prop::collection::vec("[A-Ca-c\\- é]{0,4}|Content-Type|x-[a-z]{70}", 0..200)) {
            for written in written.iter().chain(&written) {
                let read = name(written.as_bytes()).ok();
                prop_assert_eq!(read, HeaderName::from_bytes(written.as_bytes()).ok());
            }
        }
    }

    #[test]
    fn the_usual_names_have_places_of_their_own() {
        let usual = [
            "Host",
            "User-Agent",
            "Accept",
            "Accept-Encoding",
            "Content-Type",
            "Content-Length",
            "Date",
            "Server",
            "Connection",
            "Cache-Control",
            "x-request-id",
            "traceparent",
            "Authorization",
        ];
        let places: std::collections::BTreeSet<_> =
            usual.iter().map(|name| place(name.as_bytes())).collect();
        assert_eq!(places.len(), usual.len());
    }
}
