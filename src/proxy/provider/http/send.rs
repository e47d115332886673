//! One attempt on the wire: an endpoint, a connection, the request, the head of the response.
//!
//! A connection that lay idle may have been closed by the other side in the moment in which it is used.
//! A request that fails so, before a byte of a response, is sent once more on a fresh connection, where
//! that cannot do harm: nothing of it was written, or its method is idempotent (RFC 9112 §9.3.1). That is
//! counted and logged, and is no attempt of a Retry.

use std::sync::Arc;

use http::header::{self, HeaderValue};
use http::{Request, Response};
use http_body::Body as _;
use hyper::body::Incoming;

use super::compose::{Outgoing, Source};
use crate::proxy::body::request::{Progress, RequestBody};
use crate::proxy::body::source::NotReplayable;
use crate::proxy::request::Exchange;
use crate::proxy::upstream::connect::ConnectError;
use crate::proxy::upstream::{Connection, SendError, Upstream};
use crate::telemetry::events;

/// A response head, and the connection that its body comes over.
#[derive(Debug)]
pub(super) struct Got {
    pub(super) response: Response<Incoming>,
    pub(super) connection: Connection,
    pub(super) endpoint: usize,
}

/// Why there is none.
#[derive(Debug)]
pub(super) enum Lost {
    /// No connection came to be.
    Connect(ConnectError, usize),
    /// The connection failed under the request.
    Send { error: Box<SendError>, endpoint: usize, reused: bool },
    /// The request's body was read by an earlier attempt and not kept.
    BodyGone(usize),
}

/// Sends `outgoing` to the upstream at `position`; `compose` makes it once more.
pub(super) async fn send(
    exchange: &Exchange,
    position: usize,
    upstream: &Arc<Upstream>,
    outgoing: Outgoing,
    compose: impl Fn() -> Outgoing,
    progress: &Progress,
) -> Result<Got, Lost> {
    let endpoint = upstream.pick(exchange.avoided(position));
    let connect = async || {
        let connected = upstream.connect(endpoint).await;
        connected.map_err(|error| {
            exchange.avoid(position, endpoint);
            Lost::Connect(error, endpoint)
        })
    };
    let mut connection = match upstream.idle(endpoint).await {
        Some(connection) => connection,
        None => connect().await?,
    };
    let reused = connection.reused();
    let harmless = outgoing.method.is_idempotent();
    let request = request(outgoing, endpoint, upstream);
    let request = request.map_err(|NotReplayable| Lost::BodyGone(endpoint))?;
    progress.begin(request.body());
    let mut error = match connection.send(request).await {
        Ok(response) => {
            return Ok(Got { response, connection, endpoint });
        }
        Err(error) => error,
    };
    let again = if !reused || error.read {
        None
    } else if let Some(unsent) = error.unsent.take() {
        Some(unsent)
    } else if harmless && progress.broken().is_none() && progress.replayable() {
        let request = self::request(compose(), endpoint, upstream).ok();
        request.inspect(|request| progress.begin(request.body()))
    } else {
        None
    };
    let Some(request) = again else {
        return Err(Lost::Send { error: Box::new(error), endpoint, reused });
    };
    drop((connection, error));
    report_resend(exchange, upstream, endpoint);
    let mut connection = connect().await?;
    match connection.send(request).await {
        Ok(response) => Ok(Got { response, connection, endpoint }),
        Err(error) => Err(Lost::Send { error: Box::new(error), endpoint, reused: false }),
    }
}

/// The request to an endpoint of `upstream`.
fn request(
    outgoing: Outgoing,
    endpoint: usize,
    upstream: &Upstream,
) -> Result<Request<RequestBody>, NotReplayable> {
    let Outgoing { method, uri, mut headers, body } = outgoing;
    if !headers.contains_key(header::HOST)
        && let Ok(host) = HeaderValue::from_str(upstream.authority(endpoint))
    {
        headers.insert(header::HOST, host);
    }
    let body = match body {
        Source::Empty => RequestBody::Empty,
        Source::Full(bytes) => RequestBody::Full(bytes),
        Source::Client(source) => {
            let attempt = source.attempt(upstream.settings.idle_timeout)?;
            if attempt.size_hint().exact().is_none() {
                let chunked = HeaderValue::from_static("chunked");
                headers.insert(header::TRANSFER_ENCODING, chunked);
            }
            RequestBody::Stream(attempt)
        }
    };
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    Ok(request)
}

fn report_resend(exchange: &Exchange, upstream: &Upstream, endpoint: usize) {
    upstream.metrics.stale_resend();
    let authority = upstream.authority(endpoint);
    events::resent(exchange.id(), &exchange.route.name, &upstream.settings.name, authority);
}
