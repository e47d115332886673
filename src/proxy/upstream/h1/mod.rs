//! HTTP/1.1 towards an upstream.
//!
//! The data path is what a proxy exists for, so this one is its own. A general client serves callers that share a
//! connection without knowing of each other: it gives each connection a task, and passes requests and answers
//! through channels to it. Here every connection is one request's at a time. So a [`Link`] has no task and no
//! channel: whoever waits for the answer polls the connection itself, first the attempt (the head), then the
//! answer's body, and the last of them puts it back. It is one allocation for the life of the connection, and
//! moving it is moving a pointer.
//!
//! An exchange is three things that go on by themselves. The *upload*: a body is polled, framed and
//! written, no further than the other side takes it. The *answer*: bytes are read, the head is parsed
//! ([`head`]), the body is decoded into slices of what was read, uncopied. (What reads and writes bytes of HTTP/1.1
//! is [`h1`](crate::proxy::h1)'s.) And what both leave
//! behind: whether a byte was written or read, on which it depends whether a request may be sent again, and
//! whether the connection carries another exchange. Both are polled together while the head is awaited, for an
//! upstream may answer before the upload is done; what is left of the upload then is for somebody else to poll,
//! beside the answer's body.
//!
//! It hears an upstream out. One that answers before it has read the whole request, and closes, makes the next
//! write fail while its answer lies in the socket: a failed write is only reported when there is nothing left to
//! read, or when nothing came for [`HEAR_OUT`].
//!
//! An idle link holds no buffer that it read into. Whether it has closed meanwhile, or has sent what nobody asked
//! for, is seen when it is handed out ([`Link::is_quiet`]), without a system call: the runtime notes what becomes
//! ready whether or not anybody waits for it.

mod encode;
mod head;
#[cfg(test)]
mod tests;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::{HeaderMap, Method, StatusCode};
use http_body::Frame;
use tokio::time::{Sleep, sleep};

use self::head::Head;
use super::outgoing::Outgoing;
use crate::proxy::body::hold::Permission;
use crate::proxy::body::request::RequestBody;
use crate::proxy::h1::{
    Decoded, Decoder, Error, Framing, Inbox, Malformed, Outbox, SIZE, Sending, Unsendable,
};
use crate::proxy::io::Io;
use crate::proxy::io::pour::{Pipe, Pipes};
use crate::proxy::io::rewound::Rewound;

/// For how long a failed write is held back.
const HEAR_OUT: Duration = Duration::from_secs(1);

/// A connection to an upstream, and the exchange that is on it.
#[derive(Debug)]
pub(crate) struct Link {
    io: Io,
    outbox: Outbox,
    /// Was read, and is not made sense of yet.
    pending: Bytes,
    /// Where the next bytes are read into; while a head is awaited, also what there is of it.
    inbox: Inbox,
    /// What is still to be sent.
    upload: Sending<RequestBody>,
    /// Whether no more of it is sent, though it has not ended.
    stopped: Option<Stopped>,
    /// What is still to be read of the answer's body.
    download: Decoder,
    /// Given by the upstream's 100.
    permission: Option<Arc<Permission>>,
    /// Whether the answer has no body, whatever its head says.
    bodiless: bool,
    /// What there was on the wire.
    seen: Seen,
    /// Whether the connection may carry another exchange after this one.
    keep: bool,
}

/// Nothing to send.
const NOTHING: Sending<RequestBody> =
    Sending { body: RequestBody::Empty, framing: Framing::NONE, trailers: true };

/// What there was on the wire of an exchange.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Whether a byte was written.
    pub(crate) wrote: bool,
    /// Whether a byte was read.
    pub(crate) read: bool,
}

/// Why no more of a request is sent.
#[derive(Debug)]
enum Stopped {
    /// Its body broke: how, until somebody was told.
    Body(Option<Error>),
    /// A write failed, which is reported then at the latest.
    Write(std::io::Error, Pin<Box<Sleep>>),
}

/// A request of which no byte was written: it goes over another connection as if it had never been on one.
#[derive(Debug)]
pub(crate) struct Unsent {
    outbox: Outbox,
    upload: Sending<RequestBody>,
    permission: Option<Arc<Permission>>,
    bodiless: bool,
}

/// The head of an answer, or of an interim one.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The status.
    pub(crate) status: StatusCode,
    /// The fields.
    pub(crate) fields: HeaderMap,
}

/// Takes the heads of interim answers.
pub(crate) type Interim<'a> = &'a mut (dyn FnMut(Answer) + Send);

impl Link {
    /// A connection over `io` that has carried nothing yet.
    pub(crate) fn new(io: Io) -> Box<Self> {
        Box::new(Self {
            io,
            outbox: Outbox::default(),
            pending: Bytes::new(),
            inbox: Inbox::new(),
            upload: NOTHING,
            stopped: None,
            download: Decoder::NONE,
            permission: None,
            bodiless: false,
            seen: Seen::default(),
            keep: true,
        })
    }

    /// Begins an exchange: writes what can be written now of the request to `endpoint`.
    pub(crate) fn send(&mut self, outgoing: &Outgoing<'_>, endpoint: &str, body: RequestBody) {
        let framing = encode::head(self.outbox.text(), outgoing, endpoint, &body);
        self.permission = body.permission().cloned();
        self.upload = Sending { body, framing, trailers: true };
        self.bodiless = outgoing.method == Method::HEAD;
        self.begin();
    }

    /// The same with a request that was on another connection, which took nothing of it.
    pub(crate) fn resend(&mut self, unsent: Unsent) {
        let Unsent { outbox, upload, permission, bodiless } = unsent;
        self.outbox = outbox;
        self.upload = upload;
        self.permission = permission;
        self.bodiless = bodiless;
        self.begin();
    }

    fn begin(&mut self) {
        self.inbox.next();
        self.seen = Seen::default();
        // Whoever waits for the answer polls this once more.
        let _sent = self.poll_upload(&mut Context::from_waker(Waker::noop())).is_ready();
    }

    /// The request that ended in `error`, where no byte of it was written and its body can still go on.
    pub(crate) fn unsent(&mut self, error: &Error) -> Option<Unsent> {
        if self.seen.wrote || matches!(error, Error::Request(_) | Error::Length) {
            return None;
        }
        Some(Unsent {
            outbox: std::mem::take(&mut self.outbox),
            upload: std::mem::replace(&mut self.upload, NOTHING),
            permission: self.permission.take(),
            bodiless: self.bodiless,
        })
    }

    /// What there was on the wire.
    pub(crate) const fn seen(&self) -> Seen {
        self.seen
    }

    /// Whether all of the request was written.
    pub(crate) fn is_sent(&self) -> bool {
        self.upload.framing.is_done() && self.outbox.is_empty()
    }

    /// Whether there is something to send that may be sent.
    pub(crate) fn is_sending(&self) -> bool {
        let held = self.permission.as_ref().is_some_and(|permission| !permission.is_given());
        !self.is_sent() && self.stopped.is_none() && !held
    }

    /// Whether all of the answer was read.
    pub(crate) const fn is_read(&self) -> bool {
        self.download.is_done()
    }

    /// How much of the answer's body is left, where that is known.
    pub(crate) const fn left(&self) -> Option<u64> {
        self.download.left()
    }

    /// Whether nothing has come since it was put by: no end, and no byte, which would be the answer to nothing.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.io.is_quiet()
    }

    /// The exchange is over. Whether the connection carries another: where both messages ended, the other side
    /// has not said that it closes, and nothing came behind the answer.
    pub(crate) fn rest(&mut self) -> bool {
        if !(self.keep && self.is_sent() && self.is_read() && self.pending.is_empty()) {
            return false;
        }
        self.pending = Bytes::new();
        self.inbox.rest();
        self.outbox.rest();
        self.upload = NOTHING;
        self.permission = None;
        true
    }

    /// The head of the answer. Sends on meanwhile. What comes before it is given to `interim`, but for a 100 that the
    /// body waits for.
    pub(crate) fn poll_answer(
        &mut self,
        cx: &mut Context<'_>,
        interim: Interim<'_>,
    ) -> Poll<Result<Answer, Error>> {
        let _goes_on = self.poll_upload(cx).is_pending();
        if let Some(error) = self.take_broken() {
            return Poll::Ready(Err(error));
        }
        if let Poll::Ready(answer) = self.poll_head(cx, interim) {
            return Poll::Ready(answer);
        }
        let Some(Stopped::Write(error, until)) = &mut self.stopped else {
            return Poll::Pending;
        };
        ready!(until.as_mut().poll(cx));
        let error = std::io::Error::new(error.kind(), error.to_string());
        Poll::Ready(Err(error.into()))
    }

    /// Sends on. Ready when all of the request is sent, or no more of it will be: its body broke, which
    /// [`Link::take_broken`] tells, or a write failed.
    pub(crate) fn poll_upload(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.is_sent() && self.stopped.is_none() {
            let waits = match self.upload.poll_into(&mut self.outbox, cx) {
                Poll::Ready(Ok(())) => false,
                Poll::Pending => true,
                Poll::Ready(Err(unsendable)) => {
                    let error = match unsendable {
                        Unsendable::Broken(error) => Error::Request(error.into()),
                        Unsendable::Length => Error::Length,
                    };
                    self.stop(Stopped::Body(Some(error)));
                    continue;
                }
            };
            match ready!(self.outbox.poll_write(&mut self.io, cx, &mut self.seen.wrote)) {
                Ok(()) if waits => return Poll::Pending,
                Ok(()) => {}
                Err(error) => self.stop(Stopped::Write(error, Box::pin(sleep(HEAR_OUT)))),
            }
        }
        Poll::Ready(())
    }

    /// How the request's body broke, where it did; once.
    pub(crate) const fn take_broken(&mut self) -> Option<Error> {
        match &mut self.stopped {
            Some(Stopped::Body(error)) => error.take(),
            Some(Stopped::Write(..)) | None => None,
        }
    }

    fn stop(&mut self, why: Stopped) {
        self.keep = false;
        self.stopped = Some(why);
    }

    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        interim: Interim<'_>,
    ) -> Poll<Result<Answer, Error>> {
        loop {
            let before = self.inbox.bytes().len();
            if ready!(self.poll_read_more(cx, None))? == 0 {
                return Poll::Ready(Err(Error::Closed));
            }
            // A head ends with a line, and so does whatever is wrong with it but for its size.
            let read = self.inbox.bytes();
            let more = read.get(before..).unwrap_or_default();
            if !more.contains(&b'\n') && read.len() <= SIZE {
                continue;
            }
            if let Some(answer) = self.take_head(interim)? {
                return Poll::Ready(Ok(answer));
            }
        }
    }

    /// The answer's head, where all of it was read. What is behind it stays as `pending`.
    fn take_head(&mut self, interim: Interim<'_>) -> Result<Option<Answer>, Error> {
        let mut bytes = self.inbox.take();
        while !bytes.is_empty() {
            let Some((head, size)) = head::parse(&bytes, self.bodiless)? else {
                self.inbox.put_back(bytes);
                return Ok(None);
            };
            bytes.advance(size);
            let Head { status, fields, body, keep } = head;
            let answer = Answer { status, fields };
            if status == StatusCode::SWITCHING_PROTOCOLS {
                return self.switched(answer, bytes).map(Some);
            }
            if !status.is_informational() {
                self.keep &= keep;
                self.inbox.began(size, body.left());
                self.download = body;
                self.pending = bytes;
                return Ok(Some(answer));
            }
            // As many as there are: each is let go of before the next, and a bound on waiting is a Timeout's.
            match (answer.status, &self.permission) {
                (StatusCode::CONTINUE, Some(permission)) => permission.give(),
                _ => interim(answer),
            }
        }
        Ok(None)
    }

    /// From here on the connection is another protocol's, of which `first` came already.
    fn switched(&mut self, answer: Answer, first: Bytes) -> Result<Answer, Error> {
        self.keep = false;
        if !self.is_sent() {
            return Err(Malformed::Switched.into());
        }
        self.pending = first;
        Ok(answer)
    }

    /// What the connection has become, once the answer to an offer was 101: bytes, and nothing is made of them.
    pub(crate) fn bytes(&mut self) -> Rewound<&mut Io> {
        Rewound::new(&mut self.io, std::mem::take(&mut self.pending))
    }

    /// The next piece of the answer's body; `None` at its end.
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
            self.pending = self.inbox.take();
        }
    }

    /// Pours what came of the answer's body into one of `pipes`. `None` where it must be read: because some of it was, or
    /// it is no plain socket's, or of no known length, or there is no pipe.
    pub(crate) fn poll_pour(
        &mut self,
        pipes: &Pipes,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Pipe, Error>>> {
        let left = self.download.left().filter(|left| *left > 0);
        let unread = self.pending.is_empty() && self.inbox.is_empty();
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
        self.inbox.poured();
        Poll::Ready(Some(Ok(pipe)))
    }

    /// Reads what there is: how many bytes, none at the end.
    fn poll_read_more(
        &mut self,
        cx: &mut Context<'_>,
        left: Option<u64>,
    ) -> Poll<Result<usize, Error>> {
        let size = ready!(self.inbox.poll_read(&mut self.io, cx, left))?;
        self.seen.read |= size > 0;
        Poll::Ready(Ok(size))
    }
}

/// Between two exchanges the other side is told; within one, a closed connection tells it.
impl Drop for Link {
    fn drop(&mut self) {
        if self.is_sent() && self.is_read() {
            self.io.farewell();
        }
    }
}
