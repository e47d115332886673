//! The connection, as shared by its own task and by the reader of its request's body.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf as _, Bytes};
use http_body::Frame;

use super::{Decoded, Decoder, Error, ReadBuffer, WriteBuffer, has_line};
use crate::proxy::io::Io;

/// How many bytes of interim responses may wait for a client that reads slowly.
const PENDING: usize = 16 * 1024;
/// How many bytes are read ahead to notice an end after them.
const AHEAD: usize = 64 * 1024;
/// How many bytes of an answered request are discarded so that its connection can be used again.
const READ_OUT: usize = 64 * 1024;
/// Asks a client that waits for it to send the body (RFC 9110 §10.1.1).
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// The first bytes of HTTP/2 with prior knowledge (RFC 9113 §3.4). They are not a request of HTTP/1.1.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A handle to a client's connection. All handles are on one thread, and none holds the lock while it waits.
#[derive(Clone, Debug)]
pub(crate) struct ClientConnection {
    wire: Arc<Mutex<ClientIo>>,
    /// The request that this handle belongs to. A handle of an earlier request can neither read nor write.
    turn: u32,
}

/// The connection itself.
#[derive(Debug)]
pub(crate) struct ClientIo {
    /// `None` once the connection is no longer served.
    io: Option<Io>,
    /// Bytes that were read and not parsed yet.
    pending: Bytes,
    /// The buffer for reading. While a head is awaited, it holds the beginning of that head.
    input: ReadBuffer,
    /// How many bytes of an incomplete head were already checked.
    seen: usize,
    /// The number of the present request.
    turn: u32,
    /// Whether an empty line came before the first request.
    skipped: bool,
    /// The rest of the request's body.
    upload: Decoder,
    /// Who waits for more of the body.
    waits: Waits,
    /// Bytes to write before the answer.
    said: Vec<u8>,
    /// Whether the request has its answer. Anything that belongs before the answer is then too late.
    answered: bool,
    /// Wakes the task that serves the connection.
    holder: Option<Waker>,
}

/// Why an interim response does not reach a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DropReason {
    /// The client speaks HTTP/1.0, which has none (RFC 9110 §15.2).
    Http10,
    /// The answer has already been given.
    Late,
    /// Too many are waiting for a client that reads slowly.
    Full,
}

/// Who waits for more of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    Nobody,
    /// The client, for a 100 before it sends the body.
    Client,
    /// A reader, which will notice the client's end.
    Reader,
}

impl ClientConnection {
    /// A connection from which nothing was read yet.
    pub(crate) fn new(io: Io) -> Self {
        let wire = ClientIo {
            io: Some(io),
            pending: Bytes::new(),
            input: ReadBuffer::new(),
            seen: 0,
            turn: 0,
            skipped: false,
            upload: Decoder::NONE,
            waits: Waits::Nobody,
            said: Vec::new(),
            answered: true,
            holder: None,
        };
        Self { wire: Arc::new(Mutex::new(wire)), turn: 0 }
    }

    /// A handle for the request that was read last.
    pub(crate) fn of_this_request(&self) -> Self {
        Self { wire: Arc::clone(&self.wire), turn: self.lock().turn }
    }

    /// Locks the connection.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ClientIo> {
        self.wire.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends `head`, a complete interim response, before the answer.
    pub(crate) fn say_before(&self, head: &[u8]) -> Result<(), DropReason> {
        let mut wire = self.lock();
        if wire.answered || wire.turn != self.turn {
            return Err(DropReason::Late);
        }
        if wire.said.len().saturating_add(head.len()) > PENDING {
            return Err(DropReason::Full);
        }
        wire.said.extend_from_slice(head);
        Ok(())
    }

    /// The next piece of the request's body. The first call sends the 100 if the client waits for one.
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

    /// Whether the client waits for a 100 before it sends the body.
    pub(crate) fn waits(&self) -> bool {
        let wire = self.lock();
        wire.turn == self.turn && wire.waits == Waits::Client
    }

    /// How much of the request's body is left, if that is known.
    pub(crate) fn left(&self) -> Option<u64> {
        let wire = self.lock();
        if wire.turn == self.turn { wire.upload.left() } else { Some(0) }
    }
}

impl ClientIo {
    /// The connection's stream.
    pub(crate) fn io(&mut self) -> io::Result<&mut Io> {
        self.io.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Whether it is a plain socket.
    pub(crate) fn is_plain(&self) -> bool {
        self.io.as_ref().is_some_and(|io| io.socket().is_some())
    }

    /// Ends serving and takes the stream back.
    pub(crate) const fn close(&mut self) -> Option<Io> {
        self.io.take()
    }

    /// Sets the waker of the task that serves the connection.
    pub(crate) fn held_by(&mut self, waker: &Waker) {
        self.holder = Some(waker.clone());
    }

    /// Wakes the connection's task if another task reads the body (as one does that sends it over HTTP/2). The
    /// connection's task must send the 100 and, once the body was read, watch for the client's end.
    fn tell_holder(&self, cx: &Context<'_>) {
        if (self.is_read() || !self.said.is_empty())
            && let Some(holder) = &self.holder
            && !holder.will_wake(cx.waker())
        {
            holder.wake_by_ref();
        }
    }

    /// Whether no unparsed bytes of a request are here.
    pub(crate) fn is_between(&self) -> bool {
        self.pending.is_empty() && self.input.is_empty()
    }

    /// Whether the whole request was read.
    pub(crate) const fn is_read(&self) -> bool {
        self.upload.is_done()
    }

    /// Whether a client that follows the protocol will send nothing more.
    pub(crate) fn is_over(&self) -> bool {
        self.is_read() && self.is_between()
    }

    /// Reads what has arrived: the number of bytes, 0 at the end.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let io = self.io.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        self.input.poll_read(io, cx, self.upload.left().filter(|left| *left > 0))
    }

    /// Whether a reader has waited for more of the request's body since the last call.
    pub(crate) fn take_awaited(&mut self) -> bool {
        let awaited = self.waits == Waits::Reader;
        if awaited {
            self.waits = Waits::Nobody;
        }
        awaited
    }

    /// Reads ahead, up to a limit, although nobody wants the bytes yet. Ready when the client's end follows them. For
    /// streams that are not sockets: there is no other way to notice their end.
    pub(crate) fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.pending.len() < AHEAD {
            let size = ready!(self.poll_read(cx))?;
            if size == 0 {
                return Poll::Ready(Ok(()));
            }
            let more = self.input.take();
            self.pending = if self.pending.is_empty() {
                more
            } else {
                [&self.pending[..], &more].concat().into()
            };
        }
        Poll::Pending
    }

    /// Takes the unparsed bytes: they belong to another protocol.
    pub(crate) fn take_rest(&mut self) -> Bytes {
        if self.pending.is_empty() { self.input.take() } else { std::mem::take(&mut self.pending) }
    }

    /// Discards complete empty lines before a request (RFC 9112 §2.2). They are discarded as they arrive, so
    /// that an incomplete head never begins with thousands of them.
    pub(crate) fn skip_empty_lines(&mut self) {
        if self.pending.first() != Some(&b'\r') && self.input.bytes().first() != Some(&b'\r') {
            return;
        }
        let (rest, read) = (empty_lines(&self.pending), empty_lines(self.input.bytes()));
        if rest + read == 0 {
            return;
        }
        self.pending.advance(rest);
        self.input.skip(read);
        self.seen = self.seen.saturating_sub(read);
        self.skipped |= read > 0;
    }

    /// Whether the bytes begin like HTTP/2, and whether that beginning is complete.
    pub(crate) fn begins_http2(&self) -> Option<bool> {
        if self.skipped {
            return None;
        }
        let bytes = self.input.bytes();
        let known = bytes.len().min(PREFACE.len());
        (bytes.get(..known) == PREFACE.get(..known)).then_some(known == PREFACE.len())
    }

    /// Whether a line has ended since the head was last checked. A head ends with a line, and every mistake in
    /// it, except its size, is in a complete line.
    pub(crate) fn is_worth_parsing(&mut self) -> bool {
        let bytes = self.input.bytes();
        let seen = std::mem::replace(&mut self.seen, bytes.len());
        // Check once per 4 KiB even without a line end, for heads that never end.
        let large = bytes.len() / 4096 > seen / 4096;
        let more = bytes.get(seen..).unwrap_or_default();
        !self.pending.is_empty() || large || has_line(more)
    }

    /// The request's head as `parse` reads it, once it is complete; `parse` also returns the length of the
    /// head, and that of the body after it if known. What follows the head stays in `pending`.
    ///
    /// # Errors
    /// When it is malformed or exceeds the limits.
    pub(crate) fn take_head<H, E>(
        &mut self,
        parse: impl FnOnce(&Bytes) -> Result<Option<(H, usize, Option<u64>)>, E>,
    ) -> Result<Option<H>, E> {
        let mut bytes = self.take_rest();
        let (head, size, length) = match parse(&bytes) {
            Ok(Some(parsed)) => parsed,
            // An incomplete head stays in `input`: more of it may come.
            unfinished => {
                self.seen = bytes.len();
                self.input.put_back(bytes);
                return unfinished.map(|_| None);
            }
        };
        self.seen = 0;
        self.turn = self.turn.wrapping_add(1);
        bytes.advance(size);
        self.pending = bytes;
        self.input.began(size, length);
        self.answered = false;
        Ok(Some(head))
    }

    /// The bytes of a head that could not be read.
    pub(crate) fn unread_head(&self) -> &[u8] {
        self.input.bytes()
    }

    /// Begins a request with a body in this framing. `asks`: its client waits for a 100 before it sends the body.
    pub(crate) fn begin(&mut self, upload: Decoder, asks: bool) {
        self.upload = upload;
        self.waits = if asks { Waits::Client } else { Waits::Nobody };
    }

    /// Marks the request as answered.
    pub(crate) const fn answered(&mut self) {
        self.answered = true;
    }

    /// Moves what must be written before the answer into `output`.
    pub(crate) fn say_into(&mut self, output: &mut WriteBuffer) {
        if !self.said.is_empty() {
            output.text().append(&mut std::mem::take(&mut self.said));
        }
    }

    /// Sends the 100, once, if the client waits for it and has no final answer yet.
    fn ask(&mut self) {
        if self.waits == Waits::Client {
            self.waits = Waits::Nobody;
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
            let polled = self.poll_read(cx);
            self.waits = if polled.is_pending() { Waits::Reader } else { Waits::Nobody };
            if ready!(polled)? == 0 {
                return Poll::Ready(Some(Err(Error::Closed)));
            }
            self.pending = self.input.take();
        }
    }

    /// Discards the rest of an answered request, as far as it has arrived, up to a limit. Returns whether that
    /// was all. A client that was not asked for its body need not send it.
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
        self.input.next();
        true
    }
}

impl DropReason {
    /// The label.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Http10 => "http10",
            Self::Late => "late",
            Self::Full => "full",
        }
    }
}

/// The length of the complete empty lines at the start of `bytes`.
fn empty_lines(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some([b'\r', b'\n', ..]) = bytes.get(at..) {
        at += 2;
    }
    at
}
