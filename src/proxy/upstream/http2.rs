//! HTTP/2 connections, each shared by many requests.
//!
//! There is one connection per endpoint until it carries as many requests as it may; then there is a second.
//! Requests that find none wait for the same connect, and all get its error: a hundred requests to an endpoint
//! that does not answer wait for one `connectTimeout`, not for a hundred.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, Shared as SharedFuture, WeakShared};
use http::uri::Scheme;
use hyper::client::conn::http2::SendRequest;
use tokio::time::Instant;

use super::capacity::Place;
use super::connect::NewHttp2;
use super::connect_error::ConnectError;
use super::counted::{ByteCounts, CountsSnapshot};
use crate::proxy::body::request::RequestBody;
use crate::proxy::h2::STREAMS;
use crate::proxy::stage::ScriptedConnection;
use crate::telemetry::metrics::UpstreamMetrics;

/// How often, at most, connections in use are checked for becoming idle.
const LOOK: Duration = Duration::from_secs(1);

/// One connection.
#[derive(Debug)]
pub(super) struct Http2Connection {
    pub(super) sender: SendRequest<RequestBody>,
    pub(super) counts: Arc<ByteCounts>,
    /// In a rehearsal, the scripted connection.
    pub(super) line: Option<Arc<ScriptedConnection>>,
    pub(super) endpoint: usize,
    /// The scheme and the endpoint's name in messages.
    origin: (Scheme, Arc<str>),
    /// The address that it leads to, if it was opened here.
    pub(super) peer: Option<IpAddr>,
    /// The most concurrent requests that the other side accepts.
    pub(super) limit: Arc<AtomicU32>,
    metrics: Arc<UpstreamMetrics>,
    /// How many requests it carries. It counts as active while there are any.
    open: AtomicU32,
    /// Whether it takes no new requests.
    retired: AtomicBool,
    /// Since when it carries none.
    idle_since: Mutex<Instant>,
}

/// All connections of one worker and one upstream.
#[derive(Debug, Default)]
pub(super) struct Http2Connections {
    open: Vec<Arc<Http2Connection>>,
    /// Connects in progress, as long as anybody waits for them.
    dialing: Vec<(usize, WeakShared<Dial>)>,
}

/// A connect that several tasks can await.
type Dial = BoxFuture<'static, Dialed>;
/// Its result.
pub(super) type Dialed = Result<Arc<Http2Connection>, ConnectError>;

/// A request's stream on a connection, until it is dropped.
#[derive(Debug)]
pub(super) struct StreamSlot {
    shared: Arc<Http2Connection>,
    /// The connection's byte counts when the request was handed over, until it is answered.
    asked: Option<CountsSnapshot>,
    /// Its request's place at the upstream.
    place: Option<Place>,
}

impl Http2Connection {
    /// A new connection without requests.
    pub(super) fn new(
        opened: NewHttp2,
        endpoint: usize,
        origin: (Scheme, Arc<str>),
        metrics: Arc<UpstreamMetrics>,
    ) -> Self {
        let NewHttp2 { sender, counts, limit, peer, line } = opened;
        metrics.opened();
        metrics.to_idle();
        Self {
            sender,
            counts,
            line,
            endpoint,
            origin,
            peer,
            limit,
            metrics,
            open: AtomicU32::new(0),
            retired: AtomicBool::new(false),
            idle_since: Mutex::new(Instant::now()),
        }
    }

    fn is_usable(&self) -> bool {
        !self.retired.load(Ordering::Relaxed) && !self.sender.is_closed()
    }

    /// A stream for one more request. The connection and everything that uses it are on one thread.
    pub(super) fn take(self: &Arc<Self>) -> Option<StreamSlot> {
        let open = self.open.load(Ordering::Relaxed);
        let limit = self.limit.load(Ordering::Relaxed).min(STREAMS);
        // The first request always goes on it, and waits there while the other side accepts none: another
        // connection would not help.
        if !self.is_usable() || (open > 0 && open >= limit) {
            return None;
        }
        self.open.store(open + 1, Ordering::Relaxed);
        if open == 0 {
            self.metrics.to_active();
        }
        Some(StreamSlot { shared: Arc::clone(self), asked: None, place: None })
    }

    /// Since when it carries no request; `None` if it carries some.
    fn idle_since(&self) -> Option<Instant> {
        let idle = self.open.load(Ordering::Relaxed) == 0;
        idle.then(|| *lock(&self.idle_since))
    }
}

impl Drop for Http2Connection {
    fn drop(&mut self) {
        // Every stream holds the connection, so there is none left.
        self.metrics.closed_idle();
    }
}

impl StreamSlot {
    /// The same, with its request's place at the upstream.
    pub(super) fn holding(mut self, place: Place) -> Self {
        self.place = Some(place);
        self
    }

    /// The connection.
    pub(super) fn shared(&self) -> &Arc<Http2Connection> {
        &self.shared
    }

    /// The scheme and the endpoint's name in messages.
    pub(super) fn origin(&self) -> (Scheme, &str) {
        let (scheme, authority) = &self.shared.origin;
        (scheme.clone(), authority)
    }

    /// The connection takes no new requests.
    pub(super) fn retire(&self) {
        self.shared.retired.store(true, Ordering::Relaxed);
    }

    /// A request is handed over. `mark` holds the connection's byte counts.
    pub(super) const fn ask(&mut self, mark: CountsSnapshot) {
        self.asked = Some(mark);
    }

    /// The request has ended, well or badly.
    pub(super) const fn answered(&mut self) {
        self.asked = None;
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let shared = &self.shared;
        // A request was given up, and no byte has arrived since it was handed over. The other side may be gone
        // without a sign, and the next request must not find that out by waiting.
        if self.asked.is_some_and(|mark| !shared.counts.read_since(mark)) {
            self.retire();
        }
        let open = shared.open.load(Ordering::Relaxed).saturating_sub(1);
        shared.open.store(open, Ordering::Relaxed);
        if open == 0 {
            *lock(&shared.idle_since) = Instant::now();
            shared.metrics.to_idle();
        }
    }
}

impl Http2Connections {
    /// A stream on an existing connection to `endpoint`. Closed connections are dropped.
    pub(super) fn place(&mut self, endpoint: usize) -> Option<StreamSlot> {
        self.open.retain(|shared| shared.is_usable());
        let mut there = self.open.iter().filter(|shared| shared.endpoint == endpoint);
        there.find_map(Http2Connection::take)
    }

    /// The connect to `endpoint` in progress, or else the one that `dial` starts.
    pub(super) fn dial(
        &mut self,
        endpoint: usize,
        dial: impl FnOnce() -> Dial,
    ) -> SharedFuture<Dial> {
        let under_way = |(to, dial): &(usize, WeakShared<Dial>)| {
            let dial = dial.upgrade().filter(|dial| dial.peek().is_none());
            dial.filter(|_| *to == endpoint)
        };
        if let Some(dial) = self.dialing.iter().find_map(under_way) {
            return dial;
        }
        self.dialing.retain(|(to, dial)| *to != endpoint && dial.upgrade().is_some());
        let dial = dial().shared();
        self.dialing.extend(dial.downgrade().map(|weak| (endpoint, weak)));
        dial
    }

    /// Adds a new connection.
    pub(super) fn add(&mut self, shared: Arc<Http2Connection>) {
        self.open.push(shared);
    }

    /// Puts no further requests on connections that should not `stay`, and returns how many there were. Those
    /// that carry requests close with the last one.
    pub(super) fn retain(&mut self, stay: impl Fn(&Http2Connection) -> bool) -> usize {
        let before = self.open.len();
        self.open.retain(|shared| stay(shared));
        before.saturating_sub(self.open.len())
    }

    /// Drops all connections. Those that carry requests close with the last one.
    pub(super) fn clear(&mut self) {
        self.open.clear();
    }

    /// Drops connections that are closed, and those without requests since before `keep_alive`. Returns when to
    /// do so again; `None` if none is left.
    pub(super) fn sweep(&mut self, now: Instant, keep_alive: Duration) -> Option<Instant> {
        self.open.retain(|shared| {
            let old = |since: Instant| now.duration_since(since) >= keep_alive;
            shared.is_usable() && !shared.idle_since().is_some_and(old)
        });
        let later = keep_alive.max(LOOK);
        let due = |shared: &Arc<Http2Connection>| match shared.idle_since() {
            Some(since) => since.checked_add(keep_alive),
            None => now.checked_add(later),
        };
        self.open.iter().filter_map(due).min()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
