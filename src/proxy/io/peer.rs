//! The peer of a client connection, and how its protocol was chosen.

use std::fmt;
use std::net::SocketAddr;

/// The peer of a client connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    pub(crate) over: Over,
}

/// How the connection's protocol was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// Clear text: the first bytes decide between HTTP/1.1 and HTTP/2.
    Clear,
    /// TLS: the handshake decided.
    Tls { http2: bool },
}

impl Peer {
    /// A peer in clear text.
    pub(crate) const fn clear(address: SocketAddr) -> Self {
        Self { address, over: Over::Clear }
    }

    /// The scheme of its requests.
    pub(crate) const fn scheme(self) -> &'static str {
        match self.over {
            Over::Clear => "http",
            Over::Tls { .. } => "https",
        }
    }
}

/// Its address.
impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}
