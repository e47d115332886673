//! A client's connection: served, watched, and told to stop.
//!
//! How long a head may take to arrive and how long a kept-alive connection may idle are watched for all
//! connections together, once a tick: a timer for each request would cost every request, and these bounds
//! are coarse by nature. What a connection is doing is a few relaxed stores in a [`State`] of its own.

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
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::body::source::Source;
use super::preface::Prefaced;
use super::settings::Limits;
use super::site::{Core, Worker};
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
    /// How many requests are being answered: with HTTP/2 there may be several.
    streams: AtomicU32,
    /// What it is doing when there is none.
    rest: AtomicU8,
    /// Of the task that serves it.
    waker: Mutex<Option<Waker>>,
}

/// Between two requests.
const IDLE: u8 = 0;
/// Reading a head.
const HEAD: u8 = 1;
/// Answering.
const BUSY: u8 = 2;
/// Without a request, and speaking HTTP/2: bytes that come may be of no request.
const QUIET: u8 = 3;

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

impl State {
    fn new(tick: Arc<AtomicU32>) -> Self {
        Self {
            doing: AtomicU8::new(HEAD),
            since: AtomicU32::new(tick.load(Ordering::Relaxed)),
            tick,
            draining: AtomicBool::new(false),
            unread: AtomicBool::new(false),
            streams: AtomicU32::new(0),
            rest: AtomicU8::new(IDLE),
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
        if self.doing.load(Ordering::Relaxed) == IDLE {
            self.set(HEAD);
        }
    }

    /// Whether the client may still be sending what nobody will read.
    pub(crate) fn leaves_unread(&self) -> bool {
        self.unread.load(Ordering::Relaxed)
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
    pub(crate) async fn watch(&self, limits: impl Fn() -> (Duration, Duration)) {
        loop {
            let (head, idle) = limits();
            let shortest = head.min(idle) / 4;
            let length = shortest.clamp(Duration::from_millis(10), Duration::from_secs(1));
            sleep(length).await;
            self.tick.fetch_add(1, Ordering::Relaxed);
            self.sweep(ticks(head, length), ticks(idle, length));
        }
    }

    fn sweep(&self, head: u32, idle: u32) {
        for open in lock(&self.open).values() {
            let over = |doing, limit| open.state.ticks(doing).is_some_and(|ticks| ticks > limit);
            if over(QUIET, idle) {
                // HTTP/2 has a farewell; a client that does not answer it is gone.
                open.state.drain();
            }
            if (over(HEAD, head) || over(IDLE, idle) || over(QUIET, idle.saturating_add(head)))
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
pub(crate) fn protocol(limits: &Limits) -> http1::Builder {
    let mut protocol = http1::Builder::new();
    protocol
        .max_header_size(limits.head_size)
        .max_buf_size(limits.head_size.saturating_mul(2).max(SMALLEST_HEAD));
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
        async move {
            let response = execute::serve(site, request, client, busy).await;
            Ok::<_, std::convert::Infallible>(response)
        }
    });
    let io = Watched::new(Prefaced::new(io), Arc::clone(&state));
    let mut connection = protocol.serve_connection(TokioIo::new(io), service);
    let served = drive(&mut connection, &state, &core, http1::Connection::graceful_shutdown).await;
    let served = match served {
        Err(error) if error.is_parse_version_h2() => {
            let parts = connection.into_parts();
            let mut io = parts.io.into_inner();
            io.get_mut().put_back(parts.read_buf);
            // Boxed: the connections that speak HTTP/1 need not carry it.
            Box::pin(multiplexed::serve(io, client, &worker, &state)).await
        }
        served => served,
    };
    if let Err(error) = served {
        tracing::debug!(%client, error = %error, "A client's connection ended with an error.");
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
