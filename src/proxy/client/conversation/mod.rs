//! HTTP/1.1 with a client.
//!
//! One task holds a conversation: it reads a head, has the request answered, writes the answer, and does so again. Like
//! the other side's ([`upstream::h1`](crate::proxy::upstream)) it is its own, for the data path is what a proxy exists for: nothing
//! goes through a channel, a client that waits costs a socket and a few hundred bytes, and what HTTP/1.1 has to say
//! (interim answers, the end of a connection, a length without a body) is said where it belongs.
//!
//! What is read of a connection is two parties' business: the conversation's own, for heads and for the end, and the
//! request's body's, which whoever sends it on reads at its own pace. So the reading half is shared ([`Talk`]). What is
//! written is the conversation's alone, in the order in which it is to be read: what comes before the answer, the
//! answer's head ([`answer`]), its body, piece by piece as the client takes it ([`saying`]).
//!
//! A client that ends while its request is answered is gone: nobody waits for the answer any more. That is looked
//! for whenever the task runs, once all of the request was read.

mod answer;
mod closing;
mod head;
mod saying;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Method, Request, Response, Version};
use http_body::Body as _;

use self::answer::Asking;
use self::head::Head;
use super::tunnel::Tunnel;
use crate::proxy::answer::body::AnswerBody;
use crate::proxy::answer::render;
use crate::proxy::body::client::ClientBody;
use crate::proxy::h1::{Dropped, Framing, Outbox, Sending, Talk, Wire};
use crate::proxy::io::Io;
use crate::proxy::io::peer::{Over, Peer};
use crate::proxy::io::pour::Pipe;
use crate::proxy::io::rewound::Rewound;
use crate::proxy::message::id;
use crate::proxy::message::refusal::Refusal;
use crate::proxy::request::interim::Interim;
use crate::proxy::run::execute::{self, Answering};
use crate::proxy::site::{Site, Worker};
use crate::proxy::watch::State;
use crate::proxy::watch::busy::Busy;

/// What a conversation came to.
pub(super) enum End {
    /// Its end: the connection is closed.
    Closed,
    /// Another protocol, which both sides agreed on.
    Switched(Box<Tunnel>, Rewound<Io>),
    /// HTTP/2, with which the client began.
    Http2(Rewound<Io>),
}

/// What a conversation is about next.
enum Next {
    /// A request, and what serves it.
    Request(Box<Head>, Arc<Site>),
    /// What is no request.
    Refused(Refusal),
    /// The client began with HTTP/2.
    Http2,
    /// Nothing: the client has ended, or the process stops.
    Nothing,
}

/// What comes behind an answer.
enum After {
    /// The next request.
    Next,
    /// The end.
    End,
    /// The end, in place of the answer.
    Nothing,
    /// Another protocol.
    Switch(Box<Tunnel>),
}

/// A client's connection, and what is being said on it. Dropped, it closes.
pub(super) struct Conversation {
    talk: Talk,
    client: Peer,
    worker: Arc<Worker>,
    state: Arc<State>,
    outbox: Outbox,
    /// What is written behind that: a piece of a body that is poured.
    pipe: Option<Pipe>,
    /// Whether the client takes no bytes.
    blocked: bool,
    /// Whether an end now would be a reset.
    breaks: bool,
}

impl Conversation {
    /// A conversation over `io` that has not begun.
    pub(super) fn new(io: Io, client: Peer, worker: &Arc<Worker>, state: &Arc<State>) -> Self {
        Self {
            talk: Talk::new(io),
            client,
            worker: Arc::clone(worker),
            state: Arc::clone(state),
            outbox: Outbox::default(),
            pipe: None,
            blocked: false,
            breaks: false,
        }
    }

    /// Holds it to its end.
    ///
    /// # Errors
    /// Where the client leaves in the midst of it, or the connection breaks.
    pub(super) async fn hold(&mut self) -> io::Result<End> {
        std::future::poll_fn(|cx| {
            self.state.woken_by(cx.waker());
            self.talk.lock().held_by(cx.waker());
            Poll::Ready(())
        })
        .await;
        loop {
            let next = std::future::poll_fn(|cx| self.poll_next(cx)).await?;
            let after = match next {
                Next::Request(head, site) => self.serve(head, site).await?,
                Next::Refused(refusal) => {
                    // Boxed, as all is that few connections come to: the others need not carry it.
                    Box::pin(self.refuse(refusal)).await?;
                    return Ok(End::Closed);
                }
                Next::Http2 => return self.give_up().map(End::Http2),
                Next::Nothing => After::End,
            };
            match after {
                After::Next => {}
                After::End => {
                    Box::pin(self.close()).await?;
                    return Ok(End::Closed);
                }
                After::Nothing => {
                    self.break_at_end(true);
                    return Ok(End::Closed);
                }
                After::Switch(tunnel) => {
                    self.state.tunnels();
                    let io = self.give_up()?;
                    return Ok(End::Switched(tunnel, io));
                }
            }
        }
    }

    /// The next request, where it is whole.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Next>> {
        let mut talk = self.talk.lock();
        loop {
            if let Some(next) = self.take_next(&mut talk) {
                return Poll::Ready(Ok(next));
            }
            if self.state.is_late() {
                return Poll::Ready(Ok(Next::Refused(Refusal::late_head())));
            }
            match talk.poll_read(cx) {
                Poll::Ready(Ok(0)) if talk.is_between() => return Poll::Ready(Ok(Next::Nothing)),
                Poll::Ready(Ok(0)) => {
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                // Whoever has asked nothing yet may be about to.
                Poll::Pending if self.ends() && self.state.idles() => {
                    return Poll::Ready(Ok(Next::Nothing));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// What came, as far as sense can be made of it.
    fn take_next(&self, talk: &mut Wire) -> Option<Next> {
        talk.skip_empty_lines();
        if talk.is_between() {
            return None;
        }
        self.state.heard();
        let clear = self.client.over == Over::Clear && !self.state.is_asked();
        if clear && let Some(whole) = talk.begins_http2() {
            return whole.then_some(Next::Http2);
        }
        if !talk.is_worth_parsing() {
            return None;
        }
        let site = self.worker.site();
        match head::take(talk, &site.runtime.limits) {
            Ok(None) => None,
            Ok(Some(head)) => Some(Next::Request(head, site)),
            Err(refusal) => Some(Next::Refused(refusal)),
        }
    }

    /// Whether it ends as soon as no request is left.
    fn ends(&self) -> bool {
        self.state.is_draining() || self.worker.core.draining()
    }

    /// Has a request answered, and says the answer.
    async fn serve(&mut self, head: Box<Head>, site: Arc<Site>) -> io::Result<After> {
        let Head { parts, body, keeps, asks, trailers } = *head;
        let mut asking = Asking {
            version: parts.version,
            head: parts.method == Method::HEAD,
            keeps,
            dates: site.runtime.stage.is_none(),
        };
        let talk = self.talk.of_this_request();
        let body = if body.is_done() {
            ClientBody::Empty
        } else {
            self.talk.lock().begin(body, asks);
            ClientBody::Talk(talk.clone())
        };
        let interim = if asking.version == Version::HTTP_10 {
            Interim::Nowhere(Dropped::Http10)
        } else {
            Interim::Client(talk)
        };
        let request = Request::from_parts(parts, body);
        let busy = Busy::new(&self.state);
        let mut answering = execute::serve(site, request, self.client, busy, interim);
        let response = std::future::poll_fn(|cx| self.poll_answer(&mut answering, cx)).await?;
        drop(answering);
        asking.keeps &= !self.ends();
        self.say(response, &asking, trailers).await
    }

    /// The answer. What comes before it is said meanwhile.
    fn poll_answer(
        &mut self,
        answering: &mut Answering,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Response<AnswerBody>>> {
        if let Poll::Ready(response) = answering.as_mut().poll(cx) {
            self.talk.lock().answered();
            return Poll::Ready(Ok(response));
        }
        if let Poll::Ready(Err(error)) = self.poll_flush(cx) {
            return Poll::Ready(Err(error));
        }
        self.poll_gone(cx).map(Err)
    }

    /// Ready when the client is gone.
    fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let mut talk = self.talk.lock();
        if !talk.is_read() {
            return Poll::Pending;
        }
        loop {
            talk.skip_empty_lines();
            if !talk.is_between() {
                // The next request waits.
                return Poll::Pending;
            }
            match ready!(talk.poll_read(cx)) {
                Ok(0) => return Poll::Ready(io::ErrorKind::ConnectionAborted.into()),
                Ok(_) => {}
                Err(error) => return Poll::Ready(error),
            }
        }
    }

    /// Says an answer; what comes behind it.
    async fn say(
        &mut self,
        response: Response<AnswerBody>,
        asking: &Asking,
        trailers: bool,
    ) -> io::Result<After> {
        let (parts, mut body) = response.into_parts();
        if body.is_withheld() {
            return Ok(After::Nothing);
        }
        let switch = body.take_tunnel();
        self.talk.lock().say_into(&mut self.outbox);
        // Trailers have their place behind chunks only: a length that is known is not said to whoever takes them.
        let trailed = trailers && asking.version > Version::HTTP_10 && body.is_trailed();
        let length = body.size_hint().exact().filter(|_| !trailed);
        let clock = || self.worker.core.date();
        let (framing, keeps) = answer::head(self.outbox.text(), &parts, length, asking, clock);
        drop(parts);
        if framing == Framing::UntilClose {
            self.break_at_end(true);
        }
        let mut sending = Some(Sending { body, framing, trailers });
        std::future::poll_fn(|cx| self.poll_send(&mut sending, cx)).await?;
        self.outbox.rest();
        if let Some((far, flight)) = switch {
            return Ok(After::Switch(Box::new(Tunnel::new(*far, flight))));
        }
        // What is left of the request is read where it is here already, for nobody.
        let read = keeps && self.talk.lock().read_out();
        Ok(if read { After::Next } else { After::End })
    }

    /// Answers what is no request, and closes.
    async fn refuse(&mut self, refusal: Refusal) -> io::Result<()> {
        let core = &self.worker.core;
        let runtime = Arc::clone(&self.worker.site().runtime);
        runtime.refused(refusal.reason, self.client.address, &refusal.detail);
        let id = core.ids.next(core.clock.now().as_nanos());
        let response = render::refuse(&refusal, id::text(&id), &Method::GET, false);
        let dates = runtime.stage.is_none();
        let asking = Asking { version: Version::HTTP_11, head: false, keeps: false, dates };
        self.say(response, &asking, false).await?;
        self.close().await
    }

    /// From now on, or no longer, the end of the connection is no end of an answer. An answer to an HTTP/1.0 client
    /// whose length nobody knows ends with the connection (RFC 9112 §6.3): while it is on its way the connection would
    /// be reset, whatever ends it, this process's end included; only behind the last byte it closes.
    fn break_at_end(&mut self, breaks: bool) {
        if self.breaks != breaks {
            self.breaks = breaks;
            if let Ok(io) = self.talk.lock().io() {
                io.breaks_at_end(breaks);
            }
        }
    }

    /// The connection, for another protocol.
    fn give_up(&mut self) -> io::Result<Rewound<Io>> {
        let mut talk = self.talk.lock();
        let first = talk.take_rest();
        Ok(Rewound::new(talk.close().ok_or(io::ErrorKind::NotConnected)?, first))
    }
}

/// The body of a request may outlive it: an execution that unwinds has it. The connection does not.
impl Drop for Conversation {
    fn drop(&mut self) {
        drop(self.talk.lock().close());
    }
}
