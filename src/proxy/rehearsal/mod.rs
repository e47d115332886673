//! Runs requests, one after the other, through the whole proxy in virtual time, with scripted upstreams. `explain` shows the result.
//!
//! No part of the proxy is imitated. The client's bytes go through [`connection`], the engine runs the route's
//! plan, the `http` provider uses its pools, and both ends speak HTTP. Only the sockets are replaced by pipes
//! in memory whose far ends follow a script, and the clock only moves between timers, so that an hour of
//! backoff takes no time. What the engine, the provider and the far ends do is recorded in order
//! ([`record`](super::stage::record)). A [`Stage`](super::stage::Stage) holds all of this. The rest of the
//! proxy knows it in four places: where a route's provider and observer are made, where an upstream looks for a
//! connection, where it opens one, and where a request is put on it.
//!
//! [`connection`]: crate::proxy::client::connection

pub(crate) mod client;

pub(crate) use self::client::{ClientRequest, Rehearsal, RehearsalEnd, Transcript};
