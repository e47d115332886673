//! Serves one connection without a listener or a server, for fuzz targets: these have bytes and no sockets.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};

use crate::proxy::client::connection;
use crate::proxy::io::Io;
use crate::proxy::io::peer::Peer;
use crate::proxy::site::runtime::Runtime;
use crate::proxy::site::{Worker, WorkerState};
use crate::proxy::watch::Timeouts;

/// Serves one client connection with `runtime` until either side closes it or a timeout does. Runs on the Tokio
/// runtime that polls it, which keeps time. Each of `idle` is an idle connection to the first endpoint of the
/// first upstream.
pub async fn serve<U>(
    runtime: Arc<Runtime>,
    client: DuplexStream,
    idle: impl IntoIterator<Item = U>,
) where
    U: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static,
{
    let patience = Timeouts::of(&runtime.limits);
    let worker = Arc::new(Worker::new(Arc::new(WorkerState::new()), runtime));
    if let Some(first) = worker.site().upstreams.first() {
        idle.into_iter().for_each(|io| first.adopt(io));
    }
    let (tell, told) = tokio::sync::oneshot::channel();
    let serving = Arc::clone(&worker);
    let task = tokio::spawn(async move {
        let nowhere = Peer::clear(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let client = Io::Other(Box::new(client));
        connection::serve(client, nowhere, serving, told.await.ok()).await;
    });
    // The task waits for this before it serves, so the receiver cannot be gone.
    drop(tell.send(task.abort_handle()));
    tokio::select! {
        ended = task => {
            // A panic is for the caller to see. A timeout is a normal end.
            if let Err(error) = ended && error.is_panic() {
                std::panic::resume_unwind(error.into_panic());
            }
        }
        () = worker.core.connections.watch(|| patience) => {}
    }
}
