//! The request target and the authority, checked before anything is matched on them.
//!
//! Routes are matched on the very bytes that are sent upstream: nothing is decoded, nothing removed. So
//! a path that an upstream may read as another one must not get past: a path with a dot segment, plain
//! or percent-encoded (`/pub/%2e%2e/admin`), is refused, and so is `%00`. Every other escape passes as it
//! is, `%2f` and double slashes included: refusing those breaks real applications.

use std::net::Ipv6Addr;

use http::{HeaderMap, Uri, Version, header};

/// Why a target or an authority is refused. Always answered 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TargetError {
    /// `.` or `..` as a segment.
    #[error("the path holds a dot segment; send the path that it stands for")]
    DotSegment,
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

/// Checks the path.
pub(crate) fn check_path(path: &str) -> Result<(), TargetError> {
    if !path.bytes().any(|byte| byte == b'.' || byte == b'%') {
        return Ok(());
    }
    if path.contains("%00") {
        return Err(TargetError::Nul);
    }
    // A parameter (`..;x`) does not save a segment: some servers drop it before they resolve dots.
    let stem = |segment: &str| is_dots(segment.split(';').next().unwrap_or_default());
    if path.split('/').any(stem) {
        return Err(TargetError::DotSegment);
    }
    Ok(())
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

/// The authority that the request is for: the target's where it is in absolute form, else the `Host`
/// field's (RFC 9112 §3.2.2: a proxy ignores the received Host then). Empty for an HTTP/1.0 request
/// without one.
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

fn check_authority(authority: &str) -> Result<(), TargetError> {
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

/// The host, brackets kept, and the port, empty where there is none.
fn split(authority: &str) -> Option<(&str, &str)> {
    if authority.starts_with('[') {
        let (host, rest) = authority.split_at_checked(authority.find(']')? + 1)?;
        let port = if rest.is_empty() { "" } else { rest.strip_prefix(':')? };
        return Some((host, port));
    }
    Some(authority.split_once(':').unwrap_or((authority, "")))
}

/// The host of an authority, without its port.
pub(crate) fn host(authority: &str) -> &str {
    split(authority).map_or(authority, |(host, _)| host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

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
            ["/a.b/c..d/...", "/%2f/%5c/%3b/%25/%3f/%23", "//evil.test/x", "/.well-known/x", "*"]
        {
            assert_eq!(check_path(path), Ok(()), "{path}");
        }
        assert_eq!(check_path("/a%00b"), Err(TargetError::Nul));
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
