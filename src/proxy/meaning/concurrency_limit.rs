//! `concurrency-limit`: 503.

use http::StatusCode;

use crate::language::outcome::Failure;
use crate::proxy::code::{self, Meaning};

/// As many runs go on as may, and as many wait.
pub(crate) const FULL: &str = "Provider.Middleware.ConcurrencyLimit.Full";

pub(super) fn meaning(failure: &Failure) -> Option<Meaning> {
    let help = "as much goes on at once as a `concurrency-limit` of the route's stack allows";
    let meaning = code::means(StatusCode::SERVICE_UNAVAILABLE, "http_request_denied", help);
    (failure.code == FULL).then_some(meaning)
}
