//! A client's connection: served, watched, and told to stop.
//!
//! How long a head may take to arrive and how long a kept-alive connection may idle are watched for all
//! connections together, once a tick: a timer for each request would cost every request, and these bounds
//! are coarse by nature. What a connection is doing is a few relaxed stores in a [`State`] of its own.
//! A client that does not finish its head is told so (408) by the connection's own bytes, see
//! [`Watched`]; one that takes nothing of its answer can be told nothing, and is cut off.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::body::source::Source;
use super::preface::Prefaced;
use super::refusal::Reason;
use super::settings::Limits;
use super::site::{Core, Worker};
use super::tunnel::{Switch, Tunnel};
use super::watched::Watched;
use super::{execute, multiplexed};

/// The smallest read buffer that the HTTP library takes.
const SMALLEST_HEAD: usize = 8192;
/// How many fields a head may have before the library must be told a number of its own.
const USUAL_FIELDS: usize = 100;

/// What a connection is doing.
#[derive(Debug)]
pub(crate) struct State {
    doing: AtomicU8,
    /// The tick at which it began to.
    since: AtomicU32,
    /// The worker's tick.
    tick: Arc<AtomicU32>,
    draining: AtomicBool,
    /// Whether the client may still be sending what nobody will read.
    unread: AtomicBool,
    /// Since which tick the client takes no bytes, plus one; 0 where it does.
    blocked: AtomicU32,
    /// Whether the head that is being read has taken too long.
    late: AtomicBool,
    /// How many requests are being answered: with HTTP/2 there may be several.
    streams: AtomicU32,
    /// What it is doing when there is none.
    rest: AtomicU8,
    /// What it may change its protocol to.
    switch: Mutex<Option<Switch>>,
    /// Of the task that serves it.
    waker: Mutex<Option<Waker>>,
}

/// Between two requests.
const IDLE: u8 = 0;
/// Before the first byte.
const NEW: u8 = 1;
/// Reading a head.
const HEAD: u8 = 2;
/// Answering.
const BUSY: u8 = 3;
/// Without a request, and speaking HTTP/2: bytes that come may be of no request.
const QUIET: u8 = 4;
/// Speaking another protocol.
const TUNNEL: u8 = 5;

/// How long clients may take over what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Over a head.
    pub(crate) head: Duration,
    /// Over the next request.
    pub(crate) idle: Duration,
    /// Over the next bytes of an answer.
    pub(crate) body: Duration,
}

/// All connections of one worker.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    open: Mutex<HashMap<u64, Open>>,
    next: AtomicU64,
    tick: Arc<AtomicU32>,
}

#[derive(Debug)]
struct Open {
    state: Arc<State>,
    task: Option<AbortHandle>,
}

/// One entry of [`Connections`]; taken out when dropped.
struct Registered<'a> {
    connections: &'a Connections,
    key: u64,
}

/// A connection is answering until this is dropped.
#[derive(Debug)]
pub(crate) struct Busy {
    state: Arc<State>,
    /// Of the request that is being answered.
    body: ClientBody,
}

/// What is known of a request's body while its answer is given.
#[derive(Debug)]
pub(crate) enum ClientBody {
    /// All of it was read.
    Read,
    /// Some of it is not read, and will not be.
    Unread,
    /// It is sent on.
    Stream(Arc<Source<Incoming>>),
}

impl Patience {
    /// What the configuration allows.
    pub(crate) const fn of(limits: &Limits) -> Self {
        Self { head: limits.head_timeout, idle: limits.idle_timeout, body: limits.body_timeout }
    }
}

impl State {
    fn new(tick: Arc<AtomicU32>) -> Self {
        Self {
            doing: AtomicU8::new(NEW),
            since: AtomicU32::new(tick.load(Ordering::Relaxed)),
            tick,
            draining: AtomicBool::new(false),
            unread: AtomicBool::new(false),
            blocked: AtomicU32::new(0),
            late: AtomicBool::new(false),
            streams: AtomicU32::new(0),
            rest: AtomicU8::new(IDLE),
            switch: Mutex::new(None),
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

    /// One more request is being answered. The connection and all its streams are on one thread.
    fn begin(&self) {
        let streams = self.streams.load(Ordering::Relaxed);
        self.streams.store(streams.saturating_add(1), Ordering::Relaxed);
        self.set(BUSY);
    }

    /// One was answered; `read`: and all of it was read.
    fn end(&self, read: bool) {
        let rest = self.rest.load(Ordering::Relaxed);
        if !read && rest == IDLE {
            self.unread.store(true, Ordering::Relaxed);
        }
        let streams = self.streams.load(Ordering::Relaxed).saturating_sub(1);
        self.streams.store(streams, Ordering::Relaxed);
        if streams == 0 {
            self.set(rest);
        }
    }

    /// Has the connection end as soon as no request is left.
    fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = lock(&self.waker).as_ref() {
            waker.wake_by_ref();
        }
    }

    /// Bytes came: of a head, where none was being read and nothing is being answered.
    pub(crate) fn heard(&self) {
        if matches!(self.doing.load(Ordering::Relaxed), IDLE | NEW) {
            self.set(HEAD);
        }
    }

    /// Whether the client may still be sending what nobody will read: the rest of a body, or of a head
    /// that was refused half-way.
    pub(crate) fn leaves_unread(&self) -> bool {
        self.unread.load(Ordering::Relaxed) || self.doing.load(Ordering::Relaxed) == HEAD
    }

    /// Whether the head that is being read has taken too long.
    pub(crate) fn is_late(&self) -> bool {
        self.late.load(Ordering::Relaxed)
    }

    /// Whether the client takes no bytes now.
    pub(crate) fn set_blocked(&self, blocked: bool) {
        let since = self.tick.load(Ordering::Relaxed).wrapping_add(1).max(1);
        self.blocked.store(if blocked { since } else { 0 }, Ordering::Relaxed);
    }

    /// For how many ticks the client has taken no bytes; `None` where it does.
    fn blocked_ticks(&self) -> Option<u32> {
        let since = self.blocked.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.tick.load(Ordering::Relaxed).wrapping_sub(since))
    }

    /// For how many ticks it has been doing `doing`; `None` where it does something else.
    fn ticks(&self, doing: u8) -> Option<u32> {
        let now = self.tick.load(Ordering::Relaxed);
        let since = self.since.load(Ordering::Relaxed);
        (self.doing.load(Ordering::Relaxed) == doing).then(|| now.wrapping_sub(since))
    }
}

impl Busy {
    /// A request on the connection of `state` is being answered.
    pub(super) fn new(state: &Arc<State>) -> Self {
        state.begin();
        Self { state: Arc::clone(state), body: ClientBody::Read }
    }

    /// The client asks for another protocol on this connection, which `near` then gives.
    pub(crate) fn may_switch(&self, near: OnUpgrade) {
        *lock(&self.state.switch) = Some(Switch::new(near));
    }

    /// The upstream agreed to another protocol: the answer says so, and nothing comes after it.
    pub(crate) fn switches(self, tunnel: Tunnel) {
        if let Some(switch) = lock(&self.state.switch).as_mut() {
            switch.agreed(tunnel);
        }
    }

    /// The answer is given to a request with this body.
    pub(crate) fn answers(mut self, body: ClientBody) -> Self {
        self.body = body;
        self
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let read = match &self.body {
            ClientBody::Read => true,
            ClientBody::Unread => false,
            ClientBody::Stream(source) => source.finished(),
        };
        self.state.end(read);
    }
}

impl Connections {
    /// Idle connections close now, the others after the answer that they are giving.
    pub(crate) fn drain(&self) {
        for open in lock(&self.open).values() {
            open.state.drain();
        }
    }

    /// Has every connection's task look again.
    pub(crate) fn wake(&self) {
        for open in lock(&self.open).values() {
            open.state.wake();
        }
    }

    /// How many are open.
    pub(crate) fn len(&self) -> usize {
        lock(&self.open).len()
    }

    /// Closes what has overstayed, every tick, for as long as it is polled.
    pub(crate) async fn watch(&self, patience: impl Fn() -> Patience) {
        loop {
            let patience = patience();
            let shortest = patience.head.min(patience.idle).min(patience.body) / 4;
            let length = shortest.clamp(Duration::from_millis(10), Duration::from_secs(1));
            sleep(length).await;
            self.tick.fetch_add(1, Ordering::Relaxed);
            self.sweep(patience, length);
        }
    }

    fn sweep(&self, patience: Patience, length: Duration) {
        let [head, idle, body] =
            [patience.head, patience.idle, patience.body].map(|bound| ticks(bound, length));
        for open in lock(&self.open).values() {
            let state = &open.state;
            if state.doing.load(Ordering::Relaxed) == TUNNEL {
                // It has a bound of its own.
                continue;
            }
            let over = |doing, limit| state.ticks(doing).is_some_and(|ticks| ticks > limit);
            if over(HEAD, head) && !state.late.swap(true, Ordering::Relaxed) {
                // It closes itself, with a last word.
                state.wake();
                continue;
            }
            if over(QUIET, idle) {
                // HTTP/2 has a farewell; a client that does not answer it is gone.
                state.drain();
            }
            if (over(NEW, head)
                || over(IDLE, idle)
                || over(QUIET, idle.saturating_add(head))
                || state.blocked_ticks().is_some_and(|ticks| ticks > body))
                && let Some(task) = &open.task
            {
                task.abort();
            }
        }
    }

    fn register(&self) -> (Arc<State>, Registered<'_>) {
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        let state = Arc::new(State::new(Arc::clone(&self.tick)));
        let open = Open { state: Arc::clone(&state), task: None };
        lock(&self.open).insert(key, open);
        let registered = Registered { connections: self, key };
        (state, registered)
    }
}

impl Registered<'_> {
    /// Lets the watch close the connection by aborting this task, which serves nothing else.
    fn closed_by(&self, task: AbortHandle) {
        if let Some(open) = lock(&self.connections.open).get_mut(&self.key) {
            open.task = Some(task);
        }
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        lock(&self.connections.open).remove(&self.key);
    }
}

fn ticks(bound: Duration, length: Duration) -> u32 {
    u32::try_from(bound.as_nanos().div_ceil(length.as_nanos().max(1))).unwrap_or(u32::MAX)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How a worker reads requests off its connections.
///
/// The library has one bound for a head, its target included, so it is given the sum; the target has its own
/// bound besides, with its own status.
pub(crate) fn protocol(limits: &Limits) -> http1::Builder {
    let mut protocol = http1::Builder::new();
    let head = limits.head_size.saturating_add(limits.target_size);
    protocol.max_header_size(head).max_buf_size(head.saturating_mul(2).max(SMALLEST_HEAD));
    if limits.headers != USUAL_FIELDS {
        protocol.max_headers(limits.headers);
    }
    protocol
}

/// Serves one connection until either side ends it. `task` is the task that this runs on.
pub(crate) async fn serve<T>(
    io: T,
    client: SocketAddr,
    worker: Arc<Worker>,
    protocol: http1::Builder,
    task: Option<AbortHandle>,
) where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let core = Arc::clone(&worker.core);
    let (state, registered) = core.connections.register();
    if let Some(task) = task {
        registered.closed_by(task);
    }
    let service = service_fn(|request| {
        let site = worker.site();
        let busy = Busy::new(&state);
        let answering = execute::serve(site, request, client, busy);
        async move { Ok::<_, std::convert::Infallible>(answering.await) }
    });
    let io = Watched::new(Prefaced::new(io), Arc::clone(&state));
    let mut connection = protocol.serve_connection(TokioIo::new(io), service).with_upgrades();
    let goodbye = http1::UpgradeableConnection::graceful_shutdown;
    // Boxed: what most connections never do, they need not carry.
    let served = match drive(&mut connection, &state, &core, goodbye).await {
        Err(error) if error.is_parse_version_h2() => match connection.into_parts() {
            Some(parts) => {
                let mut io = parts.io.into_inner();
                io.get_mut().put_back(parts.read_buf);
                Box::pin(multiplexed::serve(io, client, &worker, &state)).await
            }
            None => Ok(()),
        },
        served => served,
    };
    let switch = lock(&state.switch).take();
    if let (Ok(()), Some(switch)) = (&served, switch) {
        state.set(TUNNEL);
        let idle = worker.site().runtime.limits.tunnel_timeout;
        Box::pin(switch.run(idle, &core.cancel)).await;
    }
    if let Err(error) = served {
        ended_badly(&worker, &state, client, &error);
    }
    drop(registered);
}

/// Polls a connection to its end, and has it say `goodbye` when the process stops or the watch says so.
pub(super) async fn drive<C: Future + Unpin>(
    connection: &mut C,
    state: &State,
    core: &Core,
    goodbye: fn(Pin<&mut C>),
) -> C::Output {
    let mut told = false;
    let mut known = false;
    std::future::poll_fn(|cx| {
        if !known {
            *lock(&state.waker) = Some(cx.waker().clone());
            known = true;
        }
        if !told && (state.draining.load(Ordering::Relaxed) || core.draining()) {
            told = true;
            goodbye(Pin::new(connection));
        }
        Pin::new(&mut *connection).poll(cx)
    })
    .await
}

/// Says and counts what ended a connection: a head that was none, was too large or did not come, which
/// nobody else has heard of, or the client's leaving.
fn ended_badly(worker: &Worker, state: &State, client: SocketAddr, error: &hyper::Error) {
    let reason = if state.is_late() {
        Reason::HeadTimeout
    } else if error.is_parse_too_large() {
        Reason::HeadTooLarge
    } else if error.is_parse() {
        Reason::MalformedHead
    } else {
        tracing::debug!(%client, error = %error, "A client's connection ended with an error.");
        return;
    };
    worker.site().runtime.refused(reason, client, error);
}
