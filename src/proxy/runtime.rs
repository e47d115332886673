//! One configuration, ready to serve: the route table, each route's plan, the upstreams' settings.
//!
//! Immutable. A reload makes a new one beside it and swaps the two; a request keeps the one that it
//! began with. What lives longer than a configuration (connections, counters) lives elsewhere.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, OnceLock};

use ::http::HeaderValue;

use super::facts::Facts;
use super::provider::http::HttpProvider;
use super::refusal::Reason;
use super::rehearsal::Stage;
use super::route::Router;
use super::settings::{
    self, Buffer, ClassifyRule, FieldEdits, Forwarded, Limits, Listener, PrefixRewrite, ServerTls,
    Settings, Shutdown, Verdict,
};
use super::tls;
use super::upstream::resolve::{Resolve, System};
use crate::language::definition::{Known, Strictness, compile_beside};
use crate::language::plan::{Calls, Plan};
use crate::language::provider::{CallProvider, Catalog};
use crate::language::value::Value;
use crate::source::{Diagnostic, Diagnostics, Span};
use crate::telemetry::metrics::{Metrics, RefusalMetrics, RouteMetrics, UpstreamMetrics};
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
    refusals: RefusalMetrics,
    hash: Arc<str>,
    /// Who is told of requests; set before it serves.
    sinks: OnceLock<Sinks>,
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
    failures: RefusalMetrics,
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

impl Shaping {
    fn of(
        prefix: Option<PrefixRewrite>,
        host: Option<HeaderValue>,
        request: Option<FieldEdits>,
        response: Option<FieldEdits>,
    ) -> Option<Box<Self>> {
        let any = prefix.is_some() || host.is_some() || request.is_some() || response.is_some();
        any.then(|| Box::new(Self { prefix, host, request, response }))
    }
}

impl Runtime {
    /// Compiles every route of `settings` against `catalog`, to which each route's own http provider is
    /// added. The `Ok` carries warnings; the `Err` everything that was found, in all routes.
    pub fn build(
        settings: Settings,
        catalog: &Catalog,
        metrics: &Arc<Metrics>,
    ) -> Result<(Self, Diagnostics), Diagnostics> {
        Self::build_on(settings, catalog, metrics, None)
    }

    /// The same, and where there is a `stage`, before its upstreams and with it as an observer.
    pub(crate) fn build_on(
        settings: Settings,
        catalog: &Catalog,
        metrics: &Arc<Metrics>,
        stage: Option<Arc<Stage>>,
    ) -> Result<(Self, Diagnostics), Diagnostics> {
        let Settings {
            environment,
            listeners,
            admin: _,
            observed: _,
            upstreams,
            forwarded,
            routes,
            limits,
            shutdown,
            hash,
        } = settings;
        let upstreams: Vec<_> = upstreams
            .into_iter()
            .map(|upstream| (metrics.upstream(&upstream.name), Arc::new(upstream)))
            .map(|(metrics, upstream)| (upstream, metrics))
            .collect();
        let names: HashMap<Arc<str>, usize> = upstreams
            .iter()
            .enumerate()
            .map(|(position, (upstream, _))| (Arc::clone(&upstream.name), position))
            .collect();
        let mut builder = Builder {
            catalog,
            metrics,
            names: Arc::new(names),
            stage: stage.as_ref(),
            known: Known::default(),
        };
        let mut found = Diagnostics::default();
        let mut built = Vec::new();
        let mut table = Vec::new();
        for route in routes {
            table.push(route.matches.clone());
            match builder.route(route) {
                Ok((route, warnings)) => {
                    built.push(Arc::new(route));
                    found.0.extend(warnings.0);
                }
                Err(errors) => found.0.extend(errors.0),
            }
        }
        if found.has_errors() {
            return Err(found);
        }
        let runtime = Self {
            environment,
            listeners: listeners.into_iter().map(|l| Listening::of(l, metrics)).collect(),
            share: limits.requests.div_ceil(limits.workers.max(1)).max(1),
            refusals: metrics.refusals(&Reason::ALL.map(Reason::as_str)),
            forwarded,
            limits,
            shutdown,
            router: Router::new(table),
            routes: built,
            upstreams,
            resolver: Arc::new(System),
            stage,
            hash,
            sinks: OnceLock::new(),
        };
        Ok((runtime, found))
    }

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

impl Listening {
    fn of(listener: Listener, metrics: &Metrics) -> Self {
        let Listener { address, tls } = listener;
        let tls = tls.map(|tls| {
            let failures = metrics
                .handshakes(&address.to_string(), &tls::Reason::ALL.map(tls::Reason::as_str));
            Arc::new(Listened { tls, failures })
        });
        Self { address, tls }
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

/// What every route is built with.
struct Builder<'a> {
    catalog: &'a Catalog,
    metrics: &'a Arc<Metrics>,
    names: Arc<HashMap<Arc<str>, usize>>,
    stage: Option<&'a Arc<Stage>>,
    known: Known,
}

impl Builder<'_> {
    fn route(&mut self, route: settings::Route) -> Result<(Route, Diagnostics), Diagnostics> {
        let settings::Route {
            name,
            span,
            matches: _,
            upstream,
            rewrite_prefix,
            rewrite_host,
            request_fields,
            response_fields,
            classify,
            document,
            with,
            buffer,
            expose_failures,
        } = route;
        let default = upstream.and_then(|name| self.names.get(&name).copied());
        let provider = HttpProvider::new(Arc::clone(&self.names), default);
        let mut catalog = self.catalog.clone();
        let provider: Arc<dyn CallProvider> = match self.stage {
            Some(_) => Stage::cued(provider),
            None => Arc::new(provider),
        };
        let uri = provider.contract().uri.clone();
        catalog.add_call(provider).map_err(|error| refused(span, &error.to_string()))?;
        let classified = classify.iter().filter_map(|rule| match &rule.verdict {
            Verdict::Failure { code, .. } => Some(code.as_ref().to_owned()),
            Verdict::Success => None,
        });
        catalog.settle(uri, classified);
        let (plan, warnings) =
            compile_beside(&document, &catalog, Strictness::Load, &mut self.known)?;
        let mut facts = Facts::of(&plan);
        for program in classify.iter().filter_map(|rule| rule.when.as_ref()) {
            facts.read_by(program);
        }
        let written = plan.codes();
        let metrics = self.metrics.route(&name, &codes(&catalog, &classify, &written));
        if facts.unwinds {
            metrics.cleans_up();
        }
        let route = Route {
            name,
            plan,
            with,
            shaping: Shaping::of(rewrite_prefix, rewrite_host, request_fields, response_fields),
            classify,
            buffer,
            expose_failures,
            facts,
            metrics,
        };
        Ok((route, warnings))
    }
}

/// Every code that a label may name; some of them twice.
fn codes<'a>(
    catalog: &'a Catalog,
    classify: &'a [ClassifyRule],
    written: &'a BTreeSet<Arc<str>>,
) -> Vec<&'a str> {
    let closed = catalog.contracts().flat_map(|contract| &contract.closed);
    let mut codes: Vec<&str> = closed.map(String::as_str).collect();
    codes.extend(crate::language::code::system::ALL);
    for rule in classify {
        if let Verdict::Failure { code, .. } = &rule.verdict {
            codes.push(code);
        }
    }
    codes.extend(written.iter().map(|code| &**code));
    codes
}

fn refused(span: Span, message: &str) -> Diagnostics {
    Diagnostics(vec![Diagnostic::error("catalog", span, message)])
}
