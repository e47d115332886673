//! Runs a route's Flow for one request.

pub(crate) mod execute;
mod observer;
