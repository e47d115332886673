//! The `mwl_` metrics. Handles are resolved when a configuration is loaded, so that a request only adds
//! to counters that it already holds.
//!
//! Every label value is a name that the configuration fixes, or one of a closed list: a client cannot
//! make a series. A code that nothing names counts as `other`. The families live as long as the
//! process and are asked for again by name after a reload, so counters never go back, and what a
//! removed route counted stays readable.

mod summary;

pub use self::summary::{Durations, RouteSummary};
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use prometheus::{Histogram, IntCounter, IntGauge, Registry, TextEncoder};

use super::families::{Families, counter, fixed, gauge, histogram};
use super::log;
use super::process;
use super::series::Series;
use super::settings::BUCKETS;
use super::trace::Counters as SpanCounters;
use crate::language::provider::DelaySource;

/// What [`Metrics::render`] gives: the `Content-Type` of the text exposition format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The label of a code that neither the catalog nor the route's own definition names.
const OTHER: &str = "other";

/// What [`RouteMetrics::request_done`] counts every status as that is not of [`is_usual`].
const OTHER_STATUS: u16 = 0;

/// The `outcome` labels of cleanups that ended.
const CLEANED: [&str; 2] = ["failure", SUCCESS];

/// The `code` label of an attempt that succeeded.
const SUCCESS: &str = "success";

/// Process-wide; outlives every configuration, so counters are never reset.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    families: Families,
    /// The hash that `mwl_config_info` shows; changes at a reload only.
    shown: Mutex<Option<Arc<str>>>,
    /// Each set of codes once, by its hash: most routes have the same, and a table has many routes.
    codes: Mutex<HashMap<u64, Codes>>,
}

/// Codes, sorted.
type Codes = Arc<[Arc<str>]>;

/// The handles of one route.
#[derive(Debug)]
pub struct RouteMetrics {
    name: Arc<str>,
    metrics: Arc<Metrics>,
    /// The codes that may be a label, sorted; shared by the routes that have the same.
    codes: Codes,
    in_flight: IntGauge,
    duration: Histogram,
    timeouts: IntCounter,
    /// By outcome.
    finally: Series<&'static str, IntCounter>,
    statuses: Series<u16, IntCounter>,
    attempts: Series<Arc<str>, AttemptMetrics>,
    retries: Series<(Option<Arc<str>>, DelaySource), IntCounter>,
    exhausted: Series<usize, IntCounter>,
    suppressed: Series<&'static str, IntCounter>,
}

/// What a route counts of its attempts at one upstream.
#[derive(Debug)]
struct AttemptMetrics {
    duration: Histogram,
    success: IntCounter,
    /// By the code's place in [`RouteMetrics::codes`]; the last is [`OTHER`].
    codes: Box<[OnceLock<IntCounter>]>,
}

/// What counts things that come to nothing, by reason: requests that no route's Flow runs for, handshakes.
#[derive(Debug)]
pub struct RefusalMetrics {
    /// In the order in which the reasons were given.
    counters: Box<[IntCounter]>,
}

/// The handles of one upstream.
#[derive(Debug)]
pub struct UpstreamMetrics {
    active: IntGauge,
    idle: IntGauge,
    resends: IntCounter,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::with(&BUCKETS)
    }
}

impl Metrics {
    /// All families, without a series, with the usual buckets.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// The same with buckets of these upper bounds, in seconds, ascending.
    pub fn with_buckets(buckets: &[f64]) -> Arc<Self> {
        Arc::new(Self::with(buckets))
    }

    fn with(buckets: &[f64]) -> Self {
        let registry = Registry::new();
        let families = Families::register(&registry, buckets);
        Self { registry, families, shown: Mutex::default(), codes: Mutex::default() }
    }

    /// `mwl_log_records_dropped_total{log}`.
    pub(super) fn lost_records(&self, log: &str) -> IntCounter {
        counter(&self.families.lost_records, &[log])
    }

    /// `mwl_trace_spans_total`.
    pub(super) fn spans(&self) -> SpanCounters {
        let spans = |outcome| counter(&self.families.spans, &[outcome]);
        SpanCounters {
            exported: spans("exported"),
            dropped: spans("dropped"),
            failed: spans("failed"),
        }
    }

    /// `mwl_tap_events_missed_total`.
    pub fn events_missed(&self, count: u64) {
        self.families.lost_events.inc_by(count);
    }

    /// The handles of a route. `codes`: those that its definition, its `classify` and the catalog name;
    /// any other counts as `other`.
    pub fn route(self: &Arc<Self>, name: &str, codes: &[&str]) -> Arc<RouteMetrics> {
        let codes = self.codes(codes);
        let families = &self.families;
        let statuses = Series::default();
        // A series that is there from the start shows its first increment as one.
        statuses.find_or(
            |status| *status == 200,
            || (200, counter(&families.requests, &[name, "200"])),
        );
        Arc::new(RouteMetrics {
            name: name.into(),
            metrics: Arc::clone(self),
            codes,
            in_flight: gauge(&families.in_flight, &[name]),
            duration: histogram(&families.request_duration, &[name]),
            timeouts: counter(&families.timeouts, &[name]),
            finally: Series::default(),
            statuses,
            attempts: Series::default(),
            retries: Series::default(),
            exhausted: Series::default(),
            suppressed: Series::default(),
        })
    }

    /// The counters of refusals, one for each of these reasons, which are all that there are.
    pub fn refusals(&self, reasons: &[&str]) -> RefusalMetrics {
        let refused = &self.families.refused;
        RefusalMetrics {
            counters: reasons.iter().map(|reason| counter(refused, &[reason])).collect(),
        }
    }

    /// The counters of a listener's TLS handshakes that came to nothing, one for each of these reasons, which are
    /// all that there are. `listener` is the address as the configuration has it.
    pub fn handshakes(&self, listener: &str, reasons: &[&str]) -> RefusalMetrics {
        let failures = &self.families.handshake_failures;
        let of = |reason: &&str| counter(failures, &[listener, reason]);
        RefusalMetrics { counters: reasons.iter().map(of).collect() }
    }

    /// `mwl_tls_certificate_expiry_timestamp_seconds{listener}`: of these listeners, and of no others.
    pub fn certificates(&self, all: impl IntoIterator<Item = (String, f64)>) {
        let expiry = &self.families.certificate_expiry;
        expiry.reset();
        for (listener, until) in all {
            fixed(expiry.get_metric_with_label_values(&[&listener])).set(until);
        }
    }

    /// `codes`, sorted and each once; the same allocation for the same codes.
    fn codes(&self, codes: &[&str]) -> Codes {
        let mut codes = codes.to_vec();
        codes.sort_unstable();
        codes.dedup();
        let mut hasher = DefaultHasher::new();
        codes.hash(&mut hasher);
        let mut known = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        let made = || codes.iter().copied().map(Arc::from).collect();
        let found = known.entry(hasher.finish()).or_insert_with(made);
        // Two sets with one hash: the second has an allocation of its own.
        if found.iter().map(|code| &**code).eq(codes.iter().copied()) {
            Arc::clone(found)
        } else {
            made()
        }
    }

    /// The handles of an upstream.
    pub fn upstream(self: &Arc<Self>, name: &str) -> Arc<UpstreamMetrics> {
        let families = &self.families;
        Arc::new(UpstreamMetrics {
            active: gauge(&families.connections, &[name, "active"]),
            idle: gauge(&families.connections, &[name, "idle"]),
            resends: counter(&families.resends, &[name]),
        })
    }

    /// A configuration is served from now on: `mwl_config_info{hash}` names it and nothing else.
    /// `at` is the wall time in seconds since the epoch.
    pub fn config_loaded(&self, hash: &str, at: f64) {
        let families = &self.families;
        families.last_reload.set(at);
        families.last_successful.set(1);
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = shown.replace(hash.into()) {
            // Gone already where the registry was asked for the same hash twice: nothing to report.
            families.config_info.remove_label_values(&[&old]).ok();
        }
        fixed(families.config_info.get_metric_with_label_values(&[hash])).set(1.0);
    }

    /// `mwl_config_reloads_total{outcome}`: `applied`, `unchanged`, `refused`, or `unfinished`, which alone
    /// leaves `mwl_config_last_reload_successful` as it is.
    pub fn config_reload(&self, outcome: &'static str) {
        if outcome != "unfinished" {
            self.families.last_successful.set(i64::from(outcome != "refused"));
        }
        counter(&self.families.reloads, &[outcome]).inc();
    }

    /// `mwl_worker_tasks`: how many there are now.
    pub fn tasks(&self, count: usize) {
        self.families.tasks.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// The text exposition, format 0.0.4, with the process's own figures read now.
    pub fn render(&self) -> String {
        // The log is older than these metrics, and counts for itself.
        let lost = self.lost_records("log");
        lost.inc_by(log::dropped().saturating_sub(lost.get()));
        let mut text = String::new();
        let encoded = TextEncoder::new().encode_utf8(&self.registry.gather(), &mut text);
        if let Err(error) = encoded {
            tracing::error!(%error, "metrics could not be written out");
        }
        process::render(&mut text);
        text
    }
}

impl RefusalMetrics {
    /// One more, for the reason at this place of those that were given.
    pub fn count(&self, reason: usize) {
        if let Some(counter) = self.counters.get(reason) {
            counter.inc();
        }
    }
}

impl RouteMetrics {
    /// `mwl_requests_in_flight` +1.
    pub fn request_started(&self) {
        self.in_flight.inc();
    }

    /// `mwl_requests_total`, `mwl_request_duration_seconds`, in flight -1. 499: the client left.
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

    /// `mwl_attempts_total`, `mwl_attempt_duration_seconds`. `code`: None for a success. `upstream` is a
    /// name of the configuration.
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

    /// `mwl_retries_exhausted_total`. `policy`: the position of the policy whose budget ran out.
    pub fn exhausted(&self, policy: usize) {
        let make = || {
            let labels = [&*self.name, &policy.to_string()];
            (policy, counter(&self.metrics.families.exhausted, &labels))
        };
        self.exhausted.find_or(|key| *key == policy, make).inc();
    }

    /// `mwl_timeouts_total`.
    pub fn timeout(&self) {
        self.timeouts.inc();
    }

    /// The route has cleanups: how they ended shows from the start. A long table of routes without any feels
    /// the difference.
    pub fn cleans_up(&self) {
        for outcome in CLEANED {
            self.finally_series(outcome);
        }
    }

    /// `mwl_finally_total`: a cleanup ended.
    pub fn finally(&self, ok: bool) {
        let [failure, success] = CLEANED;
        self.finally_series(if ok { success } else { failure }).inc();
    }

    fn finally_series(&self, outcome: &'static str) -> &IntCounter {
        let make = || (outcome, counter(&self.metrics.families.finally, &[&self.name, outcome]));
        self.finally.find_or(|key| *key == outcome, make)
    }

    /// `mwl_finally_total`: an execution was dropped, for the process ended, before its cleanups had run.
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

    /// Where `code` stands in the list of codes; `None` where it counts as `other`.
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

/// Whether a status is counted under its own number: the registered ones, 499 for a client that left, and 444 for one
/// that got no answer. An upstream can make up nine hundred more.
fn is_usual(status: u16) -> bool {
    use super::record::{CLIENT_CLOSED_REQUEST, NO_ANSWER};
    matches!(status,
        100..=104 | 200..=208 | 226 | 300..=305 | 307 | 308 | 400..=418 | 421..=426 | 428 | 429 | 431
        | NO_ANSWER | 451 | CLIENT_CLOSED_REQUEST | 500..=508 | 510 | 511)
}

impl UpstreamMetrics {
    /// A connection was opened, and is `active`.
    pub fn opened(&self) {
        self.active.inc();
    }

    /// An active connection was closed.
    pub fn closed_active(&self) {
        self.active.dec();
    }

    /// An idle connection was closed.
    pub fn closed_idle(&self) {
        self.idle.dec();
    }

    /// An active connection was given back.
    pub fn to_idle(&self) {
        self.active.dec();
        self.idle.inc();
    }

    /// An idle connection was taken.
    pub fn to_active(&self) {
        self.idle.dec();
        self.active.inc();
    }

    /// `mwl_stale_connection_resends_total`.
    pub fn stale_resend(&self) {
        self.resends.inc();
    }
}
