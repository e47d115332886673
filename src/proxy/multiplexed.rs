//! HTTP/2 from clients: many requests on one connection, each on a task of its own, so that none waits
//! for another.
//!
//! The sizes. A stream's window is 64 KiB: what a client may send ahead of an upstream that reads slowly,
//! and so the most that is held of one upload. The connection's window is that of all its streams together,
//! so that uploads which stand still cannot take the window from one that moves.

use std::pin::pin;
use std::sync::Arc;

use super::body::client::ClientBody;
use super::connection::{Busy, Peer, drive};
use super::execute;
use super::h1::Io;
use super::interim::{Dropped, Interim};
use super::rewound::Rewound;
use super::settings::Limits;
use super::site::Worker;
use super::watch::State;
use super::watched::Watched;
use http::header::{self, HeaderMap, HeaderValue};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};

/// How much one stream may be ahead, in bytes. The same towards upstreams.
pub(crate) const WINDOW: u32 = 64 * 1024;

/// How many requests one connection to an upstream carries at most, whatever it takes.
pub(crate) const STREAMS: u32 = 100;

/// How a worker reads HTTP/2 off its connections. The library's guards against clients that open streams
/// only to reset them are on as they come.
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

/// The window of a connection with this many streams, at most what the protocol has (RFC 9113 §6.9.1).
pub(crate) fn connection_window(streams: u32) -> u32 {
    const LARGEST: u32 = (1 << 31) - 1;
    WINDOW.saturating_mul(streams).min(LARGEST)
}

/// Serves one connection until either side ends it. `io` has the preface still before it.
pub(super) async fn serve(
    io: Rewound<Io>,
    client: Peer,
    worker: &Arc<Worker>,
    state: &Arc<State>,
) -> hyper::Result<()> {
    state.multiplexed();
    let protocol = protocol(&worker.site().runtime.limits);
    let service = {
        let (worker, state) = (Arc::clone(worker), Arc::clone(state));
        service_fn(move |request: http::Request<hyper::body::Incoming>| {
            let (worker, busy) = (Arc::clone(&worker), Busy::new(&state));
            let (interim, request) =
                (Interim::Nowhere(Dropped::Http2), request.map(ClientBody::Stream));
            async move {
                let answer = execute::serve(worker.site(), request, client, busy, interim);
                let mut response = until_cut(&worker, answer).await;
                // Closing a connection is said by GOAWAY here (RFC 9113 §8.2.2).
                response.headers_mut().remove(header::CONNECTION);
                Ok::<_, std::convert::Infallible>(response)
            }
        })
    };
    let io = TokioIo::new(Watched::new(io, Arc::clone(state)));
    let mut connection = protocol.serve_connection(io, service);
    drive(&mut connection, state, &worker.core, http2::Connection::graceful_shutdown).await
}

/// `answer`, which looks again when what still runs is cut off: a stream's task is no connection's, and
/// nobody else wakes it.
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

/// Makes the fields of an HTTP/2 request those that any HTTP version has: the crumbs of a cookie are joined
/// (RFC 9113 §8.2.3).
pub(crate) fn join_crumbs(headers: &mut HeaderMap) {
    let mut crumbs = headers.get_all(header::COOKIE).iter();
    let (Some(first), Some(second)) = (crumbs.next(), crumbs.next()) else {
        return;
    };
    let mut whole = first.as_bytes().to_vec();
    for crumb in std::iter::once(second).chain(crumbs) {
        whole.extend_from_slice(b"; ");
        whole.extend_from_slice(crumb.as_bytes());
    }
    // The crumbs were values, and so is what joins them.
    if let Ok(whole) = HeaderValue::from_bytes(&whole) {
        headers.insert(header::COOKIE, whole);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crumbs_make_one_cookie() {
        let mut headers = HeaderMap::new();
        for crumb in ["a=1", "b=2", "c=3"] {
            headers.append(header::COOKIE, HeaderValue::from_static(crumb));
            join_crumbs(&mut headers);
        }
        let all: Vec<_> = headers.get_all(header::COOKIE).iter().collect();
        assert_eq!(all, ["a=1; b=2; c=3"]);
    }

    #[test]
    fn a_connection_s_window_has_a_bound() {
        assert_eq!(connection_window(100), 100 * WINDOW);
        assert_eq!(connection_window(u32::MAX), (1 << 31) - 1);
    }
}
