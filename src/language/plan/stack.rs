//! A stack of middleware, and what is known of crossing it before any request does.
//!
//! Most entries of a policy evaluate nothing on the way down and do nothing on the way up past a success.
//! Of a stack in which no entry evaluates anything on the way down, all that the descent does is known when
//! it is compiled: the bounds that it imposes and how often what it wraps may run. So the engine imposes
//! them and is inside; it makes entries of it only where something rises that they act on.

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
    opening: Option<Opening>,
}

/// A descent of which all is known.
#[derive(Debug)]
pub struct Opening {
    /// What it imposes, outermost first.
    pub bounds: Box<[Bound]>,
    /// Where an entry may re-run what is inside it, the budget of the innermost that may.
    pub budget: Option<Option<u32>>,
    /// So many entries, from the outermost, are to be crossed by a success: the last of them is the
    /// innermost that does anything about one.
    pub crossed: usize,
}

/// A bound that an entry imposes.
#[derive(Debug)]
pub struct Bound {
    /// Whose it is: a position in the stack.
    pub entry: usize,
    /// Counted from the descent.
    pub after: Duration,
    /// Why it fires.
    pub explanation: Arc<Failure>,
}

impl StackPlan {
    /// What is known of its descent; `None` where an entry evaluates something on the way down, or answers
    /// by what it finds.
    pub const fn opening(&self) -> Option<&Opening> {
        self.opening.as_ref()
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
        let opening = Opening::of(&entries);
        Self { entries, opening }
    }
}

impl Opening {
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
                    bounds.push(Bound { entry, after, explanation });
                }
                Entry::Substitute(_) | Entry::After(..) => return None,
            }
        }
        let budget = stack.iter().rev().find_map(EntryPlan::budget);
        let silent = stack.iter().rev().take_while(|entry| entry.passes_success()).count();
        Some(Self { bounds: bounds.into(), budget, crossed: stack.len() - silent })
    }
}

impl EntryPlan {
    /// What its `onEntry` captures, where nothing there is evaluated and the middleware acts.
    pub fn captures(&self) -> Option<&Prepared> {
        let phase = self.phase(Phase::Entry);
        phase.literal().filter(|_| phase.acts)
    }

    /// Where it may run what is inside it more than once, how often, if one number says so.
    pub fn budget(&self) -> Option<Option<u32>> {
        let reruns = self.middleware.reruns();
        reruns.then(|| self.captures().and_then(|with| self.middleware.budget(with)))
    }

    /// Whether a success rises past it as it is, and nothing runs behind it.
    fn passes_success(&self) -> bool {
        self.phase(Phase::Success).is_idle() && self.phase(Phase::Always).is_idle()
    }
}

impl PhasePlan {
    /// The `with` of a block in which nothing is evaluated: it sees no bindings and binds nothing.
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

    /// Whether the block holds nothing to evaluate and the middleware nothing to do: then the phase is
    /// not entered at all.
    pub fn is_idle(&self) -> bool {
        !self.acts && self.literal().is_some()
    }
}
