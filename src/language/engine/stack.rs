//! Crosses a stack: down through each entry's `onEntry`, up through `onSuccess` or `onFailure` and then
//! `onAlways` (MWL, "Middleware mechanics").
//!
//! This is a loop over positions. Each established entry is an [`EntryRun`]; what rises is a [`Rise`]. An
//! interruption rises as `Err`, and only `onAlways` runs for it, until it reaches the entry that imposed the
//! bound.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::descent::Descent;
use super::frame::Frame;
use super::location::Location;
use super::phase::after_cleanup;
use super::scope::{Interrupted, Owner, Rise};
use super::vars::Vars;
use super::view::{PhaseView, StepState};
use crate::language::observe::{Event, Observer};
use crate::language::outcome::{Failure, Outcome};
use crate::language::plan::{EntryPlan, StackPlan};
use crate::language::provider::{EntryState, Phase, Reentry, Wait};
use crate::language::value::Value;

/// What a stack wraps: a call or a graph.
pub(super) trait Operation: Sync {
    /// Runs it once, below the entries, with what the innermost of them passed down.
    fn run(
        &self,
        frame: &mut Frame<'_, '_>,
        at: &Location<'_>,
        input: Value,
    ) -> impl Future<Output = Rise> + Send;
}

/// The place of a stack or a call: its Step, unless it is around a graph, and for a cleanup its phase.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site<'a> {
    pub(super) step: Option<&'a StepState<'a>>,
    pub(super) phase: Option<&'a PhaseView<'a>>,
    pub(super) location: &'a Location<'a>,
}

/// An established entry.
#[derive(Debug)]
pub(super) struct EntryRun {
    /// Its position in its stack.
    pub(super) position: usize,
    pub(super) state: EntryState,
    /// `middleware.input`.
    pub(super) input: Value,
    /// What it first passed down, if that is not its input: see [`passed`](Self::passed).
    pub(super) shaped: Option<Value>,
    /// The variables after its `onEntry`, if it can re-run.
    pub(super) restore_to: Option<Vars>,
    /// The bound that it imposed.
    pub(super) bound: Option<usize>,
    /// Whether its actions run: false if it was gated off at `onEntry`.
    pub(super) armed: bool,
    /// Whether it has emitted what rises, so that its `onSuccess` and `onFailure` do not run any more.
    pub(super) emitted: bool,
    /// The attempt number and budget outside this entry.
    pub(super) outer: (u32, Option<u32>),
    /// How often its inner scope succeeded and is run again: a run after a failure repeats the same work.
    pub(super) iterations: u32,
}

/// A stack that is crossed entry by entry: the established entries, and what happens next.
pub(super) struct Crossing {
    pub(super) runs: Vec<EntryRun>,
    pub(super) descent: Descent,
}

/// The outcome of crossing `onSuccess` or `onFailure`.
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

/// The outcome of ascending past an entry.
enum Ascended {
    Up(Rise),
    Again(Rerun),
}

/// A re-run that waits. If it is dropped before it runs, alone or with the whole execution, the observer is
/// told.
struct WaitingRerun<'a> {
    observer: &'a dyn Observer,
    /// The Step, if the re-run is a retry.
    retry: Option<&'a str>,
}

impl Drop for WaitingRerun<'_> {
    fn drop(&mut self) {
        if let Some(step) = self.retry {
            self.observer.on(&Event::RetryDropped { step });
        }
    }
}

impl EntryRun {
    /// The entry at `position` of its stack, which receives `input`. `outer` is the attempt number and budget outside it.
    pub(super) fn new(position: usize, input: Value, outer: (u32, Option<u32>)) -> Self {
        Self {
            position,
            state: EntryState::default(),
            input,
            shaped: None,
            restore_to: None,
            bound: None,
            armed: true,
            emitted: false,
            outer,
            iterations: 0,
        }
    }

    /// The input of a re-run that gets the same again.
    pub(super) fn passed(&self) -> &Value {
        self.shaped.as_ref().unwrap_or(&self.input)
    }
}

impl Frame<'_, '_> {
    /// Runs `operation` within `stack`, and returns what the outermost entry emits.
    pub(super) async fn stack<O: Operation>(
        &mut self,
        site: Site<'_>,
        stack: &StackPlan,
        input: Value,
        operation: &O,
    ) -> Rise {
        if stack.is_empty() {
            return operation.run(self, site.location, input).await;
        }
        let Some(plan) = self.known(stack) else {
            let mut runs = Vec::with_capacity(stack.len());
            let descent = self.descend_all(site, stack, input, &mut runs);
            return self.crossed(site, stack, Crossing { runs, descent }, operation).await;
        };
        let mut pending = self.pending(plan);
        let crossing = if let Err(asked) = self.open(&mut pending, &input) {
            self.answered_in_place(site, stack, &mut pending, asked, &input)
        } else {
            let received = input.clone();
            let rising = operation.run(self, site.location, input).await;
            match self.close(stack, &mut pending, &received, &rising) {
                None => return rising,
                Some(runs) => Crossing { runs, descent: Descent::Rises(rising) },
            }
        };
        self.crossed(site, stack, crossing, operation).await
    }

    /// Crosses `stack` entry by entry, from where `crossing` is.
    pub(super) async fn crossed<O: Operation>(
        &mut self,
        site: Site<'_>,
        stack: &StackPlan,
        crossing: Crossing,
        operation: &O,
    ) -> Rise {
        let Crossing { mut runs, mut descent } = crossing;
        loop {
            let descended = loop {
                descent = match descent {
                    Descent::Down(passed) => break Ok(passed),
                    Descent::Rises(risen) => break Err(risen),
                    Descent::Waits(mut paused) => match self.scope.leaf(&mut paused.until).await {
                        Ok(asked) => self.resume(site, stack, paused, asked, &mut runs),
                        Err(interrupted) => Descent::Rises(Err(interrupted)),
                    },
                };
            };
            let mut rising = match descended {
                Ok(passed) => operation.run(self, &site.location.below(&runs), passed).await,
                Err(risen) => risen,
            };
            let value = loop {
                let Some((run, outer)) = runs.split_last_mut() else {
                    return rising;
                };
                let Some(entry) = stack.get(outer.len()) else {
                    return rising;
                };
                rising = match self.ascend(site, entry, run, rising) {
                    Ascended::Up(risen) => risen,
                    // Boxed, like everything that is rare.
                    Ascended::Again(rerun) => match Box::pin(self.gap(site, &rerun)).await {
                        Ok(()) => {
                            run.iterations += u32::from(rerun.consumed.is_none());
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
                    let below = site.location.below(outer);
                    let site = Site { location: &below, ..site };
                    rising = Box::pin(self.always(site, entry, (run, outer.len()), rising)).await;
                }
                runs.pop();
            };
            descent = self.descend_all(site, stack, value, &mut runs);
        }
    }

    /// The wait before a re-run. An interruption finds this entry established, and the inner ones not.
    async fn gap(&mut self, site: Site<'_>, rerun: &Rerun) -> Result<(), Interrupted> {
        let step = site.step.map_or(&*self.flow.name, |step| step.name);
        let retry = rerun.reentry.policy.is_some().then_some(step);
        let mut waiting = WaitingRerun { observer: self.execution.observer, retry };
        let waited = self.scope.leaf(pin!(pause(rerun.reentry.after))).await;
        // If a bound fires or a `Gather` has enough, that is told elsewhere.
        let outside = waited.as_ref().is_err_and(Interrupted::is_from_outside);
        waiting.retry = waiting.retry.filter(|_| outside);
        if let (Ok(()), Some(failure), true) = (&waited, &rerun.consumed, retry.is_some()) {
            let wait = Wait::from(&rerun.reentry);
            self.execution.observer.on(&Event::RetryMade { failure, wait });
        }
        waited
    }

    /// Ascends past an entry, except for its `onAlways`.
    fn ascend(
        &mut self,
        site: Site<'_>,
        entry: &EntryPlan,
        run: &mut EntryRun,
        rising: Rise,
    ) -> Ascended {
        match self.accept(site, run, rising) {
            Ok(outcome) if !run.emitted => match self.cross(site, entry, run, outcome) {
                Crossed::Emit(outcome) => Ascended::Up(Ok(outcome)),
                Crossed::Again(rerun) => Ascended::Again(rerun),
            },
            rising => Ascended::Up(rising),
        }
    }

    /// "The conversion seam": lifts the entry's bound, because what has risen here is accepted. If the
    /// interruption is the entry's own, converts it.
    fn accept(&mut self, site: Site<'_>, run: &mut EntryRun, rising: Rise) -> Rise {
        let Some(position) = run.bound else {
            return rising;
        };
        self.scope.lift(position);
        match rising {
            Err(interrupted) if interrupted.owner == Owner::Bound(position) => {
                run.emitted = true;
                let Interrupted { cleaned, superseded, .. } = interrupted;
                let emitted =
                    interrupted.convert(|bound| bound.in_run(self.place(site), run.outer));
                let entry = self.entry(site, run);
                self.tell(&Event::TimeoutExceeded { entry, emitted: &emitted });
                // Cleanups took time, so an outer bound may be due by now. It replaces what would be emitted
                // here, except the failure of a cleanup.
                match self.scope.due().filter(|_| cleaned) {
                    Some(outer) => Err(after_cleanup(outer, superseded.then_some(&emitted))),
                    None => Ok(Outcome::Failure(emitted)),
                }
            }
            rising => rising,
        }
    }
}

/// The wait before a re-run, or of an action. A wait of nothing still yields. So a scope that re-runs without
/// waiting can be interrupted, and shares its thread.
pub(super) async fn pause(length: Duration) {
    if length.is_zero() {
        tokio::task::yield_now().await;
    } else {
        tokio::time::sleep(length).await;
    }
}
