//! The client's request body, and the attempts that send it.
//!
//! One stream comes in; an attempt reads it and passes it on. Where the route may send the request
//! again, what was read is kept up to a bound, and the next attempt first replays what is kept, then
//! goes on reading where the last one stopped. So a replay needs no second buffer, and an upload that
//! is answered early (a 503 after the first kilobyte) is still complete for the attempt after it.
//!
//! One attempt reads at a time, and the latest wins: taking the body over makes the body of the
//! attempt before it fail, which aborts that upstream request instead of ending it short. Once more was
//! read than the bound allows, all that was kept is let go, and [`Source::attempt`] refuses.

mod attempt;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::Body;
use http_body_util::BodyExt;

pub use self::attempt::Attempt;
use super::BodyError;
use crate::proxy::h1::Malformed;
use crate::proxy::message::trailers::permitted;

/// How much is read, in bytes, of a body that nobody wants, so that its connection can be used again.
const READ_OUT: usize = 64 * 1024;

/// Chunks up to this size, in bytes, are not kept each by itself.
const SMALL: usize = 512;
/// They are put together up to this size, in bytes.
const TOGETHER: usize = 4 * 1024;

/// A request body that comes from a client.
#[derive(Debug)]
pub struct Source<B> {
    /// Locked for one poll at a time, by the one thread that owns the request.
    state: Mutex<State<B>>,
    /// The length that the client declared.
    length: Option<u64>,
}

#[derive(Debug)]
struct State<B> {
    /// What is still to be read. `None` once it ended, well or badly.
    stream: Option<B>,
    /// The trailers, once they were read: few, and kept for every attempt.
    trailers: Option<Box<HeaderMap>>,
    /// What was read and may be replayed. `None` where nothing is kept, or no longer.
    kept: Option<Kept>,
    /// How much was read.
    read: u64,
    /// Which attempt may read; counts up with each.
    turn: u32,
    /// How much the attempt whose turn it is has handed on.
    sent: u64,
    /// Whether it has handed on the end.
    ended: bool,
    /// How the stream ended, where it ended badly.
    broken: Option<Broken>,
    /// Where the attempt whose turn it is waits.
    waker: Option<Waker>,
}

#[derive(Debug)]
struct Kept {
    chunks: VecDeque<Bytes>,
    bytes: usize,
    limit: usize,
}

/// How a client's body ended before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The client went away.
    Gone,
    /// What it sent is no body.
    Malformed,
    /// It sent nothing for too long.
    Stalled,
}

impl Broken {
    /// What an error says: a body that cannot be decoded is the client's mistake, anything else its end.
    fn of(error: &(dyn std::error::Error + 'static)) -> Self {
        let mut at = Some(error);
        while let Some(error) = at {
            if error.is::<Malformed>() {
                return Self::Malformed;
            }
            at = error.source();
        }
        Self::Gone
    }
}

/// The body was read further than was kept: it cannot be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotReplayable;

impl<B> Source<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// A body that is kept for replay up to `keep` bytes, or not at all.
    pub fn new(stream: B, keep: Option<usize>) -> Self {
        let length = stream.size_hint().exact();
        let kept = keep.map(|limit| Kept { chunks: VecDeque::new(), bytes: 0, limit });
        Self {
            state: Mutex::new(State {
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

    /// The whole body, for the next attempt; the one before it can read no more.
    ///
    /// # Errors
    /// Where more was read than is kept.
    pub fn attempt(self: &Arc<Self>, stall: Duration) -> Result<Attempt<B>, NotReplayable> {
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
        Ok(Attempt::new(Arc::clone(self), state.turn, stall))
    }

    /// All of the body and its trailers, before any attempt sends it. `None` where it is longer than what may be
    /// kept: then no attempt can send it.
    pub(crate) async fn read_ahead(
        self: &Arc<Self>,
        stall: Duration,
    ) -> Result<Option<(Bytes, Option<HeaderMap>)>, BodyError> {
        let Ok(mut attempt) = self.attempt(stall) else {
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
        Ok(Some((all.freeze(), trailers)))
    }

    /// Reads what the client has sent already, within a bound, for nobody: its request is answered. True where
    /// that was the rest. An attempt that still reads can read no more and fails.
    pub(crate) fn read_out(&self) -> bool {
        let mut left = READ_OUT;
        let mut cx = Context::from_waker(Waker::noop());
        self.take_over();
        let mut state = self.lock();
        state.kept = None;
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

    /// The attempt of this turn, where it still has it, can read no more and fails.
    pub(crate) fn abandon(&self, turn: u32) {
        let mut state = self.lock();
        if state.turn == turn {
            state.turn = turn.wrapping_add(1);
            if let Some(waker) = state.waker.take() {
                waker.wake();
            }
        }
    }

    /// Whether all that was read so far could be sent once more.
    pub(crate) fn replayable(&self) -> bool {
        self.lock().replayable()
    }

    /// Whether all of the client's body was read.
    pub(crate) fn finished(&self) -> bool {
        let state = self.lock();
        // Nobody asks for the end behind the last byte of a length that was declared.
        let ended = state.stream.is_none() || self.length == Some(state.read);
        ended && state.broken.is_none()
    }

    /// Whether the attempt of this turn has handed all of the body on. Where the length is known the end
    /// of the body is not asked for, so what was handed on counts.
    pub(crate) fn sent(&self, turn: u32) -> bool {
        let state = self.lock();
        state.turn == turn && (state.ended || self.length == Some(state.sent))
    }

    /// How many bytes were read of it.
    pub(crate) fn read(&self) -> u64 {
        self.lock().read
    }

    /// How the client's body broke off, where it did.
    pub(crate) fn broken(&self) -> Option<Broken> {
        self.lock().broken
    }

    fn lock(&self) -> MutexGuard<'_, State<B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B> State<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// Whether trailers may come behind the last byte. Of a body with a length, only HTTP/2's may have some.
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
                self.broken = Some(Broken::of(error.as_ref()));
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
        if kept.bytes.saturating_add(chunk.len()) > kept.limit {
            self.kept = None;
            return;
        }
        kept.add(chunk);
    }
}

impl Kept {
    /// Small ones are copied together: kept by itself each would hold many times its size, the memory that it was read
    /// into included. Only the attempt that has sent all that is kept reads, so none is in the midst of the last one.
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
