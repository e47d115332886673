use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::h2;
use crate::support::proxy::{Client, Files, Proxy, within};
use crate::support::tls::{Authority, H2, client, connect_over};
use crate::support::upstream::{Upstream, always};

const GET: &str = "GET /a HTTP/1.1\r\nHost: t\r\n\r\n";
const LINE: &[u8] = b"PROXY TCP4 192.0.2.1 198.51.100.7 56324 443\r\n";
const BINARY: &[u8] =
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x01\xc6\x33\x64\x07\xdc\x04\x01\xbb";
const LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00";

/// A listener that expects headers from `trusted`, with these further keys and limits. The answer is the client's address.
fn config(trusted: &str, tls: &str, limits: &str) -> String {
    format!(
        "listeners: [{{ address: '127.0.0.1:0', proxyProtocol: {{ trusted: ['{trusted}'] }}{tls} }}]
limits: {{ {limits}workers: 1 }}
routes:
  - name: r
    flow: {{ entrypoint: s, steps: {{ s: {{ action: Return, value: '{{{{ execution.platform.client.address }}}}' }} }} }}
"
    )
}

/// A connection that begins with `header`.
async fn introduced(address: SocketAddr, header: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(header).await.unwrap();
    stream
}

async fn seen(proxy: &Proxy, header: &[u8]) -> String {
    Client::over(introduced(proxy.address, header).await).ask(GET).await.body
}

fn failures(proxy: &Proxy, reason: &str) -> u64 {
    let labels = format!(r#"{{listener="127.0.0.1:0",reason="{reason}"}}"#);
    proxy.metric(&format!("mwl_proxy_protocol_failures_total{labels}"))
}

#[tokio::test]
async fn the_header_says_who_the_client_is() {
    let proxy = Proxy::whole(&config("127.0.0.0/8", "", ""), &Files::new());
    assert_eq!(seen(&proxy, LINE).await, r#""192.0.2.1""#);
    assert_eq!(seen(&proxy, BINARY).await, r#""192.0.2.1""#);
    // A health check of the proxy in front.
    assert_eq!(seen(&proxy, LOCAL).await, r#""127.0.0.1""#);
    assert_eq!(seen(&proxy, b"PROXY UNKNOWN\r\n").await, r#""127.0.0.1""#);
    let mut two = h2::Client::over(introduced(proxy.address, LINE).await).await;
    let answer = two.ask(h2::request("GET", "/a", &[]), b"").await;
    assert_eq!(answer.text(), r#""192.0.2.1""#);
}

#[tokio::test]
async fn the_fields_about_the_client_tell_the_headers_address() {
    let upstream = Upstream::play([always(200, "", "hello")]).await;
    let config = config("127.0.0.1", "", "");
    let (head, _) = config.split_once("routes:").unwrap();
    let config = format!(
        "{head}forwarded: {{ trusted: [192.0.2.0/24], forwarded: true }}
upstreams: {{ u: {{ endpoints: ['http://{}'] }} }}
routes: [{{ name: r, upstream: u }}]
",
        upstream.address
    );
    let proxy = Proxy::whole(&config, &Files::new());
    let get = "GET /a HTTP/1.1\r\nHost: t\r\nX-Forwarded-For: 203.0.113.9\r\n\r\n";
    let mut client = Client::over(introduced(proxy.address, BINARY).await);
    assert_eq!(client.ask(get).await.status, 200);
    let seen = upstream.requests();
    assert_eq!(seen[0].field("x-forwarded-for"), ["203.0.113.9, 192.0.2.1"]);
    assert_eq!(seen[0].field("forwarded"), [r#"for=192.0.2.1;host="t";proto=http"#]);
}

#[tokio::test]
async fn the_header_comes_before_the_handshake() {
    let authority = Authority::new();
    let issued = authority.issue(&["a.test"]);
    let files = Files::from([("server.pem", issued.chain()), ("server.key", issued.key())]);
    let tls = ", tls: { certificate: server.pem, key: server.key }";
    let proxy = Proxy::whole(&config("127.0.0.1", tls, ""), &files);
    for header in [LINE, BINARY] {
        let stream = introduced(proxy.address, header).await;
        let stream = within(connect_over(stream, client(&authority, None, &[]))).await.unwrap();
        assert_eq!(Client::over(stream).ask(GET).await.body, r#""192.0.2.1""#);
    }
    let stream = introduced(proxy.address, BINARY).await;
    let stream = within(connect_over(stream, client(&authority, None, &[H2]))).await.unwrap();
    let mut two = h2::Client::over(stream).await;
    let answer = two.ask(h2::request("GET", "/a", &[]), b"").await;
    assert_eq!(answer.text(), r#""192.0.2.1""#);
    // Without a header nothing is said, not even an alert of TLS.
    let bare = TcpStream::connect(proxy.address).await.unwrap();
    assert!(within(connect_over(bare, client(&authority, None, &[]))).await.is_err());
    proxy.until(|proxy| failures(proxy, "missing") == 1).await;
}

/// Anybody could write a header; only those that are configured are believed.
#[tokio::test]
async fn bytes_of_others_are_read_as_they_are() {
    let proxy = Proxy::whole(&config("192.0.2.0/24", "", ""), &Files::new());
    assert_eq!(seen(&proxy, b"").await, r#""127.0.0.1""#);
    for header in [LINE, BINARY] {
        let mut client = Client::over(introduced(proxy.address, header).await);
        client.send(GET).await;
        let answer = client.response(false).await;
        assert_eq!(answer.status, 400, "{}", answer.head);
    }
    assert_eq!(failures(&proxy, "missing"), 0);
}

#[tokio::test]
async fn a_connection_without_its_header_closes_unanswered() {
    let proxy = Proxy::whole(&config("127.0.0.1", "", ""), &Files::new());
    for (sent, reason) in [
        (GET.as_bytes(), "missing"),
        (&LINE[..LINE.len() - 3], "closed"),
        (b"PROXY TCP4 192.0.2.1 nowhere 1 2\r\n", "malformed"),
    ] {
        let mut stream = introduced(proxy.address, sent).await;
        if reason == "closed" {
            stream.shutdown().await.unwrap();
        }
        let mut answer = Vec::new();
        // What is unread makes the end a reset.
        within(stream.read_to_end(&mut answer)).await.ok();
        assert_eq!(answer, b"", "{reason}");
        proxy.until(|proxy| failures(proxy, reason) == 1).await;
    }
    proxy.until_empty().await;
}

#[tokio::test]
async fn a_header_that_does_not_come_does_not_keep_its_place() {
    let config = config("127.0.0.1", "", "headTimeout: PT0.05S, connections: 1, ");
    let proxy = Proxy::whole(&config, &Files::new());
    let mut silent = introduced(proxy.address, &LINE[..10]).await;
    assert_eq!(seen(&proxy, LINE).await, r#""192.0.2.1""#);
    let mut answer = Vec::new();
    within(silent.read_to_end(&mut answer)).await.ok();
    assert_eq!(answer, b"");
    assert_eq!(failures(&proxy, "timeout"), 1);
}

#[tokio::test]
async fn a_reload_says_of_new_connections_whether_they_have_a_header() {
    let with = config("127.0.0.1", "", "");
    let without = with.replace(", proxyProtocol: { trusted: ['127.0.0.1'] }", "");
    let proxy = Proxy::whole(&with, &Files::new());
    let mut old = Client::over(introduced(proxy.address, LINE).await);
    assert_eq!(old.ask(GET).await.body, r#""192.0.2.1""#);
    proxy.replace_whole(&without, &Files::new()).await;
    assert_eq!(seen(&proxy, b"").await, r#""127.0.0.1""#);
    assert_eq!(old.ask(GET).await.body, r#""192.0.2.1""#);
    proxy.replace_whole(&with, &Files::new()).await;
    assert_eq!(seen(&proxy, BINARY).await, r#""192.0.2.1""#);
}
