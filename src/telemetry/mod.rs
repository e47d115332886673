//! Metrics, events and the log. Names the language (it implements its observer) and nothing above it.

mod families;
pub mod metrics;
mod process;
mod series;
