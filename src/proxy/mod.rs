//! HTTP: listeners, routes, upstreams, the `http` call provider, rendering. Depends on the language, never the
//! reverse.
//!
//! The way of a request: [`client`] accepts it and reads it, and [`run`] makes the answer, which [`client`] writes. A
//! [`request`] has a head that was checked and matched to a route. The engine runs the route's plan and calls the
//! `http` [`provider`], which sends over a connection of an [`upstream`] and turns the response into an [`answer`]. A
//! [`site`] is the configuration as one worker holds it; [`build`] makes it, and [`server`] runs the workers.
//! [`rehearsal`] does all of this for one request in virtual time, with scripted upstreams (a [`stage`]).
//!
//! Each folder only names those beneath it (`tests/it/layering` lists them, from the lowest up).

mod answer;
mod body;
mod boxed;
mod build;
mod client;
mod code;
mod grpc;
mod h1;
mod h2;
pub(crate) mod io;
mod meaning;
mod memory;
pub(crate) mod message;
mod middleware;
pub(crate) mod provider;
pub mod proxy_header;
pub(crate) mod rehearsal;
mod request;
mod run;
mod server;
pub mod settings;
mod site;
pub(crate) mod stage;
mod store;
#[doc(hidden)]
pub mod testing;
pub mod tls;
mod upstream;
mod watch;

pub use body::BodyError;
pub use body::source::{AttemptBody, NotReplayable, ReplaySource};
pub use middleware::catalog;
pub use server::Server;
pub use site::route::{Router, Target};
pub use site::runtime::Runtime;
pub use upstream::resolve::Resolve;
pub use upstream::shared::UpstreamRegistry;
pub use upstream::summary::{EndpointSummary, Outcomes, PlacesSummary, UpstreamSummary};
