//! Resolves the names of endpoints to addresses.
//!
//! The system's resolver returns the addresses of a name, but not how long they are valid. So a name is looked
//! up for each connect, and the next connection sees a change. Connects at the same time share one lookup,
//! which continues even when all of them have given up. So a name server that does not answer occupies one
//! thread, however many requests wait.
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

use futures_util::future::{BoxFuture, FutureExt, Shared};
use tokio::net::lookup_host;
use tokio::time::Instant;

use super::Upstream;
use super::connect_error::ConnectError;
use crate::proxy::settings::Endpoint;

/// How old the addresses of a name may be while connections to it are kept.
pub(super) const FRESH: Duration = Duration::from_secs(30);

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
    /// When the last lookup ended.
    looked: Option<Instant>,
    /// The lookup in progress.
    under_way: Option<SharedLookup>,
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

    /// The lookup for `endpoint` in progress, or else the one that `begin` starts.
    fn look_up(
        &self,
        endpoint: usize,
        begin: impl FnOnce() -> BoxFuture<'static, LookupResult>,
    ) -> SharedLookup {
        let mut known = self.lock();
        let Some(known) = known.get_mut(endpoint) else {
            return begin().shared();
        };
        known.under_way.get_or_insert_with(|| begin().shared()).clone()
    }

    /// A lookup for `endpoint` has ended.
    fn looked_up(&self, endpoint: usize, found: Option<&Addresses>, now: Instant) {
        let mut known = self.lock();
        let Some(known) = known.get_mut(endpoint) else {
            return;
        };
        known.under_way = None;
        known.looked = Some(now);
        let Some(found) = found else {
            return;
        };
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
        self.look_up(endpoint, at).await
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

    fn look_up(self: &Arc<Self>, endpoint: usize, at: &Endpoint) -> SharedLookup {
        self.names.look_up(endpoint, || {
            let (host, port) = (Arc::clone(&at.host), at.port);
            // A task of its own, so that it ends, and is known to have ended, even if nobody waits any more.
            let task = tokio::spawn(look(Arc::clone(self), endpoint, Arc::clone(&host), port));
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

/// Looks up `host`, the name of `endpoint`.
async fn look(upstream: Arc<Upstream>, endpoint: usize, host: Arc<str>, port: u16) -> LookupResult {
    let found = match upstream.names.resolver.resolve(Arc::clone(&host), port).await {
        Ok(found) if found.is_empty() => Err(ConnectError::dns(&host, "it has no address")),
        Ok(found) => Ok(in_turn(&found)),
        Err(error) => Err(ConnectError::dns(&host, &error.to_string())),
    };
    upstream.names.looked_up(endpoint, found.as_ref().ok(), Instant::now());
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
mod tests {
    use super::*;
    use crate::proxy::io::Io;
    use crate::proxy::upstream::capacity::Places;
    use crate::proxy::upstream::h1::Http1Connection;
    use crate::proxy::upstream::{IdleConnection, settings};
    use crate::telemetry::metrics::Metrics;

    fn addresses(of: &[&str]) -> Addresses {
        of.iter().map(|address| address.parse().unwrap()).collect()
    }

    /// Whether a connection to `peer` leads to this endpoint.
    fn lead(names: &NameCache, endpoint: usize, peer: &str) -> bool {
        names.lead(endpoint, Some(peer.parse().unwrap()))
    }

    fn names() -> NameCache {
        NameCache::new(Arc::new(System), 2)
    }

    #[test]
    fn families_take_turns_and_an_address_comes_once() {
        let found = addresses(&["[::1]:80", "[::2]:80", "[::1]:80", "[::3]:80", "1.1.1.1:80"]);
        let wanted = addresses(&["[::1]:80", "1.1.1.1:80", "[::2]:80", "[::3]:80"]);
        assert_eq!(in_turn(&found), wanted);
        assert_eq!(in_turn(&[]), addresses(&[]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_leads_astray_once_its_address_is_gone() {
        let names = names();
        let now = Instant::now();
        let (old, new) = (addresses(&["127.0.0.2:80", "[::1]:80"]), addresses(&["127.0.0.3:80"]));
        names.looked_up(0, Some(&old), now);
        assert!(lead(&names, 0, "127.0.0.9"), "nothing has changed yet");
        // The same addresses in another order are no change.
        names.looked_up(0, Some(&addresses(&["[::1]:80", "127.0.0.2:80"])), now);
        assert!(lead(&names, 0, "127.0.0.9"));
        names.looked_up(0, Some(&new), now);
        assert!(!lead(&names, 0, "127.0.0.2"));
        assert!(lead(&names, 0, "127.0.0.3"));
        assert!(names.lead(0, None), "nobody knows where it leads");
        assert!(lead(&names, 1, "127.0.0.2"), "another endpoint's");
        // A failure says nothing about addresses.
        names.looked_up(0, None, now);
        assert!(lead(&names, 0, "127.0.0.3"));
    }

    #[tokio::test(start_paused = true)]
    async fn names_that_were_found_are_looked_up_again_when_they_are_old() {
        let names = names();
        let now = Instant::now();
        assert_eq!(names.due(now), (vec![], None));
        names.looked_up(1, None, now);
        assert_eq!(names.due(now), (vec![], None), "it was never found");
        names.looked_up(0, Some(&addresses(&["127.0.0.2:80"])), now);
        let then = now + FRESH;
        assert_eq!(names.due(now), (vec![], Some(then)));
        assert_eq!(names.due(then), (vec![0], Some(then + FRESH)));
        // A failed lookup counts too.
        names.looked_up(0, None, then);
        assert_eq!(names.due(then), (vec![], Some(then + FRESH)));
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_wait_at_the_same_time_share_a_look_up() {
        let names = names();
        let found = addresses(&["127.0.0.2:80"]);
        let first = names.look_up(0, || std::future::pending().boxed());
        let same = names.look_up(0, || panic!("there is one under way"));
        assert!(first.ptr_eq(&same));
        let other = Arc::clone(&found);
        let other = names.look_up(1, || std::future::ready(Ok(other)).boxed());
        assert_eq!(other.await.ok(), Some(Arc::clone(&found)));
        names.looked_up(0, Some(&found), Instant::now());
        let next = names.look_up(0, || std::future::ready(Ok(found)).boxed());
        assert!(!first.ptr_eq(&next));
    }

    /// Resolves to what the test sets.
    #[derive(Debug)]
    struct Scripted(Mutex<Addresses>);

    impl Resolve for Scripted {
        fn resolve(&self, _: Arc<str>, _: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
            let says = self.0.lock().unwrap().to_vec();
            Box::pin(std::future::ready(Ok(says)))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_goes_when_a_later_look_up_leaves_its_address_out() {
        let resolver = Arc::new(Scripted(Mutex::new(addresses(&["127.0.0.2:80", "127.0.0.3:80"]))));
        let (host, authority) = ("u.test".into(), "u.test:80".into());
        let endpoint = Endpoint { host, port: 80, authority, tls: None };
        let settings = settings::Upstream {
            name: "u".into(),
            endpoints: vec![endpoint],
            protocol: settings::Protocol::Http1,
            connect_timeout: Duration::from_secs(1),
            idle_timeout: FRESH,
            keep_alive: FRESH * 10,
            max_idle: 9,
            max_requests: 9,
            max_wait: FRESH,
            ping_interval: Duration::ZERO,
            retry_after_max: FRESH,
            host: settings::HostPolicy::Preserve,
            heads: settings::HeadLimits { size: 8192, fields: 9 },
        };
        let metrics = Metrics::new().upstream("u");
        let said = Arc::clone(&resolver);
        let places = Places::new(settings.max_requests, settings.max_wait);
        let upstream = Upstream::new(Arc::new(settings), metrics, places, said, None);
        let upstream = Arc::new(upstream);
        upstream.addresses(0, &upstream.settings.endpoints[0]).await.unwrap();
        let mut far = Vec::new();
        for peer in ["127.0.0.2", "127.0.0.3"] {
            let (near, other) = tokio::io::duplex(64);
            far.push(other);
            let conn = Http1Connection::new(Io::Other(Box::new(near)), upstream.settings.heads);
            let peer = Some(peer.parse().unwrap());
            upstream.metrics.opened();
            upstream.park(IdleConnection { conn, endpoint: 0, peer, line: None });
        }
        *resolver.0.lock().unwrap() = addresses(&["127.0.0.3:80"]);
        tokio::time::sleep(FRESH.mul_f64(0.99)).await;
        assert_eq!(upstream.lock().len(), 2);
        tokio::time::sleep(FRESH.mul_f64(0.02)).await;
        assert_eq!(upstream.lock().len(), 1);
        assert!(upstream.at_hand(0, Instant::now()).is_some());
    }
}
