//! Counts and records what the engine reports of a request's execution.

use std::sync::atomic::Ordering;

use tokio::time::Instant;

use crate::language::observe::{Caught, End, Ended, EntryPlace, Event, Observer, Passed};
use crate::language::outcome::{Failure, Outcome};
use crate::language::provider::Role;
use crate::language::provider::middleware::retry::{BEYOND_BOUND, BUDGET_SPENT, SWITCHED_OFF};
use crate::language::provider::middleware::timeout;
use crate::language::value::Value;
use crate::proxy::request::exchange::Exchange;
use crate::proxy::upstream::condition::{Cause, Reported};
use crate::proxy::upstream::endpoints::WorkerEndpoint;
use crate::telemetry::metrics::Cleaned;
use crate::telemetry::record::{Attempt, CaughtFailure, FiredBound};

/// Updates the route's counters and the request's record. The spans are made from the record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestObserver<'a>(pub(crate) &'a Exchange);

impl RequestObserver<'_> {
    /// An attempt ended. Only those that were sent to an upstream are counted.
    fn ended(self, ended: &Ended<'_>) {
        let Some(destination) = ended.destination else {
            return;
        };
        self.0.only_waited.store(destination.unasked, Ordering::Relaxed);
        let code = ended.code();
        let metrics = &self.0.route.metrics;
        metrics.attempt(destination.upstream, code, ended.took);
        if ended.attempt.role == Role::Cleanup {
            metrics.cleanup_attempt(destination.upstream, code);
        }
        let endpoint = destination.endpoint.as_any().downcast_ref::<WorkerEndpoint>();
        if let Some(endpoint) = endpoint.filter(|_| !destination.unasked) {
            endpoint.metrics.attempt(code.is_none());
            if matches!(ended.end, End::Interrupted(Some(by)) if by.code.as_str() == timeout::EXCEEDED)
            {
                let cause = Reported::Failure(Cause::ResponseTimeout);
                endpoint.report(cause, Instant::now());
            }
        }
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

    fn gave_up(self, entry: EntryPlace<'_>, failure: &Failure) {
        let metrics = &self.0.route.metrics;
        let details = failure.details.as_ref();
        let policy = details.and_then(|details| details.get("policy")?.as_u64());
        if let Some(policy) = policy.and_then(|policy| usize::try_from(policy).ok()) {
            metrics.exhausted(&entry.to_string(), policy);
        }
        let told = details.and_then(|details| details.get("reason"));
        let refused = || failure.previous.as_ref()?.rerun_refusal();
        let reason = match told.as_ref().and_then(Value::as_str) {
            None => None,
            Some(told) => {
                let own = [BEYOND_BOUND, BUDGET_SPENT, SWITCHED_OFF];
                own.into_iter().find(|own| *own == told).or_else(refused)
            }
        };
        if let Some(reason) = reason {
            self.suppressed(entry.step, reason);
        }
    }

    /// A failure that nobody sees any more, unless it is told.
    fn caught(self, caught: &Caught<'_>) {
        let Exchange { route, .. } = self.0;
        let Caught { step, failure, next, cleanup } = *caught;
        let code = failure.code.as_str();
        route.metrics.caught(step, code);
        if let Some(recorder) = self.0.recorder(true) {
            recorder.caught(CaughtFailure::of(caught));
        }
        if let Some(untold) = route.rare().caught.admits(Instant::now()) {
            let cause = failure.chain().skip(1).last().map(tracing::field::display);
            tracing::warn!(
                execution = self.0.id(),
                route = &*route.name,
                step,
                next,
                cleanup,
                error = %failure,
                cause,
                untold,
                "A failure was caught."
            );
        }
    }

    /// Whatever becomes of it: a policy that its own author's slip has switched off is no policy.
    fn faulted(self, step: &str, fault: &Failure) {
        let Exchange { route, .. } = self.0;
        route.metrics.definition_fault(step, fault.code.as_str());
        if let Some(untold) = route.rare().faults.admits(Instant::now()) {
            tracing::warn!(
                execution = self.0.id(),
                route = &*route.name,
                step,
                error = %fault,
                untold,
                "A definition is at fault."
            );
        }
    }

    fn exceeded(self, entry: EntryPlace<'_>, emitted: &Failure) {
        let entry = entry.to_string();
        self.0.route.metrics.timeout(&entry);
        if let Some(recorder) = self.0.recorder(true) {
            recorder.bound(FiredBound::of(entry, emitted));
        }
    }

    fn passed_over(self, passed: &Passed<'_>) {
        let Passed { entry, failure, .. } = *passed;
        tracing::debug!(
            execution = self.0.id(),
            route = &*self.0.route.name,
            step = entry.step,
            %entry,
            reason = passed.reason(),
            error = %failure,
            "No policy took a failure."
        );
    }

    fn cleaned(self, step: &str, outcome: &Outcome, caught: bool) {
        let Exchange { route, .. } = self.0;
        route.metrics.finally(match outcome {
            Outcome::Success(_) if caught => Cleaned::Degraded,
            Outcome::Success(_) => Cleaned::Success,
            Outcome::Failure(_) => Cleaned::Failure,
        });
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
            Event::PassedOver(passed) => self.passed_over(passed),
            Event::Refused { entry, failure } => {
                route.metrics.refusal(&entry.to_string(), failure.code.as_str());
            }
            Event::GaveUp { entry, failure } => self.gave_up(entry, failure),
            Event::TimeoutExceeded { entry, emitted } => self.exceeded(entry, emitted),
            Event::Caught(caught) => self.caught(caught),
            Event::Faulted { step, failure } => self.faulted(step, failure),
            Event::CleanupDone { step, outcome, caught } => self.cleaned(step, outcome, caught),
            Event::AttemptStarted(_) | Event::Decided { .. } => {}
        }
    }
}
