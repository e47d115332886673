//! mwl-proxy.
pub mod config;
pub mod language;
pub mod proxy;
pub mod source;
pub mod telemetry;
