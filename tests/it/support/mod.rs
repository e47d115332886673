//! Scripted peers and what the tests share.

/// The whole proxy, on loopback.
pub(crate) mod proxy;
/// A call provider that plays a script.
pub mod script;
/// A scripted upstream that records exact bytes.
pub(crate) mod upstream;

/// A client on a raw socket.
pub(crate) mod client;
/// HTTP/1.1 on the wire.
pub(crate) mod message;
/// A scripted upstream.
pub(crate) mod origin;
/// The program as a process.
pub(crate) mod program;
/// Waiting for what another thread does.
pub(crate) mod watched;
