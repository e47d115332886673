//! A middleware's behaviour: what it does at each phase, and how it is checked and described.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::action::{
    Always, Ascent, Asked, Asker, Entry, EntryState, GatedOff, Moment, Pass, Passage,
};
use super::contract::{Contract, Phase, Prepared};
use super::installation::Installation;
use super::rising::Rising;
use super::written::{Arguments, WrittenEntry};
use crate::language::outcome::{Failure, Outcome};
use crate::language::value::Value;
use crate::source::{Diagnostics, Node, Span};

/// What is known about the place of an entry before anything runs.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'s> {
    /// The failures that may come from inside.
    pub rising: &'s Rising<'s>,
    /// The shortest bound around the entry that is certain, and its place.
    pub bound: Option<(Duration, Span)>,
}

/// A middleware's behaviour. Each default does nothing: implement only what is different.
pub trait Middleware: fmt::Debug + Send + Sync {
    /// What the middleware declares.
    fn contract(&self) -> &Contract;

    /// Turns a phase's `with`, which has passed the contract's schema, into the middleware's own form.
    fn prepare(&self, phase: Phase, with: &Value) -> Result<Prepared, Failure> {
        let _ = (phase, with);
        Ok(Arc::new(()))
    }

    /// Reports what is wrong with an entry, beside what the contract's schemas find.
    fn check(&self, entry: WrittenEntry<'_>, found: &mut Diagnostics) {
        let _ = (entry, found);
    }

    /// Reports what is wrong with an entry where it stands. `config` is what it captures.
    fn review(
        &self,
        entry: WrittenEntry<'_>,
        config: &Prepared,
        around: Surroundings<'_>,
        found: &mut Diagnostics,
    ) {
        let _ = (entry, config, around, found);
    }

    /// Whether its entries look at all of what they receive, so that a host must have it ready: a request's body, too.
    fn reads_input(&self) -> bool {
        false
    }

    /// Whether its entries keep something from one execution to the next, so that each gets an instance of its own.
    fn keeps_state(&self) -> bool {
        false
    }

    /// The instance that stands at a place of a definition from now on. It is asked for once, when the definition is
    /// compiled, if the middleware [keeps state](Self::keeps_state). `None`: the present one.
    ///
    /// The definition may turn out wrong after this, and is also compiled only to be checked. So this must leave nothing
    /// behind, once the instance has been dropped.
    fn installed(
        &self,
        at: &Installation<'_>,
        found: &mut Diagnostics,
    ) -> Option<Arc<dyn Middleware>> {
        let _ = (at, found);
        None
    }

    /// Turns the failures that may come from inside into those that may leave an entry. `config` is what it captures, if
    /// it certainly acts on each failure.
    fn leaves<'k>(&'k self, config: Option<&Prepared>, rising: &mut Rising<'k>) {
        let _ = config;
        rising.emit(self.contract());
    }

    /// The failure codes and patterns in a phase's `with`.
    fn patterns<'n>(&self, phase: Phase, with: &'n Node) -> Vec<&'n Node> {
        let _ = (phase, with);
        Vec::new()
    }

    /// The argument with which an expression may decide how long an execution waits.
    fn computed_wait(&self) -> Option<(Phase, &'static str)> {
        None
    }

    /// What a phase does with these arguments, in words: `PT30S`. `None`: the arguments say it themselves.
    fn describe(&self, phase: Phase, arguments: Arguments<'_>) -> Option<String> {
        let _ = (phase, arguments);
        None
    }

    /// The policy of `config` at this position, in words. It decided on a re-run.
    fn describe_policy(&self, config: &Prepared, position: usize) -> Option<String> {
        let _ = (config, position);
        None
    }

    /// How many runs of the inner scope an entry with `config` may make, if that is limited: the M of "attempt N of M".
    fn budget(&self, config: &Prepared) -> Option<u32> {
        let _ = config;
        None
    }

    /// The most runs of the inner scope that an entry with `config` may make; `None` if there is no limit.
    fn most_runs(&self, config: &Prepared) -> Option<u64> {
        self.budget(config).map(u64::from)
    }

    /// Whether an entry may run its inner scope more than once.
    fn reruns(&self) -> bool {
        false
    }

    /// The action at `onEntry`, with the prepared `with`.
    fn on_entry(
        &self,
        entry: &mut EntryState,
        with: &Prepared,
        asker: Asker<'_>,
    ) -> Result<Entry, Failure> {
        let (wants, own) = match self.admit(with, &asker, &mut Moment::default()) {
            Passage::Passes(pass) => (Entry::Proceed, self.held(with, pass)),
            Passage::Otherwise(Asked { wants, own }) => (wants, own),
        };
        entry.own = own;
        Ok(wants)
    }

    /// Whether the action at `onEntry` is [`admit`](Self::admit). Then the engine asks that alone where it can, and makes
    /// no state for an entry that lets a run pass, unless something rises for which the entry acts.
    fn decides_in_place(&self) -> bool {
        false
    }

    /// What the entry says to a run that comes `now`. Each pass is then either [settled](Self::settle) or [held](Self::held), once.
    fn admit(&self, with: &Prepared, asker: &Asker<'_>, now: &mut Moment) -> Passage {
        let _ = (with, asker, now);
        Passage::Passes(Pass::default())
    }

    /// Whether a pass has taken nothing, so that it need not be settled or held where nobody asks what the entry found.
    fn forgets(&self) -> bool {
        false
    }

    /// The entry's own state after `pass`. Dropping it gives back what the pass has taken.
    fn held(&self, with: &Prepared, pass: Pass) -> Option<Box<dyn Any + Send + Sync>> {
        let _ = (with, pass);
        None
    }

    /// A success has risen past the entry, and nothing else happens to it: does what
    /// [`on_success`](Self::on_success) does, which lets it rise, and gives back what `pass` has taken.
    fn settle(&self, pass: Pass) {
        let _ = pass;
    }

    /// The answer of [`on_entry`](Self::on_entry) to `with`, if it depends only on that and changes nothing
    /// in the entry's state. Then it is asked only once, when the stack is compiled.
    fn opening(&self, with: &Prepared) -> Option<Entry> {
        let _ = with;
        None
    }

    /// What the action at `onEntry` decided, in words, if there was a choice. `explain` shows it.
    fn decision(&self, state: &EntryState) -> Option<String> {
        let _ = state;
        None
    }

    /// What the entry does if the `when` of its `onEntry` is false.
    fn gated_off(&self) -> GatedOff {
        GatedOff::Transparent
    }

    /// The action at `onSuccess`.
    fn on_success(
        &self,
        entry: &mut EntryState,
        with: &Prepared,
        value: &Value,
        asker: Asker<'_>,
    ) -> Result<Ascent, Failure> {
        let _ = (entry, with, value, asker);
        Ok(Ascent::Pass)
    }

    /// The action at `onFailure`.
    fn on_failure(
        &self,
        entry: &mut EntryState,
        with: &Prepared,
        failure: &Arc<Failure>,
        asker: Asker<'_>,
    ) -> Result<Ascent, Failure> {
        let _ = (entry, with, failure, asker);
        Ok(Ascent::Pass)
    }

    /// Why [`on_failure`](Self::on_failure) lets `failure` rise, in one word, if the middleware can say.
    fn passes(&self, state: &EntryState, failure: &Failure) -> Option<&'static str> {
        let _ = (state, failure);
        None
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

    /// A member of `middleware.metadata`, which the contract declares. It is asked for only when it is read.
    fn metadata(&self, entry: &EntryState, member: &str) -> Option<Value> {
        let _ = (entry, member);
        None
    }
}
