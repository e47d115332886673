//! Metrics, events and the log. Names the language (it implements its observer) and nothing above it.
pub mod metrics;
