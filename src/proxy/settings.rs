//! The result of loading a configuration: values that are always valid. `config` makes them and the proxy uses
//! them; neither depends on how the other works.

mod certificates;
mod endpoint;
pub mod health;
mod patience;
pub mod store;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method};

pub use self::certificates::{CertificateMatch, SanPattern};
pub use self::endpoint::{Balance, Endpoint, HashKey};
pub use self::patience::{BodyPatience, MinimumRate};
use crate::language::expr::Program;
use crate::language::value::Value;
use crate::proxy::proxy_header::ProxyVersion;
use crate::proxy::tls::ServerTls;
use crate::source::{Node, Span};
use crate::telemetry::settings::TelemetrySettings;

/// A whole configuration.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `execution.platform.environment`; empty if the file sets none.
    pub environment: Arc<str>,
    /// The listening addresses. At least one.
    pub listeners: Vec<Listener>,
    /// The admin address.
    pub admin: Option<Admin>,
    /// Which records of requests to write, and where.
    pub observed: TelemetrySettings,
    /// By name, unique.
    pub upstreams: Vec<Upstream>,
    /// By name, unique.
    pub stores: Vec<store::Store>,
    /// How the fields about the client are handled; `None` leaves them unchanged.
    pub forwarded: Option<Forwarded>,
    /// The field of every answer that carries the execution's id.
    pub request_id: Option<HeaderName>,
    /// What paths mean, and which are refused.
    pub paths: Paths,
    /// In order: the first match wins. Names are unique.
    pub routes: Vec<Route>,
    /// Bounds on what clients may do and on cleanups.
    pub limits: Limits,
    /// How the process stops.
    pub shutdown: Shutdown,
    /// A short hash of everything that was read: `mwl_config_info{hash}`.
    pub hash: Arc<str>,
}

/// One listening address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The address; port 0 lets the system choose.
    pub address: SocketAddr,
    /// The peers whose connections begin with a PROXY header: none by default.
    pub proxies: Vec<Cidr>,
    /// The TLS settings; `None` means clear text.
    pub tls: Option<ServerTls>,
}

/// The admin address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// The address.
    pub address: SocketAddr,
    /// The bearer token that a request must carry. Always set if the address is not a loopback one.
    pub token: Option<Arc<str>>,
    /// How many executions `/executions` keeps of each kind (default 128).
    pub executions: usize,
}

/// A named set of endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// Its name, the key in the file.
    pub name: Arc<str>,
    /// At least one.
    pub endpoints: Vec<Endpoint>,
    /// Which of them gets the next request (default: the one of two with fewer requests).
    pub balance: Balance,
    /// The protocol (default HTTP/1.1).
    pub protocol: Protocol,
    /// The version of the PROXY header with which connections begin, if they do.
    pub proxy_protocol: Option<ProxyVersion>,
    /// How long connecting may take (default PT1S).
    pub connect_timeout: Duration,
    /// How long a body may stall (default PT60S).
    pub idle_timeout: Duration,
    /// How long an idle connection is kept. The default of PT4S is below the five seconds after which common
    /// servers close theirs.
    pub keep_alive: Duration,
    /// How many idle connections each worker keeps (default 256).
    pub max_idle: usize,
    /// How many requests may be at the upstream at once, over all workers (default 1024).
    pub max_requests: usize,
    /// How long one more waits for a place (default PT1S).
    pub max_wait: Duration,
    /// How many re-runs after its failures are allowed; `None`: as many as policies ask for.
    pub retry_budget: Option<RetryBudget>,
    /// How long an HTTP/2 connection with running requests may carry nothing before it is sent a PING, and how long
    /// the answer may take. The default of PT0S sends none, because gRPC servers treat frequent PINGs as abuse.
    pub ping_interval: Duration,
    /// How long an attempt waits for the head of its response; zero is for ever.
    pub response_timeout: Duration,
    /// The upper bound for a Retry-After (default PT5M).
    pub retry_after_max: Duration,
    /// The `Host` of a request (default: the client's).
    pub host: HostPolicy,
    /// The limits of a response's head, which are those of a request's.
    pub heads: HeadLimits,
    /// Active checks of its endpoints.
    pub health: Option<health::Health>,
    /// Passive ejection of its endpoints.
    pub ejection: Option<health::Ejection>,
}

/// How many re-runs an upstream's requests allow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryBudget {
    /// The share of the requests of the window, from 0 to 1 (default 0.2).
    pub share: f64,
    /// What is allowed whatever that share is (default 10).
    pub min_per_second: u32,
    /// Over how long it is counted (default PT10S).
    pub window: Duration,
}

/// The share is a number from 0 to 1.
impl Eq for RetryBudget {}

/// The limits of a head. They apply to the message, and are the same in both protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// The most bytes of all fields together.
    pub size: usize,
    /// The most fields.
    pub fields: usize,
}

/// Which `Host` an upstream gets by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostPolicy {
    /// The client's.
    #[default]
    Preserve,
    /// The endpoint's.
    Upstream,
}

/// How routes read paths, and which paths are refused besides those that always are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    /// Whether repeated slashes count as one in matching.
    pub merge_slashes: bool,
    /// Whether a path with an encoded slash, or with a backslash, is refused.
    pub refuse_encoded_slashes: bool,
    /// Whether a path whose segments have parameters (`;…`) is refused.
    pub refuse_parameters: bool,
}

/// How the client's address is found, and which fields tell it to upstreams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forwarded {
    /// The addresses whose fields are trusted.
    pub trusted: Vec<Cidr>,
    /// Whether `X-Forwarded-For`, `-Proto` and `-Host` are sent.
    pub x_forwarded: bool,
    /// Whether `Forwarded` is sent.
    pub forwarded: bool,
    /// Whether `Via` is sent.
    pub via: bool,
}

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    /// Its first address.
    pub(super) address: IpAddr,
    /// How many leading bits are fixed.
    pub(super) length: u32,
}

/// The protocol to an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1: a connection carries one request at a time.
    #[default]
    Http1,
    /// HTTP/2, with prior knowledge or chosen by TLS: a connection carries many requests at once.
    Http2,
}

/// One route.
#[derive(Clone, Debug)]
pub struct Route {
    /// Its name.
    pub name: Arc<str>,
    /// Its place in the file.
    pub span: Span,
    /// Which requests it matches.
    pub matches: RouteMatch,
    /// The upstream of its http calls that name none.
    pub upstream: Option<Arc<str>>,
    /// The change to the path.
    pub rewrite_prefix: Option<PrefixRewrite>,
    /// The `Host` to send.
    pub rewrite_host: Option<HeaderValue>,
    /// The changes to a request's fields.
    pub request_fields: Option<FieldEdits>,
    /// The changes to an answer's fields.
    pub response_fields: Option<FieldEdits>,
    /// Tried before the built-in classification.
    pub classify: Vec<ClassifyRule>,
    /// The root Flow as a definition: every form of a route becomes one.
    pub document: Node,
    /// Arguments for the Flow's parameters (literals).
    pub with: Value,
    /// How much of bodies may be kept in memory.
    pub buffer: Buffer,
    /// Whether problem documents contain the failure chain.
    pub expose_failures: bool,
}

/// Which requests a route matches. Every member that is set must match, with any one of its values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteMatch {
    /// Host names in lower case without a port. `*.example.com` matches one or more labels before `.example.com`.
    pub hosts: Vec<Arc<str>>,
    /// The exact path.
    pub path: Option<Arc<str>>,
    /// A path prefix: `/a` matches `/a`, `/a/` and `/a/b`, but not `/ab`; `/` matches everything.
    pub path_prefix: Option<Arc<str>>,
    /// Methods.
    pub methods: Vec<Method>,
    /// Fields that must be present. `None` means any value.
    pub headers: Vec<(HeaderName, Option<Arc<str>>)>,
    /// Query parameters that must be present. `None` means any value.
    pub query: Vec<(Arc<str>, Option<Arc<str>>)>,
    /// The client's certificate, which must be present.
    pub certificate: Option<CertificateMatch>,
}

/// A path prefix and its replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixRewrite {
    /// The prefix that the route matches, in normal form.
    pub from: Arc<str>,
    /// The replacement.
    pub to: Arc<str>,
}

/// Changes of header fields: removed, then set, then appended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldEdits {
    /// Fields to remove.
    pub remove: Vec<HeaderName>,
    /// Fields that get this value and lose any other.
    pub set: Vec<(HeaderName, HeaderValue)>,
    /// Fields that get this value beside any other.
    pub append: Vec<(HeaderName, HeaderValue)>,
}

/// One entry of a route's `classify`.
#[derive(Clone, Debug)]
pub struct ClassifyRule {
    /// Statuses, as inclusive ranges: `402` is `(402, 402)`, `5xx` is `(500, 599)`. Empty: any.
    pub status: Vec<(u16, u16)>,
    /// Response fields that must be present.
    pub headers: Vec<(HeaderName, Option<Arc<str>>)>,
    /// A condition on `response` (`status`, `headers`, and `body` if it is read).
    pub when: Option<Program>,
    /// What the response then means.
    pub verdict: Verdict,
}

/// The meaning that a `classify` entry gives a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// `success: true`.
    Success,
    /// A failure.
    Failure {
        /// Its code.
        code: Arc<str>,
        /// Whether a retry may help; `None` means that the built-in table decides by the status.
        retryable: Option<RuledRetryable>,
    },
}

/// What a `classify` entry says of `retryable`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuledRetryable {
    /// This.
    Is(bool),
    /// `byMethod`: whether the request is idempotent or has an `Idempotency-Key`.
    ByMethod,
}

/// How much of bodies may be kept in memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Of a request body that an expression reads (default 1 MiB).
    pub request: usize,
    /// Of a response body that an expression reads (default 1 MiB).
    pub response: usize,
    /// Of a request body that a re-run may need (default 64 KiB).
    pub replay: usize,
}

/// Bounds on clients and on cleanups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long a cleanup may run during a teardown (default PT10S).
    pub cleanup: Duration,
    /// How long a request head may take to arrive (default PT30S).
    pub head_timeout: Duration,
    /// How long a client connection may stay idle (default PT75S).
    pub idle_timeout: Duration,
    /// How long a client may stall while a body is sent or read (default PT60S).
    pub body_timeout: Duration,
    /// How many bytes a second a client must send of a head or a body, or take of an answer (default: no minimum).
    pub minimum_rate: Option<MinimumRate>,
    /// How long an upgraded connection may carry nothing (default PT1H).
    pub tunnel_timeout: Duration,
    /// How large a head may be, in bytes, not counting a request's target (default 64 KiB).
    pub head_size: usize,
    /// How long a request's target may be, in bytes (default 16 KiB).
    pub target_size: usize,
    /// How many fields a head may have, of a request or an answer (default 100).
    pub headers: usize,
    /// How many requests one HTTP/2 connection may have open at a time (default 100).
    pub streams: usize,
    /// How many client connections may be open (default 16384).
    pub connections: usize,
    /// Whether the configuration says how many.
    pub connections_given: bool,
    /// How many requests may run at once (default 16384). Each worker takes its share.
    pub requests: usize,
    /// How many executions may go on after their clients have left (default 1024).
    pub cleanups: usize,
    /// What all bodies together may keep in memory, in bytes (default 256 MiB).
    pub buffered_bytes: usize,
    /// Worker threads (default: one per core).
    pub workers: usize,
}

impl Limits {
    /// The limits of a head, not counting a request's target.
    pub const fn heads(&self) -> HeadLimits {
        HeadLimits { size: self.head_size, fields: self.headers }
    }
}

/// How the process stops on SIGTERM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shutdown {
    /// The time between the signal and the closing of the listeners (default PT0S).
    pub delay: Duration,
    /// How long requests may continue after that (default PT30S).
    pub grace: Duration,
}

impl Limits {
    /// For the bodies of requests.
    pub const fn body_patience(&self) -> BodyPatience {
        BodyPatience { stall: self.body_timeout, rate: self.minimum_rate }
    }
}
