//! mwl-proxy.
pub mod admin;
pub mod app;
pub mod cli;
pub mod config;
pub mod import;
pub mod language;
pub mod proxy;
pub mod quickstart;
pub mod reload;
pub(crate) mod replay;
pub mod shutdown;
pub mod source;
pub mod system;
pub(crate) mod takeover;
pub mod telemetry;
pub mod testing;
