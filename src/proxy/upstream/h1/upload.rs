//! What is still to be sent of a request.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_body::Body as _;

use super::encode::{Framing, WrongLength};
use super::error::Error;
use super::outbox::Outbox;
use crate::proxy::body::request::RequestBody;

/// A body that is being sent, in the framing that its head announced.
#[derive(Debug)]
pub(super) struct Upload {
    pub(super) body: RequestBody,
    pub(super) framing: Framing,
}

impl Upload {
    /// Nothing to send.
    pub(super) const NONE: Self = Self { body: RequestBody::Empty, framing: Framing::Length(0) };

    /// Puts of the body into `outbox` what has room there. Pending where there is nothing yet.
    pub(super) fn poll_into(
        &mut self,
        outbox: &mut Outbox,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        while !self.framing.is_done() && !outbox.is_full() {
            let put = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                None => self.framing.end(outbox, None),
                Some(Err(error)) => return Poll::Ready(Err(Error::Request(error))),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.framing.data(outbox, data),
                    Err(frame) => self.framing.end(outbox, frame.trailers_ref()),
                },
            };
            put.map_err(|WrongLength| Error::Length)?;
        }
        Poll::Ready(Ok(()))
    }
}
