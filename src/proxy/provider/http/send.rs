//! One attempt on the wire: an endpoint, a connection, the request, the head of the response.
//!
//! A connection that lay idle may have been closed by the other side in the moment in which it is used.
//! A request that fails so, before a byte of a response, is sent once more on a fresh connection, where
//! that cannot do harm: nothing of it was written, or its method is idempotent (RFC 9112 §9.3.1). That is
//! counted and logged, and is no attempt of a Retry. With HTTP/2 the other side says of some requests that
//! it has not looked at them: of those nothing was written, in the sense of the rule.

use std::sync::Arc;
use std::time::Duration;

use http::header::{self, HeaderMap, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Response, StatusCode, Uri};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;

use super::attempt::Attempt;
use super::compose::{Outgoing, Source, compose};
use crate::proxy::body::hold::Permission;
use crate::proxy::body::request::RequestBody;
use crate::proxy::body::source::NotReplayable;
use crate::proxy::settings::Protocol;
use crate::proxy::upstream::connect::ConnectError;
use crate::proxy::upstream::{Connection, SendError, Upstream};
use crate::telemetry::events;

/// A response head, and the connection that its body comes over.
#[derive(Debug)]
pub(super) struct Got {
    pub(super) response: Response<Incoming>,
    pub(super) connection: Connection,
}

/// Why there is none.
#[derive(Debug)]
pub(super) enum Lost {
    /// No connection came to be.
    Connect(ConnectError),
    /// The connection failed under the request.
    Send { error: Box<SendError>, reused: bool },
    /// The request's body was read by an earlier attempt and not kept.
    BodyGone,
}

/// What the HTTP library says of a request that got no response.
pub(super) type Failed = TrySendError<Request<RequestBody>>;

/// A request that was handed over: the head of its response.
pub(super) trait Handed: Future<Output = Result<Response<Incoming>, Failed>> + Send {}

impl<T: Future<Output = Result<Response<Incoming>, Failed>> + Send> Handed for T {}

impl Attempt<'_> {
    /// A connection for the request, which need not be at hand.
    pub(super) async fn connection(&self) -> Result<Connection, Lost> {
        let connection = self.upstream.connection(self.endpoint).await;
        connection.map_err(|error| self.unreached(error))
    }

    /// Hands `outgoing` over to `connection`.
    pub(super) fn hand_over(
        &self,
        connection: &mut Connection,
        outgoing: Outgoing,
    ) -> Result<impl Handed + use<>, Lost> {
        let request = self.request(outgoing);
        let request = request.map_err(|NotReplayable| Lost::BodyGone)?;
        self.progress.begin(request.body());
        Ok(connection.send(request))
    }

    /// Sends the request that failed over `connection` over a fresh one, where that cannot do harm.
    pub(super) async fn once_more(
        &self,
        mut connection: Connection,
        failed: Failed,
    ) -> Result<Got, Lost> {
        let mut error = connection.failed(failed);
        let reused = connection.reused();
        let unprocessed = error.ending.is_unprocessed();
        let harmless = self.repeatable.idempotent || unprocessed;
        let progress = &self.progress;
        let again = if !reused || (error.read && !unprocessed) {
            None
        } else if let Some(unsent) = error.unsent.take() {
            Some(unsent)
        } else if harmless && progress.broken().is_none() && progress.replayable() {
            let outgoing = compose(self.params, &self.dispatch, self.exchange, self.span);
            let request = self.request(outgoing).ok();
            request.inspect(|request| progress.begin(request.body()))
        } else {
            None
        };
        let Some(request) = again else {
            return Err(Lost::Send { error: Box::new(error), reused });
        };
        drop((connection, error));
        self.report_resend();
        let fresh = self.upstream.fresh(self.endpoint).await;
        let mut connection = fresh.map_err(|error| self.unreached(error))?;
        match connection.send(request).await {
            Ok(response) => Ok(Got { response, connection }),
            Err(failed) => {
                let error = Box::new(connection.failed(failed));
                Err(Lost::Send { error, reused: false })
            }
        }
    }

    fn request(&self, outgoing: Outgoing) -> Result<Request<RequestBody>, NotReplayable> {
        let timeout = self.exchange.site.runtime.limits.body_timeout;
        let passes = outgoing.passes;
        let mut request = request(outgoing, self.endpoint, self.upstream, timeout)?;
        if self.upstream.settings.protocol == Protocol::Http1 {
            self.hear_interim(&mut request, passes);
        }
        Ok(request)
    }

    /// Has the upstream's interim answers do what they do: a 100 that the body waits for lets it go, and any
    /// other passes to the client where `passes`.
    fn hear_interim(&self, request: &mut Request<RequestBody>, passes: bool) {
        let permission = request.body().permission().cloned();
        if permission.is_none() && !passes {
            return;
        }
        let interim = self.exchange.interim.clone();
        let route = Arc::clone(&self.exchange.route);
        hyper::ext::on_informational(request, move |answer| match &permission {
            Some(permission) if answer.status() == StatusCode::CONTINUE => permission.give(),
            _ if passes => interim.pass(&route, answer.status(), answer.headers()),
            _ => {}
        });
    }

    /// The endpoint gave no connection: the next attempt passes it over.
    fn unreached(&self, error: ConnectError) -> Lost {
        self.exchange.avoid(self.params.upstream, self.endpoint);
        Lost::Connect(error)
    }

    fn report_resend(&self) {
        let Self { upstream, exchange, endpoint, .. } = self;
        upstream.metrics.stale_resend();
        let authority = upstream.authority(*endpoint);
        events::resent(exchange.id(), &exchange.route.name, &upstream.settings.name, authority);
    }
}

/// The request to an endpoint of `upstream`. The client's body may stall for at most `timeout`.
fn request(
    outgoing: Outgoing,
    endpoint: usize,
    upstream: &Upstream,
    timeout: Duration,
) -> Result<Request<RequestBody>, NotReplayable> {
    let Outgoing { method, mut uri, mut headers, body, upgrade, expects, trailers, passes: _ } =
        outgoing;
    let multiplexed = upstream.settings.protocol == Protocol::Http2;
    if !headers.contains_key(header::HOST)
        && let Ok(host) = HeaderValue::from_str(upstream.authority(endpoint))
    {
        headers.insert(header::HOST, host);
    }
    // The library gives no word of an interim answer with HTTP/2: there the body goes at once.
    let permission = (expects && !multiplexed).then(Arc::<Permission>::default);
    if expects && multiplexed {
        headers.remove(header::EXPECT);
    }
    let body = match body {
        Source::Empty => RequestBody::Empty,
        Source::Full(bytes) => RequestBody::Full(bytes),
        Source::Trailed(bytes, trailers) => RequestBody::Trailed(bytes, trailers),
        Source::Client(source) => {
            RequestBody::stream(source.attempt(timeout)?, permission.as_ref())
        }
    };
    let unsized_body = !body.is_end_stream() && body.size_hint().exact().is_none();
    if unsized_body && !multiplexed {
        headers.remove(header::CONTENT_LENGTH);
        headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    if multiplexed {
        let to = (upstream.scheme(endpoint), &**upstream.authority(endpoint));
        uri = absolute(uri, &mut headers, to);
        if trailers {
            headers.insert(header::TE, HeaderValue::from_static("trailers"));
        }
    }
    if let Some(upgrade) = upgrade.filter(|_| !multiplexed) {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, upgrade);
    }
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    Ok(request)
}

/// The target as HTTP/2 carries it, to an endpoint: what `Host` says is its authority (RFC 9113 §8.3.1).
fn absolute(uri: Uri, headers: &mut HeaderMap, (scheme, endpoint): (Scheme, &str)) -> Uri {
    let host = headers.remove(header::HOST);
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
            let mut headers = HeaderMap::new();
            if let Some(host) = host {
                headers.insert(header::HOST, HeaderValue::from_static(host));
            }
            let to = (Scheme::HTTP, "10.0.0.1:80");
            let uri = absolute(Uri::from_static(target), &mut headers, to);
            assert!(headers.is_empty());
            uri.to_string()
        };
        assert_eq!(told("/a%2Fb?q=%20", Some("T.test:81")), "http://T.test:81/a%2Fb?q=%20");
        assert_eq!(told("/", None), "http://10.0.0.1:80/");
        assert_eq!(told("/", Some("")), "http://10.0.0.1:80/");
    }
}
