use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;

fn ends(source: &str, destination: &str) -> Ends {
    Ends { source: source.parse().unwrap(), destination: destination.parse().unwrap() }
}

fn any_end(v4: bool) -> impl Strategy<Value = SocketAddr> {
    (any::<u32>(), any::<u128>(), any::<u16>()).prop_map(move |(small, large, port)| {
        let ip = if v4 { Ipv4Addr::from(small).into() } else { Ipv6Addr::from(large).into() };
        SocketAddr::new(ip, port)
    })
}

/// Two ends of one family.
fn any_ends() -> impl Strategy<Value = Ends> {
    let of = |v4| (any_end(v4), any_end(v4));
    prop_oneof![of(true), of(false)]
        .prop_map(|(source, destination)| Ends { source, destination }.of_one_family())
}

fn any_version() -> impl Strategy<Value = ProxyVersion> {
    prop_oneof![Just(ProxyVersion::V1), Just(ProxyVersion::V2)]
}

#[test]
fn a_line_says_whose_connection_it_is() {
    for (line, wanted) in [
        (
            "PROXY TCP4 192.0.2.1 198.51.100.7 56324 443\r\n",
            Some(ends("192.0.2.1:56324", "198.51.100.7:443")),
        ),
        ("PROXY TCP6 2001:db8::1 ::1 0 65535\r\n", Some(ends("[2001:db8::1]:0", "[::1]:65535"))),
        ("PROXY UNKNOWN\r\n", None),
        ("PROXY UNKNOWN ffff::1 ? 1\r\n", None),
    ] {
        assert_eq!(read(line.as_bytes()), Ok(Parsed::Whole(wanted)), "{line}");
    }
}

#[test]
fn what_is_not_quite_a_line_is_refused() {
    let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(107));
    let said = |line: &str| match read(line.as_bytes()) {
        Err(error) => error.to_string(),
        Ok(parsed) => format!("{parsed:?}"),
    };
    let lines = [
        "GET / HTTP/1.1\r\n",
        "PROXYTCP4",
        "PROXY TCP4 192.0.2.1 198.51.100.7 56324 443 \r\n",
        "PROXY  TCP4 192.0.2.1 198.51.100.7 56324 443\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.7 56324 65536\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.7 +1 443\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.7 01 443\r\n",
        "PROXY TCP4 192.0.2.01 198.51.100.7 1 443\r\n",
        "PROXY TCP4 ::1 ::1 1 443\r\n",
        "PROXY TCP6 192.0.2.1 ::1 1 443\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.7 1\r\n",
        "PROXY TCP5 192.0.2.1 198.51.100.7 1 2\r\n",
        "PROXY \r\n",
        "PROXY TCP4 192.0.2.1\n",
        &long,
    ];
    let said: Vec<_> = lines.iter().map(|line| said(line)).collect();
    insta::assert_snapshot!(said.join("\n"), @r"
    the connection does not begin with a PROXY header
    the connection does not begin with a PROXY header
    the PROXY header is malformed: something follows its ports
    the PROXY header is malformed: its protocol is not TCP4, TCP6 or UNKNOWN
    the PROXY header is malformed: its ports are no numbers from 0 to 65535
    the PROXY header is malformed: its ports are no numbers from 0 to 65535
    the PROXY header is malformed: its ports are no numbers from 0 to 65535
    the PROXY header is malformed: its addresses are none of its protocol
    the PROXY header is malformed: its addresses are none of its protocol
    the PROXY header is malformed: its addresses are none of its protocol
    the PROXY header is malformed: its ports are no numbers from 0 to 65535
    the PROXY header is malformed: its protocol is not TCP4, TCP6 or UNKNOWN
    the PROXY header is malformed: its protocol is not TCP4, TCP6 or UNKNOWN
    Needs(32)
    the PROXY header is malformed: its line has more than 107 bytes
    ");
}

/// A header of version 2 with this command, family and rest.
fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
    [v2::SIGNATURE, &[command, family], &length, rest].concat()
}

#[test]
fn the_binary_form_says_it_too() {
    let v4 = [192, 0, 2, 1, 198, 51, 100, 7, 0xdc, 0x04, 0x01, 0xbb];
    let with_records = [&v4[..], &[0x03, 0, 4, 1, 2, 3, 4]].concat();
    let wanted = Some(ends("192.0.2.1:56324", "198.51.100.7:443"));
    for (command, family, rest, wanted) in [
        (0x21, 0x11, &v4[..], wanted),
        (0x21, 0x11, &with_records, wanted),
        // The connection is the sender's own, whatever the rest says.
        (0x20, 0x11, &v4, None),
        (0x20, 0x00, &[], None),
        // Of an unknown family, a datagram's, of Unix sockets.
        (0x21, 0x00, &[1, 2, 3], None),
        (0x21, 0x12, &v4, None),
        (0x21, 0x31, &[0; 216], None),
    ] {
        assert_eq!(read(&binary(command, family, rest)), Ok(Parsed::Whole(wanted)), "{family:x}");
    }
    // What follows the header is none of it.
    let followed = [binary(0x21, 0x21, &[]), vec![0; 36]].concat();
    assert!(read(&followed).is_err());
    let refused = |command, family, rest: &[u8]| read(&binary(command, family, rest)).unwrap_err();
    let said = [
        refused(0x11, 0x11, &v4),
        refused(0x22, 0x11, &v4),
        refused(0x21, 0x41, &v4),
        refused(0x21, 0x13, &v4),
        refused(0x21, 0x21, &v4),
        refused(0x21, 0x11, &v4[..11]),
        refused(0x21, 0x11, &[0; LONGEST]),
    ];
    let said: Vec<_> = said.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(said.join("\n"), @r"
    the PROXY header is malformed: its version is not 2
    the PROXY header is malformed: its command is neither LOCAL nor PROXY
    the PROXY header is malformed: its family or its transport is unknown
    the PROXY header is malformed: its family or its transport is unknown
    the PROXY header is malformed: it is too short for its addresses
    the PROXY header is malformed: it is too short for its addresses
    the PROXY header is malformed: it has more than 4096 bytes
    ");
}

#[test]
fn ends_of_two_families_are_told_as_one() {
    let mixed = ends("192.0.2.1:1", "[2001:db8::1]:2");
    let wanted = "PROXY TCP6 ::ffff:192.0.2.1 2001:db8::1 1 2\r\n";
    assert_eq!(write(ProxyVersion::V1, Some(mixed)), wanted.as_bytes());
    let mapped = ends("[::ffff:192.0.2.1]:1", "198.51.100.7:2");
    let wanted = "PROXY TCP4 192.0.2.1 198.51.100.7 1 2\r\n";
    assert_eq!(write(ProxyVersion::V1, Some(mapped)), wanted.as_bytes());
}

/// The client that another implementation reads in a header. `Err`: it refuses the header.
fn other(bytes: &[u8]) -> Result<Option<SocketAddr>, ()> {
    use proxy_header::{ParseConfig, Protocol, ProxyHeader};
    let (header, _size) = ProxyHeader::parse(bytes, ParseConfig::default()).map_err(drop)?;
    let proxied = header.proxied_address().filter(|ends| ends.protocol == Protocol::Stream);
    Ok(proxied.map(|ends| ends.source))
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(version in any_version(), ends in any_ends()) {
        let header = write(version, Some(ends));
        prop_assert_eq!(read(&header), Ok(Parsed::Whole(Some(ends))));
        prop_assert_eq!(other(&header), Ok(Some(ends.source)));
        let own = write(version, None);
        prop_assert_eq!(read(&own), Ok(Parsed::Whole(None)));
        prop_assert_eq!(other(&own), Ok(None));
    }

    /// So a reader that reads as many bytes as are needed never reads one that is not the header's.
    #[test]
    fn a_part_of_a_header_never_needs_more_than_the_header(
        version in any_version(),
        ends in proptest::option::of(any_ends()),
    ) {
        let header = write(version, ends);
        for size in 0..header.len() {
            match read(&header[..size]) {
                Ok(Parsed::Needs(needs)) => {
                    prop_assert!(needs > size && needs <= header.len(), "{} {}", size, needs);
                }
                other => prop_assert!(false, "{:?}", other),
            }
        }
    }

    /// What we accept, another implementation accepts, and reads the same client in it.
    #[test]
    fn a_header_that_something_has_changed_is_read_as_others_read_it(
        version in any_version(),
        ends in any_ends(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut header = write(version, Some(ends));
        for (place, byte) in changes {
            let place = place.index(header.len());
            header[place] = byte;
        }
        match read(&header) {
            Ok(Parsed::Whole(Some(ends))) => {
                prop_assert_eq!(other(&header), Ok(Some(ends.source)), "{}", header.escape_ascii());
            }
            // It wants addresses that we ignore to be whole.
            Ok(Parsed::Whole(None)) => prop_assert_eq!(other(&header).ok().flatten(), None),
            Ok(Parsed::Needs(_)) | Err(_) => {}
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _read = read(&bytes);
        let _read = read(&[v2::SIGNATURE, &bytes].concat());
        let _read = read(&[v1::SIGNATURE, &bytes].concat());
    }
}
