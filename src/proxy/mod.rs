//! HTTP: listeners, routes, upstreams, the `http` call provider, rendering. Depends on the language,
//! never the reverse.
pub mod settings;
