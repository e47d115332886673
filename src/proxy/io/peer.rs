//! The peer of a client connection, and how its protocol was chosen.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::proxy::tls::ClientCertificate;

/// The peer of a client connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    pub(crate) over: Negotiated,
    /// Its certificate, if it was asked for one.
    pub(crate) certificate: Option<Arc<ClientCertificate>>,
}

/// How the connection's protocol was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Negotiated {
    /// Clear text: the first bytes decide between HTTP/1.1 and HTTP/2.
    Clear,
    /// TLS: the handshake decided.
    Tls { http2: bool },
}

impl Peer {
    /// A peer in clear text.
    pub(crate) const fn clear(address: SocketAddr) -> Self {
        Self { address, over: Negotiated::Clear, certificate: None }
    }

    /// The scheme of its requests.
    pub(crate) const fn scheme(&self) -> &'static str {
        match self.over {
            Negotiated::Clear => "http",
            Negotiated::Tls { .. } => "https",
        }
    }
}

/// Its address.
impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}
