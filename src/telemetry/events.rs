//! Execution events: one JSON line for each thing that an execution does, at the log's target
//! `mwl::execution`, and for whoever listens.
//!
//! Off unless somebody asks, and then an execution does not even have a reporter: [`Events::begin`] gives
//! `None` after one load. A listener that cannot keep up misses events and is told how many; it never
//! holds a request back.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value as Json, json};
use tokio::sync::broadcast;
use tokio::time::Instant;

use crate::language::clock::process_clock;
use crate::language::code::system;
use crate::language::observe::{Attempt, Observer, Retry};
use crate::language::outcome::{Failure, Outcome};
use crate::language::provider::Role;
use crate::language::temporal::Span;
use crate::language::value::Value;

/// How many events a listener may be behind.
const BEHIND: usize = 1024;

/// Whoever listens to the events of all executions.
static LISTENERS: LazyLock<broadcast::Sender<Arc<Json>>> =
    LazyLock::new(|| broadcast::channel(BEHIND).0);

/// How many they are, the log being one where it has the events: asked by every execution, so without
/// the channel's lock.
static LISTENING: AtomicUsize = AtomicUsize::new(0);

/// Whether the log has them.
static LOGGED: AtomicBool = AtomicBool::new(false);

/// Hears the events of all executions, as long as it lives.
#[derive(Debug)]
pub struct Listener(broadcast::Receiver<Arc<Json>>);

/// What a listener hears next.
#[derive(Clone, Debug)]
pub enum Heard {
    /// An event.
    Event(Arc<Json>),
    /// It was too slow for this many.
    Missed(u64),
}

/// Reports the events of one execution.
#[derive(Debug)]
pub struct Events {
    id: Arc<str>,
    route: Arc<str>,
    begun: Instant,
    /// How many of the Steps' own calls were dispatched.
    attempts: AtomicU32,
    /// When the calls that run were dispatched; several only in a `Gather`.
    running: Mutex<Vec<Running>>,
    /// Whether its end was told.
    done: AtomicBool,
}

/// A call under way.
#[derive(Debug)]
struct Running {
    step: Box<str>,
    number: u32,
    role: Role,
    begun: Instant,
}

/// Whether the log has the events: told by the log when it starts.
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

/// A request was sent again on a fresh connection, because a reused one had died under it.
pub fn resent(execution: &str, route: &str, upstream: &str, endpoint: &str) {
    if LISTENING.load(Ordering::Relaxed) == 0 {
        return;
    }
    let members = json!({
        "upstream": upstream,
        "endpoint": endpoint,
        "reason": "staleConnection",
    });
    tell("attempt.resent", execution, route, members);
}

/// Listens to the events of all executions from now on: for `/tap`.
pub fn listen() -> Listener {
    LISTENING.fetch_add(1, Ordering::Relaxed);
    Listener(LISTENERS.subscribe())
}

impl Listener {
    /// The next event, or how many were missed before it.
    pub async fn next(&mut self) -> Heard {
        loop {
            match self.0.recv().await {
                Ok(event) => return Heard::Event(event),
                Err(broadcast::error::RecvError::Lagged(missed)) => return Heard::Missed(missed),
                // The sender is the process's own: it never closes.
                Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        LISTENING.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Events {
    /// The reporter of an execution that starts now, where anybody asks for one.
    pub fn begin<'a>(id: impl FnOnce() -> &'a str, route: &Arc<str>) -> Option<Box<Self>> {
        if LISTENING.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let id = id();
        let events = Self {
            id: id.into(),
            route: Arc::clone(route),
            begun: Instant::now(),
            attempts: AtomicU32::new(0),
            running: Mutex::default(),
            done: AtomicBool::new(false),
        };
        events.report("execution.started", json!({}));
        // Boxed: an execution that nobody listens to carries one word of it.
        Some(Box::new(events))
    }

    /// The execution came to its Result. Dropped without one, it was cancelled.
    pub fn done(&self, outcome: &Outcome) {
        self.end(described(outcome));
    }

    fn end(&self, mut event: Json) {
        self.done.store(true, Ordering::Relaxed);
        put(&mut event, "attempts", self.attempts.load(Ordering::Relaxed));
        put(&mut event, "duration", seconds(self.begun.elapsed()));
        self.report("execution.done", event);
    }

    fn report(&self, name: &str, members: Json) {
        tell(name, &self.id, &self.route, members);
    }

    fn attempt(&self, name: &str, attempt: &Attempt<'_>, mut members: Json) {
        put(&mut members, "step", attempt.step);
        put(&mut members, "attempt", attempt.number);
        if attempt.role == Role::Cleanup {
            put(&mut members, "cleanup", true);
        }
        if let Some(took) = self.ended(attempt) {
            put(&mut members, "duration", seconds(took));
        }
        self.report(name, members);
    }

    /// How long the attempt ran, where it was seen to start.
    fn ended(&self, attempt: &Attempt<'_>) -> Option<Duration> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let this = |call: &Running| {
            *call.step == *attempt.step
                && call.number == attempt.number
                && call.role == attempt.role
        };
        let found = running.iter().position(this);
        found.map(|place| running.swap_remove(place).begun.elapsed())
    }
}

impl Observer for Events {
    fn attempt_started(&self, attempt: &Attempt<'_>) {
        if attempt.role == Role::Step {
            self.attempts.fetch_add(1, Ordering::Relaxed);
        }
        self.attempt("attempt.started", attempt, json!({}));
        let started = Running {
            step: attempt.step.into(),
            number: attempt.number,
            role: attempt.role,
            begun: Instant::now(),
        };
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.push(started);
    }

    fn attempt_done(&self, attempt: &Attempt<'_>, outcome: &Outcome) {
        let name = if outcome.is_success() { "attempt.done" } else { "attempt.failed" };
        let mut event = described(outcome);
        let from = match outcome {
            Outcome::Success(value) => value.get("status"),
            Outcome::Failure(failure) => failure.details.as_ref().and_then(|d| d.get("status")),
        };
        if let Some(status) = from.as_ref().and_then(Value::as_u64) {
            put(&mut event, "status", status);
        }
        self.attempt(name, attempt, event);
    }

    fn attempt_interrupted(&self, attempt: &Attempt<'_>, explanation: Option<&Failure>) {
        let code = explanation.map_or(system::CANCELLED, |failure| failure.code.as_str());
        self.attempt("attempt.failed", attempt, json!({ "code": code, "interrupted": true }));
    }

    fn retry_scheduled(&self, retry: &Retry<'_>) {
        self.report(
            "retry.scheduled",
            json!({
                "step": retry.step,
                "code": retry.failure.code.as_str(),
                "policy": retry.policy,
                "delay": Span::from_duration(retry.delay).to_string(),
                "source": retry.source.as_str(),
            }),
        );
    }

    fn gave_up(&self, step: &str, failure: &Arc<Failure>) {
        let mut event = json!({ "step": step, "code": failure.code.as_str() });
        if let Some(details) = &failure.details {
            for member in ["policy", "attempts", "reason"] {
                if let Some(value) = details.get(member) {
                    put(&mut event, member, value.to_json());
                }
            }
        }
        self.report("retry.exhausted", event);
    }

    fn timeout_exceeded(&self, step: &str, emitted: &Arc<Failure>) {
        let event = json!({ "step": step, "code": emitted.code.as_str() });
        self.report("timeout.exceeded", event);
    }

    fn cleanup_done(&self, step: &str, outcome: &Outcome) {
        let name = if outcome.is_success() { "finally.done" } else { "finally.failed" };
        let mut event = described(outcome);
        put(&mut event, "step", step);
        self.report(name, event);
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        if !self.done.load(Ordering::Relaxed) {
            self.end(json!({ "type": "cancellation", "code": system::CANCELLED }));
        }
    }
}

fn tell(name: &str, execution: &str, route: &str, members: Json) {
    let time = process_clock().now().to_string();
    let mut event = json!({ "event": name, "time": time, "execution": execution, "route": route });
    if let (Json::Object(event), Json::Object(members)) = (&mut event, members) {
        event.extend(members);
    }
    if LOGGED.load(Ordering::Relaxed) {
        log(&event);
    }
    // An error means that nobody listens.
    LISTENERS.send(Arc::new(event)).ok();
}

/// One line of the log: the members as fields of their own, so that the line is flat.
fn log(event: &Json) {
    let text = |name: &str| event.get(name).and_then(Json::as_str);
    let number = |name: &str| event.get(name).and_then(Json::as_u64);
    let flag = |name: &str| event.get(name).and_then(Json::as_bool);
    tracing::info!(
        target: "mwl::execution",
        event = text("event"),
        execution = text("execution"),
        route = text("route"),
        step = text("step"),
        upstream = text("upstream"),
        endpoint = text("endpoint"),
        attempt = number("attempt"),
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
        duration = event.get("duration").and_then(Json::as_f64),
    );
}

/// The Result's type and, of a failure, its code. Values and messages may hold what belongs to clients.
fn described(outcome: &Outcome) -> Json {
    match outcome {
        Outcome::Success(_) => json!({ "type": "success" }),
        Outcome::Failure(failure) => {
            json!({ "type": failure.ty.as_str(), "code": failure.code.as_str() })
        }
    }
}

fn put(event: &mut Json, key: &str, value: impl Into<Json>) {
    if let Json::Object(event) = event {
        event.insert(key.to_owned(), value.into());
    }
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::observe::Both;
    use crate::language::provider::DelaySource;

    fn failure() -> Arc<Failure> {
        let details = Value::object([
            ("status", Value::from(503_u32)),
            ("policy", Value::from(1_u32)),
            ("attempts", Value::from(2_u32)),
        ]);
        Arc::new(Failure::error("A.B", "secret").with_details(details))
    }

    /// Everything in one test: the listeners are the process's.
    #[tokio::test(start_paused = true)]
    async fn events_tell_what_happened_and_only_when_asked() {
        let route = Arc::from("pay");
        assert!(Events::begin(|| "0", &route).is_none(), "nobody asks");
        let mut heard = listen();
        let events = Events::begin(|| "1", &route).unwrap();
        let attempt = Attempt { step: "pay", number: 1, role: Role::Step };
        let cleanup = Attempt { role: Role::Cleanup, ..attempt };
        let failed = Outcome::Failure(failure());
        let silent = crate::language::observe::Silent;
        let both = Both(&silent, &*events);
        both.attempt_started(&attempt);
        tokio::time::advance(Duration::from_millis(250)).await;
        both.attempt_done(&attempt, &failed);
        both.retry_scheduled(&Retry {
            step: "pay",
            failure: &failure(),
            policy: Some(1),
            delay: Duration::from_millis(1500),
            source: DelaySource::Override,
            range: None,
            config: None,
        });
        both.attempt_started(&Attempt { number: 2, ..attempt });
        both.attempt_interrupted(&Attempt { number: 2, ..attempt }, None);
        both.timeout_exceeded("pay", &failure());
        both.gave_up("pay", &failure());
        both.attempt_started(&cleanup);
        both.attempt_done(
            &cleanup,
            &Outcome::Success(Value::object([("status", Value::from(204_u32))])),
        );
        both.cleanup_done("pay", &Outcome::Success(Value::Null));
        events.done(&failed);
        drop(events);
        drop(Events::begin(|| "1", &route));
        let mut lines = Vec::new();
        while let Ok(event) = heard.0.try_recv() {
            assert_eq!((&event["execution"], &event["route"]), (&json!("1"), &json!("pay")));
            let mut event = event.as_object().unwrap().clone();
            event.retain(|key, _| !["execution", "route", "time"].contains(&key.as_str()));
            lines.push(Json::Object(event).to_string());
        }
        insta::assert_snapshot!(lines.join("\n"), @r#"
        {"event":"execution.started"}
        {"attempt":1,"event":"attempt.started","step":"pay"}
        {"attempt":1,"code":"A.B","duration":0.25,"event":"attempt.failed","status":503,"step":"pay","type":"error"}
        {"code":"A.B","delay":"PT1.5S","event":"retry.scheduled","policy":1,"source":"override","step":"pay"}
        {"attempt":2,"event":"attempt.started","step":"pay"}
        {"attempt":2,"code":"System.Cancelled","duration":0.0,"event":"attempt.failed","interrupted":true,"step":"pay"}
        {"code":"A.B","event":"timeout.exceeded","step":"pay"}
        {"attempts":2,"code":"A.B","event":"retry.exhausted","policy":1,"step":"pay"}
        {"attempt":1,"cleanup":true,"event":"attempt.started","step":"pay"}
        {"attempt":1,"cleanup":true,"duration":0.0,"event":"attempt.done","status":204,"step":"pay","type":"success"}
        {"event":"finally.done","step":"pay","type":"success"}
        {"attempts":2,"code":"A.B","duration":0.25,"event":"execution.done","type":"error"}
        {"event":"execution.started"}
        {"attempts":0,"code":"System.Cancelled","duration":0.0,"event":"execution.done","type":"cancellation"}
        "#);
    }
}
