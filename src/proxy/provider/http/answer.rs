//! The parts of every Result of an attempt: its metadata, its details and its message.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use http::{HeaderValue, Method, StatusCode};

use super::attempt::Attempt;
use crate::language::code::Code;
use crate::language::outcome::{Failure, FailureType, Outcome, RunNumber};
use crate::language::provider::Answer;
use crate::language::value::{Map, Native, Value};
use crate::proxy::answer::classify::{Repeatable, Retryable};
use crate::proxy::answer::reply::{Details, RequestSent};
use crate::proxy::body::source::BodyFailure;
use crate::proxy::message::id;

/// `provider.metadata`.
#[derive(Debug)]
pub(super) struct AttemptMetadata {
    pub(super) request_id: HeaderValue,
    pub(super) status: Option<StatusCode>,
    pub(super) endpoint: Arc<str>,
    pub(super) reused: bool,
}

impl Native for AttemptMetadata {
    fn member(&self, name: &str) -> Option<Value> {
        match name {
            "requestId" => Some(Value::from(id::text(&self.request_id))),
            "status" => Some(Value::from(u32::from(self.status?.as_u16()))),
            "endpoint" => Some(Value::String(Arc::clone(&self.endpoint))),
            "reusedConnection" => Some(Value::Bool(self.reused)),
            _ => None,
        }
    }

    fn to_map(&self) -> Map {
        ["requestId", "status", "endpoint", "reusedConnection"]
            .into_iter()
            .filter_map(|name| Some((name.into(), self.member(name)?)))
            .collect()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Why a failure is retryable or not, if its code alone does not say it.
struct Because<'a> {
    retryable: Retryable,
    refusal: Option<&'static str>,
    method: &'a Method,
    repeatable: Repeatable,
}

impl fmt::Display for Because<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { retryable, refusal, method, repeatable } = self;
        match (*retryable, *refusal) {
            (Retryable::Is(_), None) => Ok(()),
            (retryable, Some(_)) if !retryable.holds(*repeatable) => Ok(()),
            (_, Some(refusal)) => write!(f, " (not retryable: {refusal})"),
            (Retryable::Asked, None) => f.write_str(" (retryable: it says when to try again)"),
            (Retryable::ByMethod, None) if repeatable.idempotent => {
                write!(f, " (retryable: {method} is idempotent)")
            }
            (Retryable::ByMethod, None) if repeatable.keyed => {
                write!(f, " (retryable: a {method} with an Idempotency-Key)")
            }
            (Retryable::ByMethod, None) => {
                write!(f, " (not retryable: a {method} without an Idempotency-Key)")
            }
        }
    }
}

/// How far an attempt got.
#[derive(Clone, Copy, Debug)]
pub(super) struct Destination {
    /// Whether its connection had carried another request before.
    pub(super) reused: bool,
    /// The status of the response, if there was one.
    pub(super) status: Option<StatusCode>,
}

impl Attempt<'_> {
    /// How much of the request was sent, once some of it was.
    pub(super) fn sent(&self, wrote: bool) -> RequestSent {
        match (wrote, self.progress.finished()) {
            (false, _) => RequestSent::None,
            (true, false) => RequestSent::Partial,
            (true, true) => RequestSent::Complete,
        }
    }

    /// Why the work cannot be run again, if so.
    pub(super) fn refusal(&self) -> Option<&'static str> {
        match self.progress.broken() {
            Some(BodyFailure::Gone) => return Some("clientGone"),
            Some(BodyFailure::Malformed | BodyFailure::Stalled) => return Some("requestAborted"),
            None => {}
        }
        let body_gone = self.exchange.route.facts.resends && !self.progress.replayable();
        body_gone.then_some("bodyNotReplayable")
    }

    pub(super) fn details(&self, at: Destination, proxy_status: &'static str) -> Details {
        Details {
            endpoint: Arc::clone(self.endpoint.get().name()),
            role: self.dispatch.attempt.role,
            sent: RequestSent::None,
            reused: at.reused,
            phase: None,
            retry_after: None,
            grpc_status: None,
            refusal: self.refusal(),
            retry_budget: self.upstream.common.retry_budget.clone(),
            proxy_status,
            reply: None,
        }
    }

    /// A failure: the upstream did `what`.
    pub(super) fn failed(
        &self,
        at: Destination,
        code: impl Into<Code>,
        retryable: Retryable,
        what: fmt::Arguments<'_>,
        details: Details,
    ) -> Answer {
        let attempt = self.dispatch.attempt;
        let message = format!(
            "{}: attempt {}: upstream {} {what}{}",
            attempt.step,
            RunNumber(attempt.number, self.dispatch.attempts),
            self.upstream.settings.name,
            Because {
                retryable,
                refusal: details.refusal,
                method: &self.method,
                repeatable: self.repeatable,
            },
        );
        let retryable = retryable.holds(self.repeatable);
        let failure = Failure {
            ty: FailureType::Error,
            code: code.into(),
            message: Some(message.into()),
            retryable: Some(retryable && details.refusal.is_none()),
            details: Some(Value::Native(Arc::new(details))),
            previous: None,
            awaited: None,
        };
        self.answer(at, failure.into())
    }

    pub(super) fn answer(&self, at: Destination, outcome: Outcome) -> Answer {
        let metadata = if self.dispatch.windowed {
            Value::Native(Arc::new(AttemptMetadata {
                request_id: self.exchange.id.clone(),
                status: at.status,
                endpoint: Arc::clone(self.endpoint.get().name()),
                reused: at.reused,
            }))
        } else {
            Value::Null
        };
        Answer { outcome, metadata }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::proxy::provider::http::CONTRACT;

    #[test]
    fn the_window_holds_the_declared_members_and_no_others() {
        let window = AttemptMetadata {
            request_id: HeaderValue::from_static("r"),
            status: Some(StatusCode::OK),
            endpoint: "a:80".into(),
            reused: true,
        };
        let held: BTreeSet<String> = window.to_map().keys().map(ToString::to_string).collect();
        let declared = CONTRACT.document["metadata"]["properties"].as_object();
        let declared: BTreeSet<String> = declared.unwrap().keys().cloned().collect();
        assert_eq!(held, declared);
        assert_eq!(window.member("other"), None);
    }
}
