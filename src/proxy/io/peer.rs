//! The peer of a client connection, and how its protocol was chosen.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::proxy::proxy_header::Ends;
use crate::proxy::tls::ClientCertificate;

/// The peer of a client connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    /// The address that it has connected to, if that is known: of a connection that a PROXY header began, the header's.
    pub(crate) local: Option<SocketAddr>,
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
        Self { address, local: None, over: Negotiated::Clear, certificate: None }
    }

    /// The ends of a connection of `client`, which is this peer or, if that is a proxy, somebody behind it, whose port nobody
    /// knows. `None` if nobody knows what the peer has connected to.
    pub(crate) fn ends(&self, client: IpAddr) -> Option<Box<Ends>> {
        let own = self.address.ip().to_canonical() == client.to_canonical();
        let port = if own { self.address.port() } else { 0 };
        let source = SocketAddr::new(client, port);
        Some(Box::new(Ends { source, destination: self.local? }))
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
