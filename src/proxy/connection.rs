//! A client's connection: served, watched, and told to stop.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use tokio::task::AbortHandle;

use super::conversation::{Conversation, End};
use super::h1::Io;
use super::multiplexed;
use super::rewound::Rewound;
use super::site::{Core, Worker};
use super::watch::State;
use crate::language::engine::Alarm;

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
pub(crate) struct Busy(Arc<State>);

/// Why a connection ended that should not have.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    /// With HTTP/1.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// With HTTP/2.
    #[error(transparent)]
    Http2(#[from] hyper::Error),
}

impl Peer {
    /// One that speaks clear text.
    pub(crate) const fn clear(address: SocketAddr) -> Self {
        Self { address, over: Over::Clear }
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
        Self(Arc::clone(state))
    }

    /// The timer that the connection's last execution left, for the bounds of this one.
    pub(crate) fn take_alarm(&self) -> Alarm {
        self.0.take_alarm()
    }

    /// Keeps it for the next.
    pub(crate) fn keep_alarm(&self, alarm: Alarm) {
        self.0.keep_alarm(alarm);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Serves one connection until either side ends it. `task` is the task that this runs on.
pub(crate) async fn serve(io: Io, client: Peer, worker: Arc<Worker>, task: Option<AbortHandle>) {
    let core = Arc::clone(&worker.core);
    let (state, registered) = core.connections.register();
    if let Some(task) = task {
        registered.closed_by(task);
    }
    if let Err(error) = speak(io, client, &worker, &state).await {
        tracing::debug!(%client, %error, "A client's connection ended with an error.");
    }
    drop(registered);
}

/// Serves what is asked on a connection, in whichever protocol.
async fn speak(
    io: Io,
    client: Peer,
    worker: &Arc<Worker>,
    state: &Arc<State>,
) -> Result<(), Trouble> {
    let io = if client.over == (Over::Tls { http2: true }) {
        Rewound::new(io, bytes::Bytes::new())
    } else {
        let mut conversation = Conversation::new(io, client, worker, state);
        match conversation.hold().await? {
            End::Closed => return Ok(()),
            End::Http2(io) => io,
            End::Switched(tunnel, io) => {
                let idle = worker.site().runtime.limits.tunnel_timeout;
                Box::pin(tunnel.run(io, idle, &worker.core.cancel)).await;
                return Ok(());
            }
        }
    };
    // Boxed: the connections that speak HTTP/1 need not carry it.
    Ok(Box::pin(multiplexed::serve(io, client, worker, state)).await?)
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
