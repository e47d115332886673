//! The last steps of an answer: what a Flow came to is rendered and handed over.
//!
//! A few answers to HTTP/1 clients need more than that. One that is given before its request was read says that
//! the connection closes (RFC 9112 §9.6), unless the rest is here already and is read. One that had interim
//! answers comes behind them. And a 304 says the length that its answer would have (RFC 9110 §8.6), which the
//! library takes off. These wait, so they are a future of their own, which other answers do not carry.

use std::sync::Arc;

use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Response, StatusCode, Version};
use hyper::body::Incoming;

use super::body::answer::AnswerBody;
use super::body::source::Source;
use super::connection::Busy;
use super::execute::Answering;
use super::flight::Flight;
use super::render;
use super::request::{Exchange, Upload};
use super::tunnel::Tunnel;
use crate::language::outcome::Outcome;

/// An answer.
pub(super) enum Answered {
    /// It goes out.
    Now(Response<AnswerBody>),
    /// It needs something first.
    Later(Answering),
}

/// What an answer to an HTTP/1 client needs first.
struct Needs {
    /// The request's body, where it is not read and will not be; true: nobody else reads it.
    unread: Option<(Arc<Source<Incoming>>, bool)>,
    /// The lines that belong behind its first.
    lines: Vec<u8>,
}

/// The answer to `exchange`, whose client speaks `version`.
pub(super) fn finish(
    exchange: &Exchange,
    outcome: &Outcome,
    busy: Busy,
    mut flight: Flight,
    version: Version,
) -> Answered {
    let mut response = render::render(exchange, outcome);
    if !exchange.client_gone() {
        flight.answered(response.status().as_u16());
    }
    let speaks = busy.has_answer();
    if let Some(far) = response.body_mut().take_tunnel() {
        return switch(response, Tunnel::new(far, flight), busy, speaks);
    }
    response.body_mut().ends(flight);
    let needs = Needs::of(exchange, &mut response, &busy, version, speaks);
    let Some(needs) = needs else {
        response.body_mut().frees(busy);
        return Answered::Now(response);
    };
    Answered::Later(Box::pin(async move {
        needs.meet(&mut response, &busy).await;
        response.body_mut().frees(busy);
        response
    }))
}

/// The answer that changes the protocol; `speaks`: something comes before it.
fn switch(response: Response<AnswerBody>, tunnel: Tunnel, busy: Busy, speaks: bool) -> Answered {
    if !speaks {
        busy.switches(tunnel);
        return Answered::Now(response);
    }
    Answered::Later(Box::pin(async move {
        busy.answer_next(Vec::new()).await;
        busy.switches(tunnel);
        response
    }))
}

/// Has an answer say that its connection closes.
pub(super) fn closes(fields: &mut HeaderMap) {
    fields.insert(header::CONNECTION, HeaderValue::from_static("close"));
}

/// Reads what is here already of the body of a request that was refused. True where that is all of it.
pub(super) async fn read_out(body: Incoming) -> bool {
    Source::new(body, None).read_out().await
}

impl Needs {
    fn of(
        exchange: &Exchange,
        response: &mut Response<AnswerBody>,
        busy: &Busy,
        version: Version,
        speaks: bool,
    ) -> Option<Self> {
        if version >= Version::HTTP_2 {
            return None;
        }
        let unread = match &exchange.upload {
            Upload::Stream(source) if !source.finished() => left_unread(exchange, source, response),
            _ => None,
        };
        let lines = kept_length(&exchange.method, response);
        let needed = unread.is_some() || !lines.is_empty() || speaks;
        if version == Version::HTTP_10 && response.body().is_unframed() {
            busy.unframed();
        }
        needed.then_some(Self { unread, lines })
    }

    async fn meet(self, response: &mut Response<AnswerBody>, busy: &Busy) {
        if let Some((source, at_hand)) = self.unread {
            let read = at_hand && source.read_out().await;
            if !read {
                closes(response.headers_mut());
            }
        }
        busy.answer_next(self.lines).await;
    }
}

/// The body, where this answer ends the reading of it. An answer that succeeds may be an exchange of two
/// streams; any other, and one of our own, is all that its request comes to.
fn left_unread(
    exchange: &Exchange,
    source: &Arc<Source<Incoming>>,
    response: &Response<AnswerBody>,
) -> Option<(Arc<Source<Incoming>>, bool)> {
    let own = !response.body().is_upstream();
    if !own && response.status().as_u16() < 300 {
        return None;
    }
    // What is asked for by being read is not read.
    let unasked = exchange.asked.body_unasked && source.read() == 0;
    Some((Arc::clone(source), own && !unasked))
}

/// The line with the length of an answer that has no body, where the library would leave it out: it writes the
/// one to a HEAD.
fn kept_length(method: &Method, response: &mut Response<AnswerBody>) -> Vec<u8> {
    if response.status() != StatusCode::NOT_MODIFIED || method == Method::HEAD {
        return Vec::new();
    }
    let Some(length) = response.headers_mut().remove(header::CONTENT_LENGTH) else {
        return Vec::new();
    };
    [b"content-length: ", length.as_bytes(), b"\r\n"].concat()
}
