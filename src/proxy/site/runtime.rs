//! One configuration, ready to serve: the route table, each route's plan, the upstreams' settings.
//!
//! It is immutable. A reload makes a new one and swaps the two; a request keeps the one with which it began.
//! Things that outlive a configuration (connections, counters) are kept elsewhere.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, OnceLock};

use ::http::{HeaderName, HeaderValue};
use tokio::time::Instant;

use super::facts::Facts;
use super::route::Router;
use crate::language::plan::{Calls, Plan};
use crate::language::provider::RerunGate;
use crate::language::provider::middleware::retry::SWITCHED_OFF;
use crate::language::value::Value;
use crate::proxy::memory::Parsers;
use crate::proxy::proxy_header::receive::{HeaderFailure, ReceiveError};
use crate::proxy::settings::{
    Buffer, Cidr, ClassifyRule, FieldEdits, Forwarded, Limits, Paths, PrefixRewrite, Shutdown,
};
use crate::proxy::stage::Stage;
use crate::proxy::tls::{self, ServerTls};
use crate::proxy::upstream::resolve::Resolve;
use crate::proxy::upstream::shared::SharedUpstream;
use crate::proxy::upstream::summary::UpstreamSummary;
use crate::telemetry::limiter::ReasonLimiter;
use crate::telemetry::metrics::{BufferMetrics, RefusalMetrics, RouteMetrics};
use crate::telemetry::sinks::Sinks;
use crate::telemetry::switches::{Switch, Switches};

/// Serves requests.
#[derive(Debug)]
pub struct Runtime {
    pub(crate) environment: Arc<str>,
    pub(crate) listeners: Vec<ListenAddress>,
    pub(crate) limits: Limits,
    pub(crate) shutdown: Shutdown,
    pub(crate) router: Router,
    /// In the router's order.
    pub(crate) routes: Vec<Arc<Route>>,
    pub(crate) upstreams: Vec<Arc<SharedUpstream>>,
    /// Resolves the names of endpoints.
    pub(crate) resolver: Arc<dyn Resolve>,
    /// In a rehearsal, replaces the upstreams.
    pub(crate) stage: Option<Arc<Stage>>,
    /// How many requests a worker may serve at once: its share of `limits.requests`.
    pub(crate) share: usize,
    /// How many executions a worker may let go on without their clients: its share of `limits.cleanups`.
    pub(crate) cleanups: usize,
    pub(crate) forwarded: Option<Forwarded>,
    /// The field of every answer that carries the execution's id.
    pub(crate) request_id: Option<HeaderName>,
    pub(crate) paths: Paths,
    /// Whether an upstream is to be told the ends of clients' connections.
    pub(crate) introduces: bool,
    /// Whether this proxy adds itself to `Via`.
    pub(crate) via: bool,
    pub(crate) refusals: RefusalMetrics,
    pub(crate) buffers: BufferMetrics,
    pub(crate) parsers: Parsers,
    pub(crate) hash: Arc<str>,
    /// Who gets the records of requests. Set before it serves.
    pub(crate) sinks: OnceLock<Sinks>,
}

/// One listening address.
#[derive(Debug)]
pub(crate) struct ListenAddress {
    pub(crate) address: SocketAddr,
    /// From whom connections begin with a PROXY header, if from anybody.
    pub(crate) proxies: Option<Arc<ListenerProxies>>,
    /// The TLS settings, if any.
    pub(crate) tls: Option<Arc<ListenerTls>>,
}

/// The peers of a listener whose connections begin with a PROXY header.
#[derive(Debug)]
pub(crate) struct ListenerProxies {
    pub(crate) trusted: Vec<Cidr>,
    /// `mwl_proxy_protocol_failures_total`, in the order of [`HeaderFailure::ALL`].
    pub(crate) failures: RefusalMetrics,
}

/// A listener's TLS.
#[derive(Debug)]
pub(crate) struct ListenerTls {
    pub(crate) tls: ServerTls,
    /// `mwl_tls_handshakes_total`: full ones, and those that resumed a session.
    pub(crate) done: RefusalMetrics,
    /// `mwl_tls_handshake_failures_total`, in the order of [`tls::TlsFailure::ALL`].
    pub(crate) failures: RefusalMetrics,
}

/// For a runtime whose requests nobody records.
static NOBODY: LazyLock<Sinks> = LazyLock::new(Sinks::default);

/// One route, ready to run.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) name: Arc<str>,
    pub(crate) plan: Arc<Plan>,
    /// The arguments for the Flow's parameters.
    pub(crate) with: Value,
    /// Changes to requests and answers, if there are any.
    pub(crate) shaping: Option<Box<Shaping>>,
    pub(crate) classify: Vec<ClassifyRule>,
    pub(crate) buffer: Buffer,
    pub(crate) expose_failures: bool,
    pub(crate) facts: Facts,
    pub(crate) metrics: Arc<RouteMetrics>,
    /// Set while an operator wants no retries.
    pub(crate) no_retries: Arc<Switch>,
}

/// The changes that a route makes to messages. At least one.
#[derive(Debug)]
pub(crate) struct Shaping {
    pub(crate) prefix: Option<PrefixRewrite>,
    pub(crate) host: Option<HeaderValue>,
    pub(crate) request: Option<FieldEdits>,
    pub(crate) response: Option<FieldEdits>,
}

impl Runtime {
    /// Replaces the system's resolver of endpoint names by `resolver`.
    #[must_use]
    pub fn resolved_by(self, resolver: Arc<dyn Resolve>) -> Self {
        Self { resolver, ..self }
    }

    /// `mwl_config_info{hash}`.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// The listeners with TLS, each with the time when its certificates expire, in seconds since the Unix epoch.
    pub fn certificates(&self) -> impl Iterator<Item = (SocketAddr, f64)> {
        let until = |listened: &Arc<ListenerTls>| {
            #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
            let nanos = listened.tls.valid_until().as_nanos() as f64;
            nanos / 1e9
        };
        self.listeners.iter().filter_map(move |l| Some((l.address, until(l.tls.as_ref()?))))
    }

    /// The upstreams at this moment, with their endpoints.
    pub fn upstream_summaries(&self) -> Vec<UpstreamSummary> {
        self.upstreams.iter().map(|upstream| upstream.summary()).collect()
    }

    /// Drains the endpoints of this name, or restores them. Returns how many there are; `None` if there is no such upstream.
    pub fn drain(
        &self,
        switches: &Arc<Switches>,
        upstream: &str,
        endpoint: &str,
        drains: bool,
    ) -> Option<usize> {
        let found = self.upstreams.iter().find(|known| &*known.settings.name == upstream);
        found.map(|found| found.drain(switches, endpoint, drains))
    }

    /// The routes' plans, in order.
    pub fn plans(&self) -> impl Iterator<Item = &Plan> {
        self.routes.iter().map(|route| &*route.plan)
    }

    /// The most provider calls that each route makes for one request, including those of cleanups.
    pub fn most_calls(&self) -> impl Iterator<Item = (&str, Calls)> {
        self.routes.iter().map(|route| (route.name.as_ref(), route.plan.most_calls()))
    }

    /// Delivers the records of its requests to `sinks`. Called once, before it serves.
    pub fn tell(&self, sinks: Sinks) {
        if self.sinks.set(sinks).is_err() {
            tracing::error!("A configuration tells those of its requests whom it told before.");
        }
    }

    /// Who gets the records of requests.
    pub(crate) fn sinks(&self) -> &Sinks {
        self.sinks.get().unwrap_or_else(|| &NOBODY)
    }

    /// The addresses for clients as configured, in order.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().map(|listener| listener.address).collect()
    }

    /// How the process stops.
    pub fn shutdown(&self) -> &Shutdown {
        &self.shutdown
    }
}

impl RerunGate for Route {
    fn closed(&self) -> Option<&'static str> {
        self.no_retries.is_set().then_some(SWITCHED_OFF)
    }
}

impl ListenerProxies {
    /// Whether the connections of this peer begin with a header.
    pub(crate) fn has(&self, peer: SocketAddr) -> bool {
        self.trusted.iter().any(|range| range.contains(peer.ip()))
    }

    /// A connection of `peer` did not begin with a header. Of each reason, `told` admits one now and then. A peer that
    /// just closes the connection is not logged: it is a health check.
    pub(crate) fn refused(&self, peer: SocketAddr, refused: &ReceiveError, told: &ReasonLimiter) {
        self.failures.count(refused.reason as usize);
        let (reason, detail) = (refused.reason.as_str(), refused);
        if refused.reason == HeaderFailure::Closed {
            tracing::debug!(%peer, reason, %detail, "A connection had no PROXY header.");
        } else if let Some(untold) = told.admits(refused.reason as usize, Instant::now()) {
            tracing::info!(%peer, reason, %detail, untold, "A connection had no PROXY header.");
        }
    }
}

impl ListenerTls {
    /// A client's handshake has failed. Of each reason, `told` admits one now and then. A client that just closes the
    /// connection is not logged: it is a health check or a scan.
    pub(crate) fn refused(
        &self,
        client: SocketAddr,
        refused: &tls::HandshakeError,
        told: &ReasonLimiter,
    ) {
        self.failures.count(refused.reason as usize);
        let (reason, detail) = (refused.reason.as_str(), refused);
        match refused.reason {
            tls::TlsFailure::Closed | tls::TlsFailure::Timeout => {
                tracing::debug!(%client, reason, %detail, "A TLS handshake came to nothing.");
            }
            _ => {
                if let Some(untold) = told.admits(refused.reason as usize, Instant::now()) {
                    tracing::info!(%client, reason, %detail, untold, "A TLS handshake came to nothing.");
                }
            }
        }
    }
}
