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
use super::ending::{Ending, Fault};
use super::h1::{self, Interim, Link};
use super::outgoing::Outgoing;
use super::shared::Place;
use super::wire::{Counts, Mark};
use crate::proxy::body::request::RequestBody;
use crate::proxy::h1::Error;
use crate::proxy::stage::Line;

/// A connection for one request.
#[derive(Debug)]
pub(crate) enum Connection {
    /// It carries this request alone.
    Alone(Alone),
    /// It carries other requests too.
    Shared(Box<Shared>),
}

/// An HTTP/1.1 connection. Dropping it closes it; [`Alone::release`] returns it to the pool.
#[derive(Debug)]
pub(crate) struct Alone {
    /// The connection itself.
    pub(crate) link: Box<Link>,
    lease: Lease,
    /// In a rehearsal, the scripted connection.
    line: Option<Arc<Line>>,
    reused: bool,
}

/// An HTTP/1.1 connection that nobody uses.
#[derive(Debug)]
pub(super) struct Parked {
    pub(super) link: Box<Link>,
    pub(super) endpoint: usize,
    /// The address that it leads to, if it was opened here.
    pub(super) peer: Option<IpAddr>,
    pub(super) line: Option<Arc<Line>>,
}

/// Which connection of which upstream is lent. When dropped, the connection counts as closed.
#[derive(Debug)]
struct Lease {
    upstream: Arc<Upstream>,
    endpoint: usize,
    peer: Option<IpAddr>,
    /// False once it was returned.
    open: bool,
}

/// A stream on an HTTP/2 connection. Dropping it frees the stream for another request.
#[derive(Debug)]
pub(crate) struct Shared {
    place: Place,
    counts: Arc<Counts>,
    /// The byte counts when the request was handed over.
    mark: Mark,
    sent: Sent,
    reused: bool,
}

/// The future response head, once a request was handed over.
struct Sent(Option<BoxFuture<'static, Result<Response<Incoming>, Failed>>>);

type Failed = TrySendError<Request<RequestBody>>;

/// A response whose head has arrived.
#[derive(Debug)]
pub(crate) struct Answered {
    /// The status.
    pub(crate) status: StatusCode,
    /// The fields.
    pub(crate) fields: HeaderMap,
    /// The source of its body.
    pub(crate) body: Arriving,
}

/// The source of a response's body.
#[derive(Debug)]
pub(crate) enum Arriving {
    /// The connection is read.
    Alone(Alone),
    /// One stream of a shared connection.
    Shared(Incoming, Box<Shared>),
}

/// Why a request got no response.
#[derive(Debug)]
pub(crate) struct SendError {
    /// What happened.
    pub(crate) error: Fault,
    /// The request, if it can be sent on another connection as if it had never been on this one.
    pub(crate) unsent: Option<Unsent>,
    /// Whether a byte was written.
    pub(crate) wrote: bool,
    /// Whether a byte was read.
    pub(crate) read: bool,
    /// What the error says about the request.
    pub(crate) ending: Ending,
    /// Whether the connection was used before this request.
    pub(crate) reused: bool,
}

/// A request of which nothing was sent.
#[derive(Debug)]
pub(crate) enum Unsent {
    /// For HTTP/1.1.
    Alone(Box<h1::Unsent>),
    /// For HTTP/2.
    Shared(Box<Request<RequestBody>>),
}

impl Connection {
    /// Hands a request over.
    pub(crate) fn send(&mut self, outgoing: Outgoing<'_>, body: RequestBody) {
        match self {
            Self::Alone(alone) => alone.send(&outgoing, body),
            Self::Shared(shared) => {
                let request = outgoing.into_request(body, shared.place.origin());
                shared.send(request);
            }
        }
    }

    /// Waits for the response to the request that was handed over. Heads of interim responses go to `interim`.
    pub(crate) async fn response(self, interim: Interim<'_>) -> Result<Answered, Box<SendError>> {
        match self {
            Self::Alone(alone) => alone.response(interim).await,
            Self::Shared(shared) => shared.response().await,
        }
    }
}

impl Alone {
    /// `parked`, lent out by `upstream`.
    pub(super) fn new(upstream: Arc<Upstream>, parked: Parked, reused: bool) -> Self {
        let Parked { link, endpoint, peer, line } = parked;
        Self { link, lease: Lease { upstream, endpoint, peer, open: true }, line, reused }
    }

    fn send(&mut self, outgoing: &Outgoing<'_>, body: RequestBody) {
        self.announce();
        let Lease { upstream, endpoint, .. } = &self.lease;
        self.link.send(outgoing, upstream.authority(*endpoint), body);
    }

    /// Hands over a request of which another connection sent nothing.
    pub(super) fn resend(&mut self, unsent: h1::Unsent) {
        self.announce();
        self.link.resend(unsent);
    }

    fn announce(&self) {
        if let Some(line) = &self.line {
            line.announce();
        }
    }

    async fn response(mut self, interim: Interim<'_>) -> Result<Answered, Box<SendError>> {
        match poll_fn(|cx| self.link.poll_answer(cx, interim)).await {
            Ok(h1::Answer { status, fields }) => {
                Ok(Answered { status, fields, body: Arriving::Alone(self) })
            }
            Err(error) => Err(Box::new(self.failed(error))),
        }
    }

    fn failed(mut self, error: Error) -> SendError {
        let unsent = self.link.unsent(&error);
        let seen = self.link.seen();
        SendError {
            unsent: unsent.map(|unsent| Unsent::Alone(Box::new(unsent))),
            wrote: seen.wrote,
            read: seen.read,
            ending: Ending::of_link(&error),
            error: Fault::Link(error),
            reused: self.reused,
        }
    }

    /// Returns it to the pool, if it can carry another request.
    pub(crate) fn release(self) {
        let Self { mut link, mut lease, line, reused: _ } = self;
        if link.rest() {
            lease.open = false;
            let Lease { endpoint, peer, .. } = lease;
            lease.upstream.park(Parked { link, endpoint, peer, line });
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

impl Shared {
    /// A stream for one request.
    pub(super) fn new(place: Place, reused: bool) -> Self {
        let counts = Arc::clone(&place.shared().counts);
        let mark = counts.mark();
        Self { place, counts, mark, sent: Sent(None), reused }
    }

    /// Hands `request` over.
    pub(super) fn send(&mut self, request: Request<RequestBody>) {
        if let Some(line) = &self.place.shared().line {
            line.announce();
        }
        self.mark = self.counts.mark();
        self.place.ask(self.mark);
        let mut sender: SendRequest<RequestBody> = self.place.shared().sender.clone();
        self.sent = Sent(Some(Box::pin(sender.try_send_request(request))));
    }

    async fn response(mut self: Box<Self>) -> Result<Answered, Box<SendError>> {
        let Some(sent) = self.sent.0.take() else {
            // Nothing was handed over, so nothing will arrive.
            return std::future::pending().await;
        };
        let response = sent.await;
        self.place.answered();
        match response {
            Ok(response) => {
                let (parts, incoming) = response.into_parts();
                let body = Arriving::Shared(incoming, self);
                Ok(Answered { status: parts.status, fields: parts.headers, body })
            }
            Err(failed) => Err(Box::new(self.failed(failed))),
        }
    }

    fn failed(&self, mut failed: Failed) -> SendError {
        let unsent = failed.take_message();
        let error = failed.into_error();
        let ending = Ending::of(&error);
        if !ending.spares_connection() {
            self.place.retire();
        }
        SendError {
            error: Fault::Stream(error),
            unsent: unsent.map(|request| Unsent::Shared(Box::new(request))),
            wrote: self.counts.wrote_since(self.mark),
            read: self.counts.read_since(self.mark),
            ending,
            reused: self.reused,
        }
    }
}

impl Arriving {
    /// Whether the connection was used before this request.
    pub(crate) fn reused(&self) -> bool {
        match self {
            Self::Alone(alone) => alone.reused,
            Self::Shared(_, shared) => shared.reused,
        }
    }
}

impl std::fmt::Debug for Sent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Sent").field(&self.0.is_some()).finish()
    }
}
