//! Lines of heads that this thread has read before, so that a field which comes again is not read again.
//!
//! Most fields of a message are the same in the next one: who sends it, what it accepts, of which type it is. To read one
//! means to check each of its characters, to find its name, and to make a value of it. To find its line here is one
//! comparison. It is the idea of HTTP/2's table of fields, without an agreement with the other side.
//!
//! A line is kept when it comes for the second time, so that ids and dates take no place from others. Fields that carry
//! secrets are never kept.

use std::cell::RefCell;

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};

/// How many lines a thread keeps.
const PLACES: usize = 128;

/// The longest line that is kept.
const LONGEST: usize = 256;

/// What is never kept.
static SECRET: [HeaderName; 4] =
    [header::AUTHORIZATION, header::PROXY_AUTHORIZATION, header::COOKIE, header::SET_COOKIE];

/// The lines that one thread knows.
#[derive(Debug, Default)]
pub(super) struct KnownLines(Vec<Place>);

/// Where lines with one end of their hash are kept.
#[derive(Debug, Default)]
struct Place {
    /// The hash of the line that came last and was not known.
    last: u64,
    known: Option<Box<KnownLine>>,
}

/// A line without its end, as it was written and as it is meant.
#[derive(Debug)]
pub(super) struct KnownLine {
    written: Box<[u8]>,
    pub(super) name: HeaderName,
    pub(super) value: HeaderValue,
    /// Whether the field says something about the connection or the body.
    pub(super) about_message: bool,
}

/// What is known of a line.
#[derive(Debug)]
pub(super) enum Found<'a> {
    /// Its field.
    Known(&'a KnownLine),
    /// Nothing; and what to tell [`KnownLines::keep`] if it should be kept.
    Unknown(Option<Again>),
}

/// A line that has come before. Its hash.
#[derive(Clone, Copy, Debug)]
pub(super) struct Again(u64);

thread_local! {
    /// Empty until this thread reads a head.
    static KNOWN: RefCell<KnownLines> = const { RefCell::new(KnownLines(Vec::new())) };
}

/// Lends the lines that this thread knows.
pub(super) fn with<T>(look: impl FnOnce(&mut KnownLines) -> T) -> T {
    KNOWN.with_borrow_mut(|known| {
        if known.0.is_empty() {
            known.0.resize_with(PLACES, Place::default);
        }
        look(known)
    })
}

impl KnownLines {
    /// Looks for a line, which is given without its end, and with a hash of it.
    pub(super) fn find(&mut self, line: &[u8], hash: u64) -> Found<'_> {
        let Some(place) = self.0.get_mut(place(hash)).filter(|_| line.len() <= LONGEST) else {
            return Found::Unknown(None);
        };
        match &place.known {
            Some(known) if *known.written == *line => Found::Known(known),
            _ => {
                let before = std::mem::replace(&mut place.last, hash);
                Found::Unknown((before == hash).then_some(Again(hash)))
            }
        }
    }

    /// Keeps the field that a line means, in the place of another.
    pub(super) fn keep(
        &mut self,
        Again(hash): Again,
        line: &[u8],
        (name, value): (&HeaderName, &HeaderValue),
        about_message: bool,
    ) {
        if SECRET.contains(name) {
            return;
        }
        // With room to spare, so that its first copy need not prepare it for others.
        let mut text = Vec::with_capacity(value.len() + 1);
        text.extend_from_slice(value.as_bytes());
        let value = HeaderValue::from_maybe_shared(Bytes::from(text));
        if let (Some(place), Ok(value)) = (self.0.get_mut(place(hash)), value) {
            let (written, name) = (line.into(), name.clone());
            place.known = Some(Box::new(KnownLine { written, name, value, about_message }));
        }
    }
}

fn place(hash: u64) -> usize {
    usize::try_from(hash % PLACES as u64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(line: &[u8]) -> (HeaderName, HeaderValue) {
        let colon = line.iter().position(|byte| *byte == b':').unwrap();
        let name = HeaderName::from_bytes(&line[..colon]).unwrap();
        (name, HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).unwrap())
    }

    fn hash(line: &[u8]) -> u64 {
        line.iter().fold(7, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
    }

    /// Whether a line that comes now is known.
    fn comes(known: &mut KnownLines, line: &[u8]) -> bool {
        let (name, value) = field(line);
        match known.find(line, hash(line)) {
            Found::Known(found) => {
                assert_eq!((&found.name, &found.value), (&name, &value));
                true
            }
            Found::Unknown(again) => {
                if let Some(again) = again {
                    known.keep(again, line, (&name, &value), false);
                }
                false
            }
        }
    }

    fn empty() -> KnownLines {
        KnownLines((0..PLACES).map(|_| Place::default()).collect())
    }

    #[test]
    fn a_line_is_known_from_the_third_time_on() {
        let mut known = empty();
        for line in [&b"Host: a.test"[..], b"X-Name:value", b"accept: */*  ", b"a:"] {
            let times: Vec<bool> = (0..4).map(|_| comes(&mut known, line)).collect();
            assert_eq!(times, [false, false, true, true]);
        }
        assert!(!comes(&mut known, b"host: a.test"), "the bytes count, not what they mean");
    }

    #[test]
    fn what_comes_once_takes_no_place_from_others() {
        let mut known = empty();
        for _ in 0..2 {
            comes(&mut known, b"Host: a.test");
        }
        for number in 0..10_000 {
            assert!(!comes(&mut known, format!("x-request-id: {number:08}").as_bytes()));
        }
        assert!(comes(&mut known, b"Host: a.test"));
    }

    #[test]
    fn secrets_and_long_lines_are_not_kept() {
        let long = format!("x-long: {}", "a".repeat(LONGEST));
        for line in ["Authorization: Bearer abc", "Cookie: id=1", "set-cookie: id=1", &long] {
            let mut known = empty();
            assert!((0..5).all(|_| !comes(&mut known, line.as_bytes())), "{line}");
        }
    }
}
