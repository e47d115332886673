//! An upstream in one worker: its idle connections, and its view of the endpoints.
//!
//! Each worker has its own, so nothing here is shared between threads, except for what is in [`shared`]. The other locks
//! exist because the futures are `Send`; nobody ever waits for one.

pub(crate) mod body;
pub(crate) mod capacity;
pub(crate) mod checks;
pub(crate) mod condition;
mod connect;
pub(crate) mod connect_error;
pub(crate) mod connection;
mod early_response;
pub(crate) mod endpoints;
pub(crate) mod failure;
pub(crate) mod h1;
mod http2;
mod name_cache;
mod obtain;
pub(crate) mod origin;
pub(crate) mod pool;
mod race;
pub(crate) mod request_head;
pub(crate) mod resolve;
pub(crate) mod retry_budget;
pub(crate) mod shared;
pub(crate) mod summary;
mod supervision;
#[cfg(test)]
mod testing;

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until};

use self::capacity::{Capacity, Place};
use self::connection::{Connection, Http1Lease, Http2Stream, IdleConnection};
use self::endpoints::{Choice, Draws, Tried, View, Visit, WorkerEndpoint, only};
use self::h1::Http1Connection;
use self::http2::Http2Connections;
use self::pool::{Idle, Pool};
use self::resolve::Resolve;
use self::shared::SharedUpstream;
use crate::proxy::boxed::boxed;
use crate::proxy::io::Io;
use crate::proxy::proxy_header::Ends;
use crate::proxy::settings::{self, Protocol};
use crate::proxy::stage::Stage;
use crate::telemetry::metrics::UpstreamMetrics;

/// One upstream of one worker.
#[derive(Debug)]
pub(crate) struct Upstream {
    /// What all workers share of it. A reload that does not change its settings keeps that, and the connections.
    pub(crate) common: Arc<SharedUpstream>,
    /// The configuration.
    pub(crate) settings: Arc<settings::Upstream>,
    /// Its gauges.
    pub(crate) metrics: Arc<UpstreamMetrics>,
    /// Its endpoint, if it has one that never changes.
    only: Option<Arc<WorkerEndpoint>>,
    /// Its endpoints.
    view: Arc<Mutex<View>>,
    draws: Draws,
    /// How many requests may be at the upstream.
    capacity: Arc<Capacity>,
    pool: Mutex<Pool<IdleConnection>>,
    /// The HTTP/2 connections.
    shared: Mutex<Http2Connections>,
    /// Finds the addresses of its endpoints.
    resolver: Arc<dyn Resolve>,
    /// In a rehearsal, replaces the upstream.
    stage: Option<Arc<Stage>>,
    /// The version of the endpoints for which the connections were last looked through.
    followed: AtomicU64,
    /// Whether a task is running that closes old idle connections.
    swept: AtomicBool,
}

/// What a connection is wanted for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    /// The endpoint.
    pub(crate) endpoint: &'a Arc<WorkerEndpoint>,
    /// The ends of the client's connection, if the upstream is to be told them and they are known. Requests of different ends
    /// never share a connection.
    pub(crate) ends: Option<&'a Ends>,
    /// Set while the request waits for one of the upstream's places. It has asked nobody by then.
    pub(crate) waits: &'a AtomicBool,
}

impl Idle for IdleConnection {
    fn is_closed(&mut self) -> bool {
        !self.conn.is_quiet()
    }
}

impl Upstream {
    /// An upstream without connections.
    pub(crate) fn new(
        common: Arc<SharedUpstream>,
        resolver: Arc<dyn Resolve>,
        stage: Option<Arc<Stage>>,
    ) -> Self {
        let settings = Arc::clone(&common.settings);
        let pool = Pool::new(settings.keep_alive, settings.max_idle);
        // A rehearsal draws the same each time.
        let seed = if stage.is_some() { 0 } else { rand::random() };
        let view = Arc::new(Mutex::new(View::new()));
        common.endpoints.shown_by(&view);
        Self {
            settings,
            metrics: Arc::clone(&common.metrics),
            only: only(&common.endpoints),
            view,
            draws: Draws::seeded(seed),
            capacity: Capacity::new(Arc::clone(&common.places)),
            pool: Mutex::new(pool),
            shared: Mutex::default(),
            resolver,
            stage,
            followed: AtomicU64::new(common.endpoints.version()),
            swept: AtomicBool::new(false),
            common,
        }
    }

    /// Its endpoint, if it has one that never changes.
    pub(crate) const fn only(&self) -> Option<&Arc<WorkerEndpoint>> {
        self.only.as_ref()
    }

    /// The endpoint for the next attempt of an execution that has `tried` some. `key` is for `hash`. There is one if the
    /// upstream has any.
    pub(crate) fn pick(&self, tried: &Tried, key: Option<&str>) -> Option<Arc<WorkerEndpoint>> {
        let Self { settings, draws, common, .. } = self;
        let choice = Choice { balance: &settings.balance, tried, key, draws };
        self.with_view(|view| view.choose(&common.endpoints, choice))
    }

    /// The endpoint at `address`, of the same entry of the configuration as `endpoint`; or else that one.
    fn at(&self, endpoint: &Arc<WorkerEndpoint>, address: SocketAddr) -> Arc<WorkerEndpoint> {
        if endpoint.address == Some(address) {
            return Arc::clone(endpoint);
        }
        let found = self.with_view(|view| view.find(endpoint.place, address).map(Arc::clone));
        found.unwrap_or_else(|| Arc::clone(endpoint))
    }

    fn with_view<T>(&self, look: impl FnOnce(&View) -> T) -> T {
        let mut view = lock(&self.view);
        view.refresh(&self.common.endpoints);
        look(&view)
    }

    /// An idle connection that can take a request at once.
    pub(crate) fn at_hand(
        self: &Arc<Self>,
        Wanted { endpoint, ends, waits: _ }: Wanted<'_>,
        now: Instant,
    ) -> Option<Connection> {
        // In a rehearsal the script decides first, in `connection`.
        if self.stage.is_some() || endpoint.condition().is_drained() {
            return None;
        }
        let held = (self.capacity.at_once()?, Visit::new(Arc::clone(endpoint)));
        if self.settings.protocol == Protocol::Http2 {
            let slot = self.shared().place((endpoint.id, ends))?;
            let stream = || Http2Stream::new(slot.holding(held.0, held.1), true);
            return Some(Connection::Http2(boxed(stream)));
        }
        self.idle(held, ends, now).ok()
    }

    /// An idle connection to the endpoint that is visited, for these `ends`; or else what was `held`, for a new one.
    fn idle(
        self: &Arc<Self>,
        held: (Place, Visit),
        ends: Option<&Ends>,
        now: Instant,
    ) -> Result<Connection, (Place, Visit)> {
        let id = held.1.endpoint().id;
        let wanted =
            |parked: &IdleConnection| parked.endpoint.id == id && parked.ends.as_deref() == ends;
        let (found, dropped) = self.lock().take(now, wanted);
        for _ in 0..dropped {
            self.metrics.closed_idle();
        }
        let Some(parked) = found else {
            return Err(held);
        };
        self.metrics.to_active();
        Ok(Connection::Http1(Http1Lease::new(Arc::clone(self), held, parked, true)))
    }

    /// Keeps `io`, which somebody else opened, as an idle connection to the first endpoint.
    pub(crate) fn adopt<T>(self: &Arc<Self>, io: T)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static,
    {
        let first = self.only.clone().or_else(|| self.pick(&Tried::default(), None));
        let Some(endpoint) = first else { return };
        self.metrics.opened();
        let conn = Http1Connection::new(Io::Other(Box::new(io)), self.settings.heads);
        self.park(IdleConnection { conn, endpoint, ends: None, peer: None, line: None });
    }

    fn park(self: &Arc<Self>, parked: IdleConnection) {
        if !self.leads(&parked.endpoint, parked.peer) {
            self.metrics.closed_active();
            return;
        }
        let now = Instant::now();
        let full = self.lock().put(now, parked);
        if let Err(parked) = full {
            // The oldest may be for a client that has left, and nobody else can use it.
            if parked.ends.is_none() || !self.lock().put_for_oldest(now, parked) {
                self.metrics.closed_active();
                return;
            }
            self.metrics.closed_idle();
        }
        self.metrics.to_idle();
        self.keep_swept();
    }

    /// Whether a connection to `peer`, opened for `endpoint`, still leads there. True if the peer is not known.
    fn leads(&self, endpoint: &WorkerEndpoint, peer: Option<IpAddr>) -> bool {
        if endpoint.is_gone() {
            return false;
        }
        let own = |peer| endpoint.address.is_some_and(|address| address.ip() == peer);
        peer.is_none_or(|peer| own(peer) || self.common.names.has(endpoint.place, peer))
    }

    /// Closes the idle connections to addresses that names no longer have, and puts no further requests on the others.
    fn follow(&self) {
        let version = self.common.endpoints.version();
        if self.followed.swap(version, Ordering::Relaxed) == version {
            return;
        }
        let idle = self.lock().retain(|parked| self.leads(&parked.endpoint, parked.peer));
        for _ in 0..idle {
            self.metrics.closed_idle();
        }
        let shared = self.shared().retain(|shared| self.leads(&shared.endpoint, shared.peer));
        let closed = idle.saturating_add(shared);
        if closed > 0 {
            let upstream = &self.settings.name;
            tracing::info!(%upstream, closed, "A name has other addresses than before.");
        }
    }

    /// Makes sure that a task closes old idle connections. In a rehearsal they are closed when the next connection is
    /// wanted: a task that wakes up again and again would hide that nothing else ever will.
    fn keep_swept(self: &Arc<Self>) {
        if self.stage.is_none() && !self.swept.swap(true, Ordering::Relaxed) {
            tokio::spawn(sweep(Arc::downgrade(self)));
        }
    }

    /// Closes the idle connections, and puts no further requests on the others.
    fn disconnect(&self) {
        let closed = self.lock().retain(|_| false);
        for _ in 0..closed {
            self.metrics.closed_idle();
        }
        self.shared().clear();
    }

    fn shared(&self) -> MutexGuard<'_, Http2Connections> {
        lock(&self.shared)
    }

    fn lock(&self) -> MutexGuard<'_, Pool<IdleConnection>> {
        lock(&self.pool)
    }

    /// Closes idle connections that are old or that the other side has closed, and checks whether the others
    /// still lead to the right addresses. Returns when to do so again; `None` if there are none left.
    fn sweep(self: &Arc<Self>) -> Option<Instant> {
        let now = Instant::now();
        self.follow();
        let (closed, next) = self.lock().sweep(now);
        for _ in 0..closed {
            self.metrics.closed_idle();
        }
        let next_shared = self.shared().sweep(now, self.settings.keep_alive);
        let Some(next) = next.into_iter().chain(next_shared).min() else {
            self.swept.store(false, Ordering::Relaxed);
            return None;
        };
        Some(self.look_again(now).map_or(next, |look| look.min(next)))
    }
}

/// Runs while there are idle connections. Without it, connections to an upstream that is not called any more
/// would stay open.
async fn sweep(upstream: Weak<Upstream>) {
    loop {
        let Some(next) = upstream.upgrade().and_then(|upstream| upstream.sweep()) else {
            return;
        };
        sleep_until(next).await;
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        for _ in 0..self.lock().len() {
            self.metrics.closed_idle();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
