//! Where a response came from, for whoever tells that it broke off.

use std::sync::Arc;

/// Where a response came from.
#[derive(Debug)]
pub(crate) struct ResponseOrigin {
    /// The name of the upstream.
    pub(crate) upstream: Arc<str>,
    /// The address of its endpoint.
    pub(crate) endpoint: Arc<str>,
}
