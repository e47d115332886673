//! The metrics of one route.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus::{Histogram, IntCounter, IntGauge};

use super::live::{Label, NameGuard};
use super::{Codes, Metrics};
use crate::language::provider::DelaySource;
use crate::telemetry::families::{counter, gauge, histogram};
use crate::telemetry::record::{CLIENT_CLOSED_REQUEST, NO_ANSWER, RESPONSE_TRUNCATED};
use crate::telemetry::series::Series;

/// The label of a code that neither the catalog nor the route's own definition names.
const OTHER: &str = "other";

/// The status as which [`RouteMetrics::request_done`] counts every status that is not [`is_usual`].
const OTHER_STATUS: u16 = 0;

/// The `code` label of a successful attempt.
const SUCCESS: &str = "success";

/// How a cleanup ended that ran to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleaned {
    /// Its call succeeded.
    Success,
    /// So it did, but its Flow caught a failure on the way: what it was for may not have been done.
    Degraded,
    /// Its call failed.
    Failure,
}

/// The handles of one route.
#[derive(Debug)]
pub struct RouteMetrics {
    name: Arc<str>,
    _name: NameGuard,
    metrics: Arc<Metrics>,
    /// The codes that may be a label, sorted, and shared by the routes with the same set.
    codes: Codes,
    in_flight: IntGauge,
    duration: Histogram,
    /// By the entry's place.
    timeouts: Series<Box<str>, IntCounter>,
    /// Made for a route that has cleanups.
    departed: OnceLock<IntGauge>,
    /// By outcome.
    finally: Series<&'static str, IntCounter>,
    statuses: Series<u16, IntCounter>,
    attempts: Series<Arc<str>, AttemptMetrics>,
    /// By the upstream and the code; `None` for a success. Those of cleanups, which `attempts` has as well.
    cleanup_attempts: Series<(Arc<str>, Option<Arc<str>>), IntCounter>,
    retries: Series<(Option<Arc<str>>, DelaySource), IntCounter>,
    /// By the entry's place and the policy.
    exhausted: Series<(Box<str>, usize), IntCounter>,
    suppressed: Series<&'static str, IntCounter>,
    /// By the entry's place and the code, if that is known.
    refusals: Series<(Box<str>, Option<Arc<str>>), IntCounter>,
    /// By the Step and the code, if that is known.
    caught: Series<(Box<str>, Option<Arc<str>>), IntCounter>,
}

/// The counters of a route's attempts at one upstream.
#[derive(Debug)]
struct AttemptMetrics {
    duration: Histogram,
    success: IntCounter,
    /// By the code's index in [`RouteMetrics::codes`]; the last one is [`OTHER`].
    codes: Box<[OnceLock<IntCounter>]>,
}

impl Metrics {
    /// The handles of a route. `codes` are those that its definition, its `classify` and the catalog name. Any
    /// other counts as `other`.
    pub fn route(self: &Arc<Self>, name: &str, codes: &[&str]) -> Arc<RouteMetrics> {
        let codes = self.codes(codes);
        let held = self.live.hold(Label::Route, name);
        let families = &self.families;
        let statuses = Series::default();
        // A series that exists from the start shows its first increment as an increase.
        statuses.find_or(
            |status| *status == 200,
            || (200, counter(&families.requests, &[name, "200"])),
        );
        Arc::new(RouteMetrics {
            name: name.into(),
            _name: held,
            metrics: Arc::clone(self),
            codes,
            in_flight: gauge(&families.in_flight, &[name]),
            duration: histogram(&families.request_duration, &[name]),
            timeouts: Series::default(),
            departed: OnceLock::new(),
            finally: Series::default(),
            statuses,
            attempts: Series::default(),
            cleanup_attempts: Series::default(),
            retries: Series::default(),
            exhausted: Series::default(),
            suppressed: Series::default(),
            refusals: Series::default(),
            caught: Series::default(),
        })
    }
}

impl RouteMetrics {
    /// `mwl_requests_in_flight` +1.
    pub fn request_started(&self) {
        self.in_flight.inc();
    }

    /// `mwl_requests_total`, `mwl_request_duration_seconds`, in flight -1.
    pub fn request_done(&self, status: u16, took: Duration) {
        self.in_flight.dec();
        self.duration.observe(took.as_secs_f64());
        let status = if is_usual(status) { status } else { OTHER_STATUS };
        let make = || {
            let label = if status == OTHER_STATUS { OTHER.to_owned() } else { status.to_string() };
            let labels = [&*self.name, label.as_str()];
            (status, counter(&self.metrics.families.requests, &labels))
        };
        self.statuses.find_or(|key| *key == status, make).inc();
    }

    /// `mwl_attempts_total`, `mwl_attempt_duration_seconds`. `code` is `None` for a success. `upstream` is from the
    /// configuration.
    pub fn attempt(&self, upstream: &str, code: Option<&str>, took: Duration) {
        let families = &self.metrics.families;
        let make = || (Arc::from(upstream), self.attempts_at(upstream));
        let at = self.attempts.find_or(|key| &**key == upstream, make);
        at.duration.observe(took.as_secs_f64());
        let Some(code) = code else {
            return at.success.inc();
        };
        let place = self.place(code);
        let label = place.and_then(|n| self.codes.get(n)).map_or(OTHER, |c| c);
        if let Some(slot) = at.codes.get(place.unwrap_or(self.codes.len())) {
            let labels = [&*self.name, upstream, label];
            slot.get_or_init(|| counter(&families.attempts, &labels)).inc();
        }
    }

    /// `mwl_cleanup_attempts_total`, of an attempt that was counted as one.
    pub fn cleanup_attempt(&self, upstream: &str, code: Option<&str>) {
        let label =
            code.map(|code| self.place(code).and_then(|n| self.codes.get(n)).map_or(OTHER, |c| c));
        let make = || {
            let labels = [&*self.name, upstream, label.unwrap_or(SUCCESS)];
            let handle = counter(&self.metrics.families.cleanup_attempts, &labels);
            ((Arc::from(upstream), label.map(Arc::from)), handle)
        };
        let is = |(at, code): &(Arc<str>, Option<Arc<str>>)| {
            &**at == upstream && code.as_deref() == label
        };
        self.cleanup_attempts.find_or(is, make).inc();
    }

    /// `mwl_retries_total`.
    pub fn retry(&self, code: &str, source: DelaySource) {
        let known = self.place(code).and_then(|n| self.codes.get(n));
        let make = || {
            let labels = [&*self.name, known.map_or(OTHER, |c| c), source.as_str()];
            let handle = counter(&self.metrics.families.retries, &labels);
            ((known.cloned(), source), handle)
        };
        self.retries.find_or(|(code, from)| *from == source && code.as_ref() == known, make).inc();
    }

    /// `mwl_retries_exhausted_total`. `policy` is the index of the policy of `entry` whose budget ran out.
    pub fn exhausted(&self, entry: &str, policy: usize) {
        let make = || {
            let labels = [&*self.name, entry, &policy.to_string()];
            ((entry.into(), policy), counter(&self.metrics.families.exhausted, &labels))
        };
        self.exhausted.find_or(|(at, key)| *key == policy && &**at == entry, make).inc();
    }

    /// `mwl_timeouts_total`: the bound of `entry` fired.
    pub fn timeout(&self, entry: &str) {
        self.timeouts_series(entry).inc();
    }

    /// Creates the series of a bound, so that it exists from the start.
    pub fn bounded_by(&self, entry: &str) {
        self.timeouts_series(entry);
    }

    fn timeouts_series(&self, entry: &str) -> &IntCounter {
        let families = &self.metrics.families;
        let make = || (entry.into(), counter(&families.timeouts, &[&self.name, entry]));
        self.timeouts.find_or(|at| &**at == entry, make)
    }

    /// `mwl_middleware_refusals_total`: `entry` emitted a failure with this code, and its inner scope did not run.
    pub fn refusal(&self, entry: &str, code: &str) {
        let known = self.place(code).and_then(|n| self.codes.get(n));
        let make = || {
            let labels = [&*self.name, entry, known.map_or(OTHER, |c| c)];
            ((entry.into(), known.cloned()), counter(&self.metrics.families.refusals, &labels))
        };
        let is =
            |(at, code): &(Box<str>, Option<Arc<str>>)| &**at == entry && code.as_ref() == known;
        self.refusals.find_or(is, make).inc();
    }

    /// `mwl_catches_total`: the `catch` of `step` took a failure with this code.
    pub fn caught(&self, step: &str, code: &str) {
        let known = self.place(code).and_then(|n| self.codes.get(n));
        let make = || {
            let labels = [&*self.name, step, known.map_or(OTHER, |c| c)];
            ((step.into(), known.cloned()), counter(&self.metrics.families.caught, &labels))
        };
        let is =
            |(at, code): &(Box<str>, Option<Arc<str>>)| &**at == step && code.as_ref() == known;
        self.caught.find_or(is, make).inc();
    }

    /// `mwl_definition_faults_total`: a field at `step` is at fault. Looked up each time, because it should not happen.
    pub fn definition_fault(&self, step: &str, code: &str) {
        counter(&self.metrics.families.faults, &[&self.name, step, code]).inc();
    }

    /// Creates the series of cleanups for a route that has any, so that they exist from the start. Doing so for
    /// all routes would cost much memory in a long table.
    pub fn cleans_up(&self) {
        for outcome in Cleaned::ALL {
            self.finally_series(outcome.as_str());
        }
        self.departed();
    }

    /// `mwl_cleanups_in_flight`: a client left, and cleanups run.
    pub fn cleanup_begins(&self) {
        self.departed().inc();
    }

    /// `mwl_cleanups_in_flight`: they run no longer.
    pub fn cleanup_ends(&self) {
        self.departed().dec();
    }

    fn departed(&self) -> &IntGauge {
        self.departed.get_or_init(|| gauge(&self.metrics.families.departed, &[&self.name]))
    }

    /// `mwl_finally_total`: a cleanup has ended.
    pub fn finally(&self, outcome: Cleaned) {
        self.finally_series(outcome.as_str()).inc();
    }

    fn finally_series(&self, outcome: &'static str) -> &IntCounter {
        let make = || (outcome, counter(&self.metrics.families.finally, &[&self.name, outcome]));
        self.finally.find_or(|key| *key == outcome, make)
    }

    /// `mwl_finally_total`: the process ended before an execution's cleanups had run.
    pub fn finally_unfinished(&self) {
        self.finally_series("unfinished").inc();
    }

    /// `mwl_retries_suppressed_total`.
    pub fn suppressed(&self, reason: &'static str) {
        let make = || {
            let labels = [&*self.name, reason];
            (reason, counter(&self.metrics.families.suppressed, &labels))
        };
        self.suppressed.find_or(|key| *key == reason, make).inc();
    }

    /// `mwl_interim_responses_dropped_total`. Rare, so the counter is looked up each time.
    pub fn interim_dropped(&self, reason: &'static str) {
        counter(&self.metrics.families.interim, &[&self.name, reason]).inc();
    }

    /// `mwl_responses_truncated_total`. Rare, like the one above. `upstream` is a name from the configuration.
    pub fn truncated(&self, upstream: &str) {
        counter(&self.metrics.families.truncated, &[&self.name, upstream]).inc();
    }

    /// The index of `code` in the list of codes; `None` if it counts as `other`.
    fn place(&self, code: &str) -> Option<usize> {
        self.codes.binary_search_by(|known| (**known).cmp(code)).ok()
    }

    fn attempts_at(&self, upstream: &str) -> AttemptMetrics {
        let families = &self.metrics.families;
        AttemptMetrics {
            duration: histogram(&families.attempt_duration, &[&self.name, upstream]),
            success: counter(&families.attempts, &[&self.name, upstream, SUCCESS]),
            codes: (0..=self.codes.len()).map(|_| OnceLock::new()).collect(),
        }
    }
}

impl Cleaned {
    const ALL: [Self; 3] = [Self::Success, Self::Degraded, Self::Failure];

    /// The label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => SUCCESS,
            Self::Degraded => "degraded",
            Self::Failure => "failure",
        }
    }
}

/// Whether a status is counted under its own number: registered ones, 444 for no answer, 499 for a client that
/// left, and 598 for an answer that was broken off. An upstream could invent nine hundred more.
fn is_usual(status: u16) -> bool {
    matches!(status,
        100..=104 | 200..=208 | 226 | 300..=305 | 307 | 308 | 400..=418 | 421..=426 | 428 | 429 | 431
        | NO_ANSWER | 451 | CLIENT_CLOSED_REQUEST | 500..=508 | 510 | 511 | RESPONSE_TRUNCATED)
}
