//! Distributed tracing: a request's place in a trace ([`context`]), its spans ([`spans`]), and their export to
//! a collector ([`export`], by [`task`] to [`collector`]).
//!
//! There is no tracer that is called at each start and end. A request's [`Recorder`](super::record::Recorder)
//! knows everything that its spans say, so they are written when the request has ended, as the collector gets them
//! ([`protobuf`]); the exporting thread only puts them together. A request that is not sampled only costs its two ids.

mod collector;
mod context;
mod export;
mod protobuf;
mod spans;
mod task;

pub use self::context::{Context, Parent, SpanId, TRACEPARENT, TRACESTATE};
pub(super) use self::export::Counters;
pub use self::export::{Tracer, TracerError};
