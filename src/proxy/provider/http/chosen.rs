//! The endpoint of an attempt: chosen at its beginning, and again where a lookup changes what there is to choose from.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::time::Instant;

use super::hash_key;
use crate::language::provider::{Dispatch, Slot};
use crate::proxy::request::exchange::Exchange;
use crate::proxy::settings::Balance;
use crate::proxy::upstream::Upstream;
use crate::proxy::upstream::condition::Reported;
use crate::proxy::upstream::endpoints::WorkerEndpoint;

/// The endpoint that an attempt is sent to. Unless it succeeds, the execution's next attempts prefer others: also where
/// this one is interrupted, and dropped.
pub(super) struct Chosen<'a> {
    exchange: &'a Exchange,
    upstream: &'a Upstream,
    /// For `hash`.
    key: Option<String>,
    first: Arc<WorkerEndpoint>,
    /// The one to which a connection was made instead.
    reached: OnceLock<Arc<WorkerEndpoint>>,
    /// Whether nothing is to be held against it.
    spared: AtomicBool,
    /// Whether the attempt waits for one of the upstream's places, and has asked nobody.
    waits: AtomicBool,
    slot: &'a Slot<'a>,
}

impl<'a> Chosen<'a> {
    /// The endpoint for `dispatch`. `None` if the upstream has none, which its configuration does not allow.
    pub(super) fn new(
        dispatch: &Dispatch<'a>,
        exchange: &'a Exchange,
        upstream: &'a Upstream,
    ) -> Option<Self> {
        let key = match &upstream.settings.balance {
            Balance::Hash(key) => hash_key::evaluate(key, dispatch, exchange),
            Balance::LeastRequest | Balance::RoundRobin | Balance::Random => None,
        };
        let first = exchange.pick(upstream, key.as_deref())?;
        Some(Self {
            exchange,
            upstream,
            key,
            first,
            reached: OnceLock::new(),
            spared: AtomicBool::new(false),
            waits: AtomicBool::new(false),
            slot: dispatch.destination,
        })
    }

    /// The endpoint.
    pub(super) fn get(&self) -> &Arc<WorkerEndpoint> {
        self.reached.get().unwrap_or(&self.first)
    }

    /// Another one, because a lookup has changed which there are.
    pub(super) fn again(&self) -> Option<Arc<WorkerEndpoint>> {
        self.forget();
        self.exchange.pick(self.upstream, self.key.as_deref())
    }

    /// The connection leads to `endpoint`. Returns whether that is news.
    pub(super) fn reach(&self, endpoint: &Arc<WorkerEndpoint>) -> bool {
        if self.get().id == endpoint.id {
            return false;
        }
        self.forget();
        if self.exchange.route.facts.fans_out {
            self.exchange.tried.begin(endpoint.id);
        }
        self.reached.set(Arc::clone(endpoint)).is_ok()
    }

    /// Tells how the attempt ended.
    pub(super) fn report(&self, reported: Reported) {
        match reported {
            // The common end, whose time does not matter.
            Reported::Success => self.get().succeeded(),
            Reported::Failure(_) => self.get().report(reported, Instant::now()),
        }
    }

    /// Set while the attempt waits for one of the upstream's places.
    pub(super) const fn waits(&self) -> &AtomicBool {
        &self.waits
    }

    /// The endpoint was not asked, for a reason that is none of its own.
    pub(super) fn unasked(&self) {
        self.slot.unasked();
        self.spare();
    }

    /// Nothing is to be held against the endpoint.
    pub(super) fn spare(&self) {
        if !self.spared.swap(true, Ordering::Relaxed) {
            self.forget();
        }
    }

    fn forget(&self) {
        if self.upstream.only().is_none() {
            self.exchange.tried.forget(self.get().id);
        }
    }
}

impl Drop for Chosen<'_> {
    fn drop(&mut self) {
        if *self.waits.get_mut() {
            // Interrupted.
            self.unasked();
        }
        if self.upstream.only().is_none() && !self.spared.load(Ordering::Relaxed) {
            self.exchange.tried.fail(self.get().id);
        }
    }
}
