//! Metrics, events, records of requests, spans and the log. This folder uses the language, whose observer it
//! implements, and nothing above it.
//!
//! [`metrics`] always count everything. The others only work on request: [`events`] for those who read `/tap`
//! or have them logged; [`record`]s of whole requests for the access log, `/executions` ([`executions`]), the
//! exporter of spans ([`trace`]) and who watches a terminal ([`lines`]); [`recordings`] of whole exchanges for a developer.
//! [`history`] keeps the last minutes of the counters. [`sinks`] connects records with their readers. Nothing here waits for a
//! reader: output goes through a bounded queue ([`write_queue`]) or bounded buffers ([`batch_writer`]).

pub mod aside;
pub mod batch_writer;
pub mod events;
pub mod executions;
mod families;
mod hex;
pub mod history;
pub mod limiter;
pub mod lines;
pub mod log;
pub mod metrics;
mod process;
pub mod record;
pub mod recordings;
mod series;
pub mod settings;
mod shard;
pub mod sinks;
pub mod switches;
pub mod tap;
pub mod trace;
pub mod write_queue;
