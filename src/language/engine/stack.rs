//! Crossing a stack: down through every entry's `onEntry`, up through `onSuccess` or `onFailure` and
//! then `onAlways` (MWL, "Middleware mechanics").
//!
//! The stack is a loop over positions. Each established entry is one [`EntryRun`]; what rises is one
//! [`Flowed`]. An interruption rises as `Err` and meets nothing but `onAlways`, until it reaches the
//! entry whose bound it is.

use std::future::Future;
use std::sync::Arc;

use tokio::time::Instant;

use super::frame::Frame;
use super::phase::{after_cleanup, prepared};
use super::scope::{Flowed, Interrupted, Owner};
use super::template::{Evaluated, bindings_of, evaluate, holds};
use super::vars::Vars;
use super::view::{PhaseView, StepState};
use crate::language::observe::Observer;
use crate::language::outcome::{Failure, Outcome};
use crate::language::plan::{Bound, EntryPlan, Opening, Shape, StackPlan};
use crate::language::provider::{Entry, EntryState, GatedOff, Phase, Prepared, Reentry};
use crate::language::temporal::Timestamp;
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
    shaped: Option<Value>,
    /// The variables after its `onEntry`; kept where it can re-run.
    pub(super) restore_to: Option<Vars>,
    /// The bound that it imposed.
    bound: Option<usize>,
    /// Whether its actions take part: false while gated off at `onEntry`.
    pub(super) armed: bool,
    /// Whether what rises is its own emission, past its `onSuccess` and `onFailure` already.
    emitted: bool,
    /// The attempt that the scope showed outside this entry.
    outer: (u32, Option<u32>),
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
    Again(Reentry, Value),
}

/// A re-run that waits. Dropped before it is made, also with the whole execution, it is told of.
struct Waiting<'a> {
    observer: &'a dyn Observer,
    /// The step, where the re-run is a retry.
    retry: Option<&'a str>,
}

/// A descent of which all was known, until what rises shows which of its entries are to be crossed.
struct Opened<'p> {
    opening: &'p Opening,
    /// What came to the stack, and through every entry.
    input: Value,
    /// The variables then.
    vars: Vars,
    /// How many bounds there were outside.
    outside: usize,
    /// The instant of the descent, where it imposed a bound.
    now: Option<Instant>,
    /// The attempt that the scope showed outside.
    attempt: (u32, Option<u32>),
}

/// A bound that an entry wants to impose: when it fires, and why.
type Race = (Option<Instant>, Arc<Failure>);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(step) = self.retry {
            self.observer.retry_dropped(step);
        }
    }
}

impl EntryRun {
    /// An entry that `input` has come to; `outer` is the attempt that the scope shows outside it.
    fn new(input: Value, outer: (u32, Option<u32>)) -> Self {
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

impl Opened<'_> {
    /// How many of the `all` entries are to be crossed by `rising`.
    fn crossed_by(&self, rising: &Flowed, all: usize) -> usize {
        match rising {
            Ok(Outcome::Success(_)) => self.opening.crossed,
            _ => all,
        }
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
                    // The gap. What has been consumed is gone; what interrupts it finds this entry
                    // established and the inner ones not.
                    Ascended::Again(reentry, fed) => {
                        let step = site.step.map_or(&*self.flow.name, |step| step.name);
                        let mut waiting = Waiting {
                            observer: self.execution.observer,
                            retry: reentry.policy.is_some().then_some(step),
                        };
                        match self.scope.leaf(Box::pin(gap(&reentry))).await {
                            Ok(()) => {
                                waiting.retry = None;
                                self.begin_run(entry, run);
                                break fed;
                            }
                            Err(interrupted) => {
                                // A bound that fires, and a `Gather` that has enough, say so themselves.
                                waiting.retry =
                                    waiting.retry.filter(|_| interrupted.is_from_outside());
                                Err(interrupted)
                            }
                        }
                    }
                };
                (self.scope.attempt, self.scope.attempts) = run.outer;
                if !entry.phase(Phase::Always).is_idle() {
                    rising = Box::pin(self.always(site, entry, run, rising)).await;
                }
                runs.pop();
            };
        }
    }

    /// A descent of which all is known: what it does to the scope. Its entries are made where they are
    /// needed, by [`establish`](Self::establish).
    fn open<'p>(&mut self, opening: &'p Opening, input: &Value) -> Opened<'p> {
        let outside = self.scope.bounds();
        let attempt = (self.scope.attempt, self.scope.attempts);
        let now = (!opening.bounds.is_empty()).then(Instant::now);
        for Bound { entry: _, after, explanation } in &opening.bounds {
            let deadline = now.and_then(|now| now.checked_add(*after));
            self.scope.impose(deadline, Arc::clone(explanation));
        }
        if let Some(budget) = opening.budget {
            (self.scope.attempt, self.scope.attempts) = (1, budget);
        }
        let vars = self.state.vars.clone();
        Opened { opening, input: input.clone(), vars, outside, now, attempt }
    }

    /// Makes the outermost `count` entries what a descent one by one had made them, and lifts the bounds of
    /// the others, past which a success has risen.
    fn establish(
        &mut self,
        stack: &StackPlan,
        opened: Opened<'_>,
        count: usize,
        runs: &mut Vec<EntryRun>,
    ) {
        let Opened { opening, input, vars, outside, now, mut attempt } = opened;
        let mut bounds = opening.bounds.iter().peekable();
        let mut imposed = outside;
        runs.reserve(count);
        for (position, entry) in stack.iter().take(count).enumerate() {
            let mut run = EntryRun::new(input.clone(), attempt);
            run.state.config = entry.captures().map(Arc::clone);
            if let Some(bound) = bounds.next_if(|bound| bound.entry == position) {
                let deadline = now.and_then(|now| now.checked_add(bound.after));
                run.state.deadline = self.shown(deadline);
                run.bound = Some(imposed);
                imposed += 1;
            }
            if let Some(budget) = entry.budget() {
                run.restore_to = Some(vars.clone());
                run.state.runs = 1;
                attempt = (1, budget);
            }
            runs.push(run);
        }
        self.scope.lift(imposed);
        (self.scope.attempt, self.scope.attempts) = attempt;
    }

    /// A deadline as `middleware.metadata` shows it: made for expressions alone.
    fn shown(&self, deadline: Option<Instant>) -> Option<Timestamp> {
        let read = deadline.filter(|_| self.execution.plan.needs().instants)?;
        Some(self.execution.clock.at(read))
    }

    /// Every `onEntry` below those of `runs`. The `Ok` is what the innermost passes down, the `Err` what
    /// rises without a run of the operation.
    fn descend_all(
        &mut self,
        site: Site<'_>,
        stack: &[EntryPlan],
        input: Value,
        runs: &mut Vec<EntryRun>,
    ) -> Result<Value, Outcome> {
        let mut value = input;
        let mut now = None;
        while let Some(entry) = stack.get(runs.len()) {
            match self.descend(site, entry, value, &mut now, runs) {
                Ok(Descent::Down(passed)) => value = passed,
                Ok(Descent::NoRun(emitted)) => return Err(Outcome::Success(emitted)),
                // Not established: its own phases do not run.
                Err(fault) => return Err(fault.into()),
            }
        }
        Ok(value)
    }

    /// `onEntry`. An `Err` is the phase's failure: the entry is not established, and not among `runs`.
    ///
    /// `now` is the instant of this descent: entries between which nothing is evaluated are established at
    /// the same one, and the clock is read once for them.
    fn descend(
        &mut self,
        site: Site<'_>,
        entry: &EntryPlan,
        input: Value,
        now: &mut Option<Instant>,
        runs: &mut Vec<EntryRun>,
    ) -> Evaluated<Descent> {
        let phase = entry.phase(Phase::Entry);
        let mut run = EntryRun::new(input, (self.scope.attempt, self.scope.attempts));
        let race = match phase.literal() {
            Some(_) if !phase.acts => None,
            Some(with) => self.enter(entry, &mut run, with, now)?,
            None => self.enter_shaped(site, entry, &mut run, now)?,
        };
        if !run.armed && entry.middleware.gated_off() == GatedOff::NoRun {
            run.emitted = true;
            let emitted = run.passed().clone();
            runs.push(run);
            return Ok(Descent::NoRun(emitted));
        }
        // Established from here on.
        run.bound = race.map(|(deadline, explanation)| self.scope.impose(deadline, explanation));
        if run.armed && entry.middleware.reruns() {
            run.restore_to = Some(self.state.vars.clone());
            self.begin_run(entry, &mut run);
        }
        let passed = run.passed().clone();
        runs.push(run);
        Ok(Descent::Down(passed))
    }

    /// The whole block of an `onEntry` in which something is evaluated.
    fn enter_shaped(
        &mut self,
        site: Site<'_>,
        entry: &EntryPlan,
        run: &mut EntryRun,
        now: &mut Option<Instant>,
    ) -> Evaluated<Option<Race>> {
        let phase = entry.phase(Phase::Entry);
        let pin = self.execution.stamp();
        let gate = holds(phase.when.as_ref(), &self.phase_view(site, entry, run, None, pin))?;
        let mut race = None;
        if gate {
            let with =
                prepared(entry, Phase::Entry, &self.phase_view(site, entry, run, None, pin))?;
            if phase.acts {
                // Evaluation took time.
                *now = None;
                race = self.enter(entry, run, &with, now)?;
            }
        }
        run.armed = gate || !phase.acts;
        let view = self.phase_view(site, entry, run, None, pin);
        let shaped = match &phase.shape {
            Shape::Value(template) => Some(evaluate(template, &view)?),
            Shape::Through | Shape::Envelope(_) => None,
        };
        let bindings = bindings_of(&phase.assign, &view)?;
        run.shaped = shaped;
        self.state.vars.apply(bindings);
        *now = None;
        Ok(race)
    }

    /// The action of an `onEntry`.
    fn enter(
        &self,
        entry: &EntryPlan,
        run: &mut EntryRun,
        with: &Prepared,
        now: &mut Option<Instant>,
    ) -> Evaluated<Option<Race>> {
        let wanted = entry.middleware.on_entry(&mut run.state, with)?;
        run.state.config = Some(Arc::clone(with));
        let Entry::Race { bound, explanation } = wanted else {
            return Ok(None);
        };
        let deadline = now.get_or_insert_with(Instant::now).checked_add(bound);
        run.state.deadline = self.shown(deadline);
        Ok(Some((deadline, explanation)))
    }

    /// Counts a run of the inner scope.
    fn begin_run(&mut self, entry: &EntryPlan, run: &mut EntryRun) {
        run.state.runs = run.state.runs.saturating_add(1);
        self.scope.attempt = run.state.runs;
        let config = run.state.config.as_ref();
        self.scope.attempts = config.and_then(|config| entry.middleware.budget(config));
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
                Crossed::Again(reentry, fed) => Ascended::Again(reentry, fed),
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
