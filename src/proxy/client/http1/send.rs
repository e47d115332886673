//! Writes an answer as fast as the client accepts it.
//!
//! The body is not polled again while some of its data is still to be written. So no client makes more than one
//! piece pile up, and if a body breaks off, everything before that is still sent.

use std::io;
use std::task::{Context, Poll, ready};

use http::{Response, Version};
use http_body::Body;

use super::answer::{self, AnswerContext};
use super::{AfterAnswer, Http1Session};
use crate::proxy::answer::body::AnswerBody;
use crate::proxy::client::tunnel::Tunnel;
use crate::proxy::h1::{BodyWriteError, BodyWriter, Framing, WriteBuffer, WrongLength, give_back};
use crate::proxy::io::Io;
use crate::proxy::io::splice::{self, CorkedSocket, Pipe};
use crate::proxy::request::flight::Flight;
use crate::proxy::upstream::connection::Http1Lease;

type BoxError = <AnswerBody as Body>::Error;

/// An answer whose head is in the output, and whose body is not.
pub(super) struct BegunAnswer {
    /// Whether the connection may carry another request.
    keeps: bool,
    /// What the connection is used for afterwards, if that is another protocol.
    switch: Option<(Box<Http1Lease>, Flight)>,
}

impl Http1Session {
    /// Puts an answer's head into the output, and its body into `sending`. `None` if there is no answer.
    pub(super) fn begin_answer(
        &mut self,
        response: Response<AnswerBody>,
        asking: &AnswerContext,
        trailers: bool,
        sending: &mut Option<BodyWriter<AnswerBody>>,
    ) -> Option<BegunAnswer> {
        let (parts, mut body) = response.into_parts();
        if body.is_withheld() {
            return None;
        }
        let switch = body.take_tunnel();
        self.conn.lock().say_into(&mut self.output);
        // Trailers need chunked framing, so the length is left out for a client that accepts trailers.
        let trailed = trailers && asking.version > Version::HTTP_10 && body.is_trailed();
        let length = body.size_hint().exact().filter(|_| !trailed);
        let clock = || self.worker.core.date();
        self.output.reserve(128 + 48 * parts.headers.len(), length);
        let (out, reason) = (self.output.text(), body.reason());
        let (framing, keeps) = answer::head(out, &parts, reason, length, asking, clock);
        give_back(parts.headers);
        if framing == Framing::UntilClose {
            self.break_at_end(true);
        }
        *sending = Some(BodyWriter { body, framing, trailers });
        Some(BegunAnswer { keeps, switch })
    }

    /// Sends the rest of an answer, and returns what follows it.
    pub(super) async fn send(
        &mut self,
        begun: Option<BegunAnswer>,
        sending: &mut Option<BodyWriter<AnswerBody>>,
    ) -> io::Result<AfterAnswer> {
        let Some(BegunAnswer { keeps, switch }) = begun else {
            return Ok(AfterAnswer::Nothing);
        };
        std::future::poll_fn(|cx| self.poll_send(sending, cx)).await?;
        self.output.rest();
        if let Some((far, flight)) = switch {
            return Ok(AfterAnswer::Switch(Box::new(Tunnel::new(*far, flight))));
        }
        // The rest of the request is discarded, if it has already arrived.
        let read = keeps && self.conn.lock().read_out();
        Ok(if read { AfterAnswer::Next } else { AfterAnswer::End })
    }

    /// Sends the answer's body. Ready when all of it is out. The body is ended, and everything that depends on it is
    /// counted, before its last bytes are written: a client that has read an answer finds it counted.
    fn poll_send(
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
