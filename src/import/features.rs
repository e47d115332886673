//! Keys of an upstream with parameters of their own.

use super::form::{At, Feature};
use super::write::duration;
use super::yaml::Tree;
use crate::language::temporal::Span;

/// The shortest and the longest time of an ejection or between two checks.
const SHORTEST: Span = Span::from_nanos(10_000_000);
const LONGEST: Span = Span::from_nanos(365 * 86_400 * 1_000_000_000);
/// The times of ejections where nothing is written.
const USUAL_BASE: Span = Span::from_nanos(30_000_000_000);
const USUAL_MAX: Span = Span::from_nanos(300_000_000_000);

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
        let base = base.map(|base| base.clamp(SHORTEST, LONGEST));
        let max = max.map(|max| max.clamp(SHORTEST, LONGEST));
        // It cannot be below the first time, which may be above its default.
        let max = match (base, max) {
            (Some(base), Some(max)) => Some(max.max(base)),
            (Some(base), None) => Some(base).filter(|base| *base > USUAL_MAX),
            (None, max) => max.map(|max| max.max(USUAL_BASE)),
        };
        with.extend(base.map(|base| ("baseTime", duration(base))));
        with.extend(max.map(|max| ("maxTime", duration(max))));
        with.extend(percent.map(|percent| {
            let percent = u32::try_from(percent.clamp(1, 100)).unwrap_or(100);
            ("maxShare", Tree::word(f64::from(percent) / 100.0))
        }));
        let value = Tree::map(with);
        Some(Feature { key: "ejection", value, at })
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
        let time = |span: Span| duration(span.clamp(SHORTEST, LONGEST));
        let count = |count: u64| Tree::word(count.clamp(1, 1000));
        with.extend(self.interval.map(|interval| ("interval", time(interval))));
        with.extend(self.timeout.map(|timeout| ("timeout", time(timeout))));
        with.extend(self.healthy_after.map(|after| ("healthyAfter", count(after))));
        with.extend(self.unhealthy_after.map(|after| ("unhealthyAfter", count(after))));
        let statuses: Vec<_> =
            self.statuses.iter().filter(|status| (100..600).contains(*status)).collect();
        if !statuses.is_empty() {
            with.push(("statuses", Tree::list(statuses.into_iter().map(Tree::word))));
        }
        Feature { key: "health", value: Tree::map(with), at }
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
    Some(Feature { key: "balance", value: Tree::own(value), at })
}

/// How many of the requests may be retries.
pub(super) fn retry_budget(share: f64, least: Option<u64>, at: At) -> Feature {
    let mut with = vec![("share", Tree::word(share.clamp(0.0, 1.0)))];
    with.extend(least.map(|least| ("minPerSecond", Tree::word(least.min(1_000_000)))));
    Feature { key: "retryBudget", value: Tree::map(with), at }
}
