//! Makes an attempt: from a dispatch to the response, or to the reason why there is none.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::Method;
use http::uri::Scheme;
use tokio::time::Instant;

use super::CONTRACT;
use super::chosen::Chosen;
use super::compose::{BodySource, compose, is_own};
use super::judge::Judged;
use super::params::Params;
use super::send::{NoResponse, Waiting};
use crate::language::outcome::Failure;
use crate::language::provider::{Answer, Destination, Dispatch, Role};
use crate::language::value::Value;
use crate::proxy::answer::classify::Repeatable;
use crate::proxy::body::request::UploadProgress;
use crate::proxy::boxed::pinned;
use crate::proxy::code;
use crate::proxy::request::exchange::Exchange;
use crate::proxy::request::recording;
use crate::proxy::upstream::connection::Connection;
use crate::proxy::upstream::request_head::RequestHead;
use crate::proxy::upstream::{Upstream, Wanted};
use crate::telemetry::record::SentSpan;
use crate::telemetry::trace::SpanId;

/// Everything about an attempt that does not depend on its outcome.
pub(super) struct Attempt<'a> {
    pub(super) dispatch: Dispatch<'a>,
    pub(super) params: &'a Params,
    pub(super) exchange: &'a Exchange,
    pub(super) upstream: &'a Arc<Upstream>,
    /// The endpoint that it is sent to.
    pub(super) endpoint: Chosen<'a>,
    pub(super) method: Method,
    /// Whether the request is repeatable, by its method or its key.
    pub(super) repeatable: Repeatable,
    /// Whether the request offers to switch the protocol.
    pub(super) offers: bool,
    /// Whether interim responses go to the client.
    pub(super) passes: bool,
    pub(super) progress: UploadProgress,
    /// The span that the upstream sees as its caller.
    pub(super) span: Option<SpanId>,
}

/// An attempt whose request was handed to a connection, to its end. Not an `async` block, which would be larger: every
/// request carries one.
struct Over<'a> {
    /// While the response is awaited.
    waiting: Option<(Waiting, Attempt<'a>)>,
    /// While something rare goes on instead, in a box of its own.
    rare: Option<Running<'a>>,
}

impl<'a> Over<'a> {
    fn new(attempt: Attempt<'a>, connection: Connection) -> Self {
        let waiting = Waiting::new(connection, &attempt);
        Self { waiting: Some((waiting, attempt)), rare: None }
    }

    /// Goes on with what `rest` makes of the attempt.
    fn go_on<F>(&mut self, rest: impl FnOnce(Attempt<'a>) -> F)
    where
        F: Future<Output = Answer> + Send + 'a,
    {
        if let Some((_, attempt)) = self.waiting.take() {
            self.rare = Some(Box::pin(rest(attempt)));
        }
    }
}

impl Future for Over<'_> {
    type Output = Answer;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        let this = self.get_mut();
        if let Some((waiting, attempt)) = &mut this.waiting {
            match ready!(attempt.poll_response(waiting, cx)) {
                Ok(answered) => match attempt.got(answered) {
                    Judged::Done(answer) => return Poll::Ready(answer),
                    Judged::Unread(unread) => {
                        this.go_on(|attempt| async move { attempt.read_on(*unread).await });
                    }
                },
                Err(lost) => {
                    this.go_on(|attempt| async move { attempt.failed_over(lost).await });
                }
            }
        }
        match &mut this.rare {
            Some(rest) => rest.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}

/// A running attempt.
pub(super) type Running<'a> = Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

/// Runs a dispatch.
///
/// Everything that needs no waiting is done here. The common attempt finds an idle connection, so its request
/// is sent before the future exists, which then only holds what the response needs.
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
        let rerun = dispatch.attempt.number > 1 || dispatch.attempt.wait.is_some();
        if let Some(budget) = upstream.common.retry_budget.as_ref().filter(|_| !rerun) {
            budget.count(dispatch.attempt.begun);
        }
    }
    let Some(endpoint) = Chosen::new(&dispatch, exchange, upstream) else {
        return at_once(no_proxy(&dispatch));
    };
    let span = recording::span(exchange);
    let composed = compose(params, &dispatch, exchange, span);
    dispatch.destination.fill(Destination {
        upstream: &upstream.settings.name,
        endpoint: Arc::clone(endpoint.get()) as _,
        unasked: false,
        more: composed.as_ref().ok().zip(exchange.traced().and(span)).map(|((outgoing, _), id)| {
            let secure = endpoint.get().scheme() == Scheme::HTTPS;
            Arc::new(SentSpan {
                id,
                method: outgoing.method.as_str().into(),
                scheme: if secure { "https" } else { "http" },
                path: outgoing.target.path().into(),
            }) as _
        }),
    });
    let (outgoing, body) = match composed {
        Ok(composed) => composed,
        Err(failure) => {
            return at_once(Answer { outcome: (*failure).into(), metadata: Value::Null });
        }
    };
    let attempt = Attempt {
        offers: outgoing.upgrade.is_some(),
        passes: own && is_own(&dispatch, exchange),
        repeatable: Repeatable::of(&outgoing.method, &outgoing.fields),
        method: outgoing.method.clone(),
        progress: body.progress(),
        endpoint,
        dispatch,
        params,
        exchange,
        upstream,
        span,
    };
    let Some(mut connection) = upstream.at_hand(attempt.wanted(), dispatch.attempt.begun) else {
        return pinned(|| attempt.over_new(outgoing, body));
    };
    match attempt.hand_over(&mut connection, (outgoing, body), dispatch.attempt.begun) {
        Ok(()) => pinned(|| Over::new(attempt, connection)),
        Err(lost) => Box::pin(async move { attempt.lost(lost).await }),
    }
}

/// A dispatch outside of the proxy, for example of a definition that is run from the command line.
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
    /// The connection that it needs.
    pub(super) fn wanted(&self) -> Wanted<'_> {
        let ends = self.exchange.ends_for(self.upstream);
        Wanted { endpoint: self.endpoint.get(), ends, waits: self.endpoint.waits() }
    }

    /// Makes or waits for a connection first.
    async fn over_new(self, outgoing: RequestHead<'_>, body: BodySource) -> Answer {
        let sent = match Box::pin(self.connection()).await {
            Ok(mut connection) => {
                let composed = (outgoing, body);
                self.hand_over(&mut connection, composed, Instant::now()).map(|()| connection)
            }
            Err(lost) => Err(lost),
        };
        match sent {
            Ok(connection) => Over::new(self, connection).await,
            Err(lost) => Box::pin(self.lost(lost)).await,
        }
    }

    /// The request got no response on its connection.
    async fn failed_over(&self, lost: NoResponse) -> Answer {
        let answered = match lost {
            NoResponse::Send(error) => self.once_more(error).await,
            lost => Err(lost),
        };
        match answered {
            Ok(answered) => match self.got(answered) {
                Judged::Done(answer) => answer,
                Judged::Unread(unread) => self.read_on(*unread).await,
            },
            Err(lost) => self.lost(lost).await,
        }
    }
}
