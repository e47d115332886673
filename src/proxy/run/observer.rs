//! Counts and records what the engine reports of a request's execution.

use crate::language::observe::{Ended, Event, Observer};
use crate::language::outcome::{Failure, Outcome};
use crate::language::provider::middleware::retry::BEYOND_BOUND;
use crate::language::value::Value;
use crate::proxy::request::exchange::Exchange;
use crate::telemetry::record::Attempt;

/// Updates the route's counters and the request's record. The spans are made from the record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestObserver<'a>(pub(crate) &'a Exchange);

impl RequestObserver<'_> {
    /// An attempt ended. Only those that were sent to an upstream are counted.
    fn ended(self, ended: &Ended<'_>) {
        let Some(destination) = ended.destination else {
            return;
        };
        let code = ended.code();
        self.0.route.metrics.attempt(destination.upstream, code, ended.took);
        if let Some(recorder) = self.0.recorder(code.is_some()) {
            recorder.attempt(Attempt::of(ended, destination));
        }
    }

    /// A policy asked for a retry that is not made.
    fn suppressed(self, step: &str, reason: &'static str) {
        let route = &self.0.route;
        route.metrics.suppressed(reason);
        let (execution, route) = (self.0.id(), &*route.name);
        tracing::info!(execution, route, step, reason, "A retry was not made.");
    }

    fn gave_up(self, step: &str, failure: &Failure) {
        let metrics = &self.0.route.metrics;
        let details = failure.details.as_ref();
        let policy = details.and_then(|details| details.get("policy")?.as_u64());
        if let Some(policy) = policy.and_then(|policy| usize::try_from(policy).ok()) {
            metrics.exhausted(policy);
        }
        let told = details.and_then(|details| details.get("reason"));
        let refused = || failure.previous.as_ref()?.rerun_refusal();
        let reason = match told.as_ref().and_then(Value::as_str) {
            None => None,
            Some(BEYOND_BOUND) => Some(BEYOND_BOUND),
            Some(_) => refused(),
        };
        if let Some(reason) = reason {
            self.suppressed(step, reason);
        }
    }

    fn cleaned(self, step: &str, outcome: &Outcome) {
        let Exchange { route, .. } = self.0;
        route.metrics.finally(outcome.is_success());
        if let Outcome::Failure(failure) = outcome {
            // This may have been the only report of what the cleanup was for.
            let (execution, route, code) = (self.0.id(), &*route.name, failure.code.as_str());
            tracing::warn!(execution, route, step, code, "A cleanup failed.");
        }
    }
}

impl Observer for RequestObserver<'_> {
    fn on(&self, event: &Event<'_>) {
        let Exchange { route, site, .. } = self.0;
        match *event {
            Event::AttemptEnded(ended) => self.ended(ended),
            // The record of a retried request begins here at the latest.
            Event::RetryScheduled(_) => drop(self.0.recorder(true)),
            Event::RetryMade { failure, wait } => {
                route.metrics.retry(failure.code.as_str(), wait.source);
            }
            Event::RetryDropped { step } => {
                self.suppressed(step, if site.core.is_cut() { "draining" } else { "clientGone" });
            }
            Event::GaveUp { step, failure } => self.gave_up(step, failure),
            Event::TimeoutExceeded { .. } => route.metrics.timeout(),
            Event::CleanupDone { step, outcome } => self.cleaned(step, outcome),
            Event::AttemptStarted(_)
            | Event::Decided { .. }
            | Event::PassedOver { .. }
            | Event::Caught { .. } => {}
        }
    }
}
