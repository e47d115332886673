//! The surroundings of a rehearsed request: the script, and the record of everything that happens.

mod cue;
mod line;
pub(crate) mod record;
mod script;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value as Json;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use self::cue::CallCue;
pub(crate) use self::line::{ProxyEnd, ScriptedConnection};
use self::record::{
    Event, EventKind, FailureSummary, GivenResponse, IsoDuration, Rerun, SentRequest,
};
use self::script::ScriptUse;
pub(crate) use self::script::{Latency, Script, ScriptedAction, ScriptedResponse};
use crate::language::clock::unless_busy;
use crate::language::observe::{self, Caught, End, Ended, Observer, Retry};
use crate::language::outcome::Outcome;
use crate::language::provider::{CallProvider, Wait};
use crate::language::value::Value;
use crate::proxy::settings::{Endpoint, Upstream};
use crate::telemetry::record::{Call, status};

/// The most events that are recorded. Further ones would show nothing new.
const MOST: usize = 10_000;

/// The same where somebody else asks.
const MOST_FOR_OTHERS: usize = 1000;

/// The script and the record of a rehearsal.
#[derive(Debug)]
pub(crate) struct Stage {
    script: Mutex<Script>,
    log: Mutex<Log>,
    /// When the request arrived.
    begun: Mutex<Option<Instant>>,
    /// How many events are recorded.
    most: usize,
    /// Cancelled when the record is full, or when it is to stop.
    full: CancellationToken,
    /// Cancelled when the execution loops without waiting.
    busy: CancellationToken,
}

#[derive(Debug, Default)]
struct Log {
    events: Vec<Event>,
    result: Option<Json>,
}

impl Stage {
    /// The stage for requests, one after the other, with upstreams that respond as `script` says.
    pub(crate) fn new(script: Script) -> Arc<Self> {
        Self::with(script, MOST, CancellationToken::new())
    }

    /// The same for a question of somebody else, who can't stop this program: it ends when `stop` is cancelled, and its
    /// record is smaller.
    pub(crate) fn bounded(script: Script, stop: &CancellationToken) -> Arc<Self> {
        Self::with(script, MOST_FOR_OTHERS, stop.child_token())
    }

    fn with(script: Script, most: usize, full: CancellationToken) -> Arc<Self> {
        Arc::new(Self {
            script: Mutex::new(script),
            log: Mutex::default(),
            begun: Mutex::default(),
            most,
            full,
            busy: CancellationToken::new(),
        })
    }

    /// A request arrives now. Its responses begin with the first ones.
    pub(crate) fn begin(&self) {
        lock(&self.script).rewind();
        *lock(&self.log) = Log::default();
        *lock(&self.begun) = Some(Instant::now());
    }

    /// The time since the request arrived.
    pub(crate) fn elapsed(&self) -> Duration {
        lock(&self.begun).get_or_insert_with(Instant::now).elapsed()
    }

    /// Returns when the record is full.
    pub(crate) async fn filled(&self) {
        self.full.cancelled().await;
    }

    /// Returns when the execution turns out to loop without waiting.
    pub(crate) async fn found_busy(&self) {
        self.busy.cancelled().await;
    }

    /// The Result of `execution`. If it loops without waiting, it is not continued: in virtual time nothing
    /// else would ever run.
    pub(crate) async fn play_out(&self, execution: impl Future<Output = Outcome>) -> Outcome {
        if let Some(outcome) = unless_busy(execution).await {
            return outcome;
        }
        self.busy.cancel();
        std::future::pending().await
    }

    /// The events so far, and the execution's Result if it has one.
    pub(crate) fn told(&self) -> (Vec<Event>, Option<Json>) {
        let mut log = lock(&self.log);
        (std::mem::take(&mut log.events), log.result.take())
    }

    /// The indexes of the scripted responses that were not used.
    pub(crate) fn unused(&self) -> Vec<usize> {
        lock(&self.script).unused()
    }

    /// Wraps `provider` so that its calls follow the script.
    pub(crate) fn cued(provider: Arc<dyn CallProvider>) -> Arc<dyn CallProvider> {
        cue::cued(provider)
    }

    /// Whether the call that is being polled will be refused a connection to `upstream`.
    pub(crate) fn refuses(&self, upstream: &Upstream) -> bool {
        let turn = cue::reserve(|call| self.next(&upstream.name, call));
        turn.is_some_and(|turn| matches!(*turn.act, ScriptedAction::Refused))
    }

    /// A connection for the call that is being polled.
    ///
    /// # Errors
    /// When the script refuses it.
    pub(crate) async fn connect(
        self: &Arc<Self>,
        upstream: &Upstream,
        endpoint: &Endpoint,
    ) -> io::Result<(ProxyEnd, Arc<ScriptedConnection>)> {
        if self.refuses(upstream)
            && let Some((cue, turn)) = self.play(&upstream.name)
        {
            if !turn.after.is_zero() {
                sleep(turn.after).await;
            }
            self.refused(&cue, upstream, endpoint, &turn);
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let near = line::open(self, upstream, endpoint);
        let line = near.line();
        Ok((near, line))
    }

    /// The response for the next request to `upstream` by the call that is being polled.
    fn play(&self, upstream: &str) -> Option<(Arc<CallCue>, ScriptUse)> {
        cue::play(|call| self.next(upstream, call))
    }

    fn next(&self, upstream: &str, call: &Call) -> ScriptUse {
        lock(&self.script).next(upstream, call.cleanup)
    }

    /// A request of the cued call reached the far end.
    fn sent(&self, cue: &CallCue, sent: SentRequest, turn: &ScriptUse) {
        let sent = SentRequest { resent: cue.asks(), ..sent };
        self.write(EventKind::Requested { call: cue.call.clone(), sent, given: turn.given() });
    }

    fn refused(&self, cue: &CallCue, upstream: &Upstream, endpoint: &Endpoint, turn: &ScriptUse) {
        cue.asks();
        self.write(EventKind::Refused {
            call: cue.call.clone(),
            upstream: upstream.name.as_ref().to_owned(),
            endpoint: endpoint.authority.as_ref().to_owned(),
            given: turn.given(),
        });
    }

    fn write(&self, what: EventKind) {
        let at = IsoDuration(self.elapsed());
        let mut log = lock(&self.log);
        if log.events.len() < self.most {
            log.events.push(Event { at, what });
        } else {
            self.full.cancel();
        }
    }

    /// The execution has its Result.
    pub(crate) fn settled(&self, outcome: &Outcome) {
        lock(&self.log).result = Some(outcome.to_value().to_json());
    }
}

impl Observer for Stage {
    fn follows_decisions(&self) -> bool {
        true
    }

    fn on(&self, event: &observe::Event<'_>) {
        use observe::Event;
        self.write(match *event {
            Event::AttemptStarted(attempt) => EventKind::Started { call: Call::of(attempt) },
            Event::AttemptEnded(attempt) => ended(attempt),
            Event::RetryScheduled(retry) => scheduled(retry),
            Event::Decided { step, middleware, state } => match middleware.decision(state) {
                Some(says) => {
                    let name = middleware.contract().uri.bare_name();
                    EventKind::Decided { step: step.to_owned(), says: format!("{name}: {says}") }
                }
                None => return,
            },
            // The attempts, the decision and the end report it.
            Event::RetryMade { .. } | Event::RetryDropped { .. } | Event::Refused { .. } => return,
            Event::PassedOver(passed) => EventKind::Passed {
                step: passed.entry.step.to_owned(),
                code: passed.failure.code.as_str().to_owned(),
                reason: passed.reason(),
                gated: passed.gated,
            },
            Event::GaveUp { entry, failure } => {
                EventKind::Exhausted { step: entry.step.to_owned(), failure: (&**failure).into() }
            }
            Event::TimeoutExceeded { entry, emitted } => {
                EventKind::Bound { step: entry.step.to_owned(), failure: (&**emitted).into() }
            }
            Event::Caught(&Caught { step, failure, next, cleanup: _ }) => {
                let code = failure.code.as_str().to_owned();
                EventKind::Caught { step: step.to_owned(), code, next: next.to_owned() }
            }
            Event::Faulted { step, failure } => {
                EventKind::Faulted { step: step.to_owned(), failure: failure.into() }
            }
            Event::CleanupDone { step, outcome, caught } => EventKind::Cleaned {
                step: step.to_owned(),
                degraded: caught && outcome.is_success(),
                failure: outcome.failure().map(|failure| FailureSummary::from(&**failure)),
            },
        });
    }
}

fn ended(ended: &Ended<'_>) -> EventKind {
    let (call, took) = (Call::of(ended.attempt), IsoDuration(ended.took));
    match ended.end {
        End::Accepted(Outcome::Success(_)) => {
            EventKind::Done { call, status: status(&ended.end), took }
        }
        End::Accepted(Outcome::Failure(failure)) => {
            EventKind::Failed { call, failure: (&**failure).into(), took }
        }
        End::Interrupted(by) => {
            let by = by.map(|failure| failure.code.as_str().to_owned());
            EventKind::Interrupted { call, by, took }
        }
    }
}

fn scheduled(retry: &Retry<'_>) -> EventKind {
    let Wait { delay, source, policy } = retry.wait;
    let says = retry.config.zip(policy);
    let details = retry.failure.details.as_ref();
    let told = details.and_then(|details| details.get("retryAfter"));
    let longer = details.and_then(|details| match details {
        Value::Native(native) => native.longer_wait(),
        _ => None,
    });
    EventKind::Retry(Rerun {
        step: retry.step.to_owned(),
        code: retry.failure.code.as_str().to_owned(),
        policy,
        says: says.and_then(|((middleware, config), at)| middleware.describe_policy(config, at)),
        delay: IsoDuration(delay),
        source: source.as_str(),
        range: retry.range.map(|(low, high)| (IsoDuration(low), IsoDuration(high))),
        retry_after: told.as_ref().and_then(Value::as_str).map(str::to_owned),
        retry_after_asked: longer.map(IsoDuration),
    })
}

impl ScriptUse {
    fn given(&self) -> GivenResponse {
        GivenResponse { respond: self.place.map(|place| place + 1), repeated: self.again }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
