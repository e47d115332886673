//! What a middleware's action is asked with and what it answers: directives, which the engine carries out.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use super::contract::Prepared;
use crate::language::outcome::{Failure, Outcome};
use crate::language::temporal::Timestamp;

/// What a middleware keeps for one established entry, beside what the engine counts for it.
#[derive(Debug, Default)]
pub struct EntryState {
    /// What `onEntry` captured; `None` while gated off.
    pub config: Option<Prepared>,
    /// Runs of the inner scope begun so far: 0 in `onEntry`, 1 in the first run.
    pub runs: u32,
    /// When the bound that the entry imposed fires, as a timestamp's text; set by the engine.
    pub deadline: Option<Timestamp>,
    /// The middleware's own.
    pub own: Option<Box<dyn Any + Send + Sync>>,
}

/// What an `onEntry` action wants.
#[derive(Clone, Debug)]
pub enum Entry {
    /// Go on.
    Proceed,
    /// Race the inner scope: when `bound` has passed before a Result is accepted at this position,
    /// interrupt it, and emit `explanation`.
    Race {
        /// Counted from the entry's establishment. Zero fires unless the scope settles at once.
        bound: Duration,
        /// The failure that says why.
        explanation: Arc<Failure>,
    },
    /// Do not run the inner scope: this rises from the entry, past its own `onSuccess` and `onFailure`. The entry is
    /// established, so its `onAlways` runs.
    Substitute(Outcome),
    /// Wait, then do what is in it. What interrupts the wait finds the entry not established.
    After(Duration, Box<Self>),
}

/// What an entry does while it is gated off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatedOff {
    /// Nothing: its later actions do not run, and the inner scope runs once.
    Transparent,
    /// No run occurs: the entry emits its `onEntry` product as a success.
    NoRun,
}

/// What an `onSuccess` or `onFailure` action wants.
#[derive(Clone, Debug)]
pub enum Ascent {
    /// Let the Result rise.
    Pass,
    /// Emit this failure in its place; the engine links the one that rose.
    Fail(Failure),
    /// Run the inner scope again.
    Reenter(Reentry),
}

/// How to run the inner scope again.
#[derive(Clone, Debug)]
pub struct Reentry {
    /// The wait before it.
    pub after: Duration,
    /// Where the wait came from.
    pub source: DelaySource,
    /// What a jittered wait was drawn from.
    pub range: Option<(Duration, Duration)>,
    /// The position of the policy that decided, where policies did.
    pub policy: Option<usize>,
    /// What the next run receives.
    pub feed: Feed,
    /// Whether the frame's variables go back to their state after the entry's `onEntry`.
    pub restore: bool,
}

/// Where a gap's wait came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelaySource {
    /// The policy's schedule.
    Schedule,
    /// The `delay` parameter.
    Override,
}

impl DelaySource {
    /// Its name in events, records and labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Schedule => "schedule",
            Self::Override => "override",
        }
    }
}

/// What a re-run receives as its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feed {
    /// The value that the entry passed down at first.
    Same,
    /// The product of the phase's shaping key: the carried value.
    Product,
}

/// What an `onAlways` action wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Always {
    /// Nothing.
    Nothing,
    /// Dispatch the call that stands in the phase's structural `call`, within its structural
    /// `middleware`.
    Dispatch,
}
