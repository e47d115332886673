//! Settings for tests of upstreams.

use std::time::Duration;

use crate::proxy::settings::{Balance, Endpoint, HeadLimits, HostPolicy, Protocol, Upstream};

/// An upstream `u` at these `host:port`.
pub(super) fn settings(authorities: &[&str]) -> Upstream {
    let endpoint = |authority: &&str| {
        let (host, port) = authority.rsplit_once(':').unwrap();
        let (host, port) = (host.into(), port.parse().unwrap());
        Endpoint { host, port, authority: (*authority).into(), socket: None, weight: 1, tls: None }
    };
    Upstream {
        name: "u".into(),
        endpoints: authorities.iter().map(endpoint).collect(),
        balance: Balance::LeastRequest,
        protocol: Protocol::Http1,
        proxy_protocol: None,
        connect_timeout: Duration::from_secs(8),
        idle_timeout: Duration::from_secs(30),
        keep_alive: Duration::from_mins(5),
        max_idle: 9,
        max_requests: 9,
        max_wait: Duration::from_secs(30),
        retry_budget: None,
        ping_interval: Duration::ZERO,
        response_timeout: Duration::ZERO,
        retry_after_max: Duration::from_secs(30),
        host: HostPolicy::Preserve,
        heads: HeadLimits { size: 8192, fields: 9 },
        health: None,
        ejection: None,
    }
}
