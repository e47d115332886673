//! `upstreams:`, the servers to which requests are forwarded.

mod balance;
mod health;

use self::health::{EJECTION, HEALTH, ejection, health};
use super::read::{LONGEST, Object};
use super::report::Report;
use super::retry_budget::{RETRY_BUDGET, retry_budget};
use super::scalar;
use super::shape::{Section, Shape, optional, or, required};
use super::tls::{TlsReader, UPSTREAM_TLS};
use crate::proxy::proxy_header::ProxyVersion;
use crate::proxy::settings::{Endpoint, HeadLimits, HostPolicy, Protocol, Upstream};
use crate::proxy::tls::EndpointTls;
use crate::source::{Diagnostic, Member, Node};

const ENDPOINT_FORMS: Shape = Shape::Either(&[Shape::Endpoint, Shape::Section(&ENDPOINT)]);

const ENDPOINT: Section = Section {
    name: "an endpoint",
    doc: "One endpoint of an upstream, with its weight.",
    fields: &[
        required("url", Shape::Endpoint, "Where it answers."),
        or(
            "weight",
            Shape::Count(1, 1000),
            "1",
            "How many requests it gets in relation to the others. Each address of a name has this weight.",
        ),
    ],
};

pub(super) const UPSTREAM: Section = Section {
    name: "an upstream",
    doc: "A named set of endpoints.",
    fields: &[
        required(
            "endpoints",
            Shape::List(&ENDPOINT_FORMS),
            "Where it answers: `http://host:port`, `https://host:port` or `unix:/path`, each alone or as `url` with a `weight`. At least one. Each address of a name is an endpoint.",
        ),
        or(
            "balance",
            balance::BALANCE,
            r#""leastRequest""#,
            "Which endpoint gets the next request: of two that are drawn at random, the one with fewer requests for its weight (`leastRequest`); one after the other (`roundRobin`); any (`random`); or the one that a key belongs to (`hash`).",
        ),
        or(
            "protocol",
            Shape::Word(&["http1", "http2"]),
            r#""http1""#,
            "The protocol to speak: HTTP/1.1, or HTTP/2, which gRPC needs (in clear text with prior knowledge).",
        ),
        optional(
            "proxyProtocol",
            Shape::Word(&["v1", "v2"]),
            "Begins each connection with a PROXY header of this version, before TLS, which says who the client is. A connection then carries requests of one client only. Without it, connections begin with none.",
        ),
        optional(
            "tls",
            Shape::Section(&UPSTREAM_TLS),
            "How TLS is used for `https://`. Without it, the system's authorities are trusted and the certificate must name the endpoint's host.",
        ),
        or(
            "connectTimeout",
            Shape::Duration,
            r#""PT1S""#,
            "How long connecting may take, including the name lookup and the TLS handshake.",
        ),
        or(
            "responseTimeout",
            Shape::Duration,
            r#""PT60S""#,
            "How long an attempt waits for the head of its response, once its request is sent. Then it fails with `ResponseTimeout`. `PT0S` waits for ever.",
        ),
        or(
            "idleTimeout",
            Shape::Duration,
            r#""PT60S""#,
            "How long a body may stall before the connection is closed.",
        ),
        or(
            "keepAlive",
            Shape::Duration,
            r#""PT4S""#,
            "How long an idle connection is kept. The default is below the five seconds after which common servers close theirs. `PT0S` keeps none.",
        ),
        or(
            "maxIdle",
            Shape::Count(0, 65_536),
            "256",
            "How many idle connections each worker keeps.",
        ),
        or(
            "maxRequests",
            Shape::Count(1, 1_000_000),
            "1024",
            "How many requests may be at the upstream at once, over all workers.",
        ),
        or(
            "maxWait",
            Shape::Duration,
            r#""PT1S""#,
            "How long one more waits for a place. Then it fails with `ConnectionFailed`, `details.phase: capacity`.",
        ),
        optional(
            "retryBudget",
            Shape::Section(&RETRY_BUDGET),
            "How many re-runs after its failures are allowed. Without it, as many as policies ask for.",
        ),
        or(
            "pingInterval",
            Shape::Duration,
            r#""PT0S""#,
            "How long an HTTP/2 connection with running requests may carry nothing before it is sent a PING, and how long the answer may take. `PT0S` never sends one: some gRPC servers close connections that send a PING more often than every five minutes.",
        ),
        or(
            "retryAfterMax",
            Shape::Duration,
            r#""PT5M""#,
            "The upper bound for a Retry-After. A longer one counts as this.",
        ),
        optional(
            "health",
            Shape::Section(&HEALTH),
            "Active checks of each endpoint. Without it, there are none.",
        ),
        optional(
            "ejection",
            Shape::Section(&EJECTION),
            "Leaves an endpoint out for a time if its attempts fail. Without it, each endpoint stays in.",
        ),
        or(
            "host",
            Shape::Word(&["preserve", "upstream"]),
            r#""preserve""#,
            "Which `Host` is sent: the one that the client sent, or the endpoint's own. A route's `rewrite.host` goes before both.",
        ),
    ],
};

/// All upstreams. Their names are the keys of an object, so they are unique.
pub(super) fn upstreams(
    report: &Report,
    root: &Object<'_>,
    tls: &TlsReader<'_>,
    heads: HeadLimits,
) -> Vec<Upstream> {
    let read = |member: &Member| {
        if member.key.trim().is_empty() {
            report.error("bad-name", member.key_span, "an upstream's name is empty");
        }
        if let Some(text) = member.value.as_str() {
            let wanted = format!("an upstream, an object: `{{ endpoints: [\"{text}\"] }}`");
            report.wrong_type(&member.key, &member.value, &wanted);
            return None;
        }
        let object = Object::open(report, &member.key, &member.value, &UPSTREAM)?;
        // A word that is unknown was reported; its default stands.
        let protocol = match object.word("protocol") {
            Some("http2") => Protocol::Http2,
            _ => Protocol::Http1,
        };
        Some(Upstream {
            name: member.key.clone(),
            endpoints: endpoints(report, &object, protocol, tls),
            balance: balance::balance(report, &object),
            protocol,
            proxy_protocol: match object.word("proxyProtocol") {
                Some("v1") => Some(ProxyVersion::V1),
                Some("v2") => Some(ProxyVersion::V2),
                _ => None,
            },
            connect_timeout: object.duration("connectTimeout", ("PT0.001S", LONGEST)),
            response_timeout: object.duration("responseTimeout", ("PT0S", LONGEST)),
            idle_timeout: object.duration("idleTimeout", ("PT0.001S", LONGEST)),
            keep_alive: object.duration("keepAlive", ("PT0S", LONGEST)),
            max_idle: object.count("maxIdle").unwrap_or_default(),
            max_requests: object.count("maxRequests").unwrap_or_default(),
            max_wait: object.duration("maxWait", ("PT0S", LONGEST)),
            retry_budget: retry_budget(report, &object),
            ping_interval: object.duration("pingInterval", ("PT0S", LONGEST)),
            retry_after_max: object.duration("retryAfterMax", ("PT0S", LONGEST)),
            host: match object.word("host") {
                Some("upstream") => HostPolicy::Upstream,
                _ => HostPolicy::Preserve,
            },
            heads,
            health: health(report, &object, protocol),
            ejection: ejection(report, &object),
        })
    };
    root.map("upstreams").iter().filter_map(read).collect()
}

/// An endpoint, and whether it is to be spoken to over TLS.
fn endpoint(report: &Report, node: &Node) -> Option<(Endpoint, bool)> {
    if node.as_object().is_none() {
        return report.parsed("bad-url", "endpoints", node, scalar::endpoint);
    }
    let object = Object::open(report, "endpoints", node, &ENDPOINT)?;
    let url = object.get("url")?;
    let (mut endpoint, secure) = report.parsed("bad-url", "url", url, scalar::endpoint)?;
    let weight = object.count("weight").and_then(|weight| u32::try_from(weight).ok());
    endpoint.weight = weight.unwrap_or(1);
    Some((endpoint, secure))
}

/// The endpoints, each with the TLS to use for it, if any.
fn endpoints(
    report: &Report,
    object: &Object<'_>,
    protocol: Protocol,
    tls: &TlsReader<'_>,
) -> Vec<Endpoint> {
    let listed = object.nonempty_list("endpoints", "one URL").iter();
    let urls: Vec<_> = listed.filter_map(|node| Some((endpoint(report, node)?, node))).collect();
    let secure = urls.iter().find(|((_, secure), _)| *secure);
    // What goes through a socket leaves the machine by no way.
    let clear = urls.iter().find(|((at, secure), _)| !*secure && at.socket.is_none());
    let section = object.member("tls");
    if let (Some((_, secure)), Some((_, clear))) = (secure, clear) {
        let message = "some endpoints are `https://` and some `http://`: what is secret on one way is not on the other";
        let diagnostic = Diagnostic::error("mixed-schemes", clear.span, message);
        report.add(diagnostic.with_related(secure.span, "the first of the others"));
    }
    if let (Some(section), None) = (section, secure) {
        let message = "`tls` is there, but no endpoint is `https://`";
        let diagnostic = Diagnostic::error("unused-tls", section.key_span, message);
        report.add(diagnostic.with_help("write the endpoints as `https://host:port`"));
    }
    let opened = section.map(|section| Object::open(report, "tls", &section.value, &UPSTREAM_TLS));
    // Anything but an object was reported, and changes nothing.
    let section = opened.flatten();
    let name = section.as_ref().and_then(|section| section.text("serverName"));
    let client = secure.and_then(|(_, at)| tls.client(section.as_ref(), protocol, at.span));
    let named = |((mut endpoint, secure), node): ((Endpoint, bool), &Node)| {
        let client = client.as_ref().filter(|_| secure);
        let tls = client.map(|client| {
            let name = name.unwrap_or(&endpoint.host);
            let to = EndpointTls::new(client, name);
            if to.is_none() {
                let message = format!(
                    "`{name}` is neither a host's name nor an address, as a certificate has them"
                );
                report.error("bad-name", node.span, message);
            }
            to
        });
        endpoint.tls = tls.flatten();
        endpoint
    };
    urls.into_iter().map(named).collect()
}
