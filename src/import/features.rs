//! Keys of an upstream that the proxy may not have yet.

use super::form::{At, Feature};
use super::landed;
use super::write::duration;
use super::yaml::Tree;
use crate::language::temporal::Span;

/// Endpoints that fail are left out for a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ejection {
    pub(super) failures: u64,
    pub(super) base: Option<Span>,
    pub(super) max: Option<Span>,
    /// How many of the endpoints, in percent.
    pub(super) percent: Option<u64>,
}

impl Ejection {
    /// The key. `None` if there is none: no failure ejects.
    pub(super) fn feature(self, at: At) -> Option<Feature> {
        let Self { failures, base, max, percent } = self;
        if failures == 0 {
            return None;
        }
        let mut with = vec![("consecutiveFailures", Tree::word(failures.min(1_000_000)))];
        with.extend(base.map(|base| ("baseTime", duration(base))));
        with.extend(max.map(|max| ("maxTime", duration(max))));
        with.extend(percent.map(|percent| {
            let percent = u32::try_from(percent.min(100)).unwrap_or(100);
            ("maxShare", Tree::word(f64::from(percent) / 100.0))
        }));
        let value = Tree::map(with);
        Some(Feature { key: "ejection", value, landed: landed::EJECTION, at })
    }
}

/// Active checks of each endpoint.
#[derive(Clone, Debug, Default)]
pub(super) struct Health {
    pub(super) path: String,
    pub(super) interval: Option<Span>,
    pub(super) timeout: Option<Span>,
    pub(super) healthy_after: Option<u64>,
    pub(super) unhealthy_after: Option<u64>,
    pub(super) statuses: Vec<u64>,
}

impl Health {
    pub(super) fn feature(self, at: At) -> Feature {
        let mut with = vec![("path", Tree::text(&self.path))];
        with.extend(self.interval.map(|interval| ("interval", duration(interval))));
        with.extend(self.timeout.map(|timeout| ("timeout", duration(timeout))));
        with.extend(self.healthy_after.map(|count| ("healthyAfter", Tree::word(count.max(1)))));
        with.extend(self.unhealthy_after.map(|count| ("unhealthyAfter", Tree::word(count.max(1)))));
        let statuses: Vec<_> =
            self.statuses.iter().filter(|status| (100..600).contains(*status)).collect();
        if !statuses.is_empty() {
            with.push(("statuses", Tree::list(statuses.into_iter().map(Tree::word))));
        }
        Feature { key: "health", value: Tree::map(with), landed: landed::HEALTH, at }
    }
}

/// How endpoints are chosen, by the names of Envoy's family, NGINX and `HAProxy`.
pub(super) fn balance(name: &str, at: At) -> Option<Feature> {
    let value = match name {
        "LEAST_REQUEST" | "LEAST_CONN" | "LeastRequest" | "least_conn" | "leastconn" => {
            "leastRequest"
        }
        "ROUND_ROBIN" | "RoundRobin" | "roundrobin" | "static-rr" => "roundRobin",
        "RANDOM" | "Random" | "random" => "random",
        _ => return None,
    };
    Some(Feature { key: "balance", value: Tree::own(value), landed: landed::BALANCE, at })
}

/// How many of the requests may be retries.
pub(super) fn retry_budget(share: f64, least: Option<u64>, at: At) -> Feature {
    let mut with = vec![("share", Tree::word(share.clamp(0.0, 1.0)))];
    with.extend(least.map(|least| ("minPerSecond", Tree::word(least.min(1_000_000)))));
    Feature { key: "retryBudget", value: Tree::map(with), landed: landed::RETRY_BUDGET, at }
}
