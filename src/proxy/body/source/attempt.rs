//! The client's body as one attempt sends it: first the part that is kept, then the rest as it arrives.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use super::{BodyFailure, ReplaySource};
use crate::proxy::body::BodyError;
use crate::proxy::body::stall::StallTimer;
use crate::proxy::h2::{self, Reason};
use crate::proxy::settings::BodyPatience;

/// The request body as one attempt sends it.
#[derive(Debug)]
pub struct AttemptBody<B> {
    source: Arc<ReplaySource<B>>,
    turn: u32,
    /// The next kept chunk to replay.
    next: usize,
    /// How many bytes this attempt has sent.
    sent: u64,
    /// Whether it has sent the trailers, if there are any.
    trailed: bool,
    stall: StallTimer,
}

impl<B> AttemptBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// The attempt with this number, which waits for its client as long as `patience` says.
    pub(super) fn new(source: Arc<ReplaySource<B>>, turn: u32, patience: BodyPatience) -> Self {
        Self { source, turn, next: 0, sent: 0, trailed: false, stall: StallTimer::new(patience) }
    }

    /// The number of this attempt.
    pub(crate) const fn turn(&self) -> u32 {
        self.turn
    }

    /// The trailers, once.
    fn take_trailers(&mut self) -> Option<HeaderMap> {
        let first = !std::mem::replace(&mut self.trailed, true);
        let state = self.source.lock();
        state.trailers.as_deref().filter(|_| first).cloned()
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        let mut state = self.source.lock();
        if state.turn != self.turn {
            return Poll::Ready(Some(Err(BodyError::Abandoned(Box::new(h2::Error::from(
                Reason::CANCEL,
            ))))));
        }
        let replayed = state.kept.as_ref().and_then(|kept| kept.chunks.get(self.next)).cloned();
        self.next = self.next.saturating_add(1);
        let polled = match replayed {
            Some(chunk) => Poll::Ready(Some(Ok(chunk))),
            None => state.poll_read(cx),
        };
        match &polled {
            Poll::Pending => self.next = self.next.saturating_sub(1),
            Poll::Ready(None) => state.ended = true,
            Poll::Ready(Some(Ok(chunk))) => {
                self.sent = self.sent.saturating_add(chunk.len() as u64);
                state.sent = self.sent;
            }
            Poll::Ready(Some(Err(_))) => {}
        }
        polled
    }
}

impl<B> Body for AttemptBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let attempt = self.get_mut();
        match attempt.poll_chunk(cx) {
            Poll::Ready(Some(Ok(chunk))) => {
                attempt.stall.arrived(chunk.len() as u64);
                Poll::Ready(Some(Ok(Frame::data(chunk))))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error))),
            Poll::Ready(None) => {
                Poll::Ready(attempt.take_trailers().map(|trailers| Ok(Frame::trailers(trailers))))
            }
            Poll::Pending => attempt.stall.poll(cx).map(|error| {
                attempt.source.lock().broken = Some(BodyFailure::Stalled);
                Some(Err(error))
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.source.length == Some(self.sent) && !self.source.lock().may_trail()
    }

    fn size_hint(&self) -> SizeHint {
        self.source.length.map_or_else(SizeHint::default, |length| {
            SizeHint::with_exact(length.saturating_sub(self.sent))
        })
    }
}
