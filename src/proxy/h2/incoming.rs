//! Reads the body of a message.
//!
//! Only `END_STREAM` ends it (RFC 9113 §8.1). If the stream is reset before, the body is broken off, even if the error code is
//! `NO_ERROR`. The window reopens as the body is read, and not earlier.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http::header;
use http_body::{Body, Frame, SizeHint};

use super::head_limits::OverLimit;
use super::wire::{self, RecvStream};
use crate::proxy::settings::HeadLimits;

/// The body that follows a head.
#[derive(Debug)]
pub(crate) struct Incoming {
    stream: RecvStream,
    /// How many bytes are left, if the head says so.
    left: Option<u64>,
    /// Whether only trailers can follow.
    data_ended: bool,
    /// Whether all of it was received and read. Once it is, the stream need not be asked.
    ended: bool,
    /// The limits of the trailers.
    limits: HeadLimits,
}

/// Why a body is incomplete.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The stream or its connection ended early.
    #[error(transparent)]
    Stream(wire::Error),
    /// The trailers exceed a limit.
    #[error("the trailers are too large")]
    Trailers(#[source] OverLimit),
    /// The answer is complete, so nobody may read the request any more.
    #[error("the stream is over")]
    Over,
}

impl Incoming {
    /// The body on `stream` that follows a head with these `fields`.
    pub(crate) fn new(stream: RecvStream, fields: &HeaderMap, limits: HeadLimits) -> Self {
        let said = fields.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
        let left = said.and_then(|length| length.parse().ok());
        let ended = stream.is_end_stream();
        let left = if ended { Some(0) } else { left };
        Self { stream, left, data_ended: false, ended, limits }
    }

    /// Whether all of it was received and read.
    pub(crate) fn is_ended(&self) -> bool {
        self.ended || self.stream.is_end_stream()
    }

    /// How many bytes are left, if that is known.
    pub(crate) const fn left(&self) -> Option<u64> {
        self.left
    }

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, wire::Error>>> {
        let polled = ready!(self.stream.poll_data(cx));
        if let Some(Ok(data)) = &polled {
            self.stream.release_capacity(data.len());
            self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
            self.ended = self.stream.is_end_stream();
        }
        Poll::Ready(polled)
    }

    /// Why there are no trailers.
    fn failed(&self, error: wire::Error) -> Error {
        if error.is_trailers_too_large() {
            return Error::Trailers(OverLimit::Size(self.limits.size));
        }
        Error::Stream(error)
    }

    /// The `trailers`, if they are complete and within the limits.
    fn checked(&self, trailers: HeaderMap) -> Result<HeaderMap, Error> {
        self.limits.check(&trailers, 0).map_err(Error::Trailers)?;
        Ok(trailers)
    }
}

impl Body for Incoming {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let incoming = self.get_mut();
        if !incoming.data_ended {
            match ready!(incoming.poll_data(cx)) {
                Some(Ok(data)) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Some(Err(error)) => return Poll::Ready(Some(Err(Error::Stream(error)))),
                None => incoming.data_ended = true,
            }
        }
        let trailers = ready!(incoming.stream.poll_trailers(cx));
        let trailers = trailers.map_err(|error| incoming.failed(error))?;
        let trailers = trailers.map(|trailers| incoming.checked(trailers));
        Poll::Ready(trailers.map(|trailers| trailers.map(Frame::trailers)))
    }

    fn is_end_stream(&self) -> bool {
        self.is_ended()
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
