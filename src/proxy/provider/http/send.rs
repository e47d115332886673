//! One attempt on the wire: an endpoint, a connection, the request, the head of the response.
//!
//! A connection that lay idle may have been closed by the other side in the moment in which it is used.
//! A request that fails so, before a byte of a response, is sent once more on a fresh connection, where
//! that cannot do harm: nothing of it was written, or its method is idempotent (RFC 9112 §9.3.1). That is
//! counted and logged, and is no attempt of a Retry. With HTTP/2 the other side says of some requests that
//! it has not looked at them: of those nothing was written, in the sense of the rule.

use std::sync::Arc;
use std::time::Duration;

use super::attempt::Attempt;
use super::compose::{Source, compose};
use crate::proxy::body::hold::Permission;
use crate::proxy::body::request::RequestBody;
use crate::proxy::body::source::NotReplayable;
use crate::proxy::request::exchange::Exchange;
use crate::proxy::settings::Protocol;
use crate::proxy::upstream::connect_error::ConnectError;
use crate::proxy::upstream::connection::{Answered, Connection, SendError};
use crate::proxy::upstream::h1;
use crate::proxy::upstream::outgoing::Outgoing;
use crate::telemetry::events;

/// Why there is no response.
#[derive(Debug)]
pub(super) enum Lost {
    /// No connection came to be.
    Connect(ConnectError),
    /// The connection failed under the request.
    Send(Box<SendError>),
    /// The request's body was read by an earlier attempt and not kept.
    BodyGone,
}

impl Attempt<'_> {
    /// A connection for the request, which need not be at hand.
    pub(super) async fn connection(&self) -> Result<Connection, Lost> {
        let connection = self.upstream.connection(self.endpoint).await;
        connection.map_err(|error| self.unreached(error))
    }

    /// Hands a request over to `connection`.
    pub(super) fn hand_over(
        &self,
        connection: &mut Connection,
        outgoing: Outgoing<'_>,
        body: Source,
    ) -> Result<(), Lost> {
        // The library gives no word of an interim answer with HTTP/2: there the body goes at once.
        let waits = outgoing.expects && self.upstream.settings.protocol == Protocol::Http1;
        let permission = waits.then(Arc::<Permission>::default);
        let timeout = self.exchange.site.runtime.limits.body_timeout;
        let body = request_body(body, permission.as_ref(), timeout);
        let body = body.map_err(|NotReplayable| Lost::BodyGone)?;
        self.progress.begin(&body);
        connection.send(outgoing, body);
        Ok(())
    }

    /// The response to the request that was handed over.
    pub(super) async fn response(
        &self,
        connection: Connection,
    ) -> Result<Answered, Box<SendError>> {
        connection.response(&mut |answer| self.interim(&answer)).await
    }

    /// An answer came before the answer. One to a call that the Flow makes of itself is nobody else's.
    fn interim(&self, answer: &h1::Answer) {
        if self.passes {
            let Exchange { interim, route, .. } = self.exchange;
            interim.pass(route, answer.status, &answer.fields);
        }
    }

    /// Sends the request that failed with `error` over a fresh connection, where that cannot do harm.
    pub(super) async fn once_more(&self, mut error: Box<SendError>) -> Result<Answered, Lost> {
        let unprocessed = error.ending.is_unprocessed();
        let stale = error.reused && (!error.read || unprocessed);
        let unsent = error.unsent.take_if(|_| stale);
        let repeats = stale && self.is_repeatable(unprocessed);
        if unsent.is_none() && !repeats {
            return Err(Lost::Send(error));
        }
        drop(error);
        self.report_resend();
        let resent = unsent.is_some();
        let connection = match unsent {
            Some(unsent) => self.upstream.resend(self.endpoint, unsent).await,
            None => self.upstream.fresh(self.endpoint).await,
        };
        let mut connection = connection.map_err(|error| self.unreached(error))?;
        if !resent {
            let (outgoing, body) = compose(self.params, &self.dispatch, self.exchange, self.span);
            self.hand_over(&mut connection, outgoing, body)?;
        }
        self.response(connection).await.map_err(Lost::Send)
    }

    /// Whether the request may be sent again though some of it was written; `unprocessed` where the other side says
    /// that it has not looked at it.
    fn is_repeatable(&self, unprocessed: bool) -> bool {
        let harmless = self.repeatable.idempotent || unprocessed;
        harmless && self.progress.broken().is_none() && self.progress.replayable()
    }

    /// The endpoint gave no connection: the next attempt passes it over.
    fn unreached(&self, error: ConnectError) -> Lost {
        self.exchange.avoid(self.params.upstream, self.endpoint);
        Lost::Connect(error)
    }

    fn report_resend(&self) {
        let Self { dispatch, upstream, exchange, endpoint, .. } = self;
        upstream.metrics.stale_resend();
        let execution = (exchange.id(), &*exchange.route.name);
        let at = (&*upstream.settings.name, &**upstream.authority(*endpoint));
        events::resent(execution, dispatch.attempt, at);
    }
}

/// The body as an attempt sends it; where there is a `permission`, once that is given. The client may stall for at
/// most `timeout`.
fn request_body(
    body: Source,
    permission: Option<&Arc<Permission>>,
    timeout: Duration,
) -> Result<RequestBody, NotReplayable> {
    Ok(match body {
        Source::Empty => RequestBody::EMPTY,
        Source::Whole(whole) => RequestBody::Whole(whole),
        Source::Client(source) => RequestBody::stream(source.attempt(timeout)?, permission),
    })
}
