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
use crate::support::piped::Piped;
use crate::support::program;
use crate::support::proxy::{Client, Proxy};
use crate::support::upstream::{Upstream, always};
use crate::support::watched::PATIENCE;

const GET: &str = "GET /a HTTP/1.1\r\nHost: t\r\n\r\n";

/// How long a connection idles on a socket here: long enough to be put by, where the proxy looks every few milliseconds.
const WHILE: Duration = Duration::from_millis(150);

/// A proxy with these further members of `limits`.
fn limited(upstream: &Upstream, limits: &str) -> Proxy {
    let file = format!(
        "upstreams: {{ u: {{ endpoints: ['http://{}'] }} }}\nroutes: [ {{ name: r, upstream: u }} ]\n",
        upstream.address
    );
    Proxy::limited(limits, &file)
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_was_put_by_serves_on_and_has_its_bounds() {
    // The proxy looks at its connections every quarter of a second, and puts by who has idled for two of these.
    let limits = "headTimeout: PT1S, idleTimeout: PT9S, ";
    let idles = || sleep(Duration::from_secs(2));
    let (mut piped, upstream) = Piped::before([always(200, "", "x")], limits, "");
    let client = &mut piped.client;
    for _ in 0..4 {
        assert_eq!(client.ask(GET).await.body, "x");
        idles().await;
    }
    // In pieces, and with another behind it.
    client.send("GET /a HT").await;
    client.send(format!("TP/1.1\r\nHost: t\r\n\r\n{GET}")).await;
    assert_eq!(client.response(false).await.body, "x");
    assert_eq!(client.response(false).await.body, "x");
    assert_eq!(upstream.requests().len(), 6);
    idles().await;
    // The head's bound counts from its first byte.
    client.send("GET /a HT").await;
    let said = String::from_utf8(client.rest().await).unwrap();
    assert!(said.starts_with("HTTP/1.1 408 "), "{said}");
    piped.served.await.unwrap();
    let begun = tokio::time::Instant::now();
    let (mut piped, _upstream) = Piped::before([always(200, "", "x")], limits, "");
    assert_eq!(piped.client.ask(GET).await.body, "x");
    assert!(piped.client.rest().await.is_empty());
    assert_eq!(begun.elapsed().as_secs(), 9, "put by, and still closed in its time");
    piped.served.await.unwrap();
}

#[tokio::test]
async fn connections_that_were_put_by_close_with_the_process_and_with_their_client() {
    let upstream = Upstream::play([always(200, "", "x")]).await;
    // No body comes: its bound is there for the proxy to look every ten milliseconds.
    let proxy = limited(&upstream, "bodyTimeout: PT0.04S, ");
    let mut stays = proxy.connect().await;
    let mut leaves = proxy.connect().await;
    assert_eq!(stays.ask(GET).await.body, "x");
    assert_eq!(leaves.ask(GET).await.body, "x");
    sleep(WHILE).await;
    assert_eq!(proxy.server.connections(), 2);
    drop(leaves);
    proxy.until(|proxy| proxy.server.connections() == 1).await;
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
    let proxy = limited(&upstream, "idleTimeout: PT0.08S, ");
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
