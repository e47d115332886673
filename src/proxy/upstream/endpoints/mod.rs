//! The endpoints of one upstream, which all workers share, and what is known about each.
//!
//! Each address of a name is an endpoint of its own. Before a name's first lookup, it is one endpoint without an address.
//! If a name has addresses of both families, its endpoints are those of the family with more of them (if there are as many
//! of each, of the family that the resolver puts first), because a server usually has one of each. The others stand in
//! when no connection can be made.

mod balance;
mod recent;
mod rendezvous;
mod tried;
mod worker;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::ArcSwap;
use tokio::time::Instant;

pub(crate) use self::balance::Draws;
use self::recent::RecentFailures;
pub(crate) use self::tried::{SharedTried, Tried};
pub(crate) use self::worker::WorkerEndpoint;
pub(super) use self::worker::{Choice, View, Visit, only};
use super::condition::{Condition, EndpointGroup};
use crate::proxy::settings;
use crate::telemetry::metrics::{EndpointMetrics, Metrics};

/// How many addresses of one name are used.
pub(super) const MOST_ADDRESSES: usize = 1024;

/// The endpoints that one upstream has at present.
#[derive(Debug)]
pub(crate) struct Endpoints {
    upstream: Arc<str>,
    metrics: Arc<Metrics>,
    /// What keeps too many of them from being ejected.
    pub(crate) group: Arc<EndpointGroup>,
    present: ArcSwap<Vec<Arc<EndpointState>>>,
    /// Changes after `present` and after the addresses of a name do.
    version: AtomicU64,
    /// Whose turn it is.
    turn: AtomicUsize,
    /// Held by the one who changes `present`: the views of the workers, which may not need theirs for long.
    views: Mutex<Vec<Weak<Mutex<View>>>>,
}

/// What all workers know about one endpoint. It lives as long as the upstream's settings do not change, and its name has
/// its address.
#[derive(Debug)]
pub(crate) struct EndpointState {
    /// Names it among all endpoints that this process has ever had.
    pub(crate) id: u64,
    /// The entry of the configuration that it comes from.
    pub(crate) at: settings::Endpoint,
    /// The place of that entry.
    pub(crate) place: usize,
    /// Its address. `None` for a Unix socket, and for a name that was never found.
    pub(crate) address: Option<SocketAddr>,
    /// Its counters.
    pub(crate) metrics: EndpointMetrics,
    /// Its name in messages and metrics.
    name: Arc<str>,
    /// What stays when its name changes.
    kept: Arc<Kept>,
}

#[derive(Debug)]
struct Kept {
    in_flight: AtomicUsize,
    failures: RecentFailures,
    condition: Arc<Condition>,
    /// Whether its name no longer has its address.
    gone: AtomicBool,
    /// By which keys find it.
    hash: u64,
}

impl Endpoints {
    /// The endpoints that `settings` lists, in order.
    pub(super) fn new(settings: &settings::Upstream, metrics: &Arc<Metrics>) -> Self {
        let (name, health) = (Arc::clone(&settings.name), settings.health.as_ref());
        let group = EndpointGroup::new(name, health, settings.ejection, metrics);
        let made = Self {
            upstream: Arc::clone(&settings.name),
            metrics: Arc::clone(metrics),
            group,
            present: ArcSwap::default(),
            version: AtomicU64::new(0),
            turn: AtomicUsize::new(0),
            views: Mutex::default(),
        };
        let listed = settings.endpoints.iter().enumerate().map(|(place, at)| {
            Arc::new(made.state((place, at), at.address(), Arc::clone(&at.authority), None))
        });
        made.present.store(Arc::new(listed.collect()));
        made
    }

    /// The endpoints at this moment.
    pub(crate) fn present(&self) -> Arc<Vec<Arc<EndpointState>>> {
        self.present.load_full()
    }

    /// A number that is another one once `present` is.
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// `view` shows these endpoints. It is emptied when they change, so that nobody keeps those that are gone.
    pub(super) fn shown_by(&self, view: &Arc<Mutex<View>>) {
        let mut views = lock(&self.views);
        views.retain(|view| view.strong_count() > 0);
        views.push(Arc::downgrade(view));
    }

    /// The name of the entry `at`, in this `place` of the configuration, has these `addresses`, at least one.
    pub(super) fn found(
        &self,
        (place, at): (usize, &settings::Endpoint),
        addresses: &[SocketAddr],
    ) {
        let views = lock(&self.views);
        let before = self.present();
        let chosen = chosen(addresses);
        let known = |address: &SocketAddr| {
            let mut known = before.iter().filter(|state| state.place == place);
            known.find(|state| state.address.as_ref() == Some(address))
        };
        let listed = |address: &SocketAddr| {
            let several = chosen.len() > 1;
            let name = if several { address.to_string().into() } else { Arc::clone(&at.authority) };
            match known(address) {
                Some(same) if same.name == name => Arc::clone(same),
                old => Arc::new(self.state((place, at), Some(*address), name, old)),
            }
        };
        let others = before.iter().filter(|state| state.place != place).map(Arc::clone);
        let mut present: Vec<_> = others.chain(chosen.iter().map(listed)).collect();
        present.sort_by_key(|state| state.place);
        for left in before.iter().filter(|old| !present.iter().any(|state| state.id == old.id)) {
            left.kept.gone.store(true, Ordering::Relaxed);
        }
        self.present.store(Arc::new(present));
        self.version.fetch_add(1, Ordering::Release);
        for view in views.iter().filter_map(Weak::upgrade) {
            lock(&view).clear();
        }
    }

    /// The next turn.
    fn turn(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }

    /// An endpoint with this address and name. If it is `old`, it keeps what is known about it.
    fn state(
        &self,
        (place, at): (usize, &settings::Endpoint),
        address: Option<SocketAddr>,
        name: Arc<str>,
        old: Option<&Arc<EndpointState>>,
    ) -> EndpointState {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let made = || {
            let kept = Kept {
                in_flight: AtomicUsize::new(0),
                failures: RecentFailures::new(),
                condition: Condition::new(&name, &self.group),
                gone: AtomicBool::new(false),
                hash: match address {
                    Some(address) => rendezvous::hash(address.to_string().as_bytes()),
                    None => rendezvous::hash(at.authority.as_bytes()),
                },
            };
            (LAST.fetch_add(1, Ordering::Relaxed), Arc::new(kept))
        };
        let (id, kept) = old.map_or_else(made, |old| (old.id, Arc::clone(&old.kept)));
        if old.is_some_and(|old| old.name != name) {
            kept.condition.rename(&name);
        }
        let metrics = self.metrics.endpoint(&self.upstream, &name);
        EndpointState { id, at: at.clone(), place, address, metrics, name, kept }
    }
}

impl EndpointState {
    /// Its name in messages and metrics: as configured, or its address if its name has several.
    pub(crate) const fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Whether it is well.
    pub(crate) fn condition(&self) -> &Condition {
        &self.kept.condition
    }

    /// How many requests are at it, if it is one of several.
    pub(crate) fn in_flight(&self) -> usize {
        self.kept.in_flight.load(Ordering::Relaxed)
    }

    /// Whether its name no longer has its address.
    pub(super) fn is_gone(&self) -> bool {
        self.kept.gone.load(Ordering::Relaxed)
    }

    /// Whether it is a name, which may have other addresses by now.
    pub(super) fn is_named(&self) -> bool {
        self.at.is_named()
    }

    /// What a choice counts as its requests: those that are at it, and its failures of the last second or two.
    fn load(&self, now: impl FnOnce() -> Instant) -> usize {
        self.in_flight().saturating_add(self.kept.failures.count(now))
    }
}

/// Those of a name's addresses that are endpoints, in order.
fn chosen(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let first = addresses.first().is_some_and(SocketAddr::is_ipv4);
    let (same, other): (Vec<SocketAddr>, Vec<SocketAddr>) =
        addresses.iter().partition(|address| address.is_ipv4() == first);
    let mut chosen = if other.len() > same.len() { other } else { same };
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
