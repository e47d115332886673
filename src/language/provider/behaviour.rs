//! A middleware's behaviour: what it does at each phase, and what it says of itself.

use std::fmt;
use std::sync::Arc;

use super::action::{Always, Ascent, Entry, EntryState, GatedOff};
use super::contract::{Contract, Phase, Prepared};
use super::written::{Arguments, WrittenEntry};
use crate::language::outcome::{Failure, Outcome};
use crate::language::value::Value;
use crate::source::{Diagnostics, Node};

/// A middleware's behaviour, and what it says of itself. Every default does nothing, or says nothing: write what is
/// different.
pub trait Middleware: fmt::Debug + Send + Sync {
    /// What the middleware declares.
    fn contract(&self) -> &Contract;

    /// Turns a phase's `with`, which has passed the contract's schema, into the middleware's own terms.
    fn prepare(&self, phase: Phase, with: &Value) -> Result<Prepared, Failure>;

    /// What `check` has to say of an entry, beside what the contract's schemas say.
    fn check(&self, entry: WrittenEntry<'_>, found: &mut Diagnostics) {
        let _ = (entry, found);
    }

    /// The failure codes, and patterns of them, that a phase's `with` selects by.
    fn patterns<'n>(&self, phase: Phase, with: &'n Node) -> Vec<&'n Node> {
        let _ = (phase, with);
        Vec::new()
    }

    /// The argument by which an expression may decide how long an execution waits.
    fn computed_wait(&self) -> Option<(Phase, &'static str)> {
        None
    }

    /// What a phase does with these arguments, in words: `PT30S`. `None`: the arguments speak for themselves.
    fn describe(&self, phase: Phase, arguments: Arguments<'_>) -> Option<String> {
        let _ = (phase, arguments);
        None
    }

    /// What of `config` decided a re-run, in words, where several parts may: the one at this position.
    fn describe_policy(&self, config: &Prepared, position: usize) -> Option<String> {
        let _ = (config, position);
        None
    }

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
