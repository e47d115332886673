//! Istio: `VirtualService` and `DestinationRule`, in one file of several documents.

use super::form::{At, Endpoint, Form, Layer, Match, Note, Notes, Route, name};
use super::istio_shape::{fault, headers};
use super::istio_traffic::policy;
use super::read::{Fields, Reading, is_host, is_path, is_token, short, url};
use super::retry_on::Retrying;
use crate::language::temporal::Span;
use crate::source::Node;

/// What Istio retries where a route says nothing else.
const DEFAULT: &str = "connect-failure,refused-stream,unavailable,cancelled";
const WANTED: &str = "an Istio `VirtualService` or `DestinationRule` was wanted";
/// Matches that have no equal make the route narrower than it would be.
const NARROW: &str = "x-import-no-equal";

/// A `VirtualService` and its hosts.
struct Service<'r, 'n> {
    reading: &'r Reading<'r>,
    name: &'n str,
    hosts: Vec<String>,
}

pub(super) fn read(reading: &Reading<'_>, documents: &[Node]) -> Form {
    let mut form = Form::default();
    let mut open: Vec<&Node> = documents.iter().rev().collect();
    let mut services = Vec::new();
    let mut rules = Vec::new();
    let mut others = Vec::new();
    while let Some(node) = open.pop() {
        let kind = node.get("kind").and_then(Node::as_str).map(|kind| &**kind);
        match kind {
            Some("VirtualService") => services.push(node),
            Some("DestinationRule") => rules.push(node),
            Some("List") => {
                let items = node.get("items").and_then(Node::as_array).unwrap_or_default();
                open.extend(items.iter().rev());
            }
            kind => others.push((node, kind)),
        }
    }
    let found = !services.is_empty() || !rules.is_empty();
    for node in &rules {
        upgrade(node, &mut form);
    }
    for node in services {
        if form.is_full() {
            break;
        }
        service(reading, node, &mut form);
    }
    for node in rules {
        if form.is_full() {
            break;
        }
        destination(reading, node, &mut form);
    }
    for (node, kind) in others {
        let seen = kind.map_or_else(
            || "no Kubernetes object".to_owned(),
            |kind| format!("a `{}`", short(kind)),
        );
        if found {
            form.notes.lost(reading.at(node.span), format!("this document is {seen}."));
        } else {
            let help = "see `mwl-proxy import --help` for the other kinds";
            reading.not_this(node.span, format!("this is {seen}; {WANTED}"), help);
        }
    }
    form
}

/// Notes which hosts speak HTTP/2, because conditions of retries depend on that.
fn upgrade(node: &Node, form: &mut Form) {
    let member = |node: &Node, name| node.get(name).cloned();
    let path = ["spec", "trafficPolicy", "connectionPool", "http", "h2UpgradePolicy"];
    let word = path.iter().try_fold(node.clone(), |node, name| member(&node, name));
    let host = node.get("spec").and_then(|spec| spec.get("host")).and_then(Node::as_str);
    let upgrades = word.is_some_and(|word| word.as_str().is_some_and(|word| &**word == "UPGRADE"));
    if let Some(host) = host.filter(|_| upgrades)
        && let Some(upstream) = form.upstream(&upstream_name(host))
    {
        upstream.http2 = true;
    }
}

fn metadata(node: &Node) -> &str {
    let named = node.get("metadata").and_then(|metadata| metadata.get("name"));
    named.and_then(Node::as_str).map_or("istio", |name| name)
}

fn service(reading: &Reading<'_>, node: &Node, form: &mut Form) {
    let Some(spec) = node.get("spec") else {
        return reading.wrong(node.span, "the `VirtualService` has no `spec`");
    };
    let Some(spec) = reading.fields("spec", spec) else { return };
    let hosts = spec.get("hosts").map_or(&[][..], |hosts| reading.items("hosts", hosts));
    let hosts = hosts.iter().filter_map(|host| reading.text("hosts", host));
    let hosts: Vec<String> = hosts.filter(|host| *host != "*").map(str::to_owned).collect();
    let (known, unknown): (Vec<_>, Vec<_>) = hosts.into_iter().partition(|host| is_host(host));
    for host in unknown {
        form.notes.lost(reading.at(spec.span), format!("the host `{}`.", short(&host)));
    }
    spec.skip(&["gateways", "exportTo"]);
    let service = Service { reading, name: metadata(node), hosts: known };
    let routes = spec.get("http").map_or(&[][..], |routes| reading.items("http", routes));
    for (number, route) in routes.iter().enumerate() {
        if form.is_full() {
            break;
        }
        service.route(route, number, routes.len(), form);
    }
    if routes.is_empty() {
        form.notes.told(format!("`{}` has no `http` routes.", service.name));
    }
    spec.rest(reading, "the VirtualService", &mut form.notes);
}

impl Service<'_, '_> {
    fn route(&self, node: &Node, number: usize, of: usize, form: &mut Form) {
        let reading = self.reading;
        let Some(fields) = reading.fields("http", node) else { return };
        let named = fields.get("name").and_then(Node::as_str).map(|name| &**name);
        let named = match named {
            Some(named) => format!("{}-{named}", self.name),
            None if of == 1 => self.name.to_owned(),
            None => format!("{}-{}", self.name, number + 1),
        };
        let mut route = Route { name: name(&named), ..Route::default() };
        let at = reading.at(node.span);
        let http2 = self.target(&fields, &mut route, at, form);
        fault(reading, &fields, &mut route);
        let total = fields.get("timeout").and_then(|node| reading.duration("timeout", node));
        route.layers.extend(
            total
                .filter(|bound| *bound > Span::ZERO)
                .map(|duration| Layer::Timeout { duration, notes: Notes::default() }),
        );
        self.retries(fields.get("retries"), http2, &mut route);
        self.rewrite(&fields, &mut route);
        headers(reading, &fields, &mut route);
        let matches = fields.get("match").map_or(&[][..], |node| reading.items("match", node));
        fields.rest(reading, "the route", &mut route.notes);
        if matches.is_empty() {
            route.matches.hosts.clone_from(&self.hosts);
            form.routes.push(route);
            return;
        }
        for matched in matches {
            if form.is_full() {
                break;
            }
            let mut route = route.clone();
            route.matches = self.matching(matched, &mut route.notes);
            if route.rewrite_prefix.is_some() && route.matches.path_prefix.is_none() {
                let lost = "`rewrite.uri` where no prefix is matched.";
                route.notes.lost(reading.at(matched.span), lost);
                route.rewrite_prefix = None;
            }
            form.routes.push(route);
        }
    }

    /// Finds where the route's requests go. Returns whether that speaks HTTP/2.
    fn target(&self, fields: &Fields<'_>, route: &mut Route, at: At, form: &mut Form) -> bool {
        let reading = self.reading;
        let targets = fields.get("route").map_or(&[][..], |node| reading.items("route", node));
        let mut best: Option<(u64, String, Endpoint)> = None;
        for target in targets {
            let Some(target) = reading.fields("route", target) else { continue };
            let Some(place) = target.get("destination") else { continue };
            let weight = target.get("weight");
            let weight = weight.and_then(|node| reading.count("weight", node)).unwrap_or(100);
            let Some(place) = reading.fields("destination", place) else { continue };
            let host = place.get("host").and_then(|host| reading.text("host", host));
            let Some(host) = host else { continue };
            let subset = place.get("subset").and_then(Node::as_str);
            let port = place.get("port").and_then(|port| port.get("number"));
            let port = port.and_then(|port| reading.count("number", port));
            place.rest(reading, "the destination", &mut route.notes);
            target.rest(reading, "the destination", &mut route.notes);
            let named = subset.map_or_else(|| host.to_owned(), |subset| format!("{host}-{subset}"));
            let Some(url) = url(host, port, port == Some(443)) else {
                reading.wrong(target.span, format!("`{}` is no host", short(host)));
                continue;
            };
            let found = (weight, upstream_name(&named), Endpoint::new(url));
            if best.as_ref().is_some_and(|(heaviest, ..)| *heaviest >= weight) {
                let text = format!("{weight} parts of the requests for `{}`.", short(&named));
                route.notes.lost(reading.at(target.span), text);
            } else if let Some((weight, other, _)) = best.replace(found) {
                let text = format!("{weight} parts of the requests for `{other}`.");
                route.notes.lost(reading.at(target.span), text);
            }
        }
        let Some((_, name, endpoint)) = best else {
            route.notes.lost(at, "a route without a destination.");
            route.upstream = name("");
            return false;
        };
        route.upstream.clone_from(&name);
        let Some(upstream) = form.upstream(&name) else { return false };
        upstream.response_timeout = Some(Span::ZERO);
        if upstream.endpoints.is_empty() {
            upstream.endpoints.push(endpoint);
        }
        upstream.http2
    }

    fn retries(&self, node: Option<&Node>, http2: bool, route: &mut Route) {
        let reading = self.reading;
        let fields = node.and_then(|node| reading.fields("retries", node));
        let Some(fields) = fields else {
            let mut retrying = Retrying::new("Istio", 2);
            retrying.conditions.add(DEFAULT, At::default(), http2);
            retrying.conditions.notes.told("Istio's own default.");
            return retrying.apply(route);
        };
        let attempts = fields.get("attempts").and_then(|node| reading.count("attempts", node));
        let mut retrying = Retrying::new("Istio", attempts.unwrap_or(2));
        let conditions = fields.get("retryOn");
        let list = conditions.and_then(|node| reading.text("retryOn", node)).unwrap_or(DEFAULT);
        let at = conditions.map_or_else(At::default, |node| reading.at(node.span));
        retrying.conditions.add(list, at, http2);
        let duration = |key| fields.get(key).and_then(|node: &Node| reading.duration(key, node));
        retrying.per_try = duration("perTryTimeout");
        retrying.backoff.0 = duration("backoff");
        // Another endpoint is preferred in any case.
        fields.skip(&["retryRemoteLocalities", "retryIgnorePreviousHosts"]);
        fields.rest(reading, "`retries`", &mut retrying.conditions.notes);
        retrying.apply(route);
    }

    fn rewrite(&self, fields: &Fields<'_>, route: &mut Route) {
        let reading = self.reading;
        let rewrite = fields.get("rewrite").and_then(|node| reading.fields("rewrite", node));
        let Some(rewrite) = rewrite else { return };
        let uri = rewrite.get("uri").and_then(|node| reading.text("uri", node));
        route.rewrite_prefix = uri.filter(|uri| is_path(uri)).map(str::to_owned);
        let host = rewrite.get("authority").and_then(|node| reading.text("authority", node));
        route.rewrite_host = host.filter(|host| is_host(host)).map(str::to_owned);
        rewrite.rest(reading, "`rewrite`", &mut route.notes);
    }

    fn matching(&self, node: &Node, notes: &mut Notes) -> Match {
        let reading = self.reading;
        let mut matches = Match { hosts: self.hosts.clone(), ..Match::default() };
        let Some(fields) = reading.fields("match", node) else { return matches };
        fields.skip(&["name", "gateways", "ignoreUriCase"]);
        let mut lost = |at: &Node, text: String| {
            notes.0.push(Note { at: reading.at(at.span), text, lost: true });
        };
        if let Some(uri) = fields.get("uri") {
            let exact = uri.get("exact").and_then(Node::as_str).filter(|path| is_path(path));
            let prefix = uri.get("prefix").and_then(Node::as_str).filter(|path| is_path(path));
            match (exact, prefix) {
                (Some(path), _) => matches.path = Some(path.to_string()),
                (None, Some(prefix)) if &**prefix == "/" => {}
                (None, Some(prefix)) => matches.path_prefix = Some(prefix.to_string()),
                _ => {
                    lost(uri, format!("the match `uri: {}`.", short(&uri.to_string())));
                    matches.headers.push((NARROW.to_owned(), None));
                }
            }
        }
        if let Some(method) = fields.get("method") {
            match method.get("exact").and_then(Node::as_str).filter(|text| is_token(text)) {
                Some(exact) => matches.methods.push(exact.to_uppercase()),
                None => {
                    lost(method, format!("the match `method: {}`.", short(&method.to_string())));
                }
            }
        }
        for (key, into) in [("headers", &mut matches.headers), ("queryParams", &mut matches.query)]
        {
            let wanted = fields.get(key).and_then(Node::as_object).unwrap_or_default();
            for member in wanted {
                let exact = member.value.get("exact").and_then(Node::as_str);
                let any = member.value.as_object().is_some_and(<[_]>::is_empty);
                let plain = |text: &str| !text.contains("{{") && text.is_ascii();
                match exact.filter(|text| plain(text)) {
                    Some(exact) if is_token(&member.key) => {
                        into.push((member.key.to_string(), Some(exact.to_string())));
                    }
                    None if any && is_token(&member.key) => {
                        into.push((member.key.to_string(), None));
                    }
                    _ => {
                        let value = member.value.to_string();
                        lost(
                            &member.value,
                            format!("the match of `{}`: {}.", member.key, short(&value)),
                        );
                    }
                }
            }
        }
        if matches.headers.iter().any(|(name, _)| name == NARROW) {
            let text =
                "This route matches a field that nobody sends: say here which requests it is for.";
            notes.told(text);
        }
        fields.rest(reading, "the match", notes);
        matches
    }
}

/// The upstream of a host: without the part that all of a cluster share.
fn upstream_name(host: &str) -> String {
    let short = host.replace(".svc.cluster.local", "");
    name(&short)
}

fn destination(reading: &Reading<'_>, node: &Node, form: &mut Form) {
    let Some(spec) = node.get("spec") else {
        return reading.wrong(node.span, "the `DestinationRule` has no `spec`");
    };
    let Some(spec) = reading.fields("spec", spec) else { return };
    let Some(host) = spec.get("host").and_then(|host| reading.text("host", host)) else {
        return reading.wrong(spec.span, "the `DestinationRule` has no `host`");
    };
    let base = upstream_name(host);
    let subsets = spec.get("subsets").map_or(&[][..], |node| reading.items("subsets", node));
    let named: Vec<(String, &Node)> = subsets
        .iter()
        .filter_map(|node| {
            let subset = node.get("name").and_then(Node::as_str)?;
            Some((upstream_name(&format!("{host}-{subset}")), node))
        })
        .collect();
    let related = |name: &str| {
        name == base
            || named.iter().any(|(subset, _)| subset == name)
            || name.strip_prefix(&base).is_some_and(|rest| rest.starts_with('.'))
            || base.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'))
    };
    let used = form.routes.iter().any(|route| related(&route.upstream));
    if !used {
        if let Some(upstream) = form.upstream(&base) {
            upstream.endpoints.extend(url(host, None, false).map(Endpoint::new));
            upstream.response_timeout = Some(Span::ZERO);
        }
        let mut route = Route { name: base.clone(), upstream: base.clone(), ..Route::default() };
        route.matches.hosts.extend(is_host(host).then(|| host.to_owned()));
        let mut retrying = Retrying::new("Istio", 2);
        retrying.conditions.add(DEFAULT, At::default(), false);
        retrying.conditions.notes.told("Istio's own default.");
        retrying.apply(&mut route);
        form.routes.push(route);
    }
    let shared = spec.get("trafficPolicy");
    let mut notes = Notes::default();
    spec.skip(&["exportTo"]);
    spec.rest(reading, "the DestinationRule", &mut notes);
    let mut matched = Vec::new();
    for upstream in form.upstreams.iter_mut().filter(|upstream| related(&upstream.name)) {
        let subset = named.iter().find(|(subset, _)| *subset == upstream.name);
        let own = subset.and_then(|(_, node)| node.get("trafficPolicy"));
        for node in [shared, own].into_iter().flatten() {
            policy(reading, node, upstream);
        }
        if let Some((_, node)) = subset {
            let text = "a subset is chosen by labels: write the addresses of its endpoints.";
            upstream.notes.lost(reading.at(node.span), text);
        }
        upstream.notes.0.append(&mut notes.0);
        matched.push((upstream.name.clone(), upstream.http2));
    }
    for (subset, node) in &named {
        if !matched.iter().any(|(name, _)| name == subset) {
            form.notes
                .lost(reading.at(node.span), format!("the subset `{subset}`: no route uses it."));
        }
    }
}
