//! What one configuration load resolves to: values that cannot be wrong. `config` makes them, the proxy
//! serves by them; neither knows how the other does its part.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method};

use crate::language::expr::Program;
use crate::language::value::Value;
pub use crate::proxy::tls::{Secure, ServerTls};
use crate::source::{Node, Span};
pub use crate::telemetry::settings::{Access, BUCKETS, Observed, Tracing, When};

/// A whole configuration, resolved.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `execution.platform.environment`; empty where the file names none.
    pub environment: Arc<str>,
    /// Where to listen. At least one.
    pub listeners: Vec<Listener>,
    /// The admin address.
    pub admin: Option<Admin>,
    /// What is told of requests: the access log, spans, buckets.
    pub observed: Observed,
    /// By name, unique.
    pub upstreams: Vec<Upstream>,
    /// What is done with the fields that say who the client is; `None`: nothing.
    pub forwarded: Option<Forwarded>,
    /// In order: the first match wins. Names are unique.
    pub routes: Vec<Route>,
    /// Bounds on what clients may do and on cleanups.
    pub limits: Limits,
    /// How the process stops.
    pub shutdown: Shutdown,
    /// A short hash of all that was read: `mwl_config_info{hash}`.
    pub hash: Arc<str>,
}

/// One listening address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The address; port 0 lets the system choose.
    pub address: SocketAddr,
    /// How TLS is spoken there; `None`: clear text.
    pub tls: Option<ServerTls>,
}

/// The address for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Where it answers.
    pub address: SocketAddr,
    /// What a request must carry as its bearer token; always there where the address is not a loopback
    /// one.
    pub token: Option<Arc<str>>,
    /// How many executions `/executions` keeps of each kind (default 128).
    pub executions: usize,
}

/// A named set of endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// Its key.
    pub name: Arc<str>,
    /// At least one.
    pub endpoints: Vec<Endpoint>,
    /// What is spoken there (default HTTP/1.1).
    pub protocol: Protocol,
    /// How long a connect may take (default PT1S).
    pub connect_timeout: Duration,
    /// How long a body may stall (default PT60S).
    pub idle_timeout: Duration,
    /// How long an idle connection is kept (default PT4S: below the five seconds after which common
    /// servers close theirs).
    pub keep_alive: Duration,
    /// How many idle connections each worker keeps (default 256).
    pub max_idle: usize,
    /// How long an HTTP/2 connection with requests on it may be silent before it is asked whether it is
    /// still there, and how long it has to answer (default PT0S: it is not
    /// asked, because gRPC servers take frequent questions for abuse).
    pub ping_interval: Duration,
    /// What a longer Retry-After is clamped to (default PT5M).
    pub retry_after_max: Duration,
    /// What a request's `Host` is (default: what the client asked for).
    pub host: HostPolicy,
}

/// Which `Host` an upstream is sent where nothing else is said of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostPolicy {
    /// The client's.
    #[default]
    Preserve,
    /// The endpoint's.
    Upstream,
}

/// Who the client is, and what upstreams are told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forwarded {
    /// Whose word is believed.
    pub trusted: Vec<Cidr>,
    /// Whether `X-Forwarded-For`, `-Proto` and `-Host` are sent.
    pub x_forwarded: bool,
    /// Whether `Forwarded` is.
    pub forwarded: bool,
    /// Whether `Via` is.
    pub via: bool,
}

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    /// Its first.
    pub(super) address: IpAddr,
    /// How many leading bits all of them share.
    pub(super) length: u32,
}

/// What is spoken to an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1: a connection carries one request at a time.
    #[default]
    Http1,
    /// HTTP/2, with prior knowledge or chosen within TLS: a connection carries many.
    Http2,
}

/// Where an upstream answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// A name or an address literal (no brackets).
    pub host: Arc<str>,
    /// The port.
    pub port: u16,
    /// `host:port`, bracketed where an IPv6 literal: what messages and details call it.
    pub authority: Arc<str>,
    /// How TLS is spoken there, and to whom; `None`: clear text. An upstream's endpoints are all of one kind.
    pub tls: Option<Secure>,
}

/// One route.
#[derive(Clone, Debug)]
pub struct Route {
    /// Its name.
    pub name: Arc<str>,
    /// Where it stands.
    pub span: Span,
    /// Which requests.
    pub matches: RouteMatch,
    /// The upstream that its http calls use where they name none.
    pub upstream: Option<Arc<str>>,
    /// What is changed of the path.
    pub rewrite_prefix: Option<PrefixRewrite>,
    /// The `Host` that is sent.
    pub rewrite_host: Option<HeaderValue>,
    /// What is changed of a request's fields.
    pub request_fields: Option<FieldEdits>,
    /// What is changed of an answer's.
    pub response_fields: Option<FieldEdits>,
    /// Tried before the built-in classification.
    pub classify: Vec<ClassifyRule>,
    /// The root Flow, as a definition document: every form of a route is written out as one.
    pub document: Node,
    /// Arguments for the Flow's parameters (literals).
    pub with: Value,
    /// Limits of what is kept in memory.
    pub buffer: Buffer,
    /// Whether problem documents carry the failure chain.
    pub expose_failures: bool,
}

/// Which requests a route takes. Each member present must match; within one, any of the values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteMatch {
    /// Lower-case host names without a port; `*.example.com` stands for any one or more leading labels.
    pub hosts: Vec<Arc<str>>,
    /// The exact path.
    pub path: Option<Arc<str>>,
    /// A path prefix: `/a` takes `/a`, `/a/` and `/a/b`, not `/ab`; `/` takes all.
    pub path_prefix: Option<Arc<str>>,
    /// Methods.
    pub methods: Vec<Method>,
    /// Fields that must be there: with this value, or with any where `None`.
    pub headers: Vec<(HeaderName, Option<Arc<str>>)>,
    /// Query parameters that must be there: with this value, or with any where `None`.
    pub query: Vec<(Arc<str>, Option<Arc<str>>)>,
}

/// A path prefix and what takes its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixRewrite {
    /// The prefix that the route matches, in normal form.
    pub from: Arc<str>,
    /// What stands there instead.
    pub to: Arc<str>,
}

/// Changes of header fields: removed, then set, then appended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldEdits {
    /// Whose every value goes.
    pub remove: Vec<HeaderName>,
    /// Which have this value and no other.
    pub set: Vec<(HeaderName, HeaderValue)>,
    /// Which have this value as well.
    pub append: Vec<(HeaderName, HeaderValue)>,
}

/// One entry of a route's `classify`.
#[derive(Clone, Debug)]
pub struct ClassifyRule {
    /// Statuses, as inclusive ranges: `402` is `(402, 402)`, `5xx` is `(500, 599)`. Empty: any.
    pub status: Vec<(u16, u16)>,
    /// Response fields that must be there.
    pub headers: Vec<(HeaderName, Option<Arc<str>>)>,
    /// A predicate over the root `response` (`status`, `headers`, and `body` where it is read).
    pub when: Option<Program>,
    /// What the response then is.
    pub verdict: Verdict,
}

/// What a `classify` entry makes of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// `success: true`.
    Success,
    /// A failure.
    Failure {
        /// Its code.
        code: Arc<str>,
        /// Its advisory signal; `None` leaves what the built-in table says for the status.
        retryable: Option<bool>,
    },
}

/// What may be kept in memory of bodies, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// A request body that an expression reads (default 1 MiB).
    pub request: usize,
    /// A response body that an expression reads (default 1 MiB).
    pub response: usize,
    /// A request body that a re-run may need (default 64 KiB).
    pub replay: usize,
}

/// Bounds on clients and on cleanups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long a cleanup may run in a teardown (default PT10S).
    pub cleanup: Duration,
    /// How long a request head may take to arrive (default PT30S).
    pub head_timeout: Duration,
    /// How long a kept-alive client connection may idle (default PT75S).
    pub idle_timeout: Duration,
    /// How long a client may neither send nor take a byte of a body that is under way (default PT60S).
    pub body_timeout: Duration,
    /// How long a tunnel may be silent (default PT1H).
    pub tunnel_timeout: Duration,
    /// How large a request head may be, in bytes, its target aside (default 64 KiB).
    pub head_size: usize,
    /// How long a request's target may be, in bytes (default 16 KiB).
    pub target_size: usize,
    /// How many fields a head may have (default 100).
    pub headers: usize,
    /// How many requests one HTTP/2 connection may have open at a time (default 100).
    pub streams: usize,
    /// How many client connections may be open (default 16384).
    pub connections: usize,
    /// How many requests may run at once (default 16384). Each worker takes its share.
    pub requests: usize,
    /// Worker threads (default: one a core).
    pub workers: usize,
}

/// How the process stops on SIGTERM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shutdown {
    /// Between the signal and closing the listeners (default PT0S).
    pub delay: Duration,
    /// How long requests may go on after that (default PT30S).
    pub grace: Duration,
}
