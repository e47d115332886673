//! The program from outside: raw sockets in front, scripted upstreams behind, nothing of its inside known.
//!
//! A test fails by a deadline, never passes by one; real time passes only where a wait is what is tested.

/// The admin address.
mod admin;
/// Attempts side by side, wherever they are told.
mod attempts;
/// Bodies: streamed, replayed, bounded, whole.
mod bodies;
/// The other commands.
mod commands;
/// Every scenario through `flow run`.
mod corpus;
/// Stopping with tunnels and HTTP/2.
mod draining;
/// What would happen, said before it does.
mod explain;
/// What must not be read two ways.
mod framing;
/// The client goes away.
mod leaving;
/// Starting, administering, stopping.
mod lifecycle;
/// What an operator reads of each request.
mod operators;
/// `mwl-proxy` with no file.
mod quickstart;
/// The retry-composition recipe.
mod recipe;
/// Another configuration, without a request lost.
mod reload;
/// The forms of a route and what a Result becomes.
mod routes;
/// What the log says unasked.
mod telling;
/// TLS, by a client that others wrote, and files that change.
mod tls;
/// Traces through the proxy, and spans for a collector.
mod tracing;
/// The recipe's variations.
mod variations;
