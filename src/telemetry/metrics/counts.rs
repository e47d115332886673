//! What routes have counted, in the few numbers of which [`history`](crate::telemetry::history) keeps the last minutes.

use std::collections::BTreeMap;

use prometheus::IntCounterVec;
use prometheus::core::Collector;
use prometheus::proto::{Metric, MetricFamily};

use super::Metrics;
use super::summary::{count, label};

/// What has been counted since the process started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// By the route.
    pub routes: BTreeMap<String, RouteCounts>,
    /// By the route and the upstream.
    pub attempts: BTreeMap<(String, String), AttemptCounts>,
}

/// A route's requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteCounts {
    /// Requests that have ended.
    pub requests: u64,
    /// Those that were answered 5xx, with a status that is not registered, or not at all.
    pub failures: u64,
    /// Failures that a `catch` took.
    pub caught: u64,
}

/// A route's attempts at an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttemptCounts {
    /// Attempts.
    pub all: u64,
    /// Those that failed.
    pub failures: u64,
    /// Those of cleanups.
    pub cleanups: u64,
}

impl Metrics {
    /// The counters at this moment.
    pub fn counts(&self) -> Counts {
        let families = &self.families;
        let mut counts = Counts::default();
        each(&families.requests, |metric, count| {
            let route = counts.routes.entry(label(metric, "route").to_owned()).or_default();
            route.requests += count;
            if is_failure(label(metric, "status")) {
                route.failures += count;
            }
        });
        each(&families.caught, |metric, count| {
            counts.routes.entry(label(metric, "route").to_owned()).or_default().caught += count;
        });
        let mut attempts = |family, add: fn(&mut AttemptCounts, &Metric, u64)| {
            each(family, |metric, count| {
                let place =
                    (label(metric, "route").to_owned(), label(metric, "upstream").to_owned());
                add(counts.attempts.entry(place).or_default(), metric, count);
            });
        };
        attempts(&families.attempts, |at, metric, count| {
            at.all += count;
            if label(metric, "code") != "success" {
                at.failures += count;
            }
        });
        attempts(&families.cleanup_attempts, |at, _, count| at.cleanups += count);
        counts
    }
}

/// Each series that has counted something.
fn each(family: &IntCounterVec, mut take: impl FnMut(&Metric, u64)) {
    for metric in family.collect().iter().flat_map(MetricFamily::get_metric) {
        let count = count(metric);
        if count > 0 {
            take(metric, count);
        }
    }
}

/// Whether a status is one of a request that failed: 5xx, one that is not registered, or 444, which stands for none.
fn is_failure(status: &str) -> bool {
    status.parse::<u16>().map_or(true, |status| status >= 500 || status == 444)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_route_s_requests_and_attempts_are_counted() {
        let metrics = Metrics::new();
        let route = metrics.route("pay", &["A"]);
        for status in [200, 404, 499, 444, 503, 777] {
            route.request_started();
            route.request_done(status, Duration::ZERO);
        }
        route.caught("pay", "A");
        route.attempt("billing", Some("A"), Duration::ZERO);
        route.attempt("billing", None, Duration::ZERO);
        route.attempt("audit", None, Duration::ZERO);
        route.cleanup_attempt("audit", None);
        metrics.route("idle", &[]);
        let Counts { routes, attempts } = metrics.counts();
        assert_eq!(
            routes.into_iter().collect::<Vec<_>>(),
            [("pay".to_owned(), RouteCounts { requests: 6, failures: 3, caught: 1 })]
        );
        let named = |upstream: &str| ("pay".to_owned(), upstream.to_owned());
        assert_eq!(
            attempts.into_iter().collect::<Vec<_>>(),
            [
                (named("audit"), AttemptCounts { all: 1, failures: 0, cleanups: 1 }),
                (named("billing"), AttemptCounts { all: 2, failures: 1, cleanups: 0 }),
            ]
        );
    }
}
