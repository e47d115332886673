//! Crossing a stack: down through every entry's `onEntry`, up through `onSuccess` or `onFailure` and
//! then `onAlways` (MWL, "Middleware mechanics").
//!
//! The stack is a loop over positions. Each established entry is one [`EntryRun`]; what rises is one
//! [`Flowed`]. An interruption rises as `Err` and meets nothing but `onAlways`, until it reaches the
//! entry whose bound it is.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::frame::Frame;
use super::phase::after_cleanup;
use super::scope::{Flowed, Interrupted, Owner};
use super::vars::Vars;
use super::view::{PhaseView, StepState};
use crate::language::observe::{Event, Observer};
use crate::language::outcome::{Failure, Outcome};
use crate::language::plan::{EntryPlan, StackPlan};
use crate::language::provider::{EntryState, Phase, Reentry, Wait};
use crate::language::value::Value;

/// What a stack wraps: a call or a graph.
pub(super) trait Operation: Sync {
    /// Runs it once on what the innermost entry passed down.
    fn run(&self, frame: &mut Frame<'_, '_>, input: Value) -> impl Future<Output = Flowed> + Send;
}

/// Where a stack or a call stands: in which Step, and, for a cleanup, in which phase.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site<'a> {
    pub(super) step: Option<&'a StepState<'a>>,
    pub(super) phase: Option<&'a PhaseView<'a>>,
}

impl Site<'_> {
    /// Around a graph: no Step executes.
    pub(super) const FLOW: Self = Self { step: None, phase: None };
}

/// An established entry.
#[derive(Debug)]
pub(super) struct EntryRun {
    pub(super) state: EntryState,
    /// `middleware.input`.
    pub(super) input: Value,
    /// What it passed down at first, where that is not its input: see [`passed`](Self::passed).
    pub(super) shaped: Option<Value>,
    /// The variables after its `onEntry`; kept where it can re-run.
    pub(super) restore_to: Option<Vars>,
    /// The bound that it imposed.
    pub(super) bound: Option<usize>,
    /// Whether its actions take part: false while gated off at `onEntry`.
    pub(super) armed: bool,
    /// Whether what rises is its own emission, past its `onSuccess` and `onFailure` already.
    pub(super) emitted: bool,
    /// The attempt that the scope showed outside this entry.
    outer: (u32, Option<u32>),
}

/// What a crossing of `onSuccess` or `onFailure` came to.
pub(super) enum Crossed {
    Emit(Outcome),
    Again(Rerun),
}

/// A re-run of an entry's inner scope.
pub(super) struct Rerun {
    pub(super) reentry: Reentry,
    /// What it receives.
    pub(super) fed: Value,
    /// The failure that it consumed; `None` after a success.
    pub(super) consumed: Option<Arc<Failure>>,
}

/// What an ascent past one entry came to.
enum Ascended {
    Up(Flowed),
    Again(Rerun),
}

/// A re-run that waits. Dropped before it is made, also with the whole execution, it is told of.
struct Waiting<'a> {
    observer: &'a dyn Observer,
    /// The step, where the re-run is a retry.
    retry: Option<&'a str>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(step) = self.retry {
            self.observer.on(&Event::RetryDropped { step });
        }
    }
}

impl EntryRun {
    /// An entry that `input` has come to; `outer` is the attempt that the scope shows outside it.
    pub(super) fn new(input: Value, outer: (u32, Option<u32>)) -> Self {
        Self {
            state: EntryState::default(),
            input,
            shaped: None,
            restore_to: None,
            bound: None,
            armed: true,
            emitted: false,
            outer,
        }
    }

    /// What a re-run with the same feed receives.
    pub(super) fn passed(&self) -> &Value {
        self.shaped.as_ref().unwrap_or(&self.input)
    }
}

impl Frame<'_, '_> {
    /// Runs `operation` within `stack`, and gives what the outermost entry emits.
    pub(super) async fn stack<O: Operation>(
        &mut self,
        site: Site<'_>,
        stack: &StackPlan,
        input: Value,
        operation: &O,
    ) -> Flowed {
        if stack.is_empty() {
            return operation.run(self, input).await;
        }
        let mut runs = Vec::new();
        let mut opened = stack.opening().map(|opening| self.open(opening, &input));
        let mut value = input;
        loop {
            let descent = match &opened {
                Some(_) => Ok(value),
                None => self.descend_all(site, stack, value, &mut runs),
            };
            let mut rising = match descent {
                Ok(passed) => operation.run(self, passed).await,
                Err(emitted) => Ok(emitted),
            };
            if let Some(opened) = opened.take() {
                let crossed = opened.crossed_by(&rising, stack.len());
                self.establish(stack, opened, crossed, &mut runs);
            }
            value = loop {
                let position = runs.len().wrapping_sub(1);
                let (Some(entry), Some(run)) = (stack.get(position), runs.last_mut()) else {
                    return rising;
                };
                rising = match self.ascend(site, entry, run, rising) {
                    Ascended::Up(flowed) => flowed,
                    // Boxed, as is all that is rare.
                    Ascended::Again(rerun) => match Box::pin(self.gap(site, &rerun)).await {
                        Ok(()) => {
                            self.begin_run(entry, run);
                            self.scope.wait = rerun.consumed.map(|_| Wait::from(&rerun.reentry));
                            break rerun.fed;
                        }
                        Err(interrupted) => Err(interrupted.awaiting(rerun.consumed)),
                    },
                };
                (self.scope.attempt, self.scope.attempts) = run.outer;
                if run.state.runs > 1 {
                    // A re-run that made no attempt has left it.
                    self.scope.wait = None;
                }
                if !entry.phase(Phase::Always).is_idle() {
                    rising = Box::pin(self.always(site, entry, run, rising)).await;
                }
                runs.pop();
            };
        }
    }

    /// The wait before a re-run. What has been consumed is gone; what interrupts it finds this entry established and
    /// the inner ones not.
    async fn gap(&mut self, site: Site<'_>, rerun: &Rerun) -> Result<(), Interrupted> {
        let step = site.step.map_or(&*self.flow.name, |step| step.name);
        let retry = rerun.reentry.policy.is_some().then_some(step);
        let mut waiting = Waiting { observer: self.execution.observer, retry };
        let waited = self.scope.leaf(pin!(pause(rerun.reentry.after))).await;
        // A bound that fires, and a `Gather` that has enough, say so themselves.
        let outside = waited.as_ref().is_err_and(Interrupted::is_from_outside);
        waiting.retry = waiting.retry.filter(|_| outside);
        waited
    }

    /// What happens at one position on the way up, before its `onAlways`.
    fn ascend(
        &mut self,
        site: Site<'_>,
        entry: &EntryPlan,
        run: &mut EntryRun,
        rising: Flowed,
    ) -> Ascended {
        match self.accept(site, run, rising) {
            Ok(outcome) if !run.emitted => match self.cross(site, entry, run, outcome) {
                Crossed::Emit(outcome) => Ascended::Up(Ok(outcome)),
                Crossed::Again(rerun) => Ascended::Again(rerun),
            },
            rising => Ascended::Up(rising),
        }
    }

    /// The seam: lifts the entry's bound, for what has risen to here is accepted, and converts the
    /// interruption that was its own ("The conversion seam").
    fn accept(&mut self, site: Site<'_>, run: &mut EntryRun, rising: Flowed) -> Flowed {
        let Some(position) = run.bound else {
            return rising;
        };
        self.scope.lift(position);
        match rising {
            Err(interrupted) if interrupted.owner == Owner::Bound(position) => {
                run.emitted = true;
                let Interrupted { cleaned, superseded, .. } = interrupted;
                let emitted = interrupted.convert();
                let step = self.place(site);
                self.tell(&Event::TimeoutExceeded { step, emitted: &emitted });
                // Cleanups took time: an outer bound may have fallen due meanwhile. It displaces what was
                // to be emitted here, but no failed cleanup.
                match self.scope.due().filter(|_| cleaned) {
                    Some(outer) => Err(after_cleanup(outer, superseded.then_some(&emitted))),
                    None => Ok(Outcome::Failure(emitted)),
                }
            }
            rising => rising,
        }
    }
}

/// A wait of nothing still yields, so that a scope which re-runs without ever waiting can be interrupted and shares its
/// thread.
async fn pause(length: Duration) {
    if length.is_zero() {
        tokio::task::yield_now().await;
    } else {
        tokio::time::sleep(length).await;
    }
}
