//! Requests that two readers could understand differently reach no upstream.

use crate::support::client::{Client, request};
use crate::support::origin::{Origin, answer};
use crate::support::program::Proxy;

/// Sends the bytes. They must be answered with 400, the connection must close, and the upstream must see nothing.
fn refused(cases: &[String]) {
    let origin = Origin::always(answer(200, &[], "reached the upstream"));
    let routes = "  - { name: all, match: { pathPrefix: / }, upstream: billing }\n";
    let proxy = Proxy::before(&[("billing", origin.address)], routes);
    for case in cases {
        let mut client = Client::connect(proxy.address);
        let got = client.ask(case);
        assert_eq!(got.status, 400, "{case:?}: {}", got.text());
        assert!(client.ended(), "{case:?}: the connection goes on");
        assert_eq!(origin.count(), 0, "{case:?}: {:?}", origin.seen());
    }
    let mut client = Client::connect(proxy.address);
    assert_eq!(client.ask(request("GET", "/", &[], b"")).status, 200, "it still serves");
}

#[test]
fn a_length_beside_a_transfer_encoding() {
    let origin = Origin::always(answer(200, &[], "one"));
    let routes = "  - { name: all, match: { pathPrefix: / }, upstream: billing }\n";
    let proxy = Proxy::before(&[("billing", origin.address)], routes);
    let second = "GET /b HTTP/1.1\r\nHost: t\r\n\r\n";
    let (length, coding) = ("Content-Length: 6\r\n", "Transfer-Encoding: chunked\r\n");
    for fields in [format!("{length}{coding}"), format!("{coding}{length}")] {
        let before = origin.count();
        let mut client = Client::connect(proxy.address);
        client.send(format!("POST /a HTTP/1.1\r\nHost: t\r\n{fields}\r\n0\r\n\r\n{second}"));
        // Either refused, or framed by the coding alone (RFC 9112 section 6.3) and the last on its connection.
        let got = client.answer();
        assert!(client.ended(), "{fields:?}: what follows is no request");
        let seen = origin.seen();
        let lines: Vec<_> = seen[before..].iter().map(|seen| seen.head.line.as_str()).collect();
        match got.status {
            400 => assert_eq!(lines, [""; 0]),
            200 => {
                assert_eq!(lines, ["POST /a HTTP/1.1"]);
                assert_eq!(seen[before].head.field("content-length"), None);
                assert_eq!(seen[before].length, 0);
            }
            other => panic!("{other}: {}", got.text()),
        }
    }
}

#[test]
fn a_length_that_is_no_number_or_is_two() {
    let lengths = [
        "Content-Length: +5",
        "Content-Length:",
        "Content-Length: 5,6",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 0x5",
        "Content-Length: 5 5",
        "Content-Length: -1",
        "Content-Length: 1234567890123456789012345",
    ];
    refused(&lengths.map(|length| format!("POST /a HTTP/1.1\r\nHost: t\r\n{length}\r\n\r\nhello")));
}

#[test]
fn the_same_length_twice_is_refused_or_sent_once() {
    let origin = Origin::always(answer(200, &[], ""));
    let routes = "  - { name: all, match: { pathPrefix: / }, upstream: billing }\n";
    let proxy = Proxy::before(&[("billing", origin.address)], routes);
    for length in ["Content-Length: 5, 5", "Content-Length: 5\r\nContent-Length: 5"] {
        let mut client = Client::connect(proxy.address);
        let before = origin.count();
        let got = client.ask(format!("POST /a HTTP/1.1\r\nHost: t\r\n{length}\r\n\r\nhello"));
        if got.status == 400 {
            assert!(client.ended());
            assert_eq!(origin.count(), before);
        } else {
            // The origin's reader refuses a repeated field.
            assert_eq!(got.status, 200);
            assert_eq!(origin.seen()[before].head.field("content-length"), Some("5"));
            assert_eq!(origin.seen()[before].body, b"hello");
        }
    }
}

#[test]
fn field_names_and_values_that_hide_something() {
    let lines = [": x", "Foo : bar", "Fo\0o: bar", "Foo: a\0b", "Foo: a\r\n bar", "Foo\rBar: x"];
    refused(&lines.map(|line| format!("GET /a HTTP/1.1\r\nHost: t\r\n{line}\r\n\r\n")));
}

#[test]
fn a_host_that_is_missing_double_or_malformed() {
    let hosts = [
        "",
        "Host: t\r\nHost: u\r\n",
        "Host: a.test, b.test\r\n",
        "Host: a@b\r\n",
        "Host: [::1\r\n",
        "Host: a.test:99999\r\n",
        "Host: a/b\r\n",
    ];
    refused(&hosts.map(|host| format!("GET /a HTTP/1.1\r\n{host}\r\n")));
}

#[test]
fn a_body_that_nobody_read_is_never_taken_for_the_next_request() {
    let origin = Origin::always(answer(200, &[], "reached the upstream"));
    let routes = "
  - name: own
    match: { path: /own }
    flow: { entrypoint: done, steps: { done: { action: Return, value: { answer: own } } } }
  - { name: all, match: { pathPrefix: / }, upstream: billing }
";
    let proxy = Proxy::before(&[("billing", origin.address)], routes);
    let hidden = "GET /admin HTTP/1.1\r\nHost: t\r\nX-Y: aaaaaaaa\r\n\r\n";
    let length = hidden.len();
    let mut client = Client::connect(proxy.address);
    client
        .send(format!("POST /own HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n{hidden}"));
    client.send("GET /marker HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(client.answer().json()["answer"], "own");
    if let Some(got) = client.answer_or_end() {
        assert_eq!(got.text(), "reached the upstream");
        assert_eq!(origin.count(), 1);
    }
    assert!(origin.seen().iter().all(|seen| seen.head.line == "GET /marker HTTP/1.1"));
}
