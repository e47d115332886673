//! A client's stream, shared by everything that answers its request.
//!
//! An attempt reads the body, and passes on interim responses. The session sends the answer. All of them are on the
//! connection's thread, and nobody keeps the lock while waiting.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use http_body::{Body as _, Frame};

use super::incoming::{Error, Incoming};
use super::traffic::Traffic;
use super::wire::{self, Reason, SendResponse, SendStream};
use crate::proxy::h1::DropReason;

/// How many bytes of interim responses may wait for a client that reads slowly.
const MAX_PENDING: usize = 16 * 1024;
/// What an interim response counts beside its fields, in bytes.
const EACH: usize = 64;

/// A client's stream.
#[derive(Clone, Debug)]
pub(crate) struct RequestStream(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    /// `None` once the answer is complete. Then nobody may read or send any more.
    open: Option<Open>,
    /// Whether the client waits for a 100 before it sends the body.
    waits: bool,
    /// Whether the answer has begun. Then interim responses come too late.
    answered: bool,
    /// The size of the interim responses that were sent since everything was flushed for the `flushes`-th time.
    pending: usize,
    flushes: u64,
    traffic: Arc<Traffic>,
}

#[derive(Debug)]
struct Open {
    incoming: Incoming,
    respond: SendResponse,
}

impl RequestStream {
    /// The stream that is read by `incoming` and answered by `respond`. `waits`: the client waits for a 100.
    pub(crate) fn new(
        incoming: Incoming,
        respond: SendResponse,
        waits: bool,
        traffic: Arc<Traffic>,
    ) -> Self {
        let open = Some(Open { incoming, respond });
        let inner = Inner { open, waits, answered: false, pending: 0, flushes: 0, traffic };
        Self(Arc::new(Mutex::new(inner)))
    }

    /// The next piece of the request's body. The first call sends a 100 if the client waits for one.
    pub(crate) fn poll_body(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let mut inner = self.lock();
        inner.send_continue();
        match &mut inner.open {
            Some(open) => Pin::new(&mut open.incoming).poll_frame(cx),
            None => Poll::Ready(Some(Err(Error::Over))),
        }
    }

    /// Whether the client waits for a 100.
    pub(crate) fn waits(&self) -> bool {
        self.lock().waits
    }

    /// Whether the request's body was read completely.
    pub(crate) fn is_ended(&self) -> bool {
        self.lock().open.as_ref().is_none_or(|open| open.incoming.is_ended())
    }

    /// How many bytes of the request's body are left, if that is known.
    pub(crate) fn left(&self) -> Option<u64> {
        self.lock().open.as_ref().map_or(Some(0), |open| open.incoming.left())
    }

    /// Sends an interim response.
    pub(crate) fn say_before(
        &self,
        status: StatusCode,
        fields: HeaderMap,
    ) -> Result<(), DropReason> {
        let mut inner = self.lock();
        if inner.answered {
            return Err(DropReason::Late);
        }
        let flushes = inner.traffic.flushes();
        if flushes != inner.flushes {
            (inner.flushes, inner.pending) = (flushes, 0);
        }
        let sizes = fields.iter().map(|(name, value)| name.as_str().len() + value.len());
        let pending = inner.pending.saturating_add(sizes.sum::<usize>() + EACH);
        if pending > MAX_PENDING {
            return Err(DropReason::Full);
        }
        inner.pending = pending;
        inner.inform(status, fields)
    }

    /// Ready when the stream was reset before the answer has begun.
    pub(crate) fn poll_reset(&self, cx: &mut Context<'_>) -> Poll<Result<Reason, wire::Error>> {
        match &mut self.lock().open {
            Some(open) => open.respond.poll_reset(cx),
            None => Poll::Ready(Ok(Reason::STREAM_CLOSED)),
        }
    }

    /// Sends the head of the answer. `end`: nothing follows it.
    pub(crate) fn answer(&self, head: Response<()>, end: bool) -> Result<SendStream, wire::Error> {
        let mut inner = self.lock();
        inner.answered = true;
        match &mut inner.open {
            Some(open) => open.respond.send_response(head, end),
            None => Err(Reason::STREAM_CLOSED.into()),
        }
    }

    /// Resets the stream instead of sending the answer, or the rest of it.
    pub(crate) fn reset(&self, reason: Reason) {
        if let Some(open) = &mut self.lock().open {
            open.respond.send_reset(reason);
        }
    }

    /// The answer is complete. Nobody reads the rest of the request, even if somebody still holds this.
    pub(crate) fn close(&self) {
        let open = self.lock().open.take();
        drop(open);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Sends a 100, if the client waits for one and has no answer yet.
    fn send_continue(&mut self) {
        if std::mem::take(&mut self.waits) && !self.answered {
            // If this fails, the stream was reset, and reading the body fails too.
            let _sent = self.inform(StatusCode::CONTINUE, HeaderMap::new());
        }
    }

    fn inform(&mut self, status: StatusCode, fields: HeaderMap) -> Result<(), DropReason> {
        let open = self.open.as_mut().ok_or(DropReason::Late)?;
        open.inform(status, fields).map_err(|_over| DropReason::Late)
    }
}

impl Open {
    fn inform(&mut self, status: StatusCode, fields: HeaderMap) -> Result<(), wire::Error> {
        let mut head = Response::new(());
        *head.status_mut() = status;
        *head.headers_mut() = fields;
        self.respond.send_informational(head)
    }
}
