//! What a rising failure says of what is called: that it is unwell, that it works, or nothing.

use std::sync::atomic::Ordering;

use crate::language::matcher::Matcher;
use crate::language::outcome::{Failure, FailureType};
use crate::language::provider::Asker;
use crate::language::provider::middleware::timeout;
use crate::language::value::Value;
use crate::proxy::code;
use crate::proxy::grpc::Status;
use crate::proxy::request::exchange::Exchange;

/// What a run says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It worked.
    Worked,
    /// It failed in a way that counts.
    Failed,
    /// Nothing: a limit inside refused it, the client broke off, a definition is at fault.
    Nothing,
}

/// What the `failure` that rose to `asker` says: by the author's `matcher`, or as usual, that a 5xx, a lost or refused
/// connection and a timeout count. Whatever else an upstream answers shows that it works.
pub(super) fn judge(matcher: Option<&Matcher>, failure: &Failure, asker: Asker<'_>) -> Verdict {
    let exchange = asker.host.and_then(|host| host.downcast_ref::<Exchange>());
    let only_waited = |exchange: &Exchange| exchange.only_waited.load(Ordering::Relaxed);
    judged(matcher, failure, || exchange.is_some_and(only_waited))
}

/// The same. `only_waited`: whether the latest attempt had waited for a place here, and asked nobody.
fn judged(
    matcher: Option<&Matcher>,
    failure: &Failure,
    only_waited: impl FnOnce() -> bool,
) -> Verdict {
    let cause = failure.chain().find(|link| !code::is_giving_up(link.code.as_str()));
    let cause = cause.unwrap_or(failure);
    let fails = match matcher {
        Some(matcher) => matcher.matches(failure),
        // A bound that ended a wait for a place here says nothing of the upstream.
        None if cause.code.as_str() == timeout::EXCEEDED => !only_waited(),
        None => counts_as_usual(cause),
    };
    if fails {
        Verdict::Failed
    } else if status(cause).is_some() {
        Verdict::Worked
    } else {
        Verdict::Nothing
    }
}

fn counts_as_usual(cause: &Failure) -> bool {
    let code = cause.code.as_str();
    if let Some(grpc) = Status::of_code(code) {
        return grpc.is_servers();
    }
    let is = |name: &str| cause.details.as_ref().and_then(|details| details.get(name));
    match status(cause) {
        Some(status) => status >= 500,
        // A place that was not free here says nothing of the upstream.
        None if code == code::CONNECTION_FAILED => {
            is("phase").as_ref().and_then(Value::as_str) != Some("capacity")
        }
        None => {
            cause.ty == FailureType::Timeout
                || matches!(
                    code,
                    code::CONNECTION_CLOSED | code::RESPONSE_TIMEOUT | code::PROTOCOL_ERROR
                )
                || is("reset").and_then(|reset| reset.as_bool()) == Some(true)
        }
    }
}

/// The status of the upstream's answer, if there was one.
fn status(failure: &Failure) -> Option<u64> {
    failure.details.as_ref()?.get("status")?.as_u64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::code::CodePattern;
    use crate::language::provider::middleware::retry;
    use std::sync::Arc;
    use std::time::Duration;

    fn with(code: &'static str, details: &serde_json::Value) -> Failure {
        Failure::error(code, "x").with_details(Value::from(details.clone()))
    }

    #[test]
    fn what_counts_as_usual() {
        let status =
            |status| with(code::NON_SUCCESS_STATUS, &serde_json::json!({ "status": status }));
        let phase = |phase| with(code::CONNECTION_FAILED, &serde_json::json!({ "phase": phase }));
        let exhausted = |by: Failure| {
            let exhausted = Arc::new(Failure::error(retry::EXHAUSTED, "x"));
            Failure::superseding(&exhausted, Some(&Arc::new(by))).as_ref().clone()
        };
        for (failure, wanted) in [
            (status(500), Verdict::Failed),
            (status(503), Verdict::Failed),
            (status(404), Verdict::Worked),
            (status(429), Verdict::Worked),
            (exhausted(status(502)), Verdict::Failed),
            (exhausted(status(404)), Verdict::Worked),
            (phase("connect"), Verdict::Failed),
            (phase("capacity"), Verdict::Nothing),
            (Failure::error(code::CONNECTION_CLOSED, "x"), Verdict::Failed),
            (Failure::error(code::RESPONSE_TIMEOUT, "x"), Verdict::Failed),
            (Failure::error(code::PROTOCOL_ERROR, "x"), Verdict::Failed),
            (timeout::exceeded(Duration::from_secs(1), "x"), Verdict::Failed),
            (Failure::error("Provider.Call.Http.Grpc.Unavailable", "x"), Verdict::Failed),
            (Failure::error(code::REQUEST_ABORTED, "x"), Verdict::Nothing),
            (Failure::error("System.ExpressionEvaluationError", "x"), Verdict::Nothing),
            (Failure::error("Provider.Middleware.CircuitBreaker.Open", "x"), Verdict::Nothing),
            (
                with("Provider.Middleware.Fault.Injected", &serde_json::json!({ "reset": true })),
                Verdict::Failed,
            ),
        ] {
            assert_eq!(judged(None, &failure, || false), wanted, "{failure:?}");
        }
        // A bound that ended a wait for a place here.
        let late = timeout::exceeded(Duration::from_secs(1), "x");
        assert_eq!(judged(None, &late, || true), Verdict::Nothing);
        assert_eq!(judged(None, &status(503), || true), Verdict::Failed);
    }

    #[test]
    fn an_author_s_matcher_decides_alone() {
        let codes = Some(vec![CodePattern::parse("Shop.*").unwrap()]);
        let matcher = Matcher { codes, ..Matcher::default() };
        let judged = |failure: &Failure| judged(Some(&matcher), failure, || true);
        assert_eq!(judged(&Failure::error("Shop.Closed", "x")), Verdict::Failed);
        let status = with(code::UNAVAILABLE, &serde_json::json!({ "status": 503 }));
        assert_eq!(judged(&status), Verdict::Worked);
        assert_eq!(judged(&Failure::error(code::CONNECTION_CLOSED, "x")), Verdict::Nothing);
    }
}
