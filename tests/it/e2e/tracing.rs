//! Distributed tracing: what upstreams and the collector get.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message;
use tokio::time::Instant;

use crate::support::client::{ask, request};
use crate::support::origin::{Origin, Port, Seen, answer};
use crate::support::program::{Proxy, configuration};
use crate::support::stack::retry;
use crate::support::watched::Watched;

const ROUTES: &str = concat!(
    "  - name: pay\n    upstream: billing\n    middleware:\n",
    retry!(
        "match: { codes: [Provider.Call.Http.Unavailable] }, attempts: 2, backoff: { initial: PT0.05S }"
    ),
);

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

pub(super) fn collector() -> Origin {
    Origin::always(answer(200, &[("content-type", "application/x-protobuf")], ""))
}

fn start(origin: &Origin, collector: &Origin, tracing: &str) -> Proxy {
    let file = configuration(&[("billing", origin.address)], ROUTES);
    let otlp =
        format!("otlp: {{ endpoint: 'http://{}', headers: {{ x-key: k }} }}", collector.address);
    Proxy::start(&format!("tracing: {{ {otlp}, service: shop{tracing} }}\n{file}"))
}

/// The spans that the collector received.
pub(super) fn spans(collector: &Origin) -> Vec<Span> {
    let mut all = Vec::new();
    for post in collector.seen() {
        assert!(post.head.line.starts_with("POST /v1/traces "), "{}", post.head.line);
        assert_eq!(post.head.field("x-key"), Some("k"));
        assert_eq!(post.head.field("content-type"), Some("application/x-protobuf"));
        let message = ExportTraceServiceRequest::decode(post.body.as_slice()).unwrap();
        for resource in message.resource_spans {
            let attributes = resource.resource.unwrap().attributes;
            let service = attributes.iter().find(|pair| pair.key == "service.name").unwrap();
            let service = service.value.clone().unwrap().value;
            assert_eq!(service, Some(Value::StringValue("shop".into())));
            all.extend(resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
        }
    }
    all
}

pub(super) fn attribute(span: &Span, key: &str) -> Option<String> {
    let found = span.attributes.iter().find(|pair| pair.key == key)?;
    Some(match found.value.clone()?.value? {
        Value::StringValue(text) => text,
        Value::IntValue(number) => number.to_string(),
        Value::DoubleValue(number) => number.to_string(),
        Value::BoolValue(flag) => flag.to_string(),
        other => panic!("{key}: {other:?}"),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn told(seen: &Seen) -> Vec<String> {
    let value = seen.head.field("traceparent").unwrap();
    value.split('-').map(str::to_owned).collect()
}

#[test]
fn a_collector_gets_one_trace_with_the_client_s_id_and_a_span_for_each_attempt() {
    let origin = Origin::script([answer(503, &[], ""), answer(200, &[], "")]);
    let collector = collector();
    let mut proxy = start(&origin, &collector, "");
    let parent = format!("00-{TRACE}-{CALLER}-01");
    let fields = [("traceparent", parent.as_str()), ("tracestate", "vendor=1,other=2")];
    assert_eq!(ask(proxy.address, request("GET", "/pay?secret=1", &fields, b"")).status, 200);
    // The remaining spans are sent at the end.
    proxy.stop();

    let mut spans = spans(&collector);
    assert_eq!(spans.len(), 3, "{spans:#?}");
    assert!(spans.iter().all(|span| hex(&span.trace_id) == TRACE));
    spans.sort_by_key(|span| (span.kind, span.start_time_unix_nano));
    let [server, first, second] = spans.as_slice() else { panic!() };
    assert_eq!((server.kind, first.kind), (SpanKind::Server as i32, SpanKind::Client as i32));
    assert_eq!((server.name.as_str(), first.name.as_str()), ("GET pay", "GET"));
    assert_eq!(hex(&server.parent_span_id), CALLER);
    says_what_happened(server, first, second, origin.address);

    let seen = origin.seen();
    for (span, seen) in [(first, &seen[0]), (second, &seen[1])] {
        assert_eq!(span.parent_span_id, server.span_id);
        assert_eq!(told(seen), ["00", TRACE, &hex(&span.span_id), "01"]);
        assert_eq!(seen.head.field("tracestate"), Some("vendor=1,other=2"));
    }
}

/// Checks the attributes of a request that was answered by its second attempt.
fn says_what_happened(server: &Span, first: &Span, second: &Span, upstream: SocketAddr) {
    let of = |span: &Span, keys: &[&str]| -> Vec<Option<String>> {
        keys.iter().map(|key| attribute(span, key)).collect()
    };
    let some = |text: &str| Some(text.to_owned());
    let keys =
        ["http.request.method", "http.response.status_code", "url.path", "mwl.route", "error.type"];
    assert_eq!(of(server, &keys), [some("GET"), some("200"), some("/pay"), some("pay"), None]);
    let keys =
        ["http.response.status_code", "http.request.resend_count", "error.type", "mwl.retry.wait"];
    assert_eq!(of(first, &keys), [some("503"), None, some("503"), None]);
    assert_eq!(of(second, &keys), [some("200"), some("1"), None, some("0.05")]);
    let url = format!("http://{upstream}/pay");
    assert_eq!(attribute(second, "url.full"), Some(url), "no query");
    assert!(server.start_time_unix_nano <= first.start_time_unix_nano);
    assert!(second.end_time_unix_nano <= server.end_time_unix_nano);
}

#[test]
fn a_caller_that_does_not_sample_is_respected() {
    let (origin, collector) = (Origin::always(answer(200, &[], "")), collector());
    let mut proxy = start(&origin, &collector, "");
    let parent = format!("00-{TRACE}-{CALLER}-00");
    ask(proxy.address, request("GET", "/", &[("traceparent", &parent)], b""));
    proxy.stop();
    assert_eq!(collector.count(), 0);
    let told = told(&origin.seen()[0]);
    assert_eq!((told[1].as_str(), told[3].as_str()), (TRACE, "00"));
    assert_ne!(told[2], CALLER);
}

#[test]
fn what_is_malformed_starts_a_trace_of_its_own() {
    let (origin, collector) = (Origin::always(answer(200, &[], "")), collector());
    let mut proxy = start(&origin, &collector, ", sample: 0");
    let twice = format!("00-{TRACE}-{CALLER}-01");
    for fields in [
        vec![("traceparent", "00-bad"), ("tracestate", "vendor=1")],
        vec![("traceparent", twice.as_str()), ("traceparent", &twice), ("tracestate", "vendor=1")],
        vec![("tracestate", "vendor=1")],
    ] {
        ask(proxy.address, request("GET", "/", &fields, b""));
    }
    proxy.stop();
    for seen in origin.seen() {
        let told = told(&seen);
        assert_ne!(told[1], TRACE);
        assert_eq!(told[3], "02", "not sampled, and random");
        assert_eq!(seen.head.field("tracestate"), None);
    }
    assert_eq!((origin.count(), collector.count()), (3, 0));
}

#[test]
fn without_tracing_the_fields_go_on_unchanged() {
    let origin = Origin::always(answer(200, &[], ""));
    let proxy = Proxy::before(&[("billing", origin.address)], ROUTES);
    let fields = [("traceparent", "anything at all"), ("tracestate", "vendor=1")];
    ask(proxy.address, request("GET", "/", &fields, b""));
    let seen = origin.seen();
    assert_eq!(seen[0].head.field("traceparent"), Some("anything at all"));
    assert_eq!(seen[0].head.field("tracestate"), Some("vendor=1"));
}

/// How many spans had this outcome.
fn spans_that(proxy: &Proxy, outcome: &str) -> u64 {
    proxy.metric("mwl_trace_spans_total", &[("outcome", outcome)])
}

/// The lines about the collector, each once.
/// What the log says of the collector, once it has said `last`: a counter is ahead of the log.
fn said_up_to(proxy: &Proxy, last: &str) -> Vec<String> {
    proxy.program().line(last, |line| line.contains(last).then_some(()));
    said(proxy)
}

fn said(proxy: &Proxy) -> Vec<String> {
    let lines = proxy.program().lines();
    let about = lines.iter().filter(|line| line.contains("collector") || line.contains("pentelem"));
    about
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["message"].to_string())
        .collect()
}

/// It is not there, then it is full, and then it takes what has waited.
#[test]
fn spans_wait_for_a_collector_that_is_away() {
    let origin = Origin::always(answer(200, &[], ""));
    let port = Port::hold();
    let file = configuration(&[("billing", origin.address)], ROUTES);
    let otlp = format!("otlp: {{ endpoint: 'http://{}', headers: {{ x-key: k }} }}", port.address);
    let mut proxy = Proxy::start(&format!("tracing: {{ {otlp}, service: shop }}\n{file}"));
    for _ in 0..3 {
        assert_eq!(ask(proxy.address, request("GET", "/", &[], b"")).status, 200);
    }
    proxy.program().line("the warning", |line| line.contains("is away").then_some(()));
    assert_eq!(
        ["exported", "dropped", "failed"].map(|outcome| spans_that(&proxy, outcome)),
        [0; 3]
    );
    let full = Watched::new(true);
    let collector = port.listen(move |_, _| {
        if full.update(|full| std::mem::replace(full, false)) {
            return answer(503, &[], "");
        }
        answer(200, &[("content-type", "application/x-protobuf")], "")
    });
    proxy.until_metric("mwl_trace_spans_total", &[("outcome", "exported")], 6);
    assert_eq!(["dropped", "failed"].map(|outcome| spans_that(&proxy, outcome)), [0; 2]);
    assert_eq!((spans(&collector).len(), collector.count()), (12, 2), "posted twice, taken once");
    proxy.stop();
    let away = "\"The collector is away: spans wait for it.\"";
    assert_eq!(said_up_to(&proxy, "is back"), [away, "\"The collector is back.\""]);
}

#[test]
fn spans_that_the_collector_refuses_are_lost_and_counted() {
    let (origin, collector) =
        (Origin::always(answer(200, &[], "")), Origin::always(answer(401, &[], "")));
    let proxy = start(&origin, &collector, "");
    assert_eq!(ask(proxy.address, request("GET", "/", &[], b"")).status, 200);
    proxy.until_metric("mwl_trace_spans_total", &[("outcome", "failed")], 2);
    assert_eq!(collector.count(), 1);
    assert_eq!(said_up_to(&proxy, "refused"), ["\"The collector refused spans.\""]);
}

/// At the end nobody waits for it.
#[test]
fn a_collector_that_stays_away_does_not_hold_the_end_up() {
    let (origin, port) = (Origin::always(answer(200, &[], "")), Port::hold());
    let file = configuration(&[("billing", origin.address)], ROUTES);
    let otlp = format!("otlp: {{ endpoint: 'http://{}' }}", port.address);
    let mut proxy = Proxy::start(&format!("tracing: {{ {otlp} }}\n{file}"));
    assert_eq!(ask(proxy.address, request("GET", "/", &[], b"")).status, 200);
    let begun = Instant::now();
    proxy.stop();
    assert!(begun.elapsed() < Duration::from_secs(3));
    assert_eq!(said(&proxy).last().unwrap(), "\"The last spans are lost: the collector is away.\"");
}
