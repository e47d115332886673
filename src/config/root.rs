//! The root of the file, and the sections about the process: listeners, admin, limits, shutdown.

use super::observed::{ADMIN, LOG, METRICS, TRACING};
use super::read::{LONGEST, Object};
use super::report::Report;
use super::route::ROUTE;
use super::shape::{Piece, Section, Shape, optional, or, required};
use super::shaping::FORWARDED;
use super::stack_parameters::STACK;
use super::store::STORE;
use super::tls::{LISTENER_TLS, TlsReader};
use super::upstream::UPSTREAM;
use crate::proxy::settings::{Cidr, Limits, Listener, MinimumRate, Paths, Shutdown};
use crate::source::{Diagnostic, Node};

pub(super) const ROOT: Section = Section {
    name: "the configuration",
    doc: "A configuration of mwl-proxy.",
    fields: &[
        or(
            "environment",
            Shape::Text,
            r#""""#,
            "The value of `execution.platform.environment` in expressions.",
        ),
        required(
            "listeners",
            Shape::List(&Shape::Section(&LISTENER)),
            "Where clients connect. At least one.",
        ),
        optional(
            "admin",
            Shape::Section(&ADMIN),
            "The address for operators: metrics, health, reload. Without this section there is none.",
        ),
        or(
            "upstreams",
            Shape::Map(&Shape::Section(&UPSTREAM)),
            "{}",
            "The servers that requests are sent to, by name.",
        ),
        or(
            "stores",
            Shape::Map(&Shape::Section(&STORE)),
            "{}",
            "Redis or Valkey servers, by name, for limits and answers that several proxies share.",
        ),
        optional(
            "forwarded",
            Shape::Section(&FORWARDED),
            "How the client's address is found, and which fields tell it to upstreams. Without this section the fields pass unchanged.",
        ),
        optional(
            "requestIdHeader",
            Shape::Text,
            "The header field of every answer that carries the execution's id, such as `x-request-id`. Without it only problem documents say the id.",
        ),
        optional(
            "paths",
            Shape::Section(&PATHS),
            "How routes read paths, and which paths are refused.",
        ),
        or(
            "stacks",
            Shape::Map(&Shape::Either(&[Shape::Mwl(Piece::Middleware), Shape::Section(&STACK)])),
            "{}",
            "Lists of middleware entries, by name. An item `{ stack: NAME }` in any `middleware` list is replaced by the list. One with parameters gets them in the item's `with`. `mwl-proxy/standard` is always there: what is `retryable` gets up to 3 attempts, all within PT2M.",
        ),
        or(
            "middleware",
            Shape::Mwl(Piece::Middleware),
            "[]",
            "A Flow-level stack around every route, outermost.",
        ),
        required(
            "routes",
            Shape::List(&Shape::Section(&ROUTE)),
            "In order: the first that matches a request takes it. At least one.",
        ),
        optional("metrics", Shape::Section(&METRICS), "How metrics are kept."),
        optional("log", Shape::Section(&LOG), "What is logged about requests."),
        optional(
            "tracing",
            Shape::Section(&TRACING),
            "Spans of requests and attempts, for a collector. Without it there are none, and `traceparent` goes on unchanged.",
        ),
        optional("limits", Shape::Section(&LIMITS), "Bounds on clients and on cleanups."),
        optional("shutdown", Shape::Section(&SHUTDOWN), "How the process stops on SIGTERM."),
    ],
};

const LISTENER: Section = Section {
    name: "a listener",
    doc: "One listening address.",
    fields: &[
        required(
            "address",
            Shape::Address,
            "An address and a port; port 0 lets the system choose.",
        ),
        optional(
            "tls",
            Shape::Section(&LISTENER_TLS),
            "TLS, with HTTP/2 or HTTP/1.1 as the client chooses. Without it, clear text.",
        ),
        optional(
            "proxyProtocol",
            Shape::Section(&PROXY_PROTOCOL),
            "From whom connections begin with a PROXY header, before TLS: it says who the client is. Without it, none do.",
        ),
    ],
};

const PROXY_PROTOCOL: Section = Section {
    name: "`proxyProtocol` of a listener",
    doc: "The PROXY protocol, versions 1 and 2, in front of a connection.",
    fields: &[required(
        "trusted",
        Shape::List(&Shape::Text),
        "Address ranges whose connections must begin with a header; without one they are closed. At least one. From other addresses a header is not expected: its bytes are no valid request.",
    )],
};

pub(super) const LIMITS: Section = Section {
    name: "`limits`",
    doc: "Bounds on clients and on cleanups.",
    fields: &[
        or(
            "cleanup",
            Shape::Duration,
            r#""PT10S""#,
            "How long one cleanup may run while its execution is being torn down.",
        ),
        or(
            "headTimeout",
            Shape::Duration,
            r#""PT30S""#,
            "How long the head of a request may take to arrive.",
        ),
        or(
            "idleTimeout",
            Shape::Duration,
            r#""PT75S""#,
            "How long a client's connection may be kept without a request.",
        ),
        or(
            "bodyTimeout",
            Shape::Duration,
            r#""PT60S""#,
            "How long a client may neither send nor take a byte of a body before the connection is closed.",
        ),
        optional(
            "minimumRate",
            Shape::Size,
            "How many bytes a second a client must at least send of a head or a body, or take of an answer, on average. The first five seconds of waiting for it are free. Without it there is no minimum.",
        ),
        or(
            "tunnelTimeout",
            Shape::Duration,
            r#""PT1H""#,
            "How long an upgraded connection (WebSocket, for example) may carry no byte in either direction.",
        ),
        or(
            "headSize",
            Shape::Size,
            r#""64KiB""#,
            "How large the head of a request may be, not counting its target; also the head of an upstream's response, and the trailers of both.",
        ),
        or("targetSize", Shape::Size, r#""16KiB""#, "How long the target of a request may be."),
        or(
            "headers",
            Shape::Count(1, 1000),
            "100",
            "How many fields a head may have, a cookie counted once, and how many trailers: of a request and of an upstream's response.",
        ),
        or(
            "streams",
            Shape::Count(1, 10_000),
            "100",
            "How many requests one HTTP/2 connection may have open at a time.",
        ),
        or(
            "connections",
            Shape::Count(1, 1_000_000),
            "16384",
            "How many client connections may be open.",
        ),
        or(
            "requests",
            Shape::Count(1, 1_000_000),
            "16384",
            "How many requests may run at once; one more is answered 503.",
        ),
        or(
            "cleanups",
            Shape::Count(1, 1_000_000),
            "1024",
            "How many requests whose clients have left may go on with their cleanups; one more cuts off the oldest.",
        ),
        or(
            "bufferedBytes",
            Shape::Size,
            r#""256MiB""#,
            "What all bodies together may keep in memory: read by expressions, parsed, or kept to be sent again.",
        ),
        optional(
            "workers",
            Shape::Count(1, 1024),
            "How many threads serve requests. Without it, one for each processor.",
        ),
    ],
};

pub(super) const PATHS: Section = Section {
    name: "`paths`",
    doc: "How routes read paths, and which paths are refused. Paths are sent on as they came.",
    fields: &[
        or(
            "mergeSlashes",
            Shape::Boolean,
            "false",
            "Whether repeated slashes count as one, as in NGINX: the route of `/admin` then also takes `//admin`.",
        ),
        or(
            "encodedSlashes",
            Shape::Word(&["pass", "refuse"]),
            r#""pass""#,
            "Whether a path with `%2F`, `%5C` or a backslash passes, or is answered 400: some servers read each of these as a slash.",
        ),
        or(
            "parameters",
            Shape::Word(&["pass", "refuse"]),
            r#""pass""#,
            "Whether a path with `;` passes, or is answered 400. Routes never match on what follows `;` in a segment.",
        ),
    ],
};

pub(super) const SHUTDOWN: Section = Section {
    name: "`shutdown`",
    doc: "How the process stops on SIGTERM.",
    fields: &[
        or(
            "delay",
            Shape::Duration,
            r#""PT0S""#,
            "The time between `/readyz` answering 503 and the closing of the listeners, for load balancers to notice.",
        ),
        or(
            "grace",
            Shape::Duration,
            r#""PT30S""#,
            "How long requests may go on after that, before they are cancelled.",
        ),
    ],
};

/// The addresses that clients connect to.
pub(super) fn listeners(report: &Report, root: &Object<'_>, tls: &TlsReader<'_>) -> Vec<Listener> {
    let found: Vec<(Listener, &Node)> = root
        .nonempty_list("listeners", "one address")
        .iter()
        .filter_map(|item| {
            let object = Object::open(report, "listeners", item, &LISTENER)?;
            let tls = object.get("tls").map(|node| tls.server(node));
            let address = object.address("address")?;
            let proxies = object.get("proxyProtocol").map(|node| proxies(report, node));
            let proxies = proxies.unwrap_or_default();
            // Its mistakes were reported. It must not become a listener without TLS.
            let tls = tls.map_or(Some(None), |tls| tls.map(Some))?;
            Some((Listener { address, proxies, tls }, item))
        })
        .collect();
    for (position, (listener, item)) in found.iter().enumerate() {
        let earlier = found.iter().take(position);
        let same = |(other, _): &&(Listener, &Node)| {
            let alike = other.tls == listener.tls && other.proxies == listener.proxies;
            let any_port = listener.address.port() == 0 && alike;
            other.address == listener.address && !any_port
        };
        if let Some((_, first)) = earlier.clone().find(same) {
            let message = format!("two listeners have the address {}", listener.address);
            let diagnostic = Diagnostic::error("duplicate-address", item.span, message);
            report.add(diagnostic.with_related(first.span, "the first"));
        }
    }
    found.into_iter().map(|(listener, _)| listener).collect()
}

/// Whether any listener asks clients for a certificate.
pub(super) fn asks_for_certificates(root: &Object<'_>) -> bool {
    let asks =
        |listener: &Node| listener.get("tls").is_some_and(|tls| tls.get("clientCa").is_some());
    root.list("listeners").iter().any(asks)
}

/// The peers whose connections begin with a PROXY header.
fn proxies(report: &Report, node: &Node) -> Vec<Cidr> {
    let Some(object) = Object::open(report, "proxyProtocol", node, &PROXY_PROTOCOL) else {
        return Vec::new();
    };
    let range = |node: &Node| report.parsed("bad-range", "trusted", node, Cidr::parse);
    object.nonempty_list("trusted", "one address range").iter().filter_map(range).collect()
}

/// `limits`, or the defaults.
pub(super) fn limits(root: &Object<'_>) -> Limits {
    root.section("limits", &LIMITS, |object| Limits {
        cleanup: object.duration("cleanup", ("PT0.001S", LONGEST)),
        head_timeout: object.duration("headTimeout", ("PT0.001S", LONGEST)),
        idle_timeout: object.duration("idleTimeout", ("PT0.001S", LONGEST)),
        body_timeout: object.duration("bodyTimeout", ("PT0.001S", LONGEST)),
        minimum_rate: minimum_rate(object),
        tunnel_timeout: object.duration("tunnelTimeout", ("PT0.001S", LONGEST)),
        head_size: object.size("headSize", ("8KiB", "16MiB")),
        target_size: object.size("targetSize", ("1KiB", "63KiB")),
        headers: object.count("headers").unwrap_or_default(),
        streams: object.count("streams").unwrap_or_default(),
        connections: object.count("connections").unwrap_or_default(),
        connections_given: object.get("connections").is_some(),
        requests: object.count("requests").unwrap_or_default(),
        cleanups: object.count("cleanups").unwrap_or_default(),
        buffered_bytes: object.size("bufferedBytes", ("1MiB", "1024GiB")),
        workers: object
            .count("workers")
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)),
    })
}

fn minimum_rate(limits: &Object<'_>) -> Option<MinimumRate> {
    let bytes = limits.size("minimumRate", ("1B", "1GiB"));
    MinimumRate::new(u64::try_from(bytes).unwrap_or(u64::MAX))
}

/// `paths`, or the defaults.
pub(super) fn paths(root: &Object<'_>) -> Paths {
    root.section("paths", &PATHS, |object| Paths {
        merge_slashes: object.boolean("mergeSlashes"),
        refuse_encoded_slashes: object.word("encodedSlashes") == Some("refuse"),
        refuse_parameters: object.word("parameters") == Some("refuse"),
    })
}

/// `shutdown`, or the defaults.
pub(super) fn shutdown(root: &Object<'_>) -> Shutdown {
    root.section("shutdown", &SHUTDOWN, |object| Shutdown {
        delay: object.duration("delay", ("PT0S", LONGEST)),
        grace: object.duration("grace", ("PT0S", LONGEST)),
    })
}

/// Every section below the root, for the schema and for tests.
pub(super) fn sections() -> Vec<&'static Section> {
    let mut found = Vec::new();
    ROOT.fields.iter().for_each(|field| inside(&field.shape, &mut found));
    found
}

fn inside(shape: &'static Shape, found: &mut Vec<&'static Section>) {
    match shape {
        Shape::Section(section) => {
            if !found.iter().any(|other| std::ptr::eq(*other, *section)) {
                found.push(section);
            }
            section.fields.iter().for_each(|field| inside(&field.shape, found));
        }
        Shape::List(inner) | Shape::Map(inner) => inside(inner, found),
        Shape::Either(shapes) => shapes.iter().for_each(|shape| inside(shape, found)),
        _ => {}
    }
}
