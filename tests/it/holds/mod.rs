//! HTTP that holds: what single tests cannot show. All combinations, random interleavings, endurance, clients
//! that others wrote.
//!
//! The sizes here are such that the whole takes seconds. `MWL_ENDURANCE=1` makes them what they should be.

/// curl and Python.
mod clients;
/// Clients that leave.
mod departures;
/// tonic, both ends.
mod grpc;
/// Connections that wait.
mod idle;
/// Connections that close as they are used.
mod idle_race;
/// Random bodies, failures and retries.
mod interleavings;
/// Every combination of protocol, body, fate and method.
mod matrix;
/// What bodies cost.
mod memory;
/// Connections to upstreams.
mod reuse;

use crate::support::peer::{Peer, Protocol};

/// `small`, or `large` where endurance was asked for.
fn size<T>(small: T, large: T) -> T {
    if std::env::var_os("MWL_ENDURANCE").is_some() { large } else { small }
}

/// A Retry of `attempts` for whatever the provider calls retryable.
fn retrying(attempts: u32) -> String {
    format!(
        "    middleware:
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry: {{ with: {{ policies: [ {{ match: {{ codes: [Provider.Call.Http.*], retryable: true }}, attempts: {attempts} }} ] }} }}
"
    )
}

/// A configuration of one route, before `peer`: `route` holds the route's further keys.
fn one_route(peer: &Peer, protocol: Protocol, route: &str) -> String {
    format!(
        "upstreams: {{ u: {{ endpoints: ['http://{}']{} }} }}\nroutes:\n  - name: r\n    match: {{ pathPrefix: / }}\n    upstream: u\n{route}",
        peer.address,
        spoken(protocol),
    )
}

/// The upstream's key that says what it speaks.
const fn spoken(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::One => "",
        Protocol::Two => ", protocol: http2",
    }
}
