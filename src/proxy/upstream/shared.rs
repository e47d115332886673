//! HTTP/2 connections, each shared by many requests.
//!
//! One connection to an endpoint serves until it carries as many requests as it may; then there is a second.
//! Requests that find none wait for the same connect, and all of them get its error: a hundred requests to an
//! endpoint that does not answer wait for one `connectTimeout`, not for a hundred.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, Shared as SharedFuture, WeakShared};
use http::uri::Scheme;
use hyper::client::conn::http2::SendRequest;
use tokio::time::Instant;

use super::connect::{ConnectError, OpenedShared};
use super::wire::{Counts, Mark};
use crate::proxy::body::request::RequestBody;
use crate::proxy::h2::STREAMS;
use crate::proxy::stage::Line;
use crate::telemetry::metrics::UpstreamMetrics;

/// How often, at most, connections that are in use are looked at for when they are not.
const LOOK: Duration = Duration::from_secs(1);

/// One connection.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) sender: SendRequest<RequestBody>,
    pub(super) counts: Arc<Counts>,
    /// In a rehearsal, the way to the other end.
    pub(super) line: Option<Arc<Line>>,
    pub(super) endpoint: usize,
    /// The scheme of what is asked there, and what messages call it.
    origin: (Scheme, Arc<str>),
    /// The address that it leads to, where it was opened here.
    pub(super) peer: Option<IpAddr>,
    /// How many requests the other side takes at a time.
    pub(super) limit: Arc<AtomicU32>,
    metrics: Arc<UpstreamMetrics>,
    /// How many it carries. It counts as active while there are any.
    open: AtomicU32,
    /// Whether it takes no new ones.
    retired: AtomicBool,
    /// Since when it carries none.
    idle_since: Mutex<Instant>,
}

/// All connections of one worker and one upstream.
#[derive(Debug, Default)]
pub(super) struct Connections {
    open: Vec<Arc<Shared>>,
    /// The connect that is under way to an endpoint, for as long as anybody waits for it.
    dialing: Vec<(usize, WeakShared<Dial>)>,
}

/// A connect, whose end all get that wait for it.
type Dial = BoxFuture<'static, Dialed>;
/// What it comes to.
pub(super) type Dialed = Result<Arc<Shared>, ConnectError>;

/// A request's place on a connection, until this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    shared: Arc<Shared>,
    /// What the connection had carried when the request was handed over, until it is answered.
    asked: Option<Mark>,
}

impl Shared {
    /// A new connection, which carries nothing yet.
    pub(super) fn new(
        opened: OpenedShared,
        endpoint: usize,
        origin: (Scheme, Arc<str>),
        metrics: Arc<UpstreamMetrics>,
    ) -> Self {
        let OpenedShared { sender, counts, limit, peer, line } = opened;
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

    /// A place for one more request. The connection and all that use it are on one thread.
    pub(super) fn take(self: &Arc<Self>) -> Option<Place> {
        let open = self.open.load(Ordering::Relaxed);
        let limit = self.limit.load(Ordering::Relaxed).min(STREAMS);
        // The first goes on in any case, and waits there for as long as the other side takes none: another
        // connection would take none either.
        if !self.is_usable() || (open > 0 && open >= limit) {
            return None;
        }
        self.open.store(open + 1, Ordering::Relaxed);
        if open == 0 {
            self.metrics.to_active();
        }
        Some(Place { shared: Arc::clone(self), asked: None })
    }

    /// Since when it carries nothing; `None` where it carries something.
    fn idle_since(&self) -> Option<Instant> {
        let idle = self.open.load(Ordering::Relaxed) == 0;
        idle.then(|| *lock(&self.idle_since))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Every place holds the connection: there is none left.
        self.metrics.closed_idle();
    }
}

impl Place {
    /// The connection.
    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The scheme of what is asked of the endpoint, and what messages call it.
    pub(super) fn origin(&self) -> (Scheme, &str) {
        let (scheme, authority) = &self.shared.origin;
        (scheme.clone(), authority)
    }

    /// The connection takes no new requests.
    pub(super) fn retire(&self) {
        self.shared.retired.store(true, Ordering::Relaxed);
    }

    /// A request is handed over; `mark` is what the connection has carried so far.
    pub(super) const fn ask(&mut self, mark: Mark) {
        self.asked = Some(mark);
    }

    /// It has ended, well or badly.
    pub(super) const fn answered(&mut self) {
        self.asked = None;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let shared = &self.shared;
        // A request that was given up, and not a byte came meanwhile: the other side may be gone without a
        // word, and the next request shall not find that out in its turn.
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

impl Connections {
    /// A place on a connection to `endpoint` that is there. Those that have closed are let go.
    pub(super) fn place(&mut self, endpoint: usize) -> Option<Place> {
        self.open.retain(|shared| shared.is_usable());
        let mut there = self.open.iter().filter(|shared| shared.endpoint == endpoint);
        there.find_map(Shared::take)
    }

    /// The connect to `endpoint` that is under way, or else the one that `dial` begins.
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

    /// `shared` is there from now on.
    pub(super) fn add(&mut self, shared: Arc<Shared>) {
        self.open.push(shared);
    }

    /// Puts no further request on those that are not to `stay`, and says how many there were. Those that carry
    /// requests end with them.
    pub(super) fn retain(&mut self, stay: impl Fn(&Shared) -> bool) -> usize {
        let before = self.open.len();
        self.open.retain(|shared| stay(shared));
        before.saturating_sub(self.open.len())
    }

    /// Lets go of all: those that carry requests end with them.
    pub(super) fn clear(&mut self) {
        self.open.clear();
    }

    /// Lets go of those that have closed and those that have carried nothing since before `keep_alive`; says
    /// when to come again, `None` where none is left.
    pub(super) fn sweep(&mut self, now: Instant, keep_alive: Duration) -> Option<Instant> {
        self.open.retain(|shared| {
            let old = |since: Instant| now.duration_since(since) >= keep_alive;
            shared.is_usable() && !shared.idle_since().is_some_and(old)
        });
        let later = keep_alive.max(LOOK);
        let due = |shared: &Arc<Shared>| match shared.idle_since() {
            Some(since) => since.checked_add(keep_alive),
            None => now.checked_add(later),
        };
        self.open.iter().filter_map(due).min()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
