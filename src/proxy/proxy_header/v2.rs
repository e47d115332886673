//! Version 2: twelve bytes that no other protocol begins with, then the command, the family, the length of the rest, the
//! addresses, and records (TLV) that this proxy has no use for.

use std::net::{IpAddr, SocketAddr};

use super::{Ends, HeaderError, LONGEST, Parsed};

pub(super) const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Up to the length of the rest, which is included.
const FIXED: usize = 16;
/// The version in the upper half of its byte.
const VERSION: u8 = 2;
const LOCAL: u8 = 0;
const PROXY: u8 = 1;
/// TCP over IPv4.
const TCP4: u8 = 0x11;
/// TCP over IPv6.
const TCP6: u8 = 0x21;
/// The families up to that of Unix sockets, and the transports up to datagrams.
const LAST: (u8, u8) = (3, 2);

/// Reads a header.
pub(super) fn read(bytes: &[u8]) -> Result<Parsed, HeaderError> {
    let Some((head, rest)) = bytes.split_at_checked(FIXED) else {
        return Ok(Parsed::Needs(FIXED));
    };
    let &[command, family, high, low] = head.last_chunk().unwrap_or(&[0; 4]);
    if command >> 4 != VERSION {
        return Err(HeaderError::Malformed("its version is not 2"));
    }
    let (address, transport) = (family >> 4, family & 0xf);
    if address > LAST.0 || transport > LAST.1 {
        return Err(HeaderError::Malformed("its family or its transport is unknown"));
    }
    let length = usize::from(u16::from_be_bytes([high, low]));
    let whole = FIXED + length;
    if whole > LONGEST {
        return Err(HeaderError::Malformed("it has more than 4096 bytes"));
    }
    let Some(rest) = rest.get(..length) else {
        return Ok(Parsed::Needs(whole));
    };
    let ends = match (command & 0xf, family) {
        (PROXY, TCP4) => Some(ends::<4>(rest)?),
        (PROXY, TCP6) => Some(ends::<16>(rest)?),
        (LOCAL | PROXY, _) => None,
        _ => return Err(HeaderError::Malformed("its command is neither LOCAL nor PROXY")),
    };
    Ok(Parsed::Whole(ends))
}

/// Both addresses, of so many bytes each, then both ports.
fn ends<const SIZE: usize>(bytes: &[u8]) -> Result<Ends, HeaderError>
where
    IpAddr: From<[u8; SIZE]>,
{
    let short = HeaderError::Malformed("it is too short for its addresses");
    let (source, rest) = bytes.split_first_chunk::<SIZE>().ok_or(short)?;
    let (destination, rest) = rest.split_first_chunk::<SIZE>().ok_or(short)?;
    let (&[a, b, c, d], _records) = rest.split_first_chunk::<4>().ok_or(short)?;
    Ok(Ends {
        source: SocketAddr::new(IpAddr::from(*source), u16::from_be_bytes([a, b])),
        destination: SocketAddr::new(IpAddr::from(*destination), u16::from_be_bytes([c, d])),
    })
}

/// The header for `ends`.
pub(super) fn write(ends: Option<Ends>) -> Vec<u8> {
    let mut header = SIGNATURE.to_vec();
    let Some(ends) = ends else {
        header.extend_from_slice(&[VERSION << 4 | LOCAL, 0, 0, 0]);
        return header;
    };
    let Ends { source, destination } = ends.of_one_family();
    // Two addresses and two ports.
    let (family, size) = if source.is_ipv4() { (TCP4, 12) } else { (TCP6, 36) };
    header.extend_from_slice(&[VERSION << 4 | PROXY, family, 0, size]);
    for end in [source, destination] {
        match end.ip() {
            IpAddr::V4(v4) => header.extend_from_slice(&v4.octets()),
            IpAddr::V6(v6) => header.extend_from_slice(&v6.octets()),
        }
    }
    for end in [source, destination] {
        header.extend_from_slice(&end.port().to_be_bytes());
    }
    header
}
