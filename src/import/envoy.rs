//! Envoy: routes and clusters, wherever they stand in a bootstrap, a route configuration or a fragment.

use super::envoy_cluster::{cluster, listener};
use super::form::{Edits, Form, Layer, Match, Notes, Route, name};
use super::read::{Fields, Reading, is_host, is_path, is_token, short};
use super::retry_on::Retrying;
use crate::language::temporal::Span;
use crate::source::Node;

const SECOND: i128 = 1_000_000_000;
/// Envoy's bound for a request where a route has none.
const DEFAULT_TIMEOUT: Span = Span::from_nanos(15 * SECOND);
/// Members by which a cluster is known.
const CLUSTER: [&str; 6] = [
    "load_assignment",
    "lb_policy",
    "connect_timeout",
    "circuit_breakers",
    "outlier_detection",
    "loadAssignment",
];

pub(super) fn read(reading: &Reading<'_>, root: &Node) -> Form {
    let mut form = Form::default();
    let mut routes = Vec::new();
    find(reading, root, &mut form, &mut routes);
    for (node, host) in routes {
        if form.is_full() {
            break;
        }
        route(reading, node, host.as_ref(), &mut form);
    }
    if form.routes.is_empty() && form.upstreams.is_empty() && form.notes.0.is_empty() {
        let message = "there is neither an Envoy route (`match` and `route`) nor a cluster in this";
        let help = "give a bootstrap, a route configuration, a route or a cluster";
        reading.not_this(root.span, message, help);
    }
    form
}

/// What a virtual host says for its routes.
#[derive(Clone)]
struct Host<'n> {
    hosts: Vec<String>,
    retry_policy: Option<&'n Node>,
}

/// Collects routes, and reads clusters and listeners.
fn find<'n>(
    reading: &Reading<'_>,
    node: &'n Node,
    form: &mut Form,
    routes: &mut Vec<(&'n Node, Option<Host<'n>>)>,
) {
    if form.is_full() {
        return;
    }
    let has = |key: &str| node.get(key).is_some();
    let list = |key: &str| node.get(key).and_then(Node::as_array);
    if let (Some(domains), Some(inner)) = (list("domains"), list("routes")) {
        let domains = domains.iter().filter_map(Node::as_str);
        let hosts = domains.filter(|host| is_host(host)).map(ToString::to_string).collect();
        let retry_policy = node.get("retry_policy").or_else(|| node.get("retryPolicy"));
        let host = Host { hosts, retry_policy };
        routes.extend(inner.iter().map(|route| (route, Some(host.clone()))));
        return;
    }
    if has("match") && ["route", "redirect", "direct_response"].iter().any(|key| has(key)) {
        routes.push((node, None));
        return;
    }
    if has("name") && CLUSTER.iter().any(|key| has(key)) {
        return cluster(reading, node, form);
    }
    if has("filter_chains") {
        listener(node, form);
    }
    for filter in list("http_filters").unwrap_or_default() {
        let filter_name = filter.get("name").and_then(Node::as_str).map_or("", |name| name);
        if !filter_name.ends_with("router") {
            form.notes
                .lost(reading.at(filter.span), format!("the filter `{}`.", short(filter_name)));
        }
    }
    for child in node.children() {
        find(reading, child, form, routes);
    }
}

fn route(reading: &Reading<'_>, node: &Node, host: Option<&Host<'_>>, form: &mut Form) {
    let Some(fields) = reading.fields("route", node) else { return };
    let mut route = Route::default();
    fields.skip(&["stat_prefix", "metadata", "decorator"]);
    if let Some(matched) = fields.get("match").and_then(|node| reading.fields("match", node)) {
        matching(reading, &matched, &mut route);
    }
    if let Some(host) = host {
        route.matches.hosts.extend(host.hosts.iter().cloned());
    }
    let named = fields.get("name").and_then(Node::as_str).map(ToString::to_string);
    let Some(action) = fields.get("route").and_then(|node| reading.fields("route", node)) else {
        let text = "a route that redirects or answers by itself. It is left out.";
        return form.notes.lost(reading.at(node.span), text);
    };
    let cluster = target(reading, &action, &mut route.notes);
    let Some(cluster) = cluster else {
        return form
            .notes
            .lost(reading.at(node.span), "a route without a cluster. It is left out.");
    };
    route.upstream = name(&cluster);
    let path = route.matches.path.as_ref().or(route.matches.path_prefix.as_ref());
    route.name =
        name(&named.unwrap_or_else(|| {
            format!("{cluster}{}", path.map(String::as_str).unwrap_or_default())
        }));
    bounds(reading, &action, &mut route);
    let retry_policy = action.get("retry_policy").or_else(|| host.and_then(|h| h.retry_policy));
    let http2 = form.upstream(&route.upstream).is_some_and(|upstream| {
        upstream.response_timeout = Some(Span::ZERO);
        upstream.http2
    });
    if let Some(policy) = retry_policy.and_then(|node| reading.fields("retry_policy", node)) {
        retry(reading, &policy, http2, &mut route, form);
    }
    let prefix = action.get("prefix_rewrite").and_then(|node| reading.text("prefix_rewrite", node));
    if let Some(prefix) = prefix.filter(|path| is_path(path)) {
        if route.matches.path_prefix.is_some() {
            route.rewrite_prefix = Some(prefix.to_owned());
        } else {
            route
                .notes
                .lost(reading.at(action.span), "`prefix_rewrite` where no prefix is matched.");
        }
    }
    let literal = action.get("host_rewrite_literal");
    let literal = literal.and_then(|node| reading.text("host_rewrite_literal", node));
    route.rewrite_host = literal.filter(|host| is_host(host)).map(str::to_owned);
    action.rest(reading, "the route", &mut route.notes);
    for (side, edits) in
        [("request", &mut route.request_headers), ("response", &mut route.response_headers)]
    {
        changes(reading, &fields, side, edits, &mut route.notes);
    }
    fields.rest(reading, "the route", &mut route.notes);
    form.routes.push(route);
}

/// The cluster that gets most of the requests.
fn target(reading: &Reading<'_>, action: &Fields<'_>, notes: &mut Notes) -> Option<String> {
    if let Some(cluster) = action.get("cluster") {
        return reading.text("cluster", cluster).map(str::to_owned);
    }
    let weighted = action.get("weighted_clusters")?.get("clusters")?;
    let mut best: Option<(u64, &str)> = None;
    for one in reading.items("clusters", weighted) {
        let cluster = one.get("name").and_then(Node::as_str).map_or("", |name| name);
        let weight = one.get("weight").and_then(|node| reading.count("weight", node)).unwrap_or(1);
        let (lesser, parts) = match best {
            Some((heaviest, _)) if heaviest >= weight => (cluster, weight),
            _ => match best.replace((weight, cluster)) {
                Some((weight, cluster)) => (cluster, weight),
                None => continue,
            },
        };
        notes.lost(
            reading.at(one.span),
            format!("{parts} parts of the requests for `{}`.", short(lesser)),
        );
    }
    best.map(|(_, cluster)| cluster.to_owned())
}

fn bounds(reading: &Reading<'_>, action: &Fields<'_>, route: &mut Route) {
    let total = action.get("timeout").map(|node| reading.duration("timeout", node));
    let mut notes = Notes::default();
    let total = total.unwrap_or_else(|| {
        notes.told("Envoy's own default.");
        Some(DEFAULT_TIMEOUT)
    });
    if let Some(duration) = total.filter(|bound| *bound > Span::ZERO) {
        route.layers.push(Layer::Timeout { duration, notes });
    }
}

fn retry(
    reading: &Reading<'_>,
    policy: &Fields<'_>,
    http2: bool,
    route: &mut Route,
    form: &mut Form,
) {
    let count = |key| policy.get(key).and_then(|node| reading.count(key, node));
    let mut retrying = Retrying::new("Envoy", count("num_retries").unwrap_or(1));
    if let Some(node) = policy.get("retry_on") {
        let list = reading.text("retry_on", node).unwrap_or_default();
        retrying.conditions.add(list, reading.at(node.span), http2);
    }
    for status in policy
        .get("retriable_status_codes")
        .map_or(&[][..], |n| reading.items("retriable_status_codes", n))
    {
        if let Some(code) = reading.count("retriable_status_codes", status) {
            retrying.conditions.status(code, reading.at(status.span));
        }
    }
    let duration = |fields: &Fields<'_>, key: &str| {
        fields.get(key).and_then(|node| reading.duration(key, node))
    };
    retrying.per_try = duration(policy, "per_try_timeout");
    if let Some(backoff) =
        policy.get("retry_back_off").and_then(|n| reading.fields("retry_back_off", n))
    {
        retrying.backoff =
            (duration(&backoff, "base_interval"), duration(&backoff, "max_interval"));
    }
    let limited = policy.get("rate_limited_retry_back_off");
    if let Some(limited) = limited.and_then(|n| reading.fields("rate_limited_retry_back_off", n)) {
        retrying.by_header = true;
        let fields =
            limited.get("reset_headers").map_or(&[][..], |n| reading.items("reset_headers", n));
        for field in fields {
            let header = field.get("name").and_then(Node::as_str).map_or("", |name| name);
            let known = ["retry-after", "ratelimit-reset", "x-ratelimit-reset"];
            if !known.contains(&header.to_ascii_lowercase().as_str()) {
                let text = format!("a wait from the field `{}`.", short(header));
                retrying.conditions.notes.lost(reading.at(field.span), text);
            }
        }
        let max = duration(&limited, "max_interval").unwrap_or(Span::from_nanos(300 * SECOND));
        if let Some(upstream) = form.upstream(&route.upstream) {
            upstream.retry_after_max = Some(max);
        }
        retrying.conditions.notes.told(
            "A wait that is too long there is not waited, and the backoff decides; here it is cut to `retryAfterMax`.",
        );
    }
    // An attempt prefers an endpoint that has not been tried, in any case.
    policy.skip(&["retry_host_predicate", "host_selection_retry_max_attempts"]);
    policy.rest(reading, "the retry policy", &mut retrying.conditions.notes);
    retrying.apply(route);
}

fn matching(reading: &Reading<'_>, matched: &Fields<'_>, route: &mut Route) {
    let Route { matches, notes, .. } = route;
    let text = |key| matched.get(key).and_then(|node: &Node| reading.text(key, node));
    let prefix = text("path_separated_prefix").or_else(|| text("prefix"));
    matches.path = text("path").filter(|path| is_path(path)).map(str::to_owned);
    matches.path_prefix = prefix.filter(|path| is_path(path) && *path != "/").map(str::to_owned);
    for field in matched.get("headers").map_or(&[][..], |node| reading.items("headers", node)) {
        let header = field.get("name").and_then(Node::as_str).map_or("", |name| name);
        let exact = field.get("string_match").and_then(|node| node.get("exact"));
        let exact = exact.or_else(|| field.get("exact_match")).and_then(Node::as_str);
        let plain = exact.filter(|value| value.is_ascii() && !value.contains("{{"));
        match (header, plain) {
            (":method", Some(method)) if is_token(method) => {
                matches.methods.push(method.to_uppercase());
            }
            (":authority", Some(host)) if is_host(host) => matches.hosts.push(host.to_string()),
            (header, Some(value)) if is_token(header) => {
                matches.headers.push((header.to_owned(), Some(value.to_string())));
            }
            (header, None) if is_token(header) && field.get("present_match").is_some() => {
                matches.headers.push((header.to_owned(), None));
            }
            _ => {
                let text = format!("the match of the field `{}`.", short(header));
                notes.lost(reading.at(field.span), text);
            }
        }
    }
    narrow(matches, matched, notes);
    matched.skip(&["case_sensitive"]);
    matched.rest(reading, "the match", notes);
}

/// A route whose paths cannot be said matches nothing, and not everything.
fn narrow(into: &mut Match, matched: &Fields<'_>, notes: &mut Notes) {
    let regex = matched.get("safe_regex").or_else(|| matched.get("path_match_policy"));
    if let Some(regex) = regex {
        into.headers.push(("x-import-no-equal".to_owned(), None));
        notes.told(format!(
            "It takes the paths of `{}`. This route matches a field that nobody sends: say here which requests it is for.",
            short(&regex.to_string())
        ));
    }
}

fn changes(
    reading: &Reading<'_>,
    fields: &Fields<'_>,
    side: &str,
    edits: &mut Edits,
    notes: &mut Notes,
) {
    let added = format!("{side}_headers_to_add");
    for one in fields.get(&added).map_or(&[][..], |node| reading.items(&added, node)) {
        let part =
            |key| one.get("header").and_then(|header| header.get(key)).and_then(Node::as_str);
        let (key, value) = (part("key").map_or("", |k| k), part("value").map_or("", |v| v));
        let action = one.get("append_action").and_then(Node::as_str).map(|action| &**action);
        let sets = action == Some("OVERWRITE_IF_EXISTS_OR_ADD")
            || one.get("append").and_then(Node::as_bool) == Some(false);
        // `%…%` is a value of Envoy's.
        if super::headers::may_change(key, value, side == "request") && !value.contains('%') {
            let pair = (key.to_owned(), value.to_owned());
            if sets { edits.set.push(pair) } else { edits.append.push(pair) }
        } else {
            notes.lost(reading.at(one.span), format!("the field `{}`.", short(key)));
        }
    }
    let removed = format!("{side}_headers_to_remove");
    for one in fields.get(&removed).map_or(&[][..], |node| reading.items(&removed, node)) {
        let field = one.as_str().map_or("", |field| field);
        if super::headers::may_change(field, "", side == "request") {
            edits.remove.push(field.to_owned());
        }
    }
}
