//! Version 1: `PROXY TCP4 192.0.2.1 198.51.100.7 56324 443` and the end of the line.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use super::{Ends, HeaderError, Parsed};

pub(super) const SIGNATURE: &[u8] = b"PROXY ";
const END: &[u8] = b"\r\n";
/// The longest line, with its end.
const LONGEST: usize = 107;
/// `PROXY UNKNOWN` and the end.
const SHORTEST: usize = 15;
/// `PROXY TCP4 0.0.0.0 0.0.0.0 0 0` and the end.
const SHORTEST_TCP4: usize = 32;
/// `PROXY TCP6 :: :: 0 0` and the end.
const SHORTEST_TCP6: usize = 22;

/// Reads a line.
pub(super) fn read(bytes: &[u8]) -> Result<Parsed, HeaderError> {
    let possible = bytes.get(..LONGEST).unwrap_or(bytes);
    let end = possible.windows(END.len()).position(|window| window == END);
    let Some(line) = end.and_then(|end| bytes.get(..end)) else {
        return if bytes.len() >= LONGEST {
            Err(HeaderError::Malformed("its line has more than 107 bytes"))
        } else {
            Ok(Parsed::Needs(least(bytes).min(LONGEST)))
        };
    };
    let text = std::str::from_utf8(line).map_err(|_| HeaderError::Malformed("it is not ASCII"))?;
    let mut words = text.split(' ').skip(1);
    let ends = match words.next() {
        Some("TCP4") => ends::<Ipv4Addr>(words)?,
        Some("TCP6") => ends::<Ipv6Addr>(words)?,
        // Whatever follows is to be ignored.
        Some("UNKNOWN") => return Ok(Parsed::Whole(None)),
        _ => return Err(HeaderError::Malformed("its protocol is not TCP4, TCP6 or UNKNOWN")),
    };
    Ok(Parsed::Whole(Some(ends)))
}

/// How many bytes a line that begins with `bytes` and does not end there has at least.
fn least(bytes: &[u8]) -> usize {
    let shortest = match bytes.get(SIGNATURE.len()..).unwrap_or_default() {
        [b'T', b'C', b'P', b'4', ..] => SHORTEST_TCP4,
        [b'T', b'C', b'P', b'6', ..] => SHORTEST_TCP6,
        _ => SHORTEST,
    };
    let missing = if bytes.ends_with(b"\r") { 1 } else { END.len() };
    shortest.max(bytes.len() + missing)
}

/// The addresses and the ports.
fn ends<'a, A: FromStr + Into<IpAddr>>(
    mut words: impl Iterator<Item = &'a str>,
) -> Result<Ends, HeaderError> {
    let mut word = || words.next().unwrap_or_default();
    let [source, destination] = [word(), word()].map(|word| word.parse::<A>().map(Into::into));
    let [from, to] = [word(), word()].map(port);
    if words.next().is_some() {
        return Err(HeaderError::Malformed("something follows its ports"));
    }
    let (Ok(source), Ok(destination)) = (source, destination) else {
        return Err(HeaderError::Malformed("its addresses are none of its protocol"));
    };
    let (Some(from), Some(to)) = (from, to) else {
        return Err(HeaderError::Malformed("its ports are no numbers from 0 to 65535"));
    };
    let (source, destination) = (SocketAddr::new(source, from), SocketAddr::new(destination, to));
    Ok(Ends { source, destination })
}

/// A number without a sign and without zeros before it.
fn port(word: &str) -> Option<u16> {
    let digits = word.bytes().all(|byte| byte.is_ascii_digit());
    let plain = word == "0" || !word.starts_with('0');
    word.parse().ok().filter(|_| digits && plain)
}

/// The line for `ends`.
pub(super) fn write(ends: Option<Ends>) -> Vec<u8> {
    let Some(ends) = ends else {
        return b"PROXY UNKNOWN\r\n".to_vec();
    };
    let Ends { source, destination } = ends.of_one_family();
    let protocol = if source.is_ipv4() { "TCP4" } else { "TCP6" };
    let (from, to) = (source.ip(), destination.ip());
    format!("PROXY {protocol} {from} {to} {} {}\r\n", source.port(), destination.port()).into()
}
