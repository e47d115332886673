//! A client's connection: served, watched, and told to stop.

use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use http::Version;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::task::AbortHandle;

use super::body::source::Source;
use super::interim::Interim;
use super::preface::Prefaced;
use super::refusal::Reason;
use super::settings::Limits;
use super::site::{Core, Worker};
use super::tunnel::Tunnel;
use super::watch::State;
use super::watched::{Line, Watched};
use super::{execute, idle, multiplexed};
use crate::language::engine::Alarm;

/// The smallest read buffer that the HTTP library takes.
const SMALLEST_HEAD: usize = 8192;
/// How many fields a head may have before the library must be told a number of its own.
const USUAL_FIELDS: usize = 100;

/// The other end of a client's connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    pub(crate) over: Over,
}

/// What a connection's HTTP goes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// The socket itself: which HTTP it is, the first bytes say.
    Clear,
    /// TLS, in whose handshake HTTP/2 was chosen, or was not.
    Tls { http2: bool },
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

impl Peer {
    /// One that speaks clear text.
    pub(crate) const fn clear(address: SocketAddr) -> Self {
        Self { address, over: Over::Clear }
    }

    /// Whether what made the HTTP/1 side give up is the beginning of HTTP/2: in clear text, and before any
    /// request. Over TLS the handshake has chosen (RFC 9113 §3.2).
    fn may_begin_http2(self, error: &hyper::Error, state: &State) -> bool {
        self.over == Over::Clear && error.is_parse_version_h2() && !state.is_asked()
    }

    /// The scheme of what it asks for.
    pub(crate) const fn scheme(self) -> &'static str {
        match self.over {
            Over::Clear => "http",
            Over::Tls { .. } => "https",
        }
    }
}

/// Its address.
impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

impl Busy {
    /// A request on the connection of `state` is being answered.
    pub(super) fn new(state: &Arc<State>) -> Self {
        state.begin();
        Self { state: Arc::clone(state), body: ClientBody::Read }
    }

    /// Where the interim answers to its request go, which is of this version.
    pub(crate) fn interim(&self, version: Version) -> Interim {
        Interim::to(&self.state, version)
    }

    /// The request has its answer. Whether something is still to be said that comes before it.
    pub(super) fn has_answer(&self) -> bool {
        self.state.speech().answer()
    }

    /// Waits until all is out that comes before the answer, whose head is then the next to be written, with
    /// these lines behind its first.
    pub(super) async fn answer_next(&self, lines: Vec<u8>) {
        let speech = self.state.speech();
        speech.quiet().await;
        if !lines.is_empty() {
            speech.behind(lines);
        }
    }

    /// The answer's body ends with the connection.
    pub(super) fn unframed(&self) {
        self.state.speech().unframed();
    }

    /// The client asks for another protocol on this connection, which `near` then gives.
    pub(crate) fn may_switch(&self, near: OnUpgrade) {
        self.state.may_switch(near);
    }

    /// The upstream agreed to another protocol: the answer says so, and nothing comes after it.
    pub(crate) fn switches(self, tunnel: Tunnel) {
        self.state.switches(tunnel);
    }

    /// The timer that the connection's last execution left, for the bounds of this one.
    pub(crate) fn take_alarm(&self) -> Alarm {
        self.state.take_alarm()
    }

    /// Keeps it for the next.
    pub(crate) fn keep_alarm(&self, alarm: Alarm) {
        self.state.keep_alarm(alarm);
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
    client: Peer,
    worker: Arc<Worker>,
    protocol: http1::Builder,
    task: Option<AbortHandle>,
) where
    T: Line,
{
    let core = Arc::clone(&worker.core);
    let (state, registered) = core.connections.register();
    if let Some(task) = task {
        registered.closed_by(task);
    }
    let served = converse(io, client, &worker, &protocol, &state).await;
    if served.is_ok()
        && let Some(switch) = state.take_switch()
    {
        let idle = worker.site().runtime.limits.tunnel_timeout;
        Box::pin(switch.run(idle, &core.cancel)).await;
    }
    if let Err(error) = served {
        ended_badly(&worker, &state, client, &error);
    }
    drop(registered);
}

/// Serves what is asked on a connection, up to its end or to another protocol than HTTP.
async fn converse<T>(
    io: T,
    client: Peer,
    worker: &Arc<Worker>,
    protocol: &http1::Builder,
    state: &Arc<State>,
) -> hyper::Result<()>
where
    T: Line,
{
    let mut io = Prefaced::new(io);
    if client.over == (Over::Tls { http2: true }) {
        return by_http2(io, client, worker, state).await;
    }
    loop {
        let service = service_fn(|request| {
            let site = worker.site();
            let busy = Busy::new(state);
            let answering = execute::serve(site, request, client, busy);
            async move { Ok::<_, std::convert::Infallible>(answering.await) }
        });
        let watched = TokioIo::new(Watched::new(io, Arc::clone(state)));
        // Boxed: an idle connection does without it.
        let mut connection = Box::new(protocol.serve_connection(watched, service).with_upgrades());
        let goodbye = http1::UpgradeableConnection::graceful_shutdown;
        let served = drive(&mut *connection, state, &worker.core, goodbye);
        let http2 = match idle::until_rest(served, state).await {
            None => false,
            Some(Err(error)) if client.may_begin_http2(&error, state) => true,
            Some(served) => return served,
        };
        let Some((taken, unread)) = idle::take_out(*connection) else {
            return Ok(());
        };
        io = taken;
        if http2 {
            return by_http2(io, client, worker, state).await;
        }
        if !unread && !idle::resumes(&mut io, state, &worker.core).await {
            return Ok(());
        }
    }
}

/// The same with HTTP/2, whose preface is still before it.
async fn by_http2<T>(
    io: Prefaced<T>,
    client: Peer,
    worker: &Arc<Worker>,
    state: &Arc<State>,
) -> hyper::Result<()>
where
    T: Line,
{
    let io = Watched::new(io, Arc::clone(state));
    // Boxed: the connections that speak HTTP/1 need not carry it.
    Box::pin(multiplexed::serve(io, client, worker, state)).await
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
            state.woken_by(cx.waker());
            known = true;
        }
        if !told && (state.is_draining() || core.draining()) {
            told = true;
            goodbye(Pin::new(connection));
        }
        Pin::new(&mut *connection).poll(cx)
    })
    .await
}

/// Says and counts what ended a connection: a head that was none, was too large or did not come, which
/// nobody else has heard of, or the client's leaving.
fn ended_badly(worker: &Worker, state: &State, client: Peer, error: &hyper::Error) {
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
    let detail: &dyn fmt::Display = match reason {
        Reason::HeadTimeout => &"the head did not come in time (limits.headTimeout)",
        _ => error,
    };
    worker.site().runtime.refused(reason, client.address, detail);
}
