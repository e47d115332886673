//! A connection that is lent to one request: all of it (HTTP/1.1), or one stream (HTTP/2).

use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};

use super::capacity::Place;
use super::endpoints::{Visit, WorkerEndpoint};
use super::failure::{FailureKind, TransportError};
use super::h1::{self, Http1Connection, InterimSink};
use super::http2::StreamSlot;
use super::origin::ResponseOrigin;
use super::request_head::RequestHead;
use super::{Upstream, http2};
use crate::proxy::body::request::RequestBody;
use crate::proxy::h1::Error;
use crate::proxy::h2::{CountsSnapshot, Incoming};
use crate::proxy::proxy_header::Ends;
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
    pub(super) endpoint: Arc<WorkerEndpoint>,
    /// The ends that its PROXY header has named.
    pub(super) ends: Option<Box<Ends>>,
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
    visit: Visit,
    ends: Option<Box<Ends>>,
    peer: Option<IpAddr>,
    /// False once it was returned.
    open: bool,
}

/// A stream on an HTTP/2 connection. Dropping it frees the stream for another request.
#[derive(Debug)]
pub(crate) struct Http2Stream {
    /// The rest of the request, once the response has begun. Dropped before `place`, which then is free.
    upload: Option<http2::UploadRest>,
    /// The exchange, once a request was handed over and until its response has begun. Dropped before `place`, too.
    sent: Option<Result<http2::Exchange, Box<http2::NotSent>>>,
    place: StreamSlot,
    /// The byte counts when the request was handed over.
    mark: CountsSnapshot,
    /// Whether the request is a HEAD. Its response has no body, whatever its head says.
    head: bool,
    reused: bool,
}

/// A response whose head has arrived.
#[derive(Debug)]
pub(crate) struct UpstreamResponse {
    /// The status.
    pub(crate) status: StatusCode,
    /// The reason phrase, if it is not the usual one.
    pub(crate) reason: Option<Bytes>,
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
    /// The response has no body.
    Empty { reused: bool },
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
    /// Whether a byte of the response was read: over HTTP/2, a part of its head.
    pub(crate) read: bool,
    /// What the error says about the request.
    pub(crate) ending: FailureKind,
    /// Whether the connection was used before this request.
    pub(crate) reused: bool,
}

/// The HTTP/2 library does not support the target of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoSuchTarget;

/// A request of which nothing was sent.
#[derive(Debug)]
pub(crate) enum UnsentRequest {
    /// For HTTP/1.1.
    Http1(Box<h1::UnsentHttp1>),
    /// For HTTP/2.
    Http2(Box<Request<RequestBody>>),
}

impl Connection {
    /// Whether it was used before this request.
    pub(crate) fn reused(&self) -> bool {
        match self {
            Self::Http1(lease) => lease.reused,
            Self::Http2(shared) => shared.reused,
        }
    }

    /// The endpoint that it leads to.
    pub(crate) fn endpoint(&self) -> &Arc<WorkerEndpoint> {
        match self {
            Self::Http1(lease) => lease.lease.visit.endpoint(),
            Self::Http2(shared) => &shared.place.shared().endpoint,
        }
    }

    /// Hands a request over.
    ///
    /// # Errors
    /// When the HTTP/2 library does not support the target.
    pub(crate) fn send(
        &mut self,
        outgoing: RequestHead<'_>,
        body: RequestBody,
    ) -> Result<(), NoSuchTarget> {
        match self {
            Self::Http1(lease) => lease.send(&outgoing, body),
            Self::Http2(shared) => {
                let request = outgoing.into_request(body, shared.place.origin());
                shared.send(request.ok_or(NoSuchTarget)?);
            }
        }
        Ok(())
    }

    /// Waits for the response to the request that was handed over, and takes the connection out of `waiting` then. Interim
    /// responses go to `interim`. Pending for ever if there is no connection.
    pub(crate) fn poll_response(
        waiting: &mut Option<Self>,
        cx: &mut Context<'_>,
        interim: InterimSink<'_>,
    ) -> Poll<Result<UpstreamResponse, Box<SendError>>> {
        match waiting {
            Some(Self::Http1(lease)) => {
                let answered = ready!(lease.conn.poll_answer(cx, interim));
                let Some(Self::Http1(lease)) = waiting.take() else { return Poll::Pending };
                Poll::Ready(match answered {
                    Ok(h1::ResponseHead { status, reason, fields }) => {
                        let body = ResponseSource::Http1(lease);
                        Ok(UpstreamResponse { status, reason, fields, body })
                    }
                    Err(error) => Err(Box::new(lease.failed(error))),
                })
            }
            Some(Self::Http2(shared)) => {
                let answered = ready!(shared.poll_answer(cx, interim));
                let Some(Self::Http2(shared)) = waiting.take() else { return Poll::Pending };
                Poll::Ready(match answered {
                    Ok((h1::ResponseHead { status, reason, fields }, incoming)) => {
                        let body = shared.body(incoming, status);
                        Ok(UpstreamResponse { status, reason, fields, body })
                    }
                    Err(not_sent) => Err(Box::new(shared.failed(not_sent))),
                })
            }
            None => Poll::Pending,
        }
    }
}

impl Http1Lease {
    /// `parked`, lent out by `upstream`.
    pub(super) fn new(
        upstream: Arc<Upstream>,
        (place, visit): (Place, Visit),
        parked: IdleConnection,
        reused: bool,
    ) -> Self {
        let IdleConnection { conn, endpoint: _, ends, peer, line } = parked;
        let lease = Lease { upstream, _place: place, visit, ends, peer, open: true };
        Self { conn, lease, line, reused }
    }

    fn send(&mut self, outgoing: &RequestHead<'_>, body: RequestBody) {
        self.announce();
        self.conn.send(outgoing, self.lease.visit.endpoint().at.host_field(), body);
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

    /// Where its response comes from.
    pub(super) fn origin(&self) -> ResponseOrigin {
        let Lease { upstream, visit, .. } = &self.lease;
        ResponseOrigin {
            upstream: Arc::clone(&upstream.settings.name),
            endpoint: Arc::clone(visit.endpoint().name()),
        }
    }

    /// Returns it to the pool, if it can carry another request.
    pub(crate) fn release(self) {
        let Self { mut conn, mut lease, line, reused: _ } = self;
        if conn.rest() {
            lease.open = false;
            let (endpoint, peer) = (Arc::clone(lease.visit.endpoint()), lease.peer);
            let ends = lease.ends.take();
            lease.upstream.park(IdleConnection { conn, endpoint, ends, peer, line });
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
        let mark = place.shared().traffic.mark();
        Self { upload: None, sent: None, place, mark, head: false, reused }
    }

    /// Hands `request` over.
    pub(super) fn send(&mut self, request: Request<RequestBody>) {
        let shared = self.place.shared();
        if let Some(line) = &shared.line {
            line.announce();
        }
        self.head = *request.method() == Method::HEAD;
        self.mark = shared.traffic.mark();
        self.sent = Some(shared.send(request).map_err(Box::new));
        self.place.ask(self.mark);
    }

    /// The response's head, and its body. Sends the request meanwhile.
    fn poll_answer(
        &mut self,
        cx: &mut Context<'_>,
        interim: InterimSink<'_>,
    ) -> Poll<Result<(h1::ResponseHead, Incoming), http2::NotSent>> {
        let polled = match &mut self.sent {
            Some(Ok(exchange)) => match ready!(exchange.poll_answer(cx, interim)) {
                Ok(answer) => {
                    self.upload = exchange.rest();
                    Ok(answer)
                }
                Err(error) => Err(exchange.failed(error)),
            },
            Some(Err(_)) => match self.sent.take() {
                Some(Err(not_sent)) => Err(*not_sent),
                _ => return Poll::Pending,
            },
            // Nothing was handed over, so nothing will arrive.
            None => return Poll::Pending,
        };
        self.sent = None;
        self.place.answered();
        Poll::Ready(polled)
    }

    /// The source of the body of a response with this `status`. If there is no body, `END_STREAM` may come later
    /// than the head (RFC 9113 §8.1.1), and nobody needs to wait for it.
    fn body(mut self: Box<Self>, incoming: Incoming, status: StatusCode) -> ResponseSource {
        let empty = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        if !empty && !self.head {
            return ResponseSource::Http2(incoming, self);
        }
        let reused = self.reused;
        if !incoming.is_ended() {
            self.upload = None;
            tokio::spawn(http2::read_to_end(incoming, self));
        }
        ResponseSource::Empty { reused }
    }

    /// Where its response comes from.
    pub(super) fn origin(&self) -> ResponseOrigin {
        self.place.shared().origin.response()
    }

    fn failed(&self, http2::NotSent { error, unsent, heard }: http2::NotSent) -> SendError {
        let ending = FailureKind::of_stream(&error);
        // Other bytes of a connection that is gone belong to other streams. An upstream that takes no more of the
        // request, or floods, is there as long as anything arrives.
        let there = ending == FailureKind::Stalled || error.is_flood();
        if !ending.spares_connection() {
            self.place.retire();
        }
        let traffic = &self.place.shared().traffic;
        SendError {
            error: TransportError::Http2(error),
            unsent: unsent.map(UnsentRequest::Http2),
            wrote: traffic.wrote_since(self.mark),
            read: heard || there && traffic.read_since(self.mark),
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
            Self::Empty { reused } => *reused,
        }
    }
}
