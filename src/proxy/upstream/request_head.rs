//! The head of a request, before it is sent in either protocol.

use std::borrow::Cow;
use std::sync::{Mutex, PoisonError};

use http::header::{self, HeaderMap, HeaderValue};
use http::uri::{Authority, Scheme};
use http::{Method, Request, Uri, uri};

use crate::proxy::body::request::RequestBody;
use crate::proxy::message::headers;
use crate::proxy::message::target::Target;

/// Everything that is sent before a request's body. What the client's own request contains is borrowed from there.
#[derive(Debug)]
pub(crate) struct RequestHead<'a> {
    /// The method.
    pub(crate) method: Method,
    /// The target.
    pub(crate) target: Cow<'a, Target>,
    /// The fields, without those of one connection. Without a `Host`, the endpoint's name is sent.
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
    /// The same as an HTTP/2 request to an endpoint. `None` if the library does not support the target. HTTP/2 cannot
    /// switch to another protocol, so none is offered (RFC 9113 §8.6).
    pub(super) fn into_request(
        self,
        body: RequestBody,
        endpoint: Endpoint<'_>,
    ) -> Option<Request<RequestBody>> {
        let mut fields = self.fields.into_owned();
        let mut request = Request::new(body);
        *request.method_mut() = self.method;
        let host = fields.remove(header::HOST).filter(|_| !self.names_endpoint);
        *request.uri_mut() = absolute(&self.target, host.as_ref(), endpoint)?;
        headers::strip_hop_by_hop(&mut fields);
        if self.trailers {
            fields.insert(header::TE, HeaderValue::from_static("trailers"));
        }
        *request.headers_mut() = fields;
        Some(request)
    }
}

/// Where a connection of HTTP/2 leads.
#[derive(Clone, Debug)]
pub(super) struct Endpoint<'a> {
    pub(super) scheme: Scheme,
    /// What replaces a missing `Host`.
    pub(super) host: &'a str,
    pub(super) last: &'a LastAuthority,
}

/// The authority of a connection's last request. Most requests have the same, so it is read and copied once.
#[derive(Debug, Default)]
pub(super) struct LastAuthority(Mutex<Option<Authority>>);

impl LastAuthority {
    /// The authority that `text` is, if it is one.
    fn of(&self, text: &[u8]) -> Option<Authority> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(same) = last.as_ref().filter(|last| last.as_str().as_bytes() == text) {
            return Some(same.clone());
        }
        let authority = Authority::try_from(text).ok()?;
        *last = Some(authority.clone());
        Some(authority)
    }
}

/// The target in HTTP/2's form for an endpoint. The value of `Host` becomes the authority (RFC 9113 §8.3.1).
fn absolute(target: &Target, host: Option<&HeaderValue>, endpoint: Endpoint<'_>) -> Option<Uri> {
    let Endpoint { scheme, host: own, last } = endpoint;
    let host = host.and_then(|host| last.of(host.as_bytes()));
    let mut parts = uri::Parts::default();
    parts.scheme = Some(scheme);
    parts.authority = host.or_else(|| last.of(own.as_bytes()));
    parts.path_and_query = Some(target.usual()?.clone());
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_becomes_the_authority() {
        let last = LastAuthority::default();
        let told = |target: &'static str, host: Option<&'static str>| {
            let host = host.map(HeaderValue::from_static);
            let to = Endpoint { scheme: Scheme::HTTP, host: "10.0.0.1:80", last: &last };
            let target = Target::of_text(target.to_owned()).unwrap();
            absolute(&target, host.as_ref(), to).map(|uri| uri.to_string())
        };
        let is = |uri: &str| Some(uri.to_owned());
        assert_eq!(told("/a%2Fb?q=%20", Some("T.test:81")), is("http://T.test:81/a%2Fb?q=%20"));
        for host in ["T.test:81", "t.test:81", "T.test:8", "T.test:8"] {
            assert_eq!(told("/", Some(host)), is(&format!("http://{host}/")));
        }
        assert_eq!(told("/", None), is("http://10.0.0.1:80/"));
        assert_eq!(told("/", Some("")), is("http://10.0.0.1:80/"));
        assert_eq!(told("/?q=<a>", None), None, "the library does not support it");
    }

    #[test]
    fn what_one_connection_of_http_1_means_is_not_said_to_http_2() {
        let told = [("host", "t"), ("connection", "x-a"), ("x-a", "z"), ("x", "y")];
        let told = told.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let fields = HeaderMap::from_iter(told);
        let outgoing = |names_endpoint| RequestHead {
            method: Method::POST,
            target: Cow::Owned(Target::of_text("/a".to_owned()).unwrap()),
            fields: Cow::Borrowed(&fields),
            names_endpoint,
            upgrade: Some(HeaderValue::from_static("x/1")),
            expects: true,
            trailers: true,
        };
        let last = LastAuthority::default();
        let to = || Endpoint { scheme: Scheme::HTTPS, host: "e:1", last: &last };
        let request = outgoing(false).into_request(RequestBody::EMPTY, to()).unwrap();
        assert_eq!(request.uri(), "https://t/a");
        let mut sent: Vec<_> = request.headers().keys().map(http::HeaderName::as_str).collect();
        sent.sort_unstable();
        assert_eq!(sent, ["te", "x"]);
        let request = outgoing(true).into_request(RequestBody::EMPTY, to()).unwrap();
        assert_eq!(request.uri(), "https://e:1/a");
    }
}
