//! What is remembered of one request: its attempts, the waits between them, how it ended.
//!
//! One [`Recorder`] feeds three readers (the access log, `/executions`, the spans), so that they never
//! tell different stories. Nothing of a body, no header field and no query is kept: what belongs to
//! clients stays out of logs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use super::trace::{Context, SpanId};
use crate::language::code::system;
use crate::language::outcome::{FailureType, Outcome};
use crate::language::provider::DelaySource;
use crate::language::temporal::Timestamp;

/// How many attempts of one request are kept: the first half of them, and the last.
const ATTEMPTS: usize = 64;

/// How long a text of a client's or an upstream's may be in a record, in bytes.
const TEXT: usize = 2048;

/// The client went away before its answer was complete: nginx's number, which no upstream sends.
pub const CLIENT_CLOSED_REQUEST: u16 = 499;

/// A request under way.
#[derive(Debug, Default)]
pub struct Recorder(Mutex<Trail>);

#[derive(Debug, Default)]
struct Trail {
    /// Whether the record is given up where nothing comes of it.
    provisional: bool,
    attempts: Vec<Attempt>,
    omitted: usize,
    /// Decided and not yet taken by the attempt that follows: several only in a `Gather`.
    waits: Vec<(Box<str>, Wait)>,
    /// How it ended, once it did.
    end: Option<Vec<Cause>>,
    answer: Option<Answer>,
}

/// A wait before an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// How long.
    pub delay: Duration,
    /// Who said so.
    pub source: DelaySource,
}

/// One attempt at an upstream.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The Step's name; the Flow's, of a cleanup of its own stack.
    pub step: Box<str>,
    /// The run of the innermost re-running entry around it, from 1.
    pub number: u32,
    /// Whether a cleanup made it.
    pub cleanup: bool,
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
    pub span: Option<Sent>,
}

/// What a span says of the request that an attempt sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// The span's id, which the upstream was told.
    pub id: SpanId,
    /// The method.
    pub method: Box<str>,
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

    /// A re-run of `step` was decided, after this wait.
    pub fn waits(&self, step: &str, wait: Wait) {
        let mut trail = self.lock();
        trail.waits.retain(|(of, _)| **of != *step);
        trail.waits.push((step.into(), wait));
    }

    /// The wait that an attempt of `step` follows. One that was decided for a whole Flow is named after
    /// the Flow, and so is anybody's.
    pub fn waited(&self, step: &str) -> Option<Wait> {
        let mut trail = self.lock();
        let own = trail.waits.iter().position(|(of, _)| **of == *step);
        let place = own.or_else(|| trail.waits.len().checked_sub(1))?;
        Some(trail.waits.swap_remove(place).1)
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
        let Trail { provisional, mut attempts, omitted, waits: _, end, answer } = trail;
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

/// Whether several of `attempts` are Steps' own.
fn retried(attempts: &[Attempt]) -> bool {
    attempts.iter().filter(|attempt| !attempt.cleanup).count() > 1
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

    /// One flat line of JSON, with its line feed, for the access log: the Result's code, without the
    /// chain's messages.
    pub fn line(&self, out: &mut Vec<u8>) {
        self.write(false, out);
        out.push(b'\n');
    }

    /// The same with the whole chain, for `/executions`.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(self.shown(true)).unwrap_or_default()
    }

    fn write(&self, chain: bool, out: &mut Vec<u8>) {
        let length = out.len();
        if serde_json::to_writer(&mut *out, &self.shown(chain)).is_err() {
            // Nothing in it can fail to be written; half a line would be worse than none.
            out.truncate(length);
        }
    }

    fn shown(&self, chain: bool) -> Shown<'_> {
        let Self { request, answer, attempts, omitted, failures } = self;
        let first = failures.first();
        Shown {
            time: request.at.to_string(),
            execution: &request.id,
            route: request.route.as_deref(),
            client: &request.client,
            method: short(&request.method),
            path: short(&request.path),
            status: answer.status,
            result: first.map_or("success", |cause| &cause.ty),
            code: first.map(|cause| &*cause.code),
            duration: answer.took.as_secs_f64(),
            bytes_in: request.received,
            bytes_out: answer.sent,
            trace: request.trace.as_ref().map(|traced| traced.context.trace_id()),
            attempts: attempts.iter().map(|attempt| shown(attempt, answer.began)).collect(),
            omitted: *omitted,
            failures: chain.then_some(failures),
        }
    }
}

/// A record as it is written.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    time: String,
    execution: &'a str,
    route: Option<&'a str>,
    client: &'a str,
    method: &'a str,
    path: &'a str,
    status: u16,
    result: &'a str,
    code: Option<&'a str>,
    duration: f64,
    bytes_in: u64,
    bytes_out: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<String>,
    attempts: Vec<ShownAttempt<'a>>,
    #[serde(rename = "attemptsOmitted", skip_serializing_if = "none")]
    omitted: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    failures: Option<&'a Vec<Cause>>,
}

/// An attempt as it is written.
#[derive(Serialize)]
struct ShownAttempt<'a> {
    step: &'a str,
    attempt: u32,
    #[serde(skip_serializing_if = "no")]
    cleanup: bool,
    upstream: &'a str,
    endpoint: &'a str,
    status: Option<u16>,
    code: Option<&'a str>,
    #[serde(skip_serializing_if = "no")]
    interrupted: bool,
    /// Since the request began.
    began: f64,
    waited: Option<f64>,
    source: Option<&'static str>,
    took: f64,
}

fn shown(attempt: &Attempt, begun: Instant) -> ShownAttempt<'_> {
    ShownAttempt {
        step: &attempt.step,
        attempt: attempt.number,
        cleanup: attempt.cleanup,
        upstream: &attempt.upstream,
        endpoint: &attempt.endpoint,
        status: attempt.status,
        code: attempt.code.as_deref(),
        interrupted: attempt.interrupted,
        began: attempt.began.saturating_duration_since(begun).as_secs_f64(),
        waited: attempt.wait.map(|wait| wait.delay.as_secs_f64()),
        source: attempt.wait.map(|wait| wait.source.as_str()),
        took: attempt.took.as_secs_f64(),
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn no(flag: &bool) -> bool {
    !*flag
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn none(count: &usize) -> bool {
    *count == 0
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::language::outcome::Failure;

    /// A request that ended `after` this while.
    pub(in crate::telemetry) fn request(id: &str) -> Request {
        Request {
            id: id.into(),
            route: Some("pay".into()),
            client: "10.0.0.9".into(),
            method: "POST".into(),
            path: "/pay".into(),
            received: 5,
            at: Timestamp::from_nanos(1_700_000_000_250_000_000),
            trace: None,
        }
    }

    pub(in crate::telemetry) fn answer(status: u16, began: Instant, millis: u64) -> Answer {
        Answer { status, began, took: Duration::from_millis(millis), sent: 12 }
    }

    pub(in crate::telemetry) fn attempt(
        number: u32,
        began: Instant,
        code: Option<&str>,
    ) -> Attempt {
        Attempt {
            step: "pay".into(),
            number,
            cleanup: false,
            upstream: "billing".into(),
            endpoint: "127.0.0.1:3000".into(),
            status: Some(if code.is_some() { 503 } else { 200 }),
            code: code.map(Into::into),
            interrupted: false,
            wait: None,
            began,
            took: Duration::from_millis(20),
            span: None,
        }
    }

    fn finish(recorder: &Recorder) -> Execution {
        recorder.finish(|_| request("r-1")).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_tells_the_attempts_and_the_waits() {
        let begun = Instant::now();
        let recorder = Recorder::default();
        assert_eq!(recorder.waited("pay"), None);
        recorder.attempt(attempt(1, begun, Some("Provider.Call.Http.Unavailable")));
        let wait = Wait { delay: Duration::from_millis(1500), source: DelaySource::Override };
        recorder.waits("other", Wait { source: DelaySource::Schedule, ..wait });
        recorder.waits("pay", wait);
        tokio::time::advance(Duration::from_millis(1520)).await;
        let second = Attempt { wait: recorder.waited("pay"), ..attempt(2, Instant::now(), None) };
        recorder.attempt(second);
        recorder.result(&Outcome::Success(crate::language::value::Value::Null));
        recorder.answered(answer(200, begun, 1540));
        let mut line = Vec::new();
        let record = finish(&recorder);
        assert!(record.retried() && !record.failed());
        record.line(&mut line);
        insta::assert_snapshot!(String::from_utf8(line).unwrap(), @r#"{"time":"2023-11-14T22:13:20.25Z","execution":"r-1","route":"pay","client":"10.0.0.9","method":"POST","path":"/pay","status":200,"result":"success","code":null,"duration":1.54,"bytesIn":5,"bytesOut":12,"attempts":[{"step":"pay","attempt":1,"upstream":"billing","endpoint":"127.0.0.1:3000","status":503,"code":"Provider.Call.Http.Unavailable","began":0.0,"waited":null,"source":null,"took":0.02},{"step":"pay","attempt":2,"upstream":"billing","endpoint":"127.0.0.1:3000","status":200,"code":null,"began":1.52,"waited":1.5,"source":"override","took":0.02}]}"#);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_shows_its_chain_to_operators_alone() {
        let begun = Instant::now();
        let recorder = Recorder::default();
        let stopped = Attempt {
            interrupted: true,
            status: None,
            ..attempt(1, begun, Some("Provider.Middleware.Timeout.Exceeded"))
        };
        recorder.attempt(stopped);
        let lost = Arc::new(Failure::error("A.Lost", "x").with_retryable(true));
        let gone = Failure::superseding(&Arc::new(Failure::error("B.Gone", "secret")), Some(&lost));
        recorder.result(&Outcome::Failure(gone));
        recorder.result(&Outcome::Success(crate::language::value::Value::Null));
        recorder.answered(answer(504, begun, 30));
        let record = finish(&recorder);
        assert!(record.failed());
        let mut line = Vec::new();
        record.line(&mut line);
        let line: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!((&line["result"], &line["code"]), (&"error".into(), &"B.Gone".into()));
        assert_eq!(line["attempts"][0]["code"], "Provider.Middleware.Timeout.Exceeded");
        assert_eq!(line["attempts"][0]["interrupted"], true);
        assert_eq!(line.get("failures"), None);
        assert_eq!(
            record.to_json()["failures"],
            serde_json::json!([
                { "type": "error", "code": "B.Gone", "message": "secret" },
                { "type": "error", "code": "A.Lost", "message": "x", "retryable": true },
            ])
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_execution_that_was_dropped_was_cancelled() {
        let recorder = Recorder::default();
        assert!(recorder.finish(|_| request("r")).is_none(), "never answered");
        recorder.answered(answer(CLIENT_CLOSED_REQUEST, Instant::now(), 1));
        let json = finish(&recorder).to_json();
        assert_eq!((&json["code"], &json["status"]), (&"System.Cancelled".into(), &499.into()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_provisional_record_is_one_where_something_came_of_it() {
        let begun = Instant::now();
        let came = |attempts: &[(u32, bool)], wanted: bool| {
            let recorder = Recorder::provisional();
            for (number, cleanup) in attempts {
                recorder.attempt(Attempt { cleanup: *cleanup, ..attempt(*number, begun, None) });
            }
            if wanted {
                recorder.want();
            }
            recorder.answered(answer(200, begun, 1));
            recorder.finish(|_| request("r")).is_some()
        };
        assert!(!came(&[(1, false), (1, true)], false), "a call and its cleanup");
        assert!(came(&[(1, false), (2, false)], false), "a call that was made again");
        assert!(came(&[(1, false), (1, true)], true), "wanted");
    }

    #[tokio::test(start_paused = true)]
    async fn records_are_bounded() {
        let begun = Instant::now();
        let recorder = Recorder::default();
        for number in 1..=200 {
            recorder.attempt(attempt(number, begun, Some("A")));
        }
        recorder.answered(answer(200, begun, 1));
        let record = finish(&recorder);
        let numbers: Vec<u32> = record.attempts.iter().map(|attempt| attempt.number).collect();
        let kept: Vec<u32> = (1..=32).chain(169..=200).collect();
        assert_eq!((numbers, record.omitted), (kept, 136));
        assert_eq!(record.to_json()["attemptsOmitted"], 136);
        assert_eq!(short(&"é".repeat(2000)).len(), 2048);
        assert_eq!(short(&format!("x{}", "é".repeat(2000))).len(), 2047);
    }
}
