use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use mwl_proxy::proxy::testing;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::task::JoinHandle;

use crate::support::h2;
use crate::support::proxy::{Client, Files, Proxy};
use crate::support::tls::{Authority, Farewell, Front, HTTP_1_1, server};
use crate::support::upstream::{Act, Upstream, always};

const GET: &str = "GET /a HTTP/1.1\r\nHost: t\r\n\r\n";

/// Reads the PROXY header of each connection, and passes the rest on.
#[derive(Debug)]
struct Doorman {
    address: SocketAddr,
    headers: Arc<Mutex<Vec<Vec<u8>>>>,
    task: JoinHandle<()>,
}

impl Doorman {
    async fn before(behind: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let headers = Arc::<Mutex<Vec<_>>>::default();
        let log = Arc::clone(&headers);
        let task = tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let log = Arc::clone(&log);
                tokio::spawn(async move {
                    let Some(header) = header(&mut near).await else { return };
                    log.lock().unwrap().push(header);
                    let mut far = TcpStream::connect(behind).await.unwrap();
                    // An error means that either side ended.
                    copy_bidirectional(&mut near, &mut far).await.ok();
                });
            }
        });
        Self { address, headers, task }
    }

    /// The sources that the headers have named, in the order of the connections.
    fn sources(&self) -> Vec<Option<SocketAddr>> {
        let headers = self.headers.lock().unwrap();
        headers.iter().map(|header| testing::proxied_by(header).unwrap().unwrap()).collect()
    }
}

impl Drop for Doorman {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The header with which a connection begins, and no byte more. `None`: it begins otherwise.
async fn header(stream: &mut (impl AsyncRead + Unpin)) -> Option<Vec<u8>> {
    let mut header = Vec::new();
    while let Err(size) = testing::proxied_by(&header)? {
        let read = header.len();
        header.resize(size, 0);
        stream.read_exact(&mut header[read..]).await.ok()?;
    }
    Some(header)
}

/// A route to `endpoint` whose connections begin with a header of this version, with these further keys of the upstream.
fn config(endpoint: &str, version: &str, keys: &str) -> String {
    format!(
        "upstreams: {{ u: {{ endpoints: ['{endpoint}'], proxyProtocol: {version}, {keys} }} }}\n\
         routes: [{{ name: r, upstream: u }}]\n"
    )
}

/// A client, and its own address.
async fn client(proxy: &Proxy) -> (Client, SocketAddr) {
    let stream = TcpStream::connect(proxy.address).await.unwrap();
    let own = stream.local_addr().unwrap();
    (Client::over(stream), own)
}

#[tokio::test]
async fn each_connection_begins_with_the_client_and_carries_no_other() {
    let upstream = Upstream::play([always(200, "", "x")]).await;
    for version in ["v1", "v2"] {
        let doorman = Doorman::before(upstream.address).await;
        let proxy = Proxy::start(&config(&format!("http://{}", doorman.address), version, ""));
        let ((mut first, one), (mut second, two)) = (client(&proxy).await, client(&proxy).await);
        for _ in 0..2 {
            assert_eq!(first.ask(GET).await.body, "x");
            assert_eq!(second.ask(GET).await.body, "x");
        }
        assert_eq!(doorman.sources(), [Some(one), Some(two)], "{version}");
        let line =
            format!("PROXY TCP4 127.0.0.1 127.0.0.1 {} {}\r\n", one.port(), proxy.address.port());
        let seen = doorman.headers.lock().unwrap()[0].clone();
        assert_eq!(seen == line.as_bytes(), version == "v1", "{}", seen.escape_ascii());
    }
    // The header is no part of the request.
    assert!(upstream.requests().iter().all(|seen| seen.line() == "GET /a HTTP/1.1"));
}

#[tokio::test]
async fn clients_over_http_2_share_no_connection_either() {
    let upstream = h2::Upstream::play([h2::Act::Answer(h2::reply(200, "x"))]).await;
    let doorman = Doorman::before(upstream.address).await;
    let endpoint = format!("http://{}", doorman.address);
    let proxy = Proxy::start(&config(&endpoint, "v2", "protocol: http2, maxIdle: 2"));
    let ((mut first, one), (mut second, two)) = (client(&proxy).await, client(&proxy).await);
    for _ in 0..2 {
        assert_eq!(first.ask(GET).await.body, "x");
        assert_eq!(second.ask(GET).await.body, "x");
    }
    assert_eq!(doorman.sources(), [Some(one), Some(two)]);
    // A third one has no place, but for that of the one that has been idle for longest.
    let (mut third, three) = client(&proxy).await;
    assert_eq!(third.ask(GET).await.body, "x");
    let idle = r#"mwl_upstream_connections{state="idle",upstream="u"}"#;
    proxy.until(|proxy| proxy.metric(idle) == 2).await;
    assert_eq!(second.ask(GET).await.body, "x");
    assert_eq!(first.ask(GET).await.body, "x");
    assert_eq!(doorman.sources(), [Some(one), Some(two), Some(three), Some(one)]);
}

#[tokio::test]
async fn a_full_pool_has_a_place_for_the_newest_client() {
    let upstream = Upstream::play([always(200, "", "x")]).await;
    let doorman = Doorman::before(upstream.address).await;
    let proxy = Proxy::start(&config(&format!("http://{}", doorman.address), "v2", "maxIdle: 1"));
    let ((mut first, one), (mut second, two)) = (client(&proxy).await, client(&proxy).await);
    assert_eq!(first.ask(GET).await.body, "x");
    for _ in 0..2 {
        assert_eq!(second.ask(GET).await.body, "x");
    }
    assert_eq!(first.ask(GET).await.body, "x");
    assert_eq!(doorman.sources(), [Some(one), Some(two), Some(one)]);
    assert_eq!(proxy.metric(r#"mwl_upstream_connections{state="idle",upstream="u"}"#), 1);
    assert_eq!(proxy.metric(r#"mwl_upstream_connections{state="active",upstream="u"}"#), 0);
}

#[tokio::test]
async fn the_header_comes_before_the_handshake_and_on_a_socket_too() {
    let upstream = Upstream::play([always(200, "", "x")]).await;
    let authority = Authority::new();
    let issued = authority.issue(&["a.test"]);
    let tls = server(&issued, &[HTTP_1_1], None);
    let front = Front::before(upstream.address, tls, Farewell::Said).await;
    let doorman = Doorman::before(front.address).await;
    let keys = "tls: { ca: ca.pem, serverName: a.test }";
    let yaml = format!(
        "listeners: [{{ address: '127.0.0.1:0' }}]\nlimits: {{ workers: 1 }}\n{}",
        config(&format!("https://{}", doorman.address), "v2", keys)
    );
    let proxy = Proxy::whole(&yaml, &Files::from([("ca.pem", authority.pem())]));
    let (mut asking, own) = client(&proxy).await;
    assert_eq!(asking.ask(GET).await.body, "x");
    assert_eq!(doorman.sources(), [Some(own)]);
    let path = std::env::temp_dir().join(format!("mwl-introducing-{}.sock", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    let proxy = Proxy::start(&config(&format!("unix:{}", path.display()), "v1", ""));
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let header = header(&mut stream).await.unwrap();
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
        header
    });
    let (mut asking, own) = client(&proxy).await;
    assert_eq!(asking.ask(GET).await.status, 204);
    assert_eq!(testing::proxied_by(&serving.await.unwrap()), Some(Ok(Some(own))));
    std::fs::remove_file(&path).unwrap();
}

/// A client's own header is passed on, and one that a trusted field names has no port.
#[tokio::test]
async fn the_client_is_who_the_proxy_in_front_says() {
    let upstream = Upstream::play([always(200, "", "x")]).await;
    let doorman = Doorman::before(upstream.address).await;
    let yaml = format!(
        "listeners: [{{ address: '127.0.0.1:0', proxyProtocol: {{ trusted: [127.0.0.1] }} }}]\n\
         forwarded: {{ trusted: [192.0.2.1] }}\nlimits: {{ workers: 1 }}\n{}",
        config(&format!("http://{}", doorman.address), "v1", "")
    );
    let proxy = Proxy::whole(&yaml, &Files::new());
    let told = "GET /a HTTP/1.1\r\nHost: t\r\nX-Forwarded-For: 2001:db8::9\r\n\r\n";
    for (header, request) in [
        ("PROXY TCP4 192.0.2.7 198.51.100.7 56324 443\r\n", told),
        ("PROXY TCP4 192.0.2.1 198.51.100.7 56324 443\r\n", told),
    ] {
        let mut stream = TcpStream::connect(proxy.address).await.unwrap();
        stream.write_all(header.as_bytes()).await.unwrap();
        assert_eq!(Client::over(stream).ask(request).await.body, "x");
    }
    let headers = doorman.headers.lock().unwrap().clone();
    let lines: Vec<_> = headers.iter().map(|line| String::from_utf8_lossy(line)).collect();
    assert_eq!(
        lines,
        [
            "PROXY TCP4 192.0.2.7 198.51.100.7 56324 443\r\n",
            "PROXY TCP6 2001:db8::9 ::ffff:198.51.100.7 0 443\r\n"
        ]
    );
}

#[tokio::test]
async fn a_request_that_is_sent_again_begins_its_connection_too() {
    let upstream = Upstream::play([always(200, "", "x"), Act::Close, always(200, "", "y")]).await;
    let doorman = Doorman::before(upstream.address).await;
    let proxy = Proxy::start(&config(&format!("http://{}", doorman.address), "v2", ""));
    let (mut asking, own) = client(&proxy).await;
    assert_eq!(asking.ask(GET).await.body, "x");
    assert_eq!(asking.ask(GET).await.body, "y");
    assert_eq!(doorman.sources(), [Some(own), Some(own)]);
    assert_eq!(proxy.metric(r#"mwl_stale_connection_resends_total{upstream="u"}"#), 1);
}

#[tokio::test]
async fn checks_are_the_proxys_own() {
    let upstream = Upstream::play([always(200, "", "x")]).await;
    for (version, own) in
        [("v1", &b"PROXY UNKNOWN\r\n"[..]), ("v2", b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0")]
    {
        let doorman = Doorman::before(upstream.address).await;
        let keys = "health: { path: /healthz, interval: PT0.02S, unhealthyAfter: 1 }";
        let proxy = Proxy::start(&config(&format!("http://{}", doorman.address), version, keys));
        proxy.until(|_| doorman.headers.lock().unwrap().len() > 1).await;
        assert_eq!(doorman.headers.lock().unwrap()[0], own);
        let up = format!(r#"mwl_endpoint_up{{endpoint="{}",upstream="u"}}"#, doorman.address);
        assert_eq!(proxy.metric(&up), 1);
    }
}
