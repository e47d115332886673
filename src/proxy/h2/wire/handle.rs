//! Handles to a stream: what is sent on it, and what is received.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::HeaderMap;

use super::connection::{Shared, lock};
use super::error::{Cause, Error, Initiator, Reason};
use super::state::State;
use super::stream::{Direction, Key, Trailers};

/// A handle to a stream. When the last one is dropped, the stream is over.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) shared: Shared,
    pub(super) key: Key,
}

/// Sends a body.
#[derive(Debug)]
pub(crate) struct SendStream(Handle);

/// Receives a body. Without it, nobody reads the body.
#[derive(Debug)]
pub(crate) struct RecvStream(Handle);

impl Handle {
    /// A handle that the stream has counted already.
    pub(super) const fn new(shared: Shared, key: Key) -> Self {
        Self { shared, key }
    }

    /// Another handle to the same stream.
    pub(super) fn another(&self, state: &mut State) -> Self {
        if let Some(stream) = state.streams.get_mut(self.key) {
            stream.handles += 1;
        }
        Self { shared: Arc::clone(&self.shared), key: self.key }
    }

    /// Ready when the stream was reset, or its connection has ended.
    pub(super) fn poll_reset(&self, cx: &Context<'_>) -> Poll<Result<Reason, Error>> {
        let mut state = lock(&self.shared);
        let Some(stream) = state.streams.get_mut(self.key) else {
            return Poll::Ready(Ok(Reason::INTERNAL_ERROR));
        };
        match &stream.cause {
            None => {
                wait(&mut stream.writer, cx);
                Poll::Pending
            }
            Some(Cause::Reset(reason, _) | Cause::GoAway(reason, ..)) => Poll::Ready(Ok(*reason)),
            Some(cause) => Poll::Ready(Err(cause.into())),
        }
    }
}

/// The task of `cx` waits.
fn wait(place: &mut Option<Waker>, cx: &Context<'_>) {
    if !place.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
        *place = Some(cx.waker().clone());
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        lock(&self.shared).drop_handle(self.key);
    }
}

impl SendStream {
    pub(super) const fn new(handle: Handle) -> Self {
        Self(handle)
    }

    /// Wants to send so much more. What is not wanted any more is left to other streams.
    pub(crate) fn reserve_capacity(&mut self, size: usize) {
        lock(&self.0.shared).reserve(self.0.key, size);
    }

    /// How much may be sent now.
    pub(crate) fn capacity(&self) -> usize {
        let state = lock(&self.0.shared);
        let buffer = state.settings.max_send_buffer_size;
        state.streams.get(self.0.key).map_or(0, |stream| stream.capacity(buffer))
    }

    /// Ready with the capacity once there is any. `None`: nothing can be sent on this stream any more.
    pub(crate) fn poll_capacity(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<usize, Error>>> {
        let mut state = lock(&self.0.shared);
        let buffer = state.settings.max_send_buffer_size;
        let stream = state.streams.get_mut(self.0.key).filter(|stream| stream.takes_data());
        let Some(stream) = stream else {
            return Poll::Ready(None);
        };
        match stream.capacity(buffer) {
            0 => {
                wait(&mut stream.writer, cx);
                Poll::Pending
            }
            capacity => Poll::Ready(Some(Ok(capacity))),
        }
    }

    /// Sends data. `end`: nothing follows it.
    pub(crate) fn send_data(&mut self, data: Bytes, end: bool) -> Result<(), Error> {
        lock(&self.0.shared).send_data(self.0.key, data, end)
    }

    /// Sends trailers, which end the stream.
    pub(crate) fn send_trailers(&mut self, fields: HeaderMap) -> Result<(), Error> {
        lock(&self.0.shared).send_trailers(self.0.key, fields)
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

impl RecvStream {
    pub(super) const fn new(handle: Handle) -> Self {
        Self(handle)
    }

    /// The next piece of the body. `None` after the last.
    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        let state = &mut *lock(&self.0.shared);
        let Some(stream) = state.streams.get_mut(self.0.key) else {
            return Poll::Ready(None);
        };
        if let Some(data) = stream.data.pop_front() {
            if !(stream.ends_with_data && stream.data.is_empty()) {
                state.guard.taken(data.len());
            }
            return Poll::Ready(Some(Ok(data)));
        }
        if stream.receives == Direction::Ended {
            return Poll::Ready(None);
        }
        if let Some(cause) = &stream.cause {
            return Poll::Ready(Some(Err(cause.into())));
        }
        wait(&mut stream.reader, cx);
        Poll::Pending
    }

    /// The trailers, once all data was taken.
    pub(crate) fn poll_trailers(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<HeaderMap>, Error>> {
        let mut state = lock(&self.0.shared);
        let Some(stream) = state.streams.get_mut(self.0.key) else {
            return Poll::Ready(Ok(None));
        };
        if stream.data.is_empty() {
            match stream.trailers.take() {
                Some(Trailers::Whole(fields)) => return Poll::Ready(Ok(Some(*fields))),
                Some(Trailers::TooLarge) => {
                    return Poll::Ready(Err(Error::trailers_too_large()));
                }
                None if stream.receives == Direction::Ended => return Poll::Ready(Ok(None)),
                None => {}
            }
            if let Some(cause) = &stream.cause {
                return Poll::Ready(Err(cause.into()));
            }
        }
        wait(&mut stream.reader, cx);
        Poll::Pending
    }

    /// The same as [`poll_data`](Self::poll_data).
    pub(crate) async fn data(&mut self) -> Option<Result<Bytes, Error>> {
        poll_fn(|cx| self.poll_data(cx)).await
    }

    /// The same as [`poll_trailers`](Self::poll_trailers).
    pub(crate) async fn trailers(&mut self) -> Result<Option<HeaderMap>, Error> {
        poll_fn(|cx| self.poll_trailers(cx)).await
    }

    /// So much of the data was worked on: the other side may send as much again.
    pub(crate) fn release_capacity(&mut self, size: usize) {
        let state = &mut *lock(&self.0.shared);
        let Some(stream) = state.streams.get_mut(self.0.key) else {
            return;
        };
        let size = u32::try_from(size).unwrap_or(u32::MAX).min(stream.window.in_flight());
        let due = stream.window.release(size) && stream.receives != Direction::Ended;
        if due && stream.cause.is_none() && !std::mem::replace(&mut stream.updating, true) {
            state.updating.push(self.0.key);
            state.notify();
        }
        state.release(size);
    }

    /// The identifier of its stream.
    #[cfg(test)]
    pub(super) fn id(&self) -> u32 {
        lock(&self.0.shared).streams.get(self.0.key).map_or(0, |stream| stream.id)
    }

    /// Whether all of the body was received and taken.
    pub(crate) fn is_end_stream(&self) -> bool {
        let state = lock(&self.0.shared);
        state.streams.get(self.0.key).is_none_or(super::stream::Stream::is_read)
    }
}

impl Drop for RecvStream {
    fn drop(&mut self) {
        lock(&self.0.shared).drop_received(self.0.key);
    }
}
