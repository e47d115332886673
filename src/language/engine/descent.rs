//! The way down a stack: each entry's `onEntry`, and what its action wants (MWL, "Middleware mechanics").
//!
//! Nothing here waits. If an action wants to wait, for a time or an answer, the descent stops and returns its state
//! ([`Paused`]). The stack waits, and then resumes it.

use std::sync::Arc;

use tokio::time::Instant;

use super::execution::Execution;
use super::frame::Frame;
use super::phase::prepared;
use super::scope::Rise;
use super::stack::{EntryRun, Site, pause};
use super::template::{Evaluated, bindings_of, evaluate, holds};
use crate::language::observe::Event;
use crate::language::outcome::Outcome;
use crate::language::plan::{EntryPlan, Shape};
use crate::language::provider::{Asked, Asker, Asking, Entry, GatedOff, Moment, Phase, Prepared};
use crate::language::temporal::Timestamp;
use crate::language::value::Value;

/// The outcome of a descent.
pub(super) enum Descent {
    /// The value passed down.
    Down(Value),
    /// This rises, and what is inside does not run.
    Rises(Rise),
    /// An entry's action waits first.
    Waits(Box<Paused>),
}

/// How an `onEntry` began.
enum Begun {
    /// It is over.
    Descent(Descent),
    /// Its action waits.
    Waits { until: Asking, undecided: bool, pin: Option<Timestamp> },
}

/// An entry whose action waits.
pub(super) struct Paused {
    entering: Entering,
    /// What it waits for.
    pub(super) until: Asking,
}

/// The state of an `onEntry` whose action has not answered yet.
pub(super) struct Entering {
    pub(super) run: EntryRun,
    /// When the phase was entered, if it evaluates anything.
    pub(super) pin: Option<Timestamp>,
    /// Whether its decision depends on the answer, and so has not been told.
    pub(super) undecided: bool,
}

/// What an action waits for first, and whether it decides only then. `Err`: it does not wait.
fn waiting(wanted: Entry) -> Result<(Asking, bool), Entry> {
    match wanted {
        Entry::After(wait, then) => {
            let pausing = async move {
                pause(wait).await;
                Asked { wants: *then, own: None }
            };
            Ok((Asking::new(pausing), false))
        }
        Entry::Ask(asking) => Ok((asking, true)),
        wanted => Err(wanted),
    }
}

impl Frame<'_, '_> {
    /// A deadline, as `middleware.metadata` shows it; `None` if no expression reads it.
    pub(super) fn shown(&self, deadline: Option<Instant>) -> Option<Timestamp> {
        let read = deadline.filter(|_| self.execution.plan.needs().instants)?;
        Some(self.execution.clock.at(read))
    }

    /// Runs every `onEntry` below the entries of `runs`.
    pub(super) fn descend_all(
        &mut self,
        site: Site<'_>,
        stack: &[EntryPlan],
        input: Value,
        runs: &mut Vec<EntryRun>,
    ) -> Descent {
        let mut value = input;
        let mut now = Moment::default();
        while let Some(entry) = stack.get(runs.len()) {
            match self.descend(site, entry, value, &mut now, runs) {
                Ok(Descent::Down(passed)) => value = passed,
                Ok(other) => return other,
                // The entry is not established, so its own phases do not run.
                Err(fault) => {
                    let fault = self.blame(self.place(site), fault);
                    return Descent::Rises(Ok(fault.into()));
                }
            }
        }
        Descent::Down(value)
    }

    /// `onEntry`. An `Err` is the phase's failure: the entry is not established, and not added to `runs`.
    ///
    /// `now` is the instant of this descent. Entries between which nothing is evaluated are established at the
    /// same instant, so that the clock is read only once.
    fn descend(
        &mut self,
        site: Site<'_>,
        entry: &EntryPlan,
        input: Value,
        now: &mut Moment,
        runs: &mut Vec<EntryRun>,
    ) -> Evaluated<Descent> {
        let outer = (self.scope.attempt, self.scope.attempts);
        // It is large, so it is made in its place, and taken out again if it is not established.
        runs.push(EntryRun::new(runs.len(), input, outer));
        let begun = match runs.last_mut() {
            Some(run) => self.begin(site, entry, run, now),
            None => Ok(Begun::Descent(Descent::Down(Value::Null))),
        };
        match begun {
            Ok(Begun::Descent(descent)) => Ok(descent),
            Ok(Begun::Waits { until, undecided, pin }) => Ok(match runs.pop() {
                Some(run) => {
                    let entering = Entering { run, pin, undecided };
                    Descent::Waits(Box::new(Paused { entering, until }))
                }
                None => Descent::Down(Value::Null),
            }),
            Err(fault) => {
                runs.pop();
                Err(fault)
            }
        }
    }

    /// The `onEntry` of the innermost entry, until it waits.
    fn begin(
        &mut self,
        site: Site<'_>,
        entry: &EntryPlan,
        run: &mut EntryRun,
        now: &mut Moment,
    ) -> Evaluated<Begun> {
        let phase = entry.phase(Phase::Entry);
        let (wanted, pin) = match phase.literal() {
            Some(_) if !phase.acts => (Entry::Proceed, None),
            Some(with) => (self.act(site, entry, run, with)?, None),
            None => {
                // Evaluation takes time.
                *now = Moment::default();
                let pin = self.execution.stamp();
                (self.act_evaluated(site, entry, run, pin)?, Some(pin))
            }
        };
        match waiting(wanted) {
            Ok((until, undecided)) => Ok(Begun::Waits { until, undecided, pin }),
            // The common case: the inner scope runs, once, with the same input.
            Err(Entry::Proceed) if pin.is_none() && !entry.middleware.reruns() => {
                Ok(Begun::Descent(Descent::Down(run.input.clone())))
            }
            Err(wanted) => self.enter(site, entry, (run, pin), wanted, now).map(Begun::Descent),
        }
    }

    /// Continues a descent with the answer for which it stopped.
    pub(super) fn resume(
        &mut self,
        site: Site<'_>,
        stack: &[EntryPlan],
        paused: Box<Paused>,
        asked: Asked,
        runs: &mut Vec<EntryRun>,
    ) -> Descent {
        self.answered(site, stack, paused.entering, asked, runs)
    }

    /// Continues a descent with the answer of the action of the innermost entry, which is `entering`.
    pub(super) fn answered(
        &mut self,
        site: Site<'_>,
        stack: &[EntryPlan],
        mut entering: Entering,
        asked: Asked,
        runs: &mut Vec<EntryRun>,
    ) -> Descent {
        let Some(entry) = stack.get(runs.len()) else {
            return Descent::Down(entering.run.input);
        };
        let Asked { wants, own } = asked;
        if own.is_some() {
            entering.run.state.own = own;
        }
        if entering.undecided && !matches!(wants, Entry::Ask(_)) {
            self.decided(site, entry, &entering.run);
        }
        let wanted = match waiting(wants) {
            Ok((until, undecided)) => {
                let entering = Entering { undecided, ..entering };
                return Descent::Waits(Box::new(Paused { entering, until }));
            }
            Err(wanted) => wanted,
        };
        let Entering { mut run, pin, .. } = entering;
        match self.enter(site, entry, (&mut run, pin), wanted, &mut Moment::default()) {
            Ok(Descent::Down(value)) => {
                runs.push(run);
                self.descend_all(site, stack, value, runs)
            }
            Ok(other) => {
                runs.push(run);
                other
            }
            Err(fault) => {
                let fault = self.blame(self.place(site), fault);
                Descent::Rises(Ok(fault.into()))
            }
        }
    }

    /// Evaluates the `when` and `with` of an `onEntry`, and runs its action.
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

    /// Runs the action of an `onEntry`.
    fn act(
        &self,
        site: Site<'_>,
        entry: &EntryPlan,
        run: &mut EntryRun,
        with: &Prepared,
    ) -> Evaluated<Entry> {
        let EntryRun { state, input, .. } = run;
        let wanted = entry.middleware.on_entry(state, with, self.asker(input))?;
        // Only a re-running middleware is asked for it again. A literal is shared by all workers.
        if entry.middleware.reruns() {
            state.config = Some(Arc::clone(with));
        }
        if !matches!(wanted, Entry::Ask(_)) {
            self.decided(site, entry, run);
        }
        Ok(wanted)
    }

    /// Tells the observer that the action of an `onEntry` has decided.
    fn decided(&self, site: Site<'_>, entry: &EntryPlan, run: &EntryRun) {
        let observer = self.execution.observer;
        if observer.follows_decisions() {
            let (step, middleware) = (self.place(site), &*entry.middleware);
            observer.on(&Event::Decided { step, middleware, state: &run.state });
        }
    }

    /// Who asks for the actions of an entry that received `input`.
    pub(super) fn asker<'a>(&'a self, input: &'a Value) -> Asker<'a> {
        let Execution { host, clock, .. } = *self.execution;
        Asker { host, role: self.scope.role, clock, input }
    }

    /// Does the rest of an `onEntry`, after its action: shaping and `assign` if anything is evaluated
    /// (`pin`), and what the action `wanted`. Establishes the entry.
    fn enter(
        &mut self,
        site: Site<'_>,
        entry: &EntryPlan,
        (run, pin): (&mut EntryRun, Option<Timestamp>),
        wanted: Entry,
        now: &mut Moment,
    ) -> Evaluated<Descent> {
        let race = match &wanted {
            Entry::Race { bound, .. } => Some(now.read().checked_add(*bound)),
            _ => None,
        };
        run.state.deadline = self.shown(race.flatten());
        if let Some(pin) = pin {
            self.shape_entry(site, entry, run, pin)?;
            *now = Moment::default();
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
            // All waiting is over here.
            Entry::Proceed | Entry::After(..) | Entry::Ask(_) => None,
        };
        // The entry is established from here on.
        if let Some(outcome) = emitted {
            run.emitted = true;
            if let Outcome::Failure(failure) = &outcome {
                self.tell(&Event::Refused { entry: self.entry(site, run), failure });
            }
            return Ok(Descent::Rises(Ok(outcome)));
        }
        if run.armed && entry.middleware.reruns() {
            run.restore_to = Some(self.state.vars.clone());
            self.begin_run(entry, run);
        } else if entry.middleware.reruns() {
            // Gated off, it counts the one run that there is.
            run.state.runs = 1;
        }
        Ok(Descent::Down(run.passed().clone()))
    }

    /// Evaluates the shaping key and the `assign` of an `onEntry`.
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
