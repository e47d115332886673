//! Converts the scalars of a configuration from text to types whose values are always valid. An error
//! says what was found and what to write.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::language::temporal::{Span, meant_duration};
use crate::proxy::settings::Endpoint;

const UNITS: [(&str, usize); 4] = [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

/// `text` as `parse` converts it, unless it is outside of the bounds (inclusive).
pub(super) fn within<T: PartialOrd>(
    text: &str,
    (least, most): (&str, &str),
    parse: fn(&str) -> Result<T, String>,
) -> Result<T, String> {
    let value = parse(text)?;
    if value < parse(least)? || value > parse(most)? {
        return Err(format!("`{text}` is out of range; wanted: from `{least}` to `{most}`"));
    }
    Ok(value)
}

/// An ISO 8601 duration that is not negative.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let Some(span) = Span::parse(text) else {
        let write = meant_duration(text).map_or_else(
            || "write for example `PT0.25S`, `PT30S` or `PT5M`".to_owned(),
            |meant| format!("write `{meant}`"),
        );
        return Err(format!("`{text}` is not an ISO 8601 duration; {write}"));
    };
    if span < Span::ZERO {
        return Err(format!("`{text}` is negative; a duration here is zero or more"));
    }
    Ok(span.to_duration())
}

/// A number of bytes: `512B`, `64KiB`, `1MiB`, `2GiB`.
pub(super) fn size(text: &str) -> Result<usize, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits).unwrap_or(("", text));
    if number.is_empty() {
        return Err(format!("`{text}` is not a size; write for example `64KiB`"));
    }
    if unit.is_empty() {
        return Err(format!("`{text}` has no unit; write `{text}B` or `{text}KiB`"));
    }
    let Some((_, factor)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(format!("`{text}` has the unit `{unit}`; wanted: B, KiB, MiB or GiB"));
    };
    let bytes = number.parse::<usize>().ok().and_then(|n| n.checked_mul(*factor));
    bytes.ok_or_else(|| format!("`{text}` is more than this machine can count"))
}

/// `127.0.0.1:8080` or `[::1]:8080`. Names are not looked up for listening.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        let hint = match text.rsplit_once(':') {
            Some(("localhost", port)) => format!("`127.0.0.1:{port}`"),
            Some(("" | "*", port)) => format!("`0.0.0.0:{port}`"),
            _ => "for example `127.0.0.1:8080` or `[::1]:8080`".into(),
        };
        format!("`{text}` is not an address with a port; write {hint}")
    })
}

/// The longest path that a Unix socket's address has room for.
const LONGEST_SOCKET: usize = 107;

/// `unix:/path`.
fn socket(text: &str, path: &str) -> Result<Endpoint, String> {
    if !path.starts_with('/') || path.ends_with('/') || path.contains('\0') {
        return Err(format!("`{text}` names no file; write for example `unix:/run/app.sock`"));
    }
    if path.len() > LONGEST_SOCKET {
        return Err(format!(
            "`{text}` is longer than the {LONGEST_SOCKET} bytes that a socket's path may have"
        ));
    }
    Ok(Endpoint {
        host: "localhost".into(),
        port: 0,
        authority: text.into(),
        socket: Some(Arc::from(Path::new(path))),
        weight: 1,
        tls: None,
    })
}

/// `http://host:port`, `https://host:port` or `unix:/path`, and whether it is the second. The default port is 80 or 443.
pub(super) fn endpoint(text: &str) -> Result<(Endpoint, bool), String> {
    if let Some(path) = text.strip_prefix("unix:") {
        return Ok((socket(text, path)?, false));
    }
    let refuse = |problem: &str| {
        Err(format!("`{text}` {problem}; write for example `http://127.0.0.1:3000`"))
    };
    let Some((scheme, rest)) = text.split_once("://") else {
        return refuse("is not a URL");
    };
    let secure = scheme.eq_ignore_ascii_case("https");
    if !secure && !scheme.eq_ignore_ascii_case("http") {
        return refuse(&format!("has the scheme `{scheme}`"));
    }
    let (authority, tail) = match rest.find(['/', '?', '#']) {
        Some(at) => rest.split_at_checked(at).unwrap_or((rest, "")),
        None => (rest, ""),
    };
    if !matches!(tail, "" | "/") {
        return refuse(
            "names a path; an endpoint is a host and a port, and a route's call has the path",
        );
    }
    if authority.contains('@') {
        return refuse("holds credentials; set the `authorization` header in the call");
    }
    let (host, port) = match host_and_port(authority, if secure { 443 } else { 80 }) {
        Ok(parts) => parts,
        Err(problem) => return refuse(problem),
    };
    let authority =
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let (host, authority) = (host.into(), authority.into());
    Ok((Endpoint { host, port, authority, socket: None, weight: 1, tls: None }, secure))
}

/// `redis://host:port/database` or `rediss://…`: host, port, database, and whether it is the latter.
pub(super) fn redis(text: &str) -> Result<(String, u16, u16, bool), String> {
    let refuse = |problem: &str| {
        Err(format!("`{text}` {problem}; write for example `redis://127.0.0.1:6379`"))
    };
    let Some((scheme, rest)) = text.split_once("://") else {
        return refuse("is not a URL");
    };
    let secure = scheme.eq_ignore_ascii_case("rediss") || scheme.eq_ignore_ascii_case("valkeys");
    let clear = scheme.eq_ignore_ascii_case("redis") || scheme.eq_ignore_ascii_case("valkey");
    if !secure && !clear {
        return refuse(&format!("has the scheme `{scheme}`"));
    }
    if rest.contains('@') {
        // Not shown: it may hold a password.
        return Err("the URL holds credentials; write them as `user` and `password`".into());
    }
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let database = if path.is_empty() { Some(0) } else { path.parse::<u16>().ok() };
    let Some(database) = database else {
        return refuse("has a path that is no number of a database");
    };
    match host_and_port(authority, 6379) {
        Ok((host, port)) => Ok((host, port, database, secure)),
        Err(problem) => refuse(problem),
    }
}

/// The URL of a span collector. Without a path it gets the one that OTLP/HTTP uses for traces.
pub(super) fn collector(text: &str) -> Result<String, String> {
    let example = "write for example `http://127.0.0.1:4318`";
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err(format!("`{text}` is not a URL; {example}"));
    };
    if !scheme.eq_ignore_ascii_case("http") {
        return Err(format!(
            "`{text}`: spans are sent in clear text, to a collector beside the proxy; {example}"
        ));
    }
    let (authority, path) = match rest.find('/') {
        Some(at) => rest.split_at_checked(at).unwrap_or((rest, "")),
        None => (rest, ""),
    };
    let path = if matches!(path, "" | "/") { "/v1/traces" } else { path };
    if authority.contains('@') || path.contains(['?', '#']) || path.parse::<http::Uri>().is_err() {
        return Err(format!("`{text}` holds more than a host, a port and a path; {example}"));
    }
    let (host, port) =
        host_and_port(authority, 80).map_err(|problem| format!("`{text}` {problem}; {example}"))?;
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    Ok(format!("http://{host}:{port}{path}"))
}

fn host_and_port(authority: &str, usual: u16) -> Result<(String, u16), &'static str> {
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let Some((host, port)) = rest.split_once(']') else {
            return Err("has a bracket that does not close");
        };
        let Ok(IpAddr::V6(_)) = host.parse() else {
            return Err("has no IPv6 address in its brackets");
        };
        (host, port)
    } else {
        let at = authority.find(':').unwrap_or(authority.len());
        let (host, port) = authority.split_at_checked(at).unwrap_or((authority, ""));
        let name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
        if host.is_empty() || !host.bytes().all(name) {
            return Err("has no well-formed host");
        }
        (host, port)
    };
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => usual,
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => {
            digits.parse().ok().filter(|port| *port != 0).ok_or("has no port from 1 to 65535")?
        }
        _ => return Err("has no port from 1 to 65535"),
    };
    Ok((host.to_ascii_lowercase(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_say_their_unit() {
        for (text, wanted) in [("0B", 0), ("512B", 512), ("64KiB", 65_536), ("1MiB", 1 << 20)] {
            assert_eq!(size(text), Ok(wanted));
        }
        for (text, message) in [
            ("64", "`64` has no unit; write `64B` or `64KiB`"),
            ("64KB", "`64KB` has the unit `KB`; wanted: B, KiB, MiB or GiB"),
            ("64 KiB", "`64 KiB` has the unit ` KiB`; wanted: B, KiB, MiB or GiB"),
            ("", "`` is not a size; write for example `64KiB`"),
            ("-1B", "`-1B` is not a size; write for example `64KiB`"),
            (
                "99999999999999999999GiB",
                "`99999999999999999999GiB` is more than this machine can count",
            ),
            (
                "18446744073709551615KiB",
                "`18446744073709551615KiB` is more than this machine can count",
            ),
        ] {
            assert_eq!(size(text), Err(message.into()));
        }
    }

    #[test]
    fn endpoints_are_hosts_with_ports() {
        for (text, host, authority) in [
            ("http://127.0.0.1:3000", "127.0.0.1", "127.0.0.1:3000"),
            ("http://Billing.svc/", "billing.svc", "billing.svc:80"),
            ("HTTP://[::1]:9", "::1", "[::1]:9"),
            ("http://[::1]", "::1", "[::1]:80"),
            ("https://a", "a", "a:443"),
            ("HTTPS://[::1]:9", "::1", "[::1]:9"),
        ] {
            let (endpoint, secure) = endpoint(text).unwrap();
            assert_eq!((&*endpoint.host, &*endpoint.authority), (host, authority));
            assert_eq!(secure, text.to_lowercase().starts_with("https"));
        }
        for bad in [
            "billing:3000",
            "ftp://a",
            "http://",
            "http://:80",
            "http://a:0",
            "http://a:65536",
            "http://a:+1",
            "http://a:",
            "http://a/b",
            "http://a?b",
            "http://u:p@a",
            "http://[::1",
            "http://[a]",
            "http://[127.0.0.1]",
            "http://[::1]x",
            "http://a b",
            "http://a:1:2",
        ] {
            assert!(endpoint(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn collectors_are_urls_in_clear_text() {
        for (text, wanted) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://otel.svc:4318/", "http://otel.svc:4318/v1/traces"),
            ("http://[::1]:4318/custom/path", "http://[::1]:4318/custom/path"),
            ("HTTP://otel", "http://otel:80/v1/traces"),
        ] {
            assert_eq!(collector(text).as_deref(), Ok(wanted));
        }
        for bad in [
            "127.0.0.1:4318",
            "https://a",
            "http://u:p@a",
            "http://a/b?c",
            "http://",
            "http://a/ b",
        ] {
            assert!(collector(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn addresses_have_ports() {
        assert!(address("127.0.0.1:0").is_ok() && address("[::]:80").is_ok());
        assert_eq!(
            address(":8080"),
            Err("`:8080` is not an address with a port; write `0.0.0.0:8080`".into())
        );
        assert_eq!(
            address("localhost:1"),
            Err("`localhost:1` is not an address with a port; write `127.0.0.1:1`".into())
        );
        assert!(address("127.0.0.1").is_err());
    }
}
