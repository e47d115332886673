//! What a path means, and which paths are refused.
//!
//! The bytes are sent upstream as they came, but routes match on their meaning to the usual servers: an escape of a
//! character without a function in paths is that character, and the parameters of a segment (`;…`) are not part of its
//! name. So the route for `/admin` also gets `/%61dmin`, `/admin;a=b` and `/;/admin`. A path that servers read in
//! different ways is refused, whoever wrote it: one with a dot segment, between any characters that some server reads
//! as a slash (`/`, `\`, `%2f`, `%5c`), and one with `%00`. Repeated slashes and encoded ones pass unchanged unless
//! `paths:` says otherwise, because refusing them breaks real applications.

use std::borrow::Cow;

use super::query::{self, hex_pair};
use super::target::TargetError;
use crate::proxy::settings::Paths;

/// Iterates over a path's characters. An escape is one character.
struct Units<'a>(&'a str);

/// A character of a path.
#[derive(Clone, Copy)]
struct Unit {
    /// Its byte, decoded.
    byte: u8,
    escaped: bool,
}

/// Iterates over the characters of a path's meaning.
struct Meaning<'a> {
    rest: Units<'a>,
    merges: bool,
    /// Whether the last character was a slash.
    opened: bool,
}

/// Checks `path`, and returns its meaning: the form on which routes match.
pub(crate) fn meaning(path: &str, paths: Paths) -> Result<Cow<'_, str>, TargetError> {
    let plain = !path.bytes().any(|byte| matches!(byte, b'.' | b'%' | b';' | b'\\'));
    if plain && !(paths.merge_slashes && path.contains("//")) {
        return Ok(Cow::Borrowed(path));
    }
    check(path, paths)?;
    let mut meaning = String::with_capacity(path.len());
    let mut units = Meaning::of(path, paths);
    while let Some(unit) = units.next() {
        unit.write(&mut meaning);
    }
    Ok(Cow::Owned(meaning))
}

/// Checks `path` without computing its meaning.
pub(crate) fn check(path: &str, paths: Paths) -> Result<(), TargetError> {
    let (mut dots, mut named, mut parameters) = (0, false, false);
    for unit in Units(path) {
        match unit.byte {
            0 => return Err(TargetError::Nul),
            b'/' | b'\\' => {
                let plain = unit.byte == b'/' && !unit.escaped;
                if paths.refuse_encoded_slashes && !plain {
                    return Err(TargetError::EncodedSlash);
                }
                check_segment(dots, named)?;
                (dots, named, parameters) = (0, false, false);
            }
            b';' => {
                if paths.refuse_parameters && !unit.escaped {
                    return Err(TargetError::Parameters);
                }
                // Also if it is escaped: some servers decode before they look for parameters.
                parameters = true;
            }
            // With parameters it is still a dot segment: servers remove them first.
            _ if parameters => {}
            b'.' => dots += 1,
            _ => named = true,
        }
    }
    check_segment(dots, named)
}

const fn check_segment(dots: usize, named: bool) -> Result<(), TargetError> {
    if !named && matches!(dots, 1 | 2) { Err(TargetError::DotSegment) } else { Ok(()) }
}

/// What follows `prefix` in `path`, byte for byte, including the parameters of the prefix's last segment. `prefix` is a
/// meaning. `None` if the path's meaning does not begin with it.
pub(crate) fn strip_prefix<'a>(path: &'a str, prefix: &str, paths: Paths) -> Option<&'a str> {
    let mut units = Meaning::of(path, paths);
    let mut wanted = prefix.as_bytes();
    let mut written = String::new();
    while !wanted.is_empty() {
        written.clear();
        units.next()?.write(&mut written);
        wanted = wanted.strip_prefix(written.as_bytes())?;
    }
    Some(units.rest.0)
}

impl Iterator for Units<'_> {
    type Item = Unit;

    fn next(&mut self) -> Option<Unit> {
        let (first, rest) = self.0.as_bytes().split_first()?;
        let code = hex_pair(rest).filter(|_| *first == b'%');
        // Paths are ASCII, so this cuts no character.
        self.0 = self.0.get(if code.is_some() { 3 } else { 1 }..).unwrap_or_default();
        Some(Unit { byte: code.unwrap_or(*first), escaped: code.is_some() })
    }
}

impl Unit {
    fn is_slash(self) -> bool {
        self.byte == b'/' && !self.escaped
    }

    /// Writes it in the form on which routes match.
    fn write(self, out: &mut String) {
        let structural = matches!(self.byte, b'%' | b'/' | b'\\' | b';' | b'?' | b'#');
        if self.is_slash() || self.byte.is_ascii_graphic() && !structural {
            out.push(char::from(self.byte));
        } else {
            query::escape(self.byte, out);
        }
    }
}

impl<'a> Meaning<'a> {
    const fn of(path: &'a str, paths: Paths) -> Self {
        Self { rest: Units(path), merges: paths.merge_slashes, opened: false }
    }

    fn next(&mut self) -> Option<Unit> {
        loop {
            let unit = self.rest.next()?;
            if unit.byte == b';' && !unit.escaped {
                self.skip_parameters();
            } else if !(unit.is_slash() && self.opened && self.merges) {
                self.opened = unit.is_slash();
                return Some(unit);
            }
        }
    }

    /// Skips everything up to the next slash. If the segment has only parameters, skips that slash too: such a segment
    /// does not count.
    fn skip_parameters(&mut self) {
        let path = self.rest.0;
        let end = path.find('/').map_or(path.len(), |slash| slash + usize::from(self.opened));
        self.rest.0 = path.get(end..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests;
