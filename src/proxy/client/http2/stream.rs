//! One request and its answer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker, ready};

use http::header::{self, HeaderValue};
use http::{Method, Request, Response, StatusCode, request};
use http_body::Body as _;

use crate::proxy::answer::body::AnswerBody;
use crate::proxy::body::client::ClientBody;
use crate::proxy::body::timed_writer::{TimedWriteError, TimedWriter};
use crate::proxy::boxed::boxed;
use crate::proxy::h2::{Incoming, Reason, RecvStream, RequestStream, SendResponse, Traffic};
use crate::proxy::io::peer::Peer;
use crate::proxy::message::headers;
use crate::proxy::request::interim::InterimTarget;
use crate::proxy::run::execute::{self, AnswerFuture};
use crate::proxy::settings::HeadLimits;
use crate::proxy::site::Worker;
use crate::proxy::watch::ConnectionState;
use crate::proxy::watch::busy::BusyGuard;

/// What all streams of a connection need.
#[derive(Debug)]
pub(super) struct SessionContext {
    pub(super) client: Peer,
    pub(super) worker: Arc<Worker>,
    pub(super) state: Arc<ConnectionState>,
    /// How often the connection has sent what was handed to it.
    pub(super) sent: AtomicUsize,
    pub(super) traffic: Arc<Traffic>,
    /// The limits of a request's trailers.
    pub(super) trailers: HeadLimits,
    /// Has the connection sent what was handed to it.
    pub(super) connection: Waker,
}

/// A stream. Dropping it ends it, and cancels the request.
pub(super) struct Stream {
    context: Arc<SessionContext>,
    shared: RequestStream,
    progress: Progress,
}

/// How far the request has come.
enum Progress {
    /// The request's head was received.
    New(request::Parts),
    /// The answer is being made. `head`: the request is a HEAD.
    Answering { answer: AnswerFuture, head: bool, dates: bool },
    /// The answer's body is being sent.
    Sending(TimedWriter<AnswerBody>),
    /// The body has broken off when the connection had sent this often. It sends once more before the stream is reset,
    /// because a reset takes away what waits.
    Breaking(TimedWriter<AnswerBody>, usize),
    /// The answer is complete.
    Done,
}

impl Stream {
    /// The stream of `request`, which is answered by `respond`.
    pub(super) fn new(
        context: &Arc<SessionContext>,
        request: Request<RecvStream>,
        respond: SendResponse,
    ) -> Self {
        let (parts, incoming) = request.into_parts();
        let traffic = Arc::clone(&context.traffic);
        let incoming = Incoming::new(incoming, &parts.headers, context.trailers);
        let waits = !incoming.is_ended() && parts.headers.contains_key(header::EXPECT);
        let shared = RequestStream::new(incoming, respond, waits, traffic);
        Self { context: Arc::clone(context), shared, progress: Progress::New(parts) }
    }

    /// Ready when the answer was handed over, or the stream was reset.
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            self.progress = match &mut self.progress {
                Progress::New(_) if self.shared.poll_reset(cx).is_ready() => return Poll::Ready(()),
                Progress::New(_) => self.begin(),
                Progress::Answering { answer, .. } => match answer.as_mut().poll(cx) {
                    Poll::Ready(response) => self.send_head(response, cx),
                    // If the client resets the stream, nobody waits for the answer.
                    Poll::Pending => return self.shared.poll_reset(cx).map(drop),
                },
                Progress::Sending(..) => ready!(self.poll_send(cx)),
                Progress::Breaking(writer, before) => {
                    if self.context.sent.load(Relaxed) == *before {
                        self.context.connection.wake_by_ref();
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    writer.reset(Reason::INTERNAL_ERROR);
                    Progress::Done
                }
                Progress::Done => return Poll::Ready(()),
            }
        }
    }

    /// Begins to answer the request.
    fn begin(&mut self) -> Progress {
        let Progress::New(parts) = std::mem::replace(&mut self.progress, Progress::Done) else {
            return Progress::Done;
        };
        let SessionContext { client, worker, state, .. } = self.context.as_ref();
        let site = worker.site();
        let (head, dates) = (parts.method == Method::HEAD, site.runtime.stage.is_none());
        let body = if self.shared.is_ended() {
            ClientBody::Empty
        } else {
            ClientBody::Http2(self.shared.clone())
        };
        let interim = InterimTarget::Stream(self.shared.clone());
        let busy = BusyGuard::new(state);
        let parts = boxed(|| parts.into());
        let answer = execute::serve(site, parts, body, client, busy, interim);
        Progress::Answering { answer, head, dates }
    }

    /// Sends the answer's head.
    fn send_head(&mut self, response: Response<AnswerBody>, cx: &mut Context<'_>) -> Progress {
        let Progress::Answering { head, dates, .. } = self.progress else {
            return Progress::Done;
        };
        let core = &self.context.worker.core;
        let (mut parts, body) = response.into_parts();
        if body.is_withheld() {
            self.shared.reset(Reason::INTERNAL_ERROR);
            return Progress::Done;
        }
        // HTTP/2 closes a connection with GOAWAY instead (RFC 9113 §8.2.2).
        headers::strip_hop_by_hop(&mut parts.headers);
        if dates {
            parts.headers.entry(header::DATE).or_insert_with(|| core.date());
        }
        let ends = frame(&mut parts, &body, head);
        match self.shared.answer(Response::from_parts(parts, ()), ends) {
            Ok(_) if ends => {
                body.over(cx);
                Progress::Done
            }
            Ok(stream) => {
                let limits = &self.context.worker.site().runtime.limits;
                let traffic = &self.context.traffic;
                Progress::Sending(TimedWriter::new(stream, body, limits.body_patience(), traffic))
            }
            Err(error) => {
                tracing::debug!(%error, "An answer's head could not be sent.");
                self.shared.reset(Reason::INTERNAL_ERROR);
                Progress::Done
            }
        }
    }

    /// Sends the body. Ready when it was handed over, the stream was reset, or the body has broken off.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Progress> {
        let Progress::Sending(writer) = &mut self.progress else {
            return Poll::Ready(Progress::Done);
        };
        match ready!(writer.poll(cx)) {
            Ok(()) | Err(TimedWriteError::Stream) => {}
            Err(TimedWriteError::Broken(_)) => {
                let progress = std::mem::replace(&mut self.progress, Progress::Done);
                if let Progress::Sending(writer) = progress {
                    let sent = self.context.sent.load(Relaxed);
                    return Poll::Ready(Progress::Breaking(writer, sent));
                }
            }
            Err(TimedWriteError::Stalled(_)) => {
                tracing::debug!(client = %self.context.client, "A client opened no window for its answer.");
                writer.reset(Reason::CANCEL);
            }
        }
        Poll::Ready(Progress::Done)
    }
}

/// Completes a head by the length of its body. Returns whether there is no body. `head`: the request is a HEAD.
fn frame(parts: &mut http::response::Parts, body: &AnswerBody, head: bool) -> bool {
    // These have no body (RFC 9110 §9.3.2, §15.3.5, §15.4.5).
    let bodiless =
        head || matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if parts.status == StatusCode::NO_CONTENT {
        parts.headers.remove(header::CONTENT_LENGTH);
    }
    let ends = bodiless || body.is_end_stream();
    if let Some(length) = body.size_hint().exact().filter(|_| !ends) {
        let length = || HeaderValue::from(length);
        parts.headers.entry(header::CONTENT_LENGTH).or_insert_with(length);
    }
    ends
}

impl Future for Stream {
    type Output = ();

    /// A panic only ends its own stream.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let polled = catch_unwind(AssertUnwindSafe(|| self.poll_answer(cx)));
        polled.unwrap_or_else(|_panic| {
            self.shared.reset(Reason::INTERNAL_ERROR);
            self.progress = Progress::Done;
            Poll::Ready(())
        })
    }
}

/// An execution that still unwinds may hold the request's body. The stream ends nevertheless.
impl Drop for Stream {
    fn drop(&mut self) {
        self.progress = Progress::Done;
        self.shared.close();
    }
}
