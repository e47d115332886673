//! Which keys of a configuration exist already. What an importer writes for another one becomes a comment.

/// `ejection` of an upstream.
pub(super) const EJECTION: bool = false;
/// `health` of an upstream.
pub(super) const HEALTH: bool = false;
/// `balance` of an upstream, and weights of endpoints.
pub(super) const BALANCE: bool = false;
/// `retryBudget` of an upstream.
pub(super) const RETRY_BUDGET: bool = true;
/// The middleware `concurrency-limit`.
pub(super) const CONCURRENCY_LIMIT: bool = false;
/// The middleware `rate-limit`.
pub(super) const RATE_LIMIT: bool = false;
