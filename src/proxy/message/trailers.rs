//! Trailer fields are passed on as trailers, never as header fields, and not all of them.
//!
//! A recipient may read trailers long after it acted on the headers. So a field about framing, routing,
//! authentication or handling must not be sent as a trailer (RFC 9110 §6.5.1). Such fields are dropped here:
//! the next hop would have to drop them anyway.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// The fields that must not be trailers.
static FORBIDDEN: [HeaderName; 52] = [
    // Framing, and fields about one connection.
    header::CONNECTION,
    header::CONTENT_LENGTH,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    // Routing.
    header::FORWARDED,
    header::HOST,
    header::MAX_FORWARDS,
    header::VIA,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-host"),
    HeaderName::from_static("x-forwarded-proto"),
    // Authentication.
    header::AUTHORIZATION,
    header::COOKIE,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::SET_COOKIE,
    header::WWW_AUTHENTICATE,
    // Handling of a request.
    header::ACCEPT,
    header::ACCEPT_CHARSET,
    header::ACCEPT_ENCODING,
    header::ACCEPT_LANGUAGE,
    header::EXPECT,
    HeaderName::from_static("idempotency-key"),
    header::IF_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_NONE_MATCH,
    header::IF_RANGE,
    header::IF_UNMODIFIED_SINCE,
    header::ORIGIN,
    header::PRAGMA,
    header::RANGE,
    // Handling of a response.
    header::AGE,
    header::ALLOW,
    header::CACHE_CONTROL,
    header::DATE,
    header::EXPIRES,
    header::LOCATION,
    header::RETRY_AFTER,
    header::STRICT_TRANSPORT_SECURITY,
    header::VARY,
    header::WARNING,
    // Interpretation of the content.
    header::CONTENT_DISPOSITION,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    header::CONTENT_LOCATION,
    header::CONTENT_RANGE,
    header::CONTENT_TYPE,
    header::REFRESH,
];

/// The fields that may pass; `None` if there are none.
pub(crate) fn permitted(mut trailers: HeaderMap) -> Option<HeaderMap> {
    for name in &FORBIDDEN {
        if trailers.is_empty() {
            return None;
        }
        trailers.remove(name);
    }
    (!trailers.is_empty()).then_some(trailers)
}

/// Removes from `Trailer` the names of fields that may not pass.
pub(crate) fn announce_permitted(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::TRAILER)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .filter(|name| !FORBIDDEN.contains(name))
        .collect();
    let named: Vec<&str> = named.iter().map(HeaderName::as_str).collect();
    match HeaderValue::try_from(named.join(", ")) {
        Ok(value) if !value.is_empty() => {
            headers.insert(header::TRAILER, value);
        }
        _ => {
            headers.remove(header::TRAILER);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(names: &[&'static str]) -> HeaderMap {
        let value = HeaderValue::from_static("1");
        names.iter().map(|name| (HeaderName::from_static(name), value.clone())).collect()
    }

    #[test]
    fn what_frames_routes_or_authorises_is_dropped() {
        let kept = permitted(map(&["x-sum", "content-length", "authorization", "host"])).unwrap();
        assert_eq!(kept.keys().collect::<Vec<_>>(), ["x-sum"]);
        let status = permitted(map(&["grpc-status", "grpc-message"])).unwrap();
        assert_eq!(status.len(), 2);
        assert_eq!(permitted(map(&["te", "transfer-encoding", "set-cookie"])), None);
        assert_eq!(permitted(HeaderMap::new()), None);
    }

    #[test]
    fn every_forbidden_field_is_dropped_alone_and_listed_once() {
        for (at, name) in FORBIDDEN.iter().enumerate() {
            let only = HeaderMap::from_iter([(name.clone(), HeaderValue::from_static("1"))]);
            assert_eq!(permitted(only), None, "{name}");
            assert!(!FORBIDDEN[..at].contains(name), "{name}");
        }
    }

    #[test]
    fn only_what_may_pass_is_announced() {
        let announced = |value: &'static str| {
            let value = HeaderValue::from_static(value);
            let mut headers = HeaderMap::from_iter([(header::TRAILER, value)]);
            announce_permitted(&mut headers);
            headers.get(header::TRAILER).map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(announced("X-Sum, Content-Length ,,x-b"), Some("x-sum, x-b".to_owned()));
        assert_eq!(announced("Authorization"), None);
    }
}
