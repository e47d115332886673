use std::io::ErrorKind;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::Message;

use crate::support::h2;
use crate::support::proxy::{Client, Files, Proxy, within};
use crate::support::tls::{Authority, H2, HTTP_1_1, Issued, client, connect};
use crate::support::upstream::{Act, Upstream, always};

const GET: &str = "GET /a HTTP/1.1\r\nHost: t\r\n\r\n";

/// The files of a listener that presents `issued` and accepts clients with certificates from `clients`.
fn files(issued: &Issued, clients: &Authority) -> Files {
    Files::from([
        ("server.pem", issued.chain()),
        ("server.key", issued.key()),
        ("clients.pem", clients.pem()),
    ])
}

/// A listener with these further keys in its `tls`, these limits, and one route to `upstream`.
fn config(upstream: &Upstream, tls: &str, limits: &str) -> String {
    format!(
        "listeners: [{{ address: '127.0.0.1:0', tls: {{ certificate: server.pem, key: server.key{tls} }} }}]
limits: {{ {limits}workers: 1 }}
forwarded: {{ forwarded: true }}
upstreams: {{ u: {{ endpoints: ['http://{}'] }} }}
routes: [{{ name: r, upstream: u }}]
",
        upstream.address
    )
}

async fn over(proxy: &Proxy, authority: &Authority, offers: &[&[u8]]) -> TlsStream<TcpStream> {
    within(connect(proxy.address, client(authority, None, offers))).await.unwrap()
}

async fn until(what: impl Fn() -> bool) {
    within(async {
        while !what() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

fn failures(proxy: &Proxy, reason: &str) -> u64 {
    let labels = format!(r#"{{listener="127.0.0.1:0",reason="{reason}"}}"#);
    proxy.metric(&format!("mwl_tls_handshake_failures_total{labels}"))
}

#[tokio::test]
async fn both_protocols_are_chosen_in_the_handshake() {
    let upstream = Upstream::play([always(200, "", "hello")]).await;
    let authority = Authority::new();
    let files = files(&authority.issue(&["a.test"]), &authority);
    let proxy = Proxy::whole(&config(&upstream, "", ""), &files);
    let one = over(&proxy, &authority, &[HTTP_1_1]).await;
    let mut one = Client::over(one);
    for _ in 0..2 {
        assert_eq!(one.ask(GET).await.body, "hello");
    }
    let two = over(&proxy, &authority, &[H2, HTTP_1_1]).await;
    assert_eq!(two.get_ref().1.alpn_protocol(), Some(H2));
    let mut two = h2::Client::over(two).await;
    assert_eq!(two.ask(h2::request("POST", "/b", &[]), b"body").await.text(), "hello");
    for seen in upstream.requests() {
        assert_eq!(seen.field("x-forwarded-proto"), ["https"]);
        let forwarded = seen.field("forwarded");
        assert!(forwarded[0].ends_with(";proto=https"), "{forwarded:?}");
    }
    assert_eq!(upstream.requests().len(), 3);
    let full = r#"mwl_tls_handshakes_total{listener="127.0.0.1:0",resumed="false"}"#;
    assert_eq!(proxy.metric(full), 2);
}

#[tokio::test]
async fn expressions_read_the_scheme() {
    let authority = Authority::new();
    let files = files(&authority.issue(&["a.test"]), &authority);
    let route = "flow: { entrypoint: s, steps: { s: { action: Return, value: '{{ frame.input.scheme }}' } } }";
    let upstream = Upstream::play([Act::Close]).await;
    let config = config(&upstream, "", "");
    let config = config.replace("upstream: u }", &format!("{route} }}"));
    let proxy = Proxy::whole(&config, &files);
    let stream = over(&proxy, &authority, &[]).await;
    assert_eq!(Client::over(stream).ask(GET).await.body, r#""https""#);
}

#[tokio::test]
async fn http_2_that_was_not_chosen_is_no_request() {
    let upstream = Upstream::play([always(200, "", "hello")]).await;
    let authority = Authority::new();
    let files = files(&authority.issue(&["a.test"]), &authority);
    let proxy = Proxy::whole(&config(&upstream, "", ""), &files);
    for offers in [&[][..], &[HTTP_1_1]] {
        let mut stream = over(&proxy, &authority, offers).await;
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        // The end may be a reset, because the preface is not read to its end.
        within(stream.read_to_end(&mut answer)).await.ok();
        assert!(answer.starts_with(b"HTTP/1.1 400 "), "{}", String::from_utf8_lossy(&answer));
    }
    until(|| proxy.metric(r#"mwl_requests_refused_total{reason="malformedHead"}"#) == 2).await;
    // And the reverse.
    let mut stream = over(&proxy, &authority, &[H2]).await;
    stream.write_all(GET.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    within(stream.read_to_end(&mut answer)).await.ok();
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    assert!(upstream.requests().is_empty());
}

#[tokio::test]
async fn only_clients_that_somebody_vouches_for_are_let_in() {
    let upstream = Upstream::play([always(200, "", "hello")]).await;
    let [authority, other] = [Authority::new(), Authority::new()];
    let files = files(&authority.issue(&["a.test"]), &authority);
    let proxy = Proxy::whole(&config(&upstream, ", clientCa: clients.pem", ""), &files);
    let known = authority.issue(&["client.test"]);
    let stream = connect(proxy.address, client(&authority, Some(&known), &[])).await.unwrap();
    assert_eq!(Client::over(stream).ask(GET).await.body, "hello");
    let unknown = other.issue(&["client.test"]);
    for shows in [None, Some(&unknown)] {
        // With TLS 1.3 a client learns of a refusal after it has begun to send.
        let connected = connect(proxy.address, client(&authority, shows, &[])).await;
        let Ok(mut stream) = connected else { continue };
        stream.write_all(GET.as_bytes()).await.ok();
        let ended = within(stream.read_to_end(&mut Vec::new())).await;
        ended.unwrap_err();
    }
    until(|| failures(&proxy, "noCertificate") == 1 && failures(&proxy, "badCertificate") == 1)
        .await;
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn clear_text_is_closed() {
    let upstream = Upstream::play([always(200, "", "hello")]).await;
    let authority = Authority::new();
    let files = files(&authority.issue(&["a.test"]), &authority);
    let proxy = Proxy::whole(&config(&upstream, "", ""), &files);
    let mut clear = proxy.connect().await;
    clear.send(GET).await;
    let answer = clear.rest().await;
    // At most an alert.
    assert!(answer.is_empty() || answer[0] == 21, "{answer:?}");
    until(|| failures(&proxy, "notTls") == 1).await;
    assert!(upstream.requests().is_empty());
}

#[tokio::test]
async fn a_handshake_that_stands_still_does_not_keep_its_place() {
    let upstream = Upstream::play([always(200, "", "hello")]).await;
    let authority = Authority::new();
    let files = files(&authority.issue(&["a.test"]), &authority);
    let limits = "connections: 1, headTimeout: PT1S, ";
    let proxy = Proxy::whole(&config(&upstream, "", limits), &files);
    let mut silent = proxy.connect().await;
    silent.send([22, 3, 1]).await;
    // There is room for one.
    let stream = over(&proxy, &authority, &[HTTP_1_1]).await;
    assert_eq!(Client::over(stream).ask(GET).await.body, "hello");
    assert_eq!(silent.rest().await, b"");
    assert_eq!(failures(&proxy, "timeout"), 0, "it made room before its time was over");
    // Where nobody else wants the place, it has all of its time.
    let proxy = Proxy::whole(&config(&upstream, "", "headTimeout: PT1S, "), &files);
    let mut silent = proxy.connect().await;
    silent.send([22, 3, 1]).await;
    assert_eq!(silent.rest().await, b"");
    // It is counted once it is closed.
    until(|| failures(&proxy, "timeout") == 1).await;
}

#[tokio::test]
async fn a_drain_says_farewell() {
    let upstream = Upstream::play([always(200, "", "hello")]).await;
    let authority = Authority::new();
    let files = files(&authority.issue(&["a.test"]), &authority);
    let proxy = Proxy::whole(&config(&upstream, "", ""), &files);
    let mut one = Client::over(over(&proxy, &authority, &[HTTP_1_1]).await);
    assert_eq!(one.ask(GET).await.body, "hello");
    let mut two = h2::Client::over(over(&proxy, &authority, &[H2]).await).await;
    assert_eq!(two.ask(h2::request("GET", "/b", &[]), b"").await.text(), "hello");
    assert_eq!(proxy.server.drain(Duration::from_secs(5)).await, 0);
    // A close without `close_notify` would be an error here.
    let mut rest = Vec::new();
    within(one.stream.read_to_end(&mut rest)).await.unwrap();
    assert_eq!(rest, b"");
    assert_eq!(proxy.server.connections(), 0);
    if let Err(error) = within(two.driver).await.unwrap() {
        // The client's own `close_notify` may find the connection closed; it has nothing else to complain about.
        let closed = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
        assert!(error.get_io().is_some_and(|io| closed.contains(&io.kind())), "{error}");
    }
}

#[tokio::test]
async fn a_websocket_passes() {
    let upstream = Upstream::run(|_, request| {
        let accept = tokio_tungstenite::tungstenite::handshake::derive_accept_key(
            request.field("sec-websocket-key")[0].as_bytes(),
        );
        let agree = format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
        );
        Act::AnswerAndHang([agree.as_bytes(), b"\x81\x05hello"].concat())
    })
    .await;
    let authority = Authority::new();
    let files = files(&authority.issue(&["a.test"]), &authority);
    let proxy = Proxy::whole(&config(&upstream, "", ""), &files);
    let stream = over(&proxy, &authority, &[HTTP_1_1]).await;
    let (mut socket, answer) =
        Box::pin(within(client_async("wss://t/chat", stream))).await.unwrap();
    assert_eq!(answer.status().as_u16(), 101);
    assert_eq!(within(socket.next()).await.unwrap().unwrap(), Message::text("hello"));
    within(socket.send(Message::text("and back"))).await.unwrap();
    assert_eq!(proxy.metric(r#"mwl_requests_in_flight{route="r"}"#), 1);
}

#[tokio::test]
async fn new_connections_are_shown_the_new_certificate_and_old_ones_go_on() {
    let upstream = Upstream::play([always(200, "", "hello")]).await;
    let authority = Authority::new();
    let [old, new] = [authority.issue(&["a.test"]), authority.issue(&["a.test"])];
    let config = config(&upstream, "", "");
    let proxy = Proxy::whole(&config, &files(&old, &authority));
    let shown =
        |stream: &TlsStream<TcpStream>| stream.get_ref().1.peer_certificates().unwrap()[0].clone();
    let stream = over(&proxy, &authority, &[]).await;
    assert_eq!(shown(&stream), *old.certificate.der());
    let mut before = Client::over(stream);
    assert_eq!(before.ask(GET).await.body, "hello");
    proxy.replace_whole(&config, &files(&new, &authority)).await;
    let stream = over(&proxy, &authority, &[]).await;
    assert_eq!(shown(&stream), *new.certificate.der());
    assert_eq!(Client::over(stream).ask(GET).await.body, "hello");
    assert_eq!(before.ask(GET).await.body, "hello");
    // A listener can change to TLS and back.
    let clear = config.replace(", tls: { certificate: server.pem, key: server.key }", "");
    proxy.replace_whole(&clear, &Files::new()).await;
    assert_eq!(proxy.ask(GET).await.body, "hello");
    assert_eq!(before.ask(GET).await.body, "hello");
}
