//! The proxy as its clients and upstreams see it, on real sockets.

/// Bodies: streaming, replay, limits.
mod bodies;
/// Budgets of retries.
mod budgets;
/// Bodies in memory, and the bound on all of them.
mod buffered;
/// How many requests an upstream gets at once.
mod capacity;
/// Clients with certificates, in expressions and in routes.
mod certificates;
/// Cleanups of requests whose clients have left.
mod cleanups;
/// The life of a connection.
mod conversation;
/// Which endpoint gets a request.
mod endpoints;
/// `Expect`.
mod expecting;
/// Faults that a stack injects.
mod faults;
/// What passes unchanged, and what does not.
mod forwarding;
/// Malformed and hostile messages.
mod framing;
/// One request to several upstreams.
mod gathering;
/// gRPC calls.
mod grpc;
/// Bounds on single streams of HTTP/2, in virtual time.
mod h2_bounds;
/// Clients that speak HTTP/2.
mod h2_clients;
/// Peers that speak HTTP/2 as nobody should.
mod h2_floods;
/// What ends a message of HTTP/2, and what does not.
mod h2_messages;
/// Upstreams that speak HTTP/2.
mod h2_upstreams;
/// Endpoints that are out, and come back.
mod health;
/// Interim responses.
mod idempotent;
mod interim;
/// Connections that begin with a PROXY header.
mod introduced;
/// Connections that the proxy begins with a PROXY header.
mod introducing;
/// Keys that name operations.
mod keys;
/// Clients that leave, and clients that are still sending when they get their answer.
mod leaving;
/// Clients that leave, cleanups, reload and drain.
mod lifecycle;
/// Limits for clients, each with its status and its metric.
mod limits;
/// Names of upstreams, and their addresses.
mod names;
/// Large bodies.
mod pouring;
/// Circuit breakers and limits of concurrency.
mod protections;
/// Retry and Timeout around real connections.
mod rates;
mod retrying;
/// Flows without an end.
mod rounds;
/// HEAD, statuses without a body, targets, a client's half-close.
mod semantics;
/// What routes change in messages.
mod shaping;
mod slow_clients;
/// Targets: paths, queries, hosts.
mod stores;
/// Retries that operators have switched off.
mod switches;
mod targets;
/// TLS from clients.
mod tls_clients;
/// TLS to upstreams.
mod tls_upstreams;
/// Answers that their upstreams break off.
mod truncated;
/// Tunnels.
mod upgrades;
/// How long a response may take to begin.
mod waiting;

use crate::support::proxy::Proxy;
use crate::support::upstream::Upstream;

/// A configuration with one route to one upstream. `route` holds the route's further keys.
fn one_route(upstream: &Upstream, route: &str) -> String {
    format!(
        "upstreams: {{ u: {{ endpoints: ['http://{}'] }} }}\nroutes:\n  - name: r\n    match: {{ pathPrefix: / }}\n    upstream: u\n{route}",
        upstream.address
    )
}

/// A proxy with no route for `/a`, and one that cannot reach its upstream, with the statuses of their answers.
fn refusing(upstream: &Upstream) -> [(Proxy, u16); 2] {
    let file = one_route(upstream, "");
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = closed.local_addr().unwrap().to_string();
    let there = upstream.address.to_string();
    [
        (Proxy::start(&file.replace("pathPrefix: /", "path: /x")), 404),
        (Proxy::start(&file.replace(&there, &gone)), 502),
    ]
}
