use std::sync::Arc;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ScopeSpans, Span};
use prost::Message as _;

use super::*;
use crate::language::outcome::{Failure, Outcome};
use crate::language::provider::{DelaySource, Wait};
use crate::telemetry::record::Recorder;
use crate::telemetry::record::tests::{self, answer, attempt};
use crate::telemetry::trace::{Context, Parent};

fn traced(method: &str) -> RequestRef<'_> {
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let parent = Parent::parse(parent.as_bytes()).unwrap();
    RequestRef { method, ..tests::traced(Context::beneath(parent, SpanId([1; 8]))) }
}

/// What another reader makes of the bytes.
fn spans(execution: &Execution<RequestRef<'_>>) -> Vec<Span> {
    let encoded = EncodedSpans::of(execution).unwrap();
    let spans = ScopeSpans::decode(encoded.bytes.as_slice()).unwrap().spans;
    assert_eq!((spans.len(), encoded.count), (count(execution), count(execution)));
    spans
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

fn attributes(span: &Span) -> Vec<(String, String)> {
    let shown = |value: &Value| match value {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(number) => number.to_string(),
        Value::DoubleValue(number) => number.to_string(),
        Value::BoolValue(flag) => flag.to_string(),
        other => panic!("{other:?}"),
    };
    let pair = |pair: &opentelemetry_proto::tonic::common::v1::KeyValue| {
        (pair.key.clone(), shown(pair.value.as_ref().unwrap().value.as_ref().unwrap()))
    };
    span.attributes.iter().map(pair).collect()
}

fn status_of(span: &Span) -> StatusCode {
    span.status.as_ref().unwrap().code()
}

fn sent(id: u8) -> Arc<SentSpan> {
    let (id, method, path) = (SpanId([id; 8]), "POST".into(), "/pay".into());
    Arc::new(SentSpan { id, method, scheme: "https", path })
}

fn show(span: &Span) -> String {
    let since = |nanos: u64| (nanos - 1_700_000_000_250_000_000) / 1_000_000;
    let mut lines: Vec<String> =
        attributes(span).iter().map(|(key, value)| format!("{key}={value}")).collect();
    lines.sort();
    format!(
        "{} {:?} {} beneath {} {}..{} {:?} {:x}\n  {}",
        span.name,
        SpanKind::try_from(span.kind).unwrap(),
        hex(&span.span_id),
        hex(&span.parent_span_id),
        since(span.start_time_unix_nano),
        since(span.end_time_unix_nano),
        status_of(span),
        span.flags,
        lines.join("\n  "),
    )
}

#[tokio::test(start_paused = true)]
async fn a_request_and_its_attempts_are_spans() {
    let begun = Instant::now();
    let recorder = Recorder::default();
    let code = Some("Provider.Call.Http.Unavailable");
    recorder.attempt(Attempt { span: Some(sent(2)), ..attempt(1, begun, code) });
    tokio::time::advance(Duration::from_millis(120)).await;
    let (delay, source) = (Duration::from_millis(100), DelaySource::Schedule);
    let wait = Some(Wait { delay, source, policy: Some(0) });
    recorder.attempt(Attempt { span: Some(sent(3)), wait, ..attempt(2, Instant::now(), None) });
    recorder.result(&Outcome::Success(crate::language::value::Value::Null));
    recorder.answered(answer(200, begun, 150));
    let execution = recorder.finish(|_| traced("POST")).unwrap();
    let spans = spans(&execution);
    let trace = "0af7651916cd43dd8448eb211c80319c";
    assert!(spans.iter().all(|span| hex(&span.trace_id) == trace));
    let shown: Vec<String> = spans.iter().map(show).collect();
    insta::assert_snapshot!(shown.join("\n"), @r#"
    POST pay Server 0101010101010101 beneath b7ad6b7169203331 0..150 Unset 301
      client.address=10.0.0.9
      http.request.method=POST
      http.response.status_code=200
      mwl.execution.id=r-1
      mwl.route=pay
      network.protocol.version=1.1
      server.address=shop.example
      server.port=8443
      url.path=/pay
      url.scheme=http
    POST Client 0202020202020202 beneath 0101010101010101 0..20 Error 101
      error.type=503
      http.request.method=POST
      http.response.status_code=503
      mwl.attempt=1
      mwl.code=Provider.Call.Http.Unavailable
      mwl.step=pay
      mwl.upstream=billing
      server.address=127.0.0.1
      server.port=3000
      url.full=https://127.0.0.1:3000/pay
    POST Client 0303030303030303 beneath 0101010101010101 120..140 Unset 101
      http.request.method=POST
      http.request.resend_count=1
      http.response.status_code=200
      mwl.attempt=2
      mwl.retry.source=schedule
      mwl.retry.wait=0.1
      mwl.step=pay
      mwl.upstream=billing
      server.address=127.0.0.1
      server.port=3000
      url.full=https://127.0.0.1:3000/pay
    "#);
}

#[tokio::test(start_paused = true)]
async fn errors_say_their_type() {
    let begun = Instant::now();
    for (status, code, method, wanted) in [
        (
            504,
            Some("Provider.Middleware.Timeout.Exceeded"),
            "BREW",
            "Provider.Middleware.Timeout.Exceeded",
        ),
        (503, None, "GET", "503"),
        (499, Some("System.Cancelled"), "GET", "System.Cancelled"),
        (598, Some("Proxy.ResponseTruncated"), "GET", "Proxy.ResponseTruncated"),
        (404, Some("Provider.Call.Http.NonSuccessStatus"), "GET", ""),
    ] {
        let recorder = Recorder::default();
        recorder.result(&match code {
            Some(code) => Outcome::from(Failure::error(code.to_owned(), "x")),
            None => Outcome::Success(crate::language::value::Value::Null),
        });
        recorder.answered(answer(status, begun, 1));
        let execution = recorder.finish(|_| traced(method)).unwrap();
        let spans = spans(&execution);
        let of = |key: &str| {
            let found = attributes(&spans[0]).into_iter().find(|(name, _)| name == key);
            found.map(|(_, value)| value).unwrap_or_default()
        };
        assert_eq!(of("error.type"), wanted, "{status}");
        assert_eq!(status_of(&spans[0]) == StatusCode::Unset, wanted.is_empty());
        let known = if method == "BREW" { "_OTHER" } else { "GET" };
        assert_eq!(of("http.request.method"), known);
        let unsaid = matches!(status, 499 | 598);
        assert_eq!(of("http.response.status_code").is_empty(), unsaid);
    }
}

#[test]
fn authorities_are_hosts_with_ports() {
    assert_eq!(host_and_port("a.example:80"), ("a.example", Some(80)));
    assert_eq!(host_and_port("[::1]:80"), ("::1", Some(80)));
    assert_eq!(host_and_port("[::1]"), ("::1", None));
    assert_eq!(host_and_port("a"), ("a", None));
}
