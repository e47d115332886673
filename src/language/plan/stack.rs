//! A stack of middleware, and what is known about crossing it when it is compiled.
//!
//! Most entries of a policy evaluate nothing on the way down, and do nothing when a success rises past them.
//! If no entry of a stack evaluates anything on the way down, everything that the descent does is known at
//! compile time: the bounds that it imposes, how often the inner scope may run, and which entries decide in place
//! whether a run passes. So the engine only imposes the bounds and asks those entries. It establishes the entries later,
//! and only if something rises for which they act, or if one does not simply let the run pass.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::{EntryPlan, PhasePlan, Shape, With};
use crate::language::outcome::Failure;
use crate::language::provider::{Entry, Middleware, Phase, Prepared};

/// How many entries of a stack may decide in place. One with more is crossed entry by entry.
pub const MOST_DECISIONS: usize = 4;

/// An ordered stack, outermost first.
#[derive(Debug, Default)]
pub struct StackPlan {
    entries: Box<[EntryPlan]>,
    descent: Option<StaticDescent>,
}

/// A descent that is known at compile time.
#[derive(Debug)]
pub struct StaticDescent {
    /// The bounds that it imposes, outermost first.
    pub bounds: Box<[EntryBound]>,
    /// The entries that decide in place, outermost first.
    pub decisions: Box<[Decision]>,
    /// The budget of the innermost entry that may re-run its inner scope, if there is one.
    pub budget: Option<Option<u32>>,
    /// How many entries, from the outermost, a success must cross. The last of them is the innermost that
    /// does anything for a success, apart from settling what it decided in place.
    pub crossed: usize,
    /// Whether no entry does anything more once all have let the run pass, whatever rises.
    pub inert: bool,
}

/// An entry that decides in place.
#[derive(Debug)]
pub struct Decision {
    /// Its position in the stack.
    pub entry: usize,
    /// It decides.
    pub middleware: Arc<dyn Middleware>,
    /// On what it decides.
    pub with: Prepared,
}

/// A bound that an entry imposes.
#[derive(Debug)]
pub struct EntryBound {
    /// The position of the entry in the stack.
    pub entry: usize,
    /// The time from the descent until it fires.
    pub after: Duration,
    /// Why it fires.
    pub explanation: Arc<Failure>,
}

impl StackPlan {
    /// Its descent, if that is static: no entry evaluates anything on the way down, and those that decide at run time decide
    /// in place.
    pub const fn static_descent(&self) -> Option<&StaticDescent> {
        self.descent.as_ref()
    }

    /// Lets `change` replace what an entry is made of, with its position.
    pub(in crate::language) fn change_each(
        &mut self,
        change: &mut impl FnMut(usize, &mut EntryPlan),
    ) {
        for (position, entry) in self.entries.iter_mut().enumerate() {
            change(position, entry);
        }
        self.descent = StaticDescent::of(&self.entries);
    }
}

impl Deref for StackPlan {
    type Target = [EntryPlan];

    fn deref(&self) -> &[EntryPlan] {
        &self.entries
    }
}

impl FromIterator<EntryPlan> for StackPlan {
    fn from_iter<T: IntoIterator<Item = EntryPlan>>(entries: T) -> Self {
        let entries: Box<[EntryPlan]> = entries.into_iter().collect();
        let descent = StaticDescent::of(&entries);
        Self { entries, descent }
    }
}

impl StaticDescent {
    fn of(stack: &[EntryPlan]) -> Option<Self> {
        let (mut bounds, mut decisions) = (Vec::new(), Vec::new());
        for (entry, plan) in stack.iter().enumerate() {
            let phase = plan.phase(Phase::Entry);
            let with = phase.literal()?;
            if !phase.acts {
                continue;
            }
            match plan.middleware.opening(with) {
                Some(Entry::Proceed) => {}
                Some(Entry::Race { bound: after, explanation }) => {
                    bounds.push(EntryBound { entry, after, explanation });
                }
                None if plan.middleware.decides_in_place() => {
                    let (middleware, with) = (Arc::clone(&plan.middleware), Arc::clone(with));
                    decisions.push(Decision { entry, middleware, with });
                }
                None | Some(Entry::Substitute(_) | Entry::After(..) | Entry::Ask(_)) => {
                    return None;
                }
            }
        }
        let budget = stack.iter().rev().find_map(EntryPlan::budget);
        if decisions.len() > MOST_DECISIONS {
            return None;
        }
        let silent = stack.iter().rev().take_while(|entry| entry.passes_success()).count();
        let crossed = stack.len() - silent;
        let inert = bounds.is_empty() && budget.is_none() && stack.iter().all(EntryPlan::is_inert);
        Some(Self { bounds: bounds.into(), decisions: decisions.into(), budget, crossed, inert })
    }
}

impl EntryPlan {
    /// What its `onEntry` captures, if nothing there is evaluated and the middleware acts.
    pub fn captures(&self) -> Option<&Prepared> {
        let phase = self.phase(Phase::Entry);
        phase.literal().filter(|_| phase.acts)
    }

    /// If it may re-run its inner scope: how often, if that is one number.
    pub fn budget(&self) -> Option<Option<u32>> {
        let reruns = self.middleware.reruns();
        reruns.then(|| self.captures().and_then(|with| self.middleware.budget(with)))
    }

    /// Whether it does nothing more once it has let a run pass.
    fn is_inert(&self) -> bool {
        let forgets = !self.middleware.decides_in_place() || self.middleware.forgets();
        let later = [Phase::Success, Phase::Failure, Phase::Always];
        forgets && later.iter().all(|phase| self.phase(*phase).is_idle())
    }

    /// Whether a success rises past it unchanged, and it runs nothing afterwards.
    fn passes_success(&self) -> bool {
        let success = self.phase(Phase::Success);
        let decides = self.phase(Phase::Entry).acts && self.middleware.decides_in_place();
        let settles = decides && success.literal().is_some();
        (settles || success.is_idle()) && self.phase(Phase::Always).is_idle()
    }
}

impl PhasePlan {
    /// The `with` of the block, if nothing in the block is evaluated: it reads no bindings and binds nothing.
    pub fn literal(&self) -> Option<&Prepared> {
        let Self { acts: _, when: None, with, cleanup: _, shape: Shape::Through, assign } = self
        else {
            return None;
        };
        match with {
            With::Literal { prepared: Ok(prepared), .. } if assign.is_empty() => Some(prepared),
            _ => None,
        }
    }

    /// Whether the block holds nothing to evaluate and the middleware has nothing to do. Then the phase is
    /// not entered at all.
    pub fn is_idle(&self) -> bool {
        !self.acts && self.literal().is_some()
    }
}
