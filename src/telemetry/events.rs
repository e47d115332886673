//! Execution events: one JSON object for each step of an execution, written to the log's target
//! `mwl::execution` and sent to whoever listens.
//!
//! Without a listener, an execution does not even have a reporter: [`Events::begin`] returns `None` after one
//! atomic load. A listener that is too slow misses events and is told how many. It never delays a request.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use serde_json::{Value as Json, json};
use tokio::sync::broadcast;
use tokio::time::Instant;

use super::aside::is_aside;
use super::record::{Call, RequestId, short, status};
use crate::language::clock::Clock;
use crate::language::code::system;
use crate::language::observe::{Caught, End, Ended, EntryPlace, Event, Observer, Retry};
use crate::language::outcome::{Failure, Outcome};
use crate::language::provider::{Attempt, Role, Wait};
use crate::language::temporal::Span;

/// How many events a listener's queue holds.
const BEHIND: usize = 1024;

/// The event of a response that broke off after its head.
pub(super) const TRUNCATED: &str = "response.truncated";

/// Sends the events of all executions to the listeners.
static LISTENERS: LazyLock<broadcast::Sender<Arc<Json>>> =
    LazyLock::new(|| broadcast::channel(BEHIND).0);

/// The number of listeners, including the log if it wants events. Every execution reads it, so it does not use
/// the channel's lock.
static LISTENING: AtomicUsize = AtomicUsize::new(0);

/// Whether the log wants events.
static LOGGED: AtomicBool = AtomicBool::new(false);

/// Receives the events of all executions while it lives.
#[derive(Debug)]
pub struct Listener(broadcast::Receiver<Arc<Json>>);

/// What a listener receives.
#[derive(Clone, Debug)]
pub enum TapMessage {
    /// An event.
    Event(Arc<Json>),
    /// This many events were missed, because the listener was too slow.
    Missed(u64),
}

/// The execution of an event.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Its id, which the client may have given, to several requests even.
    pub execution: &'a str,
    /// The id of its request in records.
    pub request: RequestId,
    /// Its route.
    pub route: &'a str,
}

/// Reports the events of one execution.
#[derive(Debug)]
pub struct Events {
    id: Arc<str>,
    request: RequestId,
    route: Arc<str>,
    begun: Instant,
    /// How many calls of the Steps themselves (not of cleanups) were dispatched.
    attempts: AtomicU32,
    /// How many failures a `catch` took.
    caught: AtomicU32,
    /// Whether the end of the execution was reported.
    done: AtomicBool,
}

/// Sets whether the log wants events. The log calls it when it starts.
pub(super) fn logged(wanted: bool) {
    if LOGGED.swap(wanted, Ordering::Relaxed) == wanted {
        return;
    }
    if wanted {
        LISTENING.fetch_add(1, Ordering::Relaxed);
    } else {
        LISTENING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether anybody hears an event of this thread.
fn is_heard() -> bool {
    LISTENING.load(Ordering::Relaxed) != 0 && !is_aside()
}

/// The request of `attempt` was sent again on a new connection, because a reused one had died.
pub fn resent(subject: Subject<'_>, attempt: &Attempt<'_>, (upstream, endpoint): (&str, &str)) {
    if !is_heard() {
        return;
    }
    let mut members = json!(Call::of(attempt));
    put(&mut members, "upstream", upstream);
    put(&mut members, "endpoint", endpoint);
    put(&mut members, "reason", "staleConnection");
    tell("attempt.resent", subject, members);
}

/// The upstream broke a response off after its head, which had this `status`. The execution has ended by then.
pub fn truncated(
    subject: Subject<'_>,
    (upstream, endpoint): (&str, &str),
    code: &str,
    status: u16,
) {
    if !is_heard() {
        return;
    }
    let members = json!({
        "upstream": upstream, "endpoint": endpoint, "type": "error", "code": code, "status": status,
    });
    tell(TRUNCATED, subject, members);
}

/// Starts to listen to the events of all executions, for `/tap`.
pub fn listen() -> Listener {
    LISTENING.fetch_add(1, Ordering::Relaxed);
    Listener(LISTENERS.subscribe())
}

impl Listener {
    /// Waits for the next event, or the number of events missed before it.
    pub async fn next(&mut self) -> TapMessage {
        loop {
            match self.0.recv().await {
                Ok(event) => return TapMessage::Event(event),
                Err(broadcast::error::RecvError::Lagged(missed)) => {
                    return TapMessage::Missed(missed);
                }
                // The sender is a static, so the channel never closes.
                Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
            }
        }
    }

    /// The same, if there is one now.
    pub fn try_next(&mut self) -> Option<TapMessage> {
        match self.0.try_recv() {
            Ok(event) => Some(TapMessage::Event(event)),
            Err(broadcast::error::TryRecvError::Lagged(missed)) => Some(TapMessage::Missed(missed)),
            Err(_) => None,
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        LISTENING.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Events {
    /// The reporter of an execution that starts now, if anybody listens: what it is, its method and path, and its route.
    pub fn begin<'a>(
        request: impl FnOnce() -> (Subject<'a>, &'a str, &'a str),
        route: &Arc<str>,
    ) -> Option<Box<Self>> {
        if !is_heard() {
            return None;
        }
        let (Subject { execution, request, route: _ }, method, path) = request();
        let events = Self {
            id: execution.into(),
            request,
            route: Arc::clone(route),
            begun: Instant::now(),
            attempts: AtomicU32::new(0),
            caught: AtomicU32::new(0),
            done: AtomicBool::new(false),
        };
        let begun = json!({ "method": short(method), "path": short(path) });
        events.report("execution.started", begun);
        // Boxed, so that an execution without listeners carries only one word.
        Some(Box::new(events))
    }

    /// Reports the execution's Result. Dropped without one, it was cancelled.
    pub fn done(&self, outcome: &Outcome) {
        let mut event = json!({});
        describe(&mut event, outcome);
        self.end(event);
    }

    fn end(&self, mut event: Json) {
        self.done.store(true, Ordering::Relaxed);
        put(&mut event, "attempts", self.attempts.load(Ordering::Relaxed));
        let caught = self.caught.load(Ordering::Relaxed);
        if caught > 0 {
            put(&mut event, "caught", caught);
        }
        put(&mut event, "duration", self.begun.elapsed().as_secs_f64());
        self.report("execution.done", event);
    }

    fn report(&self, name: &str, members: Json) {
        let subject = Subject { execution: &self.id, request: self.request, route: &self.route };
        tell(name, subject, members);
    }

    fn started(&self, attempt: &Attempt<'_>) {
        if attempt.role == Role::Step {
            self.attempts.fetch_add(1, Ordering::Relaxed);
        }
        self.report("attempt.started", json!(Call::of(attempt)));
    }

    fn ended(&self, ended: &Ended<'_>) {
        let mut event = json!(Call::of(ended.attempt));
        put(&mut event, "duration", ended.took.as_secs_f64());
        if let Some(destination) = ended.destination {
            put(&mut event, "upstream", &**destination.upstream);
            put(&mut event, "endpoint", &**destination.endpoint.name());
        }
        match ended.end {
            End::Accepted(outcome) => describe(&mut event, outcome),
            End::Interrupted(_) => {
                put(&mut event, "code", ended.code());
                put(&mut event, "interrupted", true);
            }
        }
        if let Some(status) = status(&ended.end) {
            put(&mut event, "status", status);
        }
        let done = ended.code().is_none();
        self.report(if done { "attempt.done" } else { "attempt.failed" }, event);
    }

    fn scheduled(&self, retry: &Retry<'_>) {
        let Wait { delay, source, policy } = retry.wait;
        let members = json!({
            "step": retry.step,
            "code": retry.failure.code.as_str(),
            "policy": policy,
            "delay": Span::from_duration(delay).to_string(),
            "source": source.as_str(),
        });
        self.report("retry.scheduled", members);
    }

    fn gave_up(&self, entry: EntryPlace<'_>, failure: &Failure) {
        let mut event = at_entry(entry, failure);
        if let Some(details) = &failure.details {
            for member in ["policy", "attempts", "reason"] {
                if let Some(value) = details.get(member) {
                    put(&mut event, member, value.to_json());
                }
            }
        }
        self.report("retry.exhausted", event);
    }
}

impl Observer for Events {
    fn on(&self, event: &Event<'_>) {
        match *event {
            Event::AttemptStarted(attempt) => self.started(attempt),
            Event::AttemptEnded(ended) => self.ended(ended),
            Event::RetryScheduled(retry) => self.scheduled(retry),
            Event::PassedOver(passed) => {
                let mut event = at_entry(passed.entry, passed.failure);
                put(&mut event, "reason", passed.reason());
                if let Some(retryable) = passed.failure.retryable {
                    put(&mut event, "retryable", retryable);
                }
                self.report("retry.passed", event);
            }
            Event::Refused { entry, failure } => {
                self.report("middleware.refused", at_entry(entry, failure));
            }
            Event::GaveUp { entry, failure } => self.gave_up(entry, failure),
            Event::TimeoutExceeded { entry, emitted } => {
                self.report("timeout.exceeded", at_entry(entry, emitted));
            }
            Event::Caught(&Caught { step, failure, next, cleanup }) => {
                self.caught.fetch_add(1, Ordering::Relaxed);
                let code = failure.code.as_str();
                let mut event = json!({ "step": step, "code": code, "next": next });
                if cleanup {
                    put(&mut event, "cleanup", true);
                }
                self.report("failure.caught", event);
            }
            Event::Faulted { step, failure } => {
                let members = json!({ "step": step, "code": failure.code.as_str() });
                self.report("definition.faulted", members);
            }
            Event::CleanupDone { step, outcome, caught } => {
                let done = outcome.is_success();
                let mut event = json!({ "step": step });
                describe(&mut event, outcome);
                if done && caught {
                    put(&mut event, "degraded", true);
                }
                self.report(if done { "finally.done" } else { "finally.failed" }, event);
            }
            Event::Decided { .. } | Event::RetryMade { .. } | Event::RetryDropped { .. } => {}
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        if !self.done.load(Ordering::Relaxed) {
            self.end(json!({ "type": "cancellation", "code": system::CANCELLED }));
        }
    }
}

fn tell(name: &str, subject: Subject<'_>, members: Json) {
    let time = Clock::system().now().to_string();
    let Subject { execution, request, route } = subject;
    let request = request.to_string();
    let mut event = json!({
        "event": name, "time": time, "execution": execution, "request": request, "route": route,
    });
    if let (Json::Object(event), Json::Object(members)) = (&mut event, members) {
        event.extend(members);
    }
    if LOGGED.load(Ordering::Relaxed) {
        log(&event);
    }
    // An error means that nobody listens.
    LISTENERS.send(Arc::new(event)).ok();
}

/// Writes one log line, with the members as fields of their own.
fn log(event: &Json) {
    let text = |name: &str| event.get(name).and_then(Json::as_str);
    let number = |name: &str| event.get(name).and_then(Json::as_u64);
    let flag = |name: &str| event.get(name).and_then(Json::as_bool);
    tracing::info!(
        target: "mwl::execution",
        event = text("event"),
        execution = text("execution"),
        request = text("request"),
        route = text("route"),
        step = text("step"),
        entry = text("entry"),
        next = text("next"),
        upstream = text("upstream"),
        endpoint = text("endpoint"),
        attempt = number("attempt"),
        dispatch = number("dispatch"),
        cleanup = flag("cleanup"),
        interrupted = flag("interrupted"),
        "type" = text("type"),
        code = text("code"),
        status = number("status"),
        policy = number("policy"),
        delay = text("delay"),
        source = text("source"),
        attempts = number("attempts"),
        reason = text("reason"),
        retryable = flag("retryable"),
        caught = number("caught"),
        degraded = flag("degraded"),
        duration = event.get("duration").and_then(Json::as_f64),
    );
}

/// What an entry did because of `failure`.
fn at_entry(entry: EntryPlace<'_>, failure: &Failure) -> Json {
    json!({ "step": entry.step, "entry": entry.to_string(), "code": failure.code.as_str() })
}

/// The type of the Result and a failure's code. Values and messages may contain clients' data.
fn describe(event: &mut Json, outcome: &Outcome) {
    match outcome {
        Outcome::Success(_) => put(event, "type", "success"),
        Outcome::Failure(failure) => {
            put(event, "type", failure.ty.as_str());
            put(event, "code", failure.code.as_str());
        }
    }
}

fn put(event: &mut Json, key: &str, value: impl Into<Json>) {
    if let Json::Object(event) = event {
        event.insert(key.to_owned(), value.into());
    }
}

#[cfg(test)]
mod tests;
