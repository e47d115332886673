//! HTTP/1.1 connections with clients.
//!
//! One task serves a connection: it reads a head, has the request answered, writes the answer, and repeats.
//! Like [`upstream::h1`](crate::proxy::upstream) this is our own code, because the data path is what a proxy is
//! about: no data goes through a channel, a waiting client costs a socket and a few hundred bytes, and all of
//! HTTP/1.1 is available (interim responses, how a connection ends, a length without a body).
//!
//! Two parties read from the connection: this task reads heads and notices the end, and whoever sends the
//! request's body on reads that body at its own pace. So they share the reading half ([`ClientConnection`]). Only this task
//! writes: first interim responses, then the answer's head ([`answer`]), then its body, piece by piece as the
//! client accepts it ([`send`]).
//!
//! A client that closes while its request is answered has left: nobody waits for the answer any more. Whoever reads from
//! the client notices that. If nobody reads (the Flow does not want the body, or the next request is waiting), the
//! connection is watched for its end ([`departure`](crate::proxy::io::departure)).

mod answer;
mod head;
mod linger;
mod send;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Method, Response, Version};

use self::answer::AnswerContext;
use self::head::Head;
use super::tunnel::Tunnel;
use crate::proxy::answer::body::AnswerBody;
use crate::proxy::answer::render;
use crate::proxy::body::client::ClientBody;
use crate::proxy::h1::{ClientConnection, ClientIo, DropReason, WriteBuffer};
use crate::proxy::io::Io;
use crate::proxy::io::departure::Departure;
use crate::proxy::io::peer::{Negotiated, Peer};
use crate::proxy::io::prefixed::PrefixedIo;
use crate::proxy::io::splice::Pipe;
use crate::proxy::message::id;
use crate::proxy::message::refusal::Refusal;
use crate::proxy::message::refused_head::RefusedHead;
use crate::proxy::request::interim::InterimTarget;
use crate::proxy::run::execute::{self, AnswerFuture};
use crate::proxy::site::{Worker, WorkerConfig};
use crate::proxy::watch::ConnectionState;
use crate::proxy::watch::busy::BusyGuard;

/// How serving a connection ended.
pub(super) enum SessionEnd {
    /// The connection is closed.
    Closed,
    /// Both sides agreed to switch to another protocol.
    Switched(Box<Tunnel>, PrefixedIo<Io>),
    /// The client began with HTTP/2.
    Http2(PrefixedIo<Io>),
}

/// What the client sends next.
enum NextRequest {
    /// A request, and the site that serves it.
    Request(Head, Arc<WorkerConfig>),
    /// Something that is not a valid request.
    Refused(Refusal),
    /// The client began with HTTP/2.
    Http2,
    /// Nothing: the client has closed, or the process stops.
    Nothing,
}

/// What follows an answer.
enum AfterAnswer {
    /// The next request.
    Next,
    /// The connection closes.
    End,
    /// The end, in place of the answer.
    Nothing,
    /// Another protocol.
    Switch(Box<Tunnel>),
}

/// A client's connection, while it is served. Dropping it closes the connection.
pub(super) struct Http1Session {
    conn: ClientConnection,
    client: Peer,
    worker: Arc<Worker>,
    state: Arc<ConnectionState>,
    output: WriteBuffer,
    /// A piece of a spliced body, to be written after `output`.
    pipe: Option<Pipe>,
    /// Watches for the client's end, if something of the client is unread.
    departure: Option<Departure>,
    /// Whether the client accepts no bytes at present.
    blocked: bool,
    /// Whether closing now would be a reset.
    breaks: bool,
}

impl Http1Session {
    /// A connection over `io` that has not begun.
    pub(super) fn new(
        io: Io,
        client: Peer,
        worker: &Arc<Worker>,
        state: &Arc<ConnectionState>,
    ) -> Self {
        Self {
            conn: ClientConnection::new(io),
            client,
            worker: Arc::clone(worker),
            state: Arc::clone(state),
            output: WriteBuffer::default(),
            pipe: None,
            departure: None,
            blocked: false,
            breaks: false,
        }
    }

    /// Serves the connection to its end.
    ///
    /// # Errors
    /// When the client leaves in the middle, or the connection breaks.
    pub(super) async fn hold(&mut self) -> io::Result<SessionEnd> {
        std::future::poll_fn(|cx| {
            self.state.woken_by(cx.waker());
            self.conn.lock().held_by(cx.waker());
            Poll::Ready(())
        })
        .await;
        loop {
            let next = std::future::poll_fn(|cx| self.poll_next(cx)).await?;
            let after = match next {
                NextRequest::Request(head, site) => self.serve(head, site).await?,
                NextRequest::Refused(refusal) => {
                    // Boxed, because few connections need it; the others should not carry its size.
                    Box::pin(self.refuse(refusal)).await?;
                    return Ok(SessionEnd::Closed);
                }
                NextRequest::Http2 => return self.give_up().map(SessionEnd::Http2),
                NextRequest::Nothing => AfterAnswer::End,
            };
            match after {
                AfterAnswer::Next => {}
                AfterAnswer::End => {
                    Box::pin(self.close()).await?;
                    return Ok(SessionEnd::Closed);
                }
                AfterAnswer::Nothing => {
                    self.break_at_end(true);
                    return Ok(SessionEnd::Closed);
                }
                AfterAnswer::Switch(tunnel) => {
                    self.state.tunnels();
                    let io = self.give_up()?;
                    return Ok(SessionEnd::Switched(tunnel, io));
                }
            }
        }
    }

    /// The next request, once it is complete.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<NextRequest>> {
        let mut conn = self.conn.lock();
        loop {
            if let Some(next) = self.take_next(&mut conn) {
                return Poll::Ready(Ok(next));
            }
            if self.state.is_late() {
                return Poll::Ready(Ok(NextRequest::Refused(Refusal::late_head())));
            }
            if self.state.lacks_room() {
                return Poll::Ready(Ok(NextRequest::Refused(Refusal::no_room_for_head())));
            }
            match conn.poll_read(cx) {
                Poll::Ready(Ok(0)) if conn.is_between() => {
                    return Poll::Ready(Ok(NextRequest::Nothing));
                }
                Poll::Ready(Ok(0)) => {
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                Poll::Ready(Ok(read)) => self.state.received(read),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                // A client that has not sent anything yet may be about to.
                Poll::Pending if self.ends() && self.state.idles() => {
                    return Poll::Ready(Ok(NextRequest::Nothing));
                }
                Poll::Pending => {
                    self.departure = None;
                    return Poll::Pending;
                }
            }
        }
    }

    /// Interprets what has arrived, as far as possible.
    fn take_next(&self, conn: &mut ClientIo) -> Option<NextRequest> {
        conn.skip_empty_lines();
        if conn.is_between() {
            return None;
        }
        self.state.heard();
        let clear = self.client.over == Negotiated::Clear && !self.state.is_asked();
        if clear && let Some(whole) = conn.begins_http2() {
            return whole.then_some(NextRequest::Http2);
        }
        if !conn.is_worth_parsing() {
            return None;
        }
        let site = self.worker.site();
        match head::take(conn, &site.runtime.limits) {
            Ok(None) => None,
            Ok(Some(head)) => Some(NextRequest::Request(head, site)),
            Err(refusal) => Some(NextRequest::Refused(refusal)),
        }
    }

    /// Whether the connection closes as soon as no request is left.
    fn ends(&self) -> bool {
        self.state.is_draining() || self.worker.core.draining()
    }

    /// Whether the connection closes after its next answer.
    fn is_leaving(&self) -> bool {
        self.state.is_draining() || self.worker.core.is_leaving()
    }

    /// Has a request answered and sends the answer.
    async fn serve(&mut self, head: Head, site: Arc<WorkerConfig>) -> io::Result<AfterAnswer> {
        let Head { request, body, keeps, asks, trailers } = head;
        let mut asking = AnswerContext {
            version: request.version,
            head: request.method == Method::HEAD,
            keeps,
            dates: site.runtime.stage.is_none(),
        };
        let conn = self.conn.of_this_request();
        let body = if body.is_done() {
            ClientBody::Empty
        } else {
            self.conn.lock().begin(body, asks);
            ClientBody::Http1(conn.clone())
        };
        let interim = if asking.version == Version::HTTP_10 {
            InterimTarget::Nowhere(DropReason::Http10)
        } else {
            InterimTarget::Client(conn)
        };
        let busy = BusyGuard::new(&self.state);
        let mut answering = execute::serve(site, request, body, &self.client, busy, interim);
        let mut sending = None;
        let answered = |cx: &mut Context<'_>| -> Poll<io::Result<_>> {
            let response = ready!(self.poll_answer(&mut answering, cx))?;
            asking.keeps &= !self.is_leaving();
            Poll::Ready(Ok(self.begin_answer(response, &asking, trailers, &mut sending)))
        };
        let begun = std::future::poll_fn(answered).await?;
        drop(answering);
        self.send(begun, &mut sending).await
    }

    /// Waits for the answer, and sends interim responses meanwhile.
    fn poll_answer(
        &mut self,
        answering: &mut AnswerFuture,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Response<AnswerBody>>> {
        if let Poll::Ready(response) = answering.as_mut().poll(cx) {
            self.conn.lock().answered();
            return Poll::Ready(Ok(response));
        }
        if let Poll::Ready(Err(error)) = self.poll_flush(cx) {
            return Poll::Ready(Err(error));
        }
        self.poll_gone(cx).map(Err)
    }

    /// Ready when the client has left.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let mut conn = self.conn.lock();
        while conn.is_read() {
            conn.skip_empty_lines();
            if !conn.is_between() {
                // The next request is waiting in the socket.
                break;
            }
            match ready!(conn.poll_read(cx)) {
                Ok(0) => return Poll::Ready(gone()),
                Ok(_) => {}
                Err(error) => return Poll::Ready(error),
            }
        }
        drop(conn);
        self.poll_departure(cx)
    }

    /// The same while something of the client is unread.
    fn poll_departure(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let mut conn = self.conn.lock();
        if conn.take_awaited() {
            // The reader will notice it.
            return Poll::Pending;
        }
        let Some(socket) = conn.io().ok().and_then(|io| io.any_socket()) else {
            return conn.poll_ahead(cx).map(|end| end.err().unwrap_or_else(gone));
        };
        if self.departure.is_none() {
            self.departure = Departure::of(socket)
                .inspect_err(
                    |error| tracing::debug!(%error, "A client cannot be watched for its end."),
                )
                .ok();
        }
        match &self.departure {
            Some(departure) => departure.poll(cx).map(|()| gone()),
            None => Poll::Pending,
        }
    }

    /// Answers an invalid request, and closes.
    async fn refuse(&mut self, refusal: Refusal) -> io::Result<()> {
        let core = &self.worker.core;
        let site = self.worker.site();
        let refusal = refusal.asked(RefusedHead::of_bytes(self.conn.lock().unread_head()));
        site.refused(&refusal, self.client.address);
        let id = core.ids.next(core.clock.now().as_nanos());
        let response = render::refuse(&refusal, id::text(&id), &Method::GET, false);
        let dates = site.runtime.stage.is_none();
        let asking = AnswerContext { version: Version::HTTP_11, head: false, keeps: false, dates };
        let mut sending = None;
        let begun = self.begin_answer(response, &asking, false, &mut sending);
        self.send(begun, &mut sending).await?;
        self.close().await
    }

    /// Sets whether closing the connection now must be a reset. An answer of unknown length to an HTTP/1.0
    /// client ends with the connection (RFC 9112 §6.3). So until its last byte is out, the connection must be
    /// reset rather than closed, whatever ends it, even the end of this process.
    fn break_at_end(&mut self, breaks: bool) {
        if self.breaks != breaks {
            self.breaks = breaks;
            if let Ok(io) = self.conn.lock().io() {
                io.breaks_at_end(breaks);
            }
        }
    }

    /// Gives the connection up, for another protocol.
    fn give_up(&mut self) -> io::Result<PrefixedIo<Io>> {
        // A second descriptor would keep the connection open.
        self.departure = None;
        let mut conn = self.conn.lock();
        let first = conn.take_rest();
        Ok(PrefixedIo::new(conn.close().ok_or(io::ErrorKind::NotConnected)?, first))
    }
}

/// The request's body may outlive this, in an execution that unwinds. The connection does not.
impl Drop for Http1Session {
    fn drop(&mut self) {
        drop(self.conn.lock().close());
    }
}

/// The error of a client that has left.
fn gone() -> io::Error {
    io::ErrorKind::ConnectionAborted.into()
}
