//! Envoy's clusters and listeners.

use super::features::{Ejection, Health, balance, retry_budget};
use super::form::{Endpoint, Form, Upstream, name};
use super::read::{Fields, Reading, is_path, short, url};
use crate::source::Node;

/// Members that say how a cluster finds its endpoints, which the proxy does by itself.
const OWN: [&str; 8] = [
    "type",
    "dns_lookup_family",
    "respect_dns_ttl",
    "dns_refresh_rate",
    "alt_stat_name",
    "http_protocol_options",
    "metadata",
    "cleanup_interval",
];

pub(super) fn cluster(reading: &Reading<'_>, node: &Node, form: &mut Form) {
    let Some(fields) = reading.fields("cluster", node) else { return };
    let Some(named) = fields.get("name").and_then(|node| reading.text("name", node)) else {
        return;
    };
    let Some(upstream) = form.upstream(&name(named)) else { return };
    let timeout = fields.get("connect_timeout");
    upstream.connect_timeout = timeout.and_then(|node| reading.duration("connect_timeout", node));
    let protocol = fields.get("typed_extension_protocol_options");
    upstream.http2 = fields.get("http2_protocol_options").is_some()
        || protocol.is_some_and(|node| node.to_string().contains("http2_protocol_options"));
    let secure = fields.get("transport_socket").is_some();
    if secure {
        upstream.notes.told(
            "Its `transport_socket`: see `tls` of an upstream for authorities and certificates.",
        );
    }
    let policy = fields.get("lb_policy").and_then(|node| reading.text("lb_policy", node));
    if let Some(policy) = policy {
        if let Some(feature) = balance(policy, reading.at(fields.span)) {
            upstream.features.push(feature);
        } else {
            let text = format!("`lb_policy: {}`.", short(policy));
            upstream.notes.lost(reading.at(fields.span), text);
        }
    }
    if let Some(assignment) = fields.get("load_assignment") {
        for group in assignment.get("endpoints").and_then(Node::as_array).unwrap_or_default() {
            for one in group.get("lb_endpoints").and_then(Node::as_array).unwrap_or_default() {
                endpoint(reading, one, secure, upstream);
            }
        }
    }
    if policy.is_none() && upstream.endpoints.len() > 1 {
        upstream.features.extend(balance("ROUND_ROBIN", reading.at(fields.span)));
    }
    for threshold in fields
        .get("circuit_breakers")
        .and_then(|node| node.get("thresholds"))
        .map_or(&[][..], |node| reading.items("thresholds", node))
    {
        if let Some(threshold) = reading.fields("thresholds", threshold) {
            limits(reading, &threshold, upstream);
        }
    }
    if let Some(outliers) =
        fields.get("outlier_detection").and_then(|n| reading.fields("outlier_detection", n))
    {
        let count = |key| outliers.get(key).and_then(|node| reading.count(key, node));
        let time = |key| outliers.get(key).and_then(|node| reading.duration(key, node));
        let ejection = Ejection {
            failures: count("consecutive_5xx")
                .or_else(|| count("consecutive_gateway_failure"))
                .unwrap_or(5),
            base: time("base_ejection_time"),
            max: time("max_ejection_time"),
            percent: count("max_ejection_percent").or(Some(10)),
        };
        outliers.skip(&["interval"]);
        outliers.rest(reading, "`outlier_detection`", &mut upstream.notes);
        upstream.features.extend(ejection.feature(reading.at(outliers.span)));
    }
    for check in
        fields.get("health_checks").map_or(&[][..], |node| reading.items("health_checks", node))
    {
        if let Some(check) = reading.fields("health_checks", check) {
            health(reading, &check, upstream);
        }
    }
    let idle = fields.get("common_http_protocol_options").and_then(|node| node.get("idle_timeout"));
    upstream.keep_alive = idle.and_then(|node| reading.duration("idle_timeout", node));
    fields.skip(&OWN);
    fields.rest(reading, "the cluster", &mut upstream.notes);
}

fn endpoint(reading: &Reading<'_>, node: &Node, secure: bool, upstream: &mut Upstream) {
    let address = node.get("endpoint").and_then(|node| node.get("address"));
    let socket =
        address.and_then(|node| node.get("socket_address").or_else(|| node.get("socketAddress")));
    let host = socket.and_then(|node| node.get("address")).and_then(Node::as_str);
    let port = socket.and_then(|node| node.get("port_value").or_else(|| node.get("portValue")));
    let port = port.and_then(|node| reading.count("port_value", node));
    let weight = node.get("load_balancing_weight");
    let weight = weight.and_then(|node| reading.count("load_balancing_weight", node));
    match host.and_then(|host| url(host, port, secure)) {
        Some(url) => upstream.endpoints.push(Endpoint { weight, ..Endpoint::new(url) }),
        None => {
            upstream.notes.lost(reading.at(node.span), "an endpoint without a host and a port.");
        }
    }
}

fn limits(reading: &Reading<'_>, threshold: &Fields<'_>, upstream: &mut Upstream) {
    let at = reading.at(threshold.span);
    let priority = threshold.get("priority").and_then(Node::as_str);
    if priority.is_some_and(|priority| &**priority != "DEFAULT") {
        return upstream.notes.lost(at, "limits of the priority `HIGH`.");
    }
    let count = |key| threshold.get(key).and_then(|node| reading.count(key, node));
    let connections = count("max_connections").filter(|_| !upstream.http2);
    upstream.max_requests = match (connections, count("max_requests")) {
        (Some(connections), Some(requests)) => Some(connections.min(requests)),
        (one, other) => one.or(other),
    };
    if let Some(most) = count("max_retries") {
        let text =
            format!("`max_retries: {most}` at once: `retryBudget` bounds a share of the requests.");
        upstream.notes.lost(at, text);
    }
    if let Some(budget) = threshold.get("retry_budget") {
        let percent = budget.get("budget_percent").and_then(|node| node.get("value"));
        let percent = percent.and_then(|node| reading.number("value", node)).unwrap_or(20.0);
        let least = budget.get("min_retry_concurrency");
        let least = least.and_then(|node| reading.count("min_retry_concurrency", node));
        upstream.features.push(retry_budget(percent / 100.0, least.or(Some(3)), at));
        upstream
            .notes
            .told("Envoy's budget is of what runs at once, this is of what was sent lately.");
    }
    threshold.skip(&["track_remaining"]);
    threshold.rest(reading, "`thresholds`", &mut upstream.notes);
}

fn health(reading: &Reading<'_>, check: &Fields<'_>, upstream: &mut Upstream) {
    let at = reading.at(check.span);
    let http = check.get("http_health_check");
    let path = http.and_then(|node| node.get("path")).and_then(Node::as_str);
    let Some(path) = path.filter(|path| is_path(path)) else {
        return upstream.notes.lost(at, "a health check other than by HTTP.");
    };
    let count = |key| check.get(key).and_then(|node| reading.count(key, node));
    let time = |key| check.get(key).and_then(|node| reading.duration(key, node));
    let health = Health {
        path: path.to_string(),
        interval: time("interval"),
        timeout: time("timeout"),
        healthy_after: count("healthy_threshold"),
        unhealthy_after: count("unhealthy_threshold"),
        statuses: Vec::new(),
    };
    if let Some(ranges) = http.and_then(|node| node.get("expected_statuses")) {
        upstream.notes.lost(reading.at(ranges.span), "`expected_statuses` of a health check.");
    }
    upstream.features.push(health.feature(at));
    check.rest(reading, "the health check", &mut upstream.notes);
}

/// Where a listener listens.
pub(super) fn listener(node: &Node, form: &mut Form) {
    let socket = node.get("address").and_then(|node| node.get("socket_address"));
    let member = |key| socket.and_then(|socket: &Node| socket.get(key));
    let host = member("address").and_then(Node::as_str).map(|host| &**host);
    let port = member("port_value").map(ToString::to_string);
    let address = host.zip(port).map(|(host, port)| format!("{host}:{port}"));
    let valid = address.filter(|text| text.parse::<std::net::SocketAddr>().is_ok());
    form.listeners.extend(valid.filter(|address| !form.listeners.contains(address)));
}
