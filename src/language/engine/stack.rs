//! Crossing a stack: down through every entry's `onEntry`, up through `onSuccess` or `onFailure` and
//! then `onAlways` (MWL, "Middleware mechanics").
//!
//! The stack is a loop over positions. Each established entry is one [`EntryRun`]; what rises is one
//! [`Flowed`]. An interruption rises as `Err` and meets nothing but `onAlways`, until it reaches the
//! entry whose bound it is.

use std::future::Future;

use tokio::time::Instant;

use super::frame::Frame;
use super::phase::{after_cleanup, prepared, shaped};
use super::scope::{Flowed, Interrupted, Owner};
use super::template::{Evaluated, bindings_of, holds};
use super::vars::Vars;
use super::view::{PhaseView, StepState};
use crate::language::outcome::Outcome;
use crate::language::plan::EntryPlan;
use crate::language::provider::{Entry, EntryState, GatedOff, Phase, Reentry};
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
    pub(super) phase: Option<PhaseView<'a>>,
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
    /// What it passed down at first: what a re-run with the same feed receives.
    pub(super) passed: Value,
    /// The variables after its `onEntry`; kept where it can re-run.
    pub(super) restore_to: Option<Vars>,
    /// The bound that it imposed.
    pub(super) bound: Option<usize>,
    /// Whether its actions take part: false while gated off at `onEntry`.
    pub(super) armed: bool,
    /// Whether what rises is its own emission, past its `onSuccess` and `onFailure` already.
    pub(super) emitted: bool,
    /// The attempt that the scope showed outside this entry.
    pub(super) outer: (u32, Option<u32>),
}

/// What a descent past one entry, now established, came to.
enum Descent {
    /// The value passed down.
    Down(Value),
    /// It emits this without a run.
    NoRun(Value),
}

/// What a crossing of `onSuccess` or `onFailure` came to.
pub(super) enum Crossed {
    Emit(Outcome),
    Again(Reentry, Value),
}

/// What an ascent past one entry came to.
enum Ascended {
    Up(Flowed),
    Again(Value),
}

impl Frame<'_, '_> {
    /// Runs `operation` within `stack`, and gives what the outermost entry emits.
    pub(super) async fn stack<O: Operation>(
        &mut self,
        site: Site<'_>,
        stack: &[EntryPlan],
        input: Value,
        operation: &O,
    ) -> Flowed {
        if stack.is_empty() {
            return operation.run(self, input).await;
        }
        let mut runs = Vec::with_capacity(stack.len());
        let mut value = input;
        loop {
            let mut rising = loop {
                let Some(entry) = stack.get(runs.len()) else {
                    break operation.run(self, value).await;
                };
                match self.descend(site, entry, value, &mut runs) {
                    Ok(Descent::Down(passed)) => value = passed,
                    Ok(Descent::NoRun(emitted)) => break Ok(Outcome::Success(emitted)),
                    // Not established: its own phases do not run.
                    Err(fault) => break Ok(fault.into()),
                }
            };
            loop {
                let position = runs.len().wrapping_sub(1);
                let (Some(entry), Some(run)) = (stack.get(position), runs.last_mut()) else {
                    return rising;
                };
                match self.ascend(site, entry, run, rising).await {
                    Ascended::Up(flowed) => {
                        runs.pop();
                        rising = flowed;
                    }
                    Ascended::Again(fed) => {
                        value = fed;
                        break;
                    }
                }
            }
        }
    }

    /// `onEntry`. An `Err` is the phase's failure: the entry is not established, and not among `runs`.
    fn descend(
        &mut self,
        site: Site<'_>,
        entry: &EntryPlan,
        input: Value,
        runs: &mut Vec<EntryRun>,
    ) -> Evaluated<Descent> {
        let phase = entry.phase(Phase::Entry);
        let pin = self.execution.stamp();
        let mut run = EntryRun {
            state: EntryState::default(),
            input,
            passed: Value::Null,
            restore_to: None,
            bound: None,
            armed: true,
            emitted: false,
            outer: (self.scope.attempt, self.scope.attempts),
        };
        let mut race = None;
        if phase.is_idle() {
            run.passed = run.input.clone();
        } else {
            let gate = holds(phase.when.as_ref(), &self.phase_view(site, entry, &run, None, pin))?;
            if gate && !phase.acts {
                let view = self.phase_view(site, entry, &run, None, pin);
                prepared(entry, Phase::Entry, &view)?;
            } else if gate {
                let view = self.phase_view(site, entry, &run, None, pin);
                let with = prepared(entry, Phase::Entry, &view)?;
                if let Entry::Race { bound, explanation } =
                    entry.middleware.on_entry(&mut run.state, &with)?
                {
                    let now = Instant::now();
                    let deadline = now.checked_add(bound);
                    // For expressions alone.
                    let read = deadline.filter(|_| self.execution.plan.reads());
                    run.state.deadline = read.map(|deadline| self.execution.clock.at(deadline));
                    race = Some((deadline, explanation));
                }
                run.state.config = Some(with);
            }
            run.armed = gate || !phase.acts;
            let view = self.phase_view(site, entry, &run, None, pin);
            let passed = shaped(&phase.shape, &view, || run.input.clone())?;
            let bindings = bindings_of(&phase.assign, &view)?;
            run.passed = passed;
            self.state.vars.apply(bindings);
        }
        if !run.armed && entry.middleware.gated_off() == GatedOff::NoRun {
            run.emitted = true;
            let emitted = run.passed.clone();
            runs.push(run);
            return Ok(Descent::NoRun(emitted));
        }
        // Established from here on.
        run.bound = race.map(|(deadline, explanation)| self.scope.impose(deadline, explanation));
        if run.armed && entry.middleware.reruns() {
            run.restore_to = Some(self.state.vars.clone());
            self.begin_run(entry, &mut run);
        }
        let passed = run.passed.clone();
        runs.push(run);
        Ok(Descent::Down(passed))
    }

    /// Counts a run of the inner scope.
    fn begin_run(&mut self, entry: &EntryPlan, run: &mut EntryRun) {
        run.state.runs = run.state.runs.saturating_add(1);
        self.scope.attempt = run.state.runs;
        let config = run.state.config.as_ref();
        self.scope.attempts = config.and_then(|config| entry.middleware.budget(config));
    }

    /// Everything that happens at one position on the way up.
    async fn ascend(
        &mut self,
        site: Site<'_>,
        entry: &EntryPlan,
        run: &mut EntryRun,
        rising: Flowed,
    ) -> Ascended {
        let rising = self.accept(site, run, rising);
        let rising = match rising {
            Ok(outcome) if !run.emitted => match self.cross(site, entry, run, outcome) {
                Crossed::Emit(outcome) => Ok(outcome),
                Crossed::Again(reentry, fed) => {
                    // The gap. What has been consumed is gone; what interrupts it finds this entry
                    // established and the inner ones not. Boxed: most ascents have none.
                    match Box::pin(self.scope.leaf(gap(&reentry))).await {
                        Ok(()) => {
                            self.begin_run(entry, run);
                            return Ascended::Again(fed);
                        }
                        Err(interrupted) => Err(interrupted),
                    }
                }
            },
            rising => rising,
        };
        (self.scope.attempt, self.scope.attempts) = run.outer;
        let phase = entry.phase(Phase::Always);
        if phase.is_idle() {
            return Ascended::Up(rising);
        }
        Ascended::Up(Box::pin(self.always(site, entry, run, rising)).await)
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
                self.execution.observer.timeout_exceeded(self.place(site), &emitted);
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

/// The wait before a re-run. A gap of nothing still yields, so that a scope which re-runs without ever
/// waiting can be interrupted and shares its thread.
async fn gap(reentry: &Reentry) {
    if reentry.after.is_zero() {
        tokio::task::yield_now().await;
    } else {
        tokio::time::sleep(reentry.after).await;
    }
}
