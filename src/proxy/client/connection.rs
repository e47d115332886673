//! One client connection: served, watched, and told to stop.

use std::io;
use std::sync::Arc;

use tokio::task::AbortHandle;

use super::http1::{Http1Session, SessionEnd};
use super::http2;
use crate::proxy::h2;
use crate::proxy::io::Io;
use crate::proxy::io::peer::{Negotiated, Peer};
use crate::proxy::io::prefixed::PrefixedIo;
use crate::proxy::site::Worker;
use crate::proxy::watch::ConnectionState;

/// An error that ended a connection.
#[derive(Debug, thiserror::Error)]
enum ServeError {
    /// With HTTP/1.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// With HTTP/2.
    #[error(transparent)]
    Http2(#[from] h2::Error),
}

/// Serves one connection until either side closes it. `task` is the task that runs this.
pub(crate) async fn serve(io: Io, client: Peer, worker: Arc<Worker>, task: Option<AbortHandle>) {
    let core = Arc::clone(&worker.core);
    let (state, registered) = core.connections.register(io.addresses(client.address));
    if let Some(task) = task {
        registered.closed_by(task);
    }
    serve_registered(io, client, &worker, &state).await;
    drop(registered);
}

/// The same for a connection of which the watch knows.
pub(super) async fn serve_registered(
    io: Io,
    client: Peer,
    worker: &Arc<Worker>,
    state: &Arc<ConnectionState>,
) {
    let address = client.address;
    if let Err(error) = speak(io, client, worker, state).await {
        tracing::debug!(client = %address, %error, "A client's connection ended with an error.");
    }
}

/// Serves the requests of a connection, in either protocol.
async fn speak(
    io: Io,
    client: Peer,
    worker: &Arc<Worker>,
    state: &Arc<ConnectionState>,
) -> Result<(), ServeError> {
    let io = if client.over == (Negotiated::Tls { http2: true }) {
        PrefixedIo::new(io, bytes::Bytes::new())
    } else {
        let mut conversation = Http1Session::new(io, client.clone(), worker, state);
        match conversation.hold().await? {
            SessionEnd::Closed => return Ok(()),
            SessionEnd::Http2(io) => io,
            SessionEnd::Switched(tunnel, io) => {
                let idle = worker.site().runtime.limits.tunnel_timeout;
                Box::pin(tunnel.run(io, idle, &worker.core.cancel)).await;
                return Ok(());
            }
        }
    };
    // Boxed, so that HTTP/1.1 connections do not carry its size.
    Ok(Box::pin(http2::serve(io, client, worker, state)).await?)
}
