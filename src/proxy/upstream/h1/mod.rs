//! HTTP/1.1 to upstreams.
//!
//! This is our own code, because the data path is what a proxy is about. A general client serves callers that share a
//! connection without knowing each other, so it gives each connection a task and passes requests and responses
//! through channels. Here, a connection serves one request at a time. So a [`Http1Connection`] has no task and no channel.
//! Whoever waits for the response polls the connection: first the attempt (for the head), then the response's body,
//! and the last one returns it to the pool. It is allocated once, and moving it only moves a pointer.
//!
//! An exchange has three parts. The *upload*: a body is polled, framed and written, no faster than the other
//! side accepts it. The *response*: bytes are read, the head is parsed ([`head`]), and the body is decoded into
//! slices of the read buffer, without copying. (Reading and writing HTTP/1.1 bytes is in
//! [`h1`](crate::proxy::h1).) And what remains: whether a byte was written or read, which decides whether a
//! request may be sent again, and whether the connection can carry another exchange. The first two are polled
//! together until the head arrives, because an upstream may respond before the upload is complete. After that,
//! somebody else polls the rest of the upload beside the response's body.
//!
//! A failed write is reported late ([`FailedWrite`]).
//!
//! An idle connection has no read buffer. When it is taken from the pool, [`Http1Connection::is_quiet`] checks whether it was
//! closed or received unexpected bytes. That needs no system call, because the runtime notes readiness even
//! when nobody waits.

mod encode;
mod head;
#[cfg(test)]
mod tests;

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes};
use http::{HeaderMap, Method, StatusCode};
use http_body::{Body as _, Frame};
use tokio::task::yield_now;

use self::head::Head;
use super::request_head::RequestHead;
use crate::proxy::body::expect_continue::ContinueSignal;
use crate::proxy::body::request::RequestBody;
use crate::proxy::h1::{
    BodyWriteError, BodyWriter, Decoded, Decoder, Error, Framing, Malformed, ReadBuffer,
    WriteBuffer, has_line,
};
use crate::proxy::io::Io;
use crate::proxy::io::failed_write::FailedWrite;
use crate::proxy::io::prefixed::PrefixedIo;
use crate::proxy::io::splice::{Pipe, PipePool};
use crate::proxy::settings::HeadLimits;

/// A connection to an upstream, with the exchange on it.
#[derive(Debug)]
pub(crate) struct Http1Connection {
    io: Io,
    /// The limits of a response's head.
    heads: HeadLimits,
    output: WriteBuffer,
    /// Bytes that were read and not parsed yet.
    pending: Bytes,
    /// The buffer for reading. While a head is awaited, it holds the beginning of that head.
    input: ReadBuffer,
    /// The rest of the request.
    upload: BodyWriter<RequestBody>,
    /// Set if no more of the request is sent, although it has not ended.
    stopped: Option<UploadStop>,
    /// The rest of the response's body.
    download: Decoder,
    /// Given when the upstream sends a 100.
    permission: Option<Arc<ContinueSignal>>,
    /// Whether the response has no body, whatever its head says.
    bodiless: bool,
    /// What was written and read.
    seen: BytesSeen,
    /// Whether the connection can carry another exchange after this one.
    keep: bool,
}

/// Nothing to send.
const NOTHING: BodyWriter<RequestBody> =
    BodyWriter { body: RequestBody::EMPTY, framing: Framing::NONE, trailers: true };

/// What was written and read in an exchange.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BytesSeen {
    /// Whether a byte was written.
    pub(crate) wrote: bool,
    /// Whether a byte was read.
    pub(crate) read: bool,
}

/// Why no more of a request is sent.
#[derive(Debug)]
enum UploadStop {
    /// Its body broke off. The error, until somebody takes it.
    Body(Option<Error>),
    /// A write failed. This is reported late.
    Write(FailedWrite),
}

/// A request of which no byte was written. It can be sent on another connection as if it had never been on this one.
#[derive(Debug)]
pub(crate) struct UnsentHttp1 {
    output: WriteBuffer,
    upload: BodyWriter<RequestBody>,
    permission: Option<Arc<ContinueSignal>>,
    bodiless: bool,
}

/// The head of a response or an interim response.
#[derive(Debug)]
pub(crate) struct ResponseHead {
    /// The status.
    pub(crate) status: StatusCode,
    /// The reason phrase, if it is not the usual one.
    pub(crate) reason: Option<Bytes>,
    /// The fields.
    pub(crate) fields: HeaderMap,
}

/// Receives the heads of interim responses.
pub(crate) type InterimSink<'a> = &'a mut (dyn FnMut(ResponseHead) + Send);

impl Http1Connection {
    /// A connection over `io` that was not used yet. `heads` limits its responses' heads.
    pub(crate) fn new(io: Io, heads: HeadLimits) -> Box<Self> {
        Box::new(Self {
            io,
            heads,
            output: WriteBuffer::default(),
            pending: Bytes::new(),
            input: ReadBuffer::new(),
            upload: NOTHING,
            stopped: None,
            download: Decoder::NONE,
            permission: None,
            bodiless: false,
            seen: BytesSeen::default(),
            keep: true,
        })
    }

    /// Begins an exchange: writes as much as possible of the request to `endpoint`.
    pub(crate) fn send(&mut self, outgoing: &RequestHead<'_>, endpoint: &str, body: RequestBody) {
        self.output.reserve(64 + 48 * outgoing.fields.len(), body.size_hint().exact());
        let framing = encode::head(self.output.text(), outgoing, endpoint, &body);
        self.permission = body.permission().cloned();
        self.upload = BodyWriter { body, framing, trailers: true };
        self.bodiless = outgoing.method == Method::HEAD;
        self.begin();
    }

    /// The same for a request of which another connection sent nothing.
    pub(crate) fn resend(&mut self, unsent: UnsentHttp1) {
        let UnsentHttp1 { output, upload, permission, bodiless } = unsent;
        self.output = output;
        self.upload = upload;
        self.permission = permission;
        self.bodiless = bodiless;
        self.begin();
    }

    fn begin(&mut self) {
        self.input.next();
        self.seen = BytesSeen::default();
        // Whoever waits for the response polls this again.
        let _sent = self.poll_upload(&mut Context::from_waker(Waker::noop())).is_ready();
    }

    /// The request that failed with `error`, if no byte of it was written and its body can still be sent.
    pub(crate) fn unsent(&mut self, error: &Error) -> Option<UnsentHttp1> {
        if self.seen.wrote || matches!(error, Error::Request(_) | Error::Length) {
            return None;
        }
        Some(UnsentHttp1 {
            output: std::mem::take(&mut self.output),
            upload: std::mem::replace(&mut self.upload, NOTHING),
            permission: self.permission.take(),
            bodiless: self.bodiless,
        })
    }

    /// What was written and read.
    pub(crate) const fn seen(&self) -> BytesSeen {
        self.seen
    }

    /// Whether the whole request was written.
    pub(crate) fn is_sent(&self) -> bool {
        self.upload.framing.is_done() && self.output.is_empty()
    }

    /// Whether more of the request can be sent.
    pub(crate) fn is_sending(&self) -> bool {
        let held = self.permission.as_ref().is_some_and(|permission| !permission.is_given());
        !self.is_sent() && self.stopped.is_none() && !held
    }

    /// Whether the whole response was read.
    pub(crate) const fn is_read(&self) -> bool {
        self.download.is_done()
    }

    /// How much of the response's body is left, if that is known.
    pub(crate) const fn left(&self) -> Option<u64> {
        self.download.left()
    }

    /// Whether nothing has arrived since it became idle: no end, and no byte, which would be a response to nothing.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.io.is_quiet()
    }

    /// Ends the exchange. Returns whether the connection can carry another: both messages must be complete, the
    /// other side must not have announced that it closes, and nothing may have arrived after the response.
    pub(crate) fn rest(&mut self) -> bool {
        if !(self.keep && self.is_sent() && self.is_read() && self.pending.is_empty()) {
            return false;
        }
        self.pending = Bytes::new();
        self.input.rest();
        self.output.rest();
        self.upload = NOTHING;
        self.permission = None;
        true
    }

    /// Waits for the response's head, and keeps sending meanwhile. Interim responses go to `interim`, except a
    /// 100 for which the body waits.
    pub(crate) fn poll_answer(
        &mut self,
        cx: &mut Context<'_>,
        interim: InterimSink<'_>,
    ) -> Poll<Result<ResponseHead, Error>> {
        let _goes_on = self.poll_upload(cx).is_pending();
        if let Some(error) = self.take_broken() {
            return Poll::Ready(Err(error));
        }
        if let Poll::Ready(answer) = self.poll_head(cx, interim) {
            return Poll::Ready(answer);
        }
        let Some(UploadStop::Write(failed)) = &mut self.stopped else {
            return Poll::Pending;
        };
        failed.poll(cx).map(|error| Err(error.into()))
    }

    /// Sends the request. Ready when it is sent completely, or when no more of it will be sent because its body
    /// broke off (see [`Http1Connection::take_broken`]) or a write failed.
    pub(crate) fn poll_upload(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.is_sent() && self.stopped.is_none() {
            let waits = match self.upload.poll_into(&mut self.output, cx) {
                Poll::Ready(Ok(())) => false,
                Poll::Pending => true,
                Poll::Ready(Err(unsendable)) => {
                    let error = match unsendable {
                        BodyWriteError::Broken(error) => Error::Request(error.into()),
                        BodyWriteError::Length => Error::Length,
                    };
                    self.stop(UploadStop::Body(Some(error)));
                    continue;
                }
            };
            match ready!(self.output.poll_write(&mut self.io, cx, &mut self.seen.wrote)) {
                Ok(()) if waits => return Poll::Pending,
                Ok(()) => self.output.rest(),
                Err(error) => self.stop(UploadStop::Write(FailedWrite::new(error))),
            }
        }
        Poll::Ready(())
    }

    /// How the request's body broke off, if it did. Can be taken once.
    pub(crate) const fn take_broken(&mut self) -> Option<Error> {
        match &mut self.stopped {
            Some(UploadStop::Body(error)) => error.take(),
            Some(UploadStop::Write(_)) | None => None,
        }
    }

    fn stop(&mut self, why: UploadStop) {
        self.keep = false;
        self.stopped = Some(why);
    }

    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        interim: InterimSink<'_>,
    ) -> Poll<Result<ResponseHead, Error>> {
        loop {
            let before = self.input.bytes().len();
            if ready!(self.poll_read_more(cx, None))? == 0 {
                return Poll::Ready(Err(Error::Closed));
            }
            // A head ends with a line, and every mistake in it, except its size, is in a complete line.
            let read = self.input.bytes();
            let more = read.get(before..).unwrap_or_default();
            if !has_line(more) && read.len() <= self.heads.size {
                continue;
            }
            let unread = read.len();
            if let Some(answer) = self.take_head(interim)? {
                return Poll::Ready(Ok(answer));
            }
            if self.input.bytes().len() < unread {
                // Interim responses came, perhaps without end. Others have their turn in between, sockets too.
                ready!(pin!(yield_now()).poll(cx));
            }
        }
    }

    /// The response's head, once it is complete. What follows it stays in `pending`.
    fn take_head(&mut self, interim: InterimSink<'_>) -> Result<Option<ResponseHead>, Error> {
        let mut bytes = self.input.take();
        while !bytes.is_empty() {
            let Some((head, size)) = head::parse(&bytes, self.bodiless, self.heads)? else {
                self.input.put_back(bytes);
                return Ok(None);
            };
            bytes.advance(size);
            let Head { status, reason, fields, body, keep } = head;
            let answer = ResponseHead { status, reason, fields };
            if status == StatusCode::SWITCHING_PROTOCOLS {
                return self.switched(answer, bytes).map(Some);
            }
            if !status.is_informational() {
                self.keep &= keep;
                self.input.began(size, body.left());
                self.download = body;
                self.pending = bytes;
                return Ok(Some(answer));
            }
            // Any number of them: each is dropped before the next one, and a Timeout bounds the wait.
            match (answer.status, &self.permission) {
                (StatusCode::CONTINUE, Some(permission)) => permission.give(),
                _ => interim(answer),
            }
        }
        Ok(None)
    }

    /// From here on, the connection speaks another protocol, whose first bytes are `first`.
    fn switched(&mut self, answer: ResponseHead, first: Bytes) -> Result<ResponseHead, Error> {
        self.keep = false;
        if !self.is_sent() {
            return Err(Malformed::Switched.into());
        }
        self.pending = first;
        Ok(answer)
    }

    /// The raw bytes of the connection, after an accepted switch of the protocol (101).
    pub(crate) fn bytes(&mut self) -> PrefixedIo<&mut Io> {
        PrefixedIo::new(&mut self.io, std::mem::take(&mut self.pending))
    }

    /// The next piece of the response's body; `None` at its end.
    pub(crate) fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        loop {
            match self.download.decode(&mut self.pending).map_err(Error::Malformed)? {
                Decoded::Data(data) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Decoded::Trailers(fields) => return Poll::Ready(Some(Ok(Frame::trailers(fields)))),
                Decoded::End => return Poll::Ready(None),
                Decoded::More => {}
            }
            let left = self.download.left();
            if ready!(self.poll_read_more(cx, left))? == 0 && !self.download.ended() {
                return Poll::Ready(Some(Err(Error::Closed)));
            }
            self.pending = self.input.take();
        }
    }

    /// Moves the next bytes of the response's body into one of `pipes`. `None` if it must be read instead:
    /// because some of it was, the stream is not a plain socket, its length is unknown, or no pipe is free.
    pub(crate) fn poll_splice(
        &mut self,
        pipes: &PipePool,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Pipe, Error>>> {
        let left = self.download.left().filter(|left| *left > 0);
        let unread = self.pending.is_empty() && self.input.is_empty();
        let (Some(left), Some(socket), true) = (left, self.io.socket(), unread) else {
            return Poll::Ready(None);
        };
        let Some(pipe) = ready!(pipes.poll_fill(socket, cx, left)).transpose()? else {
            return Poll::Ready(None);
        };
        if pipe.held() == 0 {
            return Poll::Ready(Some(Err(Error::Closed)));
        }
        self.seen.read = true;
        self.download.pass(pipe.held() as u64);
        self.input.spliced();
        Poll::Ready(Some(Ok(pipe)))
    }

    /// Reads what has arrived: the number of bytes, 0 at the end.
    fn poll_read_more(
        &mut self,
        cx: &mut Context<'_>,
        left: Option<u64>,
    ) -> Poll<Result<usize, Error>> {
        let size = ready!(self.input.poll_read(&mut self.io, cx, left))?;
        self.seen.read |= size > 0;
        Poll::Ready(Ok(size))
    }
}

/// Between exchanges the other side is told. Within one, it sees the closed connection.
impl Drop for Http1Connection {
    fn drop(&mut self) {
        if self.is_sent() && self.is_read() {
            self.io.farewell();
        }
    }
}
