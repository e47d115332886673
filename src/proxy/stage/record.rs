//! What happened in a rehearsal. Written for machines as it stands here, and for people from it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Serialize, Serializer};
use serde_json::Value as Json;

use crate::language::outcome::Failure;
use crate::language::temporal::Span;
use crate::language::value::Value;
use crate::telemetry::record::Call;

/// A length of time, written as an ISO 8601 duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Length(pub(crate) Duration);

/// One thing that happened.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Event {
    /// Since the request came.
    pub(crate) at: Length,
    #[serde(flatten)]
    pub(crate) what: What,
}

/// A request as an upstream saw it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sent {
    pub(crate) upstream: String,
    pub(crate) endpoint: String,
    pub(crate) method: String,
    pub(crate) target: String,
    /// Whether the connection had carried another.
    pub(crate) reused: bool,
    /// Whether the attempt sent it before, on a connection that was found closed.
    pub(crate) resent: bool,
}

/// Which scripted response it got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Given {
    /// Which in order, from 1; absent where none was meant for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) respond: Option<usize>,
    /// Whether it was given before: there was no further one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) repeated: bool,
}

/// A failure, as far as a policy reads it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Failed {
    pub(crate) code: String,
    pub(crate) r#type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retryable: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) details: Option<Json>,
}

/// A re-run that was decided.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Rerun {
    pub(crate) step: String,
    pub(crate) code: String,
    /// The position of the policy; absent for a `Loop`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<usize>,
    /// The policy in plain words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) says: Option<String>,
    pub(crate) delay: Length,
    pub(crate) source: &'static str,
    /// What the wait was drawn from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) range: Option<(Length, Length)>,
    /// The wait that the upstream asked for, at most its `retryAfterMax`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry_after: Option<String>,
    /// The wait that it asked for, if that was longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry_after_asked: Option<Length>,
}

/// What happened; the names are those of the execution events where there is one.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all_fields = "camelCase")]
pub(crate) enum What {
    /// A call is dispatched.
    #[serde(rename = "attempt.started")]
    Started {
        #[serde(flatten)]
        call: Call,
    },
    /// A request of it reached an upstream.
    #[serde(rename = "request.sent")]
    Requested {
        #[serde(flatten)]
        call: Call,
        #[serde(flatten)]
        sent: Sent,
        #[serde(flatten)]
        given: Given,
    },
    /// An upstream took no connection.
    #[serde(rename = "connection.refused")]
    Refused {
        #[serde(flatten)]
        call: Call,
        upstream: String,
        endpoint: String,
        #[serde(flatten)]
        given: Given,
    },
    /// Its Result is a success.
    #[serde(rename = "attempt.done")]
    Done {
        #[serde(flatten)]
        call: Call,
        /// Of the response, where its value is one.
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<u16>,
        took: Length,
    },
    /// Its Result is a failure.
    #[serde(rename = "attempt.failed")]
    Failed {
        #[serde(flatten)]
        call: Call,
        failure: Failed,
        took: Length,
    },
    /// It was cut off.
    #[serde(rename = "attempt.interrupted")]
    Interrupted {
        #[serde(flatten)]
        call: Call,
        /// By what; absent where by somebody outside.
        #[serde(skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        took: Length,
    },
    /// An entry that had a choice has made it.
    #[serde(rename = "entry.decided")]
    Decided {
        step: String,
        /// Which, in plain words.
        says: String,
    },
    /// An entry will run its inner scope again.
    #[serde(rename = "retry.scheduled")]
    Retry(Rerun),
    /// An entry that re-runs let the failure rise.
    #[serde(rename = "retry.passed")]
    Passed {
        step: String,
        code: String,
        /// Whether its own `when` said so; else no policy takes the failure.
        gated: bool,
    },
    /// A policy's budget ran out, or the work cannot run again.
    #[serde(rename = "retry.exhausted")]
    Exhausted { step: String, failure: Failed },
    /// A bound fired, and its scope has unwound.
    #[serde(rename = "timeout.exceeded")]
    Bound { step: String, failure: Failed },
    /// A clause of a `catch` takes the failure.
    #[serde(rename = "step.caught")]
    Caught { step: String, code: String, next: String },
    /// A cleanup ended.
    #[serde(rename = "finally.done")]
    Cleaned {
        step: String,
        /// Why it failed, where it did.
        #[serde(skip_serializing_if = "Option::is_none")]
        failure: Option<Failed>,
    },
}

impl From<&Arc<Failure>> for Failed {
    fn from(failure: &Arc<Failure>) -> Self {
        Self {
            code: failure.code.as_str().to_owned(),
            r#type: failure.ty.as_str().to_owned(),
            message: failure.message.as_deref().map(str::to_owned),
            retryable: failure.retryable,
            details: failure.details.as_ref().map(Value::to_json),
        }
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Span::from_duration(self.0).fmt(f)
    }
}

impl Serialize for Length {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
