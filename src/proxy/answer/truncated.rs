//! An answer that its upstream breaks off after the head. The client has a status already and sees only that the
//! rest is missing, so this is where the operator learns of it.
//!
//! It counts neither as what the head said nor as a client that left: its status is [`RESPONSE_TRUNCATED`] and its
//! code [`code::RESPONSE_TRUNCATED`], as Envoy flags it `UC` and others `SD`. The attempt stays the success
//! that its head was, because its Result was accepted then.

use std::sync::Arc;

use tokio::time::Instant;

use crate::proxy::body::BodyError;
use crate::proxy::code;
use crate::proxy::request::flight::Flight;
use crate::proxy::upstream::origin::ResponseOrigin;
use crate::source::Causes;
use crate::telemetry::events;
use crate::telemetry::record::RESPONSE_TRUNCATED;

/// The response from `origin` broke off with `error`, after `sent` bytes of its body were handed over.
pub(super) fn truncated(
    flight: Flight,
    sent: u64,
    origin: Option<&ResponseOrigin>,
    error: &BodyError,
) {
    let exchange = Arc::clone(flight.exchange());
    // If the request broke off, that may have ended the response too, and the client is the cause.
    let (Some(origin), None) = (origin, exchange.upload.broken()) else {
        return flight.abandon(sent);
    };
    let ResponseOrigin { upstream, endpoint } = origin;
    let (execution, route) = (exchange.id(), &*exchange.route.name);
    let (status, causes) = (flight.status(), Causes(error));
    exchange.route.metrics.truncated(upstream);
    events::truncated(exchange.subject(), (upstream, endpoint), code::RESPONSE_TRUNCATED, status);
    if let Some(untold) = exchange.route.rare().truncated.admits(Instant::now()) {
        tracing::warn!(
            execution,
            route,
            method = %exchange.method,
            path = exchange.path(),
            upstream = &**upstream,
            endpoint = &**endpoint,
            status,
            bytes = sent,
            code = code::RESPONSE_TRUNCATED,
            error = %causes,
            untold,
            "The response broke off after its head."
        );
    }
    let message =
        format!("upstream {upstream} broke its response off after {sent} bytes: {causes}");
    flight.truncated(sent, RESPONSE_TRUNCATED, (code::RESPONSE_TRUNCATED, &message));
}
