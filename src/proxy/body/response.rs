//! An upstream's response body, and the connection that it comes over.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, sleep, sleep_until};

use super::BodyError;
use super::request::Progress;
use super::stall::Stall;
use super::trailers::permitted;
use crate::proxy::upstream::Connection;

/// How much of a response that nobody wants is read so that its connection can be used again.
const DRAIN_BYTES: u64 = 64 * 1024;
/// For how long.
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// A body that gives its connection back when it was read to its end, and closes it when it was not.
#[derive(Debug)]
pub(crate) struct ResponseBody {
    incoming: Incoming,
    /// What was looked at before anybody read: it comes once more.
    peeked: Option<Box<Peeked>>,
    /// Held until the end of the body. `None` where it went back already.
    connection: Option<Connection>,
    /// Of the request that this answers: a connection over which a request is still being sent is
    /// not free.
    request: Progress,
    stall: Stall,
}

/// What a read gives.
type Peeked = Option<Result<Frame<Bytes>, BodyError>>;

impl ResponseBody {
    /// `incoming` over `connection`, at most `idle` between two chunks.
    pub(crate) const fn new(
        incoming: Incoming,
        connection: Connection,
        request: Progress,
        idle: Duration,
    ) -> Self {
        Self {
            incoming,
            peeked: None,
            connection: Some(connection),
            request,
            stall: Stall::new(idle),
        }
    }

    /// The trailers, where they come before any data and within `bound`; whatever comes is still read after.
    pub(crate) async fn peek_trailers(&mut self, bound: Duration) -> Option<&HeaderMap> {
        if self.peeked.is_none() {
            let read = std::future::poll_fn(|cx| self.poll_first(cx));
            let read = tokio::select! {
                biased;
                read = read => Some(read),
                () = sleep(bound) => None,
            };
            self.peeked = read.map(Box::new);
        }
        match self.peeked.as_deref() {
            Some(Some(Ok(frame))) => frame.trailers_ref(),
            _ => None,
        }
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

    /// The first frame that holds something.
    fn poll_first(&mut self, cx: &mut Context<'_>) -> Poll<Peeked> {
        loop {
            match self.poll_read(cx) {
                Poll::Ready(Some(Ok(frame))) if frame.data_ref().is_some_and(Bytes::is_empty) => {}
                polled => return polled,
            }
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Peeked> {
        match super::poll_frame(Pin::new(&mut self.incoming), cx) {
            Poll::Pending => {
                self.stall.poll(cx).map(|()| Some(Err(BodyError::Stalled(self.stall.bound()))))
            }
            Poll::Ready(None) => {
                self.release();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(error))) => {
                self.connection = None;
                self.request.abandon();
                Poll::Ready(Some(Err(BodyError::Upstream(error))))
            }
            Poll::Ready(Some(Ok(frame))) => {
                self.stall.progress();
                match frame.into_trailers() {
                    Ok(trailers) => self.poll_trailers(trailers, cx),
                    Err(frame) => Poll::Ready(Some(Ok(frame))),
                }
            }
        }
    }

    /// Those trailers that may pass; what comes behind them is the end.
    fn poll_trailers(&mut self, trailers: HeaderMap, cx: &mut Context<'_>) -> Poll<Peeked> {
        match permitted(trailers) {
            Some(trailers) => Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
            None => self.poll_read(cx),
        }
    }

    fn release(&mut self) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        if self.request.finished() {
            connection.release();
        } else {
            self.request.abandon();
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
        match body.peeked.take() {
            Some(peeked) => Poll::Ready(*peeked),
            None => body.poll_read(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self.peeked.as_deref() {
            Some(peeked) => peeked.is_none(),
            None => self.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let hint = self.incoming.size_hint();
        match self.peeked.as_deref() {
            Some(Some(Ok(frame))) => {
                let before = frame.data_ref().map_or(0, Bytes::len) as u64;
                let exact = hint.exact().map(|rest| rest.saturating_add(before));
                exact.map_or_else(SizeHint::default, SizeHint::with_exact)
            }
            _ => hint,
        }
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        if self.incoming.is_end_stream() {
            self.release();
        } else if self.connection.is_some() {
            // A connection of its own closes; on a shared one the request must end by itself.
            self.request.abandon();
        }
    }
}
