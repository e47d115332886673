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

use std::any::Any;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use self::bucket::{Bucket, Pace, Took};
use self::buckets::Buckets;
use self::limit::{Limit, nanos};
use super::Own;
use super::installing::{self, Keeper, acts_for};
use super::states::States;
use super::written::Key;
use crate::language::outcome::Failure;
use crate::language::provider::{
    Arguments, Asked, Asker, Asking, Contract, Draws, Entry, EntryState, Installation, Middleware,
    Moment, Pass, Passage, Phase, Prepared, Surroundings, WrittenEntry,
};
use crate::language::temporal::Span;
use crate::language::value::Value;
use crate::proxy::meaning::rate_limit::{LIMITED, STORE_UNAVAILABLE};
use crate::proxy::settings::store::OnError;
use crate::proxy::store::{Store, Taken, Ticket};
use crate::source::Diagnostics;

pub(super) const OWN: Own = Own { make };

static CONTRACT: LazyLock<Contract> =
    LazyLock::new(|| Contract::embedded(include_str!("rate-limit.v1.json")));

/// The pass of a run for which the entry does not act. That of others is one more than how many are left.
const PASSED_BY: Pass = Pass(0);

/// The `rate-limit` middleware: the one of the catalog, or an entry's own.
#[derive(Debug)]
struct RateLimit {
    states: Arc<States<(Limit, Keeper), Installed>>,
    entry: Option<RateLimitEntry>,
}

/// An entry's place, and its counters.
#[derive(Debug)]
struct RateLimitEntry {
    installed: Arc<Installed>,
    /// Whether it has a key, which may be computed.
    keyed: bool,
    /// Whether it stands in the stack of a cleanup: elsewhere it lets cleanups pass.
    cleanup: bool,
}

/// The counters of an entry.
#[derive(Debug)]
struct Installed {
    limit: Limit,
    /// The same for the counters of this process, and how long a run waits for its turn, in nanoseconds.
    pace: Pace,
    patience: u64,
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

/// The pass of a run that takes its turn at once, after which so many are left.
fn pass(left: u32) -> Pass {
    Pass(u64::from(left) + 1)
}

fn make(_draws: Draws) -> Arc<dyn Middleware> {
    Arc::new(RateLimit { states: Arc::default(), entry: None })
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if Instant::now() >= self.at {
            return;
        }
        match self.back.take() {
            Some(Back::Local { entry, bucket, at }) => bucket.give_back(at, entry.pace),
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
            pace: limit.pace(),
            patience: nanos(limit.wait),
            origin: Instant::now(),
            one: Arc::default(),
            keyed: LazyLock::new(Buckets::new),
            store,
            scope,
        }
    }

    /// A turn at this `instant` from the counter for all, if none has to wait for it. The common case, made short.
    fn take_now(&self, instant: Instant) -> Option<Pass> {
        let now = nanos(instant.saturating_duration_since(self.origin));
        self.one.take_now(now, self.pace).map(pass)
    }

    /// What the entry says to a run whose `with` may have a key.
    #[inline(never)]
    fn answer(self: &Arc<Self>, with: Option<&Prepared>, now: &mut Moment) -> Passage {
        let key = with.and_then(|with| with.downcast_ref::<Key>()?.0.clone());
        let Some(store) = &self.store else {
            return self.take(key.as_deref(), now.read());
        };
        let (entry, store) = (Arc::clone(self), Arc::clone(store));
        let wants =
            Entry::Ask(Asking::new(async move { entry.take_stored(store, key).await.asked() }));
        Passage::Otherwise(Asked { wants, own: None })
    }

    /// Takes a turn at this `instant` from the counters of this process.
    fn take(self: &Arc<Self>, key: Option<&str>, instant: Instant) -> Passage {
        let limit = self.limit;
        let now = nanos(instant.saturating_duration_since(self.origin));
        let keyed;
        let bucket = match key {
            None => &self.one,
            Some(key) => {
                keyed = self.keyed.of(key, now);
                &keyed
            }
        };
        let turn = match bucket.take(now, self.pace, self.patience) {
            Took::Turn { at, left } if at <= now => return Passage::Passes(pass(left)),
            Took::Turn { at, left } => {
                let wait = Duration::from_nanos(at - now);
                let (entry, bucket) = (Arc::clone(self), Arc::clone(bucket));
                let back = Some(Back::Local { entry, bucket, at });
                let reserved = Some(Reserved { at: instant + wait, back });
                Turn { _reserved: reserved, ..Turn::of(limit, Decided::Runs { wait, left }) }
            }
            Took::Nothing { again } => {
                Turn::of(limit, Decided::Refused { again: Duration::from_nanos(again) })
            }
        };
        Passage::Otherwise(turn.asked())
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

    fn asked(self) -> Asked {
        Asked { wants: self.wants(), own: Some(Box::new(self)) }
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
        let message = "this `key` is the same for every request";
        let help = "leave it out, which means one limit for all, or write an expression";
        installing::check_key(entry, (message, help), found);
    }

    fn review(
        &self,
        entry: WrittenEntry<'_>,
        _config: &Prepared,
        around: Surroundings<'_>,
        found: &mut Diagnostics,
    ) {
        installing::check_wait(entry.argument(Phase::Entry, "wait"), around, found);
    }

    fn keeps_state(&self) -> bool {
        true
    }

    fn installed(
        &self,
        at: &Installation<'_>,
        found: &mut Diagnostics,
    ) -> Option<Arc<dyn Middleware>> {
        let (with, limit) = installing::settings(at, &["key"], Limit::read, found)?;
        let store = installing::store(at, with).map_err(|wrong| found.push(wrong)).ok()?;
        let scope = format!("limit:{}:{}", at.route(), at.entry);
        let settings = (limit, Keeper::of(store.as_ref()));
        let made = || Installed::new(limit, store, scope.into());
        // Only names can be in conflict.
        let installed = self.states.state(at, None, &settings, made).ok()?;
        let keyed = with.get("key").is_some() || !at.computed.is_empty();
        let entry = RateLimitEntry { installed, keyed, cleanup: at.cleanup };
        Some(Arc::new(Self { states: Arc::clone(&self.states), entry: Some(entry) }))
    }

    fn describe(&self, phase: Phase, arguments: Arguments<'_>) -> Option<String> {
        let entry = &self.entry.as_ref().filter(|_| phase == Phase::Entry)?.installed;
        let keyed = match arguments {
            Arguments::Prepared(with) => with.downcast_ref::<Key>()?.0.is_some(),
            Arguments::Written(with) => with.get("key").is_some(),
        };
        let key = if keyed { " for each key" } else { "" };
        let stored = entry.store.as_ref().map(|store| format!(", in the store {}", store.name()));
        let wait = Span::from_duration(entry.limit.wait);
        let waits =
            if wait == Span::ZERO { String::new() } else { format!(", others wait up to {wait}") };
        Some(format!("{}{key}{waits}{}", entry.limit.words(), stored.unwrap_or_default()))
    }

    fn decides_in_place(&self) -> bool {
        true
    }

    fn forgets(&self) -> bool {
        true
    }

    fn admit(&self, with: &Prepared, asker: &Asker<'_>, now: &mut Moment) -> Passage {
        let entry = self.entry.as_ref().filter(|entry| acts_for(entry.cleanup, asker.role));
        let Some(RateLimitEntry { installed: entry, keyed, cleanup: _ }) = entry else {
            return Passage::Passes(PASSED_BY);
        };
        if entry.store.is_none()
            && !keyed
            && let Some(pass) = entry.take_now(now.read())
        {
            return Passage::Passes(pass);
        }
        entry.answer((*keyed).then_some(with), now)
    }

    fn held(&self, _with: &Prepared, pass: Pass) -> Option<Box<dyn Any + Send + Sync>> {
        let left = u32::try_from(pass.0.checked_sub(1)?).unwrap_or(u32::MAX);
        let limit = self.entry.as_ref()?.installed.limit;
        Some(Box::new(Turn::of(limit, Decided::Runs { wait: Duration::ZERO, left })))
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
