//! HTTP: listeners, routes, upstreams, the `http` call provider, rendering. Depends on the language,
//! never the reverse.
//!
//! A request's way: [`listener`] accepts, [`connection`] serves: a [`conversation`] reads requests and says
//! answers, which [`execute`] makes. It runs a request that [`head`] has checked and [`route`] has matched; the
//! engine runs the route's plan and calls [`provider`]'s `http`, which sends over an [`upstream`]'s connection and
//! [`classify`]s what comes back into a [`reply`]; [`render`] answers. [`runtime`] is the configuration that all
//! this reads, [`site`] what one worker holds of it, [`server`] the workers. [`rehearsal`] runs all of this for
//! one request before scripted upstreams, in virtual time.

pub mod alone;
pub(crate) mod body;
pub(crate) mod classify;
pub(crate) mod code;
pub(crate) mod connection;
pub(crate) mod conversation;
pub(crate) mod execute;
pub(crate) mod facts;
pub(crate) mod finish;
pub(crate) mod flight;
pub(crate) mod forwarded;
pub(crate) mod grpc;
pub(crate) mod h1;
pub(crate) mod head;
pub(crate) mod headers;
pub(crate) mod id;
pub(crate) mod interim;
pub(crate) mod listener;
pub(crate) mod media;
pub(crate) mod multiplexed;
pub(crate) mod nearby;
pub(crate) mod observer;
pub(crate) mod pour;
pub(crate) mod provider;
pub(crate) mod query;
pub(crate) mod rate_limit;
pub(crate) mod recording;
pub(crate) mod refusal;
pub(crate) mod rehearsal;
pub(crate) mod render;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod retry_after;
pub(crate) mod rewound;
pub(crate) mod route;
pub mod runtime;
pub mod server;
pub mod settings;
pub(crate) mod shape;
pub(crate) mod site;
pub(crate) mod target;
#[doc(hidden)]
pub mod testing;
pub mod tls;
pub(crate) mod tunnel;
pub(crate) mod upstream;
pub(crate) mod watch;
pub(crate) mod watched;

pub use body::BodyError;
pub use body::source::{Attempt, NotReplayable, Source};
pub use route::{Router, Target};
pub use runtime::Runtime;
pub use server::Server;
pub use upstream::resolve::Resolve;
