//! The head of a request, before it is sent in either protocol.

use std::borrow::Cow;

use http::header::{self, HeaderMap, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, Uri};

use crate::proxy::body::request::RequestBody;
use crate::proxy::message::headers;

/// Everything that is sent before a request's body. What the client's own request contains is borrowed from there.
#[derive(Debug)]
pub(crate) struct RequestHead<'a> {
    /// The method.
    pub(crate) method: Method,
    /// The target, of which the path and the query are sent.
    pub(crate) uri: Cow<'a, Uri>,
    /// The fields, without those about one connection. Without a `Host`, the endpoint's name is sent.
    pub(crate) fields: Cow<'a, HeaderMap>,
    /// Whether the endpoint's name replaces the fields' own `Host`.
    pub(crate) names_endpoint: bool,
    /// The protocols that the request offers to switch to.
    pub(crate) upgrade: Option<HeaderValue>,
    /// Whether the body waits for a 100.
    pub(crate) expects: bool,
    /// Whether the client accepts trailers.
    pub(crate) trailers: bool,
}

impl RequestHead<'_> {
    /// The target in HTTP/1.1's form (RFC 9112 §3.2.1): an addition before it, and the rest.
    pub(super) fn target(&self) -> (&'static str, &str) {
        let target = self.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        (if target.starts_with(['/', '*']) { "" } else { "/" }, target)
    }

    /// The same as an HTTP/2 request to an endpoint. HTTP/2 cannot switch to another protocol, so none is offered
    /// (RFC 9113 §8.6).
    pub(super) fn into_request(
        self,
        body: RequestBody,
        endpoint: (Scheme, &str),
    ) -> Request<RequestBody> {
        let mut fields = self.fields.into_owned();
        let mut request = Request::new(body);
        *request.method_mut() = self.method;
        let host = fields.remove(header::HOST).filter(|_| !self.names_endpoint);
        *request.uri_mut() = absolute(self.uri.into_owned(), host.as_ref(), endpoint);
        headers::strip_hop_by_hop(&mut fields);
        if self.trailers {
            fields.insert(header::TE, HeaderValue::from_static("trailers"));
        }
        *request.headers_mut() = fields;
        request
    }
}

/// The target in HTTP/2's form for an endpoint. The value of `Host` becomes the authority (RFC 9113 §8.3.1).
fn absolute(uri: Uri, host: Option<&HeaderValue>, (scheme, endpoint): (Scheme, &str)) -> Uri {
    let host = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let authority = host.or_else(|| endpoint.parse().ok());
    let mut parts = uri.into_parts();
    parts.scheme = Some(scheme);
    parts.authority = authority;
    parts.path_and_query.get_or_insert_with(|| PathAndQuery::from_static("/"));
    // All three parts are present, so this cannot fail.
    Uri::from_parts(parts).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_becomes_the_authority() {
        let told = |target: &'static str, host: Option<&'static str>| {
            let host = host.map(HeaderValue::from_static);
            let to = (Scheme::HTTP, "10.0.0.1:80");
            absolute(Uri::from_static(target), host.as_ref(), to).to_string()
        };
        assert_eq!(told("/a%2Fb?q=%20", Some("T.test:81")), "http://T.test:81/a%2Fb?q=%20");
        assert_eq!(told("/", None), "http://10.0.0.1:80/");
        assert_eq!(told("/", Some("")), "http://10.0.0.1:80/");
    }

    #[test]
    fn what_one_connection_of_http_1_means_is_not_said_to_http_2() {
        let told = [("host", "t"), ("connection", "x-a"), ("x-a", "z"), ("x", "y")];
        let told = told.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let fields = HeaderMap::from_iter(told);
        let outgoing = |names_endpoint| RequestHead {
            method: Method::POST,
            uri: Cow::Owned(Uri::from_static("/a")),
            fields: Cow::Borrowed(&fields),
            names_endpoint,
            upgrade: Some(HeaderValue::from_static("x/1")),
            expects: true,
            trailers: true,
        };
        let to = || (Scheme::HTTPS, "e:1");
        let request = outgoing(false).into_request(RequestBody::EMPTY, to());
        assert_eq!(request.uri(), "https://t/a");
        let mut sent: Vec<_> = request.headers().keys().map(http::HeaderName::as_str).collect();
        sent.sort_unstable();
        assert_eq!(sent, ["te", "x"]);
        let request = outgoing(true).into_request(RequestBody::EMPTY, to());
        assert_eq!(request.uri(), "https://e:1/a");
    }
}
