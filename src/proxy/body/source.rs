//! The client's request body, and the attempts that send it.
//!
//! An attempt reads the client's stream and passes it on. If the route may repeat the request, the data is
//! kept, up to a limit. The next attempt first replays what is kept and then continues reading where the last
//! one stopped. So a replay needs no second buffer, and an upload that was answered early (a 503 after the
//! first kilobyte, say) is still complete for the next attempt.
//!
//! Only one attempt reads at a time. When the next one takes over, the body of the previous one fails, which
//! aborts its request instead of ending it short. When more was read than the limit allows, everything kept is
//! dropped, and [`ReplaySource::attempt`] refuses.

mod attempt;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::Body;
use http_body_util::BodyExt;

pub use self::attempt::AttemptBody;
use super::BodyError;
use crate::proxy::h1::{self, Malformed};
use crate::proxy::memory::{Budget, Reservation};
use crate::proxy::message::trailers::permitted;
use crate::proxy::settings::BodyPatience;
use crate::telemetry::metrics::BodyUse;

/// How many bytes of an unwanted body are read so that its connection can be used again.
const READ_OUT: usize = 64 * 1024;

/// Chunks up to this size, in bytes, are merged before they are kept.
const SMALL: usize = 512;
/// A merged chunk has up to this size, in bytes.
const TOGETHER: usize = 4 * 1024;

/// A request body from a client.
#[derive(Debug)]
pub struct ReplaySource<B> {
    /// Locked for one poll at a time, by the thread that owns the request.
    state: Mutex<SourceState<B>>,
    /// The length that the client declared.
    length: Option<u64>,
}

#[derive(Debug)]
struct SourceState<B> {
    /// The rest of the body. `None` once it has ended, well or badly.
    stream: Option<B>,
    /// The trailers, once they were read. They are few and are kept for every attempt.
    trailers: Option<Box<HeaderMap>>,
    /// The data that can be replayed. `None` if nothing is kept, or not any more.
    kept: Option<ReplayBuffer>,
    /// How many bytes were read.
    read: u64,
    /// The number of the attempt that may read. Each attempt increments it.
    turn: u32,
    /// How many bytes this attempt has handed on.
    sent: u64,
    /// Whether it has handed on the end.
    ended: bool,
    /// How the stream broke off, if it did.
    broken: Option<BodyFailure>,
    /// Wakes this attempt.
    waker: Option<Waker>,
}

#[derive(Debug)]
struct ReplayBuffer {
    chunks: VecDeque<Bytes>,
    bytes: usize,
    limit: usize,
    /// Its part of what all bodies may keep.
    reservation: Option<Reservation>,
}

/// How a client's body broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyFailure {
    /// The client left.
    Gone,
    /// The client sent something malformed.
    Malformed,
    /// The client stalled for too long, or sent too slowly.
    Stalled,
}

impl BodyFailure {
    /// Interprets an error: a body that cannot be decoded is the client's mistake; anything else means that it left.
    fn of(error: &(dyn std::error::Error + 'static)) -> Self {
        let mut at = Some(error);
        while let Some(error) = at {
            let http = error.downcast_ref::<h1::Error>();
            if error.is::<Malformed>() || matches!(http, Some(h1::Error::Malformed(_))) {
                return Self::Malformed;
            }
            at = error.source();
        }
        Self::Gone
    }
}

/// More of the body was read than is kept, so it cannot be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotReplayable;

impl<B> ReplaySource<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// A body of which up to `keep` bytes are kept for replay, or nothing.
    pub fn new(stream: B, keep: Option<usize>) -> Self {
        let length = stream.size_hint().exact();
        let kept = keep.map(|limit| ReplayBuffer {
            chunks: VecDeque::new(),
            bytes: 0,
            limit,
            reservation: None,
        });
        Self {
            state: Mutex::new(SourceState {
                stream: Some(stream),
                trailers: None,
                kept,
                read: 0,
                turn: 0,
                sent: 0,
                ended: false,
                broken: None,
                waker: None,
            }),
            length,
        }
    }

    /// The same, but what is kept counts in `memory`, and nothing is kept for which there is no room.
    pub(crate) fn within(self, memory: &Arc<Budget>) -> Self {
        if let Some(kept) = &mut self.lock().kept {
            kept.reservation = Some(memory.reservation());
        }
        self
    }

    /// The whole body for the next attempt. The previous attempt can read no more.
    ///
    /// # Errors
    /// When more was read than is kept.
    pub fn attempt(
        self: &Arc<Self>,
        patience: impl Into<BodyPatience>,
    ) -> Result<AttemptBody<B>, NotReplayable> {
        let mut state = self.lock();
        if !state.replayable() {
            return Err(NotReplayable);
        }
        state.turn = state.turn.wrapping_add(1);
        state.sent = 0;
        state.ended = false;
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
        Ok(AttemptBody::new(Arc::clone(self), state.turn, patience.into()))
    }

    /// Reads the whole body and its trailers before any attempt sends it. `None` if it is longer than what may
    /// be kept: then no attempt can send it.
    pub(crate) async fn read_ahead(
        self: &Arc<Self>,
        patience: impl Into<BodyPatience>,
    ) -> Result<Option<(Bytes, Option<HeaderMap>)>, BodyError> {
        let Ok(mut attempt) = self.attempt(patience) else {
            return Ok(None);
        };
        let mut all = BytesMut::new();
        let mut trailers = None;
        while let Some(frame) = attempt.frame().await {
            match frame?.into_data() {
                Ok(chunk) => all.extend_from_slice(&chunk),
                Err(frame) => trailers = frame.into_trailers().ok(),
            }
            if !self.replayable() {
                return Ok(None);
            }
        }
        let reservation = self.lock().kept.as_mut().and_then(|kept| kept.reservation.take());
        let all = all.freeze();
        let all = match reservation {
            Some(part) => part.join(all),
            None => all,
        };
        Ok(Some((all, trailers)))
    }

    /// Discards what the client has already sent, up to a limit, because its request has been answered. Returns
    /// whether that was all. An attempt that still reads fails.
    pub(crate) fn read_out(&self) -> bool {
        let mut left = READ_OUT;
        let mut cx = Context::from_waker(Waker::noop());
        self.take_over();
        let mut state = self.lock();
        state.kept = None;
        if state.broken.is_some() {
            // Nobody knows where it would end.
            return false;
        }
        loop {
            match state.poll_read(&mut cx) {
                Poll::Ready(Some(Ok(chunk))) if chunk.len() < left => {
                    left = left.saturating_sub(chunk.len());
                    if self.length == Some(state.read) {
                        return true;
                    }
                }
                Poll::Ready(ended) => return ended.is_none(),
                Poll::Pending => return false,
            }
        }
    }

    fn take_over(&self) {
        let mut state = self.lock();
        state.turn = state.turn.wrapping_add(1);
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    /// The attempt with this number, if it is the current one, fails and reads no more.
    pub(crate) fn abandon(&self, turn: u32) {
        let mut state = self.lock();
        if state.turn == turn {
            state.turn = turn.wrapping_add(1);
            if let Some(waker) = state.waker.take() {
                waker.wake();
            }
        }
    }

    /// Whether everything that was read could be sent again.
    pub(crate) fn replayable(&self) -> bool {
        self.lock().replayable()
    }

    /// Whether the whole body was read.
    pub(crate) fn finished(&self) -> bool {
        let state = self.lock();
        // After the last byte of a declared length, nobody reads the end.
        let ended = state.stream.is_none() || self.length == Some(state.read);
        ended && state.broken.is_none()
    }

    /// Whether the attempt with this number has handed on the whole body. With a declared length nobody reads
    /// the end, so the bytes that were handed on count.
    pub(crate) fn sent(&self, turn: u32) -> bool {
        let state = self.lock();
        state.turn == turn && (state.ended || self.length == Some(state.sent))
    }

    /// How many bytes of it were read.
    pub(crate) fn read(&self) -> u64 {
        self.lock().read
    }

    /// Whether an attempt has sent it, or begun to.
    pub(crate) fn is_taken(&self) -> bool {
        self.lock().turn > 0
    }

    /// Whether nothing of it was read, so that its client may still wait for a 100.
    pub(crate) fn is_unread(&self) -> bool {
        let state = self.lock();
        state.read == 0 && state.stream.is_some()
    }

    /// How the client's body broke off, if it did.
    pub(crate) fn broken(&self) -> Option<BodyFailure> {
        self.lock().broken
    }

    fn lock(&self) -> MutexGuard<'_, SourceState<B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B> SourceState<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// Whether trailers may follow the last byte. With a declared length, only HTTP/2 has them.
    fn may_trail(&self) -> bool {
        let more = self.stream.as_ref().is_some_and(|stream| !stream.is_end_stream());
        more || self.trailers.is_some()
    }

    fn replayable(&self) -> bool {
        self.broken.is_none() && (self.read == 0 || self.kept.is_some())
    }

    /// The next chunk from the client.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        let Some(stream) = &mut self.stream else {
            return Poll::Ready(None);
        };
        match super::poll_frame(Pin::new(stream), cx) {
            Poll::Pending => {
                self.waker = Some(cx.waker().clone());
                Poll::Pending
            }
            Poll::Ready(None) => {
                self.stream = None;
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(error))) => {
                let error = error.into();
                self.stream = None;
                self.broken = Some(BodyFailure::of(error.as_ref()));
                Poll::Ready(Some(Err(BodyError::Client(error))))
            }
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(chunk) => {
                    self.keep(&chunk);
                    Poll::Ready(Some(Ok(chunk)))
                }
                Err(frame) => {
                    let trailers = frame.into_trailers().ok().and_then(permitted);
                    self.trailers = trailers.map(Box::new);
                    self.stream = None;
                    Poll::Ready(None)
                }
            },
        }
    }

    fn keep(&mut self, chunk: &Bytes) {
        self.read = self.read.saturating_add(chunk.len() as u64);
        let Some(kept) = &mut self.kept else { return };
        if kept.bytes.saturating_add(chunk.len()) > kept.limit || !kept.has_room(chunk.len()) {
            self.kept = None;
            return;
        }
        kept.add(chunk);
    }
}

impl ReplayBuffer {
    /// Whether all bodies together may keep `more` bytes.
    fn has_room(&mut self, more: usize) -> bool {
        let Some(reservation) = &mut self.reservation else {
            return true;
        };
        let room = reservation.grow(more);
        if !room {
            reservation.refused(BodyUse::Replay);
        }
        room
    }

    /// Small chunks are copied together. Kept separately, each would hold many times its size, because it
    /// refers to the whole read buffer. Only the attempt that has sent everything that is kept reads on, so
    /// nobody is in the middle of the last chunk.
    fn add(&mut self, chunk: &Bytes) {
        self.bytes += chunk.len();
        let fits = |last: &&mut Bytes| chunk.len() <= SMALL && last.len() + chunk.len() <= TOGETHER;
        match self.chunks.back_mut().filter(fits) {
            Some(last) => {
                let joined = std::mem::take(last).try_into_mut();
                let mut joined = joined.unwrap_or_else(|shared| {
                    let mut own = BytesMut::with_capacity(TOGETHER);
                    own.extend_from_slice(&shared);
                    own
                });
                joined.extend_from_slice(chunk);
                *last = joined.freeze();
            }
            None => self.chunks.push_back(chunk.clone()),
        }
    }
}

#[cfg(test)]
mod tests;
