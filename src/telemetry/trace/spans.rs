//! The spans of a request: one for itself and one for each attempt, following OpenTelemetry's semantic
//! conventions for HTTP (stable, 1.23 and later).
//!
//! They are written as OTLP sends them (`Span` of OpenTelemetry's `trace.proto`) when the request ends: a span is then a piece
//! of bytes, and nothing is allocated for each of its attributes.

use std::time::Duration;

use tokio::time::Instant;

use super::context::SpanId;
use super::protobuf::{self, AnyValue};
use crate::telemetry::record::{
    Attempt, CLIENT_CLOSED_REQUEST, Call, Execution, NO_ANSWER, RESPONSE_TRUNCATED, RequestRef,
    SentSpan, Traced,
};

/// The methods that may be part of a span's name. Any other becomes `_OTHER`.
const METHODS: [&str; 10] =
    ["CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"];

/// The field of `ScopeSpans` that a span is.
const SPAN: u32 = 2;
/// The field of `Span` that an attribute is.
const ATTRIBUTE: u32 = 9;
/// `SPAN_KIND_SERVER`.
const SERVER: u64 = 2;
/// `SPAN_KIND_CLIENT`.
const CLIENT: u64 = 3;
/// `STATUS_CODE_ERROR`.
const ERROR: u64 = 2;
/// The flags of a sampled span whose parent is known to be of this process, or of another one.
const SAMPLED_HERE: u32 = 0x101;
const SAMPLED_THERE: u32 = 0x301;

/// About how many bytes the spans of a request without a retry take.
const USUAL: usize = 1024;

/// The spans of one request, as fields of `ScopeSpans`.
#[derive(Debug)]
pub(super) struct EncodedSpans {
    pub(super) bytes: Vec<u8>,
    /// How many there are.
    pub(super) count: usize,
}

impl EncodedSpans {
    /// Those of `execution`; `None` if it is not traced.
    pub(super) fn of(execution: &Execution<RequestRef<'_>>) -> Option<Self> {
        let traced = execution.request.trace.as_ref()?;
        let mut bytes = Vec::with_capacity(USUAL);
        let builder = SpanBuilder { execution, traced };
        protobuf::message(&mut bytes, SPAN, |out| builder.request(out));
        let mut count = 1;
        for attempt in &execution.attempts {
            if let Some(sent) = &attempt.span {
                protobuf::message(&mut bytes, SPAN, |out| builder.attempt(attempt, sent, out));
                count += 1;
            }
        }
        Some(Self { bytes, count })
    }
}

/// How many spans `execution` has.
pub(super) fn count(execution: &Execution<RequestRef<'_>>) -> usize {
    1 + execution.attempts.iter().filter(|attempt| attempt.span.is_some()).count()
}

struct SpanBuilder<'a> {
    execution: &'a Execution<RequestRef<'a>>,
    traced: &'a Traced<&'a str>,
}

/// The parts of a span that stand before its attributes.
struct SpanParts<'a> {
    id: SpanId,
    parent: Option<SpanId>,
    remote: bool,
    kind: u64,
    /// Joined by spaces.
    name: &'a [&'a str],
    began: Instant,
    took: Duration,
}

/// A string attribute that may be absent.
fn text(out: &mut Vec<u8>, key: &str, text: Option<&str>) {
    if let Some(text) = text {
        protobuf::attribute(out, ATTRIBUTE, key, text);
    }
}

/// An integer attribute that may be absent.
fn whole(out: &mut Vec<u8>, key: &str, number: Option<impl TryInto<i64>>) {
    if let Some(number) = number {
        let number = number.try_into().unwrap_or(i64::MAX);
        protobuf::attribute(out, ATTRIBUTE, key, AnyValue::Whole(number));
    }
}

impl SpanBuilder<'_> {
    fn request(&self, out: &mut Vec<u8>) {
        let Execution { request, answer, failures, omitted, .. } = self.execution;
        let status = answer.status;
        let context = &self.traced.context;
        let verb = known(request.method).unwrap_or("HTTP");
        let (with_route, alone) = ([verb, " ", request.route.unwrap_or_default()], [verb]);
        self.begin(
            out,
            &SpanParts {
                id: context.span(),
                parent: context.parent(),
                remote: context.parent().is_some(),
                kind: SERVER,
                name: if request.route.is_some() { &with_route } else { &alone },
                began: answer.began,
                took: answer.took,
            },
        );
        common(out, request.method, self.traced.host);
        text(out, "url.path", Some(request.path));
        text(out, "url.scheme", Some(self.traced.scheme));
        text(out, "client.address", Some(&request.client.to_string()));
        text(out, "network.protocol.version", Some(self.traced.version));
        text(out, "mwl.execution.id", Some(request.id));
        text(out, "mwl.route", request.route);
        // 499, 444 and 598 stand for a client that got no whole answer.
        let left = matches!(status, CLIENT_CLOSED_REQUEST | NO_ANSWER | RESPONSE_TRUNCATED);
        whole(out, "http.response.status_code", (!left).then_some(status));
        let code = failures.first().map(|cause| &*cause.code);
        text(out, "mwl.code", code);
        whole(out, "mwl.attempts.omitted", (*omitted > 0).then_some(*omitted));
        let mut digits = itoa::Buffer::new();
        // A 4xx is the client's mistake, not an error of this server.
        let error = match code {
            Some(code) if left => Some(code),
            _ if status >= 500 => Some(code.unwrap_or_else(|| digits.format(status))),
            _ => None,
        };
        end(out, error);
    }

    fn attempt(&self, attempt: &Attempt, sent: &SentSpan, out: &mut Vec<u8>) {
        let Call { step, number, dispatch, cleanup } = &attempt.call;
        self.begin(
            out,
            &SpanParts {
                id: sent.id,
                parent: Some(self.traced.context.span()),
                remote: false,
                kind: CLIENT,
                name: &[known(&sent.method).unwrap_or("HTTP")],
                began: attempt.began,
                took: attempt.took,
            },
        );
        common(out, &sent.method, &attempt.endpoint);
        let url = [sent.scheme, "://", &attempt.endpoint, &sent.path];
        protobuf::attribute(out, ATTRIBUTE, "url.full", AnyValue::Joined(&url));
        text(out, "mwl.upstream", Some(&attempt.upstream));
        text(out, "mwl.step", Some(step));
        whole(out, "mwl.attempt", Some(*number));
        if *cleanup {
            protobuf::attribute(out, ATTRIBUTE, "mwl.cleanup", AnyValue::Flag(true));
        }
        whole(out, "mwl.dispatch", *dispatch);
        whole(out, "http.response.status_code", attempt.status);
        // How many times it was sent before.
        let resends = number.checked_sub(1).filter(|resends| *resends > 0);
        whole(out, "http.request.resend_count", resends);
        if let Some(wait) = attempt.wait {
            let waited = AnyValue::Double(wait.delay.as_secs_f64());
            protobuf::attribute(out, ATTRIBUTE, "mwl.retry.wait", waited);
            text(out, "mwl.retry.source", Some(wait.source.as_str()));
        }
        let code = attempt.code.as_deref();
        text(out, "mwl.code", code);
        let mut digits = itoa::Buffer::new();
        // If there was a response, its status is the error type; otherwise the code is.
        let error = match attempt.status.filter(|status| *status >= 400) {
            Some(status) => Some(digits.format(status)),
            None => code,
        };
        end(out, error);
    }

    /// Appends what stands before the attributes.
    fn begin(&self, out: &mut Vec<u8>, parts: &SpanParts<'_>) {
        let SpanParts { id, parent, remote, kind, name, began, took } = parts;
        protobuf::bytes(out, 1, &self.traced.context.trace());
        protobuf::bytes(out, 2, &id.0);
        if let Some(parent) = parent {
            protobuf::bytes(out, 4, &parent.0);
        }
        protobuf::message_of(out, 5, name.iter().map(|part| part.len()).sum());
        for part in *name {
            out.extend_from_slice(part.as_bytes());
        }
        protobuf::number(out, 6, *kind);
        let start = self.wall(*began);
        protobuf::fixed64(out, 7, start);
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        protobuf::fixed64(out, 8, start.saturating_add(took));
        protobuf::fixed32(out, 16, if *remote { SAMPLED_THERE } else { SAMPLED_HERE });
    }

    /// The wall time of an instant of the request, in nanoseconds since the Unix epoch.
    fn wall(&self, instant: Instant) -> u64 {
        let nanos = u64::try_from(self.execution.request.at.as_nanos()).unwrap_or(0);
        let since = instant.saturating_duration_since(self.execution.answer.began);
        nanos.saturating_add(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// Appends the type of the error, if it is one, and the status.
fn end(out: &mut Vec<u8>, error: Option<&str>) {
    text(out, "error.type", error);
    protobuf::message(out, 15, |out| {
        if error.is_some() {
            protobuf::number(out, 3, ERROR);
        }
    });
}

fn known(method: &str) -> Option<&'static str> {
    METHODS.iter().find(|known| **known == method).copied()
}

/// Appends the method and the server. An unknown method keeps its name in a second attribute, away from the one used
/// for aggregation.
fn common(out: &mut Vec<u8>, method: &str, server: &str) {
    text(out, "http.request.method", Some(known(method).unwrap_or("_OTHER")));
    text(out, "http.request.method_original", known(method).is_none().then_some(method));
    let (host, port) = host_and_port(server);
    text(out, "server.address", Some(host));
    whole(out, "server.port", port);
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
mod tests;
