//! The connection as the conversation and the body of its request share it.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf as _, Bytes};
use http_body::Frame;

use super::{Decoded, Decoder, Error, Inbox, Outbox};
use crate::proxy::io::Io;

/// How many bytes of interim answers wait for a client that reads slowly.
const PENDING: usize = 16 * 1024;
/// How much is read, in bytes, of a request that was answered before its end, so that its connection can be used again.
const READ_OUT: usize = 64 * 1024;
/// What a client is told that waits to be asked for its body (RFC 9110 §10.1.1).
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// The client's first bytes in HTTP/2 with prior knowledge (RFC 9113 §3.4), which are no request of HTTP/1.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A client's connection. All who have it are on one thread, and none holds it while it waits.
#[derive(Clone, Debug)]
pub(crate) struct Talk {
    wire: Arc<Mutex<Wire>>,
    /// The request that it is about: what is left over of an earlier one neither reads nor says anything.
    turn: u32,
}

/// What there is of it.
#[derive(Debug)]
pub(crate) struct Wire {
    /// `None` once the conversation is over.
    io: Option<Io>,
    /// Was read, and is not made sense of yet.
    pending: Bytes,
    /// Where bytes are read into; while a head is awaited, also what there is of it.
    inbox: Inbox,
    /// How much of a head was looked at in vain.
    seen: usize,
    /// Which request is read and answered; counts up with each.
    turn: u32,
    /// Whether an empty line came before the first request.
    skipped: bool,
    /// What is still to be read of the request's body.
    upload: Decoder,
    /// Whether the client waits to be asked for it.
    asks: bool,
    /// What is to be written before the answer.
    said: Vec<u8>,
    /// Whether the request has its answer: what belongs before it comes too late.
    answered: bool,
    /// Of the task that holds the conversation.
    holder: Option<Waker>,
}

/// Why an interim answer does not reach a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dropped {
    /// The client speaks HTTP/1.0, which has none (RFC 9110 §15.2).
    Http10,
    /// The client speaks HTTP/2, over which the library says none.
    Http2,
    /// The answer was there before it.
    Late,
    /// As many wait as may for a client that reads slowly.
    Full,
}

impl Talk {
    /// A connection of which nothing was read.
    pub(crate) fn new(io: Io) -> Self {
        let wire = Wire {
            io: Some(io),
            pending: Bytes::new(),
            inbox: Inbox::new(),
            seen: 0,
            turn: 0,
            skipped: false,
            upload: Decoder::NONE,
            asks: false,
            said: Vec::new(),
            answered: true,
            holder: None,
        };
        Self { wire: Arc::new(Mutex::new(wire)), turn: 0 }
    }

    /// The same, for the request that was read last.
    pub(crate) fn of_this_request(&self) -> Self {
        Self { wire: Arc::clone(&self.wire), turn: self.lock().turn }
    }

    /// It, until that is dropped.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Wire> {
        self.wire.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `head`, a whole interim answer, said before the answer.
    pub(crate) fn say_before(&self, head: &[u8]) -> Result<(), Dropped> {
        let mut wire = self.lock();
        if wire.answered || wire.turn != self.turn {
            return Err(Dropped::Late);
        }
        if wire.said.len().saturating_add(head.len()) > PENDING {
            return Err(Dropped::Full);
        }
        wire.said.extend_from_slice(head);
        Ok(())
    }

    /// The next piece of the request's body. A client that waits to be asked for it is, with the first.
    pub(crate) fn poll_body(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let mut wire = self.lock();
        if wire.turn != self.turn {
            return Poll::Ready(Some(Err(Error::Closed)));
        }
        wire.ask();
        let polled = wire.poll_body(cx);
        wire.tell_holder(cx);
        polled
    }

    /// Whether the client waits to be asked for the request's body.
    pub(crate) fn waits(&self) -> bool {
        let wire = self.lock();
        wire.turn == self.turn && wire.asks
    }

    /// How much of the request's body is left, where that is known.
    pub(crate) fn left(&self) -> Option<u64> {
        let wire = self.lock();
        if wire.turn == self.turn { wire.upload.left() } else { Some(0) }
    }
}

impl Wire {
    /// The connection.
    pub(crate) fn io(&mut self) -> io::Result<&mut Io> {
        self.io.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Whether it is a socket and nothing else.
    pub(crate) fn is_plain(&self) -> bool {
        self.io.as_ref().is_some_and(|io| io.socket().is_some())
    }

    /// The conversation is over, and has its connection back.
    pub(crate) const fn close(&mut self) -> Option<Io> {
        self.io.take()
    }

    /// The conversation is held by the task that `waker` wakes.
    pub(crate) fn held_by(&mut self, waker: &Waker) {
        self.holder = Some(waker.clone());
    }

    /// Another task than the conversation's may read the body (one that sends it over HTTP/2 does). That the client is
    /// to be asked for it, and that all of it is read and so its end to be looked for, is the conversation's business.
    fn tell_holder(&self, cx: &Context<'_>) {
        if (self.is_read() || !self.said.is_empty())
            && let Some(holder) = &self.holder
            && !holder.will_wake(cx.waker())
        {
            holder.wake_by_ref();
        }
    }

    /// Whether nothing of a request is here that is not made sense of.
    pub(crate) fn is_between(&self) -> bool {
        self.pending.is_empty() && self.inbox.is_empty()
    }

    /// Whether all of the request was read.
    pub(crate) const fn is_read(&self) -> bool {
        self.upload.is_done()
    }

    /// Whether nothing more is to come from a client that knows it.
    pub(crate) fn is_over(&self) -> bool {
        self.is_read() && self.is_between()
    }

    /// Reads what there is: how many bytes, none at the end.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let io = self.io.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        self.inbox.poll_read(io, cx, self.upload.left().filter(|left| *left > 0))
    }

    /// Takes what was read and not made sense of: it is another protocol's.
    pub(crate) fn take_rest(&mut self) -> Bytes {
        if self.pending.is_empty() { self.inbox.take() } else { std::mem::take(&mut self.pending) }
    }

    /// Lets go of whole empty lines before a request (RFC 9112 §2.2): they are none, nor the beginning of one. As they
    /// come, so that a head that is looked at again and again does not begin with thousands.
    pub(crate) fn skip_empty_lines(&mut self) {
        let (rest, read) = (empty_lines(&self.pending), empty_lines(self.inbox.bytes()));
        self.pending.advance(rest);
        self.inbox.skip(read);
        self.seen = self.seen.saturating_sub(read);
        self.skipped |= read > 0;
    }

    /// Whether what came begins as HTTP/2 does, and whether all of that beginning is here.
    pub(crate) fn begins_http2(&self) -> Option<bool> {
        if self.skipped {
            return None;
        }
        let bytes = self.inbox.bytes();
        let known = bytes.len().min(PREFACE.len());
        (bytes.get(..known) == PREFACE.get(..known)).then_some(known == PREFACE.len())
    }

    /// Whether a line has ended since a head was last looked for: a head ends with one, and so does whatever is wrong
    /// with it but for its size.
    pub(crate) fn is_worth_parsing(&mut self) -> bool {
        let bytes = self.inbox.bytes();
        let seen = std::mem::replace(&mut self.seen, bytes.len());
        // One look for each so many bytes, for heads that never end.
        let large = bytes.len() / 4096 > seen / 4096;
        let more = bytes.get(seen..).unwrap_or_default();
        !self.pending.is_empty() || large || more.contains(&b'\n')
    }

    /// The request's head as `parse` makes it of what is here, where all of it is: with how many bytes it takes, and how
    /// long the body behind it is, where that is known. What is behind it stays as `pending`.
    ///
    /// # Errors
    /// Where it is none, or beyond the limits.
    pub(crate) fn take_head<H, E>(
        &mut self,
        parse: impl FnOnce(&Bytes) -> Result<Option<(H, usize, Option<u64>)>, E>,
    ) -> Result<Option<H>, E> {
        let mut bytes = self.take_rest();
        let (head, size, length) = match parse(&bytes) {
            Ok(Some(parsed)) => parsed,
            // What is no head is not read any further, and so it stays: there may be more of it.
            unfinished => {
                self.seen = bytes.len();
                self.inbox.put_back(bytes);
                return unfinished.map(|_| None);
            }
        };
        self.seen = 0;
        self.turn = self.turn.wrapping_add(1);
        bytes.advance(size);
        self.pending = bytes;
        self.inbox.began(size, length);
        self.answered = false;
        Ok(Some(head))
    }

    /// The request has a body in this framing; `asks`: its client waits to be asked for it.
    pub(crate) fn begin(&mut self, upload: Decoder, asks: bool) {
        self.upload = upload;
        self.asks = asks;
    }

    /// The request has its answer.
    pub(crate) const fn answered(&mut self) {
        self.answered = true;
    }

    /// Puts what is to be written before the answer into `outbox`.
    pub(crate) fn say_into(&mut self, outbox: &mut Outbox) {
        if !self.said.is_empty() {
            outbox.text().append(&mut std::mem::take(&mut self.said));
        }
    }

    /// Asks for the body, once, where its client waits for that, and has no answer yet that says it all.
    fn ask(&mut self) {
        if self.asks {
            self.asks = false;
            if !self.answered {
                self.said.extend_from_slice(CONTINUE);
            }
        }
    }

    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        loop {
            match self.upload.decode(&mut self.pending).map_err(Error::Malformed)? {
                Decoded::Data(data) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Decoded::Trailers(fields) => return Poll::Ready(Some(Ok(Frame::trailers(fields)))),
                Decoded::End => return Poll::Ready(None),
                Decoded::More => {}
            }
            if ready!(self.poll_read(cx))? == 0 {
                return Poll::Ready(Some(Err(Error::Closed)));
            }
            self.pending = self.inbox.take();
        }
    }

    /// Reads what is here already of the rest of a request that was answered, within a bound. True where that was all.
    /// A client that was not asked for it may not send it.
    pub(crate) fn read_out(&mut self) -> bool {
        let mut left = READ_OUT;
        let mut cx = Context::from_waker(Waker::noop());
        while !self.is_read() {
            match self.poll_body(&mut cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    let size = frame.data_ref().map_or(0, Bytes::len);
                    let Some(rest) = left.checked_sub(size) else {
                        return false;
                    };
                    left = rest;
                }
                Poll::Ready(Some(Err(_))) | Poll::Pending => return false,
                Poll::Ready(None) => break,
            }
        }
        self.inbox.next();
        true
    }
}

impl Dropped {
    /// The label.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Http10 => "http10",
            Self::Http2 => "http2",
            Self::Late => "late",
            Self::Full => "full",
        }
    }
}

/// How many bytes the whole empty lines take that `bytes` begin with.
fn empty_lines(bytes: &[u8]) -> usize {
    let mut at = 0;
    loop {
        at += match bytes.get(at..) {
            Some([b'\n', ..]) => 1,
            Some([b'\r', b'\n', ..]) => 2,
            _ => return at,
        };
    }
}
