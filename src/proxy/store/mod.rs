//! Stores: Redis or Valkey servers, in which several proxies keep limits and answers that they share.
//!
//! Each decision is one script, which runs in the server and reads the server's clock; so proxies need not agree on the
//! time. A worker has one connection to a store and pipelines on it. Nothing waits for a store longer than its `timeout`:
//! whoever asks gets an error then, and decides by `onError`. While a store is known to be down, the error comes at once
//! ([`mod@line`]).

mod answers;
mod limit;
mod line;
mod script;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, ThreadId};

use redis::FromRedisValue;
use tokio::time::{Instant, sleep};

pub(crate) use self::answers::Claimed;
pub(crate) use self::limit::{Rate, Taken, Ticket};
use self::line::Line;
use self::script::Script;
use super::settings;
use super::settings::store::OnError;
use crate::telemetry::limiter::LogLimiter;
use crate::telemetry::metrics::{Metrics, StoreMetrics};

/// The stores of one configuration.
#[derive(Debug, Default)]
pub(crate) struct Stores(BTreeMap<Arc<str>, Arc<Store>>);

/// One store.
#[derive(Debug)]
pub(crate) struct Store {
    settings: Arc<settings::store::Store>,
    metrics: StoreMetrics,
    failures: LogLimiter,
    /// The connection of each worker.
    lines: Mutex<HashMap<ThreadId, Arc<Line>>>,
}

/// Why a store gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StoreError {
    /// The last attempt to connect failed, and the next one is not due.
    #[error("it cannot be reached: {0}")]
    Down(Arc<str>),
    /// It did not answer in time.
    #[error("it did not answer within its `timeout`")]
    Late,
    /// As many decisions wait for it as may.
    #[error("{} decisions of this worker wait for it already", line::MOST)]
    Busy,
    /// The connection broke.
    #[error("its connection broke: {0}")]
    Lost(Arc<str>),
    /// It answered with an error, or with something else than was asked for.
    #[error("it refused: {0}")]
    Refused(Arc<str>),
}

/// The stores that are in use. A load whose settings of a store are those of another load shares it.
static IN_USE: Mutex<Vec<Weak<Store>>> = Mutex::new(Vec::new());

thread_local! {
    /// This worker's connections, by store.
    static LINES: RefCell<Vec<(Weak<Store>, Weak<Line>)>> = const { RefCell::new(Vec::new()) };
}

impl StoreError {
    /// Whether the store may have decided all the same.
    pub(crate) const fn is_uncertain(&self) -> bool {
        matches!(self, Self::Late | Self::Lost(_))
    }
}

impl Stores {
    /// The stores with these `settings`.
    pub(crate) fn of(settings: Vec<settings::store::Store>, metrics: &Arc<Metrics>) -> Self {
        let stores = settings.into_iter();
        Self(stores.map(|one| (Arc::clone(&one.name), Store::of(one, metrics))).collect())
    }

    /// The store of this name.
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Store>> {
        self.0.get(name)
    }

    /// The names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(|name| &**name)
    }
}

impl Store {
    /// The store with these `settings`, whose errors `metrics` counts.
    fn of(settings: settings::store::Store, metrics: &Arc<Metrics>) -> Arc<Self> {
        let mut known = lock(&IN_USE);
        known.retain(|store| store.strong_count() > 0);
        let same = |store: &Arc<Self>| *store.settings == settings && store.metrics.are_of(metrics);
        if let Some(store) = known.iter().filter_map(Weak::upgrade).find(same) {
            return store;
        }
        let store = Arc::new(Self {
            metrics: metrics.store(&settings.name),
            failures: LogLimiter::new("A store gave no answer.", Some(Arc::clone(&settings.name))),
            settings: Arc::new(settings),
            lines: Mutex::default(),
        });
        known.push(Arc::downgrade(&store));
        store
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.settings.name
    }

    /// What is decided without it.
    pub(crate) fn on_error(&self) -> OnError {
        self.settings.on_error
    }

    /// The answer of `script` about `key`, within `timeout`. An error is counted and logged.
    async fn ask<T: FromRedisValue>(
        self: &Arc<Self>,
        script: Script,
        key: &str,
        arguments: &[&[u8]],
    ) -> Result<T, StoreError> {
        let key = format!("{}:{key}", self.settings.prefix);
        let line = self.line();
        let answered = tokio::select! {
            biased;
            answered = line.ask(script, &key, arguments) => answered,
            () = sleep(self.settings.timeout) => {
                line.was_silent();
                Err(StoreError::Late)
            }
        };
        let answered = answered.and_then(|value| {
            T::from_redis_value(value)
                .map_err(|error| StoreError::Refused(error.to_string().into()))
        });
        answered.inspect_err(|error| self.failed(error))
    }

    /// Counts and logs an error.
    fn failed(&self, error: &StoreError) {
        self.metrics.failed();
        let Some(untold) = self.failures.admits(Instant::now()) else {
            return;
        };
        let decision = match self.on_error() {
            OnError::Allow => "requests pass without it (`onError: allow`)",
            OnError::Deny => "requests are refused (`onError: deny`)",
        };
        tracing::warn!(store = self.name(), %error, decision, untold, "A store gave no answer.");
    }

    /// This worker's connection.
    fn line(self: &Arc<Self>) -> Arc<Line> {
        let this = Arc::downgrade(self);
        LINES.with_borrow_mut(|lines| {
            let own = lines.iter().find(|(store, _)| store.ptr_eq(&this));
            if let Some(line) = own.and_then(|(_, line)| line.upgrade()) {
                return line;
            }
            lines.retain(|(_, line)| line.strong_count() > 0);
            let line = Line::new(Arc::clone(&self.settings));
            lock(&self.lines).insert(thread::current().id(), Arc::clone(&line));
            lines.push((this, Arc::downgrade(&line)));
            line
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
