//! Checks the request target and the authority before anything is matched on them.
//!
//! The bytes are sent upstream as they came, but routes match on their meaning: a letter is a letter, escaped
//! or not (RFC 3986 §6.2.2), so the route for `/admin` also gets `/%61dmin`. A path that an upstream might read
//! as another path is refused: one with a dot segment, plain or percent-encoded (`/pub/%2e%2e/admin`), and one
//! with `%00`. All other escapes pass unchanged, including `%2f`, and so do double slashes, because refusing
//! them breaks real applications.

use std::borrow::Cow;
use std::net::Ipv6Addr;

use http::uri::Scheme;
use http::{HeaderMap, Method, Uri, Version, header};

/// Why a target or an authority is refused. Always answered with 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TargetError {
    /// `.` or `..` as a segment.
    #[error("the path holds a dot segment; send the path that it stands for")]
    DotSegment,
    /// Neither a path, nor a whole URI, nor `*` (RFC 9112 §3.2).
    #[error("the target is neither a path nor a whole http URI")]
    Form,
    /// A URI of another scheme.
    #[error("the target's scheme is neither http nor https")]
    Scheme,
    /// An encoded NUL.
    #[error("the path holds %00, which no path needs")]
    Nul,
    /// No `Host` (RFC 9112 §3.2).
    #[error("the request has no Host field")]
    NoHost,
    /// More than one `Host`.
    #[error("the request has more than one Host field")]
    TwoHosts,
    /// Not `host` or `host:port`.
    #[error("the Host field or the target's authority is not `host` or `host:port`")]
    BadHost,
    /// `Host` and `:authority` differ (RFC 9113 §8.3.1).
    #[error("the Host field names another host than :authority")]
    TwoAuthorities,
    /// `user@host`.
    #[error("the target carries user information, which a request must not")]
    UserInfo,
}

/// Checks the form of the target: a path, or `*` for OPTIONS, possibly in absolute form.
pub(crate) fn check_form(uri: &Uri, method: &Method) -> Result<(), TargetError> {
    if let Some(scheme) = uri.scheme()
        && *scheme != Scheme::HTTP
        && *scheme != Scheme::HTTPS
    {
        return Err(TargetError::Scheme);
    }
    let path = uri.path();
    if path.starts_with('/') || path == "*" && *method == Method::OPTIONS {
        return Ok(());
    }
    Err(TargetError::Form)
}

/// Checks the path, and returns it in normal form, on which routes match.
pub(crate) fn check_path(path: &str) -> Result<Cow<'_, str>, TargetError> {
    if !path.bytes().any(|byte| byte == b'.' || byte == b'%') {
        return Ok(Cow::Borrowed(path));
    }
    if path.contains("%00") {
        return Err(TargetError::Nul);
    }
    // A parameter (`..;x`) does not make a segment safe: some servers drop it before they resolve dots.
    let stem = |segment: &str| is_dots(segment.split(';').next().unwrap_or_default());
    if path.split('/').any(stem) {
        return Err(TargetError::DotSegment);
    }
    Ok(normal(path))
}

/// The path in normal form (RFC 3986 §6.2.2): escapes of unreserved characters are decoded, and all other
/// escapes are in upper case.
pub(crate) fn normal(path: &str) -> Cow<'_, str> {
    if !path.contains('%') {
        return Cow::Borrowed(path);
    }
    let mut normal = String::with_capacity(path.len());
    let mut rest = path;
    while let Some((unit, after)) = unit(rest) {
        match unit {
            Unit::Char(plain) => normal.push(plain),
            Unit::Escape(escape) => normal.push_str(&escape.to_ascii_uppercase()),
        }
        rest = after;
    }
    Cow::Owned(normal)
}

/// The part of `path` after `prefix`, byte for byte. `prefix` must be in normal form, `path` need not be.
/// `None` if the path does not begin with the prefix.
pub(crate) fn strip_prefix<'a>(path: &'a str, prefix: &str) -> Option<&'a str> {
    let (mut path, mut prefix) = (path, prefix);
    while !prefix.is_empty() {
        let (unit, after) = unit(path)?;
        prefix = match unit {
            Unit::Char(plain) => prefix.strip_prefix(plain)?,
            Unit::Escape(escape) => prefix.strip_prefix(escape.to_ascii_uppercase().as_str())?,
        };
        path = after;
    }
    Some(path)
}

/// The smallest meaningful piece of a path.
enum Unit<'a> {
    /// A character, or an escaped unreserved one, decoded.
    Char(char),
    /// Any other escape.
    Escape(&'a str),
}

/// The first unit of a path, and the rest.
fn unit(path: &str) -> Option<(Unit<'_>, &str)> {
    let first = path.chars().next()?;
    let escape = path.split_at_checked(3).filter(|_| first == '%');
    let code = escape.and_then(|(escape, _)| {
        let digits = escape.get(1..)?;
        let hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        u8::from_str_radix(digits, 16).ok().filter(|_| hex)
    });
    if let (Some((escape, after)), Some(code)) = (escape, code) {
        let unreserved = code.is_ascii_alphanumeric() || b"-._~".contains(&code);
        let unit = if unreserved { Unit::Char(char::from(code)) } else { Unit::Escape(escape) };
        return Some((unit, after));
    }
    let (_, after) = path.split_at_checked(first.len_utf8())?;
    // A percent sign that begins no escape stands for itself, like `%25`.
    let unit = if first == '%' { Unit::Escape("%25") } else { Unit::Char(first) };
    Some((unit, after))
}

fn is_dots(segment: &str) -> bool {
    let mut rest = segment;
    let mut dots = 0;
    while !rest.is_empty() {
        let escaped = || rest.strip_prefix("%2e").or_else(|| rest.strip_prefix("%2E"));
        let Some(next) = rest.strip_prefix('.').or_else(escaped) else {
            return false;
        };
        rest = next;
        dots += 1;
    }
    dots == 1 || dots == 2
}

/// The authority of the request: from a target in absolute form, otherwise from `Host` (RFC 9112 §3.2.2: with
/// an absolute target, a proxy ignores the received Host). Empty for an HTTP/1.0 request without either.
pub(crate) fn authority<'a>(
    uri: &'a Uri,
    version: Version,
    headers: &'a HeaderMap,
) -> Result<&'a str, TargetError> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(TargetError::TwoHosts);
    }
    if let Some(authority) = uri.authority() {
        if authority.as_str().contains('@') {
            return Err(TargetError::UserInfo);
        }
        check_authority(authority.as_str())?;
        if version == Version::HTTP_2
            && host.is_some_and(|host| !same(host.as_bytes(), authority.as_str()))
        {
            return Err(TargetError::TwoAuthorities);
        }
        return Ok(authority.as_str());
    }
    let Some(host) = host else {
        let excused = version < Version::HTTP_11;
        return if excused { Ok("") } else { Err(TargetError::NoHost) };
    };
    let host = host.to_str().map_err(|_| TargetError::BadHost)?;
    check_authority(host)?;
    Ok(host)
}

fn same(host: &[u8], authority: &str) -> bool {
    host.eq_ignore_ascii_case(authority.as_bytes())
}

/// Checks that an authority is `host` or `host:port`.
pub(crate) fn check_authority(authority: &str) -> Result<(), TargetError> {
    let (host, port) = split(authority).ok_or(TargetError::BadHost)?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+;=".contains(&byte);
    let good_host = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').is_some_and(|inner| inner.parse::<Ipv6Addr>().is_ok()),
        None => !host.is_empty() && host.bytes().all(plain),
    };
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    let good_port = port.is_empty() || (digits && port.parse::<u16>().is_ok());
    if good_host && good_port { Ok(()) } else { Err(TargetError::BadHost) }
}

/// The host, with its brackets, and the port, which may be empty.
fn split(authority: &str) -> Option<(&str, &str)> {
    if authority.starts_with('[') {
        let (host, rest) = authority.split_at_checked(authority.find(']')? + 1)?;
        let port = if rest.is_empty() { "" } else { rest.strip_prefix(':')? };
        return Some((host, port));
    }
    // Authorities are short. A search made for long texts would cost more to set up.
    match authority.bytes().position(|byte| byte == b':') {
        Some(colon) => Some((authority.get(..colon)?, authority.get(colon + 1..)?)),
        None => Some((authority, "")),
    }
}

/// The host of an authority, without its port.
pub(crate) fn host(authority: &str) -> &str {
    split(authority).map_or(authority, |(host, _)| host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

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
        ] {
            assert_eq!(check_path(path), Err(TargetError::DotSegment), "{path}");
        }
    }

    #[test]
    fn other_escapes_and_dots_pass() {
        for path in
            ["/a.b/c..d/...", "/%2F/%5C/%3B/%25/%3F/%23", "//evil.test/x", "/.well-known/x", "*"]
        {
            assert_eq!(check_path(path).as_deref(), Ok(path), "{path}");
        }
        assert_eq!(check_path("/a%00b"), Err(TargetError::Nul));
    }

    #[test]
    fn an_escaped_letter_is_the_letter() {
        for (path, wanted) in [
            ("/ap%69/a%2fb", "/api/a%2Fb"),
            ("/%7Eme/%41-%5f", "/~me/A-_"),
            ("/%c3%a9", "/%C3%A9"),
            ("/100%/%4/%zz/%+1/%4%31", "/100%25/%254/%25zz/%25+1/%2541"),
            ("/%2541", "/%2541"),
        ] {
            assert_eq!(normal(path), wanted, "{path}");
        }
    }

    #[test]
    fn a_prefix_is_taken_off_and_the_rest_keeps_its_bytes() {
        assert_eq!(strip_prefix("/ap%69/a%2Fb", "/api"), Some("/a%2Fb"));
        assert_eq!(strip_prefix("/%c3%a9/%61", "/%C3%A9"), Some("/%61"));
        assert_eq!(strip_prefix("/api", "/api"), Some(""));
        assert_eq!(strip_prefix("/ap", "/api"), None);
        assert_eq!(strip_prefix("/ap%2f", "/ap/"), None);
    }

    #[test]
    fn a_target_has_one_of_three_forms() {
        let form = |target: &str, method| check_form(&target.parse().unwrap(), &method);
        assert_eq!(form("/a", Method::GET), Ok(()));
        assert_eq!(form("http://a.test", Method::GET), Ok(()));
        assert_eq!(form("https://a.test/x", Method::GET), Ok(()));
        assert_eq!(form("*", Method::OPTIONS), Ok(()));
        assert_eq!(form("*", Method::GET), Err(TargetError::Form));
        assert_eq!(form("a.test:80", Method::GET), Err(TargetError::Form));
        assert_eq!(form("ftp://a.test/x", Method::GET), Err(TargetError::Scheme));
    }

    proptest! {
        /// Normal form is stable, and a path begins with every prefix of its normal form that cuts no escape.
        #[test]
        fn normal_form_is_final(path in "/([a-z%./0-9A-F]|%[0-9a-f]{2}){0,12}") {
            let once = normal(&path).into_owned();
            prop_assert_eq!(&normal(&once), &once);
            prop_assert_eq!(strip_prefix(&path, &once), Some(""));
        }
    }

    fn of(target: &str, hosts: &[&'static str]) -> Result<String, TargetError> {
        let mut headers = HeaderMap::new();
        for host in hosts {
            headers.append(header::HOST, HeaderValue::from_static(host));
        }
        let uri = target.parse().unwrap();
        authority(&uri, Version::HTTP_11, &headers).map(ToOwned::to_owned)
    }

    #[test]
    fn one_well_formed_host_is_wanted() {
        assert_eq!(of("/", &["a.test:80"]).unwrap(), "a.test:80");
        assert_eq!(of("/", &["[::1]:80"]).unwrap(), "[::1]:80");
        assert_eq!(of("/", &[]), Err(TargetError::NoHost));
        assert_eq!(of("/", &["a", "b"]), Err(TargetError::TwoHosts));
        for bad in ["a.test, b.test", "a@b", "[::1", "a.test:99999", "a/b", "", "a:b", "[::1]x"] {
            assert_eq!(of("/", &[bad]), Err(TargetError::BadHost), "{bad:?}");
        }
    }

    #[test]
    fn the_absolute_form_overrules_the_host_field() {
        assert_eq!(of("http://a.test/x", &["b.test"]).unwrap(), "a.test");
        assert_eq!(of("http://u:p@a.test/x", &["a.test"]), Err(TargetError::UserInfo));
    }

    #[test]
    fn a_host_has_no_port() {
        assert_eq!(host("a.test:80"), "a.test");
        assert_eq!(host("[::1]:80"), "[::1]");
        assert_eq!(host("a.test"), "a.test");
    }
}
