//! The state of one worker: its clock and ids, its counts, and the present configuration.
//!
//! Everything here belongs to one thread. The locks and atomics only make it `Send`: nobody ever waits for
//! them, and no cache line is shared. Even reference counts that every request changes are per worker, which is
//! why a [`WorkerConfig`] wraps what the workers share.

pub(crate) mod departed;
pub(crate) mod facts;
pub(crate) mod route;
pub(crate) mod runtime;

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use http::HeaderValue;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::departed::Departed;
use self::runtime::{Route, Runtime};
use crate::language::clock::Clock;
use crate::language::value::Value;
use crate::proxy::io::splice::PipePool;
use crate::proxy::memory::Budget;
use crate::proxy::message::id::Ids;
use crate::proxy::message::refusal::{Reason, Refusal};
use crate::proxy::proxy_header::receive::HeaderFailure;
use crate::proxy::tls::TlsFailure;
use crate::proxy::upstream::Upstream;
use crate::proxy::watch::Connections;
use crate::telemetry::limiter::{LogLimiter, RateLimiter, ReasonLimiter};

/// Nobody has told the worker to stop.
const SERVING: u8 = 0;
/// Answers are the last ones of their connections.
const LAST_CALL: u8 = 1;
/// Idle connections close as well.
const DRAINING: u8 = 2;

/// The state that outlives configurations.
#[derive(Debug)]
pub(crate) struct WorkerState {
    pub(crate) clock: Clock,
    pub(crate) ids: Ids,
    /// The client connections.
    pub(crate) connections: Connections,
    /// Cancels every execution that must unwind.
    pub(crate) cancel: CancellationToken,
    /// For splicing large bodies.
    pub(crate) pipes: PipePool,
    /// Limits how many plain requests `/executions` records.
    pub(crate) pace: RateLimiter,
    /// Limits which refused requests are logged, by [`Reason`].
    refusals: ReasonLimiter,
    /// Limits which failed TLS handshakes are logged, by reason.
    pub(crate) handshakes: ReasonLimiter,
    /// Limits which missing PROXY headers are logged, by reason.
    pub(crate) headers: ReasonLimiter,
    in_flight: AtomicUsize,
    /// Those of them whose client has left.
    pub(crate) departed: Departed,
    /// How many of them are executions on their own task, whose cleanups must run.
    unwinding: AtomicUsize,
    /// [`SERVING`], [`LAST_CALL`] or [`DRAINING`].
    leaving: AtomicU8,
    cut: AtomicBool,
    date: Mutex<Option<KnownDate>>,
}

/// A `Date` field.
#[derive(Debug)]
struct KnownDate {
    value: HeaderValue,
    /// Until when it is right: until its second ends, or until the clock must be read again because it may have been set.
    until: Instant,
}

/// How often the clock is read for `Date`, at least.
const DATE_READ: Duration = Duration::from_millis(100);

/// A configuration, as one worker serves it.
#[derive(Debug)]
pub(crate) struct WorkerConfig {
    pub(crate) core: Arc<WorkerState>,
    pub(crate) runtime: Arc<Runtime>,
    /// What all bodies may keep in memory.
    pub(crate) memory: Arc<Budget>,
    /// In the runtime's order.
    pub(crate) upstreams: Vec<Arc<Upstream>>,
    /// In the runtime's order.
    pub(crate) routes: Vec<Arc<WorkerRoute>>,
}

/// A route behind this worker's own reference count.
#[derive(Debug)]
pub(crate) struct WorkerRoute {
    route: Arc<Route>,
    /// The Flow's arguments, likewise.
    pub(crate) arguments: Value,
    /// Limits which of its failures are logged.
    pub(crate) failures: LogLimiter,
    /// The same for its cleanups that are cut off.
    pub(crate) cut_cleanups: LogLimiter,
    /// The same for what most routes never tell, so that a long table does not pay for it.
    rare: OnceLock<Box<RareLimiters>>,
}

/// Limits what one route logs of each kind.
#[derive(Debug)]
pub(crate) struct RareLimiters {
    /// Answers that an upstream breaks off.
    pub(crate) truncated: LogLimiter,
    /// Failures that a `catch` takes.
    pub(crate) caught: LogLimiter,
    /// Faults of the definition.
    pub(crate) faults: LogLimiter,
}

/// A worker's present site.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) core: Arc<WorkerState>,
    site: Mutex<Arc<WorkerConfig>>,
}

impl KnownDate {
    fn at(now: Instant, clock: Clock) -> Self {
        let nanos = u64::try_from(clock.at(now).as_nanos()).unwrap_or_default();
        let since = Duration::from_nanos(nanos);
        let text = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(since.as_secs()));
        let second_ends = Duration::from_nanos(1_000_000_000 - u64::from(since.subsec_nanos()));
        let value = HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""));
        Self { value, until: now.checked_add(second_ends.min(DATE_READ)).unwrap_or(now) }
    }
}

impl WorkerState {
    /// A worker's core.
    pub(crate) fn new() -> Self {
        Self::with(Clock::system(), Ids::new())
    }

    /// A worker's core with another clock and other ids.
    pub(crate) fn with(clock: Clock, ids: Ids) -> Self {
        Self {
            clock,
            ids,
            connections: Connections::default(),
            cancel: CancellationToken::new(),
            pipes: PipePool::default(),
            pace: RateLimiter::default(),
            refusals: ReasonLimiter::new("A request was refused.", Reason::ALL.map(Reason::as_str)),
            handshakes: ReasonLimiter::new(
                "A TLS handshake came to nothing.",
                TlsFailure::ALL.map(TlsFailure::as_str),
            ),
            headers: ReasonLimiter::new(
                "A connection had no PROXY header.",
                HeaderFailure::ALL.map(HeaderFailure::as_str),
            ),
            in_flight: AtomicUsize::new(0),
            departed: Departed::default(),
            unwinding: AtomicUsize::new(0),
            leaving: AtomicU8::new(SERVING),
            cut: AtomicBool::new(false),
            date: Mutex::new(None),
        }
    }

    /// The current time as a `Date` field (RFC 9110 §5.6.7).
    pub(crate) fn date(&self) -> HeaderValue {
        let now = Instant::now();
        let mut known = self.date.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some(date) if now < date.until => date.value.clone(),
            _ => known.insert(KnownDate::at(now, self.clock)).value.clone(),
        }
    }

    /// Counts a request, until [`WorkerState::end`] is called. Returns how many were already running for a client.
    pub(crate) fn begin(&self) -> usize {
        self.in_flight.fetch_add(1, Ordering::Relaxed).saturating_sub(self.departed.count())
    }

    /// A request and everything that it left running have ended.
    pub(crate) fn end(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// How many requests are running, including cleanups of requests whose client has left.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Counts an execution whose cleanups must run, until [`WorkerState::unwound`] is called.
    pub(crate) fn unwinds(&self) {
        self.unwinding.fetch_add(1, Ordering::Relaxed);
    }

    /// The execution's cleanups have run.
    pub(crate) fn unwound(&self) {
        self.unwinding.fetch_sub(1, Ordering::Relaxed);
    }

    /// How many executions have cleanups to run.
    pub(crate) fn unwinding(&self) -> usize {
        self.unwinding.load(Ordering::Relaxed)
    }

    /// Closes every connection after its next answer. Idle ones stay open: a request may be on its way.
    pub(crate) fn last_call(&self) {
        self.leaving.store(LAST_CALL, Ordering::Relaxed);
        self.connections.wake();
    }

    /// Closes idle connections now, and the others after their answer.
    pub(crate) fn drain(&self) {
        self.leaving.store(DRAINING, Ordering::Relaxed);
        self.connections.drain();
    }

    /// Whether connections close after their next answer.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Relaxed) != SERVING
    }

    /// Whether idle connections close.
    pub(crate) fn draining(&self) -> bool {
        self.leaving.load(Ordering::Relaxed) == DRAINING
    }

    /// Cancels everything that still runs.
    pub(crate) fn cut(&self) {
        self.cut.store(true, Ordering::Relaxed);
        self.cancel.cancel();
        self.connections.wake();
    }

    /// Whether requests are being cancelled.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Relaxed)
    }
}

impl WorkerConfig {
    /// `runtime` on the worker of `core`. Unchanged upstreams keep their connections.
    pub(crate) fn new(core: Arc<WorkerState>, runtime: Arc<Runtime>, last: Option<&Self>) -> Self {
        let known = last.map_or(&[][..], |last| &last.upstreams);
        let upstreams = runtime.upstreams.iter().map(|shared| {
            let same = known.iter().find(|old| Arc::ptr_eq(&old.common, shared));
            let new = || {
                let (resolver, stage) = (Arc::clone(&runtime.resolver), runtime.stage.clone());
                Arc::new(Upstream::new(Arc::clone(shared), resolver, stage))
            };
            same.map_or_else(new, Arc::clone)
        });
        let upstreams = upstreams.collect();
        let routes = runtime.routes.iter().map(WorkerRoute::new).map(Arc::new);
        let routes = routes.collect();
        let Runtime { limits, buffers, parsers, .. } = &*runtime;
        let memory = Budget::new(limits.buffered_bytes, buffers.clone(), parsers.clone());
        Self { core, runtime, memory, upstreams, routes }
    }
}

impl WorkerConfig {
    /// Counts a request for which no Flow ran, and logs it: of each reason the first, and then one every few seconds.
    pub(crate) fn refused(&self, refusal: &Refusal, client: SocketAddr) {
        let Refusal { reason, detail, allow: _, asked } = refusal;
        self.runtime.refusals.count(*reason as usize);
        let Some(untold) = self.core.refusals.admits(*reason as usize, Instant::now()) else {
            return;
        };
        let asked = asked.as_deref();
        tracing::info!(
            %client,
            reason = reason.as_str(),
            method = asked.and_then(|asked| asked.method.as_deref()),
            path = asked.and_then(|asked| asked.path.as_deref()),
            host = asked.and_then(|asked| asked.host.as_deref()),
            detail,
            untold,
            "A request was refused."
        );
    }
}

impl WorkerRoute {
    fn new(route: &Arc<Route>) -> Self {
        let arguments = match &route.with {
            Value::Object(map) => Value::Object(Arc::new(map.as_ref().clone())),
            other => other.clone(),
        };
        let limiter = |line| LogLimiter::new(line, Some(Arc::clone(&route.name)));
        Self {
            route: Arc::clone(route),
            arguments,
            failures: limiter("A request failed."),
            cut_cleanups: limiter("A cleanup was cut off (limits.cleanups)."),
            rare: OnceLock::new(),
        }
    }

    /// Limits what is rarely logged.
    pub(crate) fn rare(&self) -> &RareLimiters {
        self.rare.get_or_init(|| {
            let limiter = |line| LogLimiter::new(line, Some(Arc::clone(&self.route.name)));
            Box::new(RareLimiters {
                truncated: limiter("The response broke off after its head."),
                caught: limiter("A failure was caught."),
                faults: limiter("A definition is at fault."),
            })
        })
    }
}

impl Deref for WorkerRoute {
    type Target = Route;

    fn deref(&self) -> &Route {
        &self.route
    }
}

impl Worker {
    /// A worker that serves `runtime`.
    pub(crate) fn new(core: Arc<WorkerState>, runtime: Arc<Runtime>) -> Self {
        let site = WorkerConfig::new(Arc::clone(&core), runtime, None);
        Self { core, site: Mutex::new(Arc::new(site)) }
    }

    /// The site for a request that begins now.
    pub(crate) fn site(&self) -> Arc<WorkerConfig> {
        Arc::clone(&self.lock())
    }

    /// Serves requests that begin from now on with `runtime`.
    pub(crate) fn replace(&self, runtime: Arc<Runtime>) {
        let last = self.site();
        let next = Arc::new(WorkerConfig::new(Arc::clone(&self.core), runtime, Some(&last)));
        *self.lock() = next;
    }

    fn lock(&self) -> MutexGuard<'_, Arc<WorkerConfig>> {
        self.site.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::temporal::Timestamp;

    #[tokio::test(start_paused = true)]
    async fn a_date_is_kept_until_its_second_ends() {
        let clock = Clock::starting_at(Timestamp::from_nanos(784_111_777_850_000_000));
        let core = WorkerState::with(clock, Ids::seeded(1));
        for (millis, second) in [(0, 37), (99, 37), (50, 37), (1, 38), (998, 38), (2, 39)] {
            tokio::time::advance(Duration::from_millis(millis)).await;
            assert_eq!(core.date(), format!("Sun, 06 Nov 1994 08:49:{second} GMT"));
        }
    }
}
