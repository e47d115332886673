//! What failures of the proxy's own middlewares mean to a client. A file for each of these, with its codes.

pub(super) mod circuit_breaker;
pub(super) mod concurrency_limit;
pub(super) mod fault;
pub(super) mod idempotency;
pub(super) mod rate_limit;

use std::time::Duration;

use http::{HeaderName, HeaderValue};

use super::code::Meaning;
use crate::language::outcome::Failure;
use crate::language::temporal::Span;

/// What `failure` means to a client, where one of the proxy's own middlewares made it.
pub(super) fn of(failure: &Failure) -> Option<Meaning> {
    let all = [
        circuit_breaker::meaning,
        concurrency_limit::meaning,
        fault::meaning,
        idempotency::meaning,
        rate_limit::meaning,
    ];
    all.iter().find_map(|meaning| meaning(failure))
}

/// The fields that tell a client more of `failure`, where one of the proxy's own middlewares made it.
pub(super) fn fields(failure: &Failure) -> Vec<(HeaderName, HeaderValue)> {
    rate_limit::fields(failure)
}

/// `details.retryAfter`.
pub(super) fn retry_after(failure: &Failure) -> Option<Duration> {
    let after = failure.details.as_ref()?.get("retryAfter")?;
    Some(Span::parse(after.as_str()?)?.to_duration())
}
