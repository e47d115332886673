//! What happened, as it happens: the engine tells an [`Observer`], and telemetry is one.
//!
//! There is one enum of events, [`Event`], which each observer matches. An event borrows everything from what
//! the engine holds anyway, so an observer that is not interested costs one call through a table. Observers
//! compose: a pair of observers is an observer, and so is an observer that may be absent.
//!
//! Each dispatch of a call is an [`Attempt`]. The engine reports its beginning and, however it ends, its end.
//! Both events carry the whole attempt, so no observer has to pair an end with its beginning by the Step's
//! name: several attempts may run under one name at once.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::code::system;
use super::outcome::{Failure, Outcome};
use super::provider::{Attempt, Destination, EntryState, Middleware, Prepared, Wait};

/// Is told what one execution does.
pub trait Observer: Send + Sync {
    /// `event` happens.
    fn on(&self, event: &Event<'_>);

    /// Whether it wants to hear of [`Event::Decided`], for which most runs have no use.
    fn follows_decisions(&self) -> bool {
        false
    }
}

/// One thing that an execution does. `step` is the Step's name, or the Flow's name for a Flow-level stack.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "a variant's comment names its members")]
pub enum Event<'a> {
    /// A call is being dispatched to a provider.
    AttemptStarted(&'a Attempt<'a>),
    /// It ended: its Result was accepted, or it was interrupted before.
    AttemptEnded(&'a Ended<'a>),
    /// The action of an entry's `onEntry` has decided what it wants. The middleware can say what, from its
    /// `state`.
    Decided { step: &'a str, middleware: &'a dyn Middleware, state: &'a EntryState },
    /// The action of an entry's `onEntry` did not let the inner scope run: the entry emits this failure in its place.
    Refused { entry: EntryPlace<'a>, failure: &'a Arc<Failure> },
    /// A re-running entry consumed a failure and will run its inner scope again after a wait.
    RetryScheduled(&'a Retry<'a>),
    /// The wait is over, and the re-run is made.
    RetryMade { failure: &'a Arc<Failure>, wait: Wait },
    /// A scheduled re-run is not made: during its wait the execution was cancelled from outside, or dropped.
    RetryDropped { step: &'a str },
    /// A re-running entry let a failure rise.
    PassedOver(&'a Passed<'a>),
    /// A middleware's action emitted its own `failure` instead of the one that rose, which is its `previous`:
    /// a policy's budget ran out (`Provider.Middleware.Retry.Exhausted`; `details` name the policy, and the
    /// reason if it was another).
    GaveUp { entry: EntryPlace<'a>, failure: &'a Arc<Failure> },
    /// A bound fired and its scope has unwound. `emitted` is the failure that rises.
    TimeoutExceeded { entry: EntryPlace<'a>, emitted: &'a Arc<Failure> },
    /// A clause of a Step's `catch` matches a failure.
    Caught(&'a Caught<'a>),
    /// A field of the definition could not be evaluated, or is not what its schema wants: the author's own fault
    /// ([`system::FAULTS`]), whatever becomes of this `failure`.
    Faulted { step: &'a str, failure: &'a Failure },
    /// A cleanup ended with this `outcome`. `caught`: a Step of its Flow caught a failure on the way.
    CleanupDone { step: &'a str, outcome: &'a Outcome, caught: bool },
}

/// The place of a middleware entry. It is shown as the label `entry` of metrics: `charge/1` for the second entry of the
/// Step `charge`, `flow/0` for the first of the Flow's own stack, `charge/cleanup/0` around a cleanup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryPlace<'a> {
    /// The name of the Step, or of the Flow for its own stack.
    pub step: &'a str,
    /// The name of its stack: the Step's, or the Flow's, which is `flow` for the root Flow.
    pub stack: &'a str,
    /// Whether the stack is around a cleanup.
    pub cleanup: bool,
    /// Its position in the stack, from 0, outermost first.
    pub position: usize,
}

/// A failure that a re-running entry let rise.
#[derive(Clone, Copy, Debug)]
pub struct Passed<'a> {
    /// The entry.
    pub entry: EntryPlace<'a>,
    /// The failure.
    pub failure: &'a Arc<Failure>,
    /// Whether a `when` of the entry is false. Otherwise none of its policies matches.
    pub gated: bool,
    /// The middleware, which can say why from its `state`.
    pub middleware: &'a dyn Middleware,
    /// What the entry has captured.
    pub state: &'a EntryState,
}

/// A failure that a `catch` takes.
#[derive(Clone, Copy, Debug)]
pub struct Caught<'a> {
    /// The Step whose `catch` it is.
    pub step: &'a str,
    /// The failure.
    pub failure: &'a Arc<Failure>,
    /// The Step that is entered.
    pub next: &'a str,
    /// Whether it happens in the Flow of a cleanup.
    pub cleanup: bool,
}

/// An attempt that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended<'a> {
    /// The attempt.
    pub attempt: &'a Attempt<'a>,
    /// How it ended.
    pub end: End<'a>,
    /// The time from its beginning to its end.
    pub took: Duration,
    /// Where it went, if its provider has said so.
    pub destination: Option<&'a Destination<'a>>,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug)]
pub enum End<'a> {
    /// Its Result was accepted.
    Accepted(&'a Outcome),
    /// It was interrupted before: by a bound, which this failure explains; by a `Gather` that has enough; or
    /// from outside.
    Interrupted(Option<&'a Failure>),
}

/// A re-run.
#[derive(Clone, Copy, Debug)]
pub struct Retry<'a> {
    /// The name of the Step, or of the Flow for its own stack.
    pub step: &'a str,
    /// The failure that was consumed.
    pub failure: &'a Arc<Failure>,
    /// The wait before the re-run.
    pub wait: Wait,
    /// The range from which a jittered wait was drawn.
    pub range: Option<(Duration, Duration)>,
    /// What the entry captured in its `onEntry`, and the middleware that can say what it means.
    pub config: Option<(&'a dyn Middleware, &'a Prepared)>,
}

impl Ended<'_> {
    /// The code of its failure, or of what interrupted it; `None` for a success.
    pub fn code(&self) -> Option<&str> {
        match self.end {
            End::Accepted(outcome) => outcome.failure().map(|failure| failure.code.as_str()),
            End::Interrupted(by) => Some(by.map_or(system::CANCELLED, |by| by.code.as_str())),
        }
    }
}

impl Passed<'_> {
    /// Why no policy took the failure, in one word.
    pub fn reason(&self) -> &'static str {
        let why = self.middleware.passes(self.state, self.failure);
        if self.gated { "when" } else { why.unwrap_or("noPolicy") }
    }
}

impl fmt::Display for EntryPlace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step: _, stack, cleanup, position } = self;
        let cleanup = if *cleanup { "cleanup/" } else { "" };
        write!(f, "{stack}/{cleanup}{position}")
    }
}

/// Ignores everything.
impl Observer for () {
    fn on(&self, _event: &Event<'_>) {}
}

impl<T: Observer + ?Sized> Observer for &T {
    fn on(&self, event: &Event<'_>) {
        (**self).on(event);
    }

    fn follows_decisions(&self) -> bool {
        (**self).follows_decisions()
    }
}

impl<T: Observer> Observer for Option<T> {
    fn on(&self, event: &Event<'_>) {
        if let Some(observer) = self {
            observer.on(event);
        }
    }

    fn follows_decisions(&self) -> bool {
        self.as_ref().is_some_and(Observer::follows_decisions)
    }
}

/// Both are told the same.
impl<A: Observer, B: Observer> Observer for (A, B) {
    fn on(&self, event: &Event<'_>) {
        self.0.on(event);
        self.1.on(event);
    }

    fn follows_decisions(&self) -> bool {
        self.0.follows_decisions() || self.1.follows_decisions()
    }
}
