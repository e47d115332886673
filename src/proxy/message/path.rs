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
mod tests {
    use super::*;
    use proptest::prelude::*;

    const USUAL: Paths =
        Paths { merge_slashes: false, refuse_encoded_slashes: false, refuse_parameters: false };
    const STRICT: Paths = Paths { merge_slashes: true, refuse_encoded_slashes: true, ..USUAL };

    #[test]
    fn dot_segments_are_refused_however_they_are_written() {
        for path in [
            "/pub/../admin",
            "/pub/%2e%2e/admin",
            "/pub/.%2E/admin",
            "/./a",
            "/a/..",
            "/a/%2e",
            "/a/..;x=1/b",
            "/a/..%3bx=1/b",
            "/a/.;/b",
            "/;/../b",
            "/pub/..%2fadmin",
            "/x/%2e%2e%2fadmin",
            "/x%2f../admin",
            "/x%2F%2e%2E%2Fadmin",
            "/.%2fadmin",
            "/x/..\\admin",
            "/x\\../admin",
            "/x%5c..%5Cadmin",
            "/x/..%5cadmin",
            "/%2f..",
        ] {
            for paths in [USUAL, Paths { merge_slashes: true, ..USUAL }] {
                assert_eq!(meaning(path, paths), Err(TargetError::DotSegment), "{path}");
            }
        }
    }

    #[test]
    fn what_a_path_means() {
        for (path, usual, merged) in [
            ("/a.b/c..d/...", "/a.b/c..d/...", "/a.b/c..d/..."),
            ("/%2F/%5C/%3B/%25/%3F/%23", "/%2F/%5C/%3B/%25/%3F/%23", "/%2F/%5C/%3B/%25/%3F/%23"),
            ("//evil.test/x", "//evil.test/x", "/evil.test/x"),
            ("/.well-known/x", "/.well-known/x", "/.well-known/x"),
            ("*", "*", "*"),
            // An escaped letter is the letter, and an escaped colon the colon.
            ("/ap%69/a%2fb", "/api/a%2Fb", "/api/a%2Fb"),
            ("/%7Eme/%41-%5f%3a%40", "/~me/A-_:@", "/~me/A-_:@"),
            ("/%c3%a9/%20%0a", "/%C3%A9/%20%0A", "/%C3%A9/%20%0A"),
            (
                "/100%/%4/%zz/%+1/%4%31",
                "/100%25/%254/%25zz/%25+1/%2541",
                "/100%25/%254/%25zz/%25+1/%2541",
            ),
            ("/%2541", "/%2541", "/%2541"),
            ("/%22<>`{}|^[]", "/\"<>`{}|^[]", "/\"<>`{}|^[]"),
            ("/a\\b", "/a%5Cb", "/a%5Cb"),
            // Parameters are no part of a name, and a segment of them alone is none.
            ("/admin;/i.txt", "/admin/i.txt", "/admin/i.txt"),
            ("/admin;a=b;c/i.txt;d", "/admin/i.txt", "/admin/i.txt"),
            ("/;/admin/i.txt", "/admin/i.txt", "/admin/i.txt"),
            ("/a/;x/;y/b", "/a/b", "/a/b"),
            ("/a/;x", "/a/", "/a/"),
            ("/;", "/", "/"),
            ("/;//a", "//a", "/a"),
            ("/a%3bb", "/a%3Bb", "/a%3Bb"),
            ("/a//b///c//", "/a//b///c//", "/a/b/c/"),
        ] {
            assert_eq!(meaning(path, USUAL).as_deref(), Ok(usual), "{path}");
            let merges = Paths { merge_slashes: true, ..USUAL };
            assert_eq!(meaning(path, merges).as_deref(), Ok(merged), "{path}");
        }
        assert_eq!(meaning("/a%00b", USUAL), Err(TargetError::Nul));
    }

    #[test]
    fn what_else_may_be_refused() {
        for path in ["/a%2fb", "/a%2F", "/a\\b", "/a%5cb"] {
            assert_eq!(meaning(path, STRICT), Err(TargetError::EncodedSlash), "{path}");
        }
        let strict = Paths { refuse_parameters: true, ..USUAL };
        for path in ["/a;b", "/;", "/a/;/b"] {
            assert_eq!(meaning(path, strict), Err(TargetError::Parameters), "{path}");
        }
        assert_eq!(meaning("/a%3bb%2f", strict).as_deref(), Ok("/a%3Bb%2F"));
    }

    #[test]
    fn a_prefix_is_taken_off_and_the_rest_keeps_its_bytes() {
        for (path, prefix, rest) in [
            ("/ap%69/a%2Fb", "/api", Some("/a%2Fb")),
            ("/%c3%a9/%61", "/%C3%A9", Some("/%61")),
            ("/api", "/api", Some("")),
            ("/ap", "/api", None),
            ("/ap%2f", "/ap/", None),
            ("/api;v=1/x;y", "/api", Some(";v=1/x;y")),
            ("/a;p/b;q/x", "/a/b", Some(";q/x")),
            ("/;/api/x", "/api", Some("/x")),
            ("/api//x", "/api", Some("//x")),
            ("//api/x", "/api", None),
        ] {
            assert_eq!(strip_prefix(path, prefix, USUAL), rest, "{path} {prefix}");
        }
        assert_eq!(strip_prefix("//api///v1//x", "/api/v1", STRICT), Some("//x"));
    }

    fn decoded(path: &str) -> Vec<u8> {
        Units(path).map(|unit| unit.byte).collect()
    }

    /// What a path names once its slashes are merged and its dot segments are resolved.
    fn resolved(decoded: &[u8]) -> Vec<u8> {
        let mut segments: Vec<&[u8]> = Vec::new();
        let all: Vec<&[u8]> = decoded.split(|byte| *byte == b'/').collect();
        for segment in &all {
            match *segment {
                b"" | b"." => {}
                b".." => drop(segments.pop()),
                name => segments.push(name),
            }
        }
        let mut path = b"/".to_vec();
        path.extend_from_slice(&segments.join(&b'/'));
        if path.len() > 1 && matches!(all.last(), Some(&(b"" | b"." | b".."))) {
            path.push(b'/');
        }
        path
    }

    /// As NGINX reads a path for its locations: decoded, slashes merged, dots resolved. Go's and Node's routers do
    /// one or the other of it.
    fn as_nginx(path: &str) -> Vec<u8> {
        resolved(&decoded(path))
    }

    /// As servlet containers do: without parameters, and with a backslash for a slash.
    fn as_tomcat(path: &str) -> Vec<u8> {
        let mut plain = String::new();
        for (at, segment) in path.split('/').enumerate() {
            plain.push_str(if at > 0 { "/" } else { "" });
            plain.push_str(segment.split(';').next().unwrap());
        }
        let decoded: Vec<u8> = decoded(&plain);
        let slashed: Vec<u8> =
            decoded.iter().map(|byte| if *byte == b'\\' { b'/' } else { *byte }).collect();
        resolved(&slashed)
    }

    fn path() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            6 => prop::sample::select(&["/", "a", "b", ".", "..", ";", "admin"][..]).prop_map(str::to_owned),
            3 => prop::sample::select(
                &["%2f", "%2F", "%5c", "\\", "%2e", "%2E", "%3b", "%61", "%25", "%", "%4", "%zz", "%3f", "%40", "\"", "//"][..]
            ).prop_map(str::to_owned),
            1 => "[!-~&&[^?#]]",
        ];
        prop::collection::vec(piece, 0..9).prop_map(|pieces| format!("/{}", pieces.concat()))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        /// A path that is accepted is the one that the servers behind would serve: where they merge slashes, with
        /// `mergeSlashes` and without encoded ones; else where it holds neither.
        #[test]
        fn what_is_matched_is_what_is_served(path in path()) {
            let odd = path.contains("//") || path.contains('\\') || {
                let lower = path.to_ascii_lowercase();
                lower.contains("%2f") || lower.contains("%5c")
            };
            for paths in [STRICT, USUAL] {
                let Ok(meaning) = meaning(&path, paths) else { continue };
                if paths == USUAL && (odd || meaning.contains("//")) {
                    continue;
                }
                prop_assert_eq!(decoded(&meaning), as_tomcat(&path), "{}", &path);
                if !path.contains(';') {
                    prop_assert_eq!(decoded(&meaning), as_nginx(&path), "{}", &path);
                }
            }
        }

        /// Nothing that is accepted climbs out of a prefix that it is within, whatever reads it.
        #[test]
        fn what_is_within_a_prefix_stays_there(path in path()) {
            let path = format!("/admin{path}");
            let Ok(_meaning) = meaning(&path, USUAL) else { return Ok(()) };
            for served in [as_nginx(&path), as_tomcat(&path)] {
                let whole = served == b"/admin" || served.starts_with(b"/admin/");
                // `/admin;x` names a file of that name where parameters are not known.
                prop_assert!(whole || served.starts_with(b"/admin;") || served.starts_with(b"/;"), "{}", &path);
            }
        }

        /// A path's meaning means itself, and a path begins with every prefix that its meaning is beneath.
        #[test]
        fn a_meaning_is_final(path in path()) {
            for paths in [USUAL, STRICT] {
                let Ok(once) = meaning(&path, paths) else { continue };
                prop_assert_eq!(&meaning(&once, paths).unwrap(), &once);
                let ends = once.match_indices('/').map(|(at, _)| at).chain([once.len()]);
                for prefix in ends.filter_map(|end| once.get(..end)) {
                    let rest = strip_prefix(&path, prefix, paths);
                    let rest = rest.ok_or_else(|| TestCaseError::fail(path.clone()))?;
                    prop_assert!(rest.is_empty() || rest.starts_with(['/', ';']), "{} {}", &path, rest);
                }
            }
        }
    }
}
