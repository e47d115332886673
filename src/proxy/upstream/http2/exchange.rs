//! One request and the head of its response.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::header::{self, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body::Body as _;
use tokio::task::AbortHandle;

use crate::language::temporal::Span;
use crate::proxy::body::BodyError;
use crate::proxy::body::expect_continue::ContinueSignal;
use crate::proxy::body::request::RequestBody;
use crate::proxy::body::timed_writer::{TimedWriteError, TimedWriter};
use crate::proxy::h2::{
    self, BodyWriteError, Incoming, OverLimit, Reason, ResponseFuture, SendRequest, Traffic,
};
use crate::proxy::settings::HeadLimits;
use crate::proxy::upstream::h1::{InterimSink, ResponseHead};

/// A stream from the request until the response's head.
#[derive(Debug)]
pub(in crate::proxy::upstream) struct Exchange {
    response: ResponseFuture,
    /// The rest of the request.
    upload: Option<TimedWriter<RequestBody>>,
    /// Given when the upstream sends a 100.
    permission: Option<Arc<ContinueSignal>>,
    /// Whether an interim response has arrived.
    heard: bool,
    /// The limits of the response's head and trailers.
    heads: HeadLimits,
}

/// What limits an exchange.
#[derive(Clone, Copy, Debug)]
pub(in crate::proxy::upstream) struct ExchangeLimits {
    /// The limits of the response's head and trailers.
    pub(in crate::proxy::upstream) heads: HeadLimits,
    /// How long the upstream may take no byte of the request.
    pub(in crate::proxy::upstream) idle: Duration,
}

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The connection failed.
    #[error("connection error")]
    Io(#[source] io::Error),
    /// The stream or its connection ended early.
    #[error("http2 error")]
    Stream(#[source] h2::Error),
    /// The request's body broke off.
    #[error("the request could not be sent whole")]
    Request(#[source] BodyError),
    /// The upstream opened no window for the request's body.
    #[error("no byte of the request was taken for {} (idleTimeout)", Span::from_duration(*.0))]
    Stalled(Duration),
    /// The response's head exceeds a limit.
    #[error("the head is too large")]
    Head(#[source] OverLimit),
    /// The response is a 101, which HTTP/2 does not have (RFC 9113 §8.6).
    #[error("the upstream switched protocols, which HTTP/2 does not allow")]
    Switched,
}

/// A request without a response.
#[derive(Debug)]
pub(in crate::proxy::upstream) struct NotSent {
    pub(in crate::proxy::upstream) error: Error,
    /// The request, if it can be sent on another connection.
    pub(in crate::proxy::upstream) unsent: Option<Box<Request<RequestBody>>>,
    /// Whether a part of its response has arrived.
    pub(in crate::proxy::upstream) heard: bool,
}

/// The task that sends the rest of a request whose response has begun, until this is dropped.
#[derive(Debug)]
pub(in crate::proxy::upstream) struct UploadRest(AbortHandle);

impl Exchange {
    /// Sends `request` on a new stream.
    pub(in crate::proxy::upstream) fn send(
        sender: &SendRequest,
        request: Request<RequestBody>,
        ExchangeLimits { heads, idle }: ExchangeLimits,
        traffic: &Arc<Traffic>,
    ) -> Result<Self, NotSent> {
        if let Err(error) = sender.check() {
            let unsent = Some(Box::new(request));
            return Err(NotSent { error: error.into(), unsent, heard: false });
        }
        let (mut head, body) = request.into_parts();
        if let Some(length) = body.size_hint().exact()
            && (length > 0 || !is_bodiless(&head.method))
        {
            let length = || HeaderValue::from(length);
            head.headers.entry(header::CONTENT_LENGTH).or_insert_with(length);
        }
        let (permission, end) = (body.permission().cloned(), body.is_end_stream());
        let sent = sender.send_request(Request::from_parts(head, ()), end);
        let (response, stream) =
            sent.map_err(|error| NotSent { error: error.into(), unsent: None, heard: false })?;
        let upload = (!end).then(|| TimedWriter::new(stream, body, idle, traffic));
        Ok(Self { response, upload, permission, heard: false, heads })
    }

    /// The response's head, and its body. Sends the request meanwhile. Interim responses go to `interim`, except for
    /// a 100 that the body waits for.
    pub(in crate::proxy::upstream) fn poll_answer(
        &mut self,
        cx: &mut Context<'_>,
        interim: InterimSink<'_>,
    ) -> Poll<Result<(ResponseHead, Incoming), Error>> {
        self.poll_upload(cx)?;
        while let Some(head) = ready!(self.response.poll_informational(cx)) {
            let head = head?;
            self.heard = true;
            self.informed(head, interim)?;
        }
        let (head, stream) = ready!(Pin::new(&mut self.response).poll(cx))?.into_parts();
        let incoming = Incoming::new(stream, &head.headers, self.heads);
        self.heads.check(&head.headers, 0).map_err(Error::Head)?;
        Poll::Ready(Ok((
            ResponseHead { status: head.status, reason: None, fields: head.headers },
            incoming,
        )))
    }

    /// Why there is no response, after [`poll_answer`](Self::poll_answer) has failed with `error`.
    pub(in crate::proxy::upstream) const fn failed(&self, error: Error) -> NotSent {
        NotSent { error, unsent: None, heard: self.heard }
    }

    /// Spawns a task that sends the rest of the request. If its body still waits for a 100, it is not sent: the response
    /// has come without it.
    pub(in crate::proxy::upstream) fn rest(&mut self) -> Option<UploadRest> {
        let upload = self.upload.take()?;
        if self.permission.as_ref().is_some_and(|permission| !permission.is_given()) {
            return None;
        }
        // The timeout of the response's body is enough from here on.
        let mut upload = upload.untimed();
        let task = tokio::spawn(async move {
            let sent = std::future::poll_fn(|cx| upload.poll(cx)).await;
            if let Err(BodyWriteError::Broken(_)) = sent {
                upload.reset(Reason::CANCEL);
            }
        });
        Some(UploadRest(task.abort_handle()))
    }

    fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<(), Error> {
        let Some(upload) = &mut self.upload else {
            return Ok(());
        };
        match upload.poll(cx) {
            Poll::Pending => return Ok(()),
            // If the stream ended, reading the response reports how.
            Poll::Ready(Ok(()) | Err(TimedWriteError::Stream)) => self.upload = None,
            Poll::Ready(Err(TimedWriteError::Broken(error))) => {
                upload.reset(Reason::CANCEL);
                return Err(Error::Request(error));
            }
            Poll::Ready(Err(TimedWriteError::Stalled(limit))) => {
                upload.reset(Reason::CANCEL);
                return Err(Error::Stalled(limit));
            }
        }
        Ok(())
    }

    fn informed(&self, head: Response<()>, interim: InterimSink<'_>) -> Result<(), Error> {
        let (head, ()) = head.into_parts();
        match (head.status, &self.permission) {
            (StatusCode::SWITCHING_PROTOCOLS, _) => return Err(Error::Switched),
            (StatusCode::CONTINUE, Some(permission)) => permission.give(),
            (status, _) => interim(ResponseHead { status, reason: None, fields: head.headers }),
        }
        Ok(())
    }
}

impl Error {
    /// Whether the connection was ended because the other side floods it with frames.
    pub(in crate::proxy::upstream) fn is_flood(&self) -> bool {
        match self {
            Self::Stream(error) => {
                let calm = error.reason() == Some(Reason::ENHANCE_YOUR_CALM);
                error.is_go_away() && error.is_library() && calm
            }
            _ => false,
        }
    }
}

impl From<h2::Error> for Error {
    fn from(error: h2::Error) -> Self {
        if error.is_io() {
            return Self::Io(error.into_io().unwrap_or_else(|| io::ErrorKind::Other.into()));
        }
        Self::Stream(error)
    }
}

impl Drop for UploadRest {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Whether a request of this method needs no `Content-Length` if it has no body (RFC 9110 §8.6).
fn is_bodiless(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::DELETE | Method::CONNECT)
}
