//! An upstream as one worker sees it: its endpoints in turn, and its idle connections.
//!
//! Each worker has its own, so nothing here is shared between threads: the locks are there because the
//! futures are `Send`, and nobody ever waits for one.

pub(crate) mod connect;
pub(crate) mod ending;
pub(crate) mod pool;
mod race;
pub(crate) mod resolve;
mod shared;
pub(crate) mod wire;

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use futures_util::future::{BoxFuture, Either};
use http::uri::Scheme;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use self::connect::{ConnectError, Opened};
use self::ending::Ending;
use self::pool::{Idle, Pool};
use self::resolve::{Names, Resolve};
use self::shared::{Connections, Dialed, Place, Shared};
use self::wire::{Counts, Mark};
use super::body::request::RequestBody;
use super::rehearsal::{Line, Stage};
use super::settings::{self, Protocol};
use crate::telemetry::metrics::UpstreamMetrics;

/// One upstream of one worker.
#[derive(Debug)]
pub(crate) struct Upstream {
    /// What the configuration says. Two upstreams with equal settings are the same one: a reload that
    /// leaves them alone leaves their connections alone.
    pub(crate) settings: Arc<settings::Upstream>,
    /// Its gauges.
    pub(crate) metrics: Arc<UpstreamMetrics>,
    pool: Mutex<Pool<Parked>>,
    /// Those that speak HTTP/2.
    shared: Mutex<Connections>,
    /// The addresses of its endpoints.
    names: Names,
    /// In a rehearsal, what stands at the other end.
    stage: Option<Arc<Stage>>,
    /// The endpoint whose turn it is, counted up without end.
    turn: AtomicUsize,
    /// Whether a task is there that closes old idle connections.
    swept: AtomicBool,
}

/// What there is of a connection while nobody uses it. Its other half is the task that drives it.
#[derive(Debug)]
struct Parked {
    opened: Opened,
    endpoint: usize,
}

impl Idle for Parked {
    fn is_closed(&self) -> bool {
        self.opened.sender.is_closed()
    }
}

/// A connection lent to one request: all of it, or a place on it. Dropped, it closes, or the place is free;
/// [`Connection::release`] puts it back.
#[derive(Debug)]
pub(crate) struct Connection {
    sender: Sender,
    counts: Arc<Counts>,
    /// In a rehearsal, the way to the other end.
    line: Option<Arc<Line>>,
    /// What they were when the request was handed over.
    mark: Mark,
    reused: bool,
}

/// Where a request is handed over.
#[derive(Debug)]
enum Sender {
    /// The connection is this request's.
    Alone(http1::SendRequest<RequestBody>, Lease),
    /// It is one request of several.
    Shared(http2::SendRequest<RequestBody>, Place),
}

/// Which connection of which upstream is lent; dropped, it counts as closed.
#[derive(Debug)]
struct Lease {
    upstream: Arc<Upstream>,
    endpoint: usize,
    /// The address that it leads to, where it was opened here.
    peer: Option<IpAddr>,
    /// Taken when the connection goes back.
    driver: Option<AbortHandle>,
}

/// Why a request over a connection got no response.
#[derive(Debug)]
pub(crate) struct SendError {
    /// What the HTTP library says.
    pub(crate) error: hyper::Error,
    /// The request, where it was not begun.
    pub(crate) unsent: Option<Request<RequestBody>>,
    /// Whether a byte was written.
    pub(crate) wrote: bool,
    /// Whether a byte was read.
    pub(crate) read: bool,
    /// What the error says of the request.
    pub(crate) ending: Ending,
}

impl Upstream {
    /// An upstream without connections.
    pub(crate) fn new(
        settings: Arc<settings::Upstream>,
        metrics: Arc<UpstreamMetrics>,
        resolver: Arc<dyn Resolve>,
        stage: Option<Arc<Stage>>,
    ) -> Self {
        let pool = Pool::new(settings.keep_alive, settings.max_idle);
        let names = Names::new(resolver, settings.endpoints.len());
        Self {
            settings,
            metrics,
            pool: Mutex::new(pool),
            shared: Mutex::default(),
            names,
            stage,
            turn: AtomicUsize::new(0),
            swept: AtomicBool::new(false),
        }
    }

    /// The endpoint whose turn it is, passing over `avoid` where there is another.
    pub(crate) fn pick(&self, avoid: Option<usize>) -> usize {
        let count = self.settings.endpoints.len().max(1);
        if count == 1 {
            return 0;
        }
        let turn = || self.turn.fetch_add(1, Ordering::Relaxed) % count;
        let endpoint = turn();
        if Some(endpoint) == avoid { turn() } else { endpoint }
    }

    /// What messages call an endpoint.
    pub(crate) fn authority(&self, endpoint: usize) -> &Arc<str> {
        static NONE: std::sync::LazyLock<Arc<str>> = std::sync::LazyLock::new(|| "".into());
        self.settings.endpoints.get(endpoint).map_or(&NONE, |endpoint| &endpoint.authority)
    }

    /// The scheme of what is asked of `endpoint`.
    pub(crate) fn scheme(&self, endpoint: usize) -> Scheme {
        let endpoint = self.settings.endpoints.get(endpoint);
        let secure = endpoint.is_some_and(|endpoint| endpoint.tls.is_some());
        if secure { Scheme::HTTPS } else { Scheme::HTTP }
    }

    /// A connection to `endpoint` that lies idle and takes a request at once.
    pub(crate) fn at_hand(self: &Arc<Self>, endpoint: usize, now: Instant) -> Option<Connection> {
        // In a rehearsal the script is asked first, by `connection`.
        if self.stage.is_some() {
            return None;
        }
        if self.settings.protocol == Protocol::Http2 {
            return None;
        }
        let wanted =
            |parked: &Parked| parked.endpoint == endpoint && parked.opened.sender.is_ready();
        let (found, dropped) = self.lock().take(now, wanted);
        for _ in 0..dropped {
            self.metrics.closed_idle();
        }
        let parked = found?;
        self.metrics.to_active();
        Some(self.lend(parked, true))
    }

    /// A connection to `endpoint` for one request: one that is there, or else a new one.
    pub(crate) async fn connection(
        self: &Arc<Self>,
        endpoint: usize,
    ) -> Result<Connection, ConnectError> {
        if let Some(stage) = &self.stage
            && stage.refuses(&self.settings)
        {
            // Who takes no connection has closed those that were open.
            self.disconnect();
        }
        if self.settings.protocol == Protocol::Http2 {
            // Boxed, as a connect is: what is awaited most carries neither.
            return Box::pin(self.place(endpoint)).await;
        }
        match self.idle(endpoint).await {
            Some(connection) => Ok(connection),
            None => self.connect(endpoint).await,
        }
    }

    /// The same, but none that has lain idle.
    pub(crate) async fn fresh(
        self: &Arc<Self>,
        endpoint: usize,
    ) -> Result<Connection, ConnectError> {
        match self.settings.protocol {
            Protocol::Http1 => self.connect(endpoint).await,
            // One that is known to be dead is retired by now.
            Protocol::Http2 => self.place(endpoint).await,
        }
    }

    /// An idle connection to `endpoint` that is ready for a request.
    async fn idle(self: &Arc<Self>, endpoint: usize) -> Option<Connection> {
        loop {
            let wanted = |parked: &Parked| parked.endpoint == endpoint;
            let (found, dropped) = self.lock().take(Instant::now(), wanted);
            for _ in 0..dropped {
                self.metrics.closed_idle();
            }
            let parked = found?;
            self.metrics.to_active();
            let mut connection = self.lend(parked, true);
            if connection.ready().await {
                return Some(connection);
            }
        }
    }

    /// Keeps `io`, which somebody else has opened, as an idle connection to the first endpoint.
    pub(crate) async fn adopt<T>(self: &Arc<Self>, io: T)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        match connect::over(io, None).await {
            Ok(opened) => {
                self.metrics.opened();
                self.park(Parked { opened, endpoint: 0 });
            }
            Err(error) => tracing::warn!(%error, "A connection could not be adopted."),
        }
    }

    /// A new connection to `endpoint`.
    async fn connect(self: &Arc<Self>, endpoint: usize) -> Result<Connection, ConnectError> {
        // Boxed: most requests find a connection, and carry one word of this.
        let opened = Box::pin(connect::open(self, endpoint)).await?;
        self.metrics.opened();
        Ok(self.lend(Parked { opened, endpoint }, false))
    }

    /// A place on a connection to `endpoint`.
    async fn place(self: &Arc<Self>, endpoint: usize) -> Result<Connection, ConnectError> {
        loop {
            if let Some(place) = self.shared().place(endpoint) {
                return Ok(Connection::of(place, true));
            }
            let dial =
                || -> BoxFuture<'static, Dialed> { Box::pin(Arc::clone(self).dial(endpoint)) };
            let dialing = self.shared().dial(endpoint, dial);
            if let Some(place) = dialing.await?.take() {
                return Ok(Connection::of(place, false));
            }
        }
    }

    async fn dial(self: Arc<Self>, endpoint: usize) -> Dialed {
        let opened = connect::open_shared(&self, endpoint).await?;
        let shared = Arc::new(Shared::new(opened, endpoint, Arc::clone(&self.metrics)));
        self.shared().add(Arc::clone(&shared));
        self.keep_swept();
        Ok(shared)
    }

    fn endpoint(&self, endpoint: usize) -> Result<&settings::Endpoint, ConnectError> {
        self.settings.endpoints.get(endpoint).ok_or_else(ConnectError::no_endpoint)
    }

    fn lend(self: &Arc<Self>, parked: Parked, reused: bool) -> Connection {
        let Parked { opened, endpoint } = parked;
        let Opened { sender, counts, driver, peer, line } = opened;
        let lease = Lease { upstream: Arc::clone(self), endpoint, peer, driver: Some(driver) };
        let mark = counts.mark();
        Connection { sender: Sender::Alone(sender, lease), counts, line, mark, reused }
    }

    fn park(self: &Arc<Self>, parked: Parked) {
        if parked.is_closed() || !self.names.lead(parked.endpoint, parked.opened.peer) {
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

    /// Has old idle connections closed from now on.
    fn keep_swept(self: &Arc<Self>) {
        if !self.swept.swap(true, Ordering::Relaxed) {
            tokio::spawn(sweep(Arc::downgrade(self)));
        }
    }

    /// Closes the idle connections, and puts no further request on the others.
    fn disconnect(&self) {
        while self.lock().take(Instant::now(), |_| true).0.is_some() {
            self.metrics.closed_idle();
        }
        self.shared().clear();
    }

    fn shared(&self) -> MutexGuard<'_, Connections> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Pool<Parked>> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes old idle connections, and looks again where they lead; says when to come again. `None` once there
    /// are none.
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

/// Runs while there are idle connections, and ends with the last: without it, connections to an
/// upstream that nobody calls any more would stay open.
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

impl Connection {
    fn of(place: Place, reused: bool) -> Self {
        let sender = place.shared().sender.clone();
        let counts = Arc::clone(&place.shared().counts);
        let line = place.shared().line.clone();
        let mark = counts.mark();
        Self { sender: Sender::Shared(sender, place), counts, line, mark, reused }
    }

    /// Whether it was there before the request that it was lent to.
    pub(crate) const fn reused(&self) -> bool {
        self.reused
    }

    /// Whether it takes a request; waits for the driver to see the end of the last exchange.
    async fn ready(&mut self) -> bool {
        match &mut self.sender {
            Sender::Alone(sender, _) => sender.is_ready() || sender.ready().await.is_ok(),
            Sender::Shared(sender, _) => sender.is_ready(),
        }
    }

    /// Hands one request over, and waits for the head of its response. The future does not carry the request,
    /// nor does it borrow the connection.
    pub(crate) fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Result<Response<Incoming>, TrySendError<Request<RequestBody>>>>
    + Send
    + use<> {
        if let Some(line) = &self.line {
            line.announce();
        }
        self.mark = self.counts.mark();
        match &mut self.sender {
            Sender::Alone(sender, _) => Either::Left(sender.try_send_request(request)),
            Sender::Shared(sender, place) => {
                place.ask(self.mark);
                Either::Right(sender.try_send_request(request))
            }
        }
    }

    /// The request that was sent over this has got its response, or will get none.
    pub(crate) const fn answered(&mut self) {
        if let Sender::Shared(_, place) = &mut self.sender {
            place.answered();
        }
    }

    /// Why the request that was sent over this got no response.
    pub(crate) fn failed(&mut self, mut failed: TrySendError<Request<RequestBody>>) -> SendError {
        self.answered();
        let unsent = failed.take_message();
        let error = failed.into_error();
        let ending = Ending::of(&error);
        if let Sender::Shared(_, place) = &self.sender
            && !ending.spares_connection()
        {
            place.retire();
        }
        let (wrote, read) = (self.counts.wrote_since(self.mark), self.counts.read_since(self.mark));
        SendError { error, unsent, wrote, read, ending }
    }

    /// Puts it back for the next request.
    pub(crate) fn release(self) {
        let Self { sender, counts, line, mark: _, reused: _ } = self;
        match sender {
            Sender::Alone(sender, mut lease) => {
                let Some(driver) = lease.driver.take() else {
                    return;
                };
                let opened = Opened { sender, counts, driver, peer: lease.peer, line };
                lease.upstream.park(Parked { opened, endpoint: lease.endpoint });
            }
            Sender::Shared(..) => {}
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(driver) = self.driver.take() {
            // Nobody waits for the driver any more, and a request may still be going out: an upstream that
            // has answered, or whose answer nobody wants, gets no more of it.
            driver.abort();
            self.upstream.metrics.closed_active();
        }
    }
}
