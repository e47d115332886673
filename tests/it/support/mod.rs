//! Scripted peers and what the tests share.

/// A call provider that plays a script.
pub mod script;
/// The whole proxy, on loopback.
pub mod proxy;
/// A scripted upstream.
pub mod upstream;
