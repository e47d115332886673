//! An upstream's response body, and the connection that it arrives on.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, sleep, sleep_until};

use super::connection::{Http1Lease, Http2Stream, ResponseSource};
use super::early_response::EarlyResponse;
use super::origin::ResponseOrigin;
use crate::proxy::body::BodyError;
use crate::proxy::body::request::UploadProgress;
use crate::proxy::body::stall::StallTimer;
use crate::proxy::h2::Incoming;
use crate::proxy::io::splice::{Pipe, PipePool};
use crate::proxy::message::trailers::permitted;

/// How many bytes of an unwanted response are read so that its connection can be used again.
const DRAIN_BYTES: u64 = 64 * 1024;
/// How long that may take.
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// A body that returns its connection to the pool when it was read to the end, and closes it otherwise.
#[derive(Debug)]
pub(crate) struct ResponseBody {
    from: BodySource,
    /// A frame that was read ahead. The reader gets it next.
    peeked: Option<Box<ReadResult>>,
    /// The progress of the request. Its connection is not free while the request is still being sent.
    request: UploadProgress,
    stall: StallTimer,
    /// Whether the reader has got data since it last had to wait; see [`ResponseBody::poll_fail`].
    given: bool,
}

/// Where the rest of the body comes from.
#[derive(Debug)]
enum BodySource {
    /// An HTTP/1.1 connection.
    Http1(Http1Lease),
    /// An HTTP/1.1 connection on which the request is still being sent.
    EarlyResponse(EarlyResponse),
    /// An HTTP/2 stream.
    Http2(Incoming, Box<Http2Stream>),
    /// Nothing more will come.
    Ended,
    /// The body broke off.
    Broken(Option<ResponseOrigin>),
}

/// The result of one read.
type ReadResult = Option<Result<Frame<Bytes>, BodyError>>;

impl ResponseBody {
    /// The body that is `arriving`. Two chunks may be at most `idle` apart.
    pub(crate) fn new(arriving: ResponseSource, request: UploadProgress, idle: Duration) -> Self {
        let from = match arriving {
            ResponseSource::Http2(incoming, shared) => BodySource::Http2(incoming, shared),
            ResponseSource::Http1(lease) if !lease.conn.is_read() && lease.conn.is_sending() => {
                BodySource::EarlyResponse(EarlyResponse::new(lease))
            }
            ResponseSource::Http1(lease) => BodySource::Http1(lease),
            ResponseSource::Empty { .. } => {
                request.abandon_rest();
                BodySource::Ended
            }
        };
        let stall = StallTimer::new(idle);
        let mut body = Self { from, peeked: None, request, stall, given: true };
        body.end_where_read();
        body
    }

    /// The trailers, if they arrive before any data and within `bound`. Reading the body still returns everything.
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

    /// Where it came from, if it broke off.
    pub(crate) const fn origin(&self) -> Option<&ResponseOrigin> {
        match &self.from {
            BodySource::Broken(origin) => origin.as_ref(),
            _ => None,
        }
    }

    /// Reads the rest in the background, within limits, so that the connection can be used again; beyond the
    /// limits it closes. A body that has already arrived is finished at once.
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

    /// Ready when the body has ended or broken off, or holds more than `left`.
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

    /// The first frame that is not empty.
    fn poll_first(&mut self, cx: &mut Context<'_>) -> Poll<ReadResult> {
        loop {
            match self.poll_next(cx) {
                Poll::Ready(Some(Ok(frame))) if frame.data_ref().is_some_and(Bytes::is_empty) => {}
                polled => return polled,
            }
        }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<ReadResult> {
        match self.peeked.take() {
            Some(peeked) => Poll::Ready(*peeked),
            None => self.poll_read(cx),
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<ReadResult> {
        let polled = match &mut self.from {
            BodySource::Http1(lease) => lease.conn.poll_body(cx).map_err(upstream),
            BodySource::EarlyResponse(meanwhile) => meanwhile.poll_body(cx).map_err(upstream),
            BodySource::Http2(incoming, _) => {
                crate::proxy::body::poll_frame(Pin::new(incoming), cx).map_err(upstream)
            }
            BodySource::Ended | BodySource::Broken(_) => return Poll::Ready(None),
        };
        match polled {
            Poll::Pending => self.poll_stall(cx),
            Poll::Ready(None) => {
                self.end();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(error))) => self.poll_fail(error, cx),
            Poll::Ready(Some(Ok(frame))) => {
                self.given = true;
                self.stall.progress();
                self.end_where_read();
                match frame.into_trailers() {
                    Ok(trailers) => self.poll_trailers(trailers, cx),
                    Err(frame) => Poll::Ready(Some(Ok(frame))),
                }
            }
        }
    }

    /// Moves the next bytes into one of `pipes`. `None` if the body must be read instead.
    pub(crate) fn poll_splice(
        &mut self,
        pipes: &PipePool,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Pipe, BodyError>>> {
        let (BodySource::Http1(lease), None) = (&mut self.from, &self.peeked) else {
            return Poll::Ready(None);
        };
        match lease.conn.poll_splice(pipes, cx).map_err(upstream) {
            Poll::Ready(Some(Ok(pipe))) => {
                self.given = true;
                self.stall.progress();
                self.end_where_read();
                Poll::Ready(Some(Ok(pipe)))
            }
            Poll::Ready(None) => Poll::Ready(None),
            // An error is handled as in a read.
            Poll::Ready(Some(Err(error))) => self.poll_fail(error, cx).map(failed),
            Poll::Pending => self.poll_stall(cx).map(failed),
        }
    }

    /// No data has arrived.
    fn poll_stall(&mut self, cx: &mut Context<'_>) -> Poll<ReadResult> {
        self.given = false;
        let error = ready!(self.stall.poll(cx));
        self.poll_fail(error, cx)
    }

    /// The trailers that may be passed on. The end follows them.
    fn poll_trailers(&mut self, trailers: HeaderMap, cx: &mut Context<'_>) -> Poll<ReadResult> {
        match permitted(trailers) {
            Some(trailers) => Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
            None => self.poll_read(cx),
        }
    }

    /// Returns the connection as soon as the body is read, without waiting for another poll.
    fn end_where_read(&mut self) {
        if matches!(&self.from, BodySource::Http1(lease) if lease.conn.is_read()) {
            self.end();
        }
    }

    /// Everything was read. The rest of the request is not sent.
    fn end(&mut self) {
        let lease = match std::mem::replace(&mut self.from, BodySource::Ended) {
            BodySource::Http1(lease) => Some(lease),
            BodySource::EarlyResponse(meanwhile) => meanwhile.take(),
            BodySource::Http2(incoming, stream) => {
                drop((incoming, stream));
                return self.request.abandon_rest();
            }
            BodySource::Ended | BodySource::Broken(_) => return,
        };
        match lease {
            Some(lease) if lease.conn.is_sent() => lease.release(),
            _ => self.request.abandon(),
        }
    }

    /// The body and its connection broke off. The writer to the client drops its buffered data when it gets the
    /// error, so it must first have the chance to send it.
    fn poll_fail(&mut self, error: BodyError, cx: &Context<'_>) -> Poll<ReadResult> {
        let origin = match std::mem::replace(&mut self.from, BodySource::Broken(None)) {
            BodySource::Http1(lease) => Some(lease.origin()),
            BodySource::EarlyResponse(meanwhile) => meanwhile.take().map(|lease| lease.origin()),
            BodySource::Http2(_, stream) => Some(stream.origin()),
            BodySource::Ended | BodySource::Broken(_) => None,
        };
        self.from = BodySource::Broken(origin);
        self.request.abandon();
        if std::mem::take(&mut self.given) {
            self.peeked = Some(Box::new(Some(Err(error))));
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Some(Err(error)))
    }
}

/// The error of a spliced body.
fn failed(read: ReadResult) -> Option<Result<Pipe, BodyError>> {
    read?.err().map(Err)
}

fn upstream(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> BodyError {
    BodyError::Upstream(error.into())
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.get_mut().poll_next(cx)
    }

    fn is_end_stream(&self) -> bool {
        match (self.peeked.as_deref(), &self.from) {
            (Some(peeked), _) => peeked.is_none(),
            (None, BodySource::Http2(incoming, _)) => incoming.is_end_stream(),
            (None, from) => matches!(from, BodySource::Ended),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let rest = match &self.from {
            BodySource::Http1(lease) => lease.conn.left(),
            BodySource::EarlyResponse(meanwhile) => meanwhile.left(),
            BodySource::Http2(incoming, _) => incoming.size_hint().exact(),
            BodySource::Ended => Some(0),
            BodySource::Broken(_) => None,
        };
        let peeked = match self.peeked.as_deref() {
            Some(Some(Ok(frame))) => frame.data_ref().map_or(0, Bytes::len) as u64,
            _ => 0,
        };
        rest.map_or_else(SizeHint::default, |rest| {
            SizeHint::with_exact(rest.saturating_add(peeked))
        })
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        match &self.from {
            BodySource::Http2(incoming, _) if incoming.is_end_stream() => self.end(),
            // An exclusive connection closes. On a shared one, the request must be ended explicitly.
            BodySource::Http1(_) | BodySource::EarlyResponse(_) | BodySource::Http2(..) => {
                self.request.abandon();
            }
            BodySource::Ended | BodySource::Broken(_) => {}
        }
    }
}
