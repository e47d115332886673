//! Who is at the other end of a client's connection.

use std::fmt;
use std::net::SocketAddr;

/// The other end of a client's connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    pub(crate) over: Over,
}

/// What a connection's HTTP goes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// The socket itself: which HTTP it is, the first bytes say.
    Clear,
    /// TLS, in whose handshake HTTP/2 was chosen, or was not.
    Tls { http2: bool },
}

impl Peer {
    /// One that speaks clear text.
    pub(crate) const fn clear(address: SocketAddr) -> Self {
        Self { address, over: Over::Clear }
    }

    /// The scheme of what it asks for.
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
