//! Sends the body of a message.
//!
//! The stream never gets more than the other side's window allows. What waits for the window waits here, at most one piece
//! of the body.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Body;

use super::WINDOW;
use super::wire::{self, Reason, SendStream};

/// A body that is being sent on a stream.
#[derive(Debug)]
pub(crate) struct BodyWriter<B> {
    stream: SendStream,
    body: B,
    /// Was read from the body and waits for the window.
    piece: Bytes,
    /// How many bytes the window has allowed so far.
    taken: u64,
}

/// Why a body cannot be sent completely.
#[derive(Debug)]
pub(crate) enum BodyWriteError<E> {
    /// It broke off.
    Broken(E),
    /// The stream was reset, or its connection ended.
    Stream,
}

impl<B: Body<Data = Bytes> + Unpin> BodyWriter<B> {
    /// Sends `body` on `stream`, after its head.
    pub(crate) const fn new(stream: SendStream, body: B) -> Self {
        Self { stream, body, piece: Bytes::new(), taken: 0 }
    }

    /// How many bytes the window has allowed so far.
    pub(crate) const fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether a piece waits for the window.
    pub(crate) const fn is_blocked(&self) -> bool {
        !self.piece.is_empty()
    }

    /// Resets the stream instead of sending the rest.
    pub(crate) fn reset(&mut self, reason: Reason) {
        self.stream.send_reset(reason);
    }

    /// Continues. Ready when everything was handed over, including the end.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), BodyWriteError<B::Error>>> {
        loop {
            let polled = if self.is_blocked() { self.poll_piece(cx) } else { self.poll_next(cx) };
            match polled {
                Poll::Ready(Ok(false)) => {}
                Poll::Ready(ended) => return Poll::Ready(ended.map(drop)),
                // It is what wakes a task that waits for its body alone.
                Poll::Pending if self.stream.poll_reset(cx).is_ready() => {
                    return Poll::Ready(Err(BodyWriteError::Stream));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Hands over as much of the piece as the window allows. Returns whether that was the end.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, BodyWriteError<B::Error>>> {
        // No more than one window, so that this stream does not take the connection's window from others.
        self.stream.reserve_capacity(self.piece.len().min(WINDOW as usize));
        while self.stream.capacity() == 0 {
            // None: nothing can be sent on this stream any more.
            ready!(self.stream.poll_capacity(cx)).ok_or(BodyWriteError::Stream)??;
        }
        let part = self.piece.split_to(self.stream.capacity().min(self.piece.len()));
        self.taken += part.len() as u64;
        let ended = self.piece.is_empty() && self.body.is_end_stream();
        self.stream.send_data(part, ended)?;
        Poll::Ready(Ok(ended))
    }

    /// Reads the next piece of the body, or sends its end. Returns whether the end was sent.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, BodyWriteError<B::Error>>> {
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            Some(frame) => frame.map_err(BodyWriteError::Broken)?,
            None => return Poll::Ready(self.end()),
        };
        match frame.into_data() {
            Ok(data) if data.is_empty() && self.body.is_end_stream() => Poll::Ready(self.end()),
            Ok(data) => {
                self.piece = data;
                Poll::Ready(Ok(false))
            }
            Err(frame) => {
                self.stream.send_trailers(frame.into_trailers().unwrap_or_default())?;
                Poll::Ready(Ok(true))
            }
        }
    }

    fn end(&mut self) -> Result<bool, BodyWriteError<B::Error>> {
        self.stream.send_data(Bytes::new(), true)?;
        Ok(true)
    }
}

impl<E> From<wire::Error> for BodyWriteError<E> {
    fn from(_ended: wire::Error) -> Self {
        Self::Stream
    }
}
