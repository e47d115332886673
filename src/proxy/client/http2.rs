//! HTTP/2 connections with clients. Each request is served on its own task, so that none waits for another.

use std::pin::pin;
use std::sync::Arc;

use super::connection::drive;
use crate::proxy::body::client::ClientBody;
use crate::proxy::h1::DropReason;
use crate::proxy::h2::{WINDOW, connection_window};
use crate::proxy::io::Io;
use crate::proxy::io::peer::Peer;
use crate::proxy::io::prefixed::PrefixedIo;
use crate::proxy::request::interim::InterimTarget;
use crate::proxy::run::execute;
use crate::proxy::settings::Limits;
use crate::proxy::site::Worker;
use crate::proxy::watch::ConnectionState;
use crate::proxy::watch::busy::BusyGuard;
use crate::proxy::watch::write_watch::WriteWatch;
use http::header;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};

/// How a worker speaks HTTP/2. The library's defaults already protect against clients that open streams only to
/// reset them.
fn protocol(limits: &Limits) -> http2::Builder<TokioExecutor> {
    let streams = u32::try_from(limits.streams).unwrap_or(u32::MAX);
    let head = u32::try_from(limits.head_size).unwrap_or(u32::MAX);
    let mut protocol = http2::Builder::new(TokioExecutor::new());
    protocol
        .max_concurrent_streams(streams)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(connection_window(streams))
        .max_send_buf_size(WINDOW as usize)
        .max_header_list_size(head);
    protocol
}

/// Serves one connection until either side closes it. `io` still has the preface to read.
pub(super) async fn serve(
    io: PrefixedIo<Io>,
    client: Peer,
    worker: &Arc<Worker>,
    state: &Arc<ConnectionState>,
) -> hyper::Result<()> {
    state.multiplexed();
    let protocol = protocol(&worker.site().runtime.limits);
    let service = {
        let (worker, state) = (Arc::clone(worker), Arc::clone(state));
        service_fn(move |request: http::Request<hyper::body::Incoming>| {
            let (worker, busy) = (Arc::clone(&worker), BusyGuard::new(&state));
            let (head, body) = request.into_parts();
            let (head, body) = (head.into(), ClientBody::Http2(body));
            let interim = InterimTarget::Nowhere(DropReason::Http2);
            async move {
                let answer = execute::serve(worker.site(), head, body, client, busy, interim);
                let mut response = until_cut(&worker, answer).await;
                // HTTP/2 closes a connection with GOAWAY instead (RFC 9113 §8.2.2).
                response.headers_mut().remove(header::CONNECTION);
                // The library resets the stream of a request that fails.
                if response.body().is_withheld() { Err(Withheld) } else { Ok(response) }
            }
        })
    };
    let io = TokioIo::new(WriteWatch::new(io, Arc::clone(state)));
    let mut connection = protocol.serve_connection(io, service);
    drive(&mut connection, state, &worker.core, http2::Connection::graceful_shutdown).await
}

/// A request that gets no answer.
#[derive(Debug, thiserror::Error)]
#[error("the answer is withheld")]
struct Withheld;

/// Polls `answer`, and polls it again when running requests are cut off: nothing else wakes a stream's task then.
async fn until_cut<F: Future>(worker: &Worker, answer: F) -> F::Output {
    let mut answer = pin!(answer);
    let mut cut = pin!(worker.core.cancel.cancelled());
    let mut is_cut = false;
    std::future::poll_fn(|cx| {
        if !is_cut && cut.as_mut().poll(cx).is_ready() {
            is_cut = true;
        }
        answer.as_mut().poll(cx)
    })
    .await
}
