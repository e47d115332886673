//! Who the client is, and what the upstream is told about it: `X-Forwarded-*`, `Forwarded` (RFC 7239), `Via`
//! (RFC 9110 §7.6.3).
//!
//! Anybody can write these fields, so they are trusted from configured sources only. From any other client they
//! are removed, together with fields that a careless server would mistake for them (`X_Forwarded_For`: CGI and
//! its successors cannot tell the two apart). Without a `forwarded` section nothing is changed, because a
//! sidecar often runs behind another proxy whose fields its service should see.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use http::Version;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use crate::proxy::settings::{Cidr, Forwarded};

static FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
static HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// The name of this process in `Via`. A request may pass several proxies of this kind, so each process has its own name.
static PSEUDONYM: LazyLock<String> =
    LazyLock::new(|| format!("mwl-proxy-{:08x}", rand::random::<u32>()));

/// Every field that says who the client was or what it asked for. So does each field that begins with [`PREFIX`].
const NAMES: [&str; 27] = [
    "cf-connecting-ip",
    "cf-connecting-ipv6",
    "client-ip",
    "fastly-client-ip",
    "fly-client-ip",
    "forwarded",
    "forwarded-for",
    "front-end-https",
    "proxy-client-ip",
    "true-client-ip",
    "wl-proxy-client-ip",
    "x-appengine-user-ip",
    "x-azure-clientip",
    "x-azure-socketip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-envoy-external-address",
    "x-original-forwarded-for",
    "x-original-host",
    "x-original-proto",
    "x-original-uri",
    "x-original-url",
    "x-originating-ip",
    "x-real-ip",
    "x-remote-addr",
    "x-remote-ip",
    "x-rewrite-url",
];
const PREFIX: &str = "x-forwarded";

/// A request as it arrived on its connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hop<'a> {
    /// The peer of the connection.
    pub(crate) peer: IpAddr,
    /// The scheme of the listener.
    pub(crate) scheme: &'static str,
    /// The authority that was asked for, or empty.
    pub(crate) host: &'a str,
}

/// Adds this process to `Via` (RFC 9110 §7.6.3). Returns false if it is there already: the request runs in a loop.
pub(crate) fn add_via(fields: &mut HeaderMap, version: Version) -> bool {
    let receiver = |element: &[u8]| -> bool {
        let mut words =
            element.split(|byte| matches!(byte, b' ' | b'\t')).filter(|w| !w.is_empty());
        words.nth(1).is_some_and(|by| by.eq_ignore_ascii_case(PSEUDONYM.as_bytes()))
    };
    let mut all = fields.get_all(header::VIA).iter().map(HeaderValue::as_bytes);
    if all.any(|value| value.split(|byte| *byte == b',').any(receiver)) {
        return false;
    }
    let version = match version {
        Version::HTTP_2 => "2",
        Version::HTTP_11 => "1.1",
        _ => "1.0",
    };
    append(fields, &header::VIA, &format!("{version} {}", *PSEUDONYM));
    true
}

impl Forwarded {
    /// Applies the settings to the fields, and returns the client's address.
    pub(crate) fn apply(&self, fields: &mut HeaderMap, hop: Hop<'_>) -> IpAddr {
        let trusted = self.trusts(hop.peer);
        drop_unbelieved(fields, trusted);
        let client = if trusted { self.client(fields, hop.peer) } else { plain(hop.peer) };
        if self.x_forwarded {
            x_forwarded(fields, hop);
        }
        if self.forwarded {
            let element = element(hop);
            append(fields, &header::FORWARDED, &element);
        }
        client
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.trusted.iter().any(|cidr| cidr.contains(address))
    }

    /// The nearest address that is not trusted, counted from the proxy: anybody may have written the entries beyond
    /// it. If every address is trusted, the farthest one. An entry that is not an address ends the search.
    fn client(&self, fields: &HeaderMap, peer: IpAddr) -> IpAddr {
        let mut client = plain(peer);
        for entry in chain(fields).into_iter().rev() {
            let Some(address) = entry else {
                return client;
            };
            client = address;
            if !self.trusts(address) {
                return client;
            }
        }
        client
    }
}

/// The addresses in the fields, farthest first, from `X-Forwarded-For` or else from `Forwarded`. `None` stands
/// for an entry without an address.
fn chain(fields: &HeaderMap) -> Vec<Option<IpAddr>> {
    let texts = |name: &HeaderName| -> Vec<String> {
        let values = fields.get_all(name).iter();
        values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
    };
    if fields.contains_key(&FOR) {
        let all = texts(&FOR).join(",");
        return all.split(',').map(address).collect();
    }
    let all = texts(&header::FORWARDED).join(",");
    if all.is_empty() {
        return Vec::new();
    }
    let elements = split(&all, ',').into_iter();
    elements
        .map(|element| split(element, ';').into_iter().find_map(forwarded_for).and_then(address))
        .collect()
}

/// Splits at each `separator` outside of quoted strings, because a host chosen by somebody else may contain it
/// inside of one.
fn split(text: &str, separator: char) -> Vec<&str> {
    let (mut quoted, mut escaped) = (false, false);
    let outside = |c: char| {
        let found = c == separator && !quoted;
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = quoted,
            '"' => quoted = !quoted,
            _ => {}
        }
        found
    };
    text.split(outside).collect()
}

/// The value of a `for` parameter.
fn forwarded_for(pair: &str) -> Option<&str> {
    let (name, value) = pair.split_once('=')?;
    name.trim().eq_ignore_ascii_case("for").then(|| value.trim().trim_matches('"'))
}

/// An address, with or without a port; an IPv6 one with or without brackets.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    if let Some(rest) = text.strip_prefix('[') {
        let (inner, _) = rest.split_once(']')?;
        return inner.parse::<Ipv6Addr>().ok().map(|v6| plain(v6.into()));
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(plain(address));
    }
    let (host, _port) = text.split_once(':')?;
    host.parse::<Ipv4Addr>().ok().map(IpAddr::V4)
}

/// Converts an IPv4-mapped IPv6 address to IPv4.
fn plain(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// Removes what cannot be trusted: all of these fields if the peer is not trusted, and their aliases in any case.
fn drop_unbelieved(fields: &mut HeaderMap, trusted: bool) {
    let unbelieved = |name: &&HeaderName| match is_one_of_ours(name.as_str()) {
        Some(alias) => alias || !trusted,
        None => false,
    };
    let names: Vec<HeaderName> = fields.keys().filter(unbelieved).cloned().collect();
    for name in names {
        fields.remove(name);
    }
}

/// Whether a name is one of [`NAMES`] or begins with [`PREFIX`]; `Some(true)` if it is only an alias, with `_` or `.` in
/// place of a hyphen.
fn is_one_of_ours(name: &str) -> Option<bool> {
    if !name.starts_with(['c', 'f', 'p', 't', 'w', 'x']) {
        return None;
    }
    let plain = |byte: u8| if matches!(byte, b'_' | b'.') { b'-' } else { byte };
    let prefixed =
        name.len() >= PREFIX.len() && PREFIX.bytes().eq(name.bytes().take(PREFIX.len()).map(plain));
    let same = |ours: &&str| ours.len() == name.len() && ours.bytes().eq(name.bytes().map(plain));
    let is_alias = name.bytes().any(|byte| plain(byte) != byte);
    (prefixed || NAMES.iter().any(same)).then_some(is_alias)
}

fn x_forwarded(fields: &mut HeaderMap, hop: Hop<'_>) {
    append(fields, &FOR, &plain(hop.peer).to_string());
    if !fields.contains_key(&PROTO) {
        fields.insert(&PROTO, HeaderValue::from_static(hop.scheme));
    }
    if !fields.contains_key(&HOST)
        && let Ok(host) = HeaderValue::from_str(hop.host)
        && !hop.host.is_empty()
    {
        fields.insert(&HOST, host);
    }
}

/// An element of `Forwarded`. Anything that is not a token is quoted: an IPv6 address in brackets, a host with
/// a port.
fn element(hop: Hop<'_>) -> String {
    let mut element = match plain(hop.peer) {
        IpAddr::V4(peer) => format!("for={peer}"),
        IpAddr::V6(peer) => format!("for=\"[{peer}]\""),
    };
    if !hop.host.is_empty() {
        // A valid authority contains neither a quote nor a backslash. Writing to a string cannot fail.
        write!(element, ";host=\"{}\"", hop.host).ok();
    }
    element.push_str(";proto=");
    element.push_str(hop.scheme);
    element
}

/// Appends an element to a list, in one field. `a, b` and two fields mean the same, but more software reads the
/// former.
fn append(fields: &mut HeaderMap, name: &HeaderName, element: &str) {
    let mut all = Vec::new();
    for value in fields.get_all(name) {
        if !value.is_empty() {
            all.extend_from_slice(value.as_bytes());
            all.extend_from_slice(b", ");
        }
    }
    all.extend_from_slice(element.as_bytes());
    // The parts are field values, and so is a list of them.
    if let Ok(value) = HeaderValue::from_bytes(&all) {
        fields.insert(name, value);
    }
}

impl Cidr {
    /// Parses `10.0.0.0/8`, `::1/128` or a single address. The error says what to write.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is no address range; write for example `10.0.0.0/8`, `fd00::/8` or `127.0.0.1`"
            )
        };
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            None => most,
            Some(length) if length.bytes().all(|byte| byte.is_ascii_digit()) => {
                length.parse().ok().filter(|length| *length <= most).ok_or_else(wrong)?
            }
            Some(_) => return Err(wrong()),
        };
        let range = Self { address, length };
        let first = range.first();
        if first == address {
            return Ok(range);
        }
        Err(format!("`{text}` has bits beyond its length; write `{first}/{length}`"))
    }

    /// Whether the address is in the range. An IPv4-mapped IPv6 address counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let other = Self { address: plain(address), length: self.length };
        self.address.is_ipv4() == other.address.is_ipv4() && self.first() == other.first()
    }

    /// The first address of the range.
    fn first(&self) -> IpAddr {
        match self.address {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32_u32.saturating_sub(self.length)).unwrap_or(0);
                Ipv4Addr::from_bits(v4.to_bits() & mask).into()
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128_u32.saturating_sub(self.length)).unwrap_or(0);
                Ipv6Addr::from_bits(v6.to_bits() & mask).into()
            }
        }
    }
}

#[cfg(test)]
mod tests;
