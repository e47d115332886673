//! One request through the whole proxy before scripted upstreams, in virtual time: what `explain` shows.
//!
//! Nothing of the proxy is imitated. The client's bytes go through [`connection`], the route's plan runs
//! in the engine, the `http` provider sends over its pools, and HTTP is spoken at both ends; only the
//! sockets are pipes in memory, whose far ends play a script, and the clock stands still between
//! timers, so that an hour of backoff takes no time. What the engine, the provider and the far ends do
//! is written down in order ([`record`](super::stage::record)). A [`Stage`](super::stage::Stage) is all that, and the rest of the proxy knows it at
//! four places: where a route's provider and observer are made, where an upstream looks for a
//! connection, where it opens one, and where a request is put on it.
//!
//! [`connection`]: crate::proxy::client::connection

pub(crate) mod client;

pub(crate) use self::client::{Asked, End, Told, rehearse};
