//! The body of the answer to the client.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use super::truncated::truncated;
use super::watched::WatchedBody;
use crate::proxy::body::BodyError;
use crate::proxy::body::capture::Capture;
use crate::proxy::body::whole::Whole;
use crate::proxy::io::splice::{Pipe, PipePool};
use crate::proxy::request::flight::Flight;
use crate::proxy::upstream::body::ResponseBody;
use crate::proxy::upstream::connection::Http1Lease;
use crate::proxy::watch::busy::BusyGuard;

/// The body that the client gets. Its request counts as in flight until this body ends or is dropped.
#[derive(Debug)]
pub(crate) struct AnswerBody {
    kind: AnswerKind,
    /// The reason phrase, if an upstream sent another than the usual one.
    reason: Option<Bytes>,
    /// How many bytes were handed over.
    sent: u64,
    flight: Option<Flight>,
    /// Keeps the client's connection marked as busy.
    busy: Option<BusyGuard>,
}

#[derive(Debug)]
enum AnswerKind {
    Whole(Whole),
    Upstream(Box<ResponseBody>),
    /// The same, and somebody keeps a copy.
    Watched(Box<WatchedBody>),
    /// No body, and another protocol after the head.
    Tunnel(Box<Http1Lease>),
    /// No body and no answer either: the connection or the stream is closed.
    Withheld,
}

impl AnswerBody {
    /// No body.
    pub(crate) const fn empty() -> Self {
        Self::of(AnswerKind::Whole(Whole::EMPTY))
    }

    /// No answer: its connection or stream is closed instead.
    pub(crate) const fn withheld() -> Self {
        Self::of(AnswerKind::Withheld)
    }

    /// Whether there is no answer.
    pub(crate) const fn is_withheld(&self) -> bool {
        matches!(self.kind, AnswerKind::Withheld)
    }

    /// A body in memory.
    pub(crate) const fn full(bytes: Bytes) -> Self {
        Self::trailed(bytes, None)
    }

    /// A body in memory, with trailers.
    pub(crate) const fn trailed(bytes: Bytes, trailers: Option<Box<HeaderMap>>) -> Self {
        Self::of(AnswerKind::Whole(Whole::new(bytes, trailers)))
    }

    /// The body of an upstream's response.
    pub(crate) fn upstream(body: Box<ResponseBody>) -> Self {
        Self::of(AnswerKind::Upstream(body))
    }

    /// The body of an upstream's response of which somebody keeps a copy.
    pub(crate) const fn watched(body: Box<WatchedBody>) -> Self {
        Self::of(AnswerKind::Watched(body))
    }

    const fn of(kind: AnswerKind) -> Self {
        Self { kind, reason: None, sent: 0, flight: None, busy: None }
    }

    /// No body: the upstream's half of a tunnel.
    pub(crate) const fn tunnel(far: Box<Http1Lease>) -> Self {
        Self::of(AnswerKind::Tunnel(far))
    }

    /// Takes the tunnel out, if this is one, with the flight that ends with it.
    pub(crate) fn take_tunnel(&mut self) -> Option<(Box<Http1Lease>, Flight)> {
        if !matches!(self.kind, AnswerKind::Tunnel(_)) {
            return None;
        }
        match std::mem::replace(&mut self.kind, AnswerKind::Whole(Whole::EMPTY)) {
            AnswerKind::Tunnel(far) => Some((far, self.flight.take()?)),
            _ => None,
        }
    }

    /// The same, for an answer with this reason phrase.
    pub(crate) fn with_reason(mut self, reason: Option<Bytes>) -> Self {
        self.reason = reason;
        self
    }

    /// The reason phrase, if it is not the usual one.
    pub(crate) fn reason(&self) -> Option<&[u8]> {
        self.reason.as_deref()
    }

    /// Whether the body comes from an upstream.
    pub(crate) const fn is_upstream(&self) -> bool {
        matches!(self.kind, AnswerKind::Upstream(_) | AnswerKind::Watched(_))
    }

    /// Whether trailers follow a body in memory.
    pub(crate) const fn is_trailed(&self) -> bool {
        matches!(&self.kind, AnswerKind::Whole(whole) if whole.is_trailed())
    }

    /// Ends `flight` when this body ends.
    pub(crate) fn ends(&mut self, flight: Flight) {
        self.flight = Some(flight);
    }

    /// Frees the client's connection when it is dropped.
    pub(crate) fn frees(&mut self, busy: BusyGuard) {
        self.busy = Some(busy);
    }

    /// The same answer for a HEAD: nothing of the body is sent. An upstream's response has none.
    pub(crate) fn for_head(mut self) -> Self {
        if matches!(self.kind, AnswerKind::Whole(_)) {
            self.kind = AnswerKind::Whole(Whole::EMPTY);
        }
        self
    }

    /// Moves the next bytes of an upstream's body into one of `pipes`. `None` if the body must be read instead.
    pub(crate) fn poll_splice(
        &mut self,
        pipes: &PipePool,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Pipe, BodyError>>> {
        let captured = self.capture().is_some();
        let AnswerKind::Upstream(body) = &mut self.kind else {
            return Poll::Ready(None);
        };
        if captured {
            return Poll::Ready(None);
        }
        let polled = body.poll_splice(pipes, cx);
        match &polled {
            Poll::Ready(Some(Ok(pipe))) => self.handed(pipe.held()),
            Poll::Ready(Some(Err(error))) => self.truncated(error),
            Poll::Ready(None) | Poll::Pending => {}
        }
        polled
    }

    /// This many bytes were handed over.
    fn handed(&mut self, bytes: usize) {
        self.sent = self.sent.saturating_add(bytes as u64);
        if let Some(busy) = &self.busy {
            busy.handed(bytes);
        }
    }

    /// The copy of the exchange, if one is made.
    fn capture(&self) -> Option<&Capture> {
        self.flight.as_ref()?.exchange().capture.as_deref()
    }

    /// Ends the body. An end may follow its last byte and should be seen; no data can follow.
    pub(crate) fn over(mut self, cx: &mut Context<'_>) {
        if !self.is_end_stream() {
            let _end = Pin::new(&mut self).poll_frame(cx).is_ready();
        }
    }

    /// The upstream's response broke off.
    fn truncated(&mut self, error: &BodyError) {
        let origin = match &self.kind {
            AnswerKind::Upstream(body) => body.origin(),
            AnswerKind::Watched(body) => body.origin(),
            AnswerKind::Whole(_) | AnswerKind::Tunnel(_) | AnswerKind::Withheld => return,
        };
        if let Some(flight) = self.flight.take() {
            truncated(flight, self.sent, origin, error);
        }
    }

    fn finish(&mut self) {
        if let Some(capture) = self.capture() {
            capture.answer_ended();
        }
        if let Some(flight) = self.flight.take() {
            flight.finish(self.sent);
        }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let answer = self.get_mut();
        let polled = match &mut answer.kind {
            AnswerKind::Whole(whole) => Poll::Ready(whole.next().map(Ok)),
            AnswerKind::Tunnel(_) | AnswerKind::Withheld => Poll::Ready(None),
            AnswerKind::Upstream(body) => Pin::new(body.as_mut()).poll_frame(cx),
            AnswerKind::Watched(body) => Pin::new(body.as_mut()).poll_frame(cx),
        };
        match polled {
            Poll::Pending => Poll::Pending,
            Poll::Ready(None) => {
                answer.finish();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Ok(frame))) => {
                answer.handed(frame.data_ref().map_or(0, Bytes::len));
                if let (Some(capture), Some(data)) = (answer.capture(), frame.data_ref()) {
                    capture.answer_data(data);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                answer.truncated(&error);
                Poll::Ready(Some(Err(error.into())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            AnswerKind::Whole(whole) => whole.is_end(),
            AnswerKind::Tunnel(_) | AnswerKind::Withheld => true,
            AnswerKind::Upstream(body) => body.is_end_stream(),
            AnswerKind::Watched(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            AnswerKind::Whole(whole) => SizeHint::with_exact(whole.len()),
            AnswerKind::Tunnel(_) | AnswerKind::Withheld => SizeHint::with_exact(0),
            AnswerKind::Upstream(body) => body.size_hint(),
            AnswerKind::Watched(body) => body.size_hint(),
        }
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        if self.is_end_stream() {
            self.finish();
        } else if let Some(flight) = self.flight.take() {
            flight.abandon(self.sent);
        }
    }
}
