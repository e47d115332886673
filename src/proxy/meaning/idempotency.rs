//! `idempotency`: the statuses of draft-ietf-httpapi-idempotency-key-header.

use http::StatusCode;

use super::retry_after;
use crate::language::outcome::Failure;
use crate::proxy::code::{Meaning, means};

/// The first request with the key is at work.
pub(crate) const IN_PROGRESS: &str = "Provider.Middleware.Idempotency.InProgress";
/// The key was used for another request.
pub(crate) const MISMATCH: &str = "Provider.Middleware.Idempotency.Mismatch";
/// There is no key.
pub(crate) const MISSING: &str = "Provider.Middleware.Idempotency.Missing";
/// The store gave no answer, and without one nothing passes.
pub(crate) const STORE_UNAVAILABLE: &str = "Provider.Middleware.Idempotency.StoreUnavailable";

pub(super) fn meaning(failure: &Failure) -> Option<Meaning> {
    let (status, word, help) = match failure.code.as_str() {
        IN_PROGRESS => (
            StatusCode::CONFLICT,
            "http_request_denied",
            "the first request with this idempotency key is still at work",
        ),
        MISMATCH => (
            StatusCode::UNPROCESSABLE_ENTITY,
            "http_request_error",
            "the idempotency key was used for another request",
        ),
        MISSING => (
            StatusCode::BAD_REQUEST,
            "http_request_error",
            "an `idempotency` of the route's stack requires a key",
        ),
        STORE_UNAVAILABLE => (
            StatusCode::SERVICE_UNAVAILABLE,
            "http_request_denied",
            "the store of an `idempotency` gives no answer, and its `onError` is `deny`",
        ),
        _ => return None,
    };
    Some(Meaning { retry_after: retry_after(failure), ..means(status, word, help) })
}
