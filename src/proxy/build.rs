//! Makes a configuration ready to serve: compiles each route's document with the route's own catalog.

mod breakers;
mod credentials;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ::http::HeaderValue;

use self::breakers::DeafBreakers;
use super::memory::Parsers;
use super::message::refusal::Reason;
use super::middleware::EntryHost;
use super::provider::http::{HttpProvider, RouteFacts, UpstreamFacts};
use super::proxy_header::receive::HeaderFailure;
use super::settings::{
    self, ClassifyRule, FieldEdits, Listener, Paths, PrefixRewrite, Settings, Verdict,
};
use super::site::facts::Facts;
use super::site::route::Router;
use super::site::runtime::{ListenAddress, ListenerProxies, ListenerTls, Route, Runtime, Shaping};
use super::stage::Stage;
use super::store::Stores;
use super::tls;
use super::upstream::resolve::System;
use super::upstream::shared::{SharedUpstream, UpstreamRegistry};
use crate::language::definition::{PreparedCache, Strictness, compile_with_cache};
use crate::language::provider::{CallProvider, Catalog};
use crate::source::{Diagnostic, Diagnostics, Span};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::switches::SwitchKind;

impl Runtime {
    /// Compiles every route of `settings` with `catalog`, to which each route's own http provider is added.
    /// What is known about upstreams comes from `known`, and stays there.
    /// `Ok` contains warnings, `Err` everything that was found in all routes.
    pub fn build(
        settings: Settings,
        catalog: &Catalog,
        metrics: &Arc<Metrics>,
        known: &UpstreamRegistry,
    ) -> Result<(Self, Diagnostics), Diagnostics> {
        Self::build_on(settings, catalog, metrics, known, None)
    }

    /// The same, but with a `stage` as the upstreams and as an observer, if given.
    pub(crate) fn build_on(
        settings: Settings,
        catalog: &Catalog,
        metrics: &Arc<Metrics>,
        known: &UpstreamRegistry,
        stage: Option<Arc<Stage>>,
    ) -> Result<(Self, Diagnostics), Diagnostics> {
        let Settings {
            environment,
            listeners,
            admin: _,
            observed: _,
            upstreams,
            stores,
            forwarded,
            request_id,
            paths,
            routes,
            limits,
            shutdown,
            hash,
        } = settings;
        let stores = Stores::of(stores, metrics);
        let upstreams: Vec<_> =
            upstreams.into_iter().map(|upstream| known.upstream(upstream, metrics)).collect();
        let names = upstreams.iter().map(|shared| Arc::clone(&shared.settings.name));
        let names: HashMap<Arc<str>, usize> = names.zip(0..).collect();
        let responds = upstreams.iter().map(|shared| shared.settings.response_timeout);
        let facts = upstreams.iter().map(|shared| UpstreamFacts::of(&shared.settings));
        let mut builder = Builder {
            facts: facts.collect(),
            responds: responds.collect(),
            catalog,
            metrics,
            names: Arc::new(names),
            stage: stage.as_ref(),
            paths,
            cache: PreparedCache::default(),
            deaf: DeafBreakers::default(),
            host: Arc::new(EntryHost::new(metrics, stores, stage.is_some())),
        };
        let (mut built, mut table) = (Vec::new(), Vec::new());
        let mut found = Diagnostics::default();
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
        found.0.extend(builder.deaf.told());
        let found = builder.cache.settle(found);
        if found.has_errors() {
            return Err(found);
        }
        let share = |all: usize| all.div_ceil(limits.workers.max(1)).max(1);
        let may_return = may_return(&listeners, &upstreams);
        let runtime = Self {
            environment,
            listeners: listeners.into_iter().map(|l| ListenAddress::of(l, metrics)).collect(),
            share: share(limits.requests),
            cleanups: share(limits.cleanups),
            buffers: metrics.buffers(),
            introduces: upstreams.iter().any(|shared| shared.settings.proxy_protocol.is_some()),
            parsers: match &stage {
                Some(_) => Parsers::in_place(),
                None => Parsers::beside(limits.workers),
            },
            refusals: metrics.refusals(&Reason::ALL.map(Reason::as_str)),
            via: forwarded.as_ref().map_or(may_return, |forwarded| forwarded.via),
            forwarded,
            request_id,
            paths,
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

impl ListenAddress {
    fn of(listener: Listener, metrics: &Metrics) -> Self {
        let Listener { address, proxies, tls } = listener;
        let proxies = (!proxies.is_empty()).then(|| {
            let failures = metrics.proxy_headers(
                &address.to_string(),
                &HeaderFailure::ALL.map(HeaderFailure::as_str),
            );
            Arc::new(ListenerProxies { trusted: proxies, failures })
        });
        let tls = tls.map(|tls| {
            let name = address.to_string();
            let reasons = tls::TlsFailure::ALL.map(tls::TlsFailure::as_str);
            let failures = metrics.handshake_failures(&name, &reasons);
            Arc::new(ListenerTls { tls, done: metrics.handshakes(&name), failures })
        });
        Self { address, proxies, tls }
    }
}

/// Whether an upstream may be this proxy itself: its port is one on which this proxy listens.
fn may_return(listeners: &[Listener], upstreams: &[Arc<SharedUpstream>]) -> bool {
    let mut endpoints = upstreams.iter().flat_map(|shared| &shared.settings.endpoints);
    let at =
        |endpoint: &settings::Endpoint, port| endpoint.socket.is_none() && endpoint.port == port;
    endpoints.any(|endpoint| listeners.iter().any(|l| at(endpoint, l.address.port())))
}

/// Shared by the routes while they are built.
struct Builder<'a> {
    catalog: &'a Catalog,
    metrics: &'a Arc<Metrics>,
    names: Arc<HashMap<Arc<str>, usize>>,
    /// What is known of the upstreams.
    facts: Arc<[UpstreamFacts]>,
    /// Within which time each begins a response; zero: nothing bounds that.
    responds: Vec<Duration>,
    stage: Option<&'a Arc<Stage>>,
    paths: Paths,
    cache: PreparedCache,
    /// The circuit breakers that never notice who hangs.
    deaf: DeafBreakers,
    /// What middlewares that keep state get.
    host: Arc<EntryHost>,
}

impl Builder<'_> {
    fn route(&mut self, route: settings::Route) -> Result<(Route, Diagnostics), Diagnostics> {
        let facts = RouteFacts::of(&route, Arc::clone(&self.facts));
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
        let provider: Arc<dyn CallProvider> =
            Arc::new(HttpProvider::new(Arc::clone(&self.names), default, self.paths).on(facts));
        let mut catalog = self.catalog.for_route(Arc::clone(&name), Arc::clone(&self.host) as _);
        let provider = if self.stage.is_some() { Stage::cued(provider) } else { provider };
        let uri = provider.contract().uri.clone();
        catalog.add_call(provider).map_err(|error| refused(span, &error.to_string()))?;
        let classified = classify.iter().filter_map(|rule| match &rule.verdict {
            Verdict::Failure { code, .. } => Some(code.as_ref().to_owned()),
            Verdict::Success => None,
        });
        catalog.declare_codes(uri.clone(), classified);
        let (plan, mut warnings) =
            compile_with_cache(&document, &catalog, Strictness::Load, &mut self.cache)?;
        let removed = request_fields.as_ref().map_or(&[][..], |edits| &edits.remove);
        credentials::advise(&plan, &uri, removed, &mut warnings);
        let responds = |named: Option<&str>| {
            let place = named.map_or(default, |name| self.names.get(name).copied());
            self.responds.get(place?).copied()
        };
        breakers::advise((&name, &plan), &uri, responds, &mut self.deaf);
        let mut facts = Facts::of(&plan);
        for program in classify.iter().filter_map(|rule| rule.when.as_ref()) {
            facts.read_by(program);
        }
        let written = plan.codes();
        let metrics = self.metrics.route(&name, &codes(&catalog, &classify, &written));
        if facts.unwinds {
            metrics.cleans_up();
        }
        plan.each_entry(&mut |place, entry| {
            if entry.middleware.contract().bounds() {
                metrics.bounded_by(&place.to_string());
            }
        });
        let no_retries = self.metrics.switches().of(SwitchKind::Retries, &name);
        let route = Route {
            no_retries,
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

/// Every code that may be a label. There may be duplicates.
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
