//! The families of the `mwl_` metrics, with their names, labels and help. To add one, add a field to
//! [`Families`] and its line in `of`.

use std::collections::HashMap;
use std::fmt;

use prometheus::core::{Collector, MetricVec, MetricVecBuilder};
use prometheus::proto::{LabelPair, Metric, MetricFamily};
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry,
};

/// Every family, in the order of the documentation.
#[derive(Debug)]
pub(super) struct Families {
    pub(super) requests: IntCounterVec,
    pub(super) request_duration: HistogramVec,
    pub(super) in_flight: IntGaugeVec,
    pub(super) attempts: IntCounterVec,
    pub(super) cleanup_attempts: IntCounterVec,
    pub(super) attempt_duration: HistogramVec,
    pub(super) endpoint_attempts: IntCounterVec,
    pub(super) retries: IntCounterVec,
    pub(super) exhausted: IntCounterVec,
    pub(super) suppressed: IntCounterVec,
    pub(super) timeouts: IntCounterVec,
    pub(super) refusals: IntCounterVec,
    pub(super) breakers: IntGaugeVec,
    pub(super) caught: IntCounterVec,
    pub(super) faults: IntCounterVec,
    pub(super) finally: IntCounterVec,
    pub(super) departed: IntGaugeVec,
    pub(super) refused: IntCounterVec,
    pub(super) interim: IntCounterVec,
    pub(super) truncated: IntCounterVec,
    pub(super) buffered: IntGauge,
    pub(super) unbuffered: IntCounterVec,
    pub(super) connections: IntGaugeVec,
    pub(super) waiting: IntGaugeVec,
    pub(super) resends: IntCounterVec,
    pub(super) lookup_failures: IntCounterVec,
    pub(super) endpoint_up: IntGaugeVec,
    pub(super) ejections: IntCounterVec,
    pub(super) store_errors: IntCounterVec,
    pub(super) lost_answers: IntCounterVec,
    pub(super) handshakes: IntCounterVec,
    pub(super) handshake_failures: IntCounterVec,
    pub(super) header_failures: IntCounterVec,
    pub(super) certificate_expiry: GaugeVec,
    pub(super) tasks: IntGauge,
    pub(super) switches: IntGaugeVec,
    pub(super) reloads: IntCounterVec,
    pub(super) takeovers: IntCounterVec,
    pub(super) last_reload: Gauge,
    pub(super) last_successful: IntGauge,
    pub(super) config_info: GaugeVec,
    pub(super) lost_records: IntCounterVec,
    pub(super) lost_events: IntCounter,
    pub(super) spans: IntCounterVec,
    build_info: GaugeVec,
    /// Those with labels.
    series: Vec<Box<dyn Retain>>,
}

/// A family whose series may end.
trait Retain: fmt::Debug + Send + Sync {
    /// Removes the series whose labels are not to be kept.
    fn retain(&self, keeps: &dyn Fn(&[LabelPair]) -> bool);
}

/// Every family that was made: for the registry, and again those with labels.
#[derive(Default)]
pub(super) struct Collectors(pub(super) Vec<Box<dyn Collector>>, Vec<Box<dyn Retain>>);

impl Families {
    /// Makes all families and registers them with `registry`. `buckets` are the upper bounds of durations, in
    /// seconds.
    pub(super) fn register(registry: &Registry, buckets: &[f64]) -> Self {
        let mut collectors = Collectors::default();
        let mut families = Self::of(buckets, &mut collectors);
        families.series = collectors.1;
        for outcome in ["applied", "unchanged", "refused", "unfinished"] {
            counter(&families.reloads, &[outcome]);
        }
        fixed(families.build_info.get_metric_with_label_values(&[env!("CARGO_PKG_VERSION")]))
            .set(1.0);
        for collector in collectors.0 {
            fixed(registry.register(collector));
        }
        families
    }

    /// Makes all families, in the order of the documentation.
    #[expect(clippy::too_many_lines, reason = "a table")]
    pub(super) fn of(buckets: &[f64], all: &mut Collectors) -> Self {
        Self {
            requests: all.counters(
                "requests_total",
                "Requests answered, by the status that the client got; 499: it left before; 444: it got none; 598: the upstream broke it off.",
                &["route", "status"],
            ),
            request_duration: all.histograms(
                "request_duration_seconds",
                "From a request's head to the last byte of its answer.",
                &["route"],
                buckets,
            ),
            in_flight: all.gauges(
                "requests_in_flight",
                "Requests that are being served.",
                &["route"],
            ),
            attempts: all.counters(
                "attempts_total",
                "Attempts at an upstream, by their classified code or success.",
                &["route", "upstream", "code"],
            ),
            cleanup_attempts: all.counters(
                "cleanup_attempts_total",
                "Those of the attempts at an upstream that cleanups made.",
                &["route", "upstream", "code"],
            ),
            attempt_duration: all.histograms(
                "attempt_duration_seconds",
                "From an attempt's start to its Result.",
                &["route", "upstream"],
                buckets,
            ),
            endpoint_attempts: all.counters(
                "endpoint_attempts_total",
                "Attempts at an endpoint of an upstream, by outcome: success or failure.",
                &["upstream", "endpoint", "outcome"],
            ),
            retries: all.counters(
                "retries_total",
                "Failures consumed by a re-run, by code and by where the wait came from.",
                &["route", "code", "delay"],
            ),
            exhausted: all.counters(
                "retries_exhausted_total",
                "Retry policies whose budget ran out, by the entry and the policy's position.",
                &["route", "entry", "policy"],
            ),
            suppressed: all.counters(
                "retries_suppressed_total",
                "Retries that a policy asked for and that were not made, by reason.",
                &["route", "reason"],
            ),
            timeouts: all.counters(
                "timeouts_total",
                "Timeout bounds that fired, by the entry.",
                &["route", "entry"],
            ),
            refusals: all.counters(
                "middleware_refusals_total",
                "Runs that a middleware did not let happen, by the entry and the code: a limit, an open breaker, an injected fault.",
                &["route", "entry", "code"],
            ),
            breakers: all.gauges(
                "circuit_breaker_state",
                "The state of a circuit breaker, by its entry: 0 closed, 1 half-open, 2 open.",
                &["route", "entry"],
            ),
            caught: all.counters(
                "catches_total",
                "Failures that a catch took, by the Step and the code.",
                &["route", "step", "code"],
            ),
            faults: all.counters(
                "definition_faults_total",
                "Fields of definitions that could not be evaluated or are not valid, by the Step and the code.",
                &["route", "step", "code"],
            ),
            finally: all.counters(
                "finally_total",
                "Cleanups that ran, by outcome: success, degraded (its Flow caught a failure), failure, or unfinished: the process ended, or limits.cleanups cut it off.",
                &["route", "outcome"],
            ),
            departed: all.gauges(
                "cleanups_in_flight",
                "Requests whose clients have left and whose cleanups are running.",
                &["route"],
            ),
            refused: all.counters(
                "requests_refused_total",
                "Requests that no route's Flow ran for, by reason.",
                &["reason"],
            ),
            interim: all.counters(
                "interim_responses_dropped_total",
                "Interim answers (1xx) of upstreams that did not reach the client, by reason.",
                &["route", "reason"],
            ),
            truncated: all.counters(
                "responses_truncated_total",
                "Answers that an upstream broke off after their head.",
                &["route", "upstream"],
            ),
            buffered: all.keep(IntGauge::with_opts(opts(
                "buffered_bytes",
                "What bodies take in memory that are kept, read or parsed, of limits.bufferedBytes.",
            ))),
            unbuffered: all.counters(
                "bodies_not_buffered_total",
                "Bodies for which limits.bufferedBytes had no room: of a request, of a response, or for replay.",
                &["body"],
            ),
            connections: all.gauges(
                "upstream_connections",
                "Open upstream connections, by state: active or idle.",
                &["upstream", "state"],
            ),
            waiting: all.gauges(
                "upstream_requests_waiting",
                "Requests that wait because an upstream has as many as its maxRequests.",
                &["upstream"],
            ),
            lookup_failures: all.counters(
                "name_lookup_failures_total",
                "Lookups of an endpoint's name that failed although its addresses were known: those are used on.",
                &["upstream"],
            ),
            resends: all.counters(
                "stale_connection_resends_total",
                "Requests sent again because a reused connection had died.",
                &["upstream"],
            ),
            endpoint_up: all.gauges(
                "endpoint_up",
                "Whether an endpoint gets attempts: 1, or 0 while checks, an ejection or an operator keep it out.",
                &["upstream", "endpoint"],
            ),
            ejections: all.counters(
                "endpoint_ejections_total",
                "How often an endpoint was taken out, by cause: how its attempts failed, or healthCheck.",
                &["upstream", "endpoint", "cause"],
            ),
            store_errors: all.counters(
                "store_errors_total",
                "Decisions for which a store gave no answer: it was slow, gone, or refused.",
                &["store"],
            ),
            lost_answers: all.counters(
                "idempotency_answers_lost_total",
                "Answers that were to be kept and are not, by reason: evicted, tooLarge or lapsed.",
                &["route", "entry", "reason"],
            ),
            handshakes: all.counters(
                "tls_handshakes_total",
                "TLS handshakes of clients, by whether they resumed a session.",
                &["listener", "resumed"],
            ),
            handshake_failures: all.counters(
                "tls_handshake_failures_total",
                "TLS handshakes of clients that came to nothing, by reason.",
                &["listener", "reason"],
            ),
            header_failures: all.counters(
                "proxy_protocol_failures_total",
                "Connections that had to begin with a PROXY header and did not, by reason.",
                &["listener", "reason"],
            ),
            certificate_expiry: all.numbers(
                "tls_certificate_expiry_timestamp_seconds",
                "Until when the certificates that a listener shows are valid, in seconds since the epoch.",
                &["listener"],
            ),
            tasks: all.keep(IntGauge::with_opts(opts(
                "worker_tasks",
                "Connections and executions that the workers have under way, as tasks.",
            ))),
            switches: all.gauges(
                "operator_switches",
                "What operators have switched: retries of a route, or an endpoint that is drained.",
                &["kind", "what"],
            ),
            reloads: all.counters(
                "config_reloads_total",
                "Reloads of the configuration, by outcome: applied, unchanged, refused, or unfinished: a writer was at work.",
                &["outcome"],
            ),
            takeovers: all.counters(
                "takeovers_total",
                "Processes that wanted to take the listening sockets over, by outcome: handedOver, refused or failed.",
                &["outcome"],
            ),
            last_reload: all.keep(Gauge::with_opts(opts(
                "config_last_reload_success_timestamp_seconds",
                "When the configuration that is served was loaded, in seconds since the epoch.",
            ))),
            last_successful: all.keep(IntGauge::with_opts(opts(
                "config_last_reload_successful",
                "Whether the configuration that was last loaded is the one that is served: 1 or 0.",
            ))),
            config_info: all.numbers("config_info", "The configuration that is served.", &["hash"]),
            lost_records: all.counters(
                "log_records_dropped_total",
                "Records that found their log's queue full or its writer broken, by log.",
                &["log"],
            ),
            lost_events: all.keep(IntCounter::with_opts(opts(
                "tap_events_missed_total",
                "Events that a listener of /tap missed.",
            ))),
            spans: all.counters(
                "trace_spans_total",
                "Spans, by outcome: exported, dropped for want of room, or failed to be exported.",
                &["outcome"],
            ),
            build_info: all.numbers("build_info", "The program.", &["version"]),
            series: Vec::new(),
        }
    }

    /// Removes the series whose labels are not to be kept.
    pub(super) fn retain(&self, keeps: impl Fn(&[LabelPair]) -> bool) {
        self.series.iter().for_each(|family| family.retain(&keeps));
    }
}

impl<T: MetricVecBuilder> Retain for MetricVec<T>
where
    Self: fmt::Debug + Send + Sync + Collector,
{
    fn retain(&self, keeps: &dyn Fn(&[LabelPair]) -> bool) {
        let all = self.collect();
        let ended = all.iter().flat_map(MetricFamily::get_metric).map(Metric::get_label);
        for labels in ended.filter(|labels| !keeps(labels)) {
            let labels: HashMap<&str, &str> =
                labels.iter().map(|label| (label.name(), label.value())).collect();
            // An error means that it is gone already.
            self.remove(&labels).ok();
        }
    }
}

impl Collectors {
    /// Notes a family, so that none is left unregistered.
    fn keep<C: Collector + Clone + 'static>(&mut self, made: prometheus::Result<C>) -> C {
        let family = fixed(made);
        self.0.push(Box::new(family.clone()));
        family
    }

    /// The same for one with labels.
    fn keep_series<C>(&mut self, made: prometheus::Result<C>) -> C
    where
        C: Collector + Retain + Clone + 'static,
    {
        let family = self.keep(made);
        self.1.push(Box::new(family.clone()));
        family
    }

    fn counters(&mut self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.keep_series(IntCounterVec::new(opts(name, help), labels))
    }

    fn gauges(&mut self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.keep_series(IntGaugeVec::new(opts(name, help), labels))
    }

    /// Gauges whose values may be fractions.
    fn numbers(&mut self, name: &str, help: &str, labels: &[&str]) -> GaugeVec {
        self.keep_series(GaugeVec::new(opts(name, help), labels))
    }

    fn histograms(
        &mut self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: &[f64],
    ) -> HistogramVec {
        let opts = HistogramOpts::new(name, help).namespace("mwl").buckets(buckets.to_vec());
        self.keep_series(HistogramVec::new(opts, labels))
    }
}

/// The library refuses invalid names and wrong label counts. All of ours are constants in this file.
#[expect(clippy::expect_used, reason = "constant names and label counts, held by a test")]
pub(super) fn fixed<T>(result: prometheus::Result<T>) -> T {
    result.expect("names and labels of this file are well-formed")
}

fn opts(name: &str, help: &str) -> Opts {
    Opts::new(name, help).namespace("mwl")
}

/// The series with these label values, created if needed.
pub(super) fn counter(family: &IntCounterVec, labels: &[&str]) -> IntCounter {
    fixed(family.get_metric_with_label_values(labels))
}

/// The series with these label values, created if needed.
pub(super) fn gauge(family: &IntGaugeVec, labels: &[&str]) -> IntGauge {
    fixed(family.get_metric_with_label_values(labels))
}

/// The series with these label values, created if needed.
pub(super) fn histogram(family: &HistogramVec, labels: &[&str]) -> Histogram {
    fixed(family.get_metric_with_label_values(labels))
}
