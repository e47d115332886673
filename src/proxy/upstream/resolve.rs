//! Resolves the names of endpoints to addresses.
//!
//! The system's resolver returns the addresses of a name, but not how long they are valid. So a name is looked
//! up for each connect, and the next connection sees a change. Connects at the same time share one lookup,
//! which continues even when all of them have given up. If it takes longer than a share of `connectTimeout`, a
//! packet was probably lost: the addresses of the last lookup are used, and a second lookup begins. There is
//! never a third, so a name server that does not answer occupies two threads, however many requests wait.
//!
//! While connections are kept, there may be no connect for a long time. So names with connections are looked up
//! again every [`FRESH`]. When a lookup, for whatever reason, finds that a name has lost an address,
//! connections to that address get no further requests. A failed lookup says nothing about addresses: existing
//! connections continue, and new ones fail.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, OptionFuture, Shared, select_ok};
use tokio::net::lookup_host;
use tokio::time::{Instant, sleep_until};

use super::Upstream;
use super::connect_error::ConnectError;
use crate::proxy::settings::Endpoint;
use crate::system::descriptors;

/// How old the addresses of a name may be while connections to it are kept.
pub(super) const FRESH: Duration = Duration::from_secs(30);

/// A lookup is waited for alone during this part of `connectTimeout`.
const PATIENCE: u32 = 8;

/// How many lookups of one name there may be at the same time.
const LOOKUPS: usize = 2;

/// Finds the addresses of names.
pub trait Resolve: fmt::Debug + Send + Sync {
    /// The addresses of `host`, each with `port`, in the order in which to try them.
    ///
    /// # Errors
    /// When the name has none, or the lookup fails.
    fn resolve(&self, host: Arc<str>, port: u16)
    -> BoxFuture<'static, io::Result<Vec<SocketAddr>>>;
}

/// The system's resolver, `getaddrinfo`. It uses `/etc/hosts` and `/etc/resolv.conf`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct System;

/// The addresses of one name. Cheap to clone.
pub(super) type Addresses = Arc<[SocketAddr]>;
/// The result of a lookup.
pub(super) type LookupResult = Result<Addresses, ConnectError>;
/// A lookup that several tasks can await.
type SharedLookup = Shared<BoxFuture<'static, LookupResult>>;

/// The names of one upstream's endpoints, as one worker knows them.
#[derive(Debug)]
pub(super) struct NameCache {
    resolver: Arc<dyn Resolve>,
    /// By endpoint.
    known: Mutex<Vec<CachedName>>,
    /// Whether any of them has ever changed. Until then, no connection can lead to a wrong address.
    changed: AtomicBool,
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
struct Waiting {
    /// At least one.
    lookups: Vec<SharedLookup>,
    /// When to do something else than wait; `None` if there is nothing else.
    until: Option<Instant>,
    /// The addresses to use then. Without them another lookup begins.
    known: Option<Addresses>,
}

impl Resolve for System {
    fn resolve(
        &self,
        host: Arc<str>,
        port: u16,
    ) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move { Ok(lookup_host((&*host, port)).await?.collect()) })
    }
}

impl NameCache {
    /// Nothing is known about the names of this many endpoints.
    pub(super) fn new(resolver: Arc<dyn Resolve>, endpoints: usize) -> Self {
        let known = (0..endpoints).map(|_| CachedName::default()).collect();
        Self { resolver, known: Mutex::new(known), changed: AtomicBool::new(false) }
    }

    /// Whether a connection to `peer`, opened for `endpoint`, still leads there. True if the peer is not known.
    pub(super) fn lead(&self, endpoint: usize, peer: Option<IpAddr>) -> bool {
        if !self.changed.load(Ordering::Relaxed) {
            return true;
        }
        let known = self.lock();
        let addresses = known.get(endpoint).and_then(|known| known.addresses.as_ref());
        match (addresses, peer) {
            (Some(addresses), Some(peer)) => addresses.iter().any(|address| address.ip() == peer),
            _ => true,
        }
    }

    /// The lookups for `endpoint` in progress. `begin` starts one if there is none, or if there is only one and
    /// it has lasted longer than `patience`.
    fn look_up(
        &self,
        endpoint: usize,
        (now, patience): (Instant, Duration),
        begin: impl FnOnce(u64) -> BoxFuture<'static, LookupResult>,
    ) -> Waiting {
        let mut known = self.lock();
        let Some(known) = known.get_mut(endpoint) else {
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

    /// The lookup with this `number` for `endpoint` has ended.
    fn looked_up(&self, endpoint: usize, number: u64, found: Option<&Addresses>, now: Instant) {
        let mut known = self.lock();
        let Some(known) = known.get_mut(endpoint) else {
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
        if last.is_some_and(|last| last.len() != found.len() || !has_all(&last)) {
            self.changed.store(true, Ordering::Relaxed);
        }
    }

    /// The endpoints whose names must be looked up again, and when the next one is due after that; `None` if no
    /// name was ever found.
    fn due(&self, now: Instant) -> (Vec<usize>, Option<Instant>) {
        let mut due = Vec::new();
        let mut next = None;
        for (endpoint, known) in self.lock().iter().enumerate() {
            let Some(looked) = known.looked.filter(|_| known.addresses.is_some()) else {
                continue;
            };
            let old = now.duration_since(looked) >= FRESH;
            if old {
                due.push(endpoint);
            }
            let again = if old { now } else { looked }.checked_add(FRESH);
            next = next.into_iter().chain(again).min();
        }
        (due, next)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<CachedName>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Upstream {
    /// The addresses of `endpoint`, which is `at`. Looks its name up if needed.
    pub(super) async fn addresses(
        self: &Arc<Self>,
        endpoint: usize,
        at: &Endpoint,
    ) -> LookupResult {
        if let Ok(address) = at.host.parse::<IpAddr>() {
            return Ok(Arc::new([SocketAddr::new(address, at.port)]));
        }
        loop {
            let Waiting { lookups, until, known } = self.look_up(endpoint, at);
            let late = OptionFuture::from(until.map(sleep_until));
            tokio::select! {
                biased;
                found = select_ok(lookups) => return found.map(|(addresses, _)| addresses),
                Some(()) = late => {}
            }
            if let Some(known) = known {
                // A lookup that hangs gets company for the sake of the next connect.
                drop(self.look_up(endpoint, at));
                return Ok(known);
            }
        }
    }

    /// Looks names up again whose addresses are old. Returns when to do so again.
    pub(super) fn look_again(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        let (due, next) = self.names.due(now);
        for endpoint in due {
            if let Some(at) = self.settings.endpoints.get(endpoint) {
                // It runs on its own.
                drop(self.look_up(endpoint, at));
            }
        }
        next
    }

    fn look_up(self: &Arc<Self>, endpoint: usize, at: &Endpoint) -> Waiting {
        let patience = self.settings.connect_timeout / PATIENCE;
        self.names.look_up(endpoint, (Instant::now(), patience), |number| {
            let (host, at) = (Arc::clone(&at.host), at.clone());
            // A task of its own, so that it ends, and is known to have ended, even if nobody waits any more.
            let task = tokio::spawn(look(Arc::clone(self), endpoint, number, at));
            let ended = task.map(move |ended| {
                let stopped = |_| Err(ConnectError::dns(&host, "the proxy is stopping"));
                ended.unwrap_or_else(stopped)
            });
            ended.boxed()
        })
    }

    /// Closes the idle connections to addresses that `endpoint`'s name no longer has.
    fn leave(&self, endpoint: usize) {
        let stays = |to: usize, peer| to != endpoint || self.names.lead(to, peer);
        let idle = self.lock().retain(|parked| stays(parked.endpoint, parked.peer));
        for _ in 0..idle {
            self.metrics.closed_idle();
        }
        let shared = self.shared().retain(|shared| stays(shared.endpoint, shared.peer));
        let closed = idle.saturating_add(shared);
        if closed > 0 {
            let (upstream, endpoint) = (&self.settings.name, self.authority(endpoint));
            tracing::info!(%upstream, %endpoint, closed, "A name has other addresses than before.");
        }
    }
}

/// Looks up the name of `endpoint`, which is `at`.
async fn look(upstream: Arc<Upstream>, endpoint: usize, number: u64, at: Endpoint) -> LookupResult {
    let host = at.host;
    let found = match upstream.names.resolver.resolve(Arc::clone(&host), at.port).await {
        Ok(found) if found.is_empty() => Err(ConnectError::dns(&host, "it has no address")),
        Ok(found) => Ok(in_turn(&found)),
        // Which descriptor a look-up lacked is not said.
        Err(_) if !descriptors::are_left() => Err(ConnectError::no_descriptor()),
        Err(error) => Err(ConnectError::dns(&host, &error.to_string())),
    };
    upstream.names.looked_up(endpoint, number, found.as_ref().ok(), Instant::now());
    upstream.leave(endpoint);
    found
}

/// The addresses in order, without duplicates, alternating between the two families, beginning with the first
/// one's. If one family does not work, the next attempt uses the other (RFC 8305 §4).
fn in_turn(found: &[SocketAddr]) -> Addresses {
    let first = found.first().is_some_and(SocketAddr::is_ipv4);
    let mut families = [Vec::new(), Vec::new()];
    let [same, other] = &mut families;
    for address in found {
        let family = if address.is_ipv4() == first { &mut *same } else { &mut *other };
        if !family.contains(address) {
            family.push(*address);
        }
    }
    let longest = same.len().max(other.len());
    let by_turns = (0..longest).flat_map(|at| [same.get(at), other.get(at)]);
    by_turns.flatten().copied().collect()
}

#[cfg(test)]
mod tests;
