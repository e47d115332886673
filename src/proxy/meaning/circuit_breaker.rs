//! `circuit-breaker`: 503.

use http::StatusCode;

use super::retry_after;
use crate::language::outcome::Failure;
use crate::proxy::code::{self, Meaning};

/// The breaker is open, or all its probes are under way.
pub(crate) const OPEN: &str = "Provider.Middleware.CircuitBreaker.Open";

pub(super) fn meaning(failure: &Failure) -> Option<Meaning> {
    let help = "a `circuit-breaker` of the route's stack is open: what it calls kept failing";
    let meaning = code::means(StatusCode::SERVICE_UNAVAILABLE, "destination_unavailable", help);
    (failure.code == OPEN).then(|| Meaning { retry_after: retry_after(failure), ..meaning })
}
