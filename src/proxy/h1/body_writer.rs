//! Sends the body of a message.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Body;

use super::framing::{Framing, WrongLength};
use super::write_buffer::WriteBuffer;

/// A body that is being sent in the framing that its head announced.
#[derive(Debug)]
pub(crate) struct BodyWriter<B> {
    pub(crate) body: B,
    pub(crate) framing: Framing,
    /// Whether the peer accepts trailers.
    pub(crate) trailers: bool,
}

/// Why a body cannot be sent completely.
#[derive(Debug)]
pub(crate) enum BodyWriteError<E> {
    /// It broke off.
    Broken(E),
    /// It does not have the announced length.
    Length,
}

impl<B: Body<Data = Bytes> + Unpin> BodyWriter<B> {
    /// Moves as much of the body into `output` as it has room for. Pending if the body has nothing yet.
    pub(crate) fn poll_into(
        &mut self,
        output: &mut WriteBuffer,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), BodyWriteError<B::Error>>> {
        while !self.framing.is_done() && !output.is_full() {
            ready!(self.poll_piece_into(output, cx))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Moves the next piece of the body, or its end, into `output`. Call it only if the body has not ended and
    /// there is room.
    pub(crate) fn poll_piece_into(
        &mut self,
        output: &mut WriteBuffer,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), BodyWriteError<B::Error>>> {
        let put = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            None => self.framing.end(output, None),
            Some(Err(error)) => return Poll::Ready(Err(BodyWriteError::Broken(error))),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => self.framing.data(output, data),
                Err(frame) => {
                    let trailers = frame.trailers_ref().filter(|_| self.trailers);
                    self.framing.end(output, trailers)
                }
            },
        };
        Poll::Ready(put.map_err(|WrongLength| BodyWriteError::Length))
    }
}
