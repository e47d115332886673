//! HTTP/2 (RFC 9113), for clients and upstreams.
//!
//! [`wire`] reads and writes frames, controls the flow and stops floods, and [`hpack`] compresses fields. Around them is what
//! both sides need: counts of a connection's bytes ([`traffic`]), reading and sending a body ([`incoming`],
//! [`body_writer`]), the limits of a head ([`head_limits`]), and a client's stream as it is shared by everything that
//! answers it ([`request_stream`]).
//!
//! A stream's window is 64 KiB. A client may send so much more than a slow upstream reads, so at most this much of one
//! upload is held. The connection's window is large enough for all its streams, so that uploads which stall cannot take
//! the window from one that progresses.

mod body_writer;
mod head_limits;
mod hpack;
mod incoming;
mod request_stream;
#[cfg(test)]
mod tests;
mod traffic;
mod wire;

pub(crate) use self::body_writer::{BodyWriteError, BodyWriter};
pub(crate) use self::head_limits::OverLimit;
pub(crate) use self::incoming::Incoming;
pub(crate) use self::request_stream::RequestStream;
pub(crate) use self::traffic::{CountsSnapshot, Traffic};
pub(crate) use self::wire::{
    Builder, ClientConnection, Error, PingPong, Reason, RecvStream, ResponseFuture, SendRequest,
    SendResponse, SendStream, ServerConnection,
};

/// The window of a stream, in bytes.
pub(crate) const WINDOW: u32 = 64 * 1024;

/// The most requests on one connection to an upstream, even if it accepts more.
pub(crate) const STREAMS: u32 = 100;

/// The window of a connection with this many streams, up to the protocol's maximum (RFC 9113 §6.9.1).
pub(crate) fn connection_window(streams: u32) -> u32 {
    const LARGEST: u32 = (1 << 31) - 1;
    WINDOW.saturating_mul(streams).min(LARGEST)
}
