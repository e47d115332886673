//! One attempt: its identity, and what its provider may report while it runs.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::action::{DelaySource, Reentry};
use crate::language::outcome::Failure;

/// One dispatch of a call to a provider: which one it is, what came before it and when it began. The provider
/// and the observers get the same value.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// Unique within its execution.
    pub id: AttemptId,
    /// The name of the Step, or of the Flow for a cleanup of its own stack.
    pub step: &'a str,
    /// The run of the innermost re-running entry around it, from 1.
    pub number: u32,
    /// Who makes the call.
    pub role: Role,
    /// The index of the dispatch in the innermost `Gather` around it.
    pub dispatch: Option<usize>,
    /// The wait before it, if it is the first attempt of a re-run.
    pub wait: Option<Wait>,
    /// When it began. The engine reads the clock once, so that everybody measures the same.
    pub begun: Instant,
}

/// The number of an attempt within its execution, in order of their beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttemptId(pub u64);

/// The wait before a re-run, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// How long it is.
    pub delay: Duration,
    /// Where it came from.
    pub source: DelaySource,
    /// The position of the policy that decided, if a policy did.
    pub policy: Option<usize>,
}

/// Who makes a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A Step.
    Step,
    /// A cleanup. Its response never becomes the client's answer.
    Cleanup,
}

/// Lent to a provider for one call. What the provider says of itself is read when the call has ended, whether it was
/// answered, interrupted or dropped. A call can also ask here to be polled at an instant: the engine has a timer anyway.
#[derive(Debug, Default)]
pub struct Slot<'a> {
    state: Mutex<SlotState<'a>>,
    fault: OnceLock<Box<Failure>>,
}

#[derive(Debug, Default)]
struct SlotState<'a> {
    destination: Option<Destination<'a>>,
    /// When the call is to be polled.
    deadline: Option<Instant>,
    /// Whether that instant has come.
    past: bool,
}

/// Where a call goes, for whoever records it.
#[derive(Debug)]
pub struct Destination<'a> {
    /// The name of the upstream.
    pub upstream: &'a Arc<str>,
    /// Which of its endpoints.
    pub endpoint: Arc<dyn ReachedEndpoint>,
    /// Whether the call ended before that endpoint was asked, for a reason that is none of the endpoint's.
    pub unasked: bool,
    /// What else the host wants to record. The engine does not look into it.
    pub more: Option<Arc<dyn Any + Send + Sync>>,
}

/// An endpoint of an upstream.
pub trait ReachedEndpoint: fmt::Debug + Send + Sync {
    /// Its name.
    fn name(&self) -> &Arc<str>;

    /// What it is to the host.
    fn as_any(&self) -> &(dyn Any + Send + Sync);
}

impl From<&Reentry> for Wait {
    fn from(Reentry { after, source, policy, .. }: &Reentry) -> Self {
        Self { delay: *after, source: *source, policy: *policy }
    }
}

impl<'a> Slot<'a> {
    /// Says where the call goes.
    pub fn fill(&self, destination: Destination<'a>) {
        self.lock().destination = Some(destination);
    }

    /// The call goes to another endpoint than it said.
    pub fn redirect(&self, endpoint: Arc<dyn ReachedEndpoint>) {
        if let Some(destination) = &mut self.lock().destination {
            destination.endpoint = endpoint;
        }
    }

    /// The call has ended before the endpoint was asked, for a reason that is none of the endpoint's.
    pub fn unasked(&self) {
        if let Some(destination) = &mut self.lock().destination {
            destination.unasked = true;
        }
    }

    /// Has the call polled at `deadline`, in place of an earlier one.
    pub fn wake_at(&self, deadline: Instant) {
        let mut state = self.lock();
        state.deadline = Some(deadline);
        state.past = false;
    }

    /// Whether the instant for which the call asked has come.
    pub fn is_past(&self) -> bool {
        self.lock().past
    }

    /// The instant for which the call asks, unless it has come.
    pub(in crate::language) fn deadline(&self) -> Option<Instant> {
        self.lock().deadline
    }

    /// That instant has come.
    pub(in crate::language) fn pass(&self) {
        let mut state = self.lock();
        state.deadline = None;
        state.past = true;
    }

    /// Says that the definition is at fault, although the call goes on without what is. The first fault counts.
    pub fn blame(&self, fault: Failure) {
        self.fault.get_or_init(|| Box::new(fault));
    }

    /// What is at fault.
    pub(in crate::language) fn fault(&self) -> Option<&Failure> {
        self.fault.get().map(|fault| &**fault)
    }

    /// Where the provider said that the call goes.
    pub(in crate::language) fn take(&self) -> Option<Destination<'a>> {
        self.lock().destination.take()
    }

    fn lock(&self) -> MutexGuard<'_, SlotState<'a>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
