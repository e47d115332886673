//! `rate-limit`: how many runs of the inner scope begin in a time.
//!
//! Counted in this process ([`bucket`], [`buckets`]), or in a store for a whole fleet. Nothing was sent when it fails, so the
//! failure is retryable.

mod bucket;
mod buckets;
#[cfg(test)]
mod laws;
mod limit;
#[cfg(test)]
mod tests;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use self::bucket::{Bucket, Took};
use self::buckets::Buckets;
use self::limit::{Key, Limit, nanos};
use super::{Known, Own, installed_store, same_store};
use crate::language::outcome::Failure;
use crate::language::provider::{
    Arguments, Asked, Asker, Asking, Contract, Draws, Entry, EntryState, Installation, Middleware,
    Phase, Prepared, Surroundings, WrittenEntry,
};
use crate::language::temporal::Span;
use crate::language::value::Value;
use crate::proxy::meaning::rate_limit::{LIMITED, STORE_UNAVAILABLE};
use crate::proxy::settings::store::OnError;
use crate::proxy::store::{Store, Taken, Ticket};
use crate::source::{Diagnostic, Diagnostics};

pub(super) const OWN: Own = Own { make };

static CONTRACT: LazyLock<Contract> =
    LazyLock::new(|| Contract::embedded(include_str!("rate-limit.v1.json")));

/// The `rate-limit` middleware: the one of the catalog, or an entry's own.
#[derive(Debug)]
struct RateLimit {
    known: Arc<Known<Installed>>,
    entry: Option<Arc<Installed>>,
}

/// An entry, with its counters.
#[derive(Debug)]
struct Installed {
    limit: Limit,
    /// The instant from which the counters' times are told.
    origin: Instant,
    one: Arc<Bucket>,
    /// Made with the first key.
    keyed: LazyLock<Buckets>,
    store: Option<Arc<Store>>,
    /// The beginning of its keys in the store.
    scope: Arc<str>,
}

/// A request's place in the limit.
#[derive(Debug)]
struct Turn {
    limit: Limit,
    decided: Decided,
    /// Gives the turn back if its time has not come.
    _reserved: Option<Reserved>,
}

/// What was decided for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decided {
    /// It runs after this wait; so many are left.
    Runs {
        wait: Duration,
        left: u32,
    },
    Refused {
        again: Duration,
    },
    /// The store gave no answer.
    Unknown {
        passes: bool,
    },
}

/// A turn in the future.
#[derive(Debug)]
struct Reserved {
    at: Instant,
    back: Option<Back>,
}

/// Where it is given back.
#[derive(Debug)]
enum Back {
    Local { entry: Arc<Installed>, bucket: Arc<Bucket>, at: u64 },
    Stored { entry: Arc<Installed>, store: Arc<Store>, key: Arc<str>, ticket: Ticket },
}

fn make(_draws: Draws) -> Arc<dyn Middleware> {
    Arc::new(RateLimit { known: Arc::default(), entry: None })
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if Instant::now() >= self.at {
            return;
        }
        match self.back.take() {
            Some(Back::Local { entry, bucket, at }) => bucket.give_back(at, entry.limit.pace()),
            Some(Back::Stored { entry, store, key, ticket }) => {
                if let Ok(runtime) = Handle::try_current() {
                    runtime.spawn(store.give_back(key, entry.limit.for_store(), ticket));
                }
            }
            None => {}
        }
    }
}

impl Installed {
    fn new(limit: Limit, store: Option<Arc<Store>>, scope: Arc<str>) -> Self {
        Self {
            limit,
            origin: Instant::now(),
            one: Arc::default(),
            keyed: LazyLock::new(Buckets::new),
            store,
            scope,
        }
    }

    /// Takes a turn from the counters of this process.
    fn take(self: &Arc<Self>, key: Option<&str>) -> Turn {
        let limit = self.limit;
        let instant = Instant::now();
        let now = nanos(instant.saturating_duration_since(self.origin));
        let keyed;
        let bucket = match key {
            None => &self.one,
            Some(key) => {
                keyed = self.keyed.of(key, now);
                &keyed
            }
        };
        match bucket.take(now, limit.pace(), nanos(limit.wait)) {
            Took::Nothing { again } => {
                Turn::of(limit, Decided::Refused { again: Duration::from_nanos(again) })
            }
            Took::Turn { at, left } => {
                let wait = Duration::from_nanos(at - now);
                let reserved = (at > now).then(|| {
                    let (entry, bucket) = (Arc::clone(self), Arc::clone(bucket));
                    let back = Back::Local { entry, bucket, at };
                    Reserved { at: instant + wait, back: Some(back) }
                });
                Turn { _reserved: reserved, ..Turn::of(limit, Decided::Runs { wait, left }) }
            }
        }
    }

    /// Takes a turn from `store`.
    async fn take_stored(self: Arc<Self>, store: Arc<Store>, key: Option<Arc<str>>) -> Turn {
        let limit = self.limit;
        let key: Arc<str> = match key {
            None => Arc::clone(&self.scope),
            Some(key) => format!("{}:{key}", self.scope).into(),
        };
        match store.take(&key, limit.for_store(), limit.wait).await {
            Err(_told) => {
                let passes = store.on_error() == OnError::Allow;
                Turn::of(limit, Decided::Unknown { passes })
            }
            Ok(Taken::None { again }) => Turn::of(limit, Decided::Refused { again }),
            Ok(Taken::Turn { wait, left, ticket }) => {
                let reserved = (!wait.is_zero()).then(|| {
                    let back = Back::Stored { entry: self, store, key, ticket };
                    Reserved { at: Instant::now() + wait, back: Some(back) }
                });
                Turn { _reserved: reserved, ..Turn::of(limit, Decided::Runs { wait, left }) }
            }
        }
    }
}

impl Turn {
    const fn of(limit: Limit, decided: Decided) -> Self {
        Self { limit, decided, _reserved: None }
    }

    /// What the entry does.
    fn wants(&self) -> Entry {
        match self.decided {
            Decided::Runs { wait, .. } if wait.is_zero() => Entry::Proceed,
            Decided::Runs { wait, .. } => Entry::After(wait, Box::new(Entry::Proceed)),
            Decided::Refused { again } => Entry::Substitute(self.limited(again).into()),
            Decided::Unknown { passes: true } => Entry::Proceed,
            Decided::Unknown { passes: false } => {
                let message = "the store of the rate limit gave no answer";
                let failure = Failure::error(STORE_UNAVAILABLE, message).with_retryable(true);
                let details = [("retryAfter", Value::from("PT1S"))];
                Entry::Substitute(failure.with_details(Value::object(details)).into())
            }
        }
    }

    fn limited(&self, again: Duration) -> Failure {
        let limit = self.limit;
        let after = Span::from_duration(again);
        let message =
            format!("the limit of {} is used up; one more is due in {after}", limit.words());
        let details = Value::object([
            ("retryAfter", Value::string(after.to_string())),
            ("rate", Value::from(limit.rate)),
            ("per", Value::string(Span::from_duration(limit.per).to_string())),
        ]);
        Failure::error(LIMITED, message).with_retryable(true).with_details(details)
    }
}

impl Middleware for RateLimit {
    fn contract(&self) -> &Contract {
        &CONTRACT
    }

    fn prepare(&self, _phase: Phase, with: &Value) -> Result<Prepared, Failure> {
        // An entry's own instance knows the rest.
        if self.entry.is_none() {
            Limit::read(with)?;
        }
        Ok(Arc::new(Key::read(with)?))
    }

    fn check(&self, entry: WrittenEntry<'_>, found: &mut Diagnostics) {
        let key = entry.argument(Phase::Entry, "key");
        let key = key.filter(|key| key.as_str().is_some_and(|key| !key.contains("{{")));
        if let Some(key) = key {
            let message = "this `key` is the same for every request";
            let help = "leave it out, which means one limit for all, or write an expression";
            found.push(Diagnostic::warning("constant-key", key.span, message).with_help(help));
        }
    }

    fn review(
        &self,
        entry: WrittenEntry<'_>,
        _config: &Prepared,
        around: Surroundings<'_>,
        found: &mut Diagnostics,
    ) {
        let Some(wait) = entry.argument(Phase::Entry, "wait") else {
            return;
        };
        let span = wait.as_str().and_then(|wait| Span::parse(wait));
        let Some(((bound, place), longest)) = around.bound.zip(span) else {
            return;
        };
        if longest.to_duration() < bound || longest == Span::ZERO {
            return;
        }
        let bound = Span::from_duration(bound);
        let message = format!(
            "a run may wait {longest} for its turn, but the bound around it fires after {bound}"
        );
        let diagnostic = Diagnostic::warning("idle-wait", wait.span, message);
        let diagnostic = diagnostic.with_related(place, "the bound around it");
        found.push(diagnostic.with_help("wait less, or move the limit before the bound"));
    }

    fn keeps_state(&self) -> bool {
        true
    }

    fn installed(
        &self,
        at: &Installation<'_>,
        found: &mut Diagnostics,
    ) -> Option<Arc<dyn Middleware>> {
        let with = match at.literals(&["key"]) {
            Ok(with) => with,
            Err(diagnostic) => {
                found.push(diagnostic);
                return None;
            }
        };
        // What is wrong with a literal `with` was reported when it was prepared; one with a computed key was not.
        let limit = match Limit::read(with) {
            Ok(limit) => limit,
            Err(failure) => {
                let message = failure.message.as_deref().unwrap_or("`with` is wrong").to_owned();
                found.push(Diagnostic::error("bad-limit", at.span, message));
                return None;
            }
        };
        let store = installed_store(at, with, found)?;
        let scope = format!("limit:{}:{}", at.route(), at.entry);
        let alike = |other: &Installed| {
            other.limit == limit && same_store(other.store.as_ref(), store.as_ref())
        };
        let made = || Installed::new(limit, store.clone(), scope.into());
        let entry = self.known.entry(at, alike, made);
        Some(Arc::new(Self { known: Arc::clone(&self.known), entry: Some(entry) }))
    }

    fn describe(&self, phase: Phase, arguments: Arguments<'_>) -> Option<String> {
        let entry = self.entry.as_ref().filter(|_| phase == Phase::Entry)?;
        let keyed = match arguments {
            Arguments::Prepared(with) => with.downcast_ref::<Key>()?.0.is_some(),
            Arguments::Written(with) => with.get("key").is_some(),
        };
        let key = if keyed { " for each key" } else { "" };
        let stored = entry.store.as_ref().map(|store| format!(", in the store {}", store.name()));
        Some(format!("{}{key}{}", entry.limit.words(), stored.unwrap_or_default()))
    }

    fn on_entry(
        &self,
        state: &mut EntryState,
        with: &Prepared,
        _asker: Asker<'_>,
    ) -> Result<Entry, Failure> {
        let (Some(entry), Some(Key(key))) = (&self.entry, with.downcast_ref::<Key>()) else {
            return Ok(Entry::Proceed);
        };
        let Some(store) = &entry.store else {
            let turn = entry.take(key.as_deref());
            let wants = turn.wants();
            state.own = Some(Box::new(turn));
            return Ok(wants);
        };
        let (entry, store, key) = (Arc::clone(entry), Arc::clone(store), key.clone());
        Ok(Entry::Ask(Asking::new(async move {
            let turn = entry.take_stored(store, key).await;
            Asked { wants: turn.wants(), own: Some(Box::new(turn)) }
        })))
    }

    fn decision(&self, state: &EntryState) -> Option<String> {
        let Turn { limit, decided, .. } = state.own.as_ref()?.downcast_ref()?;
        let said = match *decided {
            Decided::Runs { wait, left } if wait.is_zero() => {
                format!("lets this run pass, {left} more may come now")
            }
            Decided::Runs { wait, .. } => {
                format!("lets this run wait {} for its turn", Span::from_duration(wait))
            }
            Decided::Refused { again } => {
                format!("refuses this run, the next is due in {}", Span::from_duration(again))
            }
            Decided::Unknown { passes: true } => {
                "lets this run pass, because the store gave no answer".to_owned()
            }
            Decided::Unknown { passes: false } => {
                "refuses this run, because the store gave no answer".to_owned()
            }
        };
        Some(format!("{said} ({})", limit.words()))
    }

    fn metadata(&self, state: &EntryState, member: &str) -> Option<Value> {
        let turn: &Turn = state.own.as_ref()?.downcast_ref()?;
        let left = match turn.decided {
            Decided::Runs { left, .. } => left,
            Decided::Refused { .. } => 0,
            Decided::Unknown { .. } => return None,
        };
        (member == "remaining").then(|| Value::from(left))
    }
}
