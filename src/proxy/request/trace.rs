//! A request's place in a trace.

use http::Version;

use super::head::ReceivedHead;
use crate::proxy::site::WorkerConfig;
use crate::telemetry::trace::{Context, Parent, TRACEPARENT, TRACESTATE};

/// A request's place in a trace.
#[derive(Debug)]
pub(crate) struct TracePlace {
    pub(super) context: Context,
    /// The client's HTTP version.
    pub(super) version: Version,
}

/// The place in a trace of a request with this head. `None` if nothing is traced; the caller's fields then stay
/// unchanged. A `tracestate` without a valid `traceparent` is removed (W3C Trace Context §3.3).
pub(super) fn trace(site: &WorkerConfig, head: &mut ReceivedHead) -> Option<Box<TracePlace>> {
    let tracer = site.runtime.sinks().tracer()?;
    let headers = &mut head.headers;
    let mut given = headers.get_all(TRACEPARENT).iter();
    let parent = match (given.next(), given.next()) {
        (Some(one), None) => Parent::parse(one.as_bytes()),
        _ => None,
    };
    if parent.is_none() {
        headers.remove(TRACESTATE);
    }
    let context = tracer.context(parent, site.core.ids.random());
    Some(Box::new(TracePlace { context, version: head.version }))
}
