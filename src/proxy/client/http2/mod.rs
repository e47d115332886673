//! HTTP/2 with a client.
//!
//! One task serves a connection, as in HTTP/1.1 ([`http1`](super::http1)). It polls the connection, which reads and writes
//! frames, and those streams that were woken. So a stream needs no task and no channel, everything that the streams send in
//! one turn leaves in one flush, and if the connection is lost, everything that answers on it is dropped. The turns are
//! fair: a stream sends at most 64 KiB before the others, and at most 64 KiB are read before they are worked on.
//!
//! What the connection refuses itself (a malformed head or frame, a stream over the limit) never becomes a stream here. It
//! is counted and logged like any refusal.

mod stream;
mod turns;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};

use futures_util::stream::{FuturesUnordered, StreamExt as _};

use self::stream::{SessionContext, Stream};
use self::turns::Turns;
use crate::proxy::h2::{
    self, Builder, Reason as H2Reason, ServerConnection, WINDOW, connection_window,
};
use crate::proxy::io::Io;
use crate::proxy::io::peer::Peer;
use crate::proxy::io::prefixed::PrefixedIo;
use crate::proxy::message::refusal::{Reason, Refusal};
use crate::proxy::settings::{HeadLimits, Limits};
use crate::proxy::site::Worker;
use crate::proxy::watch::ConnectionState;
use crate::proxy::watch::write_watch::WriteWatch;

type Transport = WriteWatch<PrefixedIo<Io>>;

/// A connection and its open streams.
struct Http2Session {
    connection: ServerConnection<Transport>,
    streams: FuturesUnordered<Stream>,
    context: Arc<SessionContext>,
    turns: Turns,
    /// Whether the client was sent a GOAWAY because the connection shall close.
    leaving: bool,
    /// Whether the streams were polled because running requests are cut off.
    cut: bool,
}

/// What the connection is set to.
fn protocol(limits: &Limits, wire_limits: HeadLimits) -> Builder {
    let streams = u32::try_from(limits.streams).unwrap_or(u32::MAX);
    Builder::new()
        .max_concurrent_streams(streams)
        .initial_window_size(WINDOW)
        .initial_connection_window_size(connection_window(streams))
        .max_send_buffer_size(WINDOW as usize)
        .max_header_list_size(wire_limits.list_size())
}

/// The limits of a request's head on the wire, where its target is a field.
fn with_target(limits: &Limits) -> HeadLimits {
    let size = limits.head_size.saturating_add(limits.target_size);
    HeadLimits { size, fields: limits.headers }
}

/// Serves one connection until either side closes it. `io` still has the preface to read.
pub(super) async fn serve(
    io: PrefixedIo<Io>,
    client: Peer,
    worker: &Arc<Worker>,
    state: &Arc<ConnectionState>,
) -> Result<(), h2::Error> {
    state.multiplexed();
    let site = worker.site();
    let limits = &site.runtime.limits;
    let wire_limits = with_target(limits);
    let io = WriteWatch::new(io, Arc::clone(state));
    let (protocol, trailers) = (protocol(limits, wire_limits), limits.heads());
    drop(site);
    let mut connection = protocol.serve(io).await?;
    connection.take_turns();
    let turns = Turns::new();
    let context = SessionContext {
        client,
        worker: Arc::clone(worker),
        state: Arc::clone(state),
        sent: AtomicUsize::new(0),
        traffic: connection.traffic(),
        trailers,
        connection: turns.connection.clone(),
    };
    let mut session = Http2Session {
        connection,
        streams: FuturesUnordered::new(),
        context: Arc::new(context),
        turns,
        leaving: false,
        cut: false,
    };
    std::future::poll_fn(|cx| {
        state.woken_by(cx.waker());
        Poll::Ready(())
    })
    .await;
    std::future::poll_fn(|cx| session.poll(cx)).await
}

impl Http2Session {
    /// One turn. Ready when the connection has ended.
    fn poll(&mut self, cx: &Context<'_>) -> Poll<Result<(), h2::Error>> {
        let woken = self.turns.begin(cx);
        let told = self.check_state();
        let polled = self.poll_parts(woken || told);
        self.connection.flush(&mut Context::from_waker(&self.turns.connection));
        self.turns.end();
        polled
    }

    /// Polls the streams that were woken, and the connection if it was woken or `must` be polled.
    fn poll_parts(&mut self, mut must: bool) -> Poll<Result<(), h2::Error>> {
        loop {
            self.turns.poll_streams();
            let mut cx = Context::from_waker(&self.turns.streams);
            while let Poll::Ready(Some(())) = self.streams.poll_next_unpin(&mut cx) {}
            if !self.turns.connection_woken() && !must {
                return Poll::Pending;
            }
            must = false;
            let before = self.streams.len();
            let ended = self.poll_accept();
            self.context.sent.fetch_add(1, Relaxed);
            self.report_refused();
            if let Poll::Ready(ended) = ended {
                return Poll::Ready(ended.inspect_err(|error| self.report_broken(error)));
            }
            if self.streams.len() == before {
                return Poll::Pending;
            }
        }
    }

    /// Reacts to the process stopping, and to the watch over all connections. Returns whether the connection has something to
    /// send because of that.
    fn check_state(&mut self) -> bool {
        let mut told = false;
        let SessionContext { worker, state, .. } = self.context.as_ref();
        let core = &worker.core;
        if !self.leaving && (state.is_draining() || core.is_leaving()) {
            self.leaving = true;
            self.connection.graceful_shutdown();
            told = true;
        }
        if !self.cut && core.is_cut() {
            self.cut = true;
            // Collecting them anew has all of them polled.
            self.streams = std::mem::take(&mut self.streams).into_iter().collect();
        }
        told
    }

    /// Reads and writes frames, and accepts new streams. Ready when the connection has ended.
    fn poll_accept(&mut self) -> Poll<Result<(), h2::Error>> {
        let Self { connection, streams, context, turns, .. } = self;
        let mut cx = Context::from_waker(&turns.connection);
        while let Some(accepted) = ready!(connection.poll_accept(&mut cx)) {
            let (request, respond) = accepted?;
            let stream = Stream::new(context, request, respond);
            streams.push(stream);
        }
        Poll::Ready(Ok(()))
    }

    /// Counts and logs the streams that the connection has refused.
    fn report_refused(&self) {
        for refused in self.connection.take_refused() {
            let (reason, detail) = match refused {
                Some(H2Reason::REFUSED_STREAM) => {
                    (Reason::Overloaded, "more streams are open than limits.streams allows")
                }
                Some(_) => (Reason::MalformedHead, "the request is malformed"),
                None => (Reason::HeadTooLarge, "the request's fields far exceed their limit"),
            };
            self.refused(reason, &detail);
        }
    }

    /// Counts and logs the end of a connection, if the client has caused it.
    fn report_broken(&self, error: &h2::Error) {
        if error.is_library() {
            let calm = error.reason() == Some(H2Reason::ENHANCE_YOUR_CALM);
            self.refused(if calm { Reason::Flood } else { Reason::MalformedFrame }, error);
        }
    }

    fn refused(&self, reason: Reason, detail: &dyn std::fmt::Display) {
        let SessionContext { client, worker, .. } = self.context.as_ref();
        worker.site().refused(&Refusal::new(reason, detail.to_string()), client.address);
    }
}
