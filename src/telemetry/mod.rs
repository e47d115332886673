//! Metrics, events, records of requests, spans and the log. Names the language (it implements its
//! observer) and nothing above it.
//!
//! [`metrics`] count everything, always. The others are asked for: [`events`] by whoever listens to
//! `/tap` or has them logged; [`record`]s of whole requests by the access log, `/executions`
//! ([`executions`]) and the exporter of spans ([`trace`]), which [`sinks`] brings together. Nothing of
//! this waits for a reader: what is written goes through a bounded queue ([`lines`]).

pub mod events;
pub mod executions;
mod families;
pub mod lines;
pub mod log;
pub mod metrics;
pub mod pace;
mod process;
pub mod record;
mod series;
pub mod settings;
pub mod sinks;
pub mod tap;
pub mod trace;
