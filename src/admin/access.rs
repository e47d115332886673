//! Who may ask. Anybody who reaches the address and, where the configuration sets a token, knows it (RFC 6750).
//!
//! An operator's browser reaches the address, too, and runs pages of strangers. So without a token a request must name the
//! address as an operator would: a stranger's page can make its own name resolve to this machine (DNS rebinding), but its
//! requests still carry that name. And a page of another origin may not change anything.

use std::net::IpAddr;

use http::header::{AUTHORIZATION, HOST, HeaderValue, ORIGIN, WWW_AUTHENTICATE};
use http::uri::Authority;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use subtle::ConstantTimeEq;

use super::{Body, text};

/// A refusal.
type Refused = Box<Response<Body>>;

/// Checks that `headers` carry `token`; if not, returns the response that asks for it. The time that the
/// comparison takes reveals only whether the lengths are equal.
pub(super) fn token(token: &str, headers: &HeaderMap) -> Result<(), Refused> {
    let given = headers.get(AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
    if given.is_some_and(|given| bool::from(given.ct_eq(token.as_bytes()))) {
        return Ok(());
    }
    let wanted = "this address wants `Authorization: Bearer TOKEN` with the token that `admin.token` names\n";
    let mut refusal = refused(StatusCode::UNAUTHORIZED, wanted);
    let challenge = HeaderValue::from_static("Bearer realm=\"mwl-proxy\"");
    refusal.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    Err(Box::new(refusal))
}

/// The credentials after the scheme, whose case does not matter (RFC 9110 §11.1).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token)
}

/// Checks that a request names this machine: a loopback address, `localhost`, or `own`, the address that is listened on.
pub(super) fn host<B>(own: IpAddr, request: &Request<B>) -> Result<(), Refused> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let one = match (hosts.next(), hosts.next()) {
        (Some(host), None) => Authority::try_from(host.as_bytes()).ok(),
        _ => None,
    };
    let named = request.uri().authority();
    let is_own = |authority: &Authority| names(authority.host(), own);
    if one.as_ref().is_some_and(is_own) && named.is_none_or(is_own) {
        return Ok(());
    }
    let wanted = "without `admin.token`, this address answers only a request whose `Host` is a loopback address, `localhost` or its own address\n";
    Err(Box::new(refused(StatusCode::MISDIRECTED_REQUEST, wanted)))
}

/// Whether `host` names this machine.
fn names(host: &str, own: IpAddr) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let inside = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let address = inside.unwrap_or(host).parse::<IpAddr>().map(|address| address.to_canonical());
    host.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(|address| address.is_loopback() || address == own.to_canonical())
}

/// Checks that no page of another origin sends a request that changes something.
pub(super) fn origin<B>(request: &Request<B>) -> Result<(), Refused> {
    if *request.method() != Method::POST {
        return Ok(());
    }
    let fields = request.headers();
    let site = fields.get("sec-fetch-site").map(HeaderValue::as_bytes);
    let host = fields.get(HOST).map(HeaderValue::as_bytes);
    let same = |origin: &HeaderValue| {
        let origin = origin.as_bytes();
        let rest = origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"));
        rest.zip(host).is_some_and(|(origin, host)| origin.eq_ignore_ascii_case(host))
    };
    if site != Some(b"cross-site") && fields.get_all(ORIGIN).iter().all(same) {
        return Ok(());
    }
    Err(Box::new(refused(StatusCode::FORBIDDEN, "a page of another origin may not send this\n")))
}

fn refused(status: StatusCode, why: &str) -> Response<Body> {
    text(status, why.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(method: Method, target: &str, fields: &[(&str, &str)]) -> Request<()> {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap()
    }

    fn status(checked: Result<(), Refused>) -> u16 {
        checked.map_or_else(|refused| refused.status().as_u16(), |()| 200)
    }

    #[test]
    fn only_names_of_this_machine_are_answered() {
        let own = "192.0.2.7".parse().unwrap();
        let status = |target: &str, fields: &[(&str, &str)]| {
            status(host(own, &asked(Method::GET, target, fields)))
        };
        for name in [
            "127.0.0.1",
            "127.8.9.1:1",
            "localhost",
            "LocalHost.:9900",
            "[::1]",
            "[::1]:9900",
            "[::ffff:127.0.0.1]",
            "192.0.2.7:9900",
        ] {
            assert_eq!(status("/config", &[("host", name)]), 200, "{name}");
        }
        for name in [
            "rebound.test",
            "127.0.0.1.rebound.test",
            "localhost.rebound.test",
            "192.0.2.8",
            "[::2]",
            "0.0.0.0",
            "a b",
            "",
        ] {
            assert_eq!(status("/config", &[("host", name)]), 421, "{name}");
        }
        assert_eq!(status("/config", &[]), 421);
        assert_eq!(status("/config", &[("host", "localhost"), ("host", "a.test")]), 421);
        assert_eq!(status("http://a.test/config", &[("host", "localhost")]), 421);
        assert_eq!(status("http://localhost/config", &[("host", "localhost")]), 200);
    }

    #[test]
    fn pages_of_another_origin_change_nothing() {
        let status = |method: Method, fields: &[(&str, &str)]| {
            let fields = [&[("host", "localhost:9900")], fields].concat();
            status(origin(&asked(method, "/reload", &fields)))
        };
        for (fields, wanted) in [
            (&[][..], 200),
            (&[("origin", "http://localhost:9900")], 200),
            (&[("origin", "https://LOCALHOST:9900"), ("sec-fetch-site", "same-origin")], 200),
            (&[("sec-fetch-site", "none")], 200),
            (&[("origin", "http://localhost")], 403),
            (&[("origin", "http://localhost:9901")], 403),
            (&[("origin", "http://a.test")], 403),
            (&[("origin", "null")], 403),
            (&[("origin", "http://localhost:9900"), ("origin", "http://a.test")], 403),
            (&[("sec-fetch-site", "cross-site")], 403),
        ] {
            assert_eq!(status(Method::POST, fields), wanted, "{fields:?}");
            assert_eq!(status(Method::GET, fields), 200, "{fields:?}");
        }
    }
}
