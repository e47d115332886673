//! `fault`: the status is the failure's own.

use http::StatusCode;

use crate::language::outcome::Failure;
use crate::proxy::code::{self, Meaning};

/// Emitted in the place of the inner scope's Result.
pub(crate) const INJECTED: &str = "Provider.Middleware.Fault.Injected";

pub(super) fn meaning(failure: &Failure) -> Option<Meaning> {
    if failure.code != INJECTED {
        return None;
    }
    let details = failure.details.as_ref();
    let status = details.and_then(|details| details.get("status")?.as_u64());
    let status = status.and_then(|status| StatusCode::from_u16(u16::try_from(status).ok()?).ok());
    let help = "a `fault` of the route's stack injected this";
    let meaning = code::means(
        status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        "proxy_internal_response",
        help,
    );
    let reset = details.and_then(|details| details.get("reset")?.as_bool());
    Some(Meaning { withheld: reset == Some(true), ..meaning })
}
