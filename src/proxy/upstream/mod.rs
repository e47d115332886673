//! An upstream as one worker sees it: its endpoints in turn, and its idle connections.
//!
//! Each worker has its own, so nothing here is shared between threads: the locks are there because the
//! futures are `Send`, and nobody ever waits for one.

pub(crate) mod connect;
pub(crate) mod pool;
pub(crate) mod wire;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use self::connect::{ConnectError, Opened};
use self::pool::{Idle, Pool};
use self::wire::Counts;
use super::body::request::RequestBody;
use super::rehearsal::{Line, Stage};
use super::settings;
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

/// A connection lent to one request. Dropped, it closes; [`Connection::release`] puts it back.
#[derive(Debug)]
pub(crate) struct Connection {
    sender: SendRequest<RequestBody>,
    counts: Arc<Counts>,
    /// In a rehearsal, the way to the other end.
    line: Option<Arc<Line>>,
    lease: Lease,
    reused: bool,
}

/// Which connection of which upstream is lent; dropped, it counts as closed.
#[derive(Debug)]
struct Lease {
    upstream: Arc<Upstream>,
    endpoint: usize,
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
    /// Whether a byte of a response was read.
    pub(crate) read: bool,
}

impl Upstream {
    /// An upstream without connections.
    pub(crate) fn new(
        settings: Arc<settings::Upstream>,
        metrics: Arc<UpstreamMetrics>,
        stage: Option<Arc<Stage>>,
    ) -> Self {
        let pool = Pool::new(settings.keep_alive, settings.max_idle);
        Self {
            settings,
            metrics,
            pool: Mutex::new(pool),
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

    /// An idle connection to `endpoint` that is ready for a request.
    pub(crate) async fn idle(self: &Arc<Self>, endpoint: usize) -> Option<Connection> {
        loop {
            let wanted = |parked: &Parked| parked.endpoint == endpoint;
            let (found, dropped) = self.lock().take(Instant::now(), wanted);
            for _ in 0..dropped {
                self.metrics.closed_idle();
            }
            let parked = found?;
            self.metrics.to_active();
            let mut connection = self.lend(parked, true);
            // Who refuses connections has closed those that were open.
            let closed = self.stage.as_ref().is_some_and(|stage| stage.refuses(&self.settings));
            if !closed && connection.ready().await {
                return Some(connection);
            }
        }
    }

    /// A new connection to `endpoint`.
    pub(crate) async fn connect(
        self: &Arc<Self>,
        endpoint: usize,
    ) -> Result<Connection, ConnectError> {
        let at = self.settings.endpoints.get(endpoint);
        let at = at.ok_or_else(ConnectError::no_endpoint)?;
        // Boxed: most requests find a connection, and carry one word of this.
        let stage = self.stage.as_ref();
        let opened = Box::pin(connect::open(at, &self.settings, stage)).await?;
        self.metrics.opened();
        Ok(self.lend(Parked { opened, endpoint }, false))
    }

    fn lend(self: &Arc<Self>, parked: Parked, reused: bool) -> Connection {
        let Parked { opened, endpoint } = parked;
        let Opened { sender, counts, driver, line } = opened;
        Connection {
            sender,
            counts,
            line,
            lease: Lease { upstream: Arc::clone(self), endpoint, driver: Some(driver) },
            reused,
        }
    }

    fn park(self: &Arc<Self>, parked: Parked) {
        if parked.is_closed() {
            self.metrics.closed_active();
            return;
        }
        if self.lock().put(Instant::now(), parked).is_err() {
            self.metrics.closed_active();
            return;
        }
        self.metrics.to_idle();
        if !self.swept.swap(true, Ordering::Relaxed) {
            tokio::spawn(sweep(Arc::downgrade(self)));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pool<Parked>> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes old idle connections; says when to come again. `None` once there are none.
    fn sweep(&self) -> Option<Instant> {
        let (closed, next) = self.lock().sweep(Instant::now());
        for _ in 0..closed {
            self.metrics.closed_idle();
        }
        if next.is_none() {
            self.swept.store(false, Ordering::Relaxed);
        }
        next
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
    /// Whether it has carried a request before.
    pub(crate) const fn reused(&self) -> bool {
        self.reused
    }

    /// Whether it takes a request; waits for the driver to see the end of the last exchange.
    async fn ready(&mut self) -> bool {
        self.sender.is_ready() || self.sender.ready().await.is_ok()
    }

    /// Sends one request and waits for the head of its response. The request is handed over before the
    /// first poll, so that the future does not carry it.
    pub(crate) fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Result<Response<Incoming>, SendError>> + Send {
        if let Some(line) = &self.line {
            line.announce();
        }
        let mark = self.counts.mark();
        let sent = self.sender.try_send_request(request);
        let counts = &self.counts;
        async move {
            sent.await.map_err(|mut failed| SendError {
                unsent: failed.take_message(),
                error: failed.into_error(),
                wrote: counts.wrote_since(mark),
                read: counts.read_since(mark),
            })
        }
    }

    /// Puts it back for the next request.
    pub(crate) fn release(self) {
        let Self { sender, counts, line, mut lease, reused: _ } = self;
        let Some(driver) = lease.driver.take() else {
            return;
        };
        let opened = Opened { sender, counts, driver, line };
        lease.upstream.park(Parked { opened, endpoint: lease.endpoint });
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
