//! Envoy Gateway's `BackendTrafficPolicy`.

use super::features::{Ejection, Health, balance};
use super::form::{At, Form, Layer, Notes, Route, Upstream, name};
use super::read::{Fields, Reading, is_path, short};
use super::retry_on::Retrying;
use super::write::duration;
use super::yaml::Tree;
use crate::language::temporal::Span;
use crate::source::Node;

const DEFAULT: &str = "connect-failure,refused-stream,unavailable,cancelled";
/// Envoy's own bound for a request.
const DEFAULT_TIMEOUT: Span = Span::from_nanos(15_000_000_000);

pub(super) fn read(reading: &Reading<'_>, documents: &[Node]) -> Form {
    let mut form = Form::default();
    let kind = |node: &Node| node.get("kind").and_then(Node::as_str).cloned();
    let of_kind = |node: &&Node| kind(node).is_some_and(|kind| &*kind == "BackendTrafficPolicy");
    let found = documents.iter().any(|node| of_kind(&node));
    for node in documents {
        if form.is_full() {
            break;
        }
        if of_kind(&node) {
            policy(reading, node, &mut form);
            continue;
        }
        let seen = kind(node).map_or_else(
            || "no Kubernetes object".to_owned(),
            |kind| format!("a `{}`", short(&kind)),
        );
        if found {
            form.notes.lost(reading.at(node.span), format!("this document is {seen}."));
        } else {
            let message =
                format!("this is {seen}; an Envoy Gateway `BackendTrafficPolicy` was wanted");
            reading.not_this(
                node.span,
                message,
                "see `mwl-proxy import --help` for the other kinds",
            );
        }
    }
    form
}

fn policy(reading: &Reading<'_>, node: &Node, form: &mut Form) {
    let Some(spec) = node.get("spec") else {
        return reading.wrong(node.span, "the `BackendTrafficPolicy` has no `spec`");
    };
    let Some(spec) = reading.fields("spec", spec) else { return };
    let target = spec.get("targetRef");
    let targets = spec.get("targetRefs").and_then(Node::as_array).unwrap_or_default();
    let mut all = target
        .into_iter()
        .chain(targets)
        .filter_map(|node| Some((node.get("name")?.as_str()?.to_string(), node)));
    let own = node.get("metadata").and_then(|node| node.get("name")).and_then(Node::as_str);
    let (named, _) = all
        .next()
        .unwrap_or_else(|| (own.map_or_else(|| "backend".to_owned(), ToString::to_string), node));
    let mut route = Route { name: name(&named), upstream: name(&named), ..Route::default() };
    for (other, node) in all {
        let text = format!("the same policy for `{}`: copy the route.", short(&other));
        route.notes.lost(reading.at(node.span), text);
    }
    route.notes.told(format!(
        "What `{}` matches, and where it sends it, stands in its own object.",
        short(&named)
    ));
    let mut upstream = Upstream { name: route.upstream.clone(), ..Upstream::default() };
    upstream.response_timeout = Some(Span::ZERO);
    spec.skip(&["mergeType"]);
    limit(reading, &spec, &mut route);
    faults(reading, &spec, &mut route);
    timeouts(reading, &spec, &mut route, &mut upstream);
    if let Some(retry) = spec.get("retry").and_then(|node| reading.fields("retry", node)) {
        retries(reading, &retry, &mut route);
    }
    if let Some(breaker) =
        spec.get("circuitBreaker").and_then(|n| reading.fields("circuitBreaker", n))
    {
        limits(reading, &breaker, &mut upstream);
    }
    if let Some(check) =
        spec.get("healthCheck").and_then(|node| reading.fields("healthCheck", node))
    {
        health(reading, &check, &mut upstream);
    }
    if let Some(balancer) = spec.get("loadBalancer").and_then(|n| reading.fields("loadBalancer", n))
    {
        let kind = balancer.get("type").and_then(|node| reading.text("type", node)).unwrap_or("");
        let at = reading.at(balancer.span);
        match balance(kind, at) {
            Some(feature) => upstream.features.push(feature),
            None => upstream.notes.lost(at, format!("the balancing `{}`.", short(kind))),
        }
        balancer.rest(reading, "`loadBalancer`", &mut upstream.notes);
    }
    spec.rest(reading, "the policy", &mut route.notes);
    if !form.upstreams.iter().any(|other| other.name == upstream.name) {
        form.upstreams.push(upstream);
    }
    form.routes.push(route);
}

fn retries(reading: &Reading<'_>, retry: &Fields<'_>, route: &mut Route) {
    let count = |key| retry.get(key).and_then(|node| reading.count(key, node));
    let mut retrying = Retrying::new("Envoy", count("numRetries").unwrap_or(2));
    let on = retry.get("retryOn").and_then(|node| reading.fields("retryOn", node));
    match &on {
        None => {
            retrying.conditions.add(DEFAULT, At::default(), false);
            retrying.conditions.status(503, At::default());
            retrying.conditions.notes.told("Envoy Gateway's own default.");
        }
        Some(on) => {
            for trigger in
                on.get("triggers").map_or(&[][..], |node| reading.items("triggers", node))
            {
                let word = reading.text("triggers", trigger).unwrap_or_default();
                retrying.conditions.add(word, reading.at(trigger.span), false);
            }
            for status in
                on.get("httpStatusCodes").map_or(&[][..], |n| reading.items("httpStatusCodes", n))
            {
                if let Some(code) = reading.count("httpStatusCodes", status) {
                    retrying.conditions.status(code, reading.at(status.span));
                }
            }
            on.rest(reading, "`retryOn`", &mut retrying.conditions.notes);
        }
    }
    if let Some(per) = retry.get("perRetry").and_then(|node| reading.fields("perRetry", node)) {
        retrying.per_try = per.get("timeout").and_then(|node| reading.duration("timeout", node));
        if let Some(backoff) = per.get("backOff").and_then(|node| reading.fields("backOff", node)) {
            let time = |key| backoff.get(key).and_then(|node| reading.duration(key, node));
            retrying.backoff = (time("baseInterval"), time("maxInterval"));
        }
        per.rest(reading, "`perRetry`", &mut retrying.conditions.notes);
    }
    retry.rest(reading, "`retry`", &mut retrying.conditions.notes);
    retrying.apply(route);
}

fn timeouts(reading: &Reading<'_>, spec: &Fields<'_>, route: &mut Route, upstream: &mut Upstream) {
    let timeout = spec.get("timeout").and_then(|node| reading.fields("timeout", node));
    let mut total = None;
    if let Some(timeout) = timeout {
        if let Some(tcp) = timeout.get("tcp").and_then(|node| reading.fields("tcp", node)) {
            let connect = tcp.get("connectTimeout");
            upstream.connect_timeout =
                connect.and_then(|node| reading.duration("connectTimeout", node));
            tcp.rest(reading, "`tcp`", &mut upstream.notes);
        }
        if let Some(http) = timeout.get("http").and_then(|node| reading.fields("http", node)) {
            let time = |key| http.get(key).and_then(|node| reading.duration(key, node));
            total = time("requestTimeout");
            upstream.keep_alive = time("connectionIdleTimeout");
            http.rest(reading, "`http`", &mut upstream.notes);
        }
        timeout.rest(reading, "`timeout`", &mut upstream.notes);
    }
    let mut notes = Notes::default();
    if total.is_none() {
        notes.told("Envoy's own default.");
    }
    let duration = total.unwrap_or(DEFAULT_TIMEOUT);
    if duration > Span::ZERO {
        route.layers.push(Layer::Timeout { duration, notes });
    }
}

fn limits(reading: &Reading<'_>, breaker: &Fields<'_>, upstream: &mut Upstream) {
    let count = |key| breaker.get(key).and_then(|node| reading.count(key, node));
    upstream.max_requests = match (count("maxConnections"), count("maxParallelRequests")) {
        (Some(connections), Some(requests)) => Some(connections.min(requests)),
        (one, other) => one.or(other),
    };
    if let Some(most) = count("maxParallelRetries") {
        let text = format!(
            "`maxParallelRetries: {most}` at once: `retryBudget` bounds a share of the requests."
        );
        upstream.notes.lost(reading.at(breaker.span), text);
    }
    breaker.rest(reading, "`circuitBreaker`", &mut upstream.notes);
}

fn health(reading: &Reading<'_>, check: &Fields<'_>, upstream: &mut Upstream) {
    if let Some(passive) = check.get("passive").and_then(|node| reading.fields("passive", node)) {
        let count = |key| passive.get(key).and_then(|node| reading.count(key, node));
        let ejection = Ejection {
            failures: count("consecutive5XxErrors")
                .or_else(|| count("consecutiveGatewayErrors"))
                .unwrap_or(5),
            base: passive
                .get("baseEjectionTime")
                .and_then(|n| reading.duration("baseEjectionTime", n)),
            max: None,
            percent: count("maxEjectionPercent").or(Some(10)),
        };
        passive.skip(&["interval"]);
        passive.rest(reading, "`passive`", &mut upstream.notes);
        upstream.features.extend(ejection.feature(reading.at(passive.span)));
    }
    let Some(active) = check.get("active").and_then(|node| reading.fields("active", node)) else {
        return;
    };
    let http = active.get("http");
    let path = http.and_then(|node| node.get("path")).and_then(Node::as_str);
    let at = reading.at(active.span);
    let Some(path) = path.filter(|path| is_path(path)) else {
        return upstream.notes.lost(at, "a health check other than by HTTP.");
    };
    let count = |key| active.get(key).and_then(|node| reading.count(key, node));
    let time = |key| active.get(key).and_then(|node| reading.duration(key, node));
    let statuses = http.and_then(|node| node.get("expectedStatuses")).and_then(Node::as_array);
    let statuses = statuses.unwrap_or_default().iter();
    let statuses = statuses.filter_map(|node| reading.count("expectedStatuses", node)).collect();
    let health = Health {
        path: path.to_string(),
        interval: time("interval"),
        timeout: time("timeout"),
        healthy_after: count("healthyThreshold"),
        unhealthy_after: count("unhealthyThreshold"),
        statuses,
    };
    active.skip(&["type"]);
    active.rest(reading, "`active`", &mut upstream.notes);
    upstream.features.push(health.feature(at));
}

/// Its rate limit: the first rule that is for everybody.
fn limit(reading: &Reading<'_>, spec: &Fields<'_>, route: &mut Route) {
    let Some(limit) = spec.get("rateLimit") else { return };
    let local = limit.get("local").or_else(|| limit.get("global"));
    let rules = local.and_then(|node| node.get("rules")).and_then(Node::as_array);
    for rule in rules.unwrap_or_default() {
        let at = reading.at(rule.span);
        let allowed = rule.get("limit");
        let rate = allowed.and_then(|node| node.get("requests"));
        let rate = rate
            .and_then(|node| reading.count("requests", node))
            .filter(|rate| (1..=1_000_000_000).contains(rate));
        let per = allowed.and_then(|node| node.get("unit")).and_then(Node::as_str);
        let per = per.and_then(|unit| match &**unit {
            "Second" => Some("PT1S"),
            "Minute" => Some("PT1M"),
            "Hour" => Some("PT1H"),
            "Day" => Some("PT24H"),
            _ => None,
        });
        let everybody = rule.get("clientSelectors").is_none();
        match rate.zip(per).filter(|_| everybody) {
            Some((rate, per)) => {
                let with = vec![("rate", Tree::word(rate)), ("per", Tree::own(per))];
                let name = "mwl-proxy/rate-limit";
                let notes = Notes::default();
                route.layers.push(Layer::Other { name, with, notes });
            }
            None => route.notes.lost(at, "a rate limit for some clients."),
        }
    }
}

fn faults(reading: &Reading<'_>, spec: &Fields<'_>, route: &mut Route) {
    let Some(fault) = spec.get("faultInjection") else { return };
    for (key, member) in [("delay", "fixedDelay"), ("abort", "httpStatus")] {
        let Some(part) = fault.get(key) else { continue };
        let at = reading.at(part.span);
        let percent = part.get("percentage").and_then(|node| reading.number("percentage", node));
        let share = (percent.unwrap_or(100.0) / 100.0).clamp(0.0, 1.0);
        let value = part.get(member).and_then(|node| {
            if key == "delay" {
                return Some(("delay", duration(reading.duration(member, node)?)));
            }
            let status = reading.count(member, node)?;
            (400..600).contains(&status).then(|| ("status", Tree::word(status)))
        });
        match value {
            Some(value) => {
                let with = vec![("share", Tree::word(share)), value];
                let notes = Notes::default();
                route.layers.push(Layer::Other { name: "mwl-proxy/fault", with, notes });
            }
            None => route.notes.lost(at, format!("`faultInjection.{key}`.")),
        }
    }
}
