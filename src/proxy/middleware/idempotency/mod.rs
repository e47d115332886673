//! `idempotency`: runs the inner scope once for each key, and gives its answer again to whoever repeats the request
//! (draft-ietf-httpapi-idempotency-key-header).
//!
//! Kept are successes, and failures of which running again could change nothing: they are not retryable, and the upstream
//! answered them with 4xx. After every other end, also when the first request is interrupted, the key is free again. The
//! upstream may then have done its work; it gets the same key with the next attempt.

mod answer;
mod claim;
#[cfg(test)]
mod laws;
mod memory;
mod request;
mod terms;
mod work;

use std::any::Any;
use std::sync::{Arc, LazyLock};

use self::answer::Answer;
use self::claim::Claim;
use self::terms::Terms;
use self::work::{Claiming, Decided, Installed, Replay, Work};
use super::installing::{self, Keeper};
use super::states::States;
use super::written::Key;
use super::{Own, entry_host};
use crate::language::outcome::Failure;
use crate::language::provider::{
    Arguments, Ascent, Asked, Asker, Asking, Contract, Draws, Entry, EntryState, Installation,
    Middleware, Moment, Pass, Passage, Phase, Prepared, WrittenEntry,
};
use crate::language::temporal::Span;
use crate::language::value::Value;
use crate::proxy::answer::reply::{Details, Reply};
use crate::proxy::request::exchange::Exchange;
use crate::source::Diagnostics;

pub(super) const OWN: Own = Own { make };

static CONTRACT: LazyLock<Contract> =
    LazyLock::new(|| Contract::embedded(include_str!("idempotency.v1.json")));

/// The pass of a request without a key.
const KEYLESS: Pass = Pass(1);
/// The pass of a run for which the entry does not act.
const PASSED_BY: Pass = Pass(0);

/// The `idempotency` middleware: the one of the catalog, or an entry's own.
#[derive(Debug)]
struct Idempotency {
    states: Arc<States<(Terms, Keeper), Installed>>,
    entry: Option<Arc<Installed>>,
}

fn make(_draws: Draws) -> Arc<dyn Middleware> {
    Arc::new(Idempotency { states: Arc::default(), entry: None })
}

impl Middleware for Idempotency {
    fn contract(&self) -> &Contract {
        &CONTRACT
    }

    fn prepare(&self, phase: Phase, with: &Value) -> Result<Prepared, Failure> {
        if phase != Phase::Entry {
            return Ok(Arc::new(()));
        }
        // An entry's own instance knows the rest.
        if self.entry.is_none() {
            Terms::read(with)?;
        }
        Ok(Arc::new(Key::read(with)?))
    }

    fn check(&self, entry: WrittenEntry<'_>, found: &mut Diagnostics) {
        let message = "this `key` is the same for every request: all get the first one's answer";
        let help = "leave it out, which means the field `Idempotency-Key`, or write an expression";
        installing::check_key(entry, (message, help), found);
    }

    fn keeps_state(&self) -> bool {
        true
    }

    fn reads_input(&self) -> bool {
        true
    }

    fn installed(
        &self,
        at: &Installation<'_>,
        found: &mut Diagnostics,
    ) -> Option<Arc<dyn Middleware>> {
        let (with, terms) = installing::settings(at, &["key"], Terms::read, found)?;
        let store = installing::store(at, with).map_err(|wrong| found.push(wrong)).ok()?;
        let metrics = entry_host(at).map(|host| host.metrics.answers(at.route(), at.entry));
        let settings = (terms, Keeper::of(store.as_ref()));
        let made = || Installed::new(terms, store, metrics, at);
        // Only names can be in conflict.
        let entry = self.states.state(at, None, &settings, made).ok()?;
        Some(Arc::new(Self { states: Arc::clone(&self.states), entry: Some(entry) }))
    }

    fn describe(&self, phase: Phase, _arguments: Arguments<'_>) -> Option<String> {
        let entry = self.entry.as_ref().filter(|_| phase == Phase::Entry)?;
        let ttl = Span::from_duration(entry.terms.ttl);
        let required = if entry.terms.required { ", a key is required" } else { "" };
        let stored = entry.store.as_ref().map(|store| format!(", in the store {}", store.name()));
        Some(format!("answers kept for {ttl}{required}{}", stored.unwrap_or_default()))
    }

    fn decides_in_place(&self) -> bool {
        true
    }

    fn admit(&self, with: &Prepared, asker: &Asker<'_>, _now: &mut Moment) -> Passage {
        let (Some(entry), Some(Key(key))) = (&self.entry, with.downcast_ref::<Key>()) else {
            return Passage::Passes(PASSED_BY);
        };
        let key = match key {
            Some(key) => Some(key.as_ref().to_owned()),
            None => request::own_key(asker.input),
        };
        let Some(key) = key.filter(|key| !key.is_empty()) else {
            return if entry.terms.required {
                Passage::Otherwise(Work::from(Decided::Missing).asked())
            } else {
                Passage::Passes(KEYLESS)
            };
        };
        let (key, fingerprint) = (request::digest(&key), request::fingerprint(asker.input));
        let exchange = asker.host.and_then(|host| host.downcast_ref::<Exchange>());
        let reads = exchange.filter(|exchange| exchange.route.facts.reads_response);
        let memory = reads.map(|exchange| Arc::clone(&exchange.site.memory));
        let replay = Replay { role: asker.role, memory };
        let asking = if let Some(store) = &entry.store {
            let claiming = Arc::clone(entry).claim_stored(Arc::clone(store), key, fingerprint);
            Asking::new(async move { claiming.await.asked(replay).await })
        } else {
            match entry.claim(key, fingerprint) {
                Claiming::Decided(work) => return Passage::Otherwise(work.asked()),
                kept @ Claiming::Kept(_) => Asking::new(kept.asked(replay)),
            }
        };
        Passage::Otherwise(Asked { wants: Entry::Ask(asking), own: None })
    }

    fn held(&self, _with: &Prepared, pass: Pass) -> Option<Box<dyn Any + Send + Sync>> {
        (pass == KEYLESS).then(|| Box::new(Work::from(Decided::Keyless)) as _)
    }

    fn on_success(
        &self,
        state: &mut EntryState,
        _with: &Prepared,
        value: &Value,
        _asker: Asker<'_>,
    ) -> Result<Ascent, Failure> {
        if let Some(claim) = claim_of(state) {
            match value.as_native::<Reply>() {
                Some(reply) => copied(claim, reply, None),
                None => claim.keep_value(value),
            }
        }
        Ok(Ascent::Pass)
    }

    fn on_failure(
        &self,
        state: &mut EntryState,
        _with: &Prepared,
        failure: &Arc<Failure>,
        _asker: Asker<'_>,
    ) -> Result<Ascent, Failure> {
        let Some(claim) = claim_of(state) else {
            return Ok(Ascent::Pass);
        };
        let details = failure.details.as_ref().and_then(Value::as_native::<Details>);
        let reply = details.and_then(|details| details.reply.as_ref());
        let is_final = |reply: &&Arc<Reply>| {
            reply.status().is_client_error() && failure.retryable != Some(true)
        };
        // Without one, the claim is given up as it is dropped.
        if let Some(reply) = reply.filter(is_final) {
            copied(claim, reply, Some(failure));
        }
        Ok(Ascent::Pass)
    }

    fn decision(&self, state: &EntryState) -> Option<String> {
        let Work { decided, .. } = state.own.as_ref()?.downcast_ref()?;
        Some(
            match decided {
                Decided::Keyless => "lets this run pass: it has no key",
                Decided::First => "lets this run pass: it is the first with its key",
                Decided::Replayed => "gives the kept answer again",
                Decided::InProgress => "refuses this run: the first with its key is at work",
                Decided::Mismatch => "refuses this run: its key was used for another request",
                Decided::Missing => "refuses this run: it has no key",
                Decided::Unknown { passes: true } => "lets this run pass: the store gave no answer",
                Decided::Unknown { passes: false } => "refuses this run: the store gave no answer",
            }
            .to_owned(),
        )
    }

    fn metadata(&self, state: &EntryState, member: &str) -> Option<Value> {
        let Work { decided, .. } = state.own.as_ref()?.downcast_ref()?;
        let keyed = !matches!(decided, Decided::Keyless | Decided::Missing);
        let replayed = Value::Bool(*decided == Decided::Replayed);
        (member == "replayed" && keyed).then_some(replayed)
    }
}

/// Takes the claim of an entry whose inner scope has ended.
fn claim_of(state: &mut EntryState) -> Option<Claim> {
    state.own.as_mut()?.downcast_mut::<Work>()?.claim.take()
}

/// Keeps a copy of `reply`, the answer of `failure` if it is that of one, with `claim`.
fn copied(claim: Claim, reply: &Reply, failure: Option<&Failure>) {
    reply.watch(|line, headers| {
        let answer = Answer::of_response(failure, line, headers);
        Some(Box::new(claim.copy(answer)))
    });
}
