//! A connection to a server.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};

use super::connection::{Connection, Shared, lock};
use super::error::{Error, Reason};
use super::frame::put_ping;
use super::handle::{Handle, RecvStream, SendStream};
use super::state::UserPing;
use super::stream::Direction;
use crate::proxy::h2::traffic::Traffic;

/// The payload of a caller's PING.
const PING: [u8; 8] = *b"answered";

/// A connection to a server. As a future, it reads and writes until it has ended: without a stream, once nobody can send
/// a request any more, or either side has said so.
#[derive(Debug)]
pub(crate) struct ClientConnection<T>(Connection<T>);

/// Sends requests.
#[derive(Debug)]
pub(crate) struct SendRequest(Shared);

/// Waits for the response to a request.
#[derive(Debug)]
pub(crate) struct ResponseFuture {
    stream: Handle,
    taken: bool,
}

/// Sends a PING at a time.
#[derive(Debug)]
pub(crate) struct PingPong(Shared);

impl<T> ClientConnection<T> {
    pub(super) const fn new(connection: Connection<T>) -> Self {
        Self(connection)
    }

    /// The counts of its bytes.
    pub(crate) fn traffic(&self) -> Arc<Traffic> {
        Arc::clone(&self.0.traffic)
    }

    /// From now on, its task takes turns. What it sends leaves with [`flush`](Self::flush) at the end of each.
    pub(crate) const fn take_turns(&mut self) {
        self.0.take_turns();
    }

    /// Sends PINGs on it.
    pub(crate) fn ping_pong(&self) -> PingPong {
        PingPong(Arc::clone(&self.0.shared))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> ClientConnection<T> {
    /// Ends a turn: writes what was gathered.
    pub(crate) fn flush(&mut self, cx: &mut Context<'_>) {
        self.0.flush(cx);
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Future for ClientConnection<T> {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().0.poll(cx)
    }
}

impl SendRequest {
    pub(super) const fn new(shared: Shared) -> Self {
        Self(shared)
    }

    /// Why no request can be sent, if none can. Those for which there is no place wait.
    pub(crate) fn check(&self) -> Result<(), Error> {
        lock(&self.0).unusable().map_or(Ok(()), Err)
    }

    /// Sends the head of a request. `end`: nothing follows it.
    pub(crate) fn send_request(
        &self,
        request: Request<()>,
        end: bool,
    ) -> Result<(ResponseFuture, SendStream), Error> {
        let parts = request.into_parts().0;
        let mut state = lock(&self.0);
        let key = state.send_request(parts, end)?;
        if let Some(stream) = state.streams.get_mut(key) {
            stream.handles = 2;
        }
        drop(state);
        let handle = || Handle::new(Arc::clone(&self.0), key);
        Ok((ResponseFuture { stream: handle(), taken: false }, SendStream::new(handle())))
    }

    /// How many requests the other side accepts at a time.
    pub(crate) fn current_max_send_streams(&self) -> usize {
        lock(&self.0).max_streams
    }
}

impl Clone for SendRequest {
    fn clone(&self) -> Self {
        lock(&self.0).senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl Drop for SendRequest {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        state.senders = state.senders.saturating_sub(1);
        if state.senders == 0 {
            state.notify();
        }
    }
}

impl ResponseFuture {
    /// The next interim response. `None` when there is none before the response, or it will never come.
    pub(crate) fn poll_informational(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Response<()>, Error>>> {
        let mut state = lock(&self.stream.shared);
        let Some(stream) = state.streams.get_mut(self.stream.key) else {
            return Poll::Ready(None);
        };
        if let Some(interim) = stream.interim.pop_front() {
            return Poll::Ready(Some(Ok(interim)));
        }
        if stream.receives != Direction::Head {
            return Poll::Ready(None);
        }
        if let Some(cause) = &stream.cause {
            return Poll::Ready(Some(Err(cause.into())));
        }
        stream.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Future for ResponseFuture {
    type Output = Result<Response<RecvStream>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = lock(&self.stream.shared);
        let Some(stream) = state.streams.get_mut(self.stream.key) else {
            return Poll::Ready(Err(Reason::INTERNAL_ERROR.into()));
        };
        stream.interim.clear();
        if let Some(response) = stream.response.take() {
            let recv = RecvStream::new(self.stream.another(&mut state));
            drop(state);
            self.taken = true;
            return Poll::Ready(Ok(response.map(|()| recv)));
        }
        if let Some(cause) = &stream.cause {
            return Poll::Ready(Err(cause.into()));
        }
        stream.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for ResponseFuture {
    fn drop(&mut self) {
        if !self.taken {
            lock(&self.stream.shared).drop_received(self.stream.key);
        }
    }
}

impl PingPong {
    /// Sends a PING, unless the last one is still unanswered.
    pub(crate) fn send_ping(&self) {
        let mut state = lock(&self.0);
        if state.ping != UserPing::Sent && state.cause.is_none() {
            state.ping = UserPing::Sent;
            put_ping(state.out.buffer(), 0, PING);
            state.notify();
        }
    }
}
