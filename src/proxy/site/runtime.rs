//! One configuration, ready to serve: the route table, each route's plan, the upstreams' settings.
//!
//! Immutable. A reload makes a new one beside it and swaps the two; a request keeps the one that it
//! began with. What lives longer than a configuration (connections, counters) lives elsewhere.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, OnceLock};

use ::http::HeaderValue;

use super::facts::Facts;
use super::route::Router;
use crate::language::plan::{Calls, Plan};
use crate::language::value::Value;
use crate::proxy::message::refusal::Reason;
use crate::proxy::settings::{
    self, Buffer, ClassifyRule, FieldEdits, Forwarded, Limits, PrefixRewrite, Shutdown,
};
use crate::proxy::stage::Stage;
use crate::proxy::tls::{self, ServerTls};
use crate::proxy::upstream::resolve::Resolve;
use crate::telemetry::metrics::{RefusalMetrics, RouteMetrics, UpstreamMetrics};
use crate::telemetry::sinks::Sinks;

/// What serves requests.
#[derive(Debug)]
pub struct Runtime {
    pub(crate) environment: Arc<str>,
    pub(crate) listeners: Vec<Listening>,
    pub(crate) limits: Limits,
    pub(crate) shutdown: Shutdown,
    pub(crate) router: Router,
    /// In the router's order.
    pub(crate) routes: Vec<Arc<Route>>,
    pub(crate) upstreams: Vec<(Arc<settings::Upstream>, Arc<UpstreamMetrics>)>,
    /// Who says which addresses the names of endpoints have.
    pub(crate) resolver: Arc<dyn Resolve>,
    /// In a rehearsal, what stands in for the upstreams.
    pub(crate) stage: Option<Arc<Stage>>,
    /// How many requests a worker may serve at once: its share of `limits.requests`.
    pub(crate) share: usize,
    pub(crate) forwarded: Option<Forwarded>,
    pub(crate) refusals: RefusalMetrics,
    pub(crate) hash: Arc<str>,
    /// Who is told of requests; set before it serves.
    pub(crate) sinks: OnceLock<Sinks>,
}

/// One listening address.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) address: SocketAddr,
    /// Where TLS is spoken.
    pub(crate) tls: Option<Arc<Listened>>,
}

/// A listener's TLS.
#[derive(Debug)]
pub(crate) struct Listened {
    pub(crate) tls: ServerTls,
    /// `mwl_tls_handshake_failures_total`, by the places of [`tls::Reason::ALL`].
    pub(crate) failures: RefusalMetrics,
}

/// Where nobody is told of anything.
static NOBODY: LazyLock<Sinks> = LazyLock::new(Sinks::default);

/// One route, ready to run.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) name: Arc<str>,
    pub(crate) plan: Arc<Plan>,
    /// Arguments for the Flow's parameters.
    pub(crate) with: Value,
    /// What is changed of requests and of answers, where anything is.
    pub(crate) shaping: Option<Box<Shaping>>,
    pub(crate) classify: Vec<ClassifyRule>,
    pub(crate) buffer: Buffer,
    pub(crate) expose_failures: bool,
    pub(crate) facts: Facts,
    pub(crate) metrics: Arc<RouteMetrics>,
}

/// What a route changes of its messages. At least one thing.
#[derive(Debug)]
pub(crate) struct Shaping {
    pub(crate) prefix: Option<PrefixRewrite>,
    pub(crate) host: Option<HeaderValue>,
    pub(crate) request: Option<FieldEdits>,
    pub(crate) response: Option<FieldEdits>,
}

impl Runtime {
    /// Has `resolver` say which addresses the names of endpoints have, in place of the system's.
    #[must_use]
    pub fn resolved_by(self, resolver: Arc<dyn Resolve>) -> Self {
        Self { resolver, ..self }
    }

    /// `mwl_config_info{hash}`.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// The listeners that speak TLS, each with the time until which its certificates are valid, in seconds since
    /// the Unix epoch.
    pub fn certificates(&self) -> impl Iterator<Item = (SocketAddr, f64)> {
        let until = |listened: &Arc<Listened>| {
            #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
            let nanos = listened.tls.valid_until().as_nanos() as f64;
            nanos / 1e9
        };
        self.listeners.iter().filter_map(move |l| Some((l.address, until(l.tls.as_ref()?))))
    }

    /// The routes' plans, in order.
    pub fn plans(&self) -> impl Iterator<Item = &Plan> {
        self.routes.iter().map(|route| &*route.plan)
    }

    /// The most calls of providers, cleanups' included, that each route makes for one request.
    pub fn most_calls(&self) -> impl Iterator<Item = (&str, Calls)> {
        self.routes.iter().map(|route| (route.name.as_ref(), route.plan.most_calls()))
    }

    /// Tells `sinks` of its requests: said once, before it serves.
    pub fn tell(&self, sinks: Sinks) {
        if self.sinks.set(sinks).is_err() {
            tracing::error!("A configuration tells those of its requests whom it told before.");
        }
    }

    /// Who is told of requests.
    pub(crate) fn sinks(&self) -> &Sinks {
        self.sinks.get().unwrap_or_else(|| &NOBODY)
    }

    /// Counts a request that no Flow ran for, and says why in the log.
    pub(crate) fn refused(&self, reason: Reason, client: SocketAddr, detail: &dyn fmt::Display) {
        self.refusals.count(reason as usize);
        tracing::info!(%client, reason = reason.as_str(), %detail, "A request was refused.");
    }

    /// How the process stops.
    pub fn shutdown(&self) -> &Shutdown {
        &self.shutdown
    }
}

impl Listened {
    /// A client's handshake has come to nothing. Who opens a connection and leaves it at that is a health check or
    /// a scan, and no news.
    pub(crate) fn refused(&self, client: SocketAddr, refused: &tls::Refused) {
        self.failures.count(refused.reason as usize);
        let (reason, detail) = (refused.reason.as_str(), refused);
        match refused.reason {
            tls::Reason::Closed | tls::Reason::Timeout => {
                tracing::debug!(%client, reason, %detail, "A TLS handshake came to nothing.");
            }
            _ => tracing::info!(%client, reason, %detail, "A TLS handshake came to nothing."),
        }
    }
}
