//! Makes an attempt: from a dispatch to the response, or to the reason why there is none.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use http::uri::Scheme;

use super::CONTRACT;
use super::compose::{Source, compose, is_own};
use super::params::Params;
use crate::language::outcome::Failure;
use crate::language::provider::{Answer, Destination, Dispatch, Role};
use crate::language::value::Value;
use crate::proxy::answer::classify::Repeatable;
use crate::proxy::body::request::Progress;
use crate::proxy::code;
use crate::proxy::request::exchange::Exchange;
use crate::proxy::request::recording;
use crate::proxy::upstream::Upstream;
use crate::proxy::upstream::connection::{Connection, SendError};
use crate::proxy::upstream::outgoing::Outgoing;
use crate::telemetry::record::Sent;
use crate::telemetry::trace::SpanId;

/// What an attempt is made with, and what is known of it whatever comes.
pub(super) struct Attempt<'a> {
    pub(super) dispatch: Dispatch<'a>,
    pub(super) params: &'a Params,
    pub(super) exchange: &'a Exchange,
    pub(super) upstream: &'a Arc<Upstream>,
    /// The endpoint that it goes to.
    pub(super) endpoint: usize,
    /// Whether the request's method makes it repeatable, or its key.
    pub(super) repeatable: Repeatable,
    /// Whether the request offers to change the protocol.
    pub(super) offers: bool,
    /// Whether the client hears of interim answers.
    pub(super) passes: bool,
    pub(super) progress: Progress,
    /// What the upstream is told that it is called by.
    pub(super) span: Option<SpanId>,
}

/// An attempt that runs.
pub(super) type Running<'a> = Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

/// Runs a dispatch.
///
/// What needs no waiting is done here. The common attempt finds a connection at hand, so that its request is on
/// its way before there is a future, which holds what the answer needs and no more.
pub(super) fn run(dispatch: Dispatch<'_>) -> Running<'_> {
    let at_once = |answer| Box::pin(std::future::ready(answer));
    let Some(params) = dispatch.with.downcast_ref::<Params>() else {
        return at_once(Answer::wrong_with(&CONTRACT));
    };
    let exchange = dispatch.host.and_then(|host| host.downcast_ref::<Exchange>());
    let Some(exchange) = exchange else {
        return at_once(no_proxy(&dispatch));
    };
    let Some(upstream) = exchange.site.upstreams.get(params.upstream) else {
        return at_once(no_proxy(&dispatch));
    };
    let own = dispatch.attempt.role == Role::Step;
    if own {
        exchange.count_attempt();
    }
    let endpoint = upstream.pick(exchange.avoided(params.upstream));
    let span = recording::span(exchange);
    let (outgoing, body) = compose(params, &dispatch, exchange, span);
    dispatch.destination.fill(Destination {
        upstream: &upstream.settings.name,
        endpoint: upstream.authority(endpoint),
        more: exchange.traced().and(span).map(|id| {
            let secure = upstream.scheme(endpoint) == Scheme::HTTPS;
            Arc::new(Sent {
                id,
                method: outgoing.method.as_str().into(),
                scheme: if secure { "https" } else { "http" },
                path: outgoing.uri.path().into(),
            }) as _
        }),
    });
    let attempt = Attempt {
        offers: outgoing.upgrade.is_some(),
        passes: own && is_own(&dispatch, exchange),
        repeatable: Repeatable::of(&outgoing.method, &outgoing.fields),
        progress: body.progress(),
        endpoint,
        dispatch,
        params,
        exchange,
        upstream,
        span,
    };
    let Some(mut connection) = upstream.at_hand(endpoint, dispatch.attempt.begun) else {
        return Box::pin(attempt.over_new(outgoing, body));
    };
    match attempt.hand_over(&mut connection, outgoing, body) {
        Ok(()) => Box::pin(attempt.over(connection)),
        Err(lost) => Box::pin(async move { attempt.lost(lost).await }),
    }
}

/// A dispatch outside the proxy: a definition that is run from the command line, say.
fn no_proxy(dispatch: &Dispatch<'_>) -> Answer {
    let message = format!(
        "{}: there is no proxy to send this request: the http provider serves routes",
        dispatch.attempt.step
    );
    Answer {
        outcome: Failure::error(code::CONNECTION_FAILED, message).with_retryable(false).into(),
        metadata: Value::Null,
    }
}

impl Attempt<'_> {
    /// Over a connection that was at hand, when the request was handed over.
    async fn over(self, connection: Connection) -> Answer {
        match self.response(connection).await {
            Ok(answered) => self.got(answered).await,
            // Boxed, as is all that is rare: what is common need not carry it.
            Err(error) => Box::pin(self.failed_over(error)).await,
        }
    }

    /// Over a connection that must first be made, or waited for.
    async fn over_new(self, outgoing: Outgoing<'_>, body: Source) -> Answer {
        let sent = match Box::pin(self.connection()).await {
            Ok(mut connection) => {
                self.hand_over(&mut connection, outgoing, body).map(|()| connection)
            }
            Err(lost) => Err(lost),
        };
        match sent {
            Ok(connection) => self.over(connection).await,
            Err(lost) => Box::pin(self.lost(lost)).await,
        }
    }

    /// The request failed on its connection.
    async fn failed_over(&self, error: Box<SendError>) -> Answer {
        match self.once_more(error).await {
            Ok(answered) => self.got(answered).await,
            Err(lost) => self.lost(lost).await,
        }
    }
}
