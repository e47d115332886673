//! A connection that is lent to one request: all of it (HTTP/1.1), or a place on it (HTTP/2).

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
use crate::proxy::io::Io;
use crate::proxy::io::rewound::Rewound;
use crate::proxy::stage::Line;

/// A connection for one request.
#[derive(Debug)]
pub(crate) enum Connection {
    /// It is this request's alone.
    Alone(Alone),
    /// It carries others beside it.
    Shared(Box<Shared>),
}

/// A connection of HTTP/1.1. Dropped, it closes; [`Alone::release`] puts it back.
#[derive(Debug)]
pub(crate) struct Alone {
    /// The connection itself.
    pub(crate) link: Box<Link>,
    lease: Lease,
    /// In a rehearsal, the way to the other end.
    line: Option<Arc<Line>>,
    reused: bool,
}

/// What there is of a connection of HTTP/1.1 while nobody uses it.
#[derive(Debug)]
pub(super) struct Parked {
    pub(super) link: Box<Link>,
    pub(super) endpoint: usize,
    /// The address that it leads to, where it was opened here.
    pub(super) peer: Option<IpAddr>,
    pub(super) line: Option<Arc<Line>>,
}

/// Which connection of which upstream is lent; dropped, it counts as closed.
#[derive(Debug)]
struct Lease {
    upstream: Arc<Upstream>,
    endpoint: usize,
    peer: Option<IpAddr>,
    /// Not any more when it goes back.
    open: bool,
}

/// A place on a connection of HTTP/2. Dropped, it is free for another request.
#[derive(Debug)]
pub(crate) struct Shared {
    place: Place,
    counts: Arc<Counts>,
    /// What they were when the request was handed over.
    mark: Mark,
    sent: Sent,
    reused: bool,
}

/// The head of a response to a request that was handed over.
struct Sent(Option<BoxFuture<'static, Result<Response<Incoming>, Failed>>>);

type Failed = TrySendError<Request<RequestBody>>;

/// A response, of which the head is there.
#[derive(Debug)]
pub(crate) struct Answered {
    /// The status.
    pub(crate) status: StatusCode,
    /// The fields.
    pub(crate) fields: HeaderMap,
    /// Where the body comes from.
    pub(crate) body: Arriving,
}

/// Where the body of a response comes from.
#[derive(Debug)]
pub(crate) enum Arriving {
    /// The connection is read.
    Alone(Alone),
    /// It is one stream of a connection's.
    Shared(Incoming, Box<Shared>),
}

/// The upstream's half of a tunnel, from its 101 on.
#[derive(Debug)]
pub(crate) struct Far {
    /// Counts as active for as long as the tunnel is there.
    connection: Alone,
}

/// Why a request over a connection got no response.
#[derive(Debug)]
pub(crate) struct SendError {
    /// What happened.
    pub(crate) error: Fault,
    /// The request, where it can go over another connection as if it had never been on this one.
    pub(crate) unsent: Option<Unsent>,
    /// Whether a byte was written.
    pub(crate) wrote: bool,
    /// Whether a byte was read.
    pub(crate) read: bool,
    /// What the error says of the request.
    pub(crate) ending: Ending,
    /// Whether the connection was there before the request.
    pub(crate) reused: bool,
}

/// A request that was not begun.
#[derive(Debug)]
pub(crate) enum Unsent {
    /// To a connection of HTTP/1.1.
    Alone(Box<h1::Unsent>),
    /// To one of HTTP/2.
    Shared(Box<Request<RequestBody>>),
}

impl Connection {
    /// Hands one request over.
    pub(crate) fn send(&mut self, outgoing: Outgoing<'_>, body: RequestBody) {
        match self {
            Self::Alone(alone) => alone.send(&outgoing, body),
            Self::Shared(shared) => {
                let request = outgoing.into_request(body, shared.place.origin());
                shared.send(request);
            }
        }
    }

    /// The response to the request that was handed over. Heads of interim answers go to `interim`.
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

    /// Hands over a request that another connection took nothing of.
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

    /// Puts it back for the next request, where it can carry one.
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
    /// A request's place on a connection.
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
            // Nothing was handed over, and nothing will come.
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
    /// Whether the connection was there before the request.
    pub(crate) fn reused(&self) -> bool {
        match self {
            Self::Alone(alone) => alone.reused,
            Self::Shared(_, shared) => shared.reused,
        }
    }
}

impl Far {
    /// What `connection` has become.
    pub(crate) const fn new(connection: Alone) -> Self {
        Self { connection }
    }

    /// What passes.
    pub(crate) fn bytes(&mut self) -> Rewound<&mut Io> {
        self.connection.link.bytes()
    }
}

impl std::fmt::Debug for Sent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Sent").field(&self.0.is_some()).finish()
    }
}
