//! Distributed tracing: a request's place in a trace ([`context`]), its spans ([`spans`]), and their
//! way to a collector ([`export`]).
//!
//! The proxy has no tracer in the sense of a library that one calls at each start and end: a request's
//! [`Recorder`](super::record::Recorder) knows all that its spans say, so they are made at once when the
//! request has ended, on the exporting thread. A request that is not sampled costs its two ids.

mod context;
mod export;
mod spans;

pub use self::context::{Context, Parent, SpanId, TRACEPARENT, TRACESTATE};
pub(super) use self::export::Counters;
pub use self::export::{Refused, Tracer};
