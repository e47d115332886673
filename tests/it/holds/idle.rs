//! Connections that wait for their next request: what they cost, and that they are as good as ever.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use tokio::net::TcpSocket;
use tokio::time::sleep;

use super::size;
use crate::support::client::request;
use crate::support::origin::{Origin, answer};
use crate::support::program;
use crate::support::proxy::{Client, Proxy, runtime, within};
use crate::support::upstream::{Upstream, always};
use crate::support::watched::PATIENCE;

const GET: &str = "GET /a HTTP/1.1\r\nHost: t\r\n\r\n";

/// How long a connection idles here: long enough to be put by, at a tick of ten milliseconds.
const WHILE: Duration = Duration::from_millis(150);

/// A proxy that looks at its connections every ten milliseconds.
fn watchful(upstream: &Upstream) -> Proxy {
    let metrics = mwl_proxy::telemetry::metrics::Metrics::new();
    let file = format!(
        "listeners: [{{ address: '127.0.0.1:0' }}]
limits: {{ workers: 1, headTimeout: PT0.04S, idleTimeout: PT1.5S }}
upstreams: {{ u: {{ endpoints: ['http://{}'] }} }}
routes: [ {{ name: r, upstream: u }} ]
",
        upstream.address
    );
    let server = mwl_proxy::proxy::Server::start(runtime(&file, &metrics)).unwrap();
    Proxy { address: server.local_addrs()[0], server, metrics }
}

#[tokio::test]
async fn a_connection_that_was_put_by_serves_on_and_has_its_bounds() {
    let upstream = Upstream::play([always(200, "", "x")]).await;
    let proxy = watchful(&upstream);
    let mut client = proxy.connect().await;
    for _ in 0..4 {
        assert_eq!(client.ask(GET).await.body, "x");
        sleep(WHILE).await;
    }
    // In pieces, and with another behind it.
    client.send("GET /a HT").await;
    client.send(format!("TP/1.1\r\nHost: t\r\n\r\n{GET}")).await;
    assert_eq!(client.response(false).await.body, "x");
    assert_eq!(client.response(false).await.body, "x");
    assert_eq!(upstream.requests().len(), 6);
    sleep(WHILE).await;
    // The head's bound counts from its first byte.
    client.send("GET /a HT").await;
    let said = String::from_utf8(client.rest().await).unwrap();
    assert!(said.starts_with("HTTP/1.1 408 "), "{said}");
    let begun = tokio::time::Instant::now();
    let mut client = proxy.connect().await;
    assert_eq!(client.ask(GET).await.body, "x");
    assert!(client.rest().await.is_empty());
    assert!(begun.elapsed() >= Duration::from_millis(1500), "put by, and still closed in its time");
    until_connections(&proxy, 0).await;
}

/// Waits until so many connections are open.
async fn until_connections(proxy: &Proxy, count: usize) {
    within(async {
        while proxy.server.connections() > count {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn connections_that_were_put_by_close_with_the_process_and_with_their_client() {
    let upstream = Upstream::play([always(200, "", "x")]).await;
    let proxy = watchful(&upstream);
    let mut stays = proxy.connect().await;
    let mut leaves = proxy.connect().await;
    assert_eq!(stays.ask(GET).await.body, "x");
    assert_eq!(leaves.ask(GET).await.body, "x");
    sleep(WHILE).await;
    assert_eq!(proxy.server.connections(), 2);
    drop(leaves);
    until_connections(&proxy, 1).await;
    assert_eq!(proxy.server.drain(Duration::from_secs(5)).await, 0);
    assert!(stays.rest().await.is_empty());
    assert_eq!(proxy.server.connections(), 0);
}

#[tokio::test]
async fn nothing_of_an_answer_that_a_slow_client_has_still_to_read_is_lost() {
    // Of some of these lengths, the end of the answer is in no socket yet while the client idles.
    let sizes = (1..=64).map(|number| number * 32 * 1024);
    let upstream = Upstream::run(|_, arrived| {
        let size = arrived.field("x-size")[0].parse().unwrap();
        always(200, "", &"z".repeat(size))
    })
    .await;
    let proxy = watchful(&upstream);
    let mut clients = Vec::new();
    for size in sizes {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut client = Client::over(socket.connect(proxy.address).await.unwrap());
        client.send(format!("GET /a HTTP/1.1\r\nHost: t\r\nX-Size: {size}\r\n\r\n")).await;
        clients.push((size, client));
    }
    sleep(WHILE).await;
    for (size, mut client) in clients {
        let response = client.response(false).await;
        assert_eq!((response.status, response.body.len()), (200, size));
    }
}

#[test]
#[expect(clippy::print_stderr, reason = "the figures of an endurance run are read by people")]
fn an_idle_connection_costs_little() {
    let origin = Origin::always(answer(200, &[], "x"));
    // The shorter the bound on a head, the sooner is seen who idles.
    let routes = "  - { name: all, match: { pathPrefix: / }, upstream: u }\nlimits: { headTimeout: PT0.4S }\n";
    let proxy = program::Proxy::before(&[("u", origin.address)], routes);
    let rss = || proxy.program().memory("VmRSS:");
    let mut idle = Vec::new();
    let mut before = 0;
    // Two hundred at a time: the first pay for what is there once (pools, tables, the allocator's own).
    for batch in 0..=size(5, 50) {
        idle.extend((0..200).map(|_| ask(proxy.address)));
        thread::park_timeout(Duration::from_millis(500));
        if batch == 0 {
            before = rss();
        }
    }
    let count = idle.len() as u64 - 200;
    let after = rss();
    let each = (after.saturating_sub(before) * 1024) / count;
    eprintln!("{count} idle connections: {each} bytes each ({before} to {after} KiB)");
    assert!(each < 6 << 10, "an idle connection costs {each} bytes");
    // And they serve on.
    for stream in &mut idle {
        answered(stream);
    }
}

/// A connection that has had an answer. It has one descriptor: ten thousand of them are half of what a
/// process usually has.
fn ask(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    answered(&mut stream);
    stream
}

/// Asks, and reads the answer.
fn answered(stream: &mut TcpStream) {
    stream.write_all(&request("GET", "/", &[], b"")).unwrap();
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\nx") {
        let mut piece = [0; 512];
        let size = stream.read(&mut piece).unwrap();
        assert!(size > 0, "an answer, not {read:?}");
        read.extend_from_slice(&piece[..size]);
    }
}
