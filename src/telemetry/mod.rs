//! Metrics, events and the log. Names the language (it implements its observer) and nothing above it.

pub mod events;
mod families;
pub mod log;
pub mod metrics;
mod process;
mod series;
