//! `health:` and `ejection:` of an upstream: when one of its endpoints is left out.

use std::sync::Arc;

use crate::config::classify::{STATUS, status};
use crate::config::read::{LONGEST, Object};
use crate::config::report::Report;
use crate::config::shape::{Section, Shape, optional, or};
use crate::proxy::settings::Protocol;
use crate::proxy::settings::health::{Ejection, Health, Question, Share};
use crate::source::{Diagnostic, Member, Node, Span};

pub(in crate::config) const HEALTH: Section = Section {
    name: "`health` of an upstream",
    doc: "Active checks of each endpoint. One that is unhealthy gets no requests as long as half of the others are well.",
    fields: &[
        optional(
            "path",
            Shape::Text,
            "The path, with its query, of the `GET` that is a check. Either this or `grpc`.",
        ),
        optional(
            "grpc",
            Shape::Text,
            r#"The service about which gRPC's health service (`grpc.health.v1.Health`) is asked, or `""` for the whole server. Needs `protocol: http2`."#,
        ),
        or(
            "statuses",
            Shape::List(&STATUS),
            r#"["2xx"]"#,
            "The statuses of a healthy endpoint, such as 204, or classes such as `2xx`. Only with `path`.",
        ),
        or(
            "interval",
            Shape::Duration,
            r#""PT5S""#,
            "How long from one check of an endpoint to the next, more or less by up to a tenth. The first one is after a part of it, drawn at random, so that proxies that start together do not check together.",
        ),
        or(
            "timeout",
            Shape::Duration,
            r#""PT1S""#,
            "How long a check may take, with its connection. `connectTimeout` bounds that, too.",
        ),
        or(
            "healthyAfter",
            Shape::Count(1, 1000),
            "2",
            "After how many good checks in a row an unhealthy endpoint is healthy. Before its first check, an endpoint is.",
        ),
        or(
            "unhealthyAfter",
            Shape::Count(1, 1000),
            "3",
            "After how many bad checks in a row a healthy endpoint is unhealthy.",
        ),
    ],
};

pub(in crate::config) const EJECTION: Section = Section {
    name: "`ejection` of an upstream",
    doc: "Passive ejection: an endpoint whose attempts fail gets none for a time.",
    fields: &[
        or(
            "consecutiveFailures",
            Shape::Count(1, 1_000_000),
            "5",
            "After how many failed attempts in a row: no connection, no response, or a status that a failing server sends.",
        ),
        or(
            "baseTime",
            Shape::Duration,
            r#""PT30S""#,
            "How long the first ejection lasts; the second one twice as long, and so on.",
        ),
        or(
            "maxTime",
            Shape::Duration,
            r#""PT5M""#,
            "How long an ejection lasts at most. Once an endpoint has stayed in for this long, earlier ejections are forgotten.",
        ),
        or(
            "maxShare",
            Shape::Number(0.01, 1.0),
            "0.5",
            "Which share of the endpoints may be ejected at once, rounded down, but at least one endpoint. The last one that is well stays.",
        ),
    ],
};

/// The active checks of an upstream.
pub(in crate::config) fn health(
    report: &Report,
    upstream: &Object<'_>,
    protocol: Protocol,
) -> Option<Health> {
    let section = upstream.member("health")?;
    let object = Object::open(report, "health", &section.value, &HEALTH)?;
    let statuses = statuses(report, &object);
    let question = question(report, section, &object, protocol);
    let health = Health {
        question: match question? {
            Question::Http { path, .. } => Question::Http { path, statuses },
            grpc @ Question::Grpc { .. } => grpc,
        },
        interval: object.duration("interval", ("PT0.01S", LONGEST)),
        timeout: object.duration("timeout", ("PT0.001S", LONGEST)),
        healthy_after: count(&object, "healthyAfter"),
        unhealthy_after: count(&object, "unhealthyAfter"),
    };
    Some(health)
}

/// What a check asks.
fn question(
    report: &Report,
    section: &Member,
    object: &Object<'_>,
    protocol: Protocol,
) -> Option<Question> {
    let (path, grpc) = (object.member("path"), object.member("grpc"));
    match (path, grpc) {
        (Some(path), None) => {
            let read = report.parsed("bad-path", "path", &path.value, self::path);
            read.map(|path| Question::Http { path, statuses: Vec::new() })
        }
        (None, Some(grpc)) => {
            let service = report.text("grpc", &grpc.value)?;
            if protocol != Protocol::Http2 {
                let message = "`grpc` asks over HTTP/2, and this upstream speaks HTTP/1.1";
                let diagnostic = Diagnostic::error("grpc-health", grpc.key_span, message);
                report.add(
                    diagnostic
                        .with_help("write `protocol: http2` beside `health`, or a `path` here"),
                );
            }
            if let Some(statuses) = object.member("statuses") {
                let message =
                    "`statuses` are those of a `path`; gRPC's health service answers `SERVING`";
                let diagnostic = Diagnostic::error("unused-statuses", statuses.key_span, message);
                report.add(diagnostic.with_help("remove it"));
            }
            Some(Question::Grpc { service: Arc::clone(service) })
        }
        (Some(_), Some(grpc)) => {
            what(report, grpc.key_span, "`health` has `path` and `grpc`; a check asks one of them");
            None
        }
        (None, None) => {
            what(report, section.key_span, "`health` does not say what to ask");
            None
        }
    }
}

fn what(report: &Report, span: Span, message: &str) {
    let diagnostic = Diagnostic::error("health-question", span, message);
    report.add(
        diagnostic
            .with_help("write `path: /healthz`, or `grpc: SERVICE` for gRPC's health service"),
    );
}

/// `/healthz?deep=1`.
fn path(text: &str) -> Result<Arc<str>, String> {
    let graphic = text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
    if !text.starts_with('/') || !graphic || text.parse::<http::uri::PathAndQuery>().is_err() {
        return Err(format!("`{text}` is not a path; write for example `/healthz`"));
    }
    Ok(text.into())
}

fn statuses(report: &Report, object: &Object<'_>) -> Vec<(u16, u16)> {
    let listed: &[Node] = object.nonempty_list("statuses", "one status");
    if listed.is_empty() {
        return vec![(200, 299)];
    }
    listed.iter().filter_map(|node| status(report, "statuses", node)).collect()
}

/// The passive ejection of an upstream.
pub(in crate::config) fn ejection(report: &Report, upstream: &Object<'_>) -> Option<Ejection> {
    let node = upstream.get("ejection")?;
    let object = Object::open(report, "ejection", node, &EJECTION)?;
    let bounds = ("PT0.01S", LONGEST);
    let base_time = object.duration("baseTime", bounds);
    let max_time = object.duration("maxTime", bounds);
    if max_time < base_time {
        let at = object.get("maxTime").or_else(|| object.get("baseTime"));
        let message = "`maxTime` is shorter than `baseTime`, the time of the first ejection";
        report.error("out-of-range", at.map_or(node.span, |at| at.span), message);
    }
    Some(Ejection {
        consecutive_failures: count(&object, "consecutiveFailures"),
        base_time,
        max_time,
        max_share: Share::new(object.number("maxShare")),
    })
}

fn count(object: &Object<'_>, key: &'static str) -> u32 {
    object.count(key).and_then(|count| u32::try_from(count).ok()).unwrap_or(1)
}
