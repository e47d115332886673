//! A connection that is lent to one request: all of it (HTTP/1.1), or one stream (HTTP/2).

use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::{HeaderMap, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http2::SendRequest;

use super::Upstream;
use super::capacity::Place;
use super::counted::{ByteCounts, CountsSnapshot};
use super::failure::{FailureKind, TransportError};
use super::h1::{self, Http1Connection, InterimSink};
use super::http2::StreamSlot;
use super::request_head::RequestHead;
use crate::proxy::body::request::RequestBody;
use crate::proxy::h1::Error;
use crate::proxy::stage::ScriptedConnection;

/// A connection for one request.
#[derive(Debug)]
pub(crate) enum Connection {
    /// It carries this request alone.
    Http1(Http1Lease),
    /// It carries other requests too.
    Http2(Box<Http2Stream>),
}

/// An HTTP/1.1 connection. Dropping it closes it; [`Http1Lease::release`] returns it to the pool.
#[derive(Debug)]
pub(crate) struct Http1Lease {
    /// The connection itself.
    pub(crate) conn: Box<Http1Connection>,
    lease: Lease,
    /// In a rehearsal, the scripted connection.
    line: Option<Arc<ScriptedConnection>>,
    reused: bool,
}

/// An HTTP/1.1 connection that nobody uses.
#[derive(Debug)]
pub(super) struct IdleConnection {
    pub(super) conn: Box<Http1Connection>,
    pub(super) endpoint: usize,
    /// The address that it leads to, if it was opened here.
    pub(super) peer: Option<IpAddr>,
    pub(super) line: Option<Arc<ScriptedConnection>>,
}

/// Which connection of which upstream is lent. When dropped, the connection counts as closed.
#[derive(Debug)]
struct Lease {
    upstream: Arc<Upstream>,
    /// Its request's place at the upstream.
    _place: Place,
    endpoint: usize,
    peer: Option<IpAddr>,
    /// False once it was returned.
    open: bool,
}

/// A stream on an HTTP/2 connection. Dropping it frees the stream for another request.
#[derive(Debug)]
pub(crate) struct Http2Stream {
    place: StreamSlot,
    counts: Arc<ByteCounts>,
    /// The byte counts when the request was handed over.
    mark: CountsSnapshot,
    sent: PendingResponse,
    reused: bool,
}

/// The future response head, once a request was handed over.
struct PendingResponse(Option<BoxFuture<'static, Result<Response<Incoming>, Http2SendError>>>);

type Http2SendError = TrySendError<Request<RequestBody>>;

/// A response whose head has arrived.
#[derive(Debug)]
pub(crate) struct UpstreamResponse {
    /// The status.
    pub(crate) status: StatusCode,
    /// The fields.
    pub(crate) fields: HeaderMap,
    /// The source of its body.
    pub(crate) body: ResponseSource,
}

/// The source of a response's body.
#[derive(Debug)]
pub(crate) enum ResponseSource {
    /// The connection is read.
    Http1(Http1Lease),
    /// One stream of a shared connection.
    Http2(Incoming, Box<Http2Stream>),
}

/// Why a request got no response.
#[derive(Debug)]
pub(crate) struct SendError {
    /// What happened.
    pub(crate) error: TransportError,
    /// The request, if it can be sent on another connection as if it had never been on this one.
    pub(crate) unsent: Option<UnsentRequest>,
    /// Whether a byte was written.
    pub(crate) wrote: bool,
    /// Whether a byte was read.
    pub(crate) read: bool,
    /// What the error says about the request.
    pub(crate) ending: FailureKind,
    /// Whether the connection was used before this request.
    pub(crate) reused: bool,
}

/// A request of which nothing was sent.
#[derive(Debug)]
pub(crate) enum UnsentRequest {
    /// For HTTP/1.1.
    Http1(Box<h1::UnsentHttp1>),
    /// For HTTP/2.
    Http2(Box<Request<RequestBody>>),
}

impl Connection {
    /// Hands a request over.
    pub(crate) fn send(&mut self, outgoing: RequestHead<'_>, body: RequestBody) {
        match self {
            Self::Http1(lease) => lease.send(&outgoing, body),
            Self::Http2(shared) => {
                let request = outgoing.into_request(body, shared.place.origin());
                shared.send(request);
            }
        }
    }

    /// Waits for the response to the request that was handed over. Heads of interim responses go to `interim`.
    pub(crate) async fn response(
        self,
        interim: InterimSink<'_>,
    ) -> Result<UpstreamResponse, Box<SendError>> {
        match self {
            Self::Http1(lease) => lease.response(interim).await,
            Self::Http2(shared) => shared.response().await,
        }
    }
}

impl Http1Lease {
    /// `parked`, lent out by `upstream`.
    pub(super) fn new(
        upstream: Arc<Upstream>,
        place: Place,
        parked: IdleConnection,
        reused: bool,
    ) -> Self {
        let IdleConnection { conn, endpoint, peer, line } = parked;
        let lease = Lease { upstream, _place: place, endpoint, peer, open: true };
        Self { conn, lease, line, reused }
    }

    fn send(&mut self, outgoing: &RequestHead<'_>, body: RequestBody) {
        self.announce();
        let Lease { upstream, endpoint, .. } = &self.lease;
        self.conn.send(outgoing, upstream.authority(*endpoint), body);
    }

    /// Hands over a request of which another connection sent nothing.
    pub(super) fn resend(&mut self, unsent: h1::UnsentHttp1) {
        self.announce();
        self.conn.resend(unsent);
    }

    fn announce(&self) {
        if let Some(line) = &self.line {
            line.announce();
        }
    }

    async fn response(
        mut self,
        interim: InterimSink<'_>,
    ) -> Result<UpstreamResponse, Box<SendError>> {
        match poll_fn(|cx| self.conn.poll_answer(cx, interim)).await {
            Ok(h1::ResponseHead { status, fields }) => {
                Ok(UpstreamResponse { status, fields, body: ResponseSource::Http1(self) })
            }
            Err(error) => Err(Box::new(self.failed(error))),
        }
    }

    fn failed(mut self, error: Error) -> SendError {
        let unsent = self.conn.unsent(&error);
        let seen = self.conn.seen();
        SendError {
            unsent: unsent.map(|unsent| UnsentRequest::Http1(Box::new(unsent))),
            wrote: seen.wrote,
            read: seen.read,
            ending: FailureKind::of_link(&error),
            error: TransportError::Http1(error),
            reused: self.reused,
        }
    }

    /// Returns it to the pool, if it can carry another request.
    pub(crate) fn release(self) {
        let Self { mut conn, mut lease, line, reused: _ } = self;
        if conn.rest() {
            lease.open = false;
            let Lease { endpoint, peer, .. } = lease;
            lease.upstream.park(IdleConnection { conn, endpoint, peer, line });
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.open {
            self.upstream.metrics.closed_active();
        }
    }
}

impl Http2Stream {
    /// A stream for one request.
    pub(super) fn new(place: StreamSlot, reused: bool) -> Self {
        let counts = Arc::clone(&place.shared().counts);
        let mark = counts.mark();
        Self { place, counts, mark, sent: PendingResponse(None), reused }
    }

    /// Hands `request` over.
    pub(super) fn send(&mut self, request: Request<RequestBody>) {
        if let Some(line) = &self.place.shared().line {
            line.announce();
        }
        self.mark = self.counts.mark();
        self.place.ask(self.mark);
        let mut sender: SendRequest<RequestBody> = self.place.shared().sender.clone();
        self.sent = PendingResponse(Some(Box::pin(sender.try_send_request(request))));
    }

    async fn response(mut self: Box<Self>) -> Result<UpstreamResponse, Box<SendError>> {
        let Some(sent) = self.sent.0.take() else {
            // Nothing was handed over, so nothing will arrive.
            return std::future::pending().await;
        };
        let response = sent.await;
        self.place.answered();
        match response {
            Ok(response) => {
                let (parts, incoming) = response.into_parts();
                let body = ResponseSource::Http2(incoming, self);
                Ok(UpstreamResponse { status: parts.status, fields: parts.headers, body })
            }
            Err(failed) => Err(Box::new(self.failed(failed))),
        }
    }

    fn failed(&self, mut failed: Http2SendError) -> SendError {
        let unsent = failed.take_message();
        let error = failed.into_error();
        let ending = FailureKind::of(&error);
        if !ending.spares_connection() {
            self.place.retire();
        }
        SendError {
            error: TransportError::Http2(error),
            unsent: unsent.map(|request| UnsentRequest::Http2(Box::new(request))),
            wrote: self.counts.wrote_since(self.mark),
            read: self.counts.read_since(self.mark),
            ending,
            reused: self.reused,
        }
    }
}

impl ResponseSource {
    /// Whether the connection was used before this request.
    pub(crate) fn reused(&self) -> bool {
        match self {
            Self::Http1(lease) => lease.reused,
            Self::Http2(_, shared) => shared.reused,
        }
    }
}

impl std::fmt::Debug for PendingResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Sent").field(&self.0.is_some()).finish()
    }
}
