//! Scripted peers and what the tests share.

/// The whole proxy, on loopback.
pub(crate) mod proxy;
/// A call provider that plays a script.
pub mod script;
/// A scripted upstream.
pub(crate) mod upstream;
