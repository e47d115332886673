//! The integration tests: one binary, a line per module.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "tests: a broken assumption is a failed test"
)]

/// Attempts, each with an identity of its own.
mod attempts;
/// Cancellation from outside, everywhere.
mod cancels;
/// The language's rules, a case each.
mod cases;
/// The CEL specification's own tests.
mod cel;
/// The program from outside, on real sockets.
mod e2e;
/// What holds for long and for many.
mod endurance;
/// Errors and their sources.
mod errors;
/// The guide, whose examples are run.
mod guide;
/// HTTP that holds: matrices, properties, endurance, real clients.
mod holds;
/// Hostile expressions, wherever an expression can stand.
mod hostile;
/// The policies of other systems.
mod import;
/// Middlewares that keep state.
mod keeps;
/// The page of the language: its functions are run, its providers are those of the catalog.
mod language;
/// Random stacks of the four middlewares against a model of the specification.
mod laws;
/// Laws of the middlewares, a property each.
mod laws_each;
/// Random Flows against a model of the specification.
mod laws_flows;
/// Dependencies point inward.
mod layering;
/// The table of limits.
mod limits;
/// Policies of other systems.
mod policies;
/// The middlewares that know what happened before, in stacks.
mod protections;
/// The proxy over real sockets.
mod proxy;
/// The table of the specification's requirements.
mod requirements;
/// Policies with mistakes, and sound ones.
mod review;
/// Scripted peers.
mod support;
/// A listener of `/tap` that does not keep up.
mod tap;
