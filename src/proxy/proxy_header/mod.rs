//! The header of the PROXY protocol, versions 1 and 2, by which a proxy tells the server behind it, as the first bytes of a
//! connection, whose connection it carries (`proxy-protocol.txt`).
//!
//! A reader must know beforehand that a header comes: nobody can tell one from the first bytes of another protocol with
//! certainty. So only connections from configured senders are read this way. No byte after the header is read, because it
//! may belong to TLS: [`read`] says how many bytes the header has at least.

pub(crate) mod receive;
mod v1;
mod v2;

use std::net::SocketAddr;

/// How long a header may be, with everything that it says beside the addresses. Version 1 allows 107 bytes.
pub(crate) const LONGEST: usize = 4096;

/// The version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyVersion {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

/// The ends of the connection that a header speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
}

/// What the first bytes of a connection are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// The header, whole. `None`: the connection is the sender's own (`LOCAL`), or its ends are no addresses of IP
    /// (`UNKNOWN`, `AF_UNSPEC`, `AF_UNIX`) or not of TCP.
    Whole(Option<Ends>),
    /// A part of it. The whole has at least so many bytes.
    Needs(usize),
}

/// Why bytes are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HeaderError {
    /// They begin otherwise.
    #[error("the connection does not begin with a PROXY header")]
    Missing,
    /// They begin like one.
    #[error("the PROXY header is malformed: {0}")]
    Malformed(&'static str),
}

/// Reads a header, which `bytes` are a part of, or all of.
pub(crate) fn read(bytes: &[u8]) -> Result<Parsed, HeaderError> {
    if bytes.is_empty() {
        // The first byte tells the versions apart.
        Ok(Parsed::Needs(1))
    } else if begins(bytes, v2::SIGNATURE) {
        v2::read(bytes)
    } else if begins(bytes, v1::SIGNATURE) {
        v1::read(bytes)
    } else {
        Err(HeaderError::Missing)
    }
}

/// The header that says that a connection is for `ends`; `None`: that it is the sender's own.
pub(crate) fn write(version: ProxyVersion, ends: Option<Ends>) -> Vec<u8> {
    match version {
        ProxyVersion::V1 => v1::write(ends),
        ProxyVersion::V2 => v2::write(ends),
    }
}

/// Whether `bytes` and `start` are the same as far as both go.
fn begins(bytes: &[u8], start: &[u8]) -> bool {
    bytes.iter().zip(start).all(|(byte, wanted)| byte == wanted)
}

impl Ends {
    /// These ends as addresses of one family: IPv4 if both are that, even as mapped ones.
    fn of_one_family(self) -> Self {
        let plain = |end: SocketAddr| SocketAddr::new(end.ip().to_canonical(), end.port());
        let (source, destination) = (plain(self.source), plain(self.destination));
        if source.is_ipv4() == destination.is_ipv4() {
            return Self { source, destination };
        }
        Self { source: mapped(source), destination: mapped(destination) }
    }
}

/// An address as one of IPv6.
fn mapped(end: SocketAddr) -> SocketAddr {
    match end {
        SocketAddr::V4(v4) => SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port()),
        v6 @ SocketAddr::V6(_) => v6,
    }
}

#[cfg(test)]
mod tests;
