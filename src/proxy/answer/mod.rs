//! The outcome of a request: an attempt's outcome as the language carries it, and the answer that the client gets.

pub(crate) mod body;
pub(crate) mod classify;
pub(crate) mod finish;
mod grpc;
mod rate_limit;
pub(crate) mod render;
pub(crate) mod reply;
pub(crate) mod retry_after;
mod truncated;
pub(crate) mod watched;
