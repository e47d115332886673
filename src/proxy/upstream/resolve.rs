//! The names of endpoints, and the addresses that they have.
//!
//! The system's resolver says which addresses a name has, and not for how long. So a name is looked up for each
//! connect, and the next connection sees a change. Connects that wait at the same time wait for one look-up, which
//! goes on when all of them have given up: however many requests a silent name server keeps waiting, one thread
//! waits with them.
//!
//! Where connections are kept, nobody may connect for a long time: their names are looked up again every [`FRESH`].
//! Whatever look-up finds it, a connection to an address that the name no longer has gets no further request. A
//! look-up that fails says nothing of addresses: connections that are there serve on, and new ones fail.

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
use super::connect::ConnectError;
use crate::proxy::settings::Endpoint;

/// How old what is known of a name may get while connections to it are kept.
pub(super) const FRESH: Duration = Duration::from_secs(30);

/// Finds the addresses of names.
pub trait Resolve: fmt::Debug + Send + Sync {
    /// The addresses of `host`, each with `port`, in the order in which they are to be tried.
    ///
    /// # Errors
    /// Where the name has none, or nobody says.
    fn resolve(&self, host: Arc<str>, port: u16)
    -> BoxFuture<'static, io::Result<Vec<SocketAddr>>>;
}

/// The system's resolver, `getaddrinfo`: `/etc/hosts` counts, and what `/etc/resolv.conf` says.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct System;

/// The addresses of one name. Cheap to clone.
pub(super) type Addresses = Arc<[SocketAddr]>;
/// What a look-up comes to.
pub(super) type Found = Result<Addresses, ConnectError>;
/// A look-up, whose end all get that wait for it.
type LookUp = Shared<BoxFuture<'static, Found>>;

/// The names of one upstream's endpoints, as one worker knows them.
#[derive(Debug)]
pub(super) struct Names {
    resolver: Arc<dyn Resolve>,
    /// By endpoint.
    known: Mutex<Vec<Known>>,
    /// Whether any of them ever had other addresses than before: until then no connection can lead astray.
    changed: AtomicBool,
}

/// What is known of one name.
#[derive(Debug, Default)]
struct Known {
    /// What the last look-up found that found anything; `None` for an address literal.
    addresses: Option<Addresses>,
    /// When the last look-up ended.
    looked: Option<Instant>,
    /// The one that is under way.
    under_way: Option<LookUp>,
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

impl Names {
    /// Nothing is known of the names of so many endpoints.
    pub(super) fn new(resolver: Arc<dyn Resolve>, endpoints: usize) -> Self {
        let known = (0..endpoints).map(|_| Known::default()).collect();
        Self { resolver, known: Mutex::new(known), changed: AtomicBool::new(false) }
    }

    /// Whether a connection to `peer`, opened as one to `endpoint`, still leads there. One whose peer is not known
    /// does.
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

    /// The look-up for `endpoint` that is under way, or else the one that `begin` begins.
    fn look_up(
        &self,
        endpoint: usize,
        begin: impl FnOnce() -> BoxFuture<'static, Found>,
    ) -> LookUp {
        let mut known = self.lock();
        let Some(known) = known.get_mut(endpoint) else {
            return begin().shared();
        };
        known.under_way.get_or_insert_with(|| begin().shared()).clone()
    }

    /// A look-up for `endpoint` has ended.
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

    /// The endpoints whose names are to be looked up again, and when the next is due after that; `None` where none
    /// has a name that was ever found.
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

    fn lock(&self) -> MutexGuard<'_, Vec<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Upstream {
    /// Where `endpoint` is, which is `at`: looked up, where it is a name.
    pub(super) async fn addresses(self: &Arc<Self>, endpoint: usize, at: &Endpoint) -> Found {
        if let Ok(address) = at.host.parse::<IpAddr>() {
            return Ok(Arc::new([SocketAddr::new(address, at.port)]));
        }
        self.look_up(endpoint, at).await
    }

    /// Looks again for the names whose addresses have been known for long; says when to come again.
    pub(super) fn look_again(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        let (due, next) = self.names.due(now);
        for endpoint in due {
            if let Some(at) = self.settings.endpoints.get(endpoint) {
                // It runs by itself.
                drop(self.look_up(endpoint, at));
            }
        }
        next
    }

    fn look_up(self: &Arc<Self>, endpoint: usize, at: &Endpoint) -> LookUp {
        self.names.look_up(endpoint, || {
            let (host, port) = (Arc::clone(&at.host), at.port);
            // A task of its own, so that it ends, and is known to have ended, though nobody waits for it any more.
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

/// Looks `host` up, the name of `endpoint`.
async fn look(upstream: Arc<Upstream>, endpoint: usize, host: Arc<str>, port: u16) -> Found {
    let found = match upstream.names.resolver.resolve(Arc::clone(&host), port).await {
        Ok(found) if found.is_empty() => Err(ConnectError::dns(&host, "it has no address")),
        Ok(found) => Ok(in_turn(&found)),
        Err(error) => Err(ConnectError::dns(&host, &error.to_string())),
    };
    upstream.names.looked_up(endpoint, found.as_ref().ok(), Instant::now());
    upstream.leave(endpoint);
    found
}

/// The addresses in their order, once each, the two families by turns beginning with the first one's: where one
/// family leads nowhere, the next attempt is with the other (RFC 8305 §4).
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
    use crate::proxy::upstream::h1::Link;
    use crate::proxy::upstream::{Parked, settings};
    use crate::telemetry::metrics::Metrics;

    fn addresses(of: &[&str]) -> Addresses {
        of.iter().map(|address| address.parse().unwrap()).collect()
    }

    /// Whether a connection to `peer` leads to this endpoint.
    fn lead(names: &Names, endpoint: usize, peer: &str) -> bool {
        names.lead(endpoint, Some(peer.parse().unwrap()))
    }

    fn names() -> Names {
        Names::new(Arc::new(System), 2)
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
        // The same ones in another order are no change.
        names.looked_up(0, Some(&addresses(&["[::1]:80", "127.0.0.2:80"])), now);
        assert!(lead(&names, 0, "127.0.0.9"));
        names.looked_up(0, Some(&new), now);
        assert!(!lead(&names, 0, "127.0.0.2"));
        assert!(lead(&names, 0, "127.0.0.3"));
        assert!(names.lead(0, None), "nobody knows where it leads");
        assert!(lead(&names, 1, "127.0.0.2"), "another endpoint's");
        // A failure says nothing of addresses.
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
        // A failed one counts, too.
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

    /// Says what the test says.
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
            ping_interval: Duration::ZERO,
            retry_after_max: FRESH,
            host: settings::HostPolicy::Preserve,
        };
        let metrics = Metrics::new().upstream("u");
        let said = Arc::clone(&resolver);
        let upstream = Arc::new(Upstream::new(Arc::new(settings), metrics, said, None));
        upstream.addresses(0, &upstream.settings.endpoints[0]).await.unwrap();
        let mut far = Vec::new();
        for peer in ["127.0.0.2", "127.0.0.3"] {
            let (near, other) = tokio::io::duplex(64);
            far.push(other);
            let link = Link::new(Io::Other(Box::new(near)));
            let peer = Some(peer.parse().unwrap());
            upstream.metrics.opened();
            upstream.park(Parked { link, endpoint: 0, peer, line: None });
        }
        *resolver.0.lock().unwrap() = addresses(&["127.0.0.3:80"]);
        tokio::time::sleep(FRESH.mul_f64(0.99)).await;
        assert_eq!(upstream.lock().len(), 2);
        tokio::time::sleep(FRESH.mul_f64(0.02)).await;
        assert_eq!(upstream.lock().len(), 1);
        assert!(upstream.at_hand(0, Instant::now()).is_some());
    }
}
