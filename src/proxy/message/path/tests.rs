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
        // Parameters are not part of a name, and a segment that has only parameters does not count.
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

/// The path with merged slashes and without dot segments.
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

/// As NGINX reads a path for its locations: decoded, slashes merged, dot segments resolved.
fn as_nginx(path: &str) -> Vec<u8> {
    resolved(&decoded(path))
}

/// As servlet containers read it: without parameters, and a backslash is a slash.
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

    /// Routes match on the path that servers serve: with strict settings always, otherwise if the path has neither
    /// repeated nor encoded slashes.
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

    /// No accepted path leads out of a prefix that it begins with, whichever server reads it.
    #[test]
    fn what_is_within_a_prefix_stays_there(path in path()) {
        let path = format!("/admin{path}");
        let Ok(_meaning) = meaning(&path, USUAL) else { return Ok(()) };
        for served in [as_nginx(&path), as_tomcat(&path)] {
            let whole = served == b"/admin" || served.starts_with(b"/admin/");
            // Servers without parameters read `/admin;x` as the name of a file.
            prop_assert!(whole || served.starts_with(b"/admin;") || served.starts_with(b"/;"), "{}", &path);
        }
    }

    /// The meaning of a meaning is itself, and a path begins with every prefix of its meaning.
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
