//! What the engine reports of a route's executions, counted.

use std::sync::Arc;

use crate::language::observe::{Observer, Retry};
use crate::language::outcome::{Failure, Outcome};
use crate::telemetry::metrics::RouteMetrics;

/// Feeds one route's counters. Attempts are counted by the http provider, which alone knows their
/// upstream.
#[derive(Debug)]
pub(crate) struct RouteObserver {
    metrics: Arc<RouteMetrics>,
}

impl RouteObserver {
    /// Counts into `metrics`.
    pub(crate) const fn new(metrics: Arc<RouteMetrics>) -> Self {
        Self { metrics }
    }
}

impl Observer for RouteObserver {
    fn retry_scheduled(&self, retry: &Retry<'_>) {
        self.metrics.retry(retry.failure.code.as_str(), retry.source);
    }

    fn gave_up(&self, _step: &str, failure: &Arc<Failure>) {
        let details = failure.details.as_ref();
        let policy = details.and_then(|details| details.get("policy")?.as_u64());
        if let Some(policy) = policy.and_then(|policy| usize::try_from(policy).ok()) {
            self.metrics.exhausted(policy);
        }
        let previous = failure.previous.as_ref();
        if let Some(reason) = previous.and_then(|previous| previous.rerun_refusal())
            && details.is_some_and(|details| details.get("reason").is_some())
        {
            self.metrics.suppressed(reason);
        }
    }

    fn timeout_exceeded(&self, _step: &str, _emitted: &Arc<Failure>) {
        self.metrics.timeout();
    }

    fn cleanup_done(&self, _step: &str, outcome: &Outcome) {
        self.metrics.finally(outcome.is_success());
    }
}
