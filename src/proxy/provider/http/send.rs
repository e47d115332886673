//! Sends one attempt: chooses an endpoint and a connection, sends the request, and reads the response's head.
//!
//! The upstream may close an idle connection at the moment it is used. If a request fails like this, before a byte of
//! a response, it is sent once more on a new connection, provided that this is safe: nothing of it was written, or
//! its method is idempotent (RFC 9112 §9.3.1). This is counted and logged, but it is not an attempt of a Retry. In
//! HTTP/2 the upstream may say that it has not processed a request. That counts as if nothing had been written.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::time::Instant;

use super::attempt::Attempt;
use super::compose::{BodySource, compose};
use crate::language::outcome::Failure;
use crate::proxy::body::expect_continue::ContinueSignal;
use crate::proxy::body::request::RequestBody;
use crate::proxy::body::source::NotReplayable;
use crate::proxy::request::exchange::Exchange;
use crate::proxy::settings::BodyPatience;
use crate::proxy::upstream::connect_error::ConnectError;
use crate::proxy::upstream::connection::{Connection, NoSuchTarget, SendError, UpstreamResponse};
use crate::proxy::upstream::endpoints::WorkerEndpoint;
use crate::proxy::upstream::h1;
use crate::proxy::upstream::request_head::RequestHead;
use crate::telemetry::events;

/// Why there is no response.
#[derive(Debug)]
pub(super) enum NoResponse {
    /// No connection was made.
    Connect(ConnectError),
    /// The connection failed during the request.
    Send(Box<SendError>),
    /// No response head came in time. Whether the connection had carried another request before.
    Late { reused: bool },
    /// An earlier attempt read the request's body and did not keep it.
    BodyGone,
    /// The HTTP/2 library does not support the request's target.
    Target,
    /// The parameters make an invalid request.
    Compose(Box<Failure>),
}

/// A response that is awaited.
pub(super) struct Waiting {
    /// On which connection; `None` once it is there.
    connection: Option<Connection>,
    /// Whether that had carried another request before.
    reused: bool,
    /// Whether the whole request was sent.
    sent: bool,
}

impl Waiting {
    /// For the response to the request that `attempt` has handed to `connection`.
    pub(super) fn new(connection: Connection, attempt: &Attempt<'_>) -> Self {
        let (reused, sent) = (connection.reused(), attempt.progress.finished());
        Self { connection: Some(connection), reused, sent }
    }
}

impl Attempt<'_> {
    /// A connection for the request, idle or new.
    pub(super) async fn connection(&self) -> Result<Connection, NoResponse> {
        let again = || self.endpoint.again();
        let connection = self.upstream.connection(self.wanted(), &again).await;
        let connection = connection.map_err(|error| self.unreached(error))?;
        self.reached(connection.endpoint());
        Ok(connection)
    }

    /// Hands a request to `connection`, `now`.
    pub(super) fn hand_over(
        &self,
        connection: &mut Connection,
        (outgoing, body): (RequestHead<'_>, BodySource),
        now: Instant,
    ) -> Result<(), NoResponse> {
        let permission = outgoing.expects.then(Arc::<ContinueSignal>::default);
        let patience = self.exchange.site.runtime.limits.body_patience();
        let body = request_body(body, permission.as_ref(), patience);
        let body = body.map_err(|NotReplayable| NoResponse::BodyGone)?;
        self.progress.begin(&body);
        self.bound_response(now);
        let sent = connection.send(outgoing, body);
        sent.map_err(|NoSuchTarget| NoResponse::Target)
    }

    /// Waits for the response to the request that was handed over to `connection`.
    pub(super) async fn response(
        &self,
        connection: Connection,
    ) -> Result<UpstreamResponse, NoResponse> {
        let mut waiting = Waiting::new(connection, self);
        poll_fn(|cx| self.poll_response(&mut waiting, cx)).await
    }

    /// Ready with the response, or with the reason why there is none.
    pub(super) fn poll_response(
        &self,
        waiting: &mut Waiting,
        cx: &mut Context<'_>,
    ) -> Poll<Result<UpstreamResponse, NoResponse>> {
        let Waiting { connection, reused, sent } = waiting;
        let mut interim = |answer: h1::ResponseHead| self.interim(&answer);
        if let Poll::Ready(response) = Connection::poll_response(connection, cx, &mut interim) {
            return Poll::Ready(response.map_err(NoResponse::Send));
        }
        let past = self.dispatch.destination.is_past();
        if *sent {
            let late = || Err(NoResponse::Late { reused: *reused });
            return if past { Poll::Ready(late()) } else { Poll::Pending };
        }
        // The time is that of the upstream, not of a client that is still sending.
        *sent = self.progress.finished();
        if *sent || past {
            self.bound_response(Instant::now());
        }
        Poll::Pending
    }

    /// Has the attempt polled when it has waited for the head of its response as long as it may, from `now` on.
    fn bound_response(&self, now: Instant) {
        let bound = self.params.response_timeout;
        let bound = bound.unwrap_or(self.upstream.settings.response_timeout);
        if let Some(deadline) = now.checked_add(bound).filter(|_| !bound.is_zero()) {
            self.dispatch.destination.wake_at(deadline);
        }
    }

    /// Handles an interim response. One for a call of the Flow's own goes nowhere.
    pub(super) fn interim(&self, answer: &h1::ResponseHead) {
        if self.passes {
            let Exchange { interim, route, .. } = self.exchange;
            interim.pass(route, answer.status, answer.reason.as_deref(), &answer.fields);
        }
    }

    /// Sends the request that failed with `error` on a new connection, if that is safe.
    pub(super) async fn once_more(
        &self,
        mut error: Box<SendError>,
    ) -> Result<UpstreamResponse, NoResponse> {
        let unprocessed = error.ending.is_unprocessed();
        let gone = error.ending.is_silent() && !error.read;
        let stale = error.reused && (gone || unprocessed);
        let unsent = error.unsent.take_if(|_| stale);
        let repeats = stale && self.is_repeatable(unprocessed);
        if unsent.is_none() && !repeats {
            return Err(NoResponse::Send(error));
        }
        drop(error);
        self.report_resend();
        let resent = unsent.is_some();
        let connection = match unsent {
            Some(unsent) => self.upstream.resend(self.wanted(), unsent).await,
            None => self.upstream.fresh(self.wanted()).await,
        };
        let mut connection = connection.map_err(|error| self.unreached(error))?;
        self.reached(connection.endpoint());
        if !resent {
            let composed = compose(self.params, &self.dispatch, self.exchange, self.span);
            let composed = composed.map_err(NoResponse::Compose)?;
            self.hand_over(&mut connection, composed, Instant::now())?;
        }
        self.response(connection).await
    }

    /// Whether the request may be sent again although some of it was written. `unprocessed`: the upstream says
    /// that it has not processed it.
    fn is_repeatable(&self, unprocessed: bool) -> bool {
        let harmless = self.repeatable.idempotent || unprocessed;
        harmless && self.progress.broken().is_none() && self.progress.replayable()
    }

    /// No connection could be made. If that was no fault of the endpoint's, it counts as not tried.
    fn unreached(&self, error: ConnectError) -> NoResponse {
        if error.cause.is_own() {
            self.endpoint.unasked();
        }
        NoResponse::Connect(error)
    }

    /// The connection leads to `endpoint`.
    fn reached(&self, endpoint: &Arc<WorkerEndpoint>) {
        if self.endpoint.reach(endpoint) {
            self.dispatch.destination.redirect(Arc::clone(endpoint) as _);
        }
    }

    fn report_resend(&self) {
        let Self { dispatch, upstream, exchange, endpoint, .. } = self;
        upstream.metrics.stale_resend();
        let at = (&*upstream.settings.name, &**endpoint.get().name());
        events::resent(exchange.subject(), dispatch.attempt, at);
    }
}

/// The body as an attempt sends it. With a `permission`, it waits for that. The client is waited
/// for as long as `patience` says.
fn request_body(
    body: BodySource,
    permission: Option<&Arc<ContinueSignal>>,
    patience: BodyPatience,
) -> Result<RequestBody, NotReplayable> {
    Ok(match body {
        BodySource::Empty => RequestBody::EMPTY,
        BodySource::Whole(whole) => RequestBody::Whole(whole),
        BodySource::Client(source) => RequestBody::stream(source.attempt(patience)?, permission),
    })
}
