//! The families of the `mwl_` metrics, with their names, labels and help. To add one, add a field to
//! [`Families`] and its line in `of`; the code does not compile without its line in `collectors`.

use prometheus::core::Collector;
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
    pub(super) attempt_duration: HistogramVec,
    pub(super) retries: IntCounterVec,
    pub(super) exhausted: IntCounterVec,
    pub(super) suppressed: IntCounterVec,
    pub(super) timeouts: IntCounterVec,
    pub(super) finally: IntCounterVec,
    pub(super) refused: IntCounterVec,
    pub(super) interim: IntCounterVec,
    pub(super) buffered: IntGauge,
    pub(super) unbuffered: IntCounterVec,
    pub(super) connections: IntGaugeVec,
    pub(super) resends: IntCounterVec,
    pub(super) handshake_failures: IntCounterVec,
    pub(super) certificate_expiry: GaugeVec,
    pub(super) tasks: IntGauge,
    pub(super) reloads: IntCounterVec,
    pub(super) last_reload: Gauge,
    pub(super) last_successful: IntGauge,
    pub(super) config_info: GaugeVec,
    pub(super) lost_records: IntCounterVec,
    pub(super) lost_events: IntCounter,
    pub(super) spans: IntCounterVec,
    build_info: GaugeVec,
}

impl Families {
    /// Makes all families and registers them with `registry`. `buckets` are the upper bounds of durations, in
    /// seconds.
    pub(super) fn register(registry: &Registry, buckets: &[f64]) -> Self {
        let reloads = counters(
            "config_reloads_total",
            "Reloads of the configuration, by outcome: applied, unchanged, refused, or unfinished: a writer was at work.",
            &["outcome"],
        );
        for outcome in ["applied", "unchanged", "refused", "unfinished"] {
            counter(&reloads, &[outcome]);
        }
        let last_reload = Gauge::with_opts(opts(
            "config_last_reload_success_timestamp_seconds",
            "When the configuration that is served was loaded, in seconds since the epoch.",
        ));
        let config_info =
            GaugeVec::new(opts("config_info", "The configuration that is served."), &["hash"]);
        let tasks = whole(
            "worker_tasks",
            "Connections and executions that the workers have under way, as tasks.",
        );
        let last_successful = whole(
            "config_last_reload_successful",
            "Whether the configuration that was last loaded is the one that is served: 1 or 0.",
        );
        let families = Self::of(
            buckets,
            (reloads, fixed(last_reload), last_successful, fixed(config_info)),
            tasks,
        );
        fixed(families.build_info.get_metric_with_label_values(&[env!("CARGO_PKG_VERSION")]))
            .set(1.0);
        for collector in families.collectors() {
            fixed(registry.register(collector));
        }
        families
    }

    fn of(
        buckets: &[f64],
        (reloads, last_reload, last_successful, config_info): (
            IntCounterVec,
            Gauge,
            IntGauge,
            GaugeVec,
        ),
        tasks: IntGauge,
    ) -> Self {
        Self {
            requests: counters(
                "requests_total",
                "Requests answered, by the status that the client got; 499: it left before; 444: it got none.",
                &["route", "status"],
            ),
            request_duration: histograms(
                "request_duration_seconds",
                "From a request's head to the last byte of its answer.",
                &["route"],
                buckets,
            ),
            in_flight: gauges("requests_in_flight", "Requests that are being served.", &["route"]),
            attempts: counters(
                "attempts_total",
                "Attempts at an upstream, by their classified code or success.",
                &["route", "upstream", "code"],
            ),
            attempt_duration: histograms(
                "attempt_duration_seconds",
                "From an attempt's start to its Result.",
                &["route", "upstream"],
                buckets,
            ),
            retries: counters(
                "retries_total",
                "Failures consumed by a re-run, by code and by where the wait came from.",
                &["route", "code", "delay"],
            ),
            exhausted: counters(
                "retries_exhausted_total",
                "Retry policies whose budget ran out, by the policy's position.",
                &["route", "policy"],
            ),
            suppressed: counters(
                "retries_suppressed_total",
                "Retries that a policy asked for and that were not made, by reason.",
                &["route", "reason"],
            ),
            timeouts: counters("timeouts_total", "Timeout bounds that fired.", &["route"]),
            finally: counters(
                "finally_total",
                "Cleanups that ran, by outcome: success, failure, or unfinished when the process ended.",
                &["route", "outcome"],
            ),
            refused: counters(
                "requests_refused_total",
                "Requests that no route's Flow ran for, by reason.",
                &["reason"],
            ),
            interim: counters(
                "interim_responses_dropped_total",
                "Interim answers (1xx) of upstreams that did not reach the client, by reason.",
                &["route", "reason"],
            ),
            buffered: whole(
                "buffered_bytes",
                "What bodies take in memory that are kept, read or parsed, of limits.bufferedBytes.",
            ),
            unbuffered: counters(
                "bodies_not_buffered_total",
                "Bodies for which limits.bufferedBytes had no room: of a request, of a response, or for replay.",
                &["body"],
            ),
            connections: gauges(
                "upstream_connections",
                "Open upstream connections, by state: active or idle.",
                &["upstream", "state"],
            ),
            resends: counters(
                "stale_connection_resends_total",
                "Requests sent again because a reused connection had died.",
                &["upstream"],
            ),
            handshake_failures: handshake_failures(),
            certificate_expiry: certificate_expiry(),
            tasks,
            reloads,
            last_reload,
            last_successful,
            config_info,
            lost_records: lost_records(),
            lost_events: single(
                "tap_events_missed_total",
                "Events that a listener of /tap missed.",
            ),
            spans: spans(),
            build_info: fixed(GaugeVec::new(opts("build_info", "The program."), &["version"])),
        }
    }

    /// Every family once. The pattern has no `..`, so a family that is not registered does not compile.
    pub(super) fn collectors(&self) -> Vec<Box<dyn Collector>> {
        let Self {
            requests,
            request_duration,
            in_flight,
            attempts,
            attempt_duration,
            retries,
            exhausted,
            suppressed,
            timeouts,
            finally,
            refused,
            interim,
            buffered,
            unbuffered,
            connections,
            resends,
            handshake_failures,
            certificate_expiry,
            tasks,
            reloads,
            last_reload,
            last_successful,
            config_info,
            lost_records,
            lost_events,
            spans,
            build_info,
        } = self;
        vec![
            Box::new(requests.clone()),
            Box::new(request_duration.clone()),
            Box::new(in_flight.clone()),
            Box::new(attempts.clone()),
            Box::new(attempt_duration.clone()),
            Box::new(retries.clone()),
            Box::new(exhausted.clone()),
            Box::new(suppressed.clone()),
            Box::new(timeouts.clone()),
            Box::new(finally.clone()),
            Box::new(refused.clone()),
            Box::new(interim.clone()),
            Box::new(buffered.clone()),
            Box::new(unbuffered.clone()),
            Box::new(connections.clone()),
            Box::new(resends.clone()),
            Box::new(handshake_failures.clone()),
            Box::new(certificate_expiry.clone()),
            Box::new(tasks.clone()),
            Box::new(reloads.clone()),
            Box::new(last_reload.clone()),
            Box::new(last_successful.clone()),
            Box::new(config_info.clone()),
            Box::new(lost_records.clone()),
            Box::new(lost_events.clone()),
            Box::new(spans.clone()),
            Box::new(build_info.clone()),
        ]
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

fn counters(name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    fixed(IntCounterVec::new(opts(name, help), labels))
}

fn lost_records() -> IntCounterVec {
    let help = "Records that found their log's queue full or its writer broken, by log.";
    counters("log_records_dropped_total", help, &["log"])
}

fn handshake_failures() -> IntCounterVec {
    let help = "TLS handshakes of clients that came to nothing, by reason.";
    counters("tls_handshake_failures_total", help, &["listener", "reason"])
}

fn certificate_expiry() -> GaugeVec {
    let help =
        "Until when the certificates that a listener shows are valid, in seconds since the epoch.";
    fixed(GaugeVec::new(opts("tls_certificate_expiry_timestamp_seconds", help), &["listener"]))
}

fn spans() -> IntCounterVec {
    let help = "Spans, by outcome: exported, dropped for want of room, or failed to be exported.";
    counters("trace_spans_total", help, &["outcome"])
}

fn single(name: &str, help: &str) -> IntCounter {
    fixed(IntCounter::with_opts(opts(name, help)))
}

fn whole(name: &str, help: &str) -> IntGauge {
    fixed(IntGauge::with_opts(opts(name, help)))
}

fn gauges(name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
    fixed(IntGaugeVec::new(opts(name, help), labels))
}

fn histograms(name: &str, help: &str, labels: &[&str], buckets: &[f64]) -> HistogramVec {
    let opts = HistogramOpts::new(name, help).namespace("mwl").buckets(buckets.to_vec());
    fixed(HistogramVec::new(opts, labels))
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
