//! The head of a request, before it is put on a connection of either protocol.

use std::borrow::Cow;

use http::header::{self, HeaderMap, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, Uri};

use crate::proxy::body::request::RequestBody;

/// What of a request goes before its body. What the client's own request says already is borrowed from there.
#[derive(Debug)]
pub(crate) struct Outgoing<'a> {
    /// The method.
    pub(crate) method: Method,
    /// The target, of which the path and the query are sent.
    pub(crate) uri: Cow<'a, Uri>,
    /// The fields, without those of one connection. Where there is no `Host`, the endpoint's name is sent.
    pub(crate) fields: Cow<'a, HeaderMap>,
    /// Whether the endpoint's name is sent in the place of the fields' own `Host`.
    pub(crate) names_endpoint: bool,
    /// The protocols that are offered to change to.
    pub(crate) upgrade: Option<HeaderValue>,
    /// Whether the body waits to be asked for.
    pub(crate) expects: bool,
    /// Whether its client takes trailers.
    pub(crate) trailers: bool,
}

impl Outgoing<'_> {
    /// The target as HTTP/1.1 carries it (RFC 9112 §3.2.1): what goes before it, and the rest.
    pub(super) fn target(&self) -> (&'static str, &str) {
        let target = self.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        (if target.starts_with(['/', '*']) { "" } else { "/" }, target)
    }

    /// The same as a request of HTTP/2 to an endpoint. The library gives no word of an interim answer there: a body
    /// goes at once. No protocol is offered: HTTP/2 has no other (RFC 9113 §8.6).
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
        if self.expects {
            fields.remove(header::EXPECT);
        }
        if self.trailers {
            fields.insert(header::TE, HeaderValue::from_static("trailers"));
        }
        *request.headers_mut() = fields;
        request
    }
}

/// The target as HTTP/2 carries it, to an endpoint: what `Host` says is its authority (RFC 9113 §8.3.1).
fn absolute(uri: Uri, host: Option<&HeaderValue>, (scheme, endpoint): (Scheme, &str)) -> Uri {
    let host = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let authority = host.or_else(|| endpoint.parse().ok());
    let mut parts = uri.into_parts();
    parts.scheme = Some(scheme);
    parts.authority = authority;
    parts.path_and_query.get_or_insert_with(|| PathAndQuery::from_static("/"));
    // All three parts are there, which is all that is asked of them.
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
        let told = [("host", "t"), ("expect", "100-continue"), ("x", "y")];
        let told = told.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let fields = HeaderMap::from_iter(told);
        let outgoing = |names_endpoint| Outgoing {
            method: Method::POST,
            uri: Cow::Owned(Uri::from_static("/a")),
            fields: Cow::Borrowed(&fields),
            names_endpoint,
            upgrade: Some(HeaderValue::from_static("x/1")),
            expects: true,
            trailers: true,
        };
        let to = || (Scheme::HTTPS, "e:1");
        let request = outgoing(false).into_request(RequestBody::Empty, to());
        assert_eq!(request.uri(), "https://t/a");
        let mut sent: Vec<_> = request.headers().keys().map(http::HeaderName::as_str).collect();
        sent.sort_unstable();
        assert_eq!(sent, ["te", "x"]);
        let request = outgoing(true).into_request(RequestBody::Empty, to());
        assert_eq!(request.uri(), "https://e:1/a");
    }
}
