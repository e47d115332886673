//! Tells of each change of an endpoint's state: lines of the log, which are paced, and metrics.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::machine::Change;
use super::{Cause, EndpointGroup, Rules};
use crate::language::clock::Clock;
use crate::language::temporal::Timestamp;
use crate::telemetry::limiter::LogLimiter;
use crate::telemetry::metrics::EndpointHealth;

const OUT: &str = "An endpoint is out.";
const BACK: &str = "An endpoint is back.";
const SPARED: &str = "An endpoint that fails stays in: too many others are out.";

/// The value of the label `cause` if checks take an endpoint out.
pub(crate) const HEALTH_CHECK: &str = "healthCheck";

/// Who is told of one endpoint.
#[derive(Debug)]
pub(super) struct Told {
    upstream: Arc<str>,
    endpoint: Arc<str>,
    metrics: EndpointHealth,
    out: LogLimiter,
    back: LogLimiter,
    spared: LogLimiter,
}

impl Told {
    /// For the endpoint of this name.
    pub(super) fn new(endpoint: &Arc<str>, group: &EndpointGroup) -> Self {
        let EndpointGroup { upstream, metrics, rules, .. } = group;
        let about = || Some(group.switch(endpoint));
        Self {
            metrics: metrics.endpoint_health(upstream, endpoint, &causes(rules)),
            upstream: Arc::clone(upstream),
            endpoint: Arc::clone(endpoint),
            out: LogLimiter::new(OUT, about()),
            back: LogLimiter::of_info(BACK, about()),
            spared: LogLimiter::new(SPARED, about()),
        }
    }

    /// Whether the endpoint gets attempts now.
    pub(super) fn set_up(&self, up: bool) {
        self.metrics.set_up(up);
    }

    /// Tells of `change`. `found`: by the last bad check.
    pub(super) fn tell(&self, change: Change, found: Option<&str>, now: Instant) {
        let Self { upstream, endpoint, .. } = self;
        match change {
            Change::Ejected(cause, time) => {
                self.metrics.ejected(cause as usize);
                if let Some(untold) = self.out.admits(now) {
                    let (cause, until) = (cause.as_str(), until(now, time));
                    tracing::warn!(%upstream, %endpoint, cause, %until, untold, "{OUT}");
                }
            }
            Change::Unhealthy => {
                self.metrics.ejected(Cause::ALL.len());
                if let Some(untold) = self.out.admits(now) {
                    tracing::warn!(%upstream, %endpoint, cause = HEALTH_CHECK, found, untold, "{OUT}");
                }
            }
            Change::Readmitted | Change::Healthy => {
                if let Some(untold) = self.back.admits(now) {
                    let after = if change == Change::Healthy { HEALTH_CHECK } else { "ejection" };
                    tracing::info!(%upstream, %endpoint, after, untold, "{BACK}");
                }
            }
            // An operator makes these, and the switch says so.
            Change::Drained => tracing::info!(%upstream, %endpoint, "An endpoint is drained."),
            Change::Restored => tracing::info!(%upstream, %endpoint, "An endpoint is restored."),
        }
    }

    /// Tells that the endpoint would have been ejected.
    pub(super) fn spared(&self, cause: Cause, now: Instant) {
        if let Some(untold) = self.spared.admits(now) {
            let (Self { upstream, endpoint, .. }, cause) = (self, cause.as_str());
            tracing::warn!(%upstream, %endpoint, cause, untold, "{SPARED}");
        }
    }
}

/// The causes that are counted, in the order of [`Cause::ALL`], and [`HEALTH_CHECK`] behind them.
fn causes(rules: &Rules) -> Vec<&'static str> {
    if !rules.checks && rules.ejection.is_none() {
        return Vec::new();
    }
    Cause::ALL.iter().map(|cause| cause.as_str()).chain([HEALTH_CHECK]).collect()
}

/// The wall time after this `time`, to the millisecond.
fn until(now: Instant, time: Duration) -> Timestamp {
    const MILLI: i128 = 1_000_000;
    let at = now.checked_add(time).unwrap_or(now);
    Timestamp::from_nanos(Clock::system().at(at).as_nanos() / MILLI * MILLI)
}
