//! Istio's `trafficPolicy`: limits, ejection and balancing of an upstream.

use super::features::{Ejection, balance};
use super::form::Upstream;
use super::read::{Fields, Reading, short};
use crate::source::Node;

/// Lays a traffic policy over an upstream.
pub(super) fn policy(reading: &Reading<'_>, node: &Node, upstream: &mut Upstream) {
    let Some(fields) = reading.fields("trafficPolicy", node) else { return };
    if let Some(pool) =
        fields.get("connectionPool").and_then(|n| reading.fields("connectionPool", n))
    {
        if let Some(tcp) = pool.get("tcp").and_then(|node| reading.fields("tcp", node)) {
            connections(reading, &tcp, upstream);
        }
        if let Some(http) = pool.get("http").and_then(|node| reading.fields("http", node)) {
            requests(reading, &http, upstream);
        }
        pool.rest(reading, "`connectionPool`", &mut upstream.notes);
    }
    let outliers = fields.get("outlierDetection");
    if let Some(outliers) = outliers.and_then(|node| reading.fields("outlierDetection", node)) {
        let count = |key| outliers.get(key).and_then(|node| reading.count(key, node));
        let failures = count("consecutive5xxErrors").or_else(|| count("consecutiveGatewayErrors"));
        let failures = failures.or_else(|| count("consecutiveErrors")).unwrap_or(5);
        let base = outliers.get("baseEjectionTime");
        let base = base.and_then(|node| reading.duration("baseEjectionTime", node));
        let ejection = Ejection {
            failures,
            base,
            max: None,
            percent: count("maxEjectionPercent").or(Some(10)),
        };
        outliers.skip(&["interval"]);
        outliers.rest(reading, "`outlierDetection`", &mut upstream.notes);
        upstream.features.retain(|feature| feature.key != "ejection");
        upstream.features.extend(ejection.feature(reading.at(outliers.span)));
    }
    let balancer = fields.get("loadBalancer");
    if let Some(balancer) = balancer.and_then(|node| reading.fields("loadBalancer", node)) {
        let simple = balancer.get("simple").and_then(|node| reading.text("simple", node));
        if let Some(simple) = simple {
            let at = reading.at(balancer.span);
            match balance(simple, at) {
                Some(feature) => upstream.features.push(feature),
                None => upstream.notes.lost(at, format!("the balancing `{}`.", short(simple))),
            }
        }
        balancer.rest(reading, "`loadBalancer`", &mut upstream.notes);
    }
    fields.rest(reading, "`trafficPolicy`", &mut upstream.notes);
}

fn connections(reading: &Reading<'_>, tcp: &Fields<'_>, upstream: &mut Upstream) {
    let timeout = tcp.get("connectTimeout");
    upstream.connect_timeout = timeout
        .and_then(|node| reading.duration("connectTimeout", node))
        .or(upstream.connect_timeout);
    if let Some(node) = tcp.get("maxConnections") {
        let most = reading.count("maxConnections", node);
        if upstream.max_requests.is_none() && !upstream.http2 {
            upstream.max_requests = most;
            upstream
                .notes
                .told("`maxConnections` there: a connection carries one request at a time.");
        } else {
            upstream.notes.lost(reading.at(node.span), "`maxConnections`.");
        }
    }
    tcp.rest(reading, "`tcp`", &mut upstream.notes);
}

fn requests(reading: &Reading<'_>, http: &Fields<'_>, upstream: &mut Upstream) {
    let upgrade =
        http.get("h2UpgradePolicy").and_then(|node| reading.text("h2UpgradePolicy", node));
    upstream.http2 |= upgrade == Some("UPGRADE");
    if let Some(node) = http.get("http2MaxRequests") {
        let most = reading.count("http2MaxRequests", node);
        // Each connection carries one request at a time, so the smaller of both is the bound.
        upstream.max_requests = match (upstream.max_requests, most) {
            (Some(connections), Some(requests)) => Some(connections.min(requests)),
            (one, other) => other.or(one),
        };
    }
    if let Some(node) = http.get("maxRetries") {
        let most = reading.count("maxRetries", node).unwrap_or_default();
        let text =
            format!("`maxRetries: {most}` at once: `retryBudget` bounds a share of the requests.");
        upstream.notes.lost(reading.at(node.span), text);
    }
    let idle = http.get("idleTimeout").and_then(|node| reading.duration("idleTimeout", node));
    upstream.keep_alive = idle.or(upstream.keep_alive);
    http.rest(reading, "`http`", &mut upstream.notes);
}
