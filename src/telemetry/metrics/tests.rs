//! Metrics appear under the documented names and labels.

use std::time::Duration;

use super::*;
use crate::language::provider::DelaySource;
use crate::telemetry::families::Collectors;

/// The samples of `render` that start with `name`.
fn samples(metrics: &Metrics, name: &str) -> String {
    let text = metrics.render();
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with(name)).collect();
    lines.join("\n")
}

#[test]
fn requests_count_by_route_and_status() {
    let metrics = Metrics::new();
    let route = metrics.route("pay", &[]);
    for status in [200, 200, 499, 999] {
        route.request_started();
        route.request_done(status, Duration::from_millis(3));
    }
    route.request_started();
    insta::assert_snapshot!(samples(&metrics, "mwl_requests_"), @r#"
    mwl_requests_in_flight{route="pay"} 1
    mwl_requests_total{route="pay",status="200"} 2
    mwl_requests_total{route="pay",status="499"} 1
    mwl_requests_total{route="pay",status="other"} 1
    "#);
    let bucket = r#"mwl_request_duration_seconds_bucket{route="pay",le="0.005"}"#;
    insta::assert_snapshot!(samples(&metrics, bucket), @r#"
    mwl_request_duration_seconds_bucket{route="pay",le="0.005"} 4
    "#);
}

/// An upstream may send any status. All unregistered ones share one series.
#[test]
fn statuses_that_are_not_registered_count_together() {
    let metrics = Metrics::new();
    let route = metrics.route("pay", &[]);
    for status in 0..=u16::MAX {
        route.request_done(status, Duration::ZERO);
    }
    let series = samples(&metrics, "mwl_requests_total");
    assert_eq!(series.lines().count(), 67, "{series}");
    let other = r#"mwl_requests_total{route="pay",status="other"} 65470"#;
    assert!(series.lines().any(|line| line == other), "{series}");
}

#[test]
fn codes_that_nothing_names_count_as_other() {
    let metrics = Metrics::new();
    let route = metrics.route("pay", &["B", "A", "A"]);
    let took = Duration::from_millis(1);
    for code in [Some("A"), Some("Z"), Some("Y"), None, Some("B"), Some("A")] {
        route.attempt("billing", code, took);
    }
    route.retry("A", DelaySource::Schedule);
    route.retry("A", DelaySource::Override);
    route.retry("Y", DelaySource::Override);
    route.retry("Z", DelaySource::Override);
    insta::assert_snapshot!(samples(&metrics, "mwl_attempts_total"), @r#"
    mwl_attempts_total{code="A",route="pay",upstream="billing"} 2
    mwl_attempts_total{code="B",route="pay",upstream="billing"} 1
    mwl_attempts_total{code="other",route="pay",upstream="billing"} 2
    mwl_attempts_total{code="success",route="pay",upstream="billing"} 1
    "#);
    insta::assert_snapshot!(samples(&metrics, "mwl_retries_total"), @r#"
    mwl_retries_total{code="A",delay="override",route="pay"} 1
    mwl_retries_total{code="A",delay="schedule",route="pay"} 1
    mwl_retries_total{code="other",delay="override",route="pay"} 2
    "#);
}

#[test]
fn a_reload_continues_the_counters() {
    let metrics = Metrics::new();
    let _upstream = metrics.upstream("up");
    metrics.route("pay", &["A"]).attempt("up", Some("A"), Duration::ZERO);
    let again = metrics.route("pay", &["0", "A"]);
    again.attempt("up", Some("A"), Duration::ZERO);
    again.exhausted("pay/0", 1);
    again.suppressed("draining");
    again.timeout("pay/1");
    assert!(samples(&metrics, "mwl_finally").is_empty(), "a route may have no cleanups");
    again.cleans_up();
    again.finally(Cleaned::Success);
    again.finally_unfinished();
    insta::assert_snapshot!(samples(&metrics, "mwl_attempts_total"), @r#"
    mwl_attempts_total{code="A",route="pay",upstream="up"} 2
    mwl_attempts_total{code="success",route="pay",upstream="up"} 0
    "#);
    insta::assert_snapshot!(samples(&metrics, "mwl_retries_"), @r#"
    mwl_retries_exhausted_total{entry="pay/0",policy="1",route="pay"} 1
    mwl_retries_suppressed_total{reason="draining",route="pay"} 1
    "#);
    insta::assert_snapshot!(samples(&metrics, "mwl_timeouts"), @r#"mwl_timeouts_total{entry="pay/1",route="pay"} 1"#);
    insta::assert_snapshot!(samples(&metrics, "mwl_finally"), @r#"
    mwl_finally_total{outcome="degraded",route="pay"} 0
    mwl_finally_total{outcome="failure",route="pay"} 0
    mwl_finally_total{outcome="success",route="pay"} 1
    mwl_finally_total{outcome="unfinished",route="pay"} 1
    "#);
}

/// An address that its name no longer has.
#[test]
fn series_of_an_endpoint_end_with_it() {
    let metrics = Metrics::new();
    let _upstream = metrics.upstream("u");
    let (stays, leaves) =
        (metrics.endpoint("u", "10.0.0.1:80"), metrics.endpoint("u", "10.0.0.2:80"));
    stays.attempt(true);
    leaves.attempt(false);
    drop(leaves);
    // They are shown once more.
    assert_eq!(samples(&metrics, "mwl_endpoint_attempts_total").lines().count(), 4);
    insta::assert_snapshot!(samples(&metrics, "mwl_endpoint_attempts_total"), @r#"
    mwl_endpoint_attempts_total{endpoint="10.0.0.1:80",outcome="failure",upstream="u"} 0
    mwl_endpoint_attempts_total{endpoint="10.0.0.1:80",outcome="success",upstream="u"} 1
    "#);
}

/// All names that a reload removed, on whatever label, and those alone.
#[test]
fn series_end_with_their_names() {
    let metrics = Metrics::new();
    let use_all = |name: &str| {
        let (route, upstream) = (metrics.route(name, &["A"]), metrics.upstream(name));
        let listener = (metrics.handshake_failures(name, &["closed"]), metrics.handshakes(name));
        route.request_started();
        route.request_done(503, Duration::ZERO);
        route.attempt(name, Some("A"), Duration::ZERO);
        route.retry("A", DelaySource::Schedule);
        route.exhausted("pay/0", 0);
        route.suppressed("draining");
        route.timeout("pay/1");
        route.finally(Cleaned::Success);
        route.interim_dropped("late");
        upstream.opened();
        upstream.stale_resend();
        listener.0.count(0);
        listener.1.count(1);
        (route, upstream, listener)
    };
    let kept = use_all("kept");
    let size = |text: &str| text.matches('\n').count();
    let alone = size(&metrics.render());
    let named = |name: &str| metrics.render().contains(&format!("\"{name}\""));
    let removed = use_all("removed");
    assert!(named("removed") && named("removed"), "its counters are held");
    let (route, upstream, listener) = removed;
    drop((upstream, listener));
    // Its last request still runs.
    assert!(named("removed"));
    assert!(metrics.render().contains(r#"mwl_requests_total{route="removed",status="503"} 1"#));
    route.request_done(200, Duration::ZERO);
    drop(route);
    let last = r#"mwl_requests_total{route="removed",status="200"} 1"#;
    assert!(metrics.render().contains(last), "the last increment is seen");
    assert!(!named("removed"));
    assert_eq!(size(&metrics.render()), alone);
    // A name that comes back in time goes on.
    drop(metrics.route("kept", &["A"]));
    assert!(named("kept") && named("kept"));
    drop(kept);
    drop(use_all("back"));
    let back = use_all("back");
    assert!(metrics.render().contains(r#"mwl_requests_total{route="back",status="503"} 2"#));
    assert!(!named("kept") && named("back"));
    drop(back);
}

/// Reloads with new names each time, and nobody who reads the metrics.
#[test]
fn series_that_nobody_reads_end_as_well() {
    let metrics = Metrics::new();
    let mut served = None;
    for load in 0..100 {
        let name = format!("load-{load}");
        served = Some((metrics.route(&name, &[&name]), metrics.upstream(&name)));
        metrics.config_loaded(&name, 0.0);
    }
    let codes = metrics.codes.lock().unwrap().len();
    assert!(codes <= 3, "{codes}");
    let text = metrics.render();
    let names = (0..100).filter(|load| text.contains(&format!("\"load-{load}\""))).count();
    assert!(names <= 3, "{names}");
    drop(served);
}

#[test]
fn the_config_that_is_served_is_the_only_one_shown() {
    let metrics = Metrics::new();
    metrics.config_loaded("aaaa", 1.5);
    metrics.config_loaded("bbbb", 2.5);
    metrics.config_loaded("bbbb", 3.5);
    metrics.config_reload("applied");
    metrics.config_reload("unchanged");
    metrics.config_reload("refused");
    metrics.config_reload("unfinished");
    insta::assert_snapshot!(samples(&metrics, "mwl_config_"), @r#"
    mwl_config_info{hash="bbbb"} 1
    mwl_config_last_reload_success_timestamp_seconds 3.5
    mwl_config_last_reload_successful 0
    mwl_config_reloads_total{outcome="applied"} 1
    mwl_config_reloads_total{outcome="refused"} 1
    mwl_config_reloads_total{outcome="unchanged"} 1
    mwl_config_reloads_total{outcome="unfinished"} 1
    "#);
}

#[test]
fn refusals_count_by_reason_and_are_there_from_the_start() {
    let metrics = Metrics::new();
    let refusals = metrics.refusals(&["noRoute", "overloaded"]);
    refusals.count(1);
    metrics.refusals(&["noRoute", "overloaded"]).count(1);
    refusals.count(2);
    insta::assert_snapshot!(samples(&metrics, "mwl_requests_refused"), @r#"
    mwl_requests_refused_total{reason="noRoute"} 0
    mwl_requests_refused_total{reason="overloaded"} 2
    "#);
}

#[test]
fn tasks_are_counted_when_somebody_asks() {
    let metrics = Metrics::new();
    metrics.tasks(7);
    metrics.tasks(3);
    insta::assert_snapshot!(samples(&metrics, "mwl_worker_tasks"), @"mwl_worker_tasks 3");
}

#[test]
fn connections_move_between_states() {
    let metrics = Metrics::new();
    let upstream = metrics.upstream("billing");
    for _ in 0..3 {
        upstream.opened();
    }
    upstream.to_idle();
    upstream.to_idle();
    upstream.to_active();
    upstream.closed_active();
    upstream.closed_idle();
    upstream.stale_resend();
    insta::assert_snapshot!(samples(&metrics, "mwl_upstream_connections"), @r#"
    mwl_upstream_connections{state="active",upstream="billing"} 1
    mwl_upstream_connections{state="idle",upstream="billing"} 0
    "#);
    insta::assert_snapshot!(samples(&metrics, "mwl_stale"), @r#"
    mwl_stale_connection_resends_total{upstream="billing"} 1
    "#);
}

/// The rules of `promtool check metrics`.
#[test]
fn names_pass_the_linter() {
    let metrics = Metrics::new();
    metrics.route("r", &["A"]).request_done(200, Duration::ZERO);
    metrics.route("r", &["A"]).attempt("u", Some("A"), Duration::ZERO);
    metrics.upstream("u").opened();
    metrics.config_loaded("h", 0.0);
    metrics.spans();
    let text = metrics.render();
    let of = |start: &str| -> Vec<(String, String)> {
        let lines = text.lines().filter_map(|line| line.strip_prefix(start));
        let pairs = lines.map(|rest| rest.split_once(' ').unwrap());
        pairs.map(|(name, rest)| (name.to_owned(), rest.to_owned())).collect()
    };
    let (helps, types) = (of("# HELP "), of("# TYPE "));
    let names = |pairs: &[(String, String)]| -> Vec<String> {
        pairs.iter().map(|(name, _)| name.clone()).collect()
    };
    assert_eq!(names(&helps), names(&types), "a help for each, at once before it");
    let unique: std::collections::BTreeSet<_> = names(&helps).into_iter().collect();
    assert_eq!(unique.len(), helps.len());
    assert!(helps.iter().all(|(_, help)| help.ends_with('.')), "{helps:?}");
    for (name, kind) in &types {
        lint(name, kind);
    }
}

/// A metric without an explanation is useless to whoever is woken by it.
#[test]
fn the_page_for_operators_explains_every_family() {
    let page = include_str!("../../../docs/operating.md");
    let mut collectors = Collectors::default();
    Families::of(&BUCKETS, &mut collectors);
    for family in collectors.0 {
        for described in family.desc() {
            let name = &described.fq_name;
            assert!(page.contains(&format!("`{name}")), "docs/operating.md says nothing of {name}");
        }
    }
}

fn lint(name: &str, kind: &str) {
    assert_eq!(kind == "counter", name.ends_with("_total"), "{name}: {kind}");
    assert!(kind != "histogram" || name.ends_with("_seconds"), "{name}");
    assert_eq!(name.ends_with("_info"), name.contains("_info"), "{name}");
    let ours = name.starts_with("mwl_") || name.starts_with("process_");
    assert!(ours && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}");
    for wrong in ["_count", "_sum", "_bucket", "milli", "minutes", "kilo", "kibi", "gauge"] {
        assert!(!name.contains(wrong), "{name}: {wrong}");
    }
}
