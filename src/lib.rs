//! mwl-proxy.
pub mod language;
pub mod proxy;
pub mod source;
pub mod telemetry;
