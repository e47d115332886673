//! Sends the body of a message.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Body;

use super::framing::{Framing, WrongLength};
use super::outbox::Outbox;

/// A body that is being sent in the framing that its head announced.
#[derive(Debug)]
pub(crate) struct Sending<B> {
    pub(crate) body: B,
    pub(crate) framing: Framing,
    /// Whether the peer accepts trailers.
    pub(crate) trailers: bool,
}

/// Why a body cannot be sent completely.
#[derive(Debug)]
pub(crate) enum Unsendable<E> {
    /// It broke off.
    Broken(E),
    /// It does not have the announced length.
    Length,
}

impl<B: Body<Data = Bytes> + Unpin> Sending<B> {
    /// Moves as much of the body into `outbox` as it has room for. Pending if the body has nothing yet.
    pub(crate) fn poll_into(
        &mut self,
        outbox: &mut Outbox,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Unsendable<B::Error>>> {
        while !self.framing.is_done() && !outbox.is_full() {
            ready!(self.poll_piece_into(outbox, cx))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Moves the next piece of the body, or its end, into `outbox`. Call it only if the body has not ended and
    /// there is room.
    pub(crate) fn poll_piece_into(
        &mut self,
        outbox: &mut Outbox,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Unsendable<B::Error>>> {
        let put = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            None => self.framing.end(outbox, None),
            Some(Err(error)) => return Poll::Ready(Err(Unsendable::Broken(error))),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => self.framing.data(outbox, data),
                Err(frame) => {
                    let trailers = frame.trailers_ref().filter(|_| self.trailers);
                    self.framing.end(outbox, trailers)
                }
            },
        };
        Poll::Ready(put.map_err(|WrongLength| Unsendable::Length))
    }
}
