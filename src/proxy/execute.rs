//! One request, from its arrival to its answer.
//!
//! The HTTP library drops a service's future when the client's connection goes. For a route without a
//! cleanup that is all the cancellation there is to do, and its Flow runs in place. Where something must
//! run whatever happens, the Flow runs on a task of its own, and what is dropped is a guard that cancels
//! it: the task unwinds, cleanups included, though nobody waits for its answer.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use http::{Request, Response, Version, header};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;

use super::body::answer::AnswerBody;
use super::connection::{Busy, ClientBody, Peer};
use super::finish::{self, Answered};
use super::flight::Flight;
use super::observer::RequestObserver;
use super::recording::Refused;
use super::refusal::Refusal;
use super::request::{Begun, Exchange, Platform, Upload};
use super::site::Site;
use super::{head, id, render};
use crate::language::code::system;
use crate::language::engine::{self, Alarm, Start};
use crate::language::observe::{Both, Observer};
use crate::language::outcome::{Failure, FailureType, Outcome};
use crate::language::value::Value;
use crate::telemetry::events::Events;

/// An answer that is being made.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Response<AnswerBody>> + Send>>;

/// Answers `request`.
///
/// What needs no waiting is done here, so that the future, which the HTTP library moves about, need not
/// carry the request.
pub(crate) fn serve(
    site: Arc<Site>,
    mut request: Request<Incoming>,
    client: Peer,
    busy: Busy,
) -> Answering {
    if request.version() == Version::HTTP_11
        && let Some(near) = request.extensions_mut().remove::<OnUpgrade>()
    {
        busy.may_switch(near);
    }
    let method = request.method().clone();
    let version = request.version();
    let expects = request.headers().contains_key(header::EXPECT);
    let bodyless = request.body().is_end_stream();
    let grpc = head::is_grpc(request.version(), request.headers());
    let refused = Refused::of(&site, &request, client.address);
    let asked = Arc::clone(&site);
    let refuse = move |refusal: Refusal, busy: Busy, read: bool| {
        asked.runtime.refused(refusal.reason, client.address, &refusal.detail);
        let core = &asked.core;
        let id = core.ids.next(core.clock.now().as_nanos());
        let busy = busy.answers(if read { ClientBody::Read } else { ClientBody::Unread });
        let mut response = render::refuse(&refusal, id::text(&id), &method, grpc);
        if !read && version < Version::HTTP_2 {
            finish::closes(response.headers_mut());
        }
        if let Some(refused) = refused {
            let why = (refusal.code, refusal.detail.as_str());
            refused.deliver(id::text(&id), response.status().as_u16(), why);
        }
        response.body_mut().frees(busy);
        response
    };
    let interim = busy.interim(version);
    match Exchange::begin(site, request, client, interim) {
        Ok(Begun::Whole(exchange)) => Box::pin(answer(exchange, busy, version)),
        Ok(Begun::Unread(unread)) => Box::pin(async move {
            match unread.read().await {
                Ok(exchange) => answer(exchange, busy, version).await,
                Err(refusal) => refuse(refusal, busy, false),
            }
        }),
        Err(refused) if bodyless => Box::pin(std::future::ready(refuse(refused.0, busy, true))),
        Err(refused) => Box::pin(async move {
            let (refusal, body) = *refused;
            // What is asked for by being read is not read; and HTTP/2 ends a stream without its connection.
            let reads = version < Version::HTTP_2 && !refusal.close && !expects;
            let read = reads && finish::read_out(body).await;
            refuse(refusal, busy, read)
        }),
    }
}

/// Runs the Flow of `exchange` and renders what it comes to.
async fn answer(exchange: Arc<Exchange>, busy: Busy, version: Version) -> Response<AnswerBody> {
    let busy = match &exchange.upload {
        Upload::None | Upload::Buffered { .. } => busy,
        Upload::Stream(source) => busy.answers(ClientBody::Stream(Arc::clone(source))),
    };
    let flight = Flight::begin(Arc::clone(&exchange));
    let outcome = if exchange.route.facts.unwinds {
        Box::pin(apart(&exchange)).await
    } else {
        in_place(&exchange, &busy).await
    };
    match finish::finish(&exchange, &outcome, busy, flight, version) {
        Answered::Now(response) => response,
        Answered::Later(later) => later.await,
    }
}

/// Runs the route's Flow within this future.
async fn in_place(exchange: &Arc<Exchange>, busy: &Busy) -> Outcome {
    let core = &exchange.site.core;
    let mut alarm = exchange.route.facts.bounds.then(|| busy.take_alarm());
    let outcome = {
        let mut run = pin!(run(exchange, None, alarm.as_mut()));
        std::future::poll_fn(|cx| {
            if core.is_cut() {
                let outcome = cancelled();
                exchange.ended(&outcome);
                return Poll::Ready(outcome);
            }
            run.as_mut().poll(cx)
        })
        .await
    };
    if let Some(alarm) = alarm {
        busy.keep_alarm(alarm);
    }
    outcome
}

/// Runs the route's Flow on a task of its own.
async fn apart(exchange: &Arc<Exchange>) -> Outcome {
    let cancel = exchange.site.core.cancel.child_token();
    let guard = cancel.clone().drop_guard();
    exchange.cancelled_by(cancel.clone());
    let exchange = Arc::clone(exchange);
    let task = tokio::spawn(async move {
        let unwinds = Unwinds::begin(exchange);
        let outcome = run(&unwinds.exchange, Some(cancel), None).await;
        unwinds.done();
        outcome
    });
    let joined = task.await;
    // The execution is over: there is nothing left to cancel.
    drop(guard.disarm());
    joined.unwrap_or_else(|error| {
        tracing::error!(error = %error, "An execution ended without a Result.");
        let message = "the execution ended without a Result: a mistake in the proxy";
        Failure::error("Proxy.Internal", message).into()
    })
}

async fn run(
    exchange: &Arc<Exchange>,
    cancel: Option<tokio_util::sync::CancellationToken>,
    alarm: Option<&mut Alarm>,
) -> Outcome {
    let route = &exchange.route;
    let platform = if route.plan.needs().platform {
        Value::Native(Arc::new(Platform(Arc::clone(exchange))))
    } else {
        Value::Null
    };
    let events = Events::begin(exchange.id(), &route.name);
    let counted = RequestObserver(exchange);
    let both = events.as_deref().map(|events| Both(&counted, events));
    let stage = exchange.site.runtime.stage.as_deref();
    let staged = stage.map(|stage| Both(&counted, stage));
    let observer: &dyn Observer = match (&staged, &both) {
        (Some(staged), _) => staged,
        (None, Some(both)) => both,
        (None, None) => &counted,
    };
    let start = Start {
        id: exchange.id(),
        platform,
        clock: exchange.site.core.clock,
        observer,
        host: Some(exchange.as_ref()),
        cancel,
        alarm,
        cleanup_limit: exchange.site.runtime.limits.cleanup,
    };
    let input = Value::Native(Arc::clone(exchange) as _);
    let arguments = route.arguments.clone();
    let outcome = match stage {
        None => engine::run(&route.plan, start, arguments, input).await,
        Some(stage) => {
            let running = engine::run(&route.plan, start, arguments, input);
            let outcome = Box::pin(stage.play_out(running)).await;
            stage.settled(&outcome);
            outcome
        }
    };
    if let Some(events) = &events {
        events.done(&outcome);
    }
    exchange.ended(&outcome);
    outcome
}

/// An execution with something that must run whatever happens. Dropped before it is done, as the end of
/// the process may do, it says whose cleanups were lost.
struct Unwinds {
    exchange: Arc<Exchange>,
    done: bool,
}

impl Unwinds {
    fn begin(exchange: Arc<Exchange>) -> Self {
        exchange.site.core.unwinds();
        Self { exchange, done: false }
    }

    fn done(mut self) {
        self.done = true;
    }
}

impl Drop for Unwinds {
    fn drop(&mut self) {
        self.exchange.site.core.unwound();
        if self.done {
            return;
        }
        let Exchange { route, .. } = &*self.exchange;
        route.metrics.finally_unfinished();
        let (execution, route) = (self.exchange.id(), &*route.name);
        tracing::error!(execution, route, "An execution was dropped before its cleanups had run.");
    }
}

/// What a request that had nothing to unwind comes to when the process stops before it ended.
fn cancelled() -> Outcome {
    let failure = Failure {
        ty: FailureType::Cancellation,
        ..Failure::error(system::CANCELLED, "the proxy stopped before the request ended")
    };
    failure.into()
}
