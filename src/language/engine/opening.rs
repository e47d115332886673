//! The way down a stack that evaluates nothing there, and so is known when it is compiled but for what some entries decide in
//! place (`plan::stack`). Its entries are established only when they are needed.

use std::sync::Arc;

use super::descent::Entering;
use super::frame::Frame;
use super::scope::Rise;
use super::stack::{Crossing, EntryRun, Site};
use super::vars::Vars;
use crate::language::outcome::Outcome;
use crate::language::plan::{Decision, EntryBound, MOST_DECISIONS, StackPlan, StaticDescent};
use crate::language::provider::{Asked, Moment, Pass, Passage};
use crate::language::value::Value;

/// A stack whose entries are not established yet: what rises decides which of them must be crossed. Each pass that it holds is
/// settled or held: held at the latest when this is dropped, because the whole execution is.
pub(super) struct Pending<'p> {
    plan: &'p StaticDescent,
    /// What the entries that decide in place gave, from the outermost on: so many of them.
    given: [Pass; MOST_DECISIONS],
    count: usize,
    /// The variables outside.
    vars: Vars,
    /// How many bounds there are outside.
    outside: usize,
    /// The attempt number and budget outside.
    attempt: (u32, Option<u32>),
    /// When it was entered.
    now: Moment,
}

impl<'p> Pending<'p> {
    /// Settles the passes of the entries from position `first` on, past which a success has risen.
    fn settle(&mut self, first: usize) {
        while let Some(last) = self.count.checked_sub(1)
            && let (Some(pass), Some(decision)) =
                (self.given.get(last), self.plan.decisions.get(last))
            && decision.entry >= first
        {
            self.count = last;
            decision.middleware.settle(*pass);
        }
    }

    /// Gives back what the passes have taken.
    #[cold]
    fn give_back(&mut self) {
        self.take().for_each(|(pass, by)| drop(by.middleware.held(&by.with, pass)));
    }

    /// Takes the passes, with the entries that gave them.
    fn take(&mut self) -> impl Iterator<Item = (Pass, &'p Decision)> + use<'p> {
        let count = std::mem::take(&mut self.count);
        self.given.into_iter().take(count).zip(&self.plan.decisions)
    }
}

impl Drop for Pending<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.count > 0 {
            self.give_back();
        }
    }
}

impl Frame<'_, '_> {
    /// What `stack` does on the way down, if that is known.
    pub(super) fn known<'p>(&self, stack: &'p StackPlan) -> Option<&'p StaticDescent> {
        stack.static_descent().filter(|plan| {
            // An observer is told of decisions with the entry's state.
            plan.decisions.is_empty() || !self.execution.observer.follows_decisions()
        })
    }

    /// A stack with this `plan`, before it is entered.
    #[inline]
    pub(super) fn pending<'p>(&self, plan: &'p StaticDescent) -> Pending<'p> {
        Pending {
            plan,
            given: [Pass::default(); MOST_DECISIONS],
            count: 0,
            vars: self.state.vars.clone(),
            outside: self.scope.bounds(),
            attempt: (self.scope.attempt, self.scope.attempts),
            now: Moment::default(),
        }
    }

    /// Enters a stack: imposes its bounds, and asks the entries that decide in place. `Err`: the first that does not simply let
    /// the run pass, and what it says. The stack must then be crossed [entry by entry](Self::answered_in_place) from there on.
    pub(super) fn open(
        &mut self,
        pending: &mut Pending<'_>,
        input: &Value,
    ) -> Result<(), (usize, Asked)> {
        let plan = pending.plan;
        for EntryBound { entry: _, after, explanation } in &plan.bounds {
            let deadline = pending.now.read().checked_add(*after);
            self.scope.impose(deadline, Arc::clone(explanation));
        }
        if let Some(budget) = plan.budget {
            (self.scope.attempt, self.scope.attempts) = (1, budget);
        }
        if !plan.decisions.is_empty() {
            let asker = self.asker(input);
            for (decision, given) in plan.decisions.iter().zip(&mut pending.given) {
                let Decision { entry, middleware, with } = decision;
                match middleware.admit(with, &asker, &mut pending.now) {
                    Passage::Passes(pass) => *given = pass,
                    Passage::Otherwise(other) => return Err((*entry, other)),
                }
                pending.count += 1;
            }
        }
        self.scope.now = pending.now;
        Ok(())
    }

    /// Goes on after the entry at a position of `stack` has answered in place, but did not simply let the run pass.
    #[cold]
    pub(super) fn answered_in_place(
        &mut self,
        site: Site<'_>,
        stack: &StackPlan,
        pending: &mut Pending<'_>,
        (entry, asked): (usize, Asked),
        input: &Value,
    ) -> Crossing {
        let mut runs = self.establish(stack, pending, entry, input);
        let outer = (self.scope.attempt, self.scope.attempts);
        let run = EntryRun::new(entry, input.clone(), outer);
        let entering = Entering { run, pin: None, undecided: false };
        let descent = self.answered(site, stack, entering, asked, &mut runs);
        Crossing { runs, descent }
    }

    /// Establishes the entries that `rising` must cross, and returns them. `None`: it has risen past all of them, and is what
    /// the stack emits.
    #[inline]
    pub(super) fn close(
        &mut self,
        stack: &StackPlan,
        pending: &mut Pending<'_>,
        input: &Value,
        rising: &Rise,
    ) -> Option<Vec<EntryRun>> {
        if pending.plan.inert {
            pending.count = 0;
            return None;
        }
        self.close_entries(stack, pending, input, rising)
    }

    fn close_entries(
        &mut self,
        stack: &StackPlan,
        pending: &mut Pending<'_>,
        input: &Value,
        rising: &Rise,
    ) -> Option<Vec<EntryRun>> {
        let count = match rising {
            Ok(Outcome::Success(_)) => pending.plan.crossed,
            _ => stack.len(),
        };
        pending.settle(count);
        if count == 0 {
            self.scope.lift(pending.outside);
            (self.scope.attempt, self.scope.attempts) = pending.attempt;
            return None;
        }
        Some(self.establish(stack, pending, count, input))
    }

    /// Establishes the outermost `count` entries, as if the descent had gone through them one by one. Lifts the
    /// bounds of the others.
    fn establish(
        &mut self,
        stack: &StackPlan,
        pending: &mut Pending<'_>,
        count: usize,
        input: &Value,
    ) -> Vec<EntryRun> {
        // All of them are taken: those of further entries are settled, or were not asked for.
        let mut given = pending.take().peekable();
        let Pending { plan, vars, outside, attempt, now, .. } = pending;
        let (mut imposed, mut attempt) = (*outside, *attempt);
        let mut bounds = plan.bounds.iter().peekable();
        let mut runs = Vec::with_capacity(stack.len());
        for (position, entry) in stack.iter().take(count).enumerate() {
            let mut run = EntryRun::new(position, input.clone(), attempt);
            run.state.config = entry.captures().map(Arc::clone);
            if let Some((pass, by)) = given.next_if(|(_, by)| by.entry == position) {
                run.state.own = by.middleware.held(&by.with, pass);
            }
            if let Some(bound) = bounds.next_if(|bound| bound.entry == position) {
                run.state.deadline = self.shown(now.read().checked_add(bound.after));
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
        runs
    }
}
