//! Where a construct is within its execution: the constructs around it, from the inside out.
//!
//! Each level borrows what the running futures hold anyway. So this costs a few words per level until a provider asks
//! for its operation's key, and only then anything is computed.

use std::hash::Hasher;

use smallvec::SmallVec;

use super::stack::EntryRun;
use crate::language::plan::{FlowPlan, StepId};
use crate::language::provider::Identity;

/// A construct, with all that are around it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Location<'a> {
    /// `None` only at the root.
    around: Option<&'a Self>,
    level: Level<'a>,
}

/// One construct on the way down.
#[derive(Clone, Copy, Debug)]
enum Level<'a> {
    /// The execution.
    Root,
    /// A Step, in this visit within one run of its graph, from 1.
    Step(&'a str, u32),
    /// The inside of a stack, below these entries.
    Stack(&'a [EntryRun]),
    /// The frame of a Flow that a call runs.
    Frame,
    /// The dispatch of a `Gather` at this index.
    Dispatch(usize),
    /// The cleanup of the entry at this position.
    Cleanup(usize),
}

/// Counts how often one run of a graph visits each of its Steps.
#[derive(Debug)]
pub(super) struct Visits {
    /// By Step. Empty if the graph cannot come to a Step twice.
    counts: SmallVec<[u32; 8]>,
}

impl<'a> Location<'a> {
    /// Of the root frame.
    pub(super) const ROOT: Location<'static> = Location { around: None, level: Level::Root };

    const fn within(&'a self, level: Level<'a>) -> Self {
        Self { around: Some(self), level }
    }

    /// Of the Step `name` in this visit.
    pub(super) const fn step(&'a self, name: &'a str, visit: u32) -> Self {
        self.within(Level::Step(name, visit))
    }

    /// Of what a stack wraps, below the established `entries`.
    pub(super) const fn below(&'a self, entries: &'a [EntryRun]) -> Self {
        self.within(Level::Stack(entries))
    }

    /// Of a frame that the call here runs.
    pub(super) const fn frame(&'a self) -> Self {
        self.within(Level::Frame)
    }

    /// Of a `Gather`'s dispatch at `index`.
    pub(super) const fn dispatch(&'a self, index: usize) -> Self {
        self.within(Level::Dispatch(index))
    }

    /// Of the cleanup of the entry at `position`.
    pub(super) const fn cleanup(&'a self, position: usize) -> Self {
        self.within(Level::Cleanup(position))
    }
}

impl Identity for Location<'_> {
    fn feed(&self, hasher: &mut dyn Hasher) {
        let mut at = Some(self);
        while let Some(Self { around, level }) = at {
            level.feed(hasher);
            at = *around;
        }
    }
}

impl Level<'_> {
    /// Each kind begins with a number of its own and has a fixed form, so that no two ways to a construct are alike.
    fn feed(&self, hasher: &mut dyn Hasher) {
        match *self {
            Self::Root => hasher.write_u8(0),
            Self::Step(name, visit) => {
                hasher.write_u8(1);
                hasher.write_usize(name.len());
                hasher.write(name.as_bytes());
                hasher.write_u32(visit);
            }
            Self::Stack(entries) => {
                // An entry that is in its first iteration, or not established yet, adds nothing.
                for (position, entry) in entries.iter().enumerate() {
                    if entry.iterations > 0 {
                        hasher.write_u8(2);
                        hasher.write_usize(position);
                        hasher.write_u32(entry.iterations);
                    }
                }
            }
            Self::Frame => hasher.write_u8(3),
            Self::Dispatch(index) => {
                hasher.write_u8(4);
                hasher.write_usize(index);
            }
            Self::Cleanup(position) => {
                hasher.write_u8(5);
                hasher.write_usize(position);
            }
        }
    }
}

impl Visits {
    /// Of a run of `flow`'s graph that begins.
    pub(super) fn begin(flow: &FlowPlan) -> Self {
        let steps = if flow.leads_back { flow.steps.len() } else { 0 };
        Self { counts: SmallVec::from_elem(0, steps) }
    }

    /// The number of the visit of `step` that begins now.
    pub(super) fn next(&mut self, step: StepId) -> u32 {
        let Some(count) = self.counts.get_mut(step.0) else {
            return 1;
        };
        *count = count.saturating_add(1);
        *count
    }
}
