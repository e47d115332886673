//! Scripted peers, and other things that tests share.

/// A client on a raw socket.
pub(crate) mod client;
/// HTTP/2 frame by frame.
pub(crate) mod frames;
/// A gRPC service of tonic's.
pub(crate) mod grpc;
/// HTTP/2 on both ends.
pub(crate) mod h2;
/// Shared by the random laws.
pub(crate) mod law;
/// HTTP/1.1 on the wire.
pub(crate) mod message;
/// A scripted resolver.
pub(crate) mod names;
/// A scripted upstream of threads, for the program as a process.
pub(crate) mod origin;
/// A scripted upstream of either protocol.
pub(crate) mod peer;
/// The proxy for one client, over pipes.
pub(crate) mod piped;
/// The program as a process.
pub(crate) mod program;
/// The whole proxy, on loopback, in this process.
pub(crate) mod proxy;
/// A Redis server.
pub(crate) mod redis;
/// A call provider that plays a script.
pub(crate) mod script;
/// Entries of a stack.
pub(crate) mod stack;
/// TLS on either end.
pub(crate) mod tls;
/// A scripted upstream on a runtime, for the proxy in this process.
pub(crate) mod upstream;
/// A client of either protocol.
pub(crate) mod user;
/// Waiting for another thread.
pub(crate) mod watched;
/// A WebSocket server.
pub(crate) mod websocket;
