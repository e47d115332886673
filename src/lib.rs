//! mwl-proxy.
pub mod language;
pub mod source;
