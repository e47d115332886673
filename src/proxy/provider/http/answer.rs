//! The parts of every Result of an attempt: its metadata, its details and its message.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use http::{HeaderValue, StatusCode};

use super::attempt::Attempt;
use crate::language::code::Code;
use crate::language::outcome::{Failure, FailureType, Outcome, RunNumber};
use crate::language::provider::Answer;
use crate::language::value::{Map, Native, Value};
use crate::proxy::answer::reply::{Details, RequestSent};
use crate::proxy::body::source::BodyFailure;
use crate::proxy::code;
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

/// Why a failure is not `retryable` for which a retry might help.
const UNSAFE_AGAIN: &str = " (not retryable: no idempotent method and no Idempotency-Key)";

/// Whether a retry might help with a failure that the built-in table classified, if it were safe.
fn may_help(code: &Code, status: Option<StatusCode>) -> bool {
    let Code::Static(code) = code else {
        return false;
    };
    match *code {
        code::UNAVAILABLE | code::BAD_GATEWAY | code::GATEWAY_TIMEOUT | code::CONNECTION_CLOSED => {
            true
        }
        code::NON_SUCCESS_STATUS => status.is_some_and(|status| status.is_server_error()),
        _ => false,
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
            endpoint: Arc::clone(self.upstream.authority(self.endpoint)),
            role: self.dispatch.attempt.role,
            sent: RequestSent::None,
            reused: at.reused,
            phase: None,
            retry_after: None,
            grpc_status: None,
            refusal: self.refusal(),
            proxy_status,
            reply: None,
        }
    }

    /// A failure: the upstream did `what`.
    pub(super) fn failed(
        &self,
        at: Destination,
        code: impl Into<Code>,
        retryable: bool,
        what: fmt::Arguments<'_>,
        details: Details,
    ) -> Answer {
        let attempt = self.dispatch.attempt;
        let code = code.into();
        let unsafe_again = !retryable && !self.repeatable.any() && may_help(&code, at.status);
        let message = format!(
            "{}: attempt {}: upstream {} {what}{}",
            attempt.step,
            RunNumber(attempt.number, self.dispatch.attempts),
            self.upstream.settings.name,
            if unsafe_again { UNSAFE_AGAIN } else { "" },
        );
        let failure = Failure {
            ty: FailureType::Error,
            code,
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
                endpoint: Arc::clone(self.upstream.authority(self.endpoint)),
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
