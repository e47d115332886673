//! Sends a body over HTTP/2, within a timeout for the other side's window.
//!
//! A client may open no window for its answer, and an upstream none for a request. Each stream holds a place and a
//! connection on the other side of the proxy, so each has a timeout of its own.

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::Body;

use super::stall::StallTimer;
use super::window_stall::WindowStall;
use crate::proxy::h2::{BodyWriteError, BodyWriter, Reason, SendStream, Traffic};
use crate::proxy::settings::BodyPatience;

/// A body that is being sent on a stream.
#[derive(Debug)]
pub(crate) struct TimedWriter<B> {
    writer: BodyWriter<B>,
    stall: WindowStall,
    /// For the minimum rate, if there is one.
    pace: Option<StallTimer>,
    /// How many bytes the window had allowed at the last poll.
    allowed: u64,
    traffic: Arc<Traffic>,
}

/// Why a body cannot be sent completely.
#[derive(Debug)]
pub(crate) enum TimedWriteError<E> {
    /// It broke off.
    Broken(E),
    /// The stream was reset, or its connection ended.
    Stream,
    /// The other side opened no window for this long, or opens it too slowly.
    Stalled(Duration),
}

impl<B: Body<Data = Bytes> + Unpin> TimedWriter<B> {
    /// Sends `body` on `stream`, after its head. The other side may keep its window closed as long as
    /// `patience` says.
    pub(crate) fn new(
        stream: SendStream,
        body: B,
        patience: impl Into<BodyPatience>,
        traffic: &Arc<Traffic>,
    ) -> Self {
        let BodyPatience { stall: limit, rate } = patience.into();
        let paced = BodyPatience { stall: Duration::MAX, rate };
        Self {
            writer: BodyWriter::new(stream, body),
            stall: WindowStall::new(limit, traffic),
            pace: rate.map(|_| StallTimer::new(paced)),
            allowed: 0,
            traffic: Arc::clone(traffic),
        }
    }

    /// The same without the timeout.
    pub(crate) fn untimed(self) -> BodyWriter<B> {
        self.writer
    }

    /// Resets the stream instead of sending the rest.
    pub(crate) fn reset(&mut self, reason: Reason) {
        self.writer.reset(reason);
    }

    /// Continues. Ready when everything was handed over, including the end.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), TimedWriteError<B::Error>>> {
        let Self { writer, stall, pace, allowed, traffic } = self;
        let polled = writer.poll(cx);
        stall.progress(writer.taken(), traffic);
        let more = writer.taken().saturating_sub(std::mem::replace(allowed, writer.taken()));
        if let Some(pace) = pace {
            pace.arrived(more);
            if writer.is_blocked() && polled.is_pending() && pace.poll(cx).is_ready() {
                return Poll::Ready(Err(TimedWriteError::Stalled(stall.limit())));
            }
        }
        match polled {
            Poll::Ready(sent) => Poll::Ready(sent.map_err(TimedWriteError::from)),
            Poll::Pending if writer.is_blocked() => {
                ready!(stall.poll(traffic, cx));
                Poll::Ready(Err(TimedWriteError::Stalled(stall.limit())))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<E> From<BodyWriteError<E>> for TimedWriteError<E> {
    fn from(error: BodyWriteError<E>) -> Self {
        match error {
            BodyWriteError::Broken(error) => Self::Broken(error),
            BodyWriteError::Stream => Self::Stream,
        }
    }
}
