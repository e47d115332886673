//! The bearer token of the admin address (RFC 6750).

use http::header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use http::{HeaderMap, Response, StatusCode};
use subtle::ConstantTimeEq;

use super::{Body, text};

/// Checks that `headers` carry `token`; if not, returns the response that asks for it. The time that the
/// comparison takes reveals only whether the lengths are equal.
pub(super) fn check(token: &str, headers: &HeaderMap) -> Result<(), Box<Response<Body>>> {
    let given = headers.get(AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
    if given.is_some_and(|given| bool::from(given.ct_eq(token.as_bytes()))) {
        return Ok(());
    }
    let wanted = "this address wants `Authorization: Bearer TOKEN` with the token that `admin.token` names\n";
    let mut refusal = text(StatusCode::UNAUTHORIZED, wanted.into());
    let challenge = HeaderValue::from_static("Bearer realm=\"mwl-proxy\"");
    refusal.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    Err(Box::new(refusal))
}

/// The credentials after the scheme, whose case does not matter (RFC 9110 §11.1).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token)
}
