//! The body of a client's request, in HTTP/1.1 and HTTP/2.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use crate::proxy::h1::Talk;

/// The body of a client's request as it arrives.
#[derive(Debug)]
pub(crate) enum ClientBody {
    /// There is none.
    Empty,
    /// The rest of the body on an HTTP/1.1 connection.
    Talk(Talk),
    /// An HTTP/2 stream.
    Stream(Incoming),
}

impl ClientBody {
    /// Whether the client waits for a 100 before it sends the body. Reading the body sends that 100.
    pub(crate) fn waits(&self) -> bool {
        matches!(self, Self::Talk(talk) if talk.waits())
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
            Self::Talk(talk) => talk.poll_body(cx).map_err(Into::into),
            Self::Stream(incoming) => Pin::new(incoming).poll_frame(cx).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Talk(talk) => talk.left() == Some(0),
            Self::Stream(incoming) => incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Talk(talk) => talk.left().map_or_else(SizeHint::default, SizeHint::with_exact),
            Self::Stream(incoming) => incoming.size_hint(),
        }
    }
}
