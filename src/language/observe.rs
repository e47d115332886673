//! What happened, as it happens: the engine tells an [`Observer`], and telemetry is one.
//!
//! Every method's default does nothing, every argument is borrowed from what the engine holds anyway: an
//! observer that is not interested costs a call through a table. The engine measures no durations for
//! it; an observer that wants one reads the clock at both ends.

use std::sync::Arc;
use std::time::Duration;

use super::outcome::{Failure, Outcome};
use super::provider::{DelaySource, Middleware, Prepared, Role};

/// Told what one execution does.
pub trait Observer: Send + Sync {
    /// A call is being dispatched to a provider.
    fn attempt_started(&self, attempt: &Attempt<'_>) {
        let _ = attempt;
    }

    /// A provider's Result was accepted.
    fn attempt_done(&self, attempt: &Attempt<'_>, outcome: &Outcome) {
        let _ = (attempt, outcome);
    }

    /// A dispatch was interrupted before its Result was accepted: by a bound, whose failure
    /// `explanation` is, or from outside.
    fn attempt_interrupted(&self, attempt: &Attempt<'_>, explanation: Option<&Failure>) {
        let _ = (attempt, explanation);
    }

    /// A re-running entry consumed a failure and will run its inner scope again after a wait.
    fn retry_scheduled(&self, retry: &Retry<'_>) {
        let _ = retry;
    }

    /// A re-run that was scheduled is not made: the execution was cancelled from outside during its wait, or dropped.
    fn retry_dropped(&self, step: &str) {
        let _ = step;
    }

    /// A re-running entry acted on failures and let this one rise: none of its policies takes it, or, where
    /// `gated`, its own `when` says so.
    fn passed_over(&self, step: &str, failure: &Arc<Failure>, gated: bool) {
        let _ = (step, failure, gated);
    }

    /// A middleware's action emitted a failure of its own in place of the one that rose: a policy's
    /// budget ran out (`Provider.Middleware.Retry.Exhausted`; `details` say which, and why where it was
    /// for another reason). The failure that rose is its `previous`.
    fn gave_up(&self, step: &str, failure: &Arc<Failure>) {
        let _ = (step, failure);
    }

    /// A bound fired and its scope has unwound; `emitted` is what rises from the seam.
    fn timeout_exceeded(&self, step: &str, emitted: &Arc<Failure>) {
        let _ = (step, emitted);
    }

    /// A clause of the Step's `catch` takes the failure: the Step `next` is entered.
    fn caught(&self, step: &str, failure: &Arc<Failure>, next: &str) {
        let _ = (step, failure, next);
    }

    /// A cleanup ended.
    fn cleanup_done(&self, step: &str, outcome: &Outcome) {
        let _ = (step, outcome);
    }
}

/// An observer that looks away.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {}

/// Two observers that are told the same.
#[derive(Debug)]
pub struct Both<'a, A, B>(pub &'a A, pub &'a B);

/// Which dispatch.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// The Step; the Flow, for a cleanup of a Flow-level entry.
    pub step: &'a str,
    /// The run of the innermost re-running entry around it, from 1.
    pub number: u32,
    /// Whose call it is.
    pub role: Role,
}

/// Which re-run.
#[derive(Clone, Copy, Debug)]
pub struct Retry<'a> {
    /// The Step; the Flow, for a Flow-level entry.
    pub step: &'a str,
    /// What was consumed.
    pub failure: &'a Arc<Failure>,
    /// The position of the policy that decided, where policies did.
    pub policy: Option<usize>,
    /// The wait before the re-run.
    pub delay: Duration,
    /// Where the wait came from.
    pub source: DelaySource,
    /// What a jittered wait was drawn from.
    pub range: Option<(Duration, Duration)>,
    /// What the entry captured in its `onEntry`, and the middleware that can say what it means.
    pub config: Option<(&'a dyn Middleware, &'a Prepared)>,
}

impl<A: Observer, B: Observer> Observer for Both<'_, A, B> {
    fn attempt_started(&self, attempt: &Attempt<'_>) {
        self.0.attempt_started(attempt);
        self.1.attempt_started(attempt);
    }

    fn attempt_done(&self, attempt: &Attempt<'_>, outcome: &Outcome) {
        self.0.attempt_done(attempt, outcome);
        self.1.attempt_done(attempt, outcome);
    }

    fn attempt_interrupted(&self, attempt: &Attempt<'_>, explanation: Option<&Failure>) {
        self.0.attempt_interrupted(attempt, explanation);
        self.1.attempt_interrupted(attempt, explanation);
    }

    fn retry_scheduled(&self, retry: &Retry<'_>) {
        self.0.retry_scheduled(retry);
        self.1.retry_scheduled(retry);
    }

    fn retry_dropped(&self, step: &str) {
        self.0.retry_dropped(step);
        self.1.retry_dropped(step);
    }

    fn passed_over(&self, step: &str, failure: &Arc<Failure>, gated: bool) {
        self.0.passed_over(step, failure, gated);
        self.1.passed_over(step, failure, gated);
    }

    fn gave_up(&self, step: &str, failure: &Arc<Failure>) {
        self.0.gave_up(step, failure);
        self.1.gave_up(step, failure);
    }

    fn caught(&self, step: &str, failure: &Arc<Failure>, next: &str) {
        self.0.caught(step, failure, next);
        self.1.caught(step, failure, next);
    }

    fn timeout_exceeded(&self, step: &str, emitted: &Arc<Failure>) {
        self.0.timeout_exceeded(step, emitted);
        self.1.timeout_exceeded(step, emitted);
    }

    fn cleanup_done(&self, step: &str, outcome: &Outcome) {
        self.0.cleanup_done(step, outcome);
        self.1.cleanup_done(step, outcome);
    }
}
