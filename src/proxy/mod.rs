//! HTTP: listeners, routes, upstreams, the `http` call provider, rendering. Depends on the language,
//! never the reverse.
//!
//! A request's way: [`client`] accepts and reads a request, says its answer, and has [`run`] make that. It runs a
//! [`request`] whose head was checked and matched; the engine runs the route's plan and calls [`provider`]'s `http`,
//! which sends over an [`upstream`]'s connection and makes what comes back into an [`answer`]. A [`site`] is the
//! configuration that all this reads, as one worker holds it, [`build`] makes it, [`server`] is the workers.
//! [`rehearsal`] runs all of this for one request before scripted upstreams (a [`stage`]), in virtual time.
//!
//! Each of these is a room that names only those beneath it (`tests/it/layering.rs` lists them in order).

mod answer;
mod body;
mod build;
mod client;
mod code;
mod grpc;
mod h1;
mod h2;
mod io;
pub(crate) mod message;
pub(crate) mod provider;
pub(crate) mod rehearsal;
mod request;
mod run;
mod server;
pub mod settings;
mod site;
pub(crate) mod stage;
#[doc(hidden)]
pub mod testing;
pub mod tls;
mod upstream;
mod watch;

pub use body::BodyError;
pub use body::source::{Attempt, NotReplayable, Source};
pub use server::Server;
pub use site::route::{Router, Target};
pub use site::runtime::Runtime;
pub use upstream::resolve::Resolve;
