//! Writes an answer as fast as the client accepts it.
//!
//! The body is not polled again while some of its data is still to be written. So no client makes more than one
//! piece pile up, and if a body breaks off, everything before that is still sent.

use std::io;
use std::task::{Context, Poll, ready};

use http_body::Body;

use super::Http1Session;
use crate::proxy::answer::body::AnswerBody;
use crate::proxy::h1::{BodyWriteError, BodyWriter, Framing, WriteBuffer, WrongLength};
use crate::proxy::io::Io;
use crate::proxy::io::splice::{self, CorkedSocket, Pipe};

type BoxError = <AnswerBody as Body>::Error;

impl Http1Session {
    /// Sends the answer. Ready when all of it is out. The body is ended, and everything that depends on it is
    /// counted, before its last bytes are written: a client that has read an answer finds it counted.
    pub(super) fn poll_send(
        &mut self,
        sending: &mut Option<BodyWriter<AnswerBody>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        // Write the present data before polling for more: that keeps the order, and nothing is lost if the body
        // breaks off.
        if self.blocked && self.poll_flush(cx)?.is_pending() {
            return self.poll_gone(cx).map(Err);
        }
        loop {
            let polled = match sending {
                Some(sending) => self.poll_take(sending, cx),
                None => Poll::Ready(Ok(())),
            };
            if let Some(BodyWriter { body, .. }) = sending.take_if(|it| it.framing.is_done()) {
                body.over(cx);
            }
            let flushed = self.poll_flush(cx)?;
            match polled {
                // At once: if the body were polled again, it would seem to have ended.
                Poll::Ready(Err(BodyWriteError::Broken(error))) => {
                    return Poll::Ready(Err(io::Error::other(error)));
                }
                Poll::Ready(Err(BodyWriteError::Length)) => {
                    let error = "the answer's body is not as long as its head says";
                    return Poll::Ready(Err(io::Error::other(error)));
                }
                Poll::Ready(Ok(())) if flushed.is_ready() && sending.is_none() => {
                    return Poll::Ready(Ok(()));
                }
                Poll::Ready(Ok(())) if flushed.is_ready() => {}
                Poll::Ready(Ok(())) | Poll::Pending => return self.poll_gone(cx).map(Err),
            }
        }
    }

    /// Takes the next data of the body: pieces while `output` has room, or one spliced piece after them.
    /// Pending if there is none yet.
    fn poll_take(
        &mut self,
        sending: &mut BodyWriter<AnswerBody>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), BodyWriteError<BoxError>>> {
        while !sending.framing.is_done() && self.pipe.is_none() {
            match ready!(self.poll_splice(sending, cx)) {
                Some(spliced) => spliced?,
                None if self.output.is_full() => break,
                None => ready!(sending.poll_piece_into(&mut self.output, cx))?,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Splices the next piece of a large body. `None` if it must be copied: it is small, somebody here must
    /// read it, or there is no free pipe.
    fn poll_splice(
        &mut self,
        sending: &mut BodyWriter<AnswerBody>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<(), BodyWriteError<BoxError>>>> {
        let large = matches!(sending.framing, Framing::Length(splice::MIN_BODY..));
        if !large || !self.conn.lock().is_plain() {
            return Poll::Ready(None);
        }
        let spliced = ready!(sending.body.poll_splice(&self.worker.core.pipes, cx));
        Poll::Ready(spliced.map(|spliced| {
            let pipe = spliced.map_err(|error| BodyWriteError::Broken(error.into()))?;
            let passed = sending.framing.pass(pipe.held());
            self.pipe = Some(pipe);
            passed.map_err(|WrongLength| BodyWriteError::Length)
        }))
    }

    /// Writes everything that is ready.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut conn = self.conn.lock();
        conn.say_into(&mut self.output);
        if self.output.is_empty() && self.pipe.is_none() {
            return Poll::Ready(Ok(()));
        }
        let mut wrote = false;
        let polled = poll_out(&mut self.output, &mut self.pipe, conn.io()?, cx, &mut wrote);
        // A client that accepts some bytes, but not all, blocks anew from now on.
        if polled.is_pending() != self.blocked || (wrote && self.blocked) {
            self.blocked = polled.is_pending();
            self.state.set_blocked(self.blocked);
        }
        polled
    }
}

/// Writes all of `output`, then all of `pipe`. `wrote` is set if any byte was accepted.
fn poll_out(
    output: &mut WriteBuffer,
    pipe: &mut Option<Pipe>,
    io: &mut Io,
    cx: &mut Context<'_>,
    wrote: &mut bool,
) -> Poll<io::Result<()>> {
    let (Some(full), Some(socket)) = (pipe.as_mut(), io.socket()) else {
        if !output.is_empty() {
            ready!(output.poll_write(io, cx, wrote))?;
        }
        return Poll::Ready(Ok(()));
    };
    if !output.is_empty() {
        ready!(output.poll_write(&mut CorkedSocket(socket), cx, wrote))?;
    }
    let held = full.held();
    let drained = full.poll_drain(socket, cx);
    *wrote |= full.held() < held;
    ready!(drained)?;
    *pipe = None;
    Poll::Ready(Ok(()))
}
