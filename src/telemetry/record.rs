//! What is remembered of one request: its attempts, the waits between them, how it ended.
//!
//! One [`Recorder`] feeds three readers (the access log, `/executions`, the spans), so that they never
//! tell different stories. Nothing of a body, no header field and no query is kept: what belongs to
//! clients stays out of logs.

mod shown;

#[cfg(test)]
pub(super) mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use super::trace::{Context, SpanId};
use crate::language::code::system;
use crate::language::observe::{End, Ended};
use crate::language::outcome::{FailureType, Outcome};
use crate::language::provider::{self, Destination, Role, Wait};
use crate::language::temporal::Timestamp;

/// How many attempts of one request are kept: the first half of them, and the last.
const ATTEMPTS: usize = 64;

/// How long a text of a client's or an upstream's may be in a record, in bytes.
const TEXT: usize = 2048;

/// The client went away before its answer was complete: nginx's number, which no upstream sends.
pub const CLIENT_CLOSED_REQUEST: u16 = 499;

/// The client's connection or stream was closed without an answer: nginx's number, too.
pub const NO_ANSWER: u16 = 444;

/// A request under way.
#[derive(Debug, Default)]
pub struct Recorder(Mutex<Trail>);

#[derive(Debug, Default)]
struct Trail {
    /// Whether the record is given up where nothing comes of it.
    provisional: bool,
    attempts: Vec<Attempt>,
    omitted: usize,
    /// How it ended, once it did.
    end: Option<Vec<Cause>>,
    answer: Option<Answer>,
}

/// Which attempt it is, as records and events say it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Call {
    /// The Step's name; the Flow's, of a cleanup of its own stack.
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
    /// Which.
    pub call: Call,
    /// The upstream's name.
    pub upstream: Arc<str>,
    /// `host:port`.
    pub endpoint: Arc<str>,
    /// Of the response, where there was one.
    pub status: Option<u16>,
    /// The failure's code; `None` of a success.
    pub code: Option<Box<str>>,
    /// Whether it was stopped before its Result.
    pub interrupted: bool,
    /// The wait before it.
    pub wait: Option<Wait>,
    /// When it began.
    pub began: Instant,
    /// How long it took.
    pub took: Duration,
    /// What its span says beside this; `None` where the request is not traced.
    pub span: Option<Arc<Sent>>,
}

/// What a span says of the request that an attempt sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// The span's id, which the upstream was told.
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
pub struct Answer {
    /// The status, or [`CLIENT_CLOSED_REQUEST`].
    pub status: u16,
    /// When the request began.
    pub began: Instant,
    /// From there to the last byte of the answer.
    pub took: Duration,
    /// Bytes of the answer's body that were handed over.
    pub sent: u64,
}

/// One failure of a chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// Its type.
    #[serde(rename = "type")]
    pub ty: Box<str>,
    /// Its code.
    pub code: Box<str>,
    /// Its message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<Box<str>>,
    /// Its advisory signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
}

/// What is known of a request without its attempts.
#[derive(Clone, Debug)]
pub struct Request {
    /// The execution's id.
    pub id: Box<str>,
    /// The route; `None` where none took it.
    pub route: Option<Arc<str>>,
    /// The client's address, without its port.
    pub client: Box<str>,
    /// The method.
    pub method: Box<str>,
    /// The path, without its query.
    pub path: Box<str>,
    /// Bytes of its body that were read.
    pub received: u64,
    /// The wall time of its beginning.
    pub at: Timestamp,
    /// Where it is traced.
    pub trace: Option<Box<Traced>>,
}

/// What a request's span says beside its record.
#[derive(Clone, Debug)]
pub struct Traced {
    /// Its place in the trace.
    pub context: Context,
    /// `Host`.
    pub host: Box<str>,
    /// `http`.
    pub scheme: &'static str,
    /// `1.1`.
    pub version: &'static str,
}

/// A request that has ended.
#[derive(Clone, Debug)]
pub struct Execution {
    /// What it was.
    pub request: Request,
    /// What the client got.
    pub answer: Answer,
    /// In order of their beginning.
    pub attempts: Vec<Attempt>,
    /// How many attempts more there were.
    pub omitted: usize,
    /// What it failed with, newest first; none: a success.
    pub failures: Vec<Cause>,
}

impl Recorder {
    /// A recorder of what may come to nothing: unless somebody comes to [want](Self::want) the record, or a
    /// Step's call is made again, there is none.
    pub fn provisional() -> Self {
        Self(Mutex::new(Trail { provisional: true, ..Trail::default() }))
    }

    /// The record is wanted.
    pub fn want(&self) {
        self.lock().provisional = false;
    }

    /// An attempt ended.
    pub fn attempt(&self, attempt: Attempt) {
        let mut trail = self.lock();
        if trail.attempts.len() >= ATTEMPTS {
            trail.attempts.remove(ATTEMPTS / 2);
            trail.omitted += 1;
        }
        trail.attempts.push(attempt);
    }

    /// The execution came to its Result. The first counts.
    pub fn result(&self, outcome: &Outcome) {
        let mut trail = self.lock();
        trail.end.get_or_insert_with(|| causes(outcome));
    }

    /// What the client got.
    pub fn answered(&self, answer: Answer) {
        self.lock().answer = Some(answer);
    }

    /// The record of `request`, which has ended; `None` where it never began to be answered, and where
    /// nothing came of a [provisional](Self::provisional) one.
    pub fn finish(&self, request: impl FnOnce(&Answer) -> Request) -> Option<Execution> {
        let trail = std::mem::take(&mut *self.lock());
        let Trail { provisional, mut attempts, omitted, end, answer } = trail;
        let answer = answer?;
        if provisional && !retried(&attempts) {
            return None;
        }
        attempts.sort_by_key(|attempt| attempt.began);
        Some(Execution {
            request: request(&answer),
            answer,
            attempts,
            omitted,
            // Dropped before its Result, it was cancelled.
            failures: end.unwrap_or_else(cancelled),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Trail> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Call {
    /// How records name `attempt`.
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
            endpoint: Arc::clone(destination.endpoint),
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

/// Whether several of `attempts` are Steps' own.
fn retried(attempts: &[Attempt]) -> bool {
    attempts.iter().filter(|attempt| !attempt.call.cleanup).count() > 1
}

fn causes(outcome: &Outcome) -> Vec<Cause> {
    let chain = outcome.failure().into_iter().flat_map(|failure| failure.chain());
    let causes = chain.map(|failure| Cause {
        ty: failure.ty.as_str().into(),
        code: failure.code.as_str().into(),
        message: failure.message.as_deref().map(|message| short(message).into()),
        retryable: failure.retryable,
    });
    causes.collect()
}

fn cancelled() -> Vec<Cause> {
    vec![Cause {
        ty: FailureType::Cancellation.as_str().into(),
        code: system::CANCELLED.into(),
        message: Some("the client went away".into()),
        retryable: None,
    }]
}

/// As much of a text as a record holds.
pub fn short(text: &str) -> &str {
    // Less than four bytes away there is a boundary.
    let cut = (0..=TEXT.min(text.len())).rev().find_map(|end| text.get(..end));
    cut.unwrap_or_default()
}

impl Execution {
    /// A request that no execution began for: refused with `code`, or taken by no route.
    pub fn refused(request: Request, answer: Answer, code: &str, detail: &str) -> Self {
        let cause = Cause {
            ty: FailureType::Error.as_str().into(),
            code: code.into(),
            message: Some(short(detail).into()),
            retryable: None,
        };
        Self { request, answer, attempts: Vec::new(), omitted: 0, failures: vec![cause] }
    }

    /// Whether it failed: its Result is a failure, or its client left before the answer was whole.
    pub fn failed(&self) -> bool {
        !self.failures.is_empty() || self.answer.status == CLIENT_CLOSED_REQUEST
    }

    /// Whether a Step's call was dispatched more than once.
    pub fn retried(&self) -> bool {
        retried(&self.attempts)
    }
}
