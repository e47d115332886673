//! Runs one request, from its arrival to its answer.
//!
//! The future that answers a request is dropped when the client's connection goes. For a route without a
//! cleanup, that is all of the cancellation. Where a cleanup must run whatever happens, the future is a guard:
//! when dropped, it cancels the execution and moves it to a task of its own. There it unwinds, with its
//! cleanups, although nobody waits for its answer.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use http::{Response, Version};
use http_body::Body as _;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::observer::RequestObserver;
use crate::language::code::system;
use crate::language::engine::{self, Alarm, ExecutionId, Start};
use crate::language::outcome::{Failure, FailureType, Outcome};
use crate::language::plan::Plan;
use crate::language::value::Value;
use crate::proxy::answer::body::AnswerBody;
use crate::proxy::answer::{finish, render};
use crate::proxy::body::client::ClientBody;
use crate::proxy::boxed::pinned;
use crate::proxy::code;
use crate::proxy::io::peer::Peer;
use crate::proxy::message::id;
use crate::proxy::message::refusal::Refusal;
use crate::proxy::request::exchange::{Admission, Exchange, Platform};
use crate::proxy::request::flight::Flight;
use crate::proxy::request::head::{self, ReceivedHead};
use crate::proxy::request::interim::InterimTarget;
use crate::proxy::request::recording::{self, RefusedRequest};
use crate::proxy::site::WorkerConfig;
use crate::proxy::stage::Stage;
use crate::proxy::watch::busy::BusyGuard;
use crate::telemetry::events::Events;

/// The future that makes an answer.
pub(crate) type AnswerFuture = Pin<Box<dyn Future<Output = Response<AnswerBody>> + Send>>;

/// Answers a request. Interim responses of upstreams go to `interim`.
///
/// Everything that needs no waiting is done here, so that the future, which gets moved, does not carry the request.
pub(crate) fn serve(
    site: Arc<WorkerConfig>,
    head: Box<ReceivedHead>,
    body: ClientBody,
    client: &Peer,
    busy: BusyGuard,
    interim: InterimTarget,
) -> AnswerFuture {
    let method = head.method.clone();
    let version = head.version;
    let body = recording::captured(&site, &head, body);
    let bodyless = body.is_end_stream();
    let grpc = head::is_grpc(version, &head.headers);
    let address = client.address;
    let refused = RefusedRequest::of(&site, &head, address);
    let asked = Arc::clone(&site);
    let refuse = move |refusal: Refusal, busy: BusyGuard, read: bool| {
        asked.refused(&refusal, address);
        let core = &asked.core;
        let id = core.ids.next(core.clock.now().as_nanos());
        let mut response = render::refuse(&refusal, id::text(&id), &method, grpc);
        render::identify(&mut response, asked.runtime.request_id.as_ref(), &id);
        if !read && version < Version::HTTP_2 {
            finish::closes(response.headers_mut());
        }
        if let Some(refused) = refused {
            let why = (refusal.reason.code(), refusal.detail.as_str());
            refused.deliver(id::text(&id), response.status().as_u16(), why);
        }
        response.body_mut().frees(busy);
        response
    };
    match Exchange::begin(site, head, body, client, interim) {
        Ok(Admission::Whole(exchange)) => pinned(|| answer(exchange, busy, version)),
        Ok(Admission::Unread(unread)) => Box::pin(async move {
            match unread.read().await {
                Ok(exchange) => answer(exchange, busy, version).await,
                Err(refusal) => refuse(refusal, busy, false),
            }
        }),
        Err(refused) => {
            let (refusal, body) = *refused;
            // A body whose client waits for a 100 must not be read: reading sends the 100. HTTP/2 can end a
            // stream without closing its connection.
            let reads = version < Version::HTTP_2 && !refusal.reason.closes() && !body.waits();
            let read = bodyless || reads && finish::read_out(body);
            Box::pin(std::future::ready(refuse(refusal, busy, read)))
        }
    }
}

/// Runs the Flow of `exchange` and renders its Result.
async fn answer(
    exchange: Arc<Exchange>,
    busy: BusyGuard,
    version: Version,
) -> Response<AnswerBody> {
    let flight = Flight::begin(Arc::clone(&exchange));
    let outcome = if exchange.route.facts.unwinds {
        pinned(|| to_its_end(&exchange, &busy)).await
    } else {
        in_place(&exchange, &busy).await
    };
    finish::finish(&exchange, &outcome, busy, flight, version)
}

/// Runs the route's Flow within this future.
async fn in_place(exchange: &Arc<Exchange>, busy: &BusyGuard) -> Outcome {
    let core = &exchange.site.core;
    let mut alarm = busy.take_alarm();
    let outcome = {
        let mut run = pin!(run(exchange, None, Some(&mut alarm)));
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
    busy.keep_alarm(alarm);
    outcome
}

/// Runs the route's Flow to its end, even if this future is dropped.
async fn to_its_end(exchange: &Arc<Exchange>, busy: &BusyGuard) -> Outcome {
    let cancel = exchange.site.core.cancel.child_token();
    exchange.cancelled_by(cancel.clone());
    let left = Some(Arc::clone(exchange));
    let exchange = Arc::clone(exchange);
    let mut alarm = busy.take_alarm();
    let cancelled = cancel.clone();
    let running = async move {
        let unwinds = UnwindGuard::begin(exchange);
        let outcome = run(&unwinds.exchange, Some(cancelled), Some(&mut alarm)).await;
        unwinds.done();
        (outcome, alarm)
    };
    let unwinding = Unwinding { running: Some(Box::pin(running)), cancel, exchange: left };
    let Some((outcome, alarm)) = unwinding.await else {
        tracing::error!("An execution ended without a Result.");
        let message = "the execution ended without a Result: a mistake in the proxy";
        return Failure::error(code::INTERNAL, message).into();
    };
    busy.keep_alarm(alarm);
    outcome
}

async fn run(
    exchange: &Arc<Exchange>,
    cancel: Option<CancellationToken>,
    alarm: Option<&mut Alarm>,
) -> Outcome {
    let route = &exchange.route;
    let platform = if route.plan.needs().platform {
        Value::Native(Arc::new(Platform(Arc::clone(exchange))))
    } else {
        Value::Null
    };
    let begun = || (exchange.subject(), exchange.method.as_str(), exchange.path());
    let events = Events::begin(begun, &route.name);
    let stage = exchange.site.runtime.stage.as_deref();
    let observer = (RequestObserver(exchange), (events.as_deref(), stage));
    let mut start = Start {
        id: ExecutionId(exchange.id.as_bytes()),
        platform,
        clock: exchange.site.core.clock,
        observer: &observer,
        host: Some(exchange.as_ref()),
        gate: Some(&***route),
        cancel,
        alarm,
        cleanup_limit: exchange.site.runtime.limits.cleanup,
        gives_up_early: true,
    };
    let input = Value::Native(Arc::clone(exchange) as _);
    let arguments = route.arguments.clone();
    let outcome = match stage {
        None => engine::run(&route.plan, &mut start, arguments, input).await,
        Some(stage) => pinned(|| rehearsed(stage, &route.plan, &mut start, arguments, input)).await,
    };
    if let Some(events) = &events {
        events.done(&outcome);
    }
    exchange.ended(&outcome);
    outcome
}

/// The same on a stage.
async fn rehearsed(
    stage: &Stage,
    plan: &Plan,
    start: &mut Start<'_>,
    arguments: Value,
    input: Value,
) -> Outcome {
    let outcome = stage.play_out(engine::run(plan, start, arguments, input)).await;
    stage.settled(&outcome);
    outcome
}

/// An execution that runs to its end. If this is dropped earlier, the execution is cancelled and unwinds on its
/// own task.
///
/// So the usual execution, whose client waits for the answer, needs no task beside its connection's.
struct Unwinding<F: Future<Output: Send> + Send + 'static> {
    running: Option<Pin<Box<F>>>,
    cancel: CancellationToken,
    /// Whose execution it is.
    exchange: Option<Arc<Exchange>>,
}

/// `None` stands for a panic.
impl<F: Future<Output: Send> + Send + 'static> Future for Unwinding<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(running) = &mut self.running else {
            return Poll::Ready(None);
        };
        let polled = catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(cx)));
        let output = match polled {
            Ok(polled) => Some(ready!(polled)),
            Err(_panic) => None,
        };
        self.running = None;
        Poll::Ready(output)
    }
}

impl<F: Future<Output: Send> + Send + 'static> Drop for Unwinding<F> {
    fn drop(&mut self) {
        let Some(running) = self.running.take() else {
            return;
        };
        self.cancel.cancel();
        // Without a runtime the process is ending. The execution then reports what is lost.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(go_on(running, self.exchange.take()));
        }
    }
}

/// Runs an execution to its end although its client has left, as long as `limits.cleanups` allows.
async fn go_on(running: impl Future, exchange: Option<Arc<Exchange>>) {
    let Some(exchange) = exchange else {
        running.await;
        return;
    };
    let Exchange { site, route, .. } = &*exchange;
    route.metrics.cleanup_begins();
    let cut = || exchange.cut_off.store(true, Ordering::Relaxed);
    site.core.departed.run(site.runtime.cleanups, running, cut).await;
    route.metrics.cleanup_ends();
}

/// An execution with a cleanup that must run. If it is dropped before that, which the end of the process may
/// do, it reports whose cleanups were lost.
struct UnwindGuard {
    exchange: Arc<Exchange>,
    done: bool,
}

impl UnwindGuard {
    fn begin(exchange: Arc<Exchange>) -> Self {
        exchange.site.core.unwinds();
        Self { exchange, done: false }
    }

    fn done(mut self) {
        self.done = true;
    }
}

impl Drop for UnwindGuard {
    fn drop(&mut self) {
        self.exchange.site.core.unwound();
        if self.done {
            return;
        }
        let Exchange { route, site, cut_off, .. } = &*self.exchange;
        route.metrics.finally_unfinished();
        if cut_off.load(Ordering::Relaxed) {
            if let Some(untold) = route.cut_cleanups.admits(Instant::now()) {
                let (route, limit) = (&*route.name, site.runtime.limits.cleanups);
                tracing::error!(route, limit, untold, "A cleanup was cut off (limits.cleanups).");
            }
            return;
        }
        let (execution, route) = (self.exchange.id(), &*route.name);
        tracing::error!(execution, route, "An execution was dropped before its cleanups had run.");
    }
}

/// The Result of a request without cleanups that was running when the process stopped.
fn cancelled() -> Outcome {
    let failure = Failure {
        ty: FailureType::Cancellation,
        ..Failure::error(system::CANCELLED, "the proxy stopped before the request ended")
    };
    failure.into()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;
    use tokio::time::sleep;

    use super::*;

    /// An execution that takes a second or, once it is cancelled, one more second for its cleanup.
    async fn execution(cancel: CancellationToken, ended: oneshot::Sender<&'static str>) -> u8 {
        let how = tokio::select! {
            () = sleep(Duration::from_secs(1)) => "done",
            () = cancel.cancelled() => {
                sleep(Duration::from_secs(1)).await;
                "cancelled and cleaned up"
            }
        };
        ended.send(how).unwrap();
        7
    }

    fn unwinding() -> (Unwinding<impl Future<Output = u8> + Send>, oneshot::Receiver<&'static str>)
    {
        let (cancel, (ended, heard)) = (CancellationToken::new(), oneshot::channel());
        let running = Some(Box::pin(execution(cancel.clone(), ended)));
        (Unwinding { running, cancel, exchange: None }, heard)
    }

    #[tokio::test(start_paused = true)]
    async fn an_execution_that_is_waited_for_runs_where_it_is() {
        let (unwinding, heard) = unwinding();
        assert_eq!(unwinding.await, Some(7));
        assert_eq!(heard.await.unwrap(), "done");
    }

    #[tokio::test(start_paused = true)]
    async fn an_execution_that_is_dropped_unwinds_elsewhere() {
        let (unwinding, heard) = unwinding();
        tokio::select! {
            _ = unwinding => unreachable!(),
            () = sleep(Duration::from_millis(500)) => {}
        }
        assert_eq!(heard.await.unwrap(), "cancelled and cleaned up");
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_ends_an_execution_and_not_its_connection() {
        let running = Some(Box::pin(async { assert!(std::hint::black_box(false)) }));
        let unwinding = Unwinding { running, cancel: CancellationToken::new(), exchange: None };
        assert_eq!(unwinding.await, None);
    }
}
