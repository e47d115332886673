//! An upstream's response body, and the connection that it comes over.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, sleep_until};

use super::BodyError;
use super::request::Progress;
use super::stall::Stall;
use crate::proxy::upstream::Connection;

/// How much of a response that nobody wants is read so that its connection can be used again.
const DRAIN_BYTES: u64 = 64 * 1024;
/// For how long.
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// A body that gives its connection back when it was read to its end, and closes it when it was not.
#[derive(Debug)]
pub(crate) struct ResponseBody {
    incoming: Incoming,
    /// Held until the end of the body. `None` where it went back already.
    connection: Option<Connection>,
    /// Of the request that this answers: a connection over which a request is still being sent is
    /// not free.
    request: Progress,
    stall: Stall,
}

impl ResponseBody {
    /// `incoming` over `connection`, at most `idle` between two chunks.
    pub(crate) const fn new(
        incoming: Incoming,
        connection: Connection,
        request: Progress,
        idle: Duration,
    ) -> Self {
        Self { incoming, connection: Some(connection), request, stall: Stall::new(idle) }
    }

    /// Reads on in the background, within bounds, so that the connection serves again; beyond them it
    /// closes. A body whose rest is here already is dealt with at once.
    pub(crate) fn drain(mut self) {
        let mut left = DRAIN_BYTES;
        let mut idle = Context::from_waker(std::task::Waker::noop());
        if self.poll_drain(&mut left, &mut idle).is_ready() {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        runtime.spawn(async move {
            let deadline = Instant::now().checked_add(DRAIN_TIME);
            let deadline = sleep_until(deadline.unwrap_or_else(Instant::now));
            let drained = std::future::poll_fn(|cx| self.poll_drain(&mut left, cx));
            tokio::select! {
                () = drained => {}
                () = deadline => {}
            }
        });
    }

    /// Ready when the body ended, broke, or holds more than is `left`.
    fn poll_drain(&mut self, left: &mut u64, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.is_end_stream() || self.size_hint().lower() > *left {
                return Poll::Ready(());
            }
            match Pin::new(&mut *self).poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None | Some(Err(_))) => return Poll::Ready(()),
                Poll::Ready(Some(Ok(frame))) => {
                    let size = frame.data_ref().map_or(0, Bytes::len) as u64;
                    *left = left.saturating_sub(size);
                }
            }
        }
    }

    fn release(&mut self) {
        if let Some(connection) = self.connection.take()
            && self.request.finished()
        {
            connection.release();
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let body = self.get_mut();
        match Pin::new(&mut body.incoming).poll_frame(cx) {
            Poll::Pending => {
                body.stall.poll(cx).map(|()| Some(Err(BodyError::Stalled(body.stall.bound()))))
            }
            Poll::Ready(None) => {
                body.release();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(error))) => {
                body.connection = None;
                Poll::Ready(Some(Err(BodyError::Upstream(error))))
            }
            Poll::Ready(Some(Ok(frame))) => {
                body.stall.progress();
                Poll::Ready(Some(Ok(frame)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        if self.incoming.is_end_stream() {
            self.release();
        }
    }
}
