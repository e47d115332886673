//! One run of a root Flow, as every frame in it sees it.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::ExecutionId;
use super::view::StepNumber;
use crate::language::clock::Clock;
use crate::language::code::system;
use crate::language::observe::{Event, Observer};
use crate::language::outcome::Failure;
use crate::language::plan::Plan;
use crate::language::provider::{AttemptId, RerunGate};
use crate::language::temporal::Timestamp;
use crate::language::value::Value;

/// What all frames have in common ("execution").
pub(super) struct Execution<'e> {
    pub(super) plan: &'e Plan,
    pub(super) id: ExecutionId<'e>,
    pub(super) platform: Value,
    pub(super) clock: Clock,
    pub(super) observer: &'e dyn Observer,
    pub(super) host: Option<&'e (dyn Any + Send + Sync)>,
    pub(super) gate: Option<&'e dyn RerunGate>,
    pub(super) cleanup_limit: Duration,
    pub(super) gives_up_early: bool,
    pub(super) entered: Timestamp,
    /// Numbers the Step executions.
    pub(super) steps: AtomicU64,
    /// Numbers the attempts.
    pub(super) attempts: AtomicU64,
}

impl Execution<'_> {
    /// The instant of an entry or exit. The clock is read only if some expression of the plan may read it.
    pub(super) fn stamp(&self) -> Timestamp {
        if self.plan.needs().instants { self.clock.now() } else { self.entered }
    }

    /// `fault`, which a field at `place` gave, with that in its message. If it is a fault of the definition, the observer
    /// is told.
    pub(super) fn blame(&self, place: &str, fault: Failure) -> Failure {
        let fault = fault.in_step(place);
        self.told(place, &fault);
        fault
    }

    /// Tells the observer of `failure`, if it is a fault of the definition.
    pub(super) fn told(&self, step: &str, failure: &Failure) {
        if system::FAULTS.contains(&failure.code.as_str()) {
            self.observer.on(&Event::Faulted { step, failure });
        }
    }

    /// The id for a Step execution that begins now.
    pub(super) fn next_step(&self) -> StepNumber {
        StepNumber::new(self.steps.fetch_add(1, Ordering::Relaxed))
    }

    /// The id of an attempt that begins now.
    pub(super) fn next_attempt(&self) -> AttemptId {
        AttemptId(self.attempts.fetch_add(1, Ordering::Relaxed))
    }
}

impl fmt::Debug for Execution<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Execution").field("id", &self.id).finish_non_exhaustive()
    }
}
