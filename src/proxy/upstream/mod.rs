//! An upstream in one worker: its endpoints, taken in turn, and its idle connections.
//!
//! Each worker has its own, so nothing here is shared between threads. The locks exist because the futures are
//! `Send`; nobody ever waits for one.

pub(crate) mod body;
pub(crate) mod capacity;
#[expect(dead_code, reason = "endpoints do not report to it yet")]
pub(crate) mod condition;
mod connect;
pub(crate) mod connect_error;
pub(crate) mod connection;
mod early_response;
pub(crate) mod endpoints;
pub(crate) mod failure;
pub(crate) mod h1;
mod http2;
pub(crate) mod origin;
pub(crate) mod pool;
mod race;
pub(crate) mod request_head;
pub(crate) mod resolve;
pub(crate) mod retry_budget;
pub(crate) mod shared;
#[cfg(test)]
mod testing;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use futures_util::future::BoxFuture;
use http::uri::Scheme;
use smallvec::SmallVec;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until};

use self::capacity::{Capacity, Place};
use self::connect::NewHttp1;
use self::connect_error::ConnectError;
use self::connection::{Connection, Http1Lease, IdleConnection, UnsentRequest};
use self::endpoints::EndpointState;
use self::h1::Http1Connection;
use self::http2::{Dialed, ExchangeLimits, Http2Connection, Http2Connections};
use self::pool::{Idle, Pool};
use self::resolve::{NameCache, Resolve};
use self::shared::SharedUpstream;
use crate::proxy::io::Io;
use crate::proxy::settings::{self, Protocol};
use crate::proxy::stage::Stage;
use crate::telemetry::metrics::UpstreamMetrics;

/// The endpoints of one upstream to which one execution has sent attempts, the latest last.
pub(crate) type TriedEndpoints = SmallVec<[usize; 4]>;

/// One upstream of one worker.
#[derive(Debug)]
pub(crate) struct Upstream {
    /// What all workers share of it. A reload that does not change its settings keeps that, and the connections.
    pub(crate) common: Arc<SharedUpstream>,
    /// The configuration.
    pub(crate) settings: Arc<settings::Upstream>,
    /// Its gauges.
    pub(crate) metrics: Arc<UpstreamMetrics>,
    /// Its endpoints.
    listed: Arc<Vec<Arc<EndpointState>>>,
    /// How many requests may be at the upstream.
    capacity: Arc<Capacity>,
    pool: Mutex<Pool<IdleConnection>>,
    /// The HTTP/2 connections.
    shared: Mutex<Http2Connections>,
    /// The addresses of its endpoints.
    names: NameCache,
    /// In a rehearsal, replaces the upstream.
    stage: Option<Arc<Stage>>,
    /// A counter that selects the next endpoint.
    turn: AtomicUsize,
    /// Whether a task is running that closes old idle connections.
    swept: AtomicBool,
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
        let names = NameCache::new(resolver, settings.endpoints.len());
        Self {
            settings,
            metrics: Arc::clone(&common.metrics),
            capacity: Capacity::new(Arc::clone(&common.places)),
            listed: common.endpoints.present(),
            common,
            pool: Mutex::new(pool),
            shared: Mutex::default(),
            names,
            stage,
            turn: AtomicUsize::new(0),
            swept: AtomicBool::new(false),
        }
    }

    /// The next endpoint in turn of those that an execution has not `tried`. If it has tried all, the one that it tried
    /// longest ago.
    pub(crate) fn pick(&self, tried: &mut TriedEndpoints) -> usize {
        let count = self.listed.len();
        if count < 2 {
            return 0;
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let mut in_turn = (0..count).map(|step| turn.wrapping_add(step) % count);
        let endpoint =
            in_turn.find(|endpoint| !tried.contains(endpoint)).unwrap_or_else(|| tried.remove(0));
        tried.push(endpoint);
        endpoint
    }

    /// The name of an endpoint in messages.
    pub(crate) fn authority(&self, endpoint: usize) -> &Arc<str> {
        static NONE: std::sync::LazyLock<Arc<str>> = std::sync::LazyLock::new(|| "".into());
        self.listed.get(endpoint).map_or(&NONE, |endpoint| endpoint.name())
    }

    /// The scheme of requests to `endpoint`.
    pub(crate) fn scheme(&self, endpoint: usize) -> Scheme {
        let endpoint = self.listed.get(endpoint);
        let secure = endpoint.is_some_and(|endpoint| endpoint.at.tls.is_some());
        if secure { Scheme::HTTPS } else { Scheme::HTTP }
    }

    /// An idle connection to `endpoint` that can take a request at once.
    pub(crate) fn at_hand(self: &Arc<Self>, endpoint: usize, now: Instant) -> Option<Connection> {
        // In a rehearsal the script decides first, in `connection`.
        if self.stage.is_some() || self.settings.protocol == Protocol::Http2 {
            return None;
        }
        self.idle(endpoint, self.capacity.at_once()?, now).ok()
    }

    /// A connection to `endpoint` for one request: an idle one, or else a new one.
    pub(crate) async fn connection(
        self: &Arc<Self>,
        endpoint: usize,
    ) -> Result<Connection, ConnectError> {
        if let Some(stage) = &self.stage {
            self.sweep();
            if stage.refuses(&self.settings) {
                // An upstream that refuses connections has closed the open ones.
                self.disconnect();
            }
        }
        if self.settings.protocol == Protocol::Http2 {
            // Boxed, like a connect, so that the common case carries the size of neither.
            return Box::pin(self.stream(endpoint)).await;
        }
        let place = self.capacity.place(&self.metrics).await?;
        match self.idle(endpoint, place, Instant::now()) {
            Ok(connection) => Ok(connection),
            Err(place) => self.connect(endpoint, place).await.map(Connection::Http1),
        }
    }

    /// The same, but never an idle one.
    pub(crate) async fn fresh(
        self: &Arc<Self>,
        endpoint: usize,
    ) -> Result<Connection, ConnectError> {
        match self.settings.protocol {
            Protocol::Http1 => {
                let place = self.capacity.place(&self.metrics).await?;
                self.connect(endpoint, place).await.map(Connection::Http1)
            }
            // A connection that is known to be dead is retired by now.
            Protocol::Http2 => self.stream(endpoint).await,
        }
    }

    /// The same for a request of which another connection sent nothing. Hands it over.
    pub(crate) async fn resend(
        self: &Arc<Self>,
        endpoint: usize,
        unsent: UnsentRequest,
    ) -> Result<Connection, ConnectError> {
        match unsent {
            UnsentRequest::Http1(request) => {
                let place = self.capacity.place(&self.metrics).await?;
                let mut lease = self.connect(endpoint, place).await?;
                lease.resend(*request);
                Ok(Connection::Http1(lease))
            }
            UnsentRequest::Http2(request) => {
                let mut shared = self.take_stream(endpoint).await?;
                shared.send(*request);
                Ok(Connection::Http2(Box::new(shared)))
            }
        }
    }

    /// An idle connection to `endpoint`, or else the `place` for a new one.
    fn idle(
        self: &Arc<Self>,
        endpoint: usize,
        place: Place,
        now: Instant,
    ) -> Result<Connection, Place> {
        let (found, dropped) = self.lock().take(now, |parked| parked.endpoint == endpoint);
        for _ in 0..dropped {
            self.metrics.closed_idle();
        }
        let Some(parked) = found else {
            return Err(place);
        };
        self.metrics.to_active();
        Ok(Connection::Http1(Http1Lease::new(Arc::clone(self), place, parked, true)))
    }

    /// Keeps `io`, which somebody else opened, as an idle connection to the first endpoint.
    pub(crate) fn adopt<T>(self: &Arc<Self>, io: T)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static,
    {
        self.metrics.opened();
        let conn = Http1Connection::new(Io::Other(Box::new(io)), self.settings.heads);
        self.park(IdleConnection { conn, endpoint: 0, peer: None, line: None });
    }

    /// A new connection to `endpoint`.
    async fn connect(
        self: &Arc<Self>,
        endpoint: usize,
        place: Place,
    ) -> Result<Http1Lease, ConnectError> {
        // Boxed: most requests find an idle connection and should not carry its size.
        let NewHttp1 { conn, peer, line } = Box::pin(connect::open(self, endpoint)).await?;
        self.metrics.opened();
        let opened = IdleConnection { conn, endpoint, peer, line };
        Ok(Http1Lease::new(Arc::clone(self), place, opened, false))
    }

    /// A stream on a connection to `endpoint`.
    async fn stream(self: &Arc<Self>, endpoint: usize) -> Result<Connection, ConnectError> {
        self.take_stream(endpoint).await.map(Box::new).map(Connection::Http2)
    }

    async fn take_stream(
        self: &Arc<Self>,
        endpoint: usize,
    ) -> Result<connection::Http2Stream, ConnectError> {
        let place = self.capacity.place(&self.metrics).await?;
        loop {
            if let Some(slot) = self.shared().place(endpoint) {
                return Ok(connection::Http2Stream::new(slot.holding(place), true));
            }
            let dial =
                || -> BoxFuture<'static, Dialed> { Box::pin(Arc::clone(self).dial(endpoint)) };
            let dialing = self.shared().dial(endpoint, dial);
            if let Some(slot) = dialing.await?.take() {
                return Ok(connection::Http2Stream::new(slot.holding(place), false));
            }
        }
    }

    async fn dial(self: Arc<Self>, endpoint: usize) -> Dialed {
        let opened = connect::open_shared(&self, endpoint).await?;
        let origin = http2::Origin {
            upstream: Arc::clone(&self.settings.name),
            scheme: self.scheme(endpoint),
            authority: Arc::clone(self.authority(endpoint)),
        };
        let settings::Upstream { heads, idle_timeout: idle, .. } = *self.settings;
        let limits = ExchangeLimits { heads, idle };
        let metrics = Arc::clone(&self.metrics);
        let shared = Arc::new(Http2Connection::new(opened, endpoint, origin, limits, metrics));
        self.shared().add(Arc::clone(&shared));
        self.keep_swept();
        Ok(shared)
    }

    fn endpoint(&self, endpoint: usize) -> Result<&settings::Endpoint, ConnectError> {
        let endpoint = self.listed.get(endpoint).ok_or_else(ConnectError::no_endpoint)?;
        Ok(&endpoint.at)
    }

    fn park(self: &Arc<Self>, parked: IdleConnection) {
        if !self.names.lead(parked.endpoint, parked.peer) {
            self.metrics.closed_active();
            return;
        }
        if self.lock().put(Instant::now(), parked).is_err() {
            self.metrics.closed_active();
            return;
        }
        self.metrics.to_idle();
        self.keep_swept();
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
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Pool<IdleConnection>> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes idle connections that are old or that the other side has closed, and checks whether the others
    /// still lead to the right addresses. Returns when to do so again; `None` if there are none left.
    fn sweep(self: &Arc<Self>) -> Option<Instant> {
        let now = Instant::now();
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
