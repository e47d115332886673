//! Bodies: what a client sends ([`source`]), what an attempt sends on ([`request`]), what an upstream responds with
//! ([`upstream::body`](super::upstream::body)) and what the client gets ([`answer::body`](super::answer::body)).
//!
//! A body is moved, never copied: each of these is a stream of reference-counted chunks. A body is kept in memory
//! only for a reason that the configuration states (a replay, an expression that reads it), and only up to a limit.

pub(crate) mod capture;
pub(crate) mod client;
pub(crate) mod collect;
pub(crate) mod expect_continue;
pub(crate) mod request;
pub(crate) mod source;
pub(crate) mod stall;
pub(crate) mod timed_writer;
pub(crate) mod valued;
pub(crate) mod whole;
mod window_stall;

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};

/// Why a body ended too early.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The client's body broke off or is malformed.
    #[error("the client's request body broke off")]
    Client(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The upstream's body broke off or is malformed.
    #[error("the upstream's response body broke off")]
    Upstream(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// No byte arrived for the upstream's `idleTimeout`.
    #[error("no byte of the body came for {}", crate::language::temporal::Span::from_duration(*.0))]
    Stalled(Duration),
    /// The client sends more slowly than `limits.minimumRate` allows.
    #[error("the body came more slowly than {0}")]
    Slow(crate::proxy::settings::MinimumRate),
    /// A later attempt has taken the request body over, or nobody wants the response any more. An HTTP/2
    /// upstream gets this error's source as the reason.
    #[error("this attempt's request is abandoned")]
    Abandoned(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The next frame of `body` that is not empty.
///
/// HTTP/2 bodies often end with an empty DATA frame, which is returned before the end. Such
/// a frame must not be passed on: it carries nothing and ends nothing, and receivers count such frames and
/// close a connection that sends too many.
pub(crate) fn poll_frame<B>(
    mut body: Pin<&mut B>,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, B::Error>>>
where
    B: Body<Data = Bytes>,
{
    loop {
        let frame = ready!(body.as_mut().poll_frame(cx));
        let data = frame.as_ref().and_then(|frame| frame.as_ref().ok()).and_then(Frame::data_ref);
        if !data.is_some_and(Bytes::is_empty) {
            return Poll::Ready(frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use http_body_util::{BodyExt, StreamBody};

    #[tokio::test]
    async fn empty_frames_are_no_frames() {
        let chunks = ["", "ab", "", "", "c", ""].map(|chunk| {
            Ok::<_, std::io::Error>(Frame::data(Bytes::from_static(chunk.as_bytes())))
        });
        let mut body = StreamBody::new(stream::iter(chunks));
        let mut read = Vec::new();
        while let Some(frame) = std::future::poll_fn(|cx| poll_frame(Pin::new(&mut body), cx)).await
        {
            read.push(frame.unwrap().into_data().unwrap());
        }
        assert_eq!(read, ["ab", "c"]);
        assert!(body.frame().await.is_none());
    }
}
