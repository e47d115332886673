//! What stands around a rehearsed request: the script, and the record of all that happens.

mod cue;
mod line;
pub(crate) mod record;
mod script;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde_json::Value as Json;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

pub(crate) use self::line::{Line, Near};
use self::record::{Call, Event, Failed, Given, Length, Sent, What};
pub(crate) use self::script::{Act, Planned};
use self::script::{Script, Turn};
use crate::language::clock::unless_busy;
use crate::language::observe::{Attempt, Observer, Retry};
use crate::language::outcome::{Failure, Outcome};
use crate::language::provider::{CallProvider, DelaySource};
use crate::language::value::Value;
use crate::proxy::settings::{Endpoint, Upstream};

/// How many things are written down. What goes on beyond them says nothing new.
const MOST: usize = 10_000;

/// The script and the record of one rehearsal.
#[derive(Debug)]
pub(crate) struct Stage {
    script: Mutex<Script>,
    log: Mutex<Log>,
    /// When the request came.
    begun: OnceLock<Instant>,
    /// Pulled when the record is full.
    full: CancellationToken,
    /// Pulled when the execution goes round and round without a wait.
    busy: CancellationToken,
}

#[derive(Debug, Default)]
struct Log {
    events: Vec<Event>,
    running: Vec<Running>,
    result: Option<Json>,
}

/// A call under way. Those that look alike, in a `Gather`, stand in for one another.
#[derive(Debug)]
struct Running {
    call: Call,
    begun: Duration,
    /// How many requests or connections it asked for.
    asked: u32,
}

impl Stage {
    /// The stage for one request, before upstreams that answer as `planned`.
    pub(crate) fn new(planned: Vec<Planned>) -> Arc<Self> {
        Arc::new(Self {
            script: Mutex::new(Script::new(planned)),
            log: Mutex::default(),
            begun: OnceLock::new(),
            full: CancellationToken::new(),
            busy: CancellationToken::new(),
        })
    }

    /// The request comes now.
    pub(crate) fn begin(&self) {
        self.begun.get_or_init(Instant::now);
    }

    /// How long ago the request came.
    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.get_or_init(Instant::now).elapsed()
    }

    /// Returns when no more is written down.
    pub(crate) async fn filled(&self) {
        self.full.cancelled().await;
    }

    /// Returns when the execution was found to be one that never waits.
    pub(crate) async fn found_busy(&self) {
        self.busy.cancelled().await;
    }

    /// The Result of `execution`. Where that goes round and round without a wait, it is not run on: in virtual time
    /// nobody else would ever have their turn.
    pub(crate) async fn play_out(&self, execution: impl Future<Output = Outcome>) -> Outcome {
        if let Some(outcome) = unless_busy(execution).await {
            return outcome;
        }
        self.busy.cancel();
        std::future::pending().await
    }

    /// What happened so far, and the execution's Result where it has one.
    pub(crate) fn told(&self) -> (Vec<Event>, Option<Json>) {
        let mut log = lock(&self.log);
        (std::mem::take(&mut log.events), log.result.take())
    }

    /// The places of the planned responses that nothing asked for.
    pub(crate) fn unused(&self) -> Vec<usize> {
        lock(&self.script).unused()
    }

    /// `provider`, whose calls play the script.
    pub(crate) fn cued(provider: Arc<dyn CallProvider>) -> Arc<dyn CallProvider> {
        cue::cued(provider)
    }

    /// Whether the call that is being polled will find no connection at `upstream`.
    pub(crate) fn refuses(&self, upstream: &Upstream) -> bool {
        let turn = cue::reserve(|call| self.next(&upstream.name, call));
        turn.is_some_and(|turn| matches!(turn.planned.act, Act::Refused))
    }

    /// A connection for the call that is being polled.
    ///
    /// # Errors
    /// Where the script refuses it.
    pub(crate) async fn connect(
        self: &Arc<Self>,
        upstream: &Upstream,
        endpoint: &Endpoint,
    ) -> io::Result<(Near, Arc<Line>)> {
        if self.refuses(upstream)
            && let Some((call, turn)) = self.play(&upstream.name)
        {
            if !turn.planned.after.is_zero() {
                sleep(turn.planned.after).await;
            }
            self.refused(&call, upstream, endpoint, &turn);
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let near = line::open(self, upstream, endpoint);
        let line = near.line();
        Ok((near, line))
    }

    /// What the call that is being polled gets for a request to `upstream`.
    pub(crate) fn play(&self, upstream: &str) -> Option<(Call, Turn)> {
        cue::play(|call| self.next(upstream, call))
    }

    fn next(&self, upstream: &str, call: &Call) -> Turn {
        lock(&self.script).next(upstream, call.role())
    }

    /// A request of `call` reached the far end.
    pub(crate) fn sent(&self, call: &Call, sent: Sent, turn: &Turn) {
        let resent = self.asks(call);
        let sent = Sent { resent, ..sent };
        self.write(What::Requested { call: call.clone(), sent, given: turn.given() });
    }

    fn refused(&self, call: &Call, upstream: &Upstream, endpoint: &Endpoint, turn: &Turn) {
        self.asks(call);
        self.write(What::Refused {
            call: call.clone(),
            upstream: upstream.name.as_ref().to_owned(),
            endpoint: endpoint.authority.as_ref().to_owned(),
            given: turn.given(),
        });
    }

    /// Counts a request or a connection of `call`; whether it is not its first.
    fn asks(&self, call: &Call) -> bool {
        let mut log = lock(&self.log);
        let alike = log.running.iter_mut().filter(|running| running.call == *call);
        let Some(running) = alike.min_by_key(|running| running.asked) else {
            return false;
        };
        running.asked += 1;
        running.asked > 1
    }

    fn write(&self, what: What) {
        let at = Length(self.elapsed());
        let mut log = lock(&self.log);
        if log.events.len() < MOST {
            log.events.push(Event { at, what });
        } else {
            self.full.cancel();
        }
    }

    /// The execution came to its Result.
    pub(crate) fn settled(&self, outcome: &Outcome) {
        lock(&self.log).result = Some(outcome.to_value().to_json());
    }

    /// An attempt ended; how long it took.
    fn ended(&self, attempt: &Attempt<'_>) -> (Call, Length) {
        let call = Call::of(attempt);
        let now = self.elapsed();
        let mut log = lock(&self.log);
        let found = log.running.iter().position(|running| running.call == call);
        let begun = found.map_or(now, |place| log.running.remove(place).begun);
        (call, Length(now.saturating_sub(begun)))
    }
}

impl Observer for Stage {
    fn attempt_started(&self, attempt: &Attempt<'_>) {
        let (call, begun) = (Call::of(attempt), self.elapsed());
        lock(&self.log).running.push(Running { call: call.clone(), begun, asked: 0 });
        self.write(What::Started { call });
    }

    fn attempt_done(&self, attempt: &Attempt<'_>, outcome: &Outcome) {
        let (call, took) = self.ended(attempt);
        self.write(match outcome {
            Outcome::Success(value) => {
                let status = value.get("status").as_ref().and_then(Value::as_u64);
                What::Done { call, status, took }
            }
            Outcome::Failure(failure) => {
                What::Failed { call, failure: Failed::from(failure.as_ref()), took }
            }
        });
    }

    fn attempt_interrupted(&self, attempt: &Attempt<'_>, explanation: Option<&Failure>) {
        let (call, took) = self.ended(attempt);
        let by = explanation.map(|failure| failure.code.as_str().to_owned());
        self.write(What::Interrupted { call, by, took });
    }

    fn retry_scheduled(&self, retry: &Retry<'_>) {
        let says = retry.config.zip(retry.policy);
        let details = retry.failure.details.as_ref();
        let asked = details.and_then(|details| details.get("retryAfter"));
        self.write(What::Retry {
            step: retry.step.to_owned(),
            code: retry.failure.code.as_str().to_owned(),
            policy: retry.policy,
            says: says
                .and_then(|((middleware, config), at)| middleware.describe_policy(config, at)),
            delay: Length(retry.delay),
            source: match retry.source {
                DelaySource::Schedule => "schedule",
                DelaySource::Override => "override",
            },
            range: retry.range.map(|(low, high)| (Length(low), Length(high))),
            retry_after: asked.as_ref().and_then(Value::as_str).map(str::to_owned),
        });
    }

    fn passed_over(&self, step: &str, failure: &Arc<Failure>, gated: bool) {
        let (step, code) = (step.to_owned(), failure.code.as_str().to_owned());
        self.write(What::Passed { step, code, gated });
    }

    fn gave_up(&self, step: &str, failure: &Arc<Failure>) {
        let failure = Failed::from(failure.as_ref());
        self.write(What::Exhausted { step: step.to_owned(), failure });
    }

    fn timeout_exceeded(&self, step: &str, emitted: &Arc<Failure>) {
        let failure = Failed::from(emitted.as_ref());
        self.write(What::Bound { step: step.to_owned(), failure });
    }

    fn caught(&self, step: &str, failure: &Arc<Failure>, next: &str) {
        let code = failure.code.as_str().to_owned();
        self.write(What::Caught { step: step.to_owned(), code, next: next.to_owned() });
    }

    fn cleanup_done(&self, step: &str, outcome: &Outcome) {
        let failure = outcome.failure().map(|failure| Failed::from(failure.as_ref()));
        self.write(What::Cleaned { step: step.to_owned(), failure });
    }
}

impl Turn {
    fn given(&self) -> Given {
        Given { respond: self.place.map(|place| place + 1), repeated: self.again }
    }
}

impl Call {
    fn of(attempt: &Attempt<'_>) -> Self {
        Self::new(attempt.step, attempt.number, attempt.role)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
