//! What the engine reports of a request's execution, counted and recorded.

use std::sync::Arc;

use crate::language::observe::{Observer, Retry};
use crate::language::outcome::{Failure, Outcome};
use crate::proxy::request::exchange::Exchange;
use crate::telemetry::record::Wait;

/// Feeds the route's counters and the request's record. Attempts are told by the http provider, which
/// alone knows their upstream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestObserver<'a>(pub(crate) &'a Exchange);

impl RequestObserver<'_> {
    /// A policy asked for a retry, which is not made.
    fn suppressed(self, step: &str, reason: &'static str) {
        let route = &self.0.route;
        route.metrics.suppressed(reason);
        let (execution, route) = (self.0.id(), &*route.name);
        tracing::info!(execution, route, step, reason, "A retry was not made.");
    }
}

impl Observer for RequestObserver<'_> {
    fn retry_scheduled(&self, retry: &Retry<'_>) {
        self.0.route.metrics.retry(retry.failure.code.as_str(), retry.source);
        if let Some(recorder) = self.0.recorder(true) {
            recorder.waits(retry.step, Wait { delay: retry.delay, source: retry.source });
        }
    }

    fn retry_dropped(&self, step: &str) {
        let draining = self.0.site.core.is_cut();
        self.suppressed(step, if draining { "draining" } else { "clientGone" });
    }

    fn gave_up(&self, step: &str, failure: &Arc<Failure>) {
        let metrics = &self.0.route.metrics;
        let details = failure.details.as_ref();
        let policy = details.and_then(|details| details.get("policy")?.as_u64());
        if let Some(policy) = policy.and_then(|policy| usize::try_from(policy).ok()) {
            metrics.exhausted(policy);
        }
        let previous = failure.previous.as_ref();
        if let Some(reason) = previous.and_then(|previous| previous.rerun_refusal())
            && details.is_some_and(|details| details.get("reason").is_some())
        {
            self.suppressed(step, reason);
        }
    }

    fn timeout_exceeded(&self, _step: &str, _emitted: &Arc<Failure>) {
        self.0.route.metrics.timeout();
    }

    fn cleanup_done(&self, step: &str, outcome: &Outcome) {
        let Exchange { route, .. } = self.0;
        route.metrics.finally(outcome.is_success());
        if let Outcome::Failure(failure) = outcome {
            // What it was to tell nobody else may ever hear of.
            let (execution, route, code) = (self.0.id(), &*route.name, failure.code.as_str());
            tracing::warn!(execution, route, step, code, "A cleanup failed.");
        }
    }
}
