//! An offer to switch a connection's protocol, and the upstream's choice from it (RFC 9110 §7.8).

use http::header::{self, HeaderMap, HeaderValue};

/// The protocols that a request offers to switch to: `Upgrade`, if `Connection` names it too (RFC 9110 §7.8).
/// `None` if only HTTP itself or TLS is offered: a tunnel with those would carry requests past the routes.
pub(crate) fn offered(fields: &HeaderMap) -> Option<HeaderValue> {
    if !elements(fields, &header::CONNECTION).any(|option| option.eq_ignore_ascii_case("upgrade")) {
        return None;
    }
    let known: Vec<&str> =
        elements(fields, &header::UPGRADE).filter(|name| !is_ours(name)).collect();
    if known.is_empty() {
        return None;
    }
    HeaderValue::try_from(known.join(", ")).ok()
}

/// Whether the protocol that an upstream switches to was offered.
pub(crate) fn is_offered(offered: &HeaderValue, fields: &HeaderMap) -> bool {
    let Ok(offered) = offered.to_str() else {
        return false;
    };
    let mut all = elements(fields, &header::UPGRADE);
    let known = |name: &str| offered.split(", ").any(|offer| offer.eq_ignore_ascii_case(name));
    // The layers of a switch are listed from the lowest up. All of them must have been offered.
    all.next().is_some_and(known) && all.all(known)
}

/// Whether a protocol is HTTP or carries HTTP.
fn is_ours(name: &str) -> bool {
    let (base, _version) = name.split_once('/').unwrap_or((name, ""));
    ["http", "h2", "h2c", "tls"].iter().any(|ours| base.eq_ignore_ascii_case(ours))
}

/// The elements of a list field.
fn elements<'a>(fields: &'a HeaderMap, name: &header::HeaderName) -> impl Iterator<Item = &'a str> {
    let values = fields.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|element| !element.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(all: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut fields = HeaderMap::new();
        for (name, value) in all {
            fields.append(*name, HeaderValue::from_static(value));
        }
        fields
    }

    #[test]
    fn an_upgrade_is_offered_by_two_fields_together() {
        let offer = |all: &[(&'static str, &'static str)]| offered(&fields(all));
        let websocket = Some(HeaderValue::from_static("websocket"));
        assert_eq!(offer(&[("connection", "Upgrade"), ("upgrade", "websocket")]), websocket);
        let both = [("connection", "keep-alive, upgrade"), ("upgrade", "h2c, websocket")];
        assert_eq!(offer(&both), websocket);
        assert_eq!(offer(&[("connection", "upgrade")]), None);
        assert_eq!(offer(&[("upgrade", "websocket")]), None);
        for ours in ["h2c", "HTTP/2.0", "TLS/1.0", "h2", ""] {
            assert_eq!(offer(&[("connection", "upgrade"), ("upgrade", ours)]), None, "{ours}");
        }
        let two = [("connection", "upgrade"), ("upgrade", "a/1"), ("upgrade", "b")];
        assert_eq!(offer(&two), Some(HeaderValue::from_static("a/1, b")));
    }

    #[test]
    fn only_what_was_offered_is_agreed_on() {
        let offer = HeaderValue::from_static("a/1, websocket");
        let agrees = |all: &[(&'static str, &'static str)]| is_offered(&offer, &fields(all));
        assert!(agrees(&[("upgrade", "WebSocket")]) && agrees(&[("upgrade", "a/1, websocket")]));
        assert!(!agrees(&[]) && !agrees(&[("upgrade", "a/2")]));
        assert!(!agrees(&[("upgrade", "websocket, c")]));
    }
}
