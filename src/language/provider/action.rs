//! The state and the directives of a middleware's actions. An action returns a directive, and the engine
//! carries it out.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use super::attempt::Role;
use super::contract::Prepared;
use crate::language::clock::Clock;
use crate::language::outcome::{Failure, Outcome};
use crate::language::temporal::Timestamp;
use crate::language::value::Value;

/// The state of an established entry: what the engine counts for it, and what the middleware keeps.
#[derive(Debug, Default)]
pub struct EntryState {
    /// What the `onEntry` of a re-running middleware captured; `None` if it was gated off.
    pub config: Option<Prepared>,
    /// How many runs of the inner scope have begun: 0 in `onEntry`, 1 in the first run.
    pub runs: u32,
    /// When the bound that the entry imposed fires. The engine sets it.
    pub deadline: Option<Timestamp>,
    /// In `onFailure`, the time until the first bound in force fires, if a wait beyond that is in vain. The engine sets
    /// it.
    pub room: Option<Duration>,
    /// In `onFailure`, why the host wants no work to be run again at present. The engine sets it.
    pub closed: Option<&'static str>,
    /// The middleware's own state. However the entry ends, this is dropped: once the Result has risen past it, when it is
    /// interrupted, and with the whole execution. So whatever the entry has taken gives itself back when it is dropped.
    pub own: Option<Box<dyn Any + Send + Sync>>,
}

/// Who asks for an action, and what the action may see of its surroundings.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// What the host gave the execution to carry.
    pub host: Option<&'a (dyn Any + Send + Sync)>,
    /// Whether the inner scope runs for a Step or for a cleanup.
    pub role: Role,
    /// Where the execution's instants come from.
    pub clock: Clock,
    /// What the entry received.
    pub input: &'a Value,
}

/// What an `onEntry` action wants.
#[derive(Debug)]
pub enum Entry {
    /// Go on.
    Proceed,
    /// Race the inner scope: when `bound` has passed before a Result is accepted at this position,
    /// interrupt it, and emit `explanation`.
    Race {
        /// Counted from when the entry is established. A bound of zero fires unless the scope settles at
        /// once.
        bound: Duration,
        /// The failure to emit.
        explanation: Arc<Failure>,
    },
    /// Do not run the inner scope: the entry emits this. Its own `onSuccess` and `onFailure` do not run. The
    /// entry is established, so its `onAlways` does.
    Substitute(Outcome),
    /// Wait, then do what is inside. While it waits, the entry is not established.
    After(Duration, Box<Self>),
    /// Wait for an answer, then do what that wants. While it waits, the entry is not established.
    Ask(Asking),
}

/// What an action waits for that is not a time: a place in a queue, the answer of a store. It is a leaf: if the scope is
/// interrupted, it is dropped, and must give back what it has taken.
pub struct Asking(Pin<Box<dyn Future<Output = Asked> + Send>>);

/// The answer.
#[derive(Debug)]
pub struct Asked {
    /// What the action wants then. It may wait again.
    pub wants: Entry,
    /// The entry's own state from now on; `None` leaves what is there.
    pub own: Option<Box<dyn Any + Send + Sync>>,
}

/// What a middleware that decides in place says to a run.
#[derive(Debug)]
pub enum Passage {
    /// The run goes on, once, with the same input.
    Passes(Pass),
    /// Anything else: it is refused, or waits, or the entry keeps more of it than a number.
    Otherwise(Asked),
}

/// What an entry keeps of a run that it let through in place: a number, whose meaning is the middleware's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pass(pub u64);

/// The instant at which something happens: read once, when somebody first needs it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moment(Option<Instant>);

impl Moment {
    /// The instant.
    pub fn read(&mut self) -> Instant {
        *self.0.get_or_insert_with(Instant::now)
    }
}

/// What an entry does if it is gated off.
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
    /// Emit this failure instead; the engine links the one that rose.
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
    /// The range from which a jittered wait was drawn.
    pub range: Option<(Duration, Duration)>,
    /// The position of the policy that decided, if a policy did.
    pub policy: Option<usize>,
    /// What the next run receives.
    pub feed: Feed,
    /// Whether the frame's variables go back to their state after the entry's `onEntry`.
    pub restore: bool,
}

/// Where the wait of a gap came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelaySource {
    /// The policy's schedule.
    Schedule,
    /// The `delay` parameter.
    Override,
}

impl Asking {
    /// Waits for `answer`.
    pub fn new(answer: impl Future<Output = Asked> + Send + 'static) -> Self {
        Self(Box::pin(answer))
    }
}

impl Future for Asking {
    type Output = Asked;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Asked> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for Asking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Asking").finish_non_exhaustive()
    }
}

impl DelaySource {
    /// The name in events, records and labels.
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
    /// The product of the phase's shaping key.
    Product,
}

/// What an `onAlways` action wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Always {
    /// Nothing.
    Nothing,
    /// Dispatch the phase's structural `call`, within its structural `middleware`.
    Dispatch,
}
