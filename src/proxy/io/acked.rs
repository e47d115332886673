//! How many bytes a connection's other side has acknowledged.
//!
//! A socket has room again only when about a third of its buffer is free, which may be a megabyte. A client that reads
//! slowly seems to take nothing until then. The system knows better (`sock_diag(7)`).

use std::net::SocketAddr;

/// Both addresses of a TCP connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
}

impl Addresses {
    /// How many bytes the peer's system has acknowledged since the connection began. `None` if this system does not tell.
    pub(crate) fn acknowledged(&self) -> Option<u64> {
        system::acknowledged(self)
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::net::{IpAddr, SocketAddr};

    use rustix::net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send,
        socket_with,
    };

    use super::Addresses;

    /// `SOCK_DIAG_BY_FAMILY`, and `NLM_F_REQUEST`.
    const BY_FAMILY: u16 = 20;
    const REQUEST: u16 = 1;
    /// `IPPROTO_TCP`.
    const TCP: u8 = 6;
    /// `INET_DIAG_INFO`: the attribute that holds a `struct tcp_info`.
    const INFO: u16 = 2;
    /// The size of a question.
    const QUESTION: u32 = 72;
    /// Where the attributes of an answer begin, and where `tcpi_bytes_acked` is in a `struct tcp_info`.
    const ATTRIBUTES: usize = 88;
    const BYTES_ACKED: usize = 120;

    pub(super) fn acknowledged(addresses: &Addresses) -> Option<u64> {
        let kind = SocketType::DGRAM;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let system = socket_with(AddressFamily::NETLINK, kind, flags, Some(netlink::SOCK_DIAG));
        let system = system.ok()?;
        send(&system, &question(addresses), SendFlags::empty()).ok()?;
        // The answer is there as soon as the question is sent.
        let mut answer = [0; 1024];
        let (_, size) = recv(&system, &mut answer[..], RecvFlags::empty()).ok()?;
        bytes_acked(answer.get(..size)?)
    }

    /// A `struct nlmsghdr` and a `struct inet_diag_req_v2`, for one connection.
    fn question(addresses: &Addresses) -> Vec<u8> {
        let Addresses { local, peer } = addresses;
        let family = match local {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let scope = if let SocketAddr::V6(local) = local { local.scope_id() } else { 0 };
        let family = u8::try_from(family.as_raw()).unwrap_or_default();
        let mut question = Vec::with_capacity(QUESTION as usize);
        question.extend(QUESTION.to_ne_bytes());
        question.extend(BY_FAMILY.to_ne_bytes());
        question.extend(REQUEST.to_ne_bytes());
        question.extend([0; 8]);
        question.extend([family, TCP, 1 << (INFO - 1), 0]);
        // In any state.
        question.extend([0xff; 4]);
        question.extend(local.port().to_be_bytes());
        question.extend(peer.port().to_be_bytes());
        question.extend(octets(local.ip()));
        question.extend(octets(peer.ip()));
        question.extend(scope.to_ne_bytes());
        // Without a cookie.
        question.extend([0xff; 8]);
        question
    }

    fn octets(ip: IpAddr) -> [u8; 16] {
        match ip {
            IpAddr::V4(ip) => {
                let [a, b, c, d] = ip.octets();
                [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
            }
            IpAddr::V6(ip) => ip.octets(),
        }
    }

    fn bytes_acked(answer: &[u8]) -> Option<u64> {
        if u16_at(answer, 4)? != BY_FAMILY {
            return None;
        }
        let mut rest = answer.get(ATTRIBUTES..)?;
        loop {
            let (size, kind) = (usize::from(u16_at(rest, 0)?), u16_at(rest, 2)?);
            if kind == INFO {
                let bytes = rest.get(4..size)?.get(BYTES_ACKED..)?.first_chunk()?;
                return Some(u64::from_ne_bytes(*bytes));
            }
            rest = rest.get(size.max(4).next_multiple_of(4)..)?;
        }
    }

    fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
        Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
    }
}

/// Other systems do not tell.
#[cfg(not(target_os = "linux"))]
mod system {
    use super::Addresses;

    pub(super) fn acknowledged(_: &Addresses) -> Option<u64> {
        None
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    /// What is written to a connection, and what of it is acknowledged although nobody reads it.
    fn told(address: &str) -> Option<(u64, u64)> {
        let listener = TcpListener::bind(address).ok()?;
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, peer) = listener.accept().unwrap();
        let addresses = Addresses { local: server.local_addr().unwrap(), peer };
        let before = addresses.acknowledged();
        server.write_all(&[0; 1000]).unwrap();
        client.read_exact(&mut [0; 1000]).unwrap();
        Some((before.unwrap(), addresses.acknowledged().unwrap()))
    }

    #[test]
    fn the_system_tells_how_much_was_acknowledged() {
        assert_eq!(told("127.0.0.1:0"), Some((0, 1000)));
        // Not everywhere.
        assert!(told("[::1]:0").is_none_or(|told| told == (0, 1000)));
    }

    #[test]
    fn of_a_connection_that_does_not_exist_it_tells_nothing() {
        let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
        assert_eq!(Addresses { local: nobody, peer: nobody }.acknowledged(), None);
    }
}
