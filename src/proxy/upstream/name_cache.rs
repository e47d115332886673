//! What is known about the names of an upstream's endpoints, and the lookups of them that are in progress.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, Shared};
use tokio::time::Instant;

use super::connect_error::ConnectError;
use crate::proxy::settings::Endpoint;

/// How old the addresses of a name may be while connections to it are kept.
pub(super) const FRESH: Duration = Duration::from_secs(30);

/// How many lookups of one name there may be at the same time.
const LOOKUPS: usize = 2;

/// The addresses of one name. Cheap to clone.
pub(super) type Addresses = Arc<[SocketAddr]>;
/// The result of a lookup.
pub(super) type LookupResult = Result<Addresses, ConnectError>;
/// A lookup that several tasks can await.
pub(super) type SharedLookup = Shared<BoxFuture<'static, LookupResult>>;

/// The names of one upstream's endpoints. All workers share it.
#[derive(Debug)]
pub(super) struct NameCache {
    /// By the place of the endpoint in the configuration.
    known: Mutex<Vec<CachedName>>,
}

/// What is known about one name.
#[derive(Debug, Default)]
struct CachedName {
    /// The result of the last successful lookup; `None` for an address literal.
    addresses: Option<Addresses>,
    /// The number of that lookup.
    found_by: u64,
    /// When the last lookup ended.
    looked: Option<Instant>,
    /// The lookups in progress, the newest last.
    under_way: Vec<Lookup>,
    /// The number of the last lookup that began.
    last: u64,
}

/// A lookup in progress.
#[derive(Debug)]
struct Lookup {
    number: u64,
    began: Instant,
    result: SharedLookup,
}

/// What a connect waits for.
#[derive(Debug)]
pub(super) struct Waiting {
    /// At least one.
    pub(super) lookups: Vec<SharedLookup>,
    /// When to do something else than wait; `None` if there is nothing else.
    pub(super) until: Option<Instant>,
    /// The addresses to use then. Without them another lookup begins.
    pub(super) known: Option<Addresses>,
}

impl NameCache {
    /// Nothing is known about the names of this many endpoints.
    pub(super) fn new(endpoints: usize) -> Self {
        Self { known: Mutex::new((0..endpoints).map(|_| CachedName::default()).collect()) }
    }

    /// The addresses that the last successful lookup of the name in this `place` found.
    pub(super) fn addresses(&self, place: usize) -> Option<Addresses> {
        self.lock().get(place)?.addresses.clone()
    }

    /// Whether `peer` is one of them. True if none are known.
    pub(super) fn has(&self, place: usize, peer: IpAddr) -> bool {
        let addresses = self.addresses(place);
        addresses.is_none_or(|all| all.iter().any(|address| address.ip() == peer))
    }

    /// The lookups for `place` in progress. `begin` starts one if there is none, or if there is only one and
    /// it has lasted longer than `patience`.
    pub(super) fn look_up(
        &self,
        place: usize,
        (now, patience): (Instant, Duration),
        begin: impl FnOnce(u64) -> BoxFuture<'static, LookupResult>,
    ) -> Waiting {
        let mut known = self.lock();
        let Some(known) = known.get_mut(place) else {
            return Waiting { lookups: vec![begin(0).shared()], until: None, known: None };
        };
        let late = |lookup: &Lookup| now.duration_since(lookup.began) >= patience;
        if known.under_way.last().is_none_or(late) && known.under_way.len() < LOOKUPS {
            known.last += 1;
            let (number, result) = (known.last, begin(known.last).shared());
            known.under_way.push(Lookup { number, began: now, result });
        }
        let more = known.addresses.is_some() || known.under_way.len() < LOOKUPS;
        let newest = known.under_way.last().filter(|_| more);
        Waiting {
            lookups: known.under_way.iter().map(|lookup| lookup.result.clone()).collect(),
            until: newest.and_then(|newest| newest.began.checked_add(patience)),
            known: known.addresses.clone(),
        }
    }

    /// The lookup with this `number` for `place` has ended. If the name has other addresses than before, `change` is
    /// called with them, before anybody can look.
    pub(super) fn looked_up(
        &self,
        place: usize,
        number: u64,
        found: Option<&Addresses>,
        now: Instant,
        change: impl FnOnce(&Addresses),
    ) {
        let mut known = self.lock();
        let Some(known) = known.get_mut(place) else {
            return;
        };
        known.under_way.retain(|lookup| lookup.number != number);
        known.looked = Some(now);
        // What a later lookup has found is newer.
        let Some(found) = found.filter(|_| number >= known.found_by) else {
            return;
        };
        known.found_by = number;
        let last = known.addresses.replace(Arc::clone(found));
        let has_all = |of: &Addresses| of.iter().all(|address| found.contains(address));
        if last.is_none_or(|last| last.len() != found.len() || !has_all(&last)) {
            change(found);
        }
    }

    /// The places whose names must be looked up again, and when the next one is due after that; `None` if no
    /// name was ever found.
    pub(super) fn due(&self, now: Instant) -> (Vec<usize>, Option<Instant>) {
        let mut due = Vec::new();
        let mut next = None;
        for (place, known) in self.lock().iter().enumerate() {
            let Some(looked) = known.looked.filter(|_| known.addresses.is_some()) else {
                continue;
            };
            let old = now.saturating_duration_since(looked) >= FRESH;
            if old {
                due.push(place);
            }
            let again = if old { now } else { looked }.checked_add(FRESH);
            next = next.into_iter().chain(again).min();
        }
        (due, next)
    }

    /// The places whose names were never found, of those that the configuration names.
    pub(super) fn unknown(&self, endpoints: &[Endpoint]) -> Vec<usize> {
        let known = self.lock();
        let names = known.iter().zip(endpoints).enumerate();
        let unknown = names.filter(|(_, (known, at))| at.is_named() && known.addresses.is_none());
        unknown.map(|(place, _)| place).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<CachedName>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
