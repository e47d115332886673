//! HTTP/2 connections, each shared by many requests.
//!
//! There is one connection per endpoint until it carries as many requests as it may; then there is a second.
//! Requests that find none wait for the same connect, and all get its error: a hundred requests to an endpoint
//! that does not answer wait for one `connectTimeout`, not for a hundred.
//!
//! A task reads and writes each connection ([`driver`]), because requests of different clients share it. Everything
//! else is polled by whoever waits for it, as in HTTP/1.1: the attempt sends its request and waits for the head
//! ([`exchange`]), and the reader of the response polls its body. Only the rest of a request whose response came
//! early is sent by a task of its own, because nobody else would poll it.

mod driver;
mod exchange;
mod open;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, Shared as SharedFuture, WeakShared};
use http::Request;
use http::uri::Scheme;
use tokio::time::Instant;

pub(super) use self::exchange::{Error, Exchange, ExchangeLimits, NotSent, UploadRest};
pub(super) use self::open::{NewConnection, open, read_to_end};
use super::capacity::Place;
use super::connect::NewHttp2;
use super::connect_error::ConnectError;
use super::endpoints::{Visit, WorkerEndpoint};
use super::origin::ResponseOrigin;
use super::request_head::{Endpoint, LastAuthority};
use crate::proxy::body::request::RequestBody;
use crate::proxy::h2::{CountsSnapshot, STREAMS, SendRequest, Traffic};
use crate::proxy::proxy_header::Ends;
use crate::proxy::stage::ScriptedConnection;
use crate::telemetry::metrics::UpstreamMetrics;

/// How often, at most, connections in use are checked for becoming idle.
const LOOK: Duration = Duration::from_secs(1);

/// One connection.
#[derive(Debug)]
pub(super) struct Http2Connection {
    sender: SendRequest,
    pub(super) traffic: Arc<Traffic>,
    /// In a rehearsal, the scripted connection.
    pub(super) line: Option<Arc<ScriptedConnection>>,
    pub(super) endpoint: Arc<WorkerEndpoint>,
    /// Where it leads.
    pub(super) origin: Origin,
    /// The ends that its PROXY header has named.
    ends: Option<Box<Ends>>,
    /// The address that it leads to, if it was opened here.
    pub(super) peer: Option<IpAddr>,
    limits: ExchangeLimits,
    metrics: Arc<UpstreamMetrics>,
    /// How many requests it carries. It counts as active while there are any.
    carried: Arc<AtomicU32>,
    /// Whether it takes no new requests.
    retired: AtomicBool,
    /// Since when it carries none.
    idle_since: Mutex<Instant>,
}

/// Where a connection leads.
#[derive(Debug)]
pub(super) struct Origin {
    /// The name of the upstream.
    pub(super) upstream: Arc<str>,
    /// The scheme.
    pub(super) scheme: Scheme,
    /// The endpoint's name in messages.
    pub(super) endpoint: Arc<str>,
    /// Its `Host`.
    pub(super) authority: Arc<str>,
    /// The authority of the last request.
    pub(super) last: LastAuthority,
}

/// All connections of one worker and one upstream.
#[derive(Debug, Default)]
pub(super) struct Http2Connections {
    open: Vec<Arc<Http2Connection>>,
    /// Connects in progress, as long as anybody waits for them.
    dialing: Vec<(Key, WeakShared<Dial>)>,
}

/// Which requests may share a connection: those to the endpoint with this id, and of the same client where the upstream is
/// told who that is.
pub(super) type To<'a> = (u64, Option<&'a Ends>);
/// The same, kept.
type Key = (u64, Option<Box<Ends>>);

/// A connect that several tasks can await.
type Dial = BoxFuture<'static, Dialed>;
/// The same.
pub(super) type SharedDial = SharedFuture<Dial>;
/// Its result.
pub(super) type Dialed = Result<Arc<Http2Connection>, ConnectError>;

/// A request's stream on a connection, until it is dropped.
#[derive(Debug)]
pub(super) struct StreamSlot {
    shared: Arc<Http2Connection>,
    /// The connection's byte counts when the request was handed over, until it is answered.
    asked: Option<CountsSnapshot>,
    /// Its request's place at the upstream, and its visit to the endpoint.
    place: Option<(Place, Visit)>,
}

impl Http2Connection {
    /// A new connection without requests.
    pub(super) fn new(
        (opened, ends): (NewHttp2, Option<Box<Ends>>),
        origin: Origin,
        limits: ExchangeLimits,
        metrics: Arc<UpstreamMetrics>,
    ) -> Self {
        let NewHttp2 { opened, endpoint, peer, line } = opened;
        let NewConnection { sender, traffic, carried } = opened;
        metrics.opened();
        metrics.to_idle();
        Self {
            sender,
            traffic,
            line,
            endpoint,
            origin,
            ends,
            peer,
            limits,
            metrics,
            carried,
            retired: AtomicBool::new(false),
            idle_since: Mutex::new(Instant::now()),
        }
    }

    fn is_for(&self, (endpoint, ends): To<'_>) -> bool {
        self.endpoint.id == endpoint && self.ends.as_deref() == ends
    }

    fn is_usable(&self) -> bool {
        !self.retired.load(Ordering::Relaxed) && self.sender.check().is_ok()
    }

    /// Puts `request` on a stream.
    pub(super) fn send(&self, request: Request<RequestBody>) -> Result<Exchange, NotSent> {
        Exchange::send(&self.sender, request, self.limits, &self.traffic)
    }

    /// A stream for one more request, if there is room and the connection is usable.
    pub(super) fn take(self: &Arc<Self>) -> Option<StreamSlot> {
        (self.has_room() && self.is_usable()).then(|| self.slot())
    }

    /// Whether it may carry one more request.
    fn has_room(&self) -> bool {
        let carried = self.carried.load(Ordering::Relaxed);
        // The first request always goes on it, and waits there while the other side accepts none: another
        // connection would not help. The limit is read each time, because the other side may change it.
        carried == 0
            || (carried < STREAMS && (carried as usize) < self.sender.current_max_send_streams())
    }

    /// A stream for one more request. The connection and everything that uses it are on one thread.
    fn slot(self: &Arc<Self>) -> StreamSlot {
        let carried = self.carried.load(Ordering::Relaxed);
        self.carried.store(carried + 1, Ordering::Relaxed);
        if carried == 0 {
            self.metrics.to_active();
        }
        StreamSlot { shared: Arc::clone(self), asked: None, place: None }
    }

    /// Since when it carries no request; `None` if it carries some.
    fn idle_since(&self) -> Option<Instant> {
        let idle = self.carried.load(Ordering::Relaxed) == 0;
        idle.then(|| *lock(&self.idle_since))
    }
}

impl Origin {
    /// The same, as a response's.
    pub(super) fn response(&self) -> ResponseOrigin {
        ResponseOrigin {
            upstream: Arc::clone(&self.upstream),
            endpoint: Arc::clone(&self.endpoint),
        }
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
    pub(super) fn holding(mut self, place: Place, visit: Visit) -> Self {
        self.place = Some((place, visit));
        self
    }

    /// The connection.
    pub(super) fn shared(&self) -> &Arc<Http2Connection> {
        &self.shared
    }

    /// Where the connection leads.
    pub(super) fn origin(&self) -> Endpoint<'_> {
        let Origin { scheme, authority, last, .. } = &self.shared.origin;
        Endpoint { scheme: scheme.clone(), host: authority, last }
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
        if self.asked.is_some_and(|mark| !shared.traffic.read_since(mark)) {
            self.retire();
        }
        let carried = shared.carried.load(Ordering::Relaxed).saturating_sub(1);
        shared.carried.store(carried, Ordering::Relaxed);
        if carried == 0 {
            *lock(&shared.idle_since) = Instant::now();
            shared.metrics.to_idle();
        }
    }
}

impl Http2Connections {
    /// A stream on an existing connection. Full ones cost a look at a number each, for there may be many. Closed ones on
    /// the way are dropped.
    pub(super) fn place(&mut self, to: To<'_>) -> Option<StreamSlot> {
        let mut at = 0;
        while let Some(shared) = self.open.get(at) {
            if !shared.has_room() || !shared.is_for(to) {
                at += 1;
            } else if shared.is_usable() {
                return Some(shared.slot());
            } else {
                self.open.remove(at);
            }
        }
        None
    }

    /// The connect in progress.
    pub(super) fn dialing(&self, to: To<'_>) -> Option<SharedDial> {
        let under_way = |(key, dial): &(Key, WeakShared<Dial>)| {
            let dial = dial.upgrade().filter(|dial| dial.peek().is_none());
            dial.filter(|_| borrowed(key) == to)
        };
        self.dialing.iter().find_map(under_way)
    }

    /// The connect in progress, or else the one that `dial` starts.
    pub(super) fn dial(&mut self, to: To<'_>, dial: impl FnOnce() -> Dial) -> SharedDial {
        if let Some(dial) = self.dialing(to) {
            return dial;
        }
        self.dialing.retain(|(key, dial)| borrowed(key) != to && dial.upgrade().is_some());
        let dial = dial().shared();
        let key = || (to.0, to.1.copied().map(Box::new));
        self.dialing.extend(dial.downgrade().map(|weak| (key(), weak)));
        dial
    }

    /// Adds a new connection. One that is for one client takes the place of an idle one if `most` are idle: there may be as
    /// many as there have been clients.
    pub(super) fn add(&mut self, shared: Arc<Http2Connection>, most: usize) {
        if shared.ends.is_some() {
            self.bound_idle(most);
        }
        self.open.push(shared);
    }

    /// Closes the connection that has been idle for longest, if as many as `most` are idle.
    fn bound_idle(&mut self, most: usize) {
        let (mut idle, mut oldest) = (0, None);
        for shared in &self.open {
            if let Some(since) = shared.idle_since() {
                idle += 1;
                if oldest.as_ref().is_none_or(|(first, _)| since < *first) {
                    oldest = Some((since, Arc::clone(shared)));
                }
            }
        }
        if let Some((_, oldest)) = oldest.filter(|_| idle >= most.max(1)) {
            self.open.retain(|shared| !Arc::ptr_eq(shared, &oldest));
        }
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

fn borrowed((endpoint, ends): &Key) -> To<'_> {
    (*endpoint, ends.as_deref())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
