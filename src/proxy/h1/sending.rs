//! What is still to be sent of a message.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Body;

use super::framing::{Framing, WrongLength};
use super::outbox::Outbox;

/// A body that is being sent, in the framing that its head announced.
#[derive(Debug)]
pub(crate) struct Sending<B> {
    pub(crate) body: B,
    pub(crate) framing: Framing,
    /// Whether the other side takes trailers.
    pub(crate) trailers: bool,
}

/// Why a body cannot be sent to its end.
#[derive(Debug)]
pub(crate) enum Unsendable<E> {
    /// It broke off.
    Broken(E),
    /// It is not of the length that was announced.
    Length,
}

impl<B: Body<Data = Bytes> + Unpin> Sending<B> {
    /// Puts of the body into `outbox` what has room there. Pending where there is nothing yet.
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

    /// Puts the next piece of the body, or its end, into `outbox`. To be asked while there is more to come, and room.
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
