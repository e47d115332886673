//! The last steps of an answer: a Flow's Result is rendered, logged if it is a failure, and handed over.
//!
//! An answer to an HTTP/1.1 client whose request was not read to the end says that the connection closes (RFC
//! 9112 §9.6), unless the rest has arrived already and is read.

use std::sync::Arc;

use http::header::{self, HeaderMap, HeaderValue};
use http::{Response, Version};
use tokio::time::Instant;

use super::body::AnswerBody;
use super::render;
use crate::language::outcome::{Failure, FailureType, Outcome};
use crate::proxy::body::client::ClientBody;
use crate::proxy::body::source::ReplaySource;
use crate::proxy::grpc::{Ended, Status};
use crate::proxy::request::exchange::Exchange;
use crate::proxy::request::flight::Flight;
use crate::proxy::request::upload::Upload;
use crate::proxy::watch::busy::BusyGuard;
use crate::telemetry::record::NO_ANSWER;

/// The answer to `exchange`, for a client that speaks `version`.
pub(crate) fn finish(
    exchange: &Exchange,
    outcome: &Outcome,
    busy: BusyGuard,
    mut flight: Flight,
    version: Version,
) -> Response<AnswerBody> {
    let mut response = render::render(exchange, outcome);
    let withheld = response.body().is_withheld();
    if !exchange.client_gone() {
        flight.answered(if withheld { NO_ANSWER } else { response.status().as_u16() });
        if let Outcome::Failure(failure) = outcome
            && !withheld
        {
            tell(exchange, failure, &response);
        }
    }
    if version < Version::HTTP_2
        && let Upload::Stream(source) = &exchange.upload
        && !source.finished()
        && leaves_unread(exchange, source, &response)
    {
        closes(response.headers_mut());
    }
    if let Some(capture) = exchange.capture.as_ref().filter(|_| !withheld) {
        capture.answer(&response);
    }
    response.body_mut().ends(flight);
    response.body_mut().frees(busy);
    response
}

/// Logs a failure that the client sees as a server error, or not at all, because a rule made it of a response with a
/// status that is none of an error: a few of many on one route, with the number of the others. When the stopping
/// process cancels requests, that is logged elsewhere.
fn tell(exchange: &Exchange, failure: &Failure, response: &Response<AnswerBody>) {
    let status = response.status();
    // A gRPC call answers 200 and reports its outcome in other fields.
    let said = || Ended::of(response.headers()).map(|ended| ended.status);
    let known = || failure.chain().find_map(|link| Status::of_code(link.code.as_str()));
    let grpc = exchange.grpc.then(|| said().or_else(known)).flatten();
    let unseen = !exchange.grpc && !status.is_client_error();
    let servers = status.is_server_error() || unseen || grpc.is_some_and(Status::is_servers);
    let staged = exchange.site.runtime.stage.is_some();
    if !servers || failure.ty == FailureType::Cancellation || staged {
        return;
    }
    let Some(untold) = exchange.route.failures.admits(Instant::now()) else {
        return;
    };
    // The original cause, if it is another failure.
    let cause = failure.chain().skip(1).last().map(tracing::field::display);
    let help = render::meaning(failure).help;
    tracing::warn!(
        execution = exchange.id(),
        route = &*exchange.route.name,
        method = %exchange.method,
        path = exchange.path(),
        status = status.as_u16(),
        grpc = grpc.map(Status::name),
        error = %failure,
        cause,
        help = (!help.is_empty()).then_some(help),
        untold,
        "A request failed."
    );
}

/// Makes an answer say that its connection closes.
pub(crate) fn closes(fields: &mut HeaderMap) {
    fields.insert(header::CONNECTION, HeaderValue::from_static("close"));
}

/// Discards what has arrived of a refused request's body. Returns whether that was all of it.
pub(crate) fn read_out(body: ClientBody) -> bool {
    ReplaySource::new(body, None).read_out()
}

/// Whether this answer comes before its request's body was read. A successful answer may be one of two streams
/// that run side by side; any other answer, or one of our own, ends its request.
fn leaves_unread(
    exchange: &Exchange,
    source: &Arc<ReplaySource<ClientBody>>,
    response: &Response<AnswerBody>,
) -> bool {
    let own = !response.body().is_upstream() || !source.is_taken();
    if !own {
        return response.status().as_u16() >= 300;
    }
    // A body whose client waits for a 100 must not be read: reading sends the 100.
    let unasked = exchange.asked.body_unasked && source.read() == 0;
    unasked || !source.read_out()
}
