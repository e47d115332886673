//! `upstreams:`, where requests go.

use super::read::{Object, Report};
use super::root::LONGEST;
use super::scalar;
use super::shape::{Section, Shape, or, required};
use crate::proxy::settings::{HostPolicy, Protocol, Upstream};
use crate::source::Member;

/// One upstream.
pub(super) const UPSTREAM: Section = Section {
    name: "an upstream",
    doc: "A named set of endpoints.",
    fields: &[
        required(
            "endpoints",
            Shape::List(&Shape::Url),
            "Where it answers: `http://host:port`. At least one.",
        ),
        or(
            "protocol",
            Shape::Word(&["http1", "http2"]),
            r#""http1""#,
            "What is spoken there: HTTP/1.1, or HTTP/2 with prior knowledge, which gRPC needs.",
        ),
        or(
            "connectTimeout",
            Shape::Duration,
            r#""PT1S""#,
            "How long a connect may take, the look-up of the name included.",
        ),
        or(
            "idleTimeout",
            Shape::Duration,
            r#""PT60S""#,
            "How long a body may stall before the connection is broken.",
        ),
        or(
            "keepAlive",
            Shape::Duration,
            r#""PT4S""#,
            "How long an idle connection is kept: below the five seconds after which common servers close theirs. `PT0S` keeps none.",
        ),
        or(
            "maxIdle",
            Shape::Count(0, 65_536),
            "256",
            "How many idle connections each worker keeps.",
        ),
        or(
            "pingInterval",
            Shape::Duration,
            r#""PT0S""#,
            "How long an HTTP/2 connection with requests on it may be silent before it is asked whether it is still there, and how long it has to answer. `PT0S` asks never: some gRPC servers close connections that ask more often than every five minutes.",
        ),
        or(
            "retryAfterMax",
            Shape::Duration,
            r#""PT5M""#,
            "What a longer Retry-After is taken for.",
        ),
        or(
            "host",
            Shape::Word(&["preserve", "upstream"]),
            r#""preserve""#,
            "Which `Host` it is sent: what the client asked for, or the endpoint's own. A route's `rewrite.host` comes before either.",
        ),
    ],
};

/// All upstreams. Their names are the keys of an object, so they are unique.
pub(super) fn upstreams(report: &Report, root: &Object<'_>) -> Vec<Upstream> {
    let read = |member: &Member| {
        if member.key.trim().is_empty() {
            report.error("bad-name", member.key_span, "an upstream's name is empty");
        }
        let object = Object::open(report, &member.key, &member.value, &UPSTREAM)?;
        let urls = object.list("endpoints");
        if let Some(node) =
            object.get("endpoints").filter(|node| node.as_array().is_some_and(<[_]>::is_empty))
        {
            report.error(
                "empty-list",
                node.span,
                "`endpoints` is empty; at least one URL is wanted",
            );
        }
        let endpoint = |url| report.parsed("bad-url", "endpoints", url, scalar::endpoint);
        Some(Upstream {
            name: member.key.clone(),
            endpoints: urls.iter().filter_map(endpoint).collect(),
            protocol: protocol(&object),
            connect_timeout: object.duration("connectTimeout", ("PT0.001S", LONGEST)),
            idle_timeout: object.duration("idleTimeout", ("PT0.001S", LONGEST)),
            keep_alive: object.duration("keepAlive", ("PT0S", LONGEST)),
            max_idle: object.count("maxIdle").unwrap_or_default(),
            ping_interval: object.duration("pingInterval", ("PT0S", LONGEST)),
            retry_after_max: object.duration("retryAfterMax", ("PT0S", LONGEST)),
            host: host(&object),
        })
    };
    root.map("upstreams").iter().filter_map(read).collect()
}

/// The protocol, or the default with a note where it is no known one.
fn protocol(object: &Object<'_>) -> Protocol {
    match object.word("protocol") {
        Some("http2") => Protocol::Http2,
        _ => Protocol::Http1,
    }
}

/// The same of the host.
fn host(object: &Object<'_>) -> HostPolicy {
    match object.word("host") {
        Some("upstream") => HostPolicy::Upstream,
        _ => HostPolicy::Preserve,
    }
}
