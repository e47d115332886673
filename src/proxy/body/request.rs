//! The body of one request to an upstream.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::BodyError;
use super::client::ClientBody;
use super::expect_continue::{ContinueSignal, ContinueWait};
use super::source::{AttemptBody, BodyFailure, ReplaySource};
use super::whole::Whole;

/// The body that an attempt sends.
#[derive(Debug)]
pub(crate) enum RequestBody {
    /// A body in memory, or none. With trailers it is sent without a length in HTTP/1.1.
    Whole(Whole),
    /// The client's body.
    Stream(AttemptBody<ClientBody>),
    /// The client's body, once the upstream asks for it.
    Held(Box<(ContinueWait, AttemptBody<ClientBody>)>),
}

/// Reports on a request body after it was handed to a connection.
#[derive(Clone, Debug)]
pub(crate) enum UploadProgress {
    /// It was in memory and goes out with the head.
    Whole,
    /// It is streamed by this source. The number names the latest of the source's attempts.
    Stream(Arc<ReplaySource<ClientBody>>, Arc<AtomicU32>),
}

impl UploadProgress {
    /// The body is now sent as `body`.
    pub(crate) fn begin(&self, body: &RequestBody) {
        let attempt = match body {
            RequestBody::Stream(attempt) => attempt,
            RequestBody::Held(held) => &held.1,
            RequestBody::Whole(_) => return,
        };
        if let Self::Stream(_, turn) = self {
            turn.store(attempt.turn(), Ordering::Relaxed);
        }
    }

    /// Whether the whole body was handed to the connection.
    pub(crate) fn finished(&self) -> bool {
        match self {
            Self::Whole => true,
            Self::Stream(source, turn) => source.sent(turn.load(Ordering::Relaxed)),
        }
    }

    /// The rest of the body is not sent, so the upstream sees the request fail.
    pub(crate) fn abandon(&self) {
        if let Self::Stream(source, turn) = self {
            source.abandon(turn.load(Ordering::Relaxed));
        }
    }

    /// The same, if part of it was not sent.
    pub(crate) fn abandon_rest(&self) {
        if !self.finished() {
            self.abandon();
        }
    }

    /// How the client's body broke off, if it did.
    pub(crate) fn broken(&self) -> Option<BodyFailure> {
        match self {
            Self::Whole => None,
            Self::Stream(source, _) => source.broken(),
        }
    }

    /// Whether the body could be sent again.
    pub(crate) fn replayable(&self) -> bool {
        match self {
            Self::Whole => true,
            Self::Stream(source, _) => source.replayable(),
        }
    }
}

impl RequestBody {
    /// No body.
    pub(crate) const EMPTY: Self = Self::Whole(Whole::EMPTY);

    /// The client's body. With a `permission`, it is sent once that is given.
    pub(crate) fn stream(
        attempt: AttemptBody<ClientBody>,
        permission: Option<&Arc<ContinueSignal>>,
    ) -> Self {
        match permission {
            Some(permission) => {
                Self::Held(Box::new((ContinueWait::new(Arc::clone(permission)), attempt)))
            }
            None => Self::Stream(attempt),
        }
    }

    /// The permission that it waits for, if any.
    pub(crate) fn permission(&self) -> Option<&Arc<ContinueSignal>> {
        match self {
            Self::Held(held) => Some(held.0.permission()),
            _ => None,
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Whole(whole) => Poll::Ready(whole.next().map(Ok)),
            Self::Stream(attempt) => Pin::new(attempt).poll_frame(cx),
            Self::Held(waiting) => {
                let (hold, attempt) = waiting.as_mut();
                ready!(hold.poll(cx));
                Pin::new(attempt).poll_frame(cx)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(whole) => whole.is_end(),
            Self::Stream(attempt) => attempt.is_end_stream(),
            Self::Held(held) => held.1.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(whole) if whole.is_trailed() => SizeHint::default(),
            Self::Whole(whole) => SizeHint::with_exact(whole.len()),
            Self::Stream(attempt) => attempt.size_hint(),
            Self::Held(held) => held.1.size_hint(),
        }
    }
}
