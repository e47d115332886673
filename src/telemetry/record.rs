//! The record of one request: its attempts, the waits between them, and its outcome.
//!
//! One [`Recorder`] serves three readers (the access log, `/executions` and the spans), so that they always
//! agree. No body, header field or query is kept: clients' data stays out of logs.

mod failures;
mod line;
mod request;
mod shown;

#[cfg(test)]
pub(super) mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

pub use self::failures::{CaughtFailure, Cause, FiredBound};
pub use self::line::KnownSecond;
pub use self::request::{Request, RequestId, RequestRef, Traced};
use super::trace::SpanId;
use crate::language::code::system;
use crate::language::observe::{End, Ended};
use crate::language::outcome::{FailureType, Outcome};
use crate::language::provider::{self, Destination, Role, Wait};

/// How many attempts of one request are kept: the first half of this number, and the latest.
const ATTEMPTS: usize = 64;

/// How many caught failures of one request are kept: the first ones.
const CAUGHT: usize = 16;

/// How many bounds of one request that fired are kept: the first ones.
const BOUNDS: usize = 16;

/// The longest text from a client or an upstream in a record, in bytes.
const TEXT: usize = 2048;

/// The status for a client that left before its answer was complete. nginx uses it too, and no upstream sends it.
pub const CLIENT_CLOSED_REQUEST: u16 = 499;

/// The status for a client whose connection or stream was closed without an answer. nginx uses it too.
pub const NO_ANSWER: u16 = 444;

/// The status for an answer that its upstream broke off after the head: the client had got another one. Some proxies use
/// it for an upstream that falls silent.
pub const RESPONSE_TRUNCATED: u16 = 598;

/// Collects the record of a running request.
#[derive(Debug, Default)]
pub struct Recorder(Mutex<RecorderState>);

#[derive(Debug, Default)]
struct RecorderState {
    /// Whether the record is discarded unless something makes it interesting.
    provisional: bool,
    attempts: Vec<Attempt>,
    omitted: usize,
    /// The outcome, once it is known.
    end: Option<Vec<Cause>>,
    answer: Option<AnswerSummary>,
    /// How the upstream broke the answer off.
    broken: Option<Cause>,
    caught: Vec<CaughtFailure>,
    bounds: Vec<FiredBound>,
}

/// The identity of an attempt, in records and events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Call {
    /// The Step's name. For a cleanup of a Flow's own stack, the Flow's name.
    pub step: Box<str>,
    /// The run of the innermost re-running entry around it, from 1.
    #[serde(rename = "attempt")]
    pub number: u32,
    /// The index of the dispatch in the innermost `Gather`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dispatch: Option<usize>,
    /// Whether a cleanup made it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cleanup: bool,
}

/// One attempt at an upstream.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Its identity.
    pub call: Call,
    /// The upstream's name.
    pub upstream: Arc<str>,
    /// `host:port`.
    pub endpoint: Arc<str>,
    /// The status of the response, if there was one.
    pub status: Option<u16>,
    /// The failure's code; `None` for a success.
    pub code: Option<Box<str>>,
    /// Whether it was stopped before its Result.
    pub interrupted: bool,
    /// The wait before it.
    pub wait: Option<Wait>,
    /// When it began.
    pub began: Instant,
    /// How long it took.
    pub took: Duration,
    /// Further data for its span; `None` if the request is not traced.
    pub span: Option<Arc<SentSpan>>,
}

/// What a span says about the request that an attempt sent.
#[derive(Clone, Debug)]
pub struct SentSpan {
    /// The span's id, which was sent to the upstream.
    pub id: SpanId,
    /// The method.
    pub method: Box<str>,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// The path, without its query.
    pub path: Box<str>,
}

/// What the client got.
#[derive(Clone, Copy, Debug)]
pub struct AnswerSummary {
    /// The status, or [`CLIENT_CLOSED_REQUEST`], [`NO_ANSWER`] or [`RESPONSE_TRUNCATED`].
    pub status: u16,
    /// When the request began.
    pub began: Instant,
    /// The time from there to the last byte of the answer.
    pub took: Duration,
    /// How many bytes of the answer's body were sent.
    pub sent: u64,
}

/// What became of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It succeeded.
    Success,
    /// It succeeded, but a `catch` took a failure on the way.
    Degraded,
    /// It failed.
    Failure,
}

/// The record of a request that has ended.
#[derive(Clone, Debug)]
pub struct Execution<R = Request> {
    /// The request.
    pub request: R,
    /// What the client got.
    pub answer: AnswerSummary,
    /// The attempts, in the order in which they began.
    pub attempts: Vec<Attempt>,
    /// How many more attempts there were.
    pub omitted: usize,
    /// The failures, newest first; empty for a success.
    pub failures: Vec<Cause>,
    /// The failures that a `catch` took, in their order.
    pub caught: Vec<CaughtFailure>,
    /// The bounds that fired, in their order.
    pub bounds: Vec<FiredBound>,
}

impl Recorder {
    /// A recorder whose record may not be needed. It gives one only if somebody calls [want](Self::want) or if
    /// a Step's call is repeated.
    pub fn provisional() -> Self {
        Self(Mutex::new(RecorderState { provisional: true, ..RecorderState::default() }))
    }

    /// Somebody wants the record.
    pub fn want(&self) {
        self.lock().provisional = false;
    }

    /// An attempt has ended.
    pub fn attempt(&self, attempt: Attempt) {
        let mut trail = self.lock();
        if trail.attempts.len() >= ATTEMPTS {
            trail.attempts.remove(ATTEMPTS / 2);
            trail.omitted += 1;
        }
        trail.attempts.push(attempt);
    }

    /// A `catch` took a failure.
    pub fn caught(&self, caught: CaughtFailure) {
        let mut trail = self.lock();
        if trail.caught.len() < CAUGHT {
            trail.caught.push(caught);
        }
    }

    /// A bound fired.
    pub fn bound(&self, bound: FiredBound) {
        let mut trail = self.lock();
        if trail.bounds.len() < BOUNDS {
            trail.bounds.push(bound);
        }
    }

    /// The execution has its Result. Only the first call counts.
    pub fn result(&self, outcome: &Outcome) {
        let mut trail = self.lock();
        trail.end.get_or_insert_with(|| causes(outcome));
    }

    /// The upstream broke the answer off, whatever the execution's Result was.
    pub fn broke_off(&self, code: &str, message: &str) {
        self.lock().broken = Some(Cause::new(&FailureType::Error, code, message));
    }

    /// The client got its answer.
    pub fn answered(&self, answer: AnswerSummary) {
        self.lock().answer = Some(answer);
    }

    /// The record of `request`, which has ended. `None` if it never began to be answered, or if the recorder is
    /// [provisional](Self::provisional) and nobody needs it.
    pub fn finish<R>(&self, request: impl FnOnce(&AnswerSummary) -> R) -> Option<Execution<R>> {
        let trail = std::mem::take(&mut *self.lock());
        let RecorderState {
            provisional,
            mut attempts,
            omitted,
            end,
            answer,
            broken,
            caught,
            bounds,
        } = trail;
        let answer = answer?;
        if provisional && !retried(&attempts) {
            return None;
        }
        attempts.sort_by_key(|attempt| attempt.began);
        // Dropped before its Result, it was cancelled.
        let cancelled =
            || Cause::new(&FailureType::Cancellation, system::CANCELLED, "the client went away");
        let mut failures = end.unwrap_or_else(|| vec![cancelled()]);
        failures.splice(0..0, broken);
        let request = request(&answer);
        Some(Execution { request, answer, attempts, omitted, failures, caught, bounds })
    }

    fn lock(&self) -> MutexGuard<'_, RecorderState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Call {
    /// The identity of `attempt` in records.
    pub fn of(attempt: &provider::Attempt<'_>) -> Self {
        let provider::Attempt { step, number, dispatch, role, .. } = *attempt;
        Self { step: step.into(), number, dispatch, cleanup: role == Role::Cleanup }
    }
}

impl Attempt {
    /// The record of an attempt that has ended and went to `destination`.
    pub fn of(ended: &Ended<'_>, destination: &Destination<'_>) -> Self {
        let attempt = ended.attempt;
        let span = destination.more.as_ref();
        Self {
            call: Call::of(attempt),
            upstream: Arc::clone(destination.upstream),
            endpoint: Arc::clone(destination.endpoint.name()),
            status: status(&ended.end),
            code: ended.code().map(Into::into),
            interrupted: matches!(ended.end, End::Interrupted(_)),
            wait: attempt.wait,
            began: attempt.begun,
            took: ended.took,
            span: span.and_then(|span| Arc::clone(span).downcast().ok()),
        }
    }
}

/// The status of the attempt's response, if there was one.
pub fn status(end: &End<'_>) -> Option<u16> {
    let status = match end {
        End::Accepted(Outcome::Success(value)) => value.get("status"),
        End::Accepted(Outcome::Failure(failure)) => failure.details.as_ref()?.get("status"),
        End::Interrupted(_) => None,
    };
    u16::try_from(status?.as_u64()?).ok()
}

/// Whether several of `attempts` are the Steps' own.
fn retried(attempts: &[Attempt]) -> bool {
    attempts.iter().filter(|attempt| !attempt.call.cleanup).count() > 1
}

fn causes(outcome: &Outcome) -> Vec<Cause> {
    outcome.failure().map(|failure| Cause::chain(failure)).unwrap_or_default()
}

/// The part of a text that fits into a record.
pub fn short(text: &str) -> &str {
    // A character has at most four bytes, so there is a boundary nearby.
    let cut = (0..=TEXT.min(text.len())).rev().find_map(|end| text.get(..end));
    cut.unwrap_or_default()
}

impl Execution<RequestRef<'_>> {
    /// The same with texts of its own, for readers that keep it.
    pub(super) fn into_owned(self) -> Execution {
        let Self { request, answer, attempts, omitted, failures, caught, bounds } = self;
        let request = request.to_owned();
        Execution { request, answer, attempts, omitted, failures, caught, bounds }
    }
}

impl<R> Execution<R> {
    /// The record of a request without an execution: refused with `code`, or matched by no route.
    pub fn refused(request: R, answer: AnswerSummary, code: &str, detail: &str) -> Self {
        let failures = vec![Cause::new(&FailureType::Error, code, detail)];
        let (attempts, caught, bounds) = (Vec::new(), Vec::new(), Vec::new());
        Self { request, answer, attempts, omitted: 0, failures, caught, bounds }
    }

    /// What became of it, in one of three kinds.
    pub fn kind(&self) -> Kind {
        match (self.failed(), self.caught.is_empty()) {
            (true, _) => Kind::Failure,
            (false, false) => Kind::Degraded,
            (false, true) => Kind::Success,
        }
    }

    /// Whether it failed: its Result is a failure, or its client left before the answer was complete.
    pub fn failed(&self) -> bool {
        !self.failures.is_empty() || self.answer.status == CLIENT_CLOSED_REQUEST
    }

    /// Whether a Step's call was dispatched more than once.
    pub fn retried(&self) -> bool {
        retried(&self.attempts)
    }
}
