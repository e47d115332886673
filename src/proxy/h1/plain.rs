//! Reads the fields of heads that are plain: complete, and written as nearly all are.
//!
//! It says nothing about any other head. That is read by the general parser, which tells what is rare from what is wrong.
//! So every head that is read here means the same there, which tests of both sides' heads check.

use bytes::Bytes;
use http::header::{HeaderMap, HeaderValue};

use super::fields::{HeadFields, trim};
use super::known_lines::{self, Found, KnownLines};
use super::names;
use super::spare_maps::map_for;

/// The size of a word.
const WORD: usize = 8;

/// The fields of a head.
#[derive(Debug)]
pub(crate) struct PlainFields {
    pub(crate) fields: HeaderMap,
    pub(crate) said: HeadFields,
    /// Where the head ends.
    pub(crate) end: usize,
}

/// A line, found word by word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    /// Its length, without the line feed.
    size: usize,
    /// The hash of its bytes.
    hash: u64,
}

impl Line {
    /// The line at the start of `bytes`; `None` if it has not ended.
    fn at(bytes: &[u8]) -> Option<Self> {
        let (words, rest) = bytes.as_chunks::<WORD>();
        let mut hash = 0;
        for (place, word) in words.iter().enumerate() {
            let word = u64::from_le_bytes(*word);
            if let Some(size) = feed(word) {
                return Some(Self::ending(place * WORD + size, hash, word, size));
            }
            hash = mix(hash, word);
        }
        let word = rest.iter().rev().fold(0, |word, byte| (word << 8) | u64::from(*byte));
        let size = feed(word)?;
        Some(Self::ending(words.len() * WORD + size, hash, word, size))
    }

    /// A line that ends in a word, of which it has `last` bytes.
    fn ending(size: usize, hash: u64, word: u64, last: usize) -> Self {
        let own = (1 << (8 * last)) - 1;
        Self { size, hash: mix(hash, word & own) ^ size as u64 }
    }
}

/// Where the first line feed is in a word, if there is one.
fn feed(word: u64) -> Option<usize> {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let feeds = word ^ (EACH * u64::from(b'\n'));
    // The lowest of these bits is right: those above it may be wrong.
    let found = feeds.wrapping_sub(EACH) & !feeds & (EACH << 7);
    (found != 0).then(|| found.trailing_zeros() as usize / 8)
}

fn mix(hash: u64, word: u64) -> u64 {
    let mixed = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}

/// Whether a line ends in `bytes`.
pub(crate) fn has_line(bytes: &[u8]) -> bool {
    Line::at(bytes).is_some()
}

/// The first line of `bytes`, without its end, and where the next one begins. `None` if it is incomplete, or does not end in
/// CR and LF.
pub(crate) fn first_line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let Line { size, .. } = Line::at(bytes)?;
    let line = bytes.get(..size)?.strip_suffix(b"\r")?;
    Some((line, size + 1))
}

/// The fields of the head whose first field begins at `start`, if it is plain and has at most `most` fields. The map has room
/// for some more.
pub(crate) fn plain_fields(bytes: &Bytes, start: usize, most: usize) -> Option<PlainFields> {
    let (mut fields, mut said) = (map_for(ROOM), HeadFields::default());
    let mut left = bytes.get(start..)?;
    known_lines::with(|known| {
        loop {
            let Line { size, hash } = Line::at(left)?;
            let line = left.get(..size)?.strip_suffix(b"\r")?;
            left = left.get(size + 1..)?;
            if line.is_empty() {
                return Some(());
            }
            if fields.len() >= most {
                return None;
            }
            add(bytes, (line, hash), known, (&mut fields, &mut said))?;
        }
    })?;
    said.give_one_length(&mut fields);
    Some(PlainFields { fields, said, end: bytes.len() - left.len() })
}

/// The room of a map: most messages have fewer fields, also with those that the proxy adds.
const ROOM: usize = 6;

/// Adds the field that `line`, a slice of `bytes`, means.
fn add(
    bytes: &Bytes,
    (line, hash): (&[u8], u64),
    known: &mut KnownLines,
    (fields, said): (&mut HeaderMap, &mut HeadFields),
) -> Option<()> {
    let again = match known.find(line, hash) {
        Found::Known(found) => {
            if found.about_message {
                said.hear(&found.name, &found.value).ok()?;
            }
            fields.append(found.name.clone(), found.value.clone());
            return Some(());
        }
        Found::Unknown(again) => again,
    };
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (name, value) = line.split_at_checked(colon)?;
    let name = names::name(name).ok()?;
    let value = trim(value.get(1..)?);
    let value = HeaderValue::from_maybe_shared(bytes.slice_ref(value)).ok()?;
    said.hear(&name, &value).ok()?;
    if let Some(again) = again {
        known.keep(again, line, (&name, &value), HeadFields::wants(&name));
    }
    fields.append(name, value);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A line is found where it ends, and its hash depends on its bytes alone.
        #[test]
        fn a_line_ends_at_its_line_feed(
            bytes in prop::collection::vec(prop::sample::select(b"\n\x0b\t\x8a\r a\0".to_vec()), 0..40),
            more in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let found = Line::at(&bytes);
            prop_assert_eq!(found.map(|line| line.size), end);
            if let Some(end) = end {
                let other = [&bytes[..=end], &more].concat();
                prop_assert_eq!(Line::at(&other), found);
            }
        }
    }

    #[test]
    fn lines_that_differ_have_hashes_that_differ() {
        let lines = [
            "",
            "a",
            "a\0",
            "a\0\0",
            "b",
            "abcdefg",
            "abcdefgh",
            "abcdefgh\0",
            "bbcdefgh",
            "abcdefgi",
        ];
        let hashes = lines.map(|line| Line::at(format!("{line}\n").as_bytes()).unwrap().hash);
        let all: std::collections::BTreeSet<_> = hashes.into_iter().collect();
        assert_eq!(all.len(), lines.len());
    }
}
