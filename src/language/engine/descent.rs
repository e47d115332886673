//! The way down a stack: every entry's `onEntry` in turn or, if all of it was known when the stack was
//! compiled, what they do to the scope at once (MWL, "Middleware mechanics").

use std::sync::Arc;

use tokio::time::Instant;

use super::frame::Frame;
use super::phase::prepared;
use super::scope::Rise;
use super::stack::{EntryRun, Site};
use super::template::{Evaluated, bindings_of, evaluate, holds};
use super::vars::Vars;
use crate::language::outcome::{Failure, Outcome};
use crate::language::plan::{EntryBound, EntryPlan, Shape, StackPlan, StaticDescent};
use crate::language::provider::{Entry, GatedOff, Phase, Prepared};
use crate::language::temporal::Timestamp;
use crate::language::value::Value;

/// The outcome of descending past an entry, which is then established.
enum Descent {
    /// The value passed down.
    Down(Value),
    /// It emits this, and nothing runs.
    NoRun(Value),
}

/// A static descent whose entries are not established yet: what rises decides which of them must be crossed.
pub(super) struct PendingDescent<'p> {
    plan: &'p StaticDescent,
    /// The input of the stack, which all entries pass on unchanged.
    input: Value,
    /// The variables at that time.
    vars: Vars,
    /// How many bounds there were outside.
    outside: usize,
    /// The instant of the descent, if it imposed a bound.
    now: Option<Instant>,
    /// The attempt number and budget outside.
    attempt: (u32, Option<u32>),
}

/// A bound that an entry wants to impose: when it fires, and why.
type WantedBound = (Option<Instant>, Arc<Failure>);

impl PendingDescent<'_> {
    /// How many of the `all` entries `rising` must cross.
    pub(super) fn crossed_by(&self, rising: &Rise, all: usize) -> usize {
        match rising {
            Ok(Outcome::Success(_)) => self.plan.crossed,
            _ => all,
        }
    }
}

impl Frame<'_, '_> {
    /// Makes a static descent: changes only the scope. [`establish`](Self::establish) establishes its entries
    /// when they are needed.
    pub(super) fn descend_static<'p>(
        &mut self,
        plan: &'p StaticDescent,
        input: &Value,
    ) -> PendingDescent<'p> {
        let outside = self.scope.bounds();
        let attempt = (self.scope.attempt, self.scope.attempts);
        let now = (!plan.bounds.is_empty()).then(Instant::now);
        for EntryBound { entry: _, after, explanation } in &plan.bounds {
            let deadline = now.and_then(|now| now.checked_add(*after));
            self.scope.impose(deadline, Arc::clone(explanation));
        }
        if let Some(budget) = plan.budget {
            (self.scope.attempt, self.scope.attempts) = (1, budget);
        }
        let vars = self.state.vars.clone();
        PendingDescent { plan, input: input.clone(), vars, outside, now, attempt }
    }

    /// Establishes the outermost `count` entries, as if the descent had gone through them one by one. Lifts
    /// the bounds of the others, past which a success has risen.
    pub(super) fn establish(
        &mut self,
        stack: &StackPlan,
        pending: PendingDescent<'_>,
        count: usize,
        runs: &mut Vec<EntryRun>,
    ) {
        let PendingDescent { plan, input, vars, outside, now, mut attempt } = pending;
        let mut bounds = plan.bounds.iter().peekable();
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

    /// A deadline, as `middleware.metadata` shows it; `None` if no expression reads it.
    fn shown(&self, deadline: Option<Instant>) -> Option<Timestamp> {
        let read = deadline.filter(|_| self.execution.plan.needs().instants)?;
        Some(self.execution.clock.at(read))
    }

    /// Runs every `onEntry` below the entries of `runs`. The `Ok` is what the innermost passes down; the
    /// `Err` is what rises if the operation does not run.
    pub(super) fn descend_all(
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
                // The entry is not established, so its own phases do not run.
                Err(fault) => return Err(fault.into()),
            }
        }
        Ok(value)
    }

    /// `onEntry`. An `Err` is the phase's failure: the entry is not established, and not added to `runs`.
    ///
    /// `now` is the instant of this descent. Entries between which nothing is evaluated are established at
    /// the same instant, so that the clock is read only once.
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
        // The entry is established from here on.
        run.bound = race.map(|(deadline, explanation)| self.scope.impose(deadline, explanation));
        if run.armed && entry.middleware.reruns() {
            run.restore_to = Some(self.state.vars.clone());
            self.begin_run(entry, &mut run);
        }
        let passed = run.passed().clone();
        runs.push(run);
        Ok(Descent::Down(passed))
    }

    /// Runs the block of an `onEntry` in which something is evaluated.
    fn enter_shaped(
        &mut self,
        site: Site<'_>,
        entry: &EntryPlan,
        run: &mut EntryRun,
        now: &mut Option<Instant>,
    ) -> Evaluated<Option<WantedBound>> {
        let phase = entry.phase(Phase::Entry);
        let pin = self.execution.stamp();
        let gate = holds(phase.when.as_ref(), &self.phase_view(site, entry, run, None, pin))?;
        let mut race = None;
        if gate {
            let with =
                prepared(entry, Phase::Entry, &self.phase_view(site, entry, run, None, pin))?;
            if phase.acts {
                // The evaluation took time.
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

    /// Runs the action of an `onEntry`.
    fn enter(
        &self,
        entry: &EntryPlan,
        run: &mut EntryRun,
        with: &Prepared,
        now: &mut Option<Instant>,
    ) -> Evaluated<Option<WantedBound>> {
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
    pub(super) fn begin_run(&mut self, entry: &EntryPlan, run: &mut EntryRun) {
        run.state.runs = run.state.runs.saturating_add(1);
        self.scope.attempt = run.state.runs;
        let config = run.state.config.as_ref();
        self.scope.attempts = config.and_then(|config| entry.middleware.budget(config));
    }
}
