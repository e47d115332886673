//! The `mwl_` metrics. Their handles are looked up when a configuration is loaded, so that a request only
//! increments counters that it already holds.
//!
//! Every label value is a name from the configuration or one of a closed list, so a client cannot create
//! series. Any other code counts as `other`. The families live as long as the process and are looked up by name
//! after a reload, so counters never decrease. The series of a name that a reload removed end with its last request
//! ([`live`]).

mod buffers;
mod counts;
mod endpoint;
mod live;
mod route;
mod store;
mod summary;

pub use self::buffers::{BodyUse, BufferMetrics};
pub use self::counts::{AttemptCounts, Counts, RouteCounts};
pub use self::endpoint::EndpointHealth;
pub use self::route::{Cleaned, RouteMetrics};
pub use self::store::{AnswerMetrics, StoreMetrics};
pub use self::summary::{Durations, RouteSummary};
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::{IntCounter, IntCounterVec, IntGauge, Registry, TextEncoder};

use self::live::{Label, LiveNames, NameGuard};
use super::families::{Families, counter, fixed, gauge};
use super::log;
use super::process;
use super::settings::BUCKETS;
use super::switches::Switches;
use super::trace::Counters as SpanCounters;

/// The `Content-Type` of the text exposition format, which [`Metrics::render`] returns.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The metrics of the process. They outlive every configuration, so counters are never reset.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    families: Families,
    /// The hash that `mwl_config_info` shows. It only changes at a reload.
    shown: Mutex<Option<Arc<str>>>,
    /// Each distinct set of codes once, by its hash: in a long table most routes share one set.
    codes: Mutex<HashMap<u64, Codes>>,
    live: Arc<LiveNames>,
    switches: Arc<Switches>,
}

/// Codes, sorted.
type Codes = Arc<[Arc<str>]>;

/// Counters by reason, of requests for which no Flow runs and of failed TLS handshakes; or by kind, of handshakes.
#[derive(Debug)]
pub struct RefusalMetrics {
    /// In the order in which the reasons were given.
    counters: Box<[IntCounter]>,
    /// The listener that they are counted for, if it is one.
    _name: Option<NameGuard>,
}

/// The gauge of a state, of an entry of a route.
#[derive(Debug)]
pub struct StateGauge {
    gauge: IntGauge,
    _name: NameGuard,
}

/// The handles of one upstream.
#[derive(Debug)]
pub struct UpstreamMetrics {
    active: IntGauge,
    idle: IntGauge,
    waiting: IntGauge,
    resends: IntCounter,
    lookups: IntCounter,
    _name: NameGuard,
}

/// The handles of one endpoint.
#[derive(Debug)]
pub struct EndpointMetrics {
    success: IntCounter,
    failure: IntCounter,
    _name: NameGuard,
}

impl Metrics {
    /// All families without any series, with the default buckets.
    pub fn new() -> Arc<Self> {
        Self::with_buckets(&BUCKETS)
    }

    /// The same with these upper bounds of buckets, in seconds, ascending.
    pub fn with_buckets(buckets: &[f64]) -> Arc<Self> {
        let registry = Registry::new();
        let families = Families::register(&registry, buckets);
        let switches = Arc::new(Switches::new(families.switches.clone()));
        Arc::new(Self {
            registry,
            families,
            switches,
            shown: Mutex::default(),
            codes: Mutex::default(),
            live: Arc::default(),
        })
    }

    /// What operators have switched.
    pub const fn switches(&self) -> &Arc<Switches> {
        &self.switches
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

    /// The counters of refused requests, one for each of `reasons`, which must be all there are.
    pub fn refusals(&self, reasons: &[&str]) -> RefusalMetrics {
        let refused = &self.families.refused;
        RefusalMetrics {
            counters: reasons.iter().map(|reason| counter(refused, &[reason])).collect(),
            _name: None,
        }
    }

    /// The counters of a listener's TLS handshakes: full ones, then those that resumed a session.
    pub fn handshakes(&self, listener: &str) -> RefusalMetrics {
        self.of_listener(&self.families.handshakes, listener, &["false", "true"])
    }

    /// The counters of a listener's failed TLS handshakes, one for each of `reasons`, which must be all there
    /// are. `listener` is the address as configured.
    pub fn handshake_failures(&self, listener: &str, reasons: &[&str]) -> RefusalMetrics {
        self.of_listener(&self.families.handshake_failures, listener, reasons)
    }

    /// The same of its missing PROXY headers.
    pub fn proxy_headers(&self, listener: &str, reasons: &[&str]) -> RefusalMetrics {
        self.of_listener(&self.families.header_failures, listener, reasons)
    }

    fn of_listener(
        &self,
        failures: &IntCounterVec,
        listener: &str,
        reasons: &[&str],
    ) -> RefusalMetrics {
        let of = |reason: &&str| counter(failures, &[listener, reason]);
        let name = self.live.hold(Label::Listener, listener);
        RefusalMetrics { counters: reasons.iter().map(of).collect(), _name: Some(name) }
    }

    /// Sets `mwl_tls_certificate_expiry_timestamp_seconds{listener}` for these listeners and removes all others.
    pub fn certificates(&self, all: impl IntoIterator<Item = (String, f64)>) {
        let expiry = &self.families.certificate_expiry;
        expiry.reset();
        for (listener, until) in all {
            fixed(expiry.get_metric_with_label_values(&[&listener])).set(until);
        }
    }

    /// `codes`, sorted and without duplicates. The same codes share one allocation.
    fn codes(&self, codes: &[&str]) -> Codes {
        let mut codes = codes.to_vec();
        codes.sort_unstable();
        codes.dedup();
        let mut hasher = DefaultHasher::new();
        codes.hash(&mut hasher);
        let mut known = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        let made = || codes.iter().copied().map(Arc::from).collect();
        let found = known.entry(hasher.finish()).or_insert_with(made);
        // If two sets have the same hash, the second gets an allocation of its own.
        if found.iter().map(|code| &**code).eq(codes.iter().copied()) {
            Arc::clone(found)
        } else {
            made()
        }
    }

    /// `mwl_circuit_breaker_state{route,entry}`.
    pub fn circuit_breaker(&self, route: &str, entry: &str) -> StateGauge {
        let name = self.live.hold(Label::Route, route);
        StateGauge { gauge: gauge(&self.families.breakers, &[route, entry]), _name: name }
    }

    /// The handles of an upstream.
    pub fn upstream(self: &Arc<Self>, name: &str) -> Arc<UpstreamMetrics> {
        let families = &self.families;
        Arc::new(UpstreamMetrics {
            active: gauge(&families.connections, &[name, "active"]),
            idle: gauge(&families.connections, &[name, "idle"]),
            waiting: gauge(&families.waiting, &[name]),
            resends: counter(&families.resends, &[name]),
            lookups: counter(&families.lookup_failures, &[name]),
            _name: self.live.hold(Label::Upstream, name),
        })
    }

    /// The handles of an endpoint of `upstream`.
    pub fn endpoint(&self, upstream: &str, name: &str) -> EndpointMetrics {
        let attempts =
            |outcome| counter(&self.families.endpoint_attempts, &[upstream, name, outcome]);
        EndpointMetrics {
            success: attempts("success"),
            failure: attempts("failure"),
            _name: self.live.hold(Label::Endpoint, name),
        }
    }

    /// Records that a configuration is now served: `mwl_config_info{hash}` shows this one only. `at` is the
    /// wall time in seconds since the epoch.
    pub fn config_loaded(&self, hash: &str, at: f64) {
        let families = &self.families;
        families.last_reload.set(at);
        families.last_successful.set(1);
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = shown.replace(hash.into()) {
            // An error means that it is gone already, because the same hash was loaded twice.
            families.config_info.remove_label_values(&[&old]).ok();
        }
        fixed(families.config_info.get_metric_with_label_values(&[hash])).set(1.0);
        drop(shown);
        if self.live.take_unread() {
            self.end_series();
        }
    }

    /// `mwl_config_reloads_total{outcome}`: `applied`, `unchanged`, `refused` or `unfinished`. The last does
    /// not change `mwl_config_last_reload_successful`.
    pub fn config_reload(&self, outcome: &'static str) {
        if outcome != "unfinished" {
            self.families.last_successful.set(i64::from(outcome != "refused"));
        }
        counter(&self.families.reloads, &[outcome]).inc();
    }

    /// `mwl_takeovers_total{outcome}`: `handedOver`, `refused` or `failed`.
    pub fn takeover(&self, outcome: &'static str) {
        counter(&self.families.takeovers, &[outcome]).inc();
    }

    /// Sets `mwl_worker_tasks`.
    pub fn tasks(&self, count: usize) {
        self.families.tasks.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// The text exposition, format 0.0.4, including the process's own figures.
    pub fn render(&self) -> String {
        // The log is older than these metrics and has its own counter.
        let lost = self.lost_records("log");
        lost.inc_by(log::dropped().saturating_sub(lost.get()));
        self.switches.end_series();
        let mut text = String::new();
        let encoded = TextEncoder::new().encode_utf8(&self.registry.gather(), &mut text);
        if let Err(error) = encoded {
            tracing::error!(%error, "metrics could not be written out");
        }
        process::render(&mut text);
        if self.live.take_shown() {
            self.end_series();
        }
        text
    }

    /// Removes the series of names, and the sets of codes, that nobody uses any more.
    fn end_series(&self) {
        let held = self.live.held();
        self.families
            .retain(|labels| held.keep(labels.iter().map(|label| (label.name(), label.value()))));
        drop(held);
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        codes.retain(|_, codes| Arc::strong_count(codes) > 1);
        codes.shrink_to_fit();
    }
}

impl RefusalMetrics {
    /// Counts the reason with this index in the list that was given.
    pub fn count(&self, reason: usize) {
        if let Some(counter) = self.counters.get(reason) {
            counter.inc();
        }
    }
}

impl StateGauge {
    /// The state's number.
    pub fn set(&self, state: u8) {
        self.gauge.set(state.into());
    }
}

impl UpstreamMetrics {
    /// A connection was opened and is `active`.
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

    /// An active connection was returned to the pool.
    pub fn to_idle(&self) {
        self.active.dec();
        self.idle.inc();
    }

    /// An idle connection was taken from the pool.
    pub fn to_active(&self) {
        self.idle.dec();
        self.active.inc();
    }

    /// `mwl_upstream_requests_waiting` +1.
    pub fn waits(&self) {
        self.waiting.inc();
    }

    /// `mwl_upstream_requests_waiting` -1.
    pub fn waits_no_longer(&self) {
        self.waiting.dec();
    }

    /// `mwl_name_lookup_failures_total`.
    pub fn lookup_failed(&self) {
        self.lookups.inc();
    }

    /// `mwl_stale_connection_resends_total`.
    pub fn stale_resend(&self) {
        self.resends.inc();
    }
}

impl EndpointMetrics {
    /// `mwl_endpoint_attempts_total`.
    pub fn attempt(&self, success: bool) {
        let counter = if success { &self.success } else { &self.failure };
        counter.inc();
    }

    /// How many attempts have succeeded, and how many have failed.
    pub fn attempts(&self) -> (u64, u64) {
        (self.success.get(), self.failure.get())
    }
}
