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
mod tests {
    use super::*;

    fn settings(trusted: &[&str]) -> Forwarded {
        let trusted = trusted.iter().map(|text| Cidr::parse(text).unwrap()).collect();
        Forwarded { trusted, x_forwarded: true, forwarded: true, via: false }
    }

    /// The client, and the fields, after `fields` arrived from `peer`.
    fn after(
        trusted: &[&str],
        peer: &str,
        fields: &[(&'static str, &'static str)],
    ) -> (String, Vec<String>) {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(*name, HeaderValue::from_static(value));
        }
        let hop = Hop { peer: peer.parse().unwrap(), scheme: "http", host: "shop.test:81" };
        let client = settings(trusted).apply(&mut map, hop);
        let mut shown: Vec<_> = map
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        shown.sort_unstable();
        (client.to_string(), shown)
    }

    #[test]
    fn what_an_unknown_client_says_is_taken_off() {
        let (client, fields) = after(
            &["10.0.0.0/8"],
            "192.0.2.9",
            &[
                ("x-forwarded-for", "6.6.6.6"),
                ("x-forwarded-proto", "https"),
                ("x-real-ip", "6.6.6.6"),
                ("forwarded", "for=6.6.6.6"),
                ("x_forwarded_for", "6.6.6.6"),
                ("x.forwarded.host", "evil.test"),
                ("x-forwarded-scheme", "https"),
                ("true-client-ip", "6.6.6.6"),
                ("x-forward", "kept"),
            ],
        );
        assert_eq!(client, "192.0.2.9");
        assert_eq!(
            fields,
            [
                "forwarded: for=192.0.2.9;host=\"shop.test:81\";proto=http",
                "x-forward: kept",
                "x-forwarded-for: 192.0.2.9",
                "x-forwarded-host: shop.test:81",
                "x-forwarded-proto: http",
            ]
        );
    }

    /// However a careless server may read them.
    #[test]
    fn every_name_and_its_aliases_are_taken_off() {
        let prefixed =
            ["x-forwarded", "x-forwarded-host", "x-forwarded-client-cert", "x-forwarded-user"];
        for name in NAMES.iter().chain(&prefixed) {
            let aliases = [name.to_string(), name.replace('-', "_"), name.replace('-', ".")];
            for (alias, trusted) in aliases.iter().flat_map(|name| [(name, false), (name, true)]) {
                let mut fields = HeaderMap::new();
                fields.append(HeaderName::try_from(alias).unwrap(), HeaderValue::from_static("1"));
                drop_unbelieved(&mut fields, trusted);
                let stays = trusted && alias == name;
                assert_eq!(fields.len(), usize::from(stays), "{alias} {trusted}");
            }
        }
        for name in ["x-request-id", "x-forward", "x-tenant", "content-type", "client", "via"] {
            assert_eq!(is_one_of_ours(name), None, "{name}");
        }
        assert!(NAMES.is_sorted());
    }

    #[test]
    fn a_request_that_goes_round_in_a_circle_is_known() {
        let via = |all: &[&str]| {
            let values = all.iter().map(|value| HeaderValue::from_str(value).unwrap());
            let mut fields: HeaderMap = values.map(|value| (header::VIA, value)).collect();
            let once = add_via(&mut fields, Version::HTTP_2);
            (once, fields[header::VIA].to_str().unwrap().to_owned())
        };
        let own = &**PSEUDONYM;
        assert_eq!(via(&[]), (true, format!("2 {own}")));
        let others = ["1.1 mwl-proxy, 1.0 fred (a comment)", "1.1 other"];
        let all = format!("1.1 mwl-proxy, 1.0 fred (a comment), 1.1 other, 2 {own}");
        assert_eq!(via(&others), (true, all));
        for circle in
            [format!("2 {own}"), format!("1.1 a,HTTP/1.1  {own} (x), 1.1 b"), own.to_uppercase()]
        {
            let circle = if circle.contains(' ') { circle } else { format!("1.1 {circle}") };
            assert!(!via(&[&circle]).0, "{circle}");
        }
    }

    #[test]
    fn what_a_trusted_proxy_says_is_kept_and_added_to() {
        let (client, fields) = after(
            &["10.0.0.0/8", "fd00::/8"],
            "::ffff:10.0.0.1",
            &[
                ("x-forwarded-for", "6.6.6.6, 192.0.2.9"),
                ("x-forwarded-for", "fd00::1"),
                ("x-forwarded-proto", "https"),
                ("x-forwarded-host", "front.test"),
                ("x_forwarded_for", "6.6.6.6"),
                ("forwarded", "for=_hidden"),
            ],
        );
        assert_eq!(client, "192.0.2.9", "behind it anybody may have written");
        assert_eq!(
            fields,
            [
                "forwarded: for=_hidden, for=10.0.0.1;host=\"shop.test:81\";proto=http",
                "x-forwarded-for: 6.6.6.6, 192.0.2.9, fd00::1, 10.0.0.1",
                "x-forwarded-host: front.test",
                "x-forwarded-proto: https",
            ]
        );
    }

    #[test]
    fn the_client_is_the_nearest_that_nobody_vouches_for() {
        let client =
            |fields: &[(&'static str, &'static str)]| after(&["10.0.0.0/8"], "10.0.0.1", fields).0;
        assert_eq!(client(&[]), "10.0.0.1");
        assert_eq!(client(&[("x-forwarded-for", "10.0.0.3, 10.0.0.2")]), "10.0.0.3");
        assert_eq!(client(&[("x-forwarded-for", "1.1.1.1:80, 10.0.0.2")]), "1.1.1.1");
        assert_eq!(client(&[("x-forwarded-for", "1.1.1.1, rubbish, 10.0.0.2")]), "10.0.0.2");
        assert_eq!(client(&[("forwarded", "for=\"[2001:db8::1]:9\";proto=https")]), "2001:db8::1");
        assert_eq!(client(&[("forwarded", "for=1.1.1.1, For=10.0.0.2")]), "1.1.1.1");
        assert_eq!(client(&[("forwarded", "proto=https")]), "10.0.0.1");
        let hidden = "for=1.1.1.1;host=\"x,for=9.9.9.9;a\\\",for=8.8.8.8\"";
        assert_eq!(client(&[("forwarded", hidden)]), "1.1.1.1");
        let both = [("x-forwarded-for", "1.1.1.1"), ("forwarded", "for=2.2.2.2")];
        assert_eq!(client(&both), "1.1.1.1");
    }

    #[test]
    fn an_ipv6_client_is_quoted() {
        let (client, fields) = after(&[], "2001:db8::1", &[]);
        assert_eq!(client, "2001:db8::1");
        assert_eq!(fields[0], "forwarded: for=\"[2001:db8::1]\";host=\"shop.test:81\";proto=http");
    }

    #[test]
    fn a_range_is_an_address_and_a_length() {
        let contains = |range: &str, address: &str| {
            Cidr::parse(range).unwrap().contains(address.parse().unwrap())
        };
        assert!(contains("0.0.0.0/0", "255.1.1.1") && !contains("0.0.0.0/0", "::1"));
        assert!(contains("10.1.2.128/25", "10.1.2.129") && !contains("10.1.2.128/25", "10.1.2.1"));
        assert!(contains("::/0", "fd00::1") && contains("fd00::/8", "fdff::1"));
        assert!(contains("127.0.0.1", "::ffff:127.0.0.1") && !contains("127.0.0.1", "127.0.0.2"));
        for bad in ["", "10.0.0.0/33", "::/129", "a/8", "10.0.0.0/", "10.0.0.0/+8", "10/8"] {
            assert!(Cidr::parse(bad).is_err(), "{bad}");
        }
        let beyond = "`10.0.0.1/8` has bits beyond its length; write `10.0.0.0/8`";
        assert_eq!(Cidr::parse("10.0.0.1/8"), Err(beyond.to_owned()));
    }
}
