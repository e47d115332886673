//! What single tests of HTTP cannot show: all combinations, random interleavings, endurance, and other clients.
//!
//! These sizes take seconds. `MWL_ENDURANCE=1` selects the full ones.

/// Many large bodies that are read at once.
mod buffered;
/// curl and Python.
mod clients;
/// Clients that leave.
mod departures;
/// Endpoints of which one always fails.
mod endpoints;
/// tonic, both ends.
mod grpc;
/// Idle connections.
mod idle;
/// Connections that close when they are used.
mod idle_race;
/// Random bodies, failures and retries.
mod interleavings;
/// Peers that try to exceed a limit.
mod limits;
/// Every combination of protocol, body, outcome and method.
mod matrix;
/// The memory that bodies cost.
mod memory;
/// Reuse of connections to upstreams.
mod reuse;

use crate::support::peer::{Peer, Protocol};

/// `small`, or `large` in an endurance run.
fn size<T>(small: T, large: T) -> T {
    if std::env::var_os("MWL_ENDURANCE").is_some() { large } else { small }
}

/// A Retry with `attempts` of everything that the provider calls retryable.
fn retrying(attempts: u32) -> String {
    format!(
        "    middleware:
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry: {{ with: {{ policies: [ {{ match: {{ codes: [Provider.Call.Http.*], retryable: true }}, attempts: {attempts} }} ] }} }}
"
    )
}

/// A configuration with one route to `peer`. `route` holds the route's further keys.
fn one_route(peer: &Peer, protocol: Protocol, route: &str) -> String {
    format!(
        "upstreams: {{ u: {{ endpoints: ['http://{}']{} }} }}\nroutes:\n  - name: r\n    match: {{ pathPrefix: / }}\n    upstream: u\n{route}",
        peer.address,
        spoken(protocol),
    )
}

/// The upstream's key for its protocol.
const fn spoken(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::One => "",
        Protocol::Two => ", protocol: http2",
    }
}
