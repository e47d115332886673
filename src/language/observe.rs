//! What happened, as events: the engine tells an [`Observer`], and telemetry is one.

use std::sync::Arc;
use std::time::Duration;

use super::outcome::{Failure, Outcome};
use super::provider::DelaySource;

/// Told what an execution does. Every method's default does nothing.
pub trait Observer: Send + Sync {
    /// A call is being dispatched to its target.
    fn attempt_started(&self, _attempt: &Attempt<'_>) {}
    /// A call's Result was accepted.
    fn attempt_done(&self, _attempt: &Attempt<'_>, _outcome: &Outcome, _took: Duration) {}
    /// A Retry (or any re-running entry) consumed a failure and will run again after a wait.
    fn retry_scheduled(&self, _retry: &Retry<'_>) {}
    /// A policy's budget ran out, or a re-run was given up (`reason` then says why).
    fn retry_exhausted(&self, _step: &str, _failure: &Arc<Failure>) {}
    /// A bound fired.
    fn timeout_exceeded(&self, _step: &str) {}
    /// A cleanup ended.
    fn cleanup_done(&self, _step: &str, _outcome: &Outcome) {}
}

/// Which call.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// The Step.
    pub step: &'a str,
    /// The run of the innermost re-running entry, from 1.
    pub number: u32,
    /// Whether it is a cleanup's.
    pub cleanup: bool,
}

/// Which re-run.
#[derive(Clone, Copy, Debug)]
pub struct Retry<'a> {
    /// The Step, or the Flow for a Flow-level stack.
    pub step: &'a str,
    /// What was consumed.
    pub failure: &'a Arc<Failure>,
    /// The policy's position, where policies decided.
    pub policy: Option<usize>,
    /// The wait.
    pub delay: Duration,
    /// Where it came from.
    pub source: DelaySource,
}
