//! The spans of a request: one for itself and one for each attempt, following OpenTelemetry's semantic
//! conventions for HTTP (stable, 1.23 and later).

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::trace::{
    SpanContext, SpanId as OtelSpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use tokio::time::Instant;

use super::context::SpanId;
use crate::telemetry::record::{
    Attempt, CLIENT_CLOSED_REQUEST, Call, Execution, NO_ANSWER, RESPONSE_TRUNCATED, SentSpan,
    Traced,
};

/// The methods that may be part of a span's name. Any other becomes `_OTHER`.
const METHODS: [&str; 10] =
    ["CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"];

/// How many spans `execution` has.
pub(super) fn count(execution: &Execution) -> usize {
    1 + execution.attempts.iter().filter(|attempt| attempt.span.is_some()).count()
}

/// The spans of `execution`, or none if it is not traced.
pub(super) fn spans(execution: &Execution, scope: &InstrumentationScope) -> Vec<SpanData> {
    let Some(traced) = execution.request.trace.as_deref() else {
        return Vec::new();
    };
    let maker = SpanBuilder { execution, traced, scope };
    let attempts = execution.attempts.iter();
    let attempts =
        attempts.filter_map(|attempt| Some(maker.attempt(attempt, attempt.span.as_ref()?)));
    std::iter::once(maker.request()).chain(attempts).collect()
}

struct SpanBuilder<'a> {
    execution: &'a Execution,
    traced: &'a Traced,
    scope: &'a InstrumentationScope,
}

impl SpanBuilder<'_> {
    fn request(&self) -> SpanData {
        let Execution { request, answer, failures, omitted, .. } = self.execution;
        let status = answer.status;
        let mut attributes = common(&request.method, &self.traced.host);
        attributes.extend([
            KeyValue::new("url.path", text(&request.path)),
            KeyValue::new("url.scheme", self.traced.scheme),
            KeyValue::new("client.address", text(&request.client)),
            KeyValue::new("network.protocol.version", self.traced.version),
            KeyValue::new("mwl.execution.id", text(&request.id)),
        ]);
        attributes.extend(optional("mwl.route", request.route.as_deref().map(text)));
        // 499, 444 and 598 stand for a client that got no whole answer.
        let left = matches!(status, CLIENT_CLOSED_REQUEST | NO_ANSWER | RESPONSE_TRUNCATED);
        let sent = (!left).then(|| i64::from(status));
        attributes.extend(optional("http.response.status_code", sent));
        let code = failures.first().map(|cause| &*cause.code);
        attributes.extend(optional("mwl.code", code.map(text)));
        let omitted = (*omitted > 0).then(|| whole(*omitted));
        attributes.extend(optional("mwl.attempts.omitted", omitted));
        // A 4xx is the client's mistake, not an error of this server.
        let error = match code {
            Some(code) if left => Some(text(code)),
            _ if status >= 500 => Some(code.map_or_else(|| status.to_string().into(), text)),
            _ => None,
        };
        let verb = known(&request.method).unwrap_or("HTTP");
        let name = match &request.route {
            Some(route) => format!("{verb} {route}").into(),
            None => verb.to_owned().into(),
        };
        let context = &self.traced.context;
        self.span(SpanParts {
            id: context.span(),
            parent: context.parent(),
            remote: context.parent().is_some(),
            kind: SpanKind::Server,
            name,
            began: answer.began,
            took: answer.took,
            attributes,
            error,
        })
    }

    fn attempt(&self, attempt: &Attempt, sent: &SentSpan) -> SpanData {
        let Call { step, number, dispatch, cleanup } = &attempt.call;
        let mut attributes = common(&sent.method, &attempt.endpoint);
        let url = format!("{}://{}{}", sent.scheme, attempt.endpoint, sent.path);
        attributes.extend([
            KeyValue::new("url.full", url),
            KeyValue::new("mwl.upstream", text(&attempt.upstream)),
            KeyValue::new("mwl.step", text(step)),
            KeyValue::new("mwl.attempt", i64::from(*number)),
        ]);
        attributes.extend(optional("mwl.cleanup", cleanup.then_some(true)));
        attributes.extend(optional("mwl.dispatch", dispatch.map(whole)));
        attributes.extend(optional("http.response.status_code", attempt.status.map(i64::from)));
        // How many times it was sent before.
        let resends = number.checked_sub(1).filter(|resends| *resends > 0);
        attributes.extend(optional("http.request.resend_count", resends.map(i64::from)));
        let waited = attempt.wait.map(|wait| wait.delay.as_secs_f64());
        attributes.extend(optional("mwl.retry.wait", waited));
        let source = attempt.wait.map(|wait| wait.source.as_str());
        attributes.extend(optional("mwl.retry.source", source));
        let code = attempt.code.as_deref();
        attributes.extend(optional("mwl.code", code.map(text)));
        // If there was a response, its status is the error type; otherwise the code is.
        let error = match (attempt.status.filter(|status| *status >= 400), code) {
            (Some(status), _) => Some(status.to_string().into()),
            (None, Some(code)) => Some(text(code)),
            (None, None) => None,
        };
        self.span(SpanParts {
            id: sent.id,
            parent: Some(self.traced.context.span()),
            remote: false,
            kind: SpanKind::Client,
            name: known(&sent.method).unwrap_or("HTTP").into(),
            began: attempt.began,
            took: attempt.took,
            attributes,
            error,
        })
    }

    fn span(&self, span: SpanParts) -> SpanData {
        let SpanParts { id, parent, remote, kind, name, began, took, mut attributes, error } = span;
        let start = self.wall(began);
        let flags = TraceFlags::SAMPLED;
        let trace = TraceId::from_bytes(self.traced.context.trace());
        let status = error.as_ref().map_or(Status::Unset, |_| Status::error(""));
        attributes.extend(optional("error.type", error));
        SpanData {
            span_context: SpanContext::new(trace, otel(id), flags, false, TraceState::NONE),
            parent_span_id: parent.map_or(OtelSpanId::INVALID, otel),
            parent_span_is_remote: remote,
            span_kind: kind,
            name,
            start_time: start,
            end_time: start + took,
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status,
            instrumentation_scope: self.scope.clone(),
        }
    }

    /// The wall time of an instant of the request.
    fn wall(&self, instant: Instant) -> SystemTime {
        let nanos = u64::try_from(self.execution.request.at.as_nanos()).unwrap_or(0);
        let since = instant.saturating_duration_since(self.execution.answer.began);
        UNIX_EPOCH + Duration::from_nanos(nanos) + since
    }
}

/// The parts of a span.
struct SpanParts {
    id: SpanId,
    parent: Option<SpanId>,
    remote: bool,
    kind: SpanKind,
    name: Cow<'static, str>,
    began: Instant,
    took: Duration,
    attributes: Vec<KeyValue>,
    error: Option<Cow<'static, str>>,
}

fn otel(id: SpanId) -> OtelSpanId {
    OtelSpanId::from_bytes(id.0)
}

fn text(text: &str) -> Cow<'static, str> {
    Cow::Owned(text.to_owned())
}

fn known(method: &str) -> Option<&'static str> {
    METHODS.iter().find(|known| **known == method).copied()
}

/// An attribute that may be absent.
fn optional(key: &'static str, value: Option<impl Into<Value>>) -> Option<KeyValue> {
    value.map(|value| KeyValue::new(key, value))
}

fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The method and the server. An unknown method keeps its name in a second attribute, away from the one used
/// for aggregation.
fn common(method: &str, server: &str) -> Vec<KeyValue> {
    let mut attributes = Vec::with_capacity(16);
    match known(method) {
        Some(known) => attributes.push(KeyValue::new("http.request.method", known)),
        None => attributes.extend([
            KeyValue::new("http.request.method", "_OTHER"),
            KeyValue::new("http.request.method_original", text(method)),
        ]),
    }
    let (host, port) = host_and_port(server);
    attributes.push(KeyValue::new("server.address", text(host)));
    attributes.extend(optional("server.port", port.map(i64::from)));
    attributes
}

/// `[::1]:80` → `::1`, 80.
fn host_and_port(authority: &str) -> (&str, Option<u16>) {
    let port = |port: &str| port.parse().ok();
    if let Some((host, rest)) = authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return (host, rest.strip_prefix(':').and_then(port));
    }
    match authority.rsplit_once(':') {
        Some((host, digits)) => (host, port(digits)),
        None => (authority, None),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::language::outcome::{Failure, Outcome};
    use crate::language::provider::{DelaySource, Wait};
    use crate::telemetry::record::Recorder;
    use crate::telemetry::record::tests::{self, answer, attempt};
    use crate::telemetry::trace::{Context, Parent};

    fn traced(method: &str) -> crate::telemetry::record::Request {
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let parent = Parent::parse(parent.as_bytes()).unwrap();
        let traced = tests::traced(Context::beneath(parent, SpanId([1; 8])));
        crate::telemetry::record::Request { method: method.into(), ..traced }
    }

    fn sent(id: u8) -> Arc<SentSpan> {
        let (id, method, path) = (SpanId([id; 8]), "POST".into(), "/pay".into());
        Arc::new(SentSpan { id, method, scheme: "https", path })
    }

    fn show(span: &SpanData) -> String {
        let since = |time: SystemTime| {
            let base = UNIX_EPOCH + Duration::from_millis(1_700_000_000_250);
            time.duration_since(base).unwrap().as_millis()
        };
        let mut lines: Vec<String> =
            span.attributes.iter().map(|kv| format!("{}={}", kv.key, kv.value)).collect();
        lines.sort();
        format!(
            "{} {:?} {} beneath {} {}..{} {:?}\n  {}",
            span.name,
            span.span_kind,
            span.span_context.span_id(),
            span.parent_span_id,
            since(span.start_time),
            since(span.end_time),
            span.status,
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
        let spans = spans(&execution, &InstrumentationScope::builder("t").build());
        assert_eq!(spans.len(), count(&execution));
        let trace = "0af7651916cd43dd8448eb211c80319c";
        assert!(spans.iter().all(|span| span.span_context.trace_id().to_string() == trace));
        let shown: Vec<String> = spans.iter().map(show).collect();
        insta::assert_snapshot!(shown.join("\n"), @r#"
        POST pay Server 0101010101010101 beneath b7ad6b7169203331 0..150 Unset
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
        POST Client 0202020202020202 beneath 0101010101010101 0..20 Error { description: "" }
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
        POST Client 0303030303030303 beneath 0101010101010101 120..140 Unset
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
            let spans = spans(&execution, &InstrumentationScope::builder("t").build());
            let of = |key: &str| {
                let found = spans[0].attributes.iter().find(|kv| kv.key.as_str() == key);
                found.map(|kv| kv.value.to_string()).unwrap_or_default()
            };
            assert_eq!(of("error.type"), wanted, "{status}");
            assert_eq!(spans[0].status == Status::Unset, wanted.is_empty());
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
}
