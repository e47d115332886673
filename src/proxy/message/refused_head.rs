//! What a refused request asked for, as far as it can be known: for the log, whose reader wants to find the client.
//!
//! The query is left out, because it may hold secrets. Whatever was not checked is shortened, and its control characters
//! are replaced.

use http::header::HOST;
use http::uri::Authority;
use http::{HeaderMap, Method};

/// How many characters of each are told.
const TOLD: usize = 256;

/// The parts of a head that are told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RefusedHead {
    pub(crate) method: Option<String>,
    pub(crate) path: Option<String>,
    pub(crate) host: Option<String>,
}

impl RefusedHead {
    /// Of a head that could be read, whose target names an `authority` if it is in absolute form.
    pub(crate) fn of(
        method: &Method,
        path: &str,
        authority: Option<&Authority>,
        fields: &HeaderMap,
    ) -> Self {
        let field = || fields.get(HOST).map(|host| told(host.as_bytes()));
        Self {
            method: Some(told(method.as_str().as_bytes())),
            path: Some(told(path.as_bytes())),
            host: authority.map(|host| told(host.as_str().as_bytes())).or_else(field),
        }
    }

    /// Of the bytes at the start of a head in HTTP/1.1 that could not be read, or is not complete.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        let mut lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let mut words = lines.next().unwrap_or_default().split(|byte| *byte == b' ');
        let method = words.next().filter(|word| !word.is_empty());
        let path = words.next().map(path).filter(|path| !path.is_empty());
        let host = lines.find_map(|line| {
            let (name, value) = line.split_at_checked(5)?;
            name.eq_ignore_ascii_case(b"host:").then(|| value.trim_ascii())
        });
        Self { method: method.map(told), path: path.map(told), host: host.map(told) }
    }
}

/// The path of a target in origin form or absolute form.
fn path(target: &[u8]) -> &[u8] {
    let end = target.iter().position(|byte| matches!(byte, b'?' | b'#'));
    let target = target.get(..end.unwrap_or(target.len())).unwrap_or_default();
    let Some(scheme) = target.windows(3).position(|part| part == b"://") else {
        return target;
    };
    let after = target.get(scheme + 3..).unwrap_or_default();
    let path = after.iter().position(|byte| *byte == b'/');
    path.and_then(|path| after.get(path..)).unwrap_or(b"/")
}

/// At most [`TOLD`] characters, without any that would move a terminal's cursor.
fn told(bytes: &[u8]) -> String {
    let graphic = |byte: &u8| if byte.is_ascii_graphic() { char::from(*byte) } else { '\u{fffd}' };
    let mut told: String = bytes.iter().take(TOLD).map(graphic).collect();
    if bytes.len() > TOLD {
        told.push('…');
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> [Option<String>; 3] {
        let RefusedHead { method, path, host } = RefusedHead::of_bytes(bytes);
        [method, path, host]
    }

    #[test]
    fn as_much_is_told_as_can_be_known() {
        let some = |text: &str| Some(text.to_owned());
        for (bytes, wanted) in [
            (
                &b"GET /a/b?token=s3 HTTP/1.1\r\nx: 1\r\nHOST:  a.test \r\n\r\n"[..],
                [some("GET"), some("/a/b"), some("a.test")],
            ),
            (b"POST http://u:s3@a.test/p?s3 HTTP/1.1", [some("POST"), some("/p"), None]),
            (b"GET http://a.test", [some("GET"), some("/"), None]),
            (
                b"GET /a\x1b[2J HTTP/1.1\nHost: \xc3\xa9",
                [some("GET"), some("/a\u{fffd}[2J"), some("\u{fffd}\u{fffd}")],
            ),
            (b"\x16\x03\x01", [some("\u{fffd}\u{fffd}\u{fffd}"), None, None]),
            (b"", [None, None, None]),
        ] {
            assert_eq!(of(bytes), wanted, "{}", bytes.escape_ascii());
        }
        let long = [b"GET /", vec![b'a'; 1000].as_slice()].concat();
        assert_eq!(of(&long)[1].as_ref().unwrap().chars().count(), TOLD + 1);
    }

    #[test]
    fn an_absolute_target_names_the_host() {
        let mut fields = HeaderMap::new();
        fields.insert(HOST, "a.test".parse().unwrap());
        let of = |authority: Option<&Authority>| {
            RefusedHead::of(&Method::GET, "/p", authority, &fields).host.unwrap()
        };
        assert_eq!(of(None), "a.test");
        assert_eq!(of(Some(&Authority::from_static("b.test:8"))), "b.test:8");
    }
}
