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
    let mut shown: Vec<_> =
        map.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
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

#[test]
fn every_name_and_its_aliases_are_removed() {
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
fn a_loop_is_noticed_by_via() {
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
    let contains =
        |range: &str, address: &str| Cidr::parse(range).unwrap().contains(address.parse().unwrap());
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
