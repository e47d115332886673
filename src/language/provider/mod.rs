//! What a provider is to the engine: the contract (a document), the behaviour (one of two traits), and
//! the catalog that resolves a URI to both (MWL, "Providers").
//!
//! Middlewares answer, the engine acts. An action is a plain function that returns a directive: pass,
//! substitute, race, re-enter, dispatch. The engine owns the order of phases, `when`, `with`, shaping,
//! `assign`, variables, waiting and cancelling, so no middleware can break the phase model, and each is
//! tested as a function.

pub mod call;
pub mod catalog;
pub mod contract;
pub mod middleware;

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub use catalog::Catalog;
pub use contract::Contract;

use super::code::Code;
use super::outcome::{Failure, Outcome};
use super::value::Value;

/// A `with` in the provider's own terms: made once at load where the `with` holds no expression, else
/// each time the phase or the call runs. The engine carries it unopened.
pub type Prepared = Arc<dyn Any + Send + Sync>;

/// A call target.
pub trait CallProvider: fmt::Debug + Send + Sync {
    /// What the provider declares.
    fn contract(&self) -> &Contract;

    /// Turns a `with` that has passed the contract's schema into the provider's own terms. An error
    /// becomes the call's Result.
    fn prepare(&self, with: &Value) -> Result<Prepared, Failure>;

    /// Runs the call. A leaf: the future is dropped where the call is interrupted.
    fn call<'a>(
        &'a self,
        dispatch: Dispatch<'a>,
    ) -> Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;
}

/// One dispatch, as the provider sees it.
#[derive(Clone, Copy, Debug)]
pub struct Dispatch<'a> {
    /// What [`CallProvider::prepare`] made of the `with`.
    pub with: &'a Prepared,
    /// The call's evaluated `input`.
    pub input: &'a Value,
    /// The execution's `id`.
    pub execution_id: &'a str,
    /// The Step's name and execution id. A Flow-level cleanup belongs to no Step and has the Flow's name.
    pub step_name: &'a str,
    /// `step.id`; empty where there is no Step.
    pub step_id: &'a str,
    /// The run of the innermost re-running entry around this call, counting from 1.
    pub attempt: u32,
    /// How many runs that entry may make, where one number says so.
    pub attempts: Option<u32>,
    /// Whose call it is.
    pub role: Role,
    /// What the host gave the execution to carry.
    pub host: Option<&'a (dyn Any + Send + Sync)>,
    /// Whether anything may read the answer's `metadata`.
    pub windowed: bool,
    /// The code of the failure that explains why the call is dropped: set before it is, where a bound of the
    /// Flow's own does it.
    pub interrupted: &'a OnceLock<Code>,
}

/// Whose call a dispatch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A Step's own.
    Step,
    /// A cleanup's: its response is never the client's answer.
    Cleanup,
}

/// What a provider's call came to.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The Result.
    pub outcome: Outcome,
    /// The members of `provider.metadata`, within the declared schema. `Null` for none.
    pub metadata: Value,
}

impl Answer {
    /// A provider was handed a `with` that it did not prepare: a mistake in the host, told as a failure.
    pub fn wrong_with(contract: &Contract) -> Self {
        let message =
            format!("{} was handed arguments that it did not prepare", contract.uri.as_str());
        let outcome =
            Failure::error(super::code::system::PARAMETER_VALIDATION_FAILED, message).into();
        Self { outcome, metadata: Value::Null }
    }
}

/// A middleware's behaviour. The default of every action does nothing: write those that act.
pub trait Middleware: fmt::Debug + Send + Sync {
    /// What the middleware declares.
    fn contract(&self) -> &Contract;

    /// Turns a phase's `with`, which has passed the contract's schema, into the middleware's own terms.
    fn prepare(&self, phase: Phase, with: &Value) -> Result<Prepared, Failure>;

    /// How many runs of the inner scope an entry armed with `config` may make, where one number says so.
    fn budget(&self, config: &Prepared) -> Option<u32> {
        let _ = config;
        None
    }

    /// The most runs of the inner scope that an entry armed with `config` may make; `None` where nothing
    /// limits them.
    fn most_runs(&self, config: &Prepared) -> Option<u64> {
        self.budget(config).map(u64::from)
    }

    /// Whether an armed entry may run its inner scope more than once.
    fn reruns(&self) -> bool {
        false
    }

    /// The action at `onEntry`, with the prepared `with`.
    fn on_entry(&self, entry: &mut EntryState, with: &Prepared) -> Result<Entry, Failure> {
        let _ = (entry, with);
        Ok(Entry::Proceed)
    }

    /// What [`on_entry`](Self::on_entry) answers to `with`, where that is all it looks at and it leaves
    /// nothing in the entry's state: then it is asked once, when the stack is compiled.
    fn opening(&self, with: &Prepared) -> Option<Entry> {
        let _ = with;
        None
    }

    /// What the entry does where the `when` of its `onEntry` is false.
    fn gated_off(&self) -> GatedOff {
        GatedOff::Transparent
    }

    /// The action at `onSuccess`.
    fn on_success(
        &self,
        entry: &mut EntryState,
        with: &Prepared,
        value: &Value,
    ) -> Result<Ascent, Failure> {
        let _ = (entry, with, value);
        Ok(Ascent::Pass)
    }

    /// The action at `onFailure`.
    fn on_failure(
        &self,
        entry: &mut EntryState,
        with: &Prepared,
        failure: &Arc<Failure>,
    ) -> Result<Ascent, Failure> {
        let _ = (entry, with, failure);
        Ok(Ascent::Pass)
    }

    /// The action at `onAlways`.
    fn on_always(
        &self,
        entry: &EntryState,
        with: &Prepared,
        in_flight: &Outcome,
    ) -> Result<Always, Failure> {
        let _ = (entry, with, in_flight);
        Ok(Always::Nothing)
    }

    /// A contributed member of `middleware.metadata`: declared in the contract, asked for when read.
    fn metadata(&self, entry: &EntryState, member: &str) -> Option<Value> {
        let _ = (entry, member);
        None
    }
}

/// What a middleware keeps for one established entry, beside what the engine counts for it.
#[derive(Debug, Default)]
pub struct EntryState {
    /// What `onEntry` captured; `None` while gated off.
    pub config: Option<Prepared>,
    /// Runs of the inner scope begun so far: 0 in `onEntry`, 1 in the first run.
    pub runs: u32,
    /// When the bound that the entry imposed fires, as a timestamp's text; set by the engine.
    pub deadline: Option<super::temporal::Timestamp>,
    /// The middleware's own.
    pub own: Option<Box<dyn Any + Send + Sync>>,
}

/// The four phases ("The phase model").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// On the way down.
    Entry,
    /// On the way up, past a success.
    Success,
    /// On the way up, past a failure.
    Failure,
    /// On the way up, after either, and in a teardown.
    Always,
}

impl Phase {
    /// All, in order.
    pub const ALL: [Self; 4] = [Self::Entry, Self::Success, Self::Failure, Self::Always];

    /// The name of its key.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Entry => "onEntry",
            Self::Success => "onSuccess",
            Self::Failure => "onFailure",
            Self::Always => "onAlways",
        }
    }
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
