//! The events of a rehearsal. This is the form for machines; the text for people is made from it.

use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};
use serde_json::Value as Json;

use crate::language::outcome::Failure;
use crate::language::temporal::Span;
use crate::language::value::Value;
use crate::telemetry::record::Call;

/// A duration in ISO 8601.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct IsoDuration(pub(crate) Duration);

/// One event.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Event {
    /// The time since the request arrived.
    pub(crate) at: IsoDuration,
    #[serde(flatten)]
    pub(crate) what: EventKind,
}

/// A request as an upstream received it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SentRequest {
    pub(crate) upstream: String,
    pub(crate) endpoint: String,
    pub(crate) method: String,
    pub(crate) target: String,
    /// Whether the connection had carried another request before.
    pub(crate) reused: bool,
    /// Whether the attempt sent it before, on a connection that turned out to be closed.
    pub(crate) resent: bool,
}

/// The scripted response that a request got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct GivenResponse {
    /// Its number, from 1; absent if the script has none for this request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) respond: Option<usize>,
    /// Whether it was given before, because there was no further one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) repeated: bool,
}

/// A failure, as far as a policy reads it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FailureSummary {
    pub(crate) code: String,
    pub(crate) r#type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retryable: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) details: Option<Json>,
}

/// A decided re-run.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Rerun {
    pub(crate) step: String,
    pub(crate) code: String,
    /// The index of the policy; absent for a `Loop`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<usize>,
    /// The policy in plain words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) says: Option<String>,
    pub(crate) delay: IsoDuration,
    pub(crate) source: &'static str,
    /// The wait before jitter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) range: Option<(IsoDuration, IsoDuration)>,
    /// The wait that the upstream asked for, at most its `retryAfterMax`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry_after: Option<String>,
    /// The wait that it asked for, if that was longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry_after_asked: Option<IsoDuration>,
}

/// The kinds of events. They have the names of the execution events if there are any.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all_fields = "camelCase")]
pub(crate) enum EventKind {
    /// A call was dispatched.
    #[serde(rename = "attempt.started")]
    Started {
        #[serde(flatten)]
        call: Call,
    },
    /// One of its requests reached an upstream.
    #[serde(rename = "request.sent")]
    Requested {
        #[serde(flatten)]
        call: Call,
        #[serde(flatten)]
        sent: SentRequest,
        #[serde(flatten)]
        given: GivenResponse,
    },
    /// An upstream refused a connection.
    #[serde(rename = "connection.refused")]
    Refused {
        #[serde(flatten)]
        call: Call,
        upstream: String,
        endpoint: String,
        #[serde(flatten)]
        given: GivenResponse,
    },
    /// Its Result is a success.
    #[serde(rename = "attempt.done")]
    Done {
        #[serde(flatten)]
        call: Call,
        /// The status of the response, if the value is one.
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<u16>,
        took: IsoDuration,
    },
    /// Its Result is a failure.
    #[serde(rename = "attempt.failed")]
    Failed {
        #[serde(flatten)]
        call: Call,
        failure: FailureSummary,
        took: IsoDuration,
    },
    /// It was interrupted.
    #[serde(rename = "attempt.interrupted")]
    Interrupted {
        #[serde(flatten)]
        call: Call,
        /// The reason; absent if the cause was outside of the execution.
        #[serde(skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        took: IsoDuration,
    },
    /// An entry that could decide has decided.
    #[serde(rename = "entry.decided")]
    Decided {
        step: String,
        /// What it decided, in plain words.
        says: String,
    },
    /// An entry will run its inner scope again.
    #[serde(rename = "retry.scheduled")]
    Retry(Rerun),
    /// A re-running entry let the failure rise.
    #[serde(rename = "retry.passed")]
    Passed {
        step: String,
        code: String,
        /// Why: `when`, `notRetryable` or `noPolicy`.
        reason: &'static str,
        /// Whether its own `when` decided so; otherwise no policy matched.
        gated: bool,
    },
    /// A policy's budget ran out, or the work cannot run again.
    #[serde(rename = "retry.exhausted")]
    Exhausted { step: String, failure: FailureSummary },
    /// A timeout fired, and its scope has unwound.
    #[serde(rename = "timeout.exceeded")]
    Bound { step: String, failure: FailureSummary },
    /// A clause of a `catch` matched the failure.
    #[serde(rename = "failure.caught")]
    Caught { step: String, code: String, next: String },
    /// The definition is at fault.
    #[serde(rename = "definition.faulted")]
    Faulted { step: String, failure: FailureSummary },
    /// A cleanup ended.
    #[serde(rename = "finally.done")]
    Cleaned {
        step: String,
        /// Whether its Flow caught a failure.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        degraded: bool,
        /// The failure, if it failed.
        #[serde(skip_serializing_if = "Option::is_none")]
        failure: Option<FailureSummary>,
    },
}

impl From<&Failure> for FailureSummary {
    fn from(failure: &Failure) -> Self {
        Self {
            code: failure.code.as_str().to_owned(),
            r#type: failure.ty.as_str().to_owned(),
            message: failure.message.as_deref().map(str::to_owned),
            retryable: failure.retryable,
            details: failure.details.as_ref().map(Value::to_json),
        }
    }
}

impl fmt::Display for IsoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Span::from_duration(self.0).fmt(f)
    }
}

impl Serialize for IsoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
