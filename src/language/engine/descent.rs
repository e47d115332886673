//! The way down a stack: every entry's `onEntry`, and what its action wants (MWL, "Middleware mechanics").
//!
//! Nothing here waits. Where an action wants to, the descent stops with what there is of it ([`Paused`]), and the
//! stack, which waits, has it go on.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::frame::Frame;
use super::phase::prepared;
use super::scope::Flowed;
use super::stack::{EntryRun, Site};
use super::template::{Evaluated, bindings_of, evaluate, holds};
use super::vars::Vars;
use crate::language::observe::Event;
use crate::language::outcome::Outcome;
use crate::language::plan::{Bound, EntryPlan, Opening, Shape, StackPlan};
use crate::language::provider::{Entry, GatedOff, Phase, Prepared};
use crate::language::temporal::Timestamp;
use crate::language::value::Value;

/// What a descent came to.
pub(super) enum Descent {
    /// The value passed down.
    Down(Value),
    /// This rises without a run of what is inside.
    Rises(Flowed),
    /// An entry's action waits first.
    Waits(Box<Paused>),
}

/// An entry whose action waits: what there is of its `onEntry` so far.
pub(super) struct Paused {
    run: EntryRun,
    /// When the phase was entered, where it evaluates anything.
    pin: Option<Timestamp>,
    pub(super) wait: Duration,
    then: Entry,
}

/// A descent of which all was known, until what rises shows which of its entries are to be crossed.
pub(super) struct Opened<'p> {
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

impl Opened<'_> {
    /// How many of the `all` entries are to be crossed by `rising`.
    pub(super) fn crossed_by(&self, rising: &Flowed, all: usize) -> usize {
        match rising {
            Ok(Outcome::Success(_)) => self.opening.crossed,
            _ => all,
        }
    }
}

impl Frame<'_, '_> {
    /// A descent of which all is known: what it does to the scope. Its entries are made where they are
    /// needed, by [`establish`](Self::establish).
    pub(super) fn open<'p>(&mut self, opening: &'p Opening, input: &Value) -> Opened<'p> {
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
    pub(super) fn establish(
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

    /// Every `onEntry` below those of `runs`.
    pub(super) fn descend_all(
        &mut self,
        site: Site<'_>,
        stack: &[EntryPlan],
        input: Value,
        runs: &mut Vec<EntryRun>,
    ) -> Descent {
        let mut value = input;
        let mut now = None;
        while let Some(entry) = stack.get(runs.len()) {
            match self.descend(site, entry, value, &mut now, runs) {
                Ok(Descent::Down(passed)) => value = passed,
                Ok(other) => return other,
                // Not established: its own phases do not run.
                Err(fault) => return Descent::Rises(Ok(fault.into())),
            }
        }
        Descent::Down(value)
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
        let (wanted, pin) = match phase.literal() {
            Some(_) if !phase.acts => (Entry::Proceed, None),
            Some(with) => (self.act(site, entry, &mut run, with)?, None),
            None => {
                // Evaluation takes time.
                *now = None;
                let pin = self.execution.stamp();
                (self.act_evaluated(site, entry, &mut run, pin)?, Some(pin))
            }
        };
        match wanted {
            Entry::After(wait, then) => {
                Ok(Descent::Waits(Box::new(Paused { run, pin, wait, then: *then })))
            }
            wanted => self.enter(site, entry, (run, pin), wanted, now).map(|(run, descent)| {
                runs.push(run);
                descent
            }),
        }
    }

    /// The rest of a descent, once the action that it stopped at has waited.
    pub(super) fn resume(
        &mut self,
        site: Site<'_>,
        stack: &[EntryPlan],
        paused: Paused,
        runs: &mut Vec<EntryRun>,
    ) -> Descent {
        let Paused { run, pin, wait: _, then } = paused;
        let Some(entry) = stack.get(runs.len()) else {
            return Descent::Down(run.input);
        };
        let (run, descent) = match self.enter(site, entry, (run, pin), then, &mut None) {
            Ok(entered) => entered,
            Err(fault) => return Descent::Rises(Ok(fault.into())),
        };
        runs.push(run);
        match descent {
            Descent::Down(value) => self.descend_all(site, stack, value, runs),
            other => other,
        }
    }

    /// `when` and `with` of an `onEntry` in which something is evaluated, and its action.
    fn act_evaluated(
        &mut self,
        site: Site<'_>,
        entry: &EntryPlan,
        run: &mut EntryRun,
        pin: Timestamp,
    ) -> Evaluated<Entry> {
        let phase = entry.phase(Phase::Entry);
        let gate = holds(phase.when.as_ref(), &self.phase_view(site, entry, run, None, pin))?;
        run.armed = gate || !phase.acts;
        if !gate {
            return Ok(Entry::Proceed);
        }
        let with = prepared(entry, Phase::Entry, &self.phase_view(site, entry, run, None, pin))?;
        if phase.acts { self.act(site, entry, run, &with) } else { Ok(Entry::Proceed) }
    }

    /// The action of an `onEntry`.
    fn act(
        &self,
        site: Site<'_>,
        entry: &EntryPlan,
        run: &mut EntryRun,
        with: &Prepared,
    ) -> Evaluated<Entry> {
        let wanted = entry.middleware.on_entry(&mut run.state, with)?;
        run.state.config = Some(Arc::clone(with));
        let (step, middleware) = (self.place(site), &*entry.middleware);
        self.execution.observer.on(&Event::Decided { step, middleware, state: &run.state });
        Ok(wanted)
    }

    /// What is left of an `onEntry` behind its action: shaping and `assign`, where anything is evaluated (`pin`), and
    /// what the action `wanted`. The entry is established.
    fn enter(
        &mut self,
        site: Site<'_>,
        entry: &EntryPlan,
        (mut run, pin): (EntryRun, Option<Timestamp>),
        wanted: Entry,
        now: &mut Option<Instant>,
    ) -> Evaluated<(EntryRun, Descent)> {
        let race = match &wanted {
            Entry::Race { bound, .. } => {
                Some(now.get_or_insert_with(Instant::now).checked_add(*bound))
            }
            _ => None,
        };
        run.state.deadline = self.shown(race.flatten());
        if let Some(pin) = pin {
            self.shape_entry(site, entry, &mut run, pin)?;
            *now = None;
        }
        let emitted = match wanted {
            Entry::Substitute(outcome) => Some(outcome),
            _ if !run.armed && entry.middleware.gated_off() == GatedOff::NoRun => {
                Some(Outcome::Success(run.passed().clone()))
            }
            Entry::Race { explanation, .. } => {
                run.bound = race.map(|deadline| self.scope.impose(deadline, explanation));
                None
            }
            // One wait, of which nothing is left here.
            Entry::Proceed | Entry::After(..) => None,
        };
        // Established from here on.
        if let Some(outcome) = emitted {
            run.emitted = true;
            return Ok((run, Descent::Rises(Ok(outcome))));
        }
        if run.armed && entry.middleware.reruns() {
            run.restore_to = Some(self.state.vars.clone());
            self.begin_run(entry, &mut run);
        }
        let passed = run.passed().clone();
        Ok((run, Descent::Down(passed)))
    }

    /// The shaping key and the `assign` of an `onEntry`.
    fn shape_entry(
        &mut self,
        site: Site<'_>,
        entry: &EntryPlan,
        run: &mut EntryRun,
        pin: Timestamp,
    ) -> Evaluated<()> {
        let phase = entry.phase(Phase::Entry);
        let view = self.phase_view(site, entry, run, None, pin);
        let shaped = match &phase.shape {
            Shape::Value(template) => Some(evaluate(template, &view)?),
            Shape::Through | Shape::Envelope(_) => None,
        };
        let bindings = bindings_of(&phase.assign, &view)?;
        run.shaped = shaped;
        self.state.vars.apply(bindings);
        Ok(())
    }

    /// Counts a run of the inner scope.
    pub(super) fn begin_run(&mut self, entry: &EntryPlan, run: &mut EntryRun) {
        run.state.runs = run.state.runs.saturating_add(1);
        self.scope.attempt = run.state.runs;
        let config = run.state.config.as_ref();
        self.scope.attempts = config.and_then(|config| entry.middleware.budget(config));
    }
}
