//! The body of a client's request, in HTTP/1.1 and HTTP/2.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use crate::proxy::h1::ClientConnection;

/// The body of a client's request as it arrives.
#[derive(Debug)]
pub(crate) enum ClientBody {
    /// There is none.
    Empty,
    /// The rest of the body on an HTTP/1.1 connection.
    Http1(ClientConnection),
    /// An HTTP/2 stream.
    Http2(Incoming),
}

impl ClientBody {
    /// Whether the client waits for a 100 before it sends the body. Reading the body sends that 100.
    pub(crate) fn waits(&self) -> bool {
        matches!(self, Self::Http1(conn) if conn.waits())
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
            Self::Http2(incoming) => Pin::new(incoming).poll_frame(cx).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Http1(conn) => conn.left() == Some(0),
            Self::Http2(incoming) => incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Http1(conn) => conn.left().map_or_else(SizeHint::default, SizeHint::with_exact),
            Self::Http2(incoming) => incoming.size_hint(),
        }
    }
}
