//! The body of a client's request, in HTTP/1.1 and HTTP/2.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::capture::{Capture, CapturedBody};
use crate::proxy::h1::ClientConnection;
use crate::proxy::h2::RequestStream;

/// The body of a client's request as it arrives.
#[derive(Debug)]
pub(crate) enum ClientBody {
    /// There is none.
    Empty,
    /// The rest of the body on an HTTP/1.1 connection.
    Http1(ClientConnection),
    /// An HTTP/2 stream.
    Http2(RequestStream),
    /// One of these, of which a copy is made.
    Captured(Box<CapturedBody>),
}

impl ClientBody {
    /// Whether the client waits for a 100 before it sends the body. Reading the body sends that 100.
    pub(crate) fn waits(&self) -> bool {
        match self {
            Self::Empty => false,
            Self::Http1(conn) => conn.waits(),
            Self::Http2(stream) => stream.waits(),
            Self::Captured(captured) => captured.body().waits(),
        }
    }

    /// Where the copy of this request is made, if one is.
    pub(crate) fn capture(&self) -> Option<&Arc<Capture>> {
        match self {
            Self::Captured(captured) => Some(captured.capture()),
            Self::Empty | Self::Http1(_) | Self::Http2(_) => None,
        }
    }
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Http1(conn) => conn.poll_body(cx).map_err(Into::into),
            Self::Http2(stream) => stream.poll_body(cx).map_err(Into::into),
            Self::Captured(captured) => captured.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Http1(conn) => conn.left() == Some(0),
            Self::Http2(stream) => stream.is_ended(),
            Self::Captured(captured) => captured.body().is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Http1(conn) => size(conn.left()),
            Self::Http2(stream) => size(stream.left()),
            Self::Captured(captured) => captured.body().size_hint(),
        }
    }
}

/// The size of a body of which this much is left, if that is known.
fn size(left: Option<u64>) -> SizeHint {
    left.map_or_else(SizeHint::default, SizeHint::with_exact)
}
