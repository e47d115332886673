//! Tests of the program from outside: raw sockets in front, scripted upstreams behind.
//!
//! A test may fail by a deadline, but never passes by one. Real time only passes where a wait is tested.

/// The admin address.
mod admin;
/// Attempts side by side, wherever they are told.
mod attempts;
/// Bodies: streamed, replayed, bounded, complete.
mod bodies;
/// What `check` reads and how it reports.
mod checking;
/// A clock that is set while the proxy runs.
mod clock;
/// The other commands.
mod commands;
/// Every scenario through `flow run`.
mod corpus;
/// The proxy at a laptop.
mod dev;
/// Endpoints that an operator drains.
mod drained;
/// Stopping with tunnels and HTTP/2.
mod draining;
/// `explain`.
mod explain;
/// What is left when somebody takes all connections.
mod filled;
/// Requests with more than one framing.
mod framing;
/// What a policy hides from clients and not from operators.
mod hidden;
/// Clients that leave.
mod leaving;
/// Start, administration, stop.
mod lifecycle;
/// Completions and manual pages.
mod manual;
/// What an operator reads about each request.
mod operators;
/// Every command of the README and of docs/.
mod pages;
/// `mwl-proxy` without a file.
mod quickstart;
/// The retry-composition recipe.
mod recipe;
/// Exchanges that are kept, and sent again.
mod recorded;
/// `explain` and the running proxy, on each file in config/.
mod rehearsed;
/// A new configuration, without losing a request.
mod reload;
/// A restart without an outage.
mod restart;
/// The forms of a route, and the answers made from Results.
mod routes;
/// What the log says about failures.
mod telling;
/// TLS with curl, and certificates that change.
mod tls;
/// Traces through the proxy, and spans for a collector.
mod tracing;
/// Variations of the recipe.
mod variations;
