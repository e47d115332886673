//! The sections about what operators see: `admin`, `metrics`, `log`, `tracing`.

use std::sync::Arc;

use super::read::{LONGEST, Object};
use super::report::Report;
use super::scalar;
use super::shape::{Section, Shape, optional, or, required};
use crate::proxy::settings::Admin;
use crate::source::{Diagnostic, Node};
use crate::telemetry::settings::{Access, BUCKETS, TelemetrySettings, Tracing, When};

/// How many characters a token has at least.
const SHORTEST_TOKEN: usize = 16;

pub(super) const ADMIN: Section = Section {
    name: "`admin`",
    doc: "The address for operators.",
    fields: &[
        required(
            "address",
            Shape::Address,
            "An address and a port. What answers there is for operators: keep it off the network.",
        ),
        optional(
            "token",
            Shape::Text,
            "The token that a request must carry as `Authorization: Bearer …`, except to `/livez` and `/readyz`: at least 16 characters. Required if the address is not a loopback one. A reload can change it.",
        ),
        or(
            "executions",
            Shape::Count(0, 10_000),
            "128",
            "How many executions `/executions` keeps: this many failed ones and this many others. 0 keeps none.",
        ),
    ],
};

pub(super) const METRICS: Section = Section {
    name: "`metrics`",
    doc: "How things are counted.",
    fields: &[or(
        "buckets",
        Shape::List(&Shape::Number(0.0, 86_400.0)),
        "[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120]",
        "Upper bounds of the buckets of durations, in seconds, ascending. Fixed at start.",
    )],
};

pub(super) const LOG: Section = Section {
    name: "`log`",
    doc: "What is written of requests. What else is logged, `MWL_LOG` says.",
    fields: &[optional(
        "access",
        Shape::Section(&ACCESS),
        "The access log: a line of JSON for a request, on standard output. Without it there is none.",
    )],
};

pub(super) const ACCESS: Section = Section {
    name: "`access`",
    doc: "Which requests the access log has a line for.",
    fields: &[
        or(
            "when",
            Shape::Word(&When::WORDS),
            r#""all""#,
            "Requests that are always logged: `failures` (a failure Result, a refusal, a client that left), `retried` (these, and requests with more than one attempt), `all` or `none`.",
        ),
        or(
            "sample",
            Shape::Number(0.0, 1.0),
            "0",
            "The share of the other requests that is logged, from 0 to 1, chosen by the execution's id.",
        ),
    ],
};

pub(super) const TRACING: Section = Section {
    name: "`tracing`",
    doc: "Spans of requests and attempts.",
    fields: &[
        required("otlp", Shape::Section(&OTLP), "Where they are sent, by OTLP over HTTP."),
        or("service", Shape::Text, r#""mwl-proxy""#, "`service.name` of the resource."),
        or(
            "sample",
            Shape::Number(0.0, 1.0),
            "1",
            "The share of traces that is sampled, from 0 to 1, if a request's caller has not decided (`traceparent`).",
        ),
        or(
            "queue",
            Shape::Count(1, 1_000_000),
            "2048",
            "How many requests may wait for export. The spans of further ones are dropped and counted.",
        ),
    ],
};

pub(super) const OTLP: Section = Section {
    name: "`otlp`",
    doc: "A collector of spans.",
    fields: &[
        required(
            "endpoint",
            Shape::Url,
            "Its URL; `/v1/traces` is meant where there is no path. In clear text: beside the proxy, or behind a mesh.",
        ),
        or(
            "headers",
            Shape::Map(&Shape::Text),
            "{}",
            "Fields of every POST, such as a collector's key.",
        ),
        or("timeout", Shape::Duration, r#""PT10S""#, "How long one POST may take."),
    ],
};

/// The admin address. It is refused if anybody on the network could use it.
pub(super) fn admin(report: &Report, root: &Object<'_>) -> Option<Admin> {
    let node = root.get("admin")?;
    let object = Object::open(report, "admin", node, &ADMIN)?;
    let token = object.text("token").cloned();
    let written = object.get("token");
    let executions = object.count("executions").unwrap_or_default();
    let address = object.address("address")?;
    match (&token, written) {
        (Some(token), Some(written)) if !is_token(token) => {
            let message = "`token` is empty or holds what `Authorization` cannot carry; wanted: letters, digits and `-._~+/=`";
            report.error("bad-token", written.span, message);
        }
        (Some(token), Some(written)) if token.len() < SHORTEST_TOKEN => {
            let message = format!(
                "`token` has {} characters; wanted: at least {SHORTEST_TOKEN}, because a short one can be guessed",
                token.len()
            );
            let diagnostic = Diagnostic::error("bad-token", written.span, message);
            report.add(diagnostic.with_help("`openssl rand -hex 32` makes one"));
        }
        (None, None) if !address.ip().is_loopback() => {
            let message = format!("`admin` would answer anybody who reaches {address}");
            let diagnostic = Diagnostic::error("open-admin", node.span, message);
            let help = "bind it to 127.0.0.1 or [::1], or ask for a token: `token: ${ADMIN_TOKEN}`";
            report.add(diagnostic.with_help(help));
        }
        _ => {}
    }
    Some(Admin { address, token, executions })
}

/// RFC 6750 §2.1, `b64token`.
fn is_token(token: &str) -> bool {
    let body = token.trim_end_matches('=');
    let of = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte);
    !body.is_empty() && body.bytes().all(of)
}

/// Which records of requests to write, and where.
pub(super) fn observed(report: &Report, root: &Object<'_>) -> TelemetrySettings {
    TelemetrySettings {
        access: root.section("log", &LOG, |log| match log.get("access") {
            Some(_) => log.section("access", &ACCESS, access),
            None => Access { when: When::None, sample: 0.0 },
        }),
        tracing: root.get("tracing").and_then(|node| {
            let object = Object::open(report, "tracing", node, &TRACING)?;
            tracing(report, &object)
        }),
        buckets: root.section("metrics", &METRICS, |metrics| buckets(report, metrics)),
    }
}

fn access(object: &Object<'_>) -> Access {
    let when = object.word("when").and_then(When::of).unwrap_or(When::All);
    Access { when, sample: object.number("sample") }
}

fn tracing(report: &Report, object: &Object<'_>) -> Option<Tracing> {
    let service = object.text("service").cloned().unwrap_or_else(|| "mwl-proxy".into());
    let sample = object.number("sample");
    let queue = object.count("queue").unwrap_or_default();
    let otlp = Object::open(report, "otlp", object.get("otlp")?, &OTLP)?;
    let headers = otlp.map("headers").iter().filter_map(|member| {
        let value = report.text(&member.key, &member.value)?;
        let name = http::HeaderName::from_bytes(member.key.as_bytes());
        if name.is_err() || http::HeaderValue::from_str(value).is_err() {
            let message = format!("`{}` is no header field, or has no value of one", member.key);
            report.error("bad-header", member.key_span, message);
        }
        Some((Arc::clone(&member.key), Arc::clone(value)))
    });
    let headers = headers.collect();
    let timeout = otlp.duration("timeout", ("PT0.001S", LONGEST));
    let endpoint =
        report.parsed("bad-endpoint", "endpoint", otlp.get("endpoint")?, scalar::collector)?;
    Some(Tracing { endpoint: endpoint.into(), headers, timeout, service, sample, queue })
}

/// The histogram buckets, which must ascend.
fn buckets(report: &Report, metrics: &Object<'_>) -> Vec<f64> {
    let Some(node) = metrics.get("buckets") else {
        return BUCKETS.to_vec();
    };
    let items: &[Node] = report.list("buckets", node);
    let bounds: Vec<f64> =
        items.iter().filter_map(|item| metrics.number_within("buckets", item)).collect();
    let ascending = bounds.is_sorted_by(|one, next| one < next);
    if bounds.len() == items.len() && (bounds.is_empty() || !ascending || bounds.contains(&0.0)) {
        let message =
            "`buckets` must be one or more numbers above 0, each greater than the one before it";
        report.error("bad-buckets", node.span, message);
    }
    bounds
}
