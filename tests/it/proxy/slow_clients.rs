//! Clients that read slowly, and clients that read nothing, in time that passes: how sockets behave is the point.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;
use tokio_rustls::client::TlsStream;

use crate::support::frames::{INITIAL_WINDOW_SIZE, Raw};
use crate::support::proxy::{Files, Proxy, within};
use crate::support::tls::{Authority, HTTP_1_1, client, connect};
use crate::support::upstream::{Upstream, always};

const GET: &[u8] = b"GET /a HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
/// More than all buffers on the way hold.
const SIZE: usize = 12_000_000;

/// A client in clear HTTP/1.1, one over TLS, and one of HTTP/2. Each has asked for an answer of [`SIZE`].
struct Clients {
    clear: TcpStream,
    tls: TlsStream<TcpStream>,
    two: Raw<TcpStream>,
    proxies: [Proxy; 2],
    _upstream: Upstream,
}

impl Clients {
    async fn asked(limits: &str) -> Self {
        let upstream = Upstream::play([always(200, "", &"b".repeat(SIZE))]).await;
        let authority = Authority::new();
        let issued = authority.issue(&["a.test"]);
        let files = Files::from([("a.pem", issued.chain()), ("a.key", issued.key())]);
        let proxies = ["", ", tls: { certificate: a.pem, key: a.key }"].map(|tls| {
            let file = format!(
                "listeners: [{{ address: '127.0.0.1:0'{tls} }}]
limits: {{ {limits} }}
upstreams: {{ u: {{ endpoints: ['http://{}'] }} }}
routes: [{{ name: r, upstream: u }}]
",
                upstream.address
            );
            Proxy::whole(&file, &files)
        });
        let mut clear = TcpStream::connect(proxies[0].address).await.unwrap();
        clear.write_all(GET).await.unwrap();
        let config = client(&authority, None, &[HTTP_1_1]);
        let mut tls = within(connect(proxies[1].address, config)).await.unwrap();
        tls.write_all(GET).await.unwrap();
        let mut two = Raw::connect(proxies[0].address, &[(INITIAL_WINDOW_SIZE, 1 << 30)]).await;
        two.open(0, 1 << 30).await;
        two.ask(1, "/a").await;
        Self { clear, tls, two, proxies, _upstream: upstream }
    }
}

/// Reads a little at a time for three seconds, and then the rest.
async fn slowly(mut stream: impl AsyncRead + Unpin) {
    let mut piece = vec![0; 64 * 1024];
    let mut taken = 0;
    for _ in 0..30 {
        sleep(Duration::from_millis(100)).await;
        taken += stream.read_exact(&mut piece).await.unwrap();
    }
    while taken < SIZE {
        let read = within(stream.read(&mut piece)).await.unwrap();
        assert!(read > 0, "cut after {taken}");
        taken += read;
    }
}

#[tokio::test]
async fn a_client_that_reads_slowly_gets_its_answer_whole() {
    let Clients { clear, tls, two, proxies, _upstream } =
        Clients::asked("bodyTimeout: PT0.5S").await;
    tokio::join!(slowly(clear), slowly(tls), slowly(two.stream));
    for proxy in &proxies {
        proxy.until_idle().await;
        assert_eq!(proxy.metric(r#"mwl_requests_total{route="r",status="499"}"#), 0);
    }
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_let_go() {
    let clients = Clients::asked("bodyTimeout: PT0.5S").await;
    let begun = tokio::time::Instant::now();
    for (proxy, count) in clients.proxies.iter().zip([2, 1]) {
        let series = r#"mwl_requests_total{route="r",status="499"}"#;
        proxy.until(|proxy| proxy.metric(series) == count).await;
    }
    // The timeout, twice that for what their systems hold, and a quarter of it for looking.
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}
