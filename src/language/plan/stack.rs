//! A stack of middleware, and what is known about crossing it when it is compiled.
//!
//! Most entries of a policy evaluate nothing on the way down, and do nothing when a success rises past them.
//! If no entry of a stack evaluates anything on the way down, everything that the descent does is known at
//! compile time: the bounds that it imposes, and how often the inner scope may run. So the engine only
//! imposes the bounds. It establishes the entries later, and only if something rises for which they act.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::{EntryPlan, PhasePlan, Shape, With};
use crate::language::outcome::Failure;
use crate::language::provider::{Entry, Phase, Prepared};

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
    /// The budget of the innermost entry that may re-run its inner scope, if there is one.
    pub budget: Option<Option<u32>>,
    /// How many entries, from the outermost, a success must cross. The last of them is the innermost that
    /// does anything for a success.
    pub crossed: usize,
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
    /// Its descent, if that is static: no entry evaluates anything on the way down or decides at run time.
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
        let mut bounds = Vec::new();
        for (entry, plan) in stack.iter().enumerate() {
            let phase = plan.phase(Phase::Entry);
            let with = phase.literal()?;
            if !phase.acts {
                continue;
            }
            match plan.middleware.opening(with)? {
                Entry::Proceed => {}
                Entry::Race { bound: after, explanation } => {
                    bounds.push(EntryBound { entry, after, explanation });
                }
                Entry::Substitute(_) | Entry::After(..) | Entry::Ask(_) => return None,
            }
        }
        let budget = stack.iter().rev().find_map(EntryPlan::budget);
        let silent = stack.iter().rev().take_while(|entry| entry.passes_success()).count();
        Some(Self { bounds: bounds.into(), budget, crossed: stack.len() - silent })
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

    /// Whether a success rises past it unchanged, and it runs nothing afterwards.
    fn passes_success(&self) -> bool {
        self.phase(Phase::Success).is_idle() && self.phase(Phase::Always).is_idle()
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
