//! A response's body of which somebody keeps a copy while it passes to the client.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::runtime::Handle;
use tokio::time::sleep;

use crate::proxy::body::BodyError;
use crate::proxy::upstream::body::ResponseBody;
use crate::proxy::upstream::origin::ResponseOrigin;

/// How long a body is read on for the copy after the client has left.
const READ_ON: Duration = Duration::from_secs(10);

/// Keeps a copy of a body. Dropped before the end, it keeps nothing.
pub(crate) trait Keeper: fmt::Debug + Send + Sync {
    /// More of the body has come. Returns whether the rest is wanted.
    fn data(&mut self, data: &Bytes) -> bool;

    /// The body is complete.
    fn complete(self: Box<Self>, trailers: Option<&HeaderMap>);
}

/// A body, and who keeps a copy of it.
#[derive(Debug)]
pub(crate) struct WatchedBody {
    /// There until this is dropped.
    body: Option<Box<ResponseBody>>,
    keeper: Option<Box<dyn Keeper>>,
}

impl WatchedBody {
    pub(crate) fn new(body: Box<ResponseBody>, keeper: Box<dyn Keeper>) -> Self {
        Self { body: Some(body), keeper: Some(keeper) }
    }

    /// Where it came from, if it broke off.
    pub(super) fn origin(&self) -> Option<&ResponseOrigin> {
        self.body.as_ref().and_then(|body| body.origin())
    }

    /// Shows the keeper what was read.
    fn show(&mut self, polled: Option<&Result<Frame<Bytes>, BodyError>>) {
        let ended = self.is_end_stream();
        let Some(mut keeper) = self.keeper.take() else {
            return;
        };
        match polled {
            Some(Err(_)) => {}
            None => keeper.complete(None),
            Some(Ok(frame)) => {
                let wanted = frame.data_ref().is_none_or(|data| keeper.data(data));
                let trailers = frame.trailers_ref();
                if wanted && (ended || trailers.is_some()) {
                    keeper.complete(trailers);
                } else if wanted {
                    self.keeper = Some(keeper);
                }
            }
        }
    }
}

impl Body for WatchedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let Some(body) = &mut this.body else {
            return Poll::Ready(None);
        };
        let polled = std::task::ready!(Pin::new(body.as_mut()).poll_frame(cx));
        this.show(polled.as_ref());
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

/// The client has left, or does not want the body. The work was done, so its answer is read on for the copy.
impl Drop for WatchedBody {
    fn drop(&mut self) {
        let (Some(body), Some(keeper)) = (self.body.take(), self.keeper.take()) else {
            return;
        };
        if body.is_end_stream() {
            keeper.complete(None);
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let mut rest = Self::new(body, keeper);
        runtime.spawn(async move {
            let read = async {
                while rest.keeper.is_some() && rest.frame().await.is_some_and(|frame| frame.is_ok())
                {
                }
            };
            tokio::select! {
                () = read => {}
                () = sleep(READ_ON) => {}
            }
            // Nothing is read on a second time.
            drop(rest.keeper.take());
        });
    }
}
