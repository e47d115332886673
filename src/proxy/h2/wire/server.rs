//! A client's connection, served.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};

use super::connection::{Connection, lock};
use super::error::{Error, Initiator, Reason};
use super::handle::{Handle, RecvStream, SendStream};
use super::state::{Refused, State};
use super::stream::Key;
use crate::proxy::h2::traffic::Traffic;

/// A client's connection.
#[derive(Debug)]
pub(crate) struct ServerConnection<T>(Connection<T>);

/// Answers a request.
#[derive(Debug)]
pub(crate) struct SendResponse(Handle);

/// A request, and what answers it.
type Accepted = (Request<RecvStream>, SendResponse);

impl<T> ServerConnection<T> {
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

    /// Tells the client that the connection will close, and closes it when all streams have ended.
    pub(crate) fn graceful_shutdown(&self) {
        lock(&self.0.shared).announce_farewell();
    }

    /// How streams were refused since the last call.
    pub(crate) fn take_refused(&self) -> Vec<Refused> {
        std::mem::take(&mut lock(&self.0.shared).refused)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> ServerConnection<T> {
    /// The next request. `None` when the connection has ended.
    pub(crate) fn poll_accept(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Accepted, Error>>> {
        if let Some(accepted) = self.take_next() {
            return Poll::Ready(Some(Ok(accepted)));
        }
        let polled = self.0.poll(cx);
        if let Some(accepted) = self.take_next() {
            return Poll::Ready(Some(Ok(accepted)));
        }
        let ended = ready!(polled);
        Poll::Ready(ended.err().map(Err))
    }

    /// The same.
    pub(crate) async fn accept(&mut self) -> Option<Result<Accepted, Error>> {
        std::future::poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// Ends a turn: writes what was gathered.
    pub(crate) fn flush(&mut self, cx: &mut Context<'_>) {
        self.0.flush(cx);
    }

    /// How many bytes wait for the socket.
    #[cfg(test)]
    pub(super) fn gathered(&self) -> usize {
        lock(&self.0.shared).out.unwritten().len()
    }

    fn take_next(&self) -> Option<Accepted> {
        let mut state = lock(&self.0.shared);
        let (key, request) = state.take_request()?;
        drop(state);
        let handle = || Handle::new(Arc::clone(&self.0.shared), key);
        let (recv, send) = (RecvStream::new(handle()), SendResponse(handle()));
        Some((request.map(|()| recv), send))
    }
}

impl State {
    /// The next request that nobody has accepted, and the place of its stream, to which there are two handles.
    fn take_request(&mut self) -> Option<(Key, Request<()>)> {
        let key = self.untaken.pop_front()?;
        let stream = self.streams.get_mut(key)?;
        stream.untaken = false;
        stream.handles = 2;
        self.served = self.served.max(stream.id);
        if stream.cause.is_some() {
            self.guard.taken_reset();
        }
        let request = stream.request.take()?;
        Some((key, *request))
    }
}

impl SendResponse {
    /// Sends the head of the answer. `end`: nothing follows it.
    pub(crate) fn send_response(
        &mut self,
        response: Response<()>,
        end: bool,
    ) -> Result<SendStream, Error> {
        let parts = response.into_parts().0;
        let mut state = lock(&self.0.shared);
        state.send_response(self.0.key, (parts.status, parts.headers), end)?;
        let another = self.0.another(&mut state);
        drop(state);
        Ok(SendStream::new(another))
    }

    /// Sends an interim response.
    pub(crate) fn send_informational(&mut self, response: Response<()>) -> Result<(), Error> {
        let parts = response.into_parts().0;
        if !parts.status.is_informational() {
            return Err(Error::misuse("not an interim response"));
        }
        let mut state = lock(&self.0.shared);
        state.send_response(self.0.key, (parts.status, parts.headers), false)
    }

    /// Resets the stream.
    pub(crate) fn send_reset(&mut self, reason: Reason) {
        lock(&self.0.shared).reset(self.0.key, reason, Initiator::User);
    }

    /// Ready when the stream was reset.
    pub(crate) fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<Result<Reason, Error>> {
        self.0.poll_reset(cx)
    }
}
