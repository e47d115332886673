//! Copies of what passes between a client and the proxy, for a recording (`run --record`).
//!
//! Bodies go on streaming: their beginning is copied as it passes, up to a bound and within `limits.bufferedBytes`, and
//! the rest is counted.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Response, StatusCode, Version};
use http_body::{Body as _, Frame};

use super::client::ClientBody;
use crate::proxy::memory::{Budget, Reservation};
use crate::telemetry::recordings::{BODY, Copied, CopiedBody};

/// What is copied of one request and its answer.
#[derive(Debug)]
pub(crate) struct Capture {
    /// The request's head, until it is handed over.
    head: Mutex<Option<CapturedHead>>,
    /// `None` if the request has no body.
    request: Option<BodyCopy>,
    answer: Mutex<Option<(StatusCode, HeaderMap)>>,
    answered: BodyCopy,
}

/// The head of a request as its client sent it.
#[derive(Debug)]
pub(crate) struct CapturedHead {
    pub(crate) method: Method,
    pub(crate) target: Box<str>,
    pub(crate) version: Version,
    pub(crate) headers: HeaderMap,
}

/// A client's body of which a copy is made.
#[derive(Debug)]
pub(crate) struct CapturedBody {
    body: ClientBody,
    capture: Arc<Capture>,
}

/// The beginning of a body.
#[derive(Debug)]
struct BodyCopy(Mutex<CopyState>);

#[derive(Debug)]
struct CopyState {
    bytes: BytesMut,
    /// How many bytes have passed.
    passed: u64,
    /// Whether the end has passed.
    ended: bool,
    /// Whether something was left out: it was too much, or there was no room.
    full: bool,
    /// Its part of what all bodies may keep.
    room: Reservation,
}

impl Capture {
    /// Copies a request with this head, its body, and its answer.
    pub(crate) fn around(head: CapturedHead, body: ClientBody, memory: &Arc<Budget>) -> ClientBody {
        let request = (!body.is_end_stream()).then(|| BodyCopy::within(memory));
        let capture = Arc::new(Self {
            head: Mutex::new(Some(head)),
            request,
            answer: Mutex::default(),
            answered: BodyCopy::within(memory),
        });
        ClientBody::Captured(Box::new(CapturedBody { body, capture }))
    }

    /// The answer has this head.
    pub(crate) fn answer<B>(&self, answer: &Response<B>) {
        *lock(&self.answer) = Some((answer.status(), answer.headers().clone()));
    }

    /// A part of the answer's body was handed over.
    pub(crate) fn answer_data(&self, data: &[u8]) {
        self.answered.add(data);
    }

    /// The answer's body is complete.
    pub(crate) fn answer_ended(&self) {
        self.answered.end();
    }

    /// All that was copied, once.
    pub(crate) fn take(&self) -> Option<Copied> {
        let CapturedHead { method, target, version, headers } = lock(&self.head).take()?;
        let answer = lock(&self.answer).take();
        Some(Copied {
            method,
            target,
            version,
            headers,
            body: self.request.as_ref().map(BodyCopy::take),
            answer: answer.map(|(status, headers)| {
                let body = self.answered.take();
                (status, headers, Some(body).filter(|body| body.passed > 0 || !body.whole))
            }),
        })
    }
}

impl CapturedBody {
    /// The body itself.
    pub(super) const fn body(&self) -> &ClientBody {
        &self.body
    }

    /// The copy.
    pub(super) const fn capture(&self) -> &Arc<Capture> {
        &self.capture
    }

    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, <ClientBody as http_body::Body>::Error>>> {
        let polled = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(copy) = &self.capture.request {
            let ended = match &polled {
                None => true,
                Some(Ok(frame)) => {
                    copy.add(frame.data_ref().map_or(&[], |data| &data[..]));
                    frame.is_trailers() || self.body.is_end_stream()
                }
                Some(Err(_)) => false,
            };
            if ended {
                copy.end();
            }
        }
        Poll::Ready(polled)
    }
}

impl BodyCopy {
    fn within(memory: &Arc<Budget>) -> Self {
        let (bytes, room) = (BytesMut::new(), memory.reservation());
        Self(Mutex::new(CopyState { bytes, passed: 0, ended: false, full: false, room }))
    }

    fn add(&self, data: &[u8]) {
        let mut copy = lock(&self.0);
        copy.passed = copy.passed.saturating_add(data.len() as u64);
        if copy.full {
            return;
        }
        let kept = data.get(..BODY.saturating_sub(copy.bytes.len())).unwrap_or(data);
        let fits = copy.room.grow(kept.len());
        if fits {
            copy.bytes.extend_from_slice(kept);
        }
        copy.full = !fits || kept.len() < data.len();
    }

    fn end(&self) {
        lock(&self.0).ended = true;
    }

    fn take(&self) -> CopiedBody {
        let mut copy = lock(&self.0);
        let another = copy.room.another();
        let room = std::mem::replace(&mut copy.room, another);
        let bytes = room.join(std::mem::take(&mut copy.bytes).freeze());
        CopiedBody { bytes, passed: copy.passed, whole: copy.ended && !copy.full }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
