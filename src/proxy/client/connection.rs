//! One client connection: served, watched, and told to stop.

use std::io;
use std::pin::Pin;
use std::sync::Arc;

use tokio::task::AbortHandle;

use super::conversation::{Conversation, End};
use super::multiplexed;
use crate::proxy::io::Io;
use crate::proxy::io::peer::{Over, Peer};
use crate::proxy::io::rewound::Rewound;
use crate::proxy::site::{Core, Worker};
use crate::proxy::watch::State;

/// An error that ended a connection.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    /// With HTTP/1.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// With HTTP/2.
    #[error(transparent)]
    Http2(#[from] hyper::Error),
}

/// Serves one connection until either side closes it. `task` is the task that runs this.
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

/// Serves the requests of a connection, in either protocol.
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
    // Boxed, so that HTTP/1.1 connections do not carry its size.
    Ok(Box::pin(multiplexed::serve(io, client, worker, state)).await?)
}

/// Polls a connection to its end, and calls `goodbye` when the process stops or the watch says so.
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
