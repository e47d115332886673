//! The codes of failures that no status makes.

/// No connection: nothing was sent.
pub(super) const REFUSED: &str = "Provider.Call.Http.ConnectionFailed";
/// The connection was lost.
pub(super) const LOST: &str = "Provider.Call.Http.ConnectionClosed";
/// The upstream's `responseTimeout` has passed.
pub(super) const SLOW: &str = "Provider.Call.Http.ResponseTimeout";
/// The response is none.
pub(super) const INVALID: &str = "Provider.Call.Http.ProtocolError";
/// A Timeout's bound has passed.
pub(super) const BOUND: &str = "Provider.Middleware.Timeout.Exceeded";
/// A Retry gave up.
pub(super) const EXHAUSTED: &str = "Provider.Middleware.Retry.Exhausted";
/// All of the http provider.
pub(super) const ANY_HTTP: &str = "Provider.Call.Http.*";
