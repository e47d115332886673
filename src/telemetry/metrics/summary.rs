//! Each route's counters together, for `/routes` and the dashboard. They are computed from the series that
//! `/metrics` shows.

use std::collections::BTreeMap;

use prometheus::core::Collector;
use prometheus::proto::{Metric, MetricFamily};
use serde::Serialize;

use super::Metrics;

/// The counters of a route since the process started.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteSummary {
    /// Requests by the status that the client got.
    pub requests: BTreeMap<String, u64>,
    /// Requests that are running.
    pub in_flight: u64,
    /// How long requests took, in seconds: the mean, and quantiles estimated from the buckets.
    pub duration: Durations,
    /// Attempts by `success` or the failure's code, over all upstreams, without those of cleanups.
    pub attempts: BTreeMap<String, u64>,
    /// Those of cleanups.
    pub cleanup_attempts: BTreeMap<String, u64>,
    /// Re-runs by the code of the failure that caused each.
    pub retries: BTreeMap<String, u64>,
    /// Retry budgets that ran out, over all policies.
    pub retries_exhausted: u64,
    /// Retries that were not made, by reason.
    pub retries_suppressed: BTreeMap<String, u64>,
    /// Timeouts that fired.
    pub timeouts: u64,
    /// Failures that a `catch` took, by code.
    pub caught: BTreeMap<String, u64>,
    /// Faults of the definition, by code.
    pub faults: BTreeMap<String, u64>,
    /// Answers that an upstream broke off.
    pub truncated: u64,
    /// Cleanups by outcome.
    pub finally: BTreeMap<String, u64>,
}

/// A histogram in a few numbers. They are absent if it is empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Durations {
    /// The mean.
    pub mean: Option<f64>,
    /// Half of the requests took at most this.
    pub p50: Option<f64>,
    /// Nine in ten.
    pub p90: Option<f64>,
    /// Ninety-nine in a hundred.
    pub p99: Option<f64>,
}

impl Metrics {
    /// Every route that has ever counted anything, by name.
    pub fn routes(&self) -> BTreeMap<String, RouteSummary> {
        let families = &self.families;
        let mut routes = BTreeMap::<String, RouteSummary>::new();
        let mut read = |family: &dyn Collector, add: fn(&mut RouteSummary, &Metric)| {
            for metric in family.collect().iter().flat_map(MetricFamily::get_metric) {
                let route = label(metric, "route");
                add(routes.entry(route.to_owned()).or_default(), metric);
            }
        };
        read(&families.requests, |route, metric| add(&mut route.requests, metric, "status"));
        read(&families.in_flight, |route, metric| {
            route.in_flight = whole(metric.get_gauge().get_value());
        });
        read(&families.request_duration, |route, metric| route.duration = durations(metric));
        read(&families.attempts, |route, metric| add(&mut route.attempts, metric, "code"));
        // After the others, so that none of these is missing there.
        read(&families.cleanup_attempts, |route, metric| {
            let (code, count) = (label(metric, "code"), count(metric));
            if let Some(all) = route.attempts.get_mut(code) {
                *all = all.saturating_sub(count);
            }
            add(&mut route.cleanup_attempts, metric, "code");
        });
        read(&families.retries, |route, metric| add(&mut route.retries, metric, "code"));
        read(&families.exhausted, |route, metric| route.retries_exhausted += count(metric));
        read(&families.suppressed, |route, metric| {
            add(&mut route.retries_suppressed, metric, "reason");
        });
        read(&families.timeouts, |route, metric| route.timeouts += count(metric));
        read(&families.caught, |route, metric| add(&mut route.caught, metric, "code"));
        read(&families.faults, |route, metric| add(&mut route.faults, metric, "code"));
        read(&families.truncated, |route, metric| route.truncated += count(metric));
        read(&families.finally, |route, metric| add(&mut route.finally, metric, "outcome"));
        for route in routes.values_mut() {
            route.attempts.retain(|_, count| *count > 0);
        }
        routes
    }
}

pub(super) fn label<'a>(metric: &'a Metric, name: &str) -> &'a str {
    let found = metric.get_label().iter().find(|pair| pair.name() == name);
    found.map_or("", |pair| pair.value())
}

fn add(counts: &mut BTreeMap<String, u64>, metric: &Metric, by: &str) {
    let count = count(metric);
    if count > 0 {
        *counts.entry(label(metric, by).to_owned()).or_default() += count;
    }
}

pub(super) fn count(metric: &Metric) -> u64 {
    whole(metric.get_counter().get_value())
}

/// Counters are whole numbers that the library returns as doubles.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count; a conversion saturates"
)]
fn whole(value: f64) -> u64 {
    value as u64
}

fn durations(metric: &Metric) -> Durations {
    let histogram = metric.get_histogram();
    let total = histogram.get_sample_count();
    if total == 0 {
        return Durations::default();
    }
    #[expect(clippy::cast_precision_loss, reason = "a count of requests; a figure for people")]
    let of = |share: f64| share * total as f64;
    let bounds: Vec<(f64, u64)> = histogram
        .get_bucket()
        .iter()
        .map(|bucket| (bucket.upper_bound(), bucket.cumulative_count()))
        .collect();
    Durations {
        mean: Some(histogram.get_sample_sum() / of(1.0)),
        p50: Some(quantile(&bounds, of(0.5))),
        p90: Some(quantile(&bounds, of(0.9))),
        p99: Some(quantile(&bounds, of(0.99))),
    }
}

/// Like Prometheus's `histogram_quantile`: linear within the bucket that contains the `rank`-th smallest value.
/// If that is beyond all buckets, the highest bound.
fn quantile(bounds: &[(f64, u64)], rank: f64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a count of requests; a figure for people")]
    let counts = bounds.iter().map(|(bound, below)| (*bound, *below as f64));
    let mut before = (0.0, 0.0);
    for (bound, below) in counts {
        if below >= rank {
            let share = (rank - before.1) / (below - before.1).max(f64::MIN_POSITIVE);
            return before.0 + (bound - before.0) * share;
        }
        before = (bound, below);
    }
    before.0
}

#[cfg(test)]
mod tests {
    use super::super::Cleaned;
    use super::*;
    use crate::language::provider::DelaySource;
    use std::time::Duration;

    #[test]
    fn a_route_s_series_come_together() {
        let metrics = Metrics::new();
        let route = metrics.route("pay", &["A"]);
        for (status, millis) in [(200, 2), (200, 4), (503, 40)] {
            route.request_started();
            route.request_done(status, Duration::from_millis(millis));
        }
        route.request_started();
        route.attempt("u", None, Duration::ZERO);
        route.attempt("v", None, Duration::ZERO);
        route.attempt("v", Some("A"), Duration::ZERO);
        for code in [None, Some("B")] {
            route.attempt("audit", code, Duration::ZERO);
            route.cleanup_attempt("audit", code);
        }
        route.retry("A", DelaySource::Override);
        route.retry("A", DelaySource::Schedule);
        route.exhausted("flow/0", 0);
        route.exhausted("pay/0", 0);
        route.suppressed("draining");
        route.timeout("pay/1");
        route.caught("pay", "A");
        route.definition_fault("pay", "System.EmptyRaise");
        route.truncated("u");
        route.finally(Cleaned::Failure);
        metrics.route("idle", &[]);
        let routes = metrics.routes();
        insta::assert_snapshot!(serde_json::to_string(&routes["pay"]).unwrap(), @r#"{"requests":{"200":2,"503":1},"inFlight":1,"duration":{"mean":0.015333333333333332,"p50":0.00375,"p90":0.04250000000000001,"p99":0.049249999999999995},"attempts":{"A":1,"success":2},"cleanupAttempts":{"other":1,"success":1},"retries":{"A":2},"retriesExhausted":2,"retriesSuppressed":{"draining":1},"timeouts":1,"caught":{"A":1},"faults":{"System.EmptyRaise":1},"truncated":1,"finally":{"failure":1}}"#);
        assert_eq!(routes["idle"], RouteSummary::default());
    }

    #[test]
    fn quantiles_are_linear_within_a_bucket() {
        let bounds = [(1.0, 0), (2.0, 10), (4.0, 20)];
        // The last one is beyond all buckets.
        for (rank, wanted) in [(5.0, 1.5), (20.0, 4.0), (25.0, 4.0)] {
            assert!((quantile(&bounds, rank) - wanted).abs() < 1e-9, "{rank}");
        }
    }
}
