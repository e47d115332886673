//! What the engine reports of a route's executions, counted.

use std::sync::Arc;

use super::rehearsal::Stage;
use crate::language::observe::{Attempt, Observer, Retry};
use crate::language::outcome::{Failure, Outcome};
use crate::telemetry::metrics::RouteMetrics;

/// Feeds one route's counters. Attempts are counted by the http provider, which alone knows their
/// upstream.
#[derive(Debug)]
pub(crate) struct RouteObserver {
    metrics: Arc<RouteMetrics>,
    /// Told everything, in a rehearsal.
    stage: Option<Arc<Stage>>,
}

impl RouteObserver {
    /// Counts into `metrics`.
    pub(crate) const fn new(metrics: Arc<RouteMetrics>, stage: Option<Arc<Stage>>) -> Self {
        Self { metrics, stage }
    }

    /// The execution came to its Result.
    pub(crate) fn settled(&self, outcome: &Outcome) {
        if let Some(stage) = &self.stage {
            stage.settled(outcome);
        }
    }
}

impl Observer for RouteObserver {
    fn attempt_started(&self, attempt: &Attempt<'_>) {
        if let Some(stage) = &self.stage {
            stage.attempt_started(attempt);
        }
    }

    fn attempt_done(&self, attempt: &Attempt<'_>, outcome: &Outcome) {
        if let Some(stage) = &self.stage {
            stage.attempt_done(attempt, outcome);
        }
    }

    fn attempt_interrupted(&self, attempt: &Attempt<'_>, explanation: Option<&Failure>) {
        if let Some(stage) = &self.stage {
            stage.attempt_interrupted(attempt, explanation);
        }
    }

    fn retry_scheduled(&self, retry: &Retry<'_>) {
        self.metrics.retry(retry.failure.code.as_str(), retry.source);
        if let Some(stage) = &self.stage {
            stage.retry_scheduled(retry);
        }
    }

    fn passed_over(&self, step: &str, failure: &Arc<Failure>, gated: bool) {
        if let Some(stage) = &self.stage {
            stage.passed_over(step, failure, gated);
        }
    }

    fn caught(&self, step: &str, failure: &Arc<Failure>, next: &str) {
        if let Some(stage) = &self.stage {
            stage.caught(step, failure, next);
        }
    }

    fn gave_up(&self, step: &str, failure: &Arc<Failure>) {
        if let Some(stage) = &self.stage {
            stage.gave_up(step, failure);
        }
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

    fn timeout_exceeded(&self, step: &str, emitted: &Arc<Failure>) {
        self.metrics.timeout();
        if let Some(stage) = &self.stage {
            stage.timeout_exceeded(step, emitted);
        }
    }

    fn cleanup_done(&self, step: &str, outcome: &Outcome) {
        self.metrics.finally(outcome.is_success());
        if let Some(stage) = &self.stage {
            stage.cleanup_done(step, outcome);
        }
    }
}
