//! An answer on its way out, as the client takes it.
//!
//! Nothing more is asked of a body while something that it gave is still to be written: no client makes more pile up
//! than a piece, and where a body breaks off nothing of what came before is lost.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_body::Body;

use super::Conversation;
use crate::proxy::answer::body::AnswerBody;
use crate::proxy::h1::{Framing, Outbox, Sending, Unsendable, WrongLength};
use crate::proxy::io::Io;
use crate::proxy::io::pour::{self, Before, Pipe};

type BoxError = <AnswerBody as Body>::Error;

impl Conversation {
    /// Sends on. Ready when all of the answer is out. `sending` is over, and what depends on it is counted, before the
    /// last of it is written: who has read an answer finds it counted.
    pub(super) fn poll_send(
        &mut self,
        sending: &mut Option<Sending<AnswerBody>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        // What was given is taken before more is asked for: it is in its order, and where the body breaks off, nothing
        // of it is lost.
        if self.blocked && self.poll_flush(cx)?.is_pending() {
            return self.poll_gone(cx).map(Err);
        }
        loop {
            let polled = match sending {
                Some(sending) => self.poll_take(sending, cx),
                None => Poll::Ready(Ok(())),
            };
            if let Some(Sending { body, .. }) = sending.take_if(|it| it.framing.is_done()) {
                over(body, cx);
            }
            let flushed = self.poll_flush(cx)?;
            match polled {
                // At once: a body that is asked once more would seem to have ended.
                Poll::Ready(Err(Unsendable::Broken(error))) => {
                    return Poll::Ready(Err(io::Error::other(error)));
                }
                Poll::Ready(Err(Unsendable::Length)) => {
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

    /// Takes of the body what goes out next: pieces as long as the outbox has room, or one that is poured behind them.
    /// Pending where there is nothing yet.
    fn poll_take(
        &mut self,
        sending: &mut Sending<AnswerBody>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Unsendable<BoxError>>> {
        while !sending.framing.is_done() && self.pipe.is_none() {
            match ready!(self.poll_pour(sending, cx)) {
                Some(poured) => poured?,
                None if self.outbox.is_full() => break,
                None => ready!(sending.poll_piece_into(&mut self.outbox, cx))?,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Pours the next piece of a large body. `None` where it is copied: a small one, one that somebody here must read, or
    /// one for which there is no pipe.
    fn poll_pour(
        &mut self,
        sending: &mut Sending<AnswerBody>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<(), Unsendable<BoxError>>>> {
        let large = matches!(sending.framing, Framing::Length(pour::LEAST..));
        if !large || !self.talk.lock().is_plain() {
            return Poll::Ready(None);
        }
        let poured = ready!(sending.body.poll_pour(&self.worker.core.pipes, cx));
        Poll::Ready(poured.map(|poured| {
            let pipe = poured.map_err(|error| Unsendable::Broken(error.into()))?;
            let passed = sending.framing.pass(pipe.held());
            self.pipe = Some(pipe);
            passed.map_err(|WrongLength| Unsendable::Length)
        }))
    }

    /// Writes what there is to write.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut talk = self.talk.lock();
        talk.say_into(&mut self.outbox);
        if self.outbox.is_empty() && self.pipe.is_none() {
            return Poll::Ready(Ok(()));
        }
        let mut wrote = false;
        let polled = poll_out(&mut self.outbox, &mut self.pipe, talk.io()?, cx, &mut wrote);
        // A client that takes some, and not all, is blocked anew.
        if polled.is_pending() != self.blocked || (wrote && self.blocked) {
            self.blocked = polled.is_pending();
            self.state.set_blocked(self.blocked);
        }
        polled
    }
}

/// Writes all of `outbox`, and then of `pipe`; `wrote` is set where some of it was taken.
fn poll_out(
    outbox: &mut Outbox,
    pipe: &mut Option<Pipe>,
    io: &mut Io,
    cx: &mut Context<'_>,
    wrote: &mut bool,
) -> Poll<io::Result<()>> {
    let (Some(full), Some(socket)) = (pipe.as_mut(), io.socket()) else {
        if !outbox.is_empty() {
            ready!(outbox.poll_write(io, cx, wrote))?;
        }
        return Poll::Ready(Ok(()));
    };
    if !outbox.is_empty() {
        ready!(outbox.poll_write(&mut Before(socket), cx, wrote))?;
    }
    let held = full.held();
    let drained = full.poll_drain(socket, cx);
    *wrote |= full.held() < held;
    ready!(drained)?;
    *pipe = None;
    Poll::Ready(Ok(()))
}

/// Nothing more is sent of `body`. An end may come behind the last byte, and should be heard: nothing else comes.
fn over(mut body: AnswerBody, cx: &mut Context<'_>) {
    if !body.is_end_stream() {
        let _end = Pin::new(&mut body).poll_frame(cx).is_ready();
    }
}
