//! Targets, against a model of how servers read paths.

use mwl_proxy::proxy::settings::Paths;
use mwl_proxy::proxy::testing::{rewritten, target};

/// As configured by default.
const USUAL: Paths =
    Paths { merge_slashes: false, refuse_encoded_slashes: false, refuse_parameters: false };
/// As the README recommends in front of NGINX.
const STRICT: Paths = Paths { merge_slashes: true, refuse_encoded_slashes: true, ..USUAL };

/// Reads a target, and compares what routes match on with what servers make of it.
///
/// # Panics
/// When the target is not sent on as it came, when routes see another path than the usual servers serve, or when
/// a path leads out of a prefix that it seems to be in.
pub fn request_target(data: &[u8]) {
    for paths in [USUAL, STRICT] {
        let Some((sent, meaning)) = target(data, paths) else { continue };
        assert!(sent.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#'), "{sent}");
        if data.starts_with(b"/") {
            assert_eq!(sent.as_bytes(), data, "it is sent on as it came");
        }
        let path = sent.split('?').next().unwrap_or_default();
        if path == "*" {
            continue;
        }
        let decoded_meaning = decoded(&meaning);
        let servers = [as_nginx(path), as_tomcat(path), as_jetty(path)];
        let [nginx, tomcat, jetty] = &servers;
        if paths == STRICT || !has_odd_slashes(path) {
            assert_eq!(&decoded_meaning, tomcat, "{path}");
            assert_eq!(&decoded_meaning, jetty, "{path}");
            if !path.contains(';') {
                assert_eq!(&decoded_meaning, nginx, "{path}: NGINX");
                assert_eq!(decoded_meaning, as_go(path), "{path}: Go");
            }
        }
        climbs_out_of_nothing(path, paths);
        if paths == STRICT {
            rewrites_keep_the_rest(data, &meaning);
        }
    }
}

/// Whether servers disagree about a slash in `path`, which is allowed by default.
fn has_odd_slashes(path: &str) -> bool {
    let lower = path.to_ascii_lowercase();
    // A segment that has only parameters is no segment once they are removed.
    ["//", "\\", "%2f", "%5c", "/;"].iter().any(|odd| lower.contains(odd))
}

/// Beneath a prefix, a path that is accepted stays there, whichever server reads it.
fn climbs_out_of_nothing(path: &str, paths: Paths) {
    let within = format!("/admin{path}");
    if target(within.as_bytes(), paths).is_none() {
        return;
    }
    for served in [as_nginx(&within), as_tomcat(&within), as_jetty(&within), as_go(&within)] {
        // `/admin;x` names a file of that name for a server without parameters.
        let stays = [&b"/admin"[..], b"/;"].iter().any(|start| served.starts_with(start));
        assert!(stays, "{within} is {}", served.escape_ascii());
    }
}

/// A rewritten prefix changes nothing after it.
fn rewrites_keep_the_rest(data: &[u8], meaning: &str) {
    let Some(rest) = meaning.strip_prefix("/admin") else { return };
    if !(rest.is_empty() || rest.starts_with('/')) {
        return;
    }
    let made = rewritten(data, ("/admin", "/v2/x"), STRICT).expect("the prefix matches");
    let path = made.split('?').next().unwrap_or_default();
    let (_, meant) = target(path.as_bytes(), STRICT).expect("what is made passes the checks");
    assert_eq!(meant, format!("/v2/x{rest}"), "{made}");
}

fn hex(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// Every escape decoded, once.
fn decoded(path: &str) -> Vec<u8> {
    let bytes = path.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let code = match bytes[at..] {
            [b'%', high, low, ..] => hex(high).zip(hex(low)).map(|(high, low)| high * 16 + low),
            _ => None,
        };
        out.push(code.unwrap_or(bytes[at]));
        at += if code.is_some() { 3 } else { 1 };
    }
    out
}

/// Slashes merged and dot segments resolved.
fn resolved(decoded: &[u8]) -> Vec<u8> {
    let all: Vec<&[u8]> = decoded.split(|byte| *byte == b'/').collect();
    let mut segments: Vec<&[u8]> = Vec::new();
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

/// Without the parameters of its segments.
fn without_parameters(path: &str) -> String {
    let plain = path.split('/').map(|segment| segment.split(';').next().unwrap_or_default());
    plain.collect::<Vec<_>>().join("/")
}

/// NGINX's `location`s: decoded, then merged and resolved.
fn as_nginx(path: &str) -> Vec<u8> {
    resolved(&decoded(path))
}

/// Go's `ServeMux`: it redirects to `path.Clean` of the decoded path.
fn as_go(path: &str) -> Vec<u8> {
    as_nginx(path)
}

/// Tomcat: without parameters, decoded, a backslash is a slash, then resolved.
fn as_tomcat(path: &str) -> Vec<u8> {
    let mut decoded = decoded(&without_parameters(path));
    for byte in &mut decoded {
        if *byte == b'\\' {
            *byte = b'/';
        }
    }
    resolved(&decoded)
}

/// Jetty: without parameters, resolved, and only then decoded.
fn as_jetty(path: &str) -> Vec<u8> {
    let plain = without_parameters(path).replace("%2e", ".").replace("%2E", ".");
    let resolved = resolved(plain.as_bytes());
    decoded(&String::from_utf8_lossy(&resolved))
}
