//! The state of each client connection, and the watch over all of them, which enforces how long a head may
//! take, how long a connection may be idle, how long a client may read nothing of its answer, and how slowly it may move
//! bytes at all (`limits.minimumRate`). When places are full, it closes what has been idle for longest ([`evict`]).
//!
//! All connections are checked together once per tick, because these timeouts need no precision and a timer per
//! request would cost every request. Changing a connection's [`ConnectionState`] costs a few relaxed stores. A client
//! that does not complete its head gets a 408 from the [client](crate::proxy::client). One that does not
//! read its answer cannot be told anything and is cut off.

mod alarms;
pub(crate) mod busy;
mod by_number;
mod evict;
mod pace;
mod registration;
mod taken;
pub(crate) mod write_watch;

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::sleep;

use self::alarms::Alarms;
use self::pace::Pace;
use self::registration::{OpenConnection, OpenConnections, Registration};
use self::taken::TakenBytes;
use crate::proxy::io::acked::Addresses;
use crate::proxy::settings::{Limits, MinimumRate};

/// The state of a connection.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    doing: AtomicU8,
    /// The tick at which this state began.
    since: AtomicU32,
    /// The worker's tick.
    tick: Arc<AtomicU32>,
    draining: AtomicBool,
    /// The tick since which the client has accepted no bytes, plus one; 0 if it accepts them.
    blocked: AtomicU32,
    /// Whether the head that is being read has taken too long.
    late: AtomicBool,
    pace: Pace,
    /// How many requests are being answered. In HTTP/2 there may be several.
    streams: AtomicU32,
    /// The state to return to when there are none.
    rest: AtomicU8,
    /// Whether a request has arrived.
    asked: AtomicBool,
    /// For the timeouts of its requests.
    alarms: Alarms,
    /// Wakes the task that serves it.
    waker: Mutex<Option<Waker>>,
}

/// After this many idle ticks a connection gives up its timers.
const AFTER: u32 = 2;

/// Between two requests.
const IDLE: u8 = 0;
/// Before the first byte.
const NEW: u8 = 1;
/// Reading a head.
const HEAD: u8 = 2;
/// Answering.
const BUSY: u8 = 3;
/// HTTP/2 without a request: arriving bytes need not belong to a request.
const QUIET: u8 = 4;
/// Tunnelling another protocol.
const TUNNEL: u8 = 5;

/// How long clients may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// For a head.
    pub(crate) head: Duration,
    /// Until the next request.
    pub(crate) idle: Duration,
    /// For the next bytes of an answer.
    pub(crate) body: Duration,
    /// For all of a head or an answer.
    pub(crate) rate: Option<MinimumRate>,
}

/// All connections of one worker.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    open: Arc<OpenConnections>,
    /// Which of them to close for others, the longest idle last.
    longest: Mutex<Vec<evict::Candidate>>,
    next: AtomicU64,
    tick: Arc<AtomicU32>,
    /// How many bytes of unfinished heads they hold.
    heads: Arc<AtomicU64>,
}

impl Timeouts {
    /// The configured values.
    pub(crate) const fn of(limits: &Limits) -> Self {
        Self {
            head: limits.head_timeout,
            idle: limits.idle_timeout,
            body: limits.body_timeout,
            rate: limits.minimum_rate,
        }
    }
}

impl ConnectionState {
    fn new(tick: Arc<AtomicU32>, heads: Arc<AtomicU64>) -> Self {
        Self {
            doing: AtomicU8::new(NEW),
            since: AtomicU32::new(tick.load(Ordering::Relaxed)),
            tick,
            draining: AtomicBool::new(false),
            blocked: AtomicU32::new(0),
            late: AtomicBool::new(false),
            pace: Pace::new(heads),
            streams: AtomicU32::new(0),
            rest: AtomicU8::new(IDLE),
            asked: AtomicBool::new(false),
            alarms: Alarms::default(),
            waker: Mutex::new(None),
        }
    }

    fn set(&self, doing: u8) {
        self.doing.store(doing, Ordering::Relaxed);
        let tick = self.tick.load(Ordering::Relaxed);
        self.since.store(tick, Ordering::Relaxed);
    }

    /// The connection speaks HTTP/2.
    pub(crate) fn multiplexed(&self) {
        self.rest.store(QUIET, Ordering::Relaxed);
        self.set(QUIET);
    }

    /// One more request is being answered. The connection and all of its streams are on one thread.
    pub(super) fn begin(&self) {
        let streams = self.streams.load(Ordering::Relaxed);
        self.streams.store(streams.saturating_add(1), Ordering::Relaxed);
        if streams == 0 {
            self.pace.begin();
        }
        self.asked.store(true, Ordering::Relaxed);
        self.set(BUSY);
    }

    /// One request was answered.
    pub(super) fn end(&self) {
        let rest = self.rest.load(Ordering::Relaxed);
        let streams = self.streams.load(Ordering::Relaxed).saturating_sub(1);
        self.streams.store(streams, Ordering::Relaxed);
        if streams == 0 {
            self.set(rest);
        }
    }

    /// Makes the connection close as soon as no request is left.
    fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = lock(&self.waker).as_ref() {
            waker.wake_by_ref();
        }
    }

    /// Whether a request has arrived: a connection chooses its protocol before the first one.
    pub(super) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Whether it should close as soon as no request is left.
    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Sets the waker of the task that serves it.
    pub(super) fn woken_by(&self, waker: &Waker) {
        *lock(&self.waker) = Some(waker.clone());
    }

    /// The connection speaks another protocol than HTTP.
    pub(super) fn tunnels(&self) {
        self.set(TUNNEL);
    }

    /// Whether it is between two requests.
    pub(super) fn idles(&self) -> bool {
        self.doing.load(Ordering::Relaxed) == IDLE
    }

    /// Bytes arrived. If no head was being read and nothing is being answered, they begin a head.
    pub(crate) fn heard(&self) {
        if matches!(self.doing.load(Ordering::Relaxed), IDLE | NEW) {
            self.set(HEAD);
        }
    }

    /// This many bytes of a head have arrived.
    pub(super) fn received(&self, bytes: usize) {
        self.pace.received(bytes);
    }

    /// Whether the head that is being read is a large one and there is no room for more of it.
    pub(super) fn lacks_room(&self) -> bool {
        self.pace.lacks_room()
    }

    /// This many bytes of an answer were handed over.
    pub(super) fn handed(&self, bytes: usize) {
        self.pace.handed(bytes);
    }

    /// A TLS handshake is done: the first request is awaited.
    pub(super) fn greeted(&self) {
        self.set(NEW);
    }

    /// Whether the head that is being read has taken too long.
    pub(crate) fn is_late(&self) -> bool {
        self.late.load(Ordering::Relaxed)
    }

    /// Sets whether the client accepts no bytes at present. Its idle time begins when it accepts the last of
    /// its answer.
    pub(crate) fn set_blocked(&self, blocked: bool) {
        let doing = self.doing.load(Ordering::Relaxed);
        if !blocked && matches!(doing, IDLE | QUIET) {
            self.set(doing);
        }
        let since = self.tick.load(Ordering::Relaxed).wrapping_add(1).max(1);
        self.blocked.store(if blocked { since } else { 0 }, Ordering::Relaxed);
    }

    /// Whether the client accepts no bytes at present.
    #[cfg(test)]
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked_ticks().is_some()
    }

    /// For how many ticks the client has accepted no bytes; `None` if it does.
    fn blocked_ticks(&self) -> Option<u32> {
        let since = self.blocked.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.tick.load(Ordering::Relaxed).wrapping_sub(since))
    }

    /// Whether the client moves bytes more slowly than at `rate`. Called once per tick, of this `length`.
    fn is_slow(&self, rate: MinimumRate, length: Duration) -> bool {
        let head = self
            .ticks(HEAD)
            .is_some_and(|ticks| self.pace.is_head_slow(rate, length.saturating_mul(ticks)));
        let blocked = self.blocked_ticks().is_some_and(|ticks| ticks > 0);
        head || (blocked && self.pace.is_answer_slow(rate, length))
    }

    /// For how many ticks it has been in the state `doing`; `None` if it is in another.
    fn ticks(&self, doing: u8) -> Option<u32> {
        let now = self.tick.load(Ordering::Relaxed);
        let since = self.since.load(Ordering::Relaxed);
        (self.doing.load(Ordering::Relaxed) == doing).then(|| now.wrapping_sub(since))
    }
}

impl Connections {
    /// Closes idle connections now, and the others after their present answer.
    pub(crate) fn drain(&self) {
        for open in lock(&self.open).values() {
            open.state.drain();
        }
    }

    /// Wakes every connection's task.
    pub(crate) fn wake(&self) {
        for open in lock(&self.open).values() {
            open.state.wake();
        }
    }

    /// How many are open.
    pub(crate) fn len(&self) -> usize {
        lock(&self.open).len()
    }

    /// Closes connections that have exceeded a timeout, once per tick, while it is polled.
    pub(crate) async fn watch(&self, patience: impl Fn() -> Timeouts) {
        let (mut last, mut settled) = (self.turnover(), true);
        loop {
            let patience = patience();
            let shortest = patience.head.min(patience.idle).min(patience.body) / 4;
            let length = shortest.clamp(Duration::from_millis(10), Duration::from_secs(1));
            sleep(length).await;
            self.tick.fetch_add(1, Ordering::Relaxed);
            self.sweep(patience, length);
            let turnover = self.turnover();
            if turnover != last {
                (last, settled) = (turnover, false);
            } else if !settled {
                settled = true;
                give_back();
            }
        }
    }

    /// Differs once a connection was opened or closed.
    fn turnover(&self) -> (u64, usize) {
        (self.next.load(Ordering::Relaxed), self.len())
    }

    fn sweep(&self, patience: Timeouts, length: Duration) {
        let [head, idle] = [patience.head, patience.idle].map(|bound| ticks(bound, length));
        for open in lock(&self.open).values_mut() {
            let state = &open.state;
            if state.doing.load(Ordering::Relaxed) == TUNNEL {
                // It has a timeout of its own.
                continue;
            }
            if state.ticks(IDLE) == Some(AFTER) || state.ticks(QUIET) == Some(AFTER) {
                // The timers of ended requests must not wake it.
                state.alarms.clear();
            }
            let over = |doing, limit| state.ticks(doing).is_some_and(|ticks| ticks > limit);
            let slow = patience.rate.is_some_and(|rate| state.is_slow(rate, length));
            let late = over(HEAD, head) || (slow && state.ticks(HEAD).is_some());
            if late && !state.late.swap(true, Ordering::Relaxed) {
                // It closes itself, after a last answer.
                state.wake();
                continue;
            }
            let takes = state.blocked_ticks().is_none();
            if over(QUIET, idle) && takes {
                // HTTP/2 has a goodbye. A client that does not react to it is gone.
                state.drain();
            }
            if (over(NEW, head)
                || over(HEAD, head.saturating_mul(2))
                || (over(IDLE, idle) && takes)
                || (over(QUIET, idle.saturating_add(head)) && takes)
                || (slow && !takes)
                || open.taken.is_silent(state, patience.body, length))
                && let Some(task) = &open.task
            {
                task.abort();
            }
        }
    }

    /// Allows the watch to close the connection with this number as [`Registration::closed_by`] does.
    pub(super) fn closed_by(&self, number: u64, task: AbortHandle) {
        registration::closed_by(&self.open, number, task);
    }

    /// Adds a connection. If its `addresses` are known, the system is asked how much of an answer the client takes.
    pub(super) fn register(
        &self,
        addresses: Option<Addresses>,
    ) -> (Arc<ConnectionState>, Registration) {
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        let state = Arc::new(ConnectionState::new(Arc::clone(&self.tick), Arc::clone(&self.heads)));
        let taken = TakenBytes::of(addresses);
        let open = OpenConnection { state: Arc::clone(&state), task: None, taken };
        lock(&self.open).insert(key, open);
        (state, Registration::new(Arc::clone(&self.open), key))
    }
}

/// Has the allocator return the memory of closed connections to the system. It only checks for that when it
/// allocates or frees a large block, which an idle worker never does.
fn give_back() {
    const LARGE: usize = 256 * 1024;
    drop(black_box(Vec::<u8>::with_capacity(LARGE)));
}

fn ticks(bound: Duration, length: Duration) -> u32 {
    u32::try_from(bound.as_nanos().div_ceil(length.as_nanos().max(1))).unwrap_or(u32::MAX)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
