//! `rate-limit`: 429, with the fields of draft-ietf-httpapi-ratelimit-headers.

use http::{HeaderName, HeaderValue, StatusCode};

use super::retry_after;
use crate::language::outcome::Failure;
use crate::language::temporal::Span;
use crate::proxy::code::{Meaning, means};
use crate::proxy::grpc::Status;

/// The limit is used up.
pub(crate) const LIMITED: &str = "Provider.Middleware.RateLimit.Limited";
/// The store gave no answer, and without one nothing passes.
pub(crate) const STORE_UNAVAILABLE: &str = "Provider.Middleware.RateLimit.StoreUnavailable";

static RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
static RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

pub(super) fn meaning(failure: &Failure) -> Option<Meaning> {
    let meaning = match failure.code.as_str() {
        LIMITED => Meaning {
            grpc: Status::RESOURCE_EXHAUSTED,
            ..means(
                StatusCode::TOO_MANY_REQUESTS,
                "http_request_denied",
                "a `rate-limit` of the route's stack is used up",
            )
        },
        STORE_UNAVAILABLE => means(
            StatusCode::SERVICE_UNAVAILABLE,
            "http_request_denied",
            "the store of a `rate-limit` gives no answer, and its `onError` is `deny`",
        ),
        _ => return None,
    };
    Some(Meaning { retry_after: retry_after(failure), ..meaning })
}

/// `RateLimit-Policy: "default";q=100;w=60` and `RateLimit: "default";r=0;t=12`.
pub(super) fn fields(failure: &Failure) -> Vec<(HeaderName, HeaderValue)> {
    if failure.code != LIMITED {
        return Vec::new();
    }
    let Some(details) = &failure.details else {
        return Vec::new();
    };
    let mut fields = Vec::new();
    let mut add = |name: &HeaderName, value: String| {
        fields.extend(HeaderValue::try_from(value).ok().map(|value| (name.clone(), value)));
    };
    if let Some(rate) = details.get("rate").and_then(|rate| rate.as_u64()) {
        // A window has whole seconds. Another one is not told.
        let per = details.get("per");
        let per = per.as_ref().and_then(|per| Span::parse(per.as_str()?)).map(Span::to_duration);
        let window = per.filter(|per| per.subsec_nanos() == 0 && per.as_secs() > 0);
        let window = window.map_or_else(String::new, |per| format!(";w={}", per.as_secs()));
        add(&RATE_LIMIT_POLICY, format!("\"default\";q={rate}{window}"));
    }
    if let Some(after) = retry_after(failure) {
        let seconds = after.as_secs().saturating_add(u64::from(after.subsec_nanos() > 0));
        add(&RATE_LIMIT, format!("\"default\";r=0;t={seconds}"));
    }
    fields
}
