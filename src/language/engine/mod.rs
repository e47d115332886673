//! Runs plans.
use super::{clock::Clock, observe::Observer, outcome::Outcome, plan::Plan, value::Value};
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

/// One run of a root Flow, as the host starts it.
pub struct Start<'a> {
    /// `execution.id`.
    pub id: &'a str,
    /// `execution.platform`.
    pub platform: Value,
    pub clock: Clock,
    pub observer: Option<&'a dyn Observer>,
    /// For providers; never opened by the engine.
    pub host: Option<Arc<dyn Any + Send + Sync>>,
    /// External cancellation. None: the future is never cancelled but by being dropped.
    pub cancel: Option<tokio_util::sync::CancellationToken>,
    /// How long one cleanup may take during a teardown.
    pub cleanup_limit: Duration,
}
/// Runs the root Flow of `plan` to its one Result.
pub async fn run(plan: &Plan, start: Start<'_>, with: Value, input: Value) -> Outcome {
    unimplemented!()
}
