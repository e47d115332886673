//! The endpoints of an upstream, and how requests are spread over them.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use crate::language::expr::Program;
use crate::proxy::tls::EndpointTls;

/// One endpoint of an upstream, as configured: a name, an address or a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// A name or an IP address (without brackets). `localhost` for a Unix socket.
    pub host: Arc<str>,
    /// The port; 0 for a Unix socket.
    pub port: u16,
    /// `host:port`, with an IPv6 address in brackets, or `unix:/path`: the name in messages and details.
    pub authority: Arc<str>,
    /// The path of the Unix socket, if it is one.
    pub socket: Option<Arc<Path>>,
    /// Its share of the requests, in relation to the others' (default 1).
    pub weight: u32,
    /// The TLS settings; `None` means clear text. All endpoints of an upstream that are no sockets are alike in this.
    pub tls: Option<EndpointTls>,
}

/// Which endpoint gets the next request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// Of two that are drawn at random, the one with fewer requests for its weight.
    #[default]
    LeastRequest,
    /// One after the other, as often as their weights say.
    RoundRobin,
    /// At random, as often as their weights say.
    Random,
    /// The one that a key belongs to.
    Hash(HashKey),
}

/// The expression for a key. It reads nothing but what is known before the request is sent, and no body.
#[derive(Clone, Debug)]
pub struct HashKey(pub Program);

impl Endpoint {
    /// The address, if that is what is configured.
    pub fn address(&self) -> Option<SocketAddr> {
        let address = self.host.parse::<IpAddr>().ok().filter(|_| self.socket.is_none());
        address.map(|address| SocketAddr::new(address, self.port))
    }

    /// Whether it is a name, which must be looked up.
    pub fn is_named(&self) -> bool {
        self.socket.is_none() && self.address().is_none()
    }

    /// The `Host` of a request that has none of its own.
    pub fn host_field(&self) -> &str {
        if self.socket.is_some() { &self.host } else { &self.authority }
    }
}

/// The same text is the same key.
impl PartialEq for HashKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.source() == other.0.source()
    }
}

impl Eq for HashKey {}
