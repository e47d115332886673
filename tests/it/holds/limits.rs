//! Peers that try to exceed a limit, before the program: what they get, what is counted, how much memory it takes, and
//! that another client is served meanwhile. `docs/limits.md` lists all limits with their tests.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::client::{Client, get, request};
use crate::support::frames::{self, DATA, END_HEADERS, ENDS, GOAWAY, HEADERS, RST_STREAM, Raw};
use crate::support::origin::{Origin, answer};
use crate::support::program::{Proxy, configuration};
use crate::support::proxy::{self, within};
use crate::support::upstream::{Upstream, always};
use crate::support::watched::PATIENCE;

/// The most resident memory of the program while it holds little, in KiB.
const LITTLE: u64 = 64 << 10;

/// A proxy whose route `/other` is answered, and whose other requests go to `hostile` by a route with these further
/// keys. `limits` are members of the section.
fn before(hostile: SocketAddr, route: &str, limits: &str) -> (Proxy, Origin) {
    let origin = Origin::always(answer(200, &[], "other"));
    let routes = format!(
        "  - {{ name: other, match: {{ path: /other }}, upstream: good }}
  - name: hostile
    match: {{ pathPrefix: / }}
    upstream: bad
{route}"
    );
    let file = configuration(&[("good", origin.address), ("bad", hostile)], &routes);
    (Proxy::start(&format!("{file}limits: {{ workers: 1, {limits} }}\n")), origin)
}

/// An upstream that serves `count` connections: it answers each request with `first`, and then with `again` until nobody
/// reads any more. The thread returns how many bytes it wrote.
fn endless(
    count: usize,
    first: &'static [u8],
    again: &'static [u8],
) -> (SocketAddr, JoinHandle<u64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let pour = move |mut stream: TcpStream| {
        let mut asked = [0; 4096];
        let _head = stream.read(&mut asked).unwrap();
        let mut written = 0;
        let mut piece = first;
        while stream.write_all(piece).is_ok() {
            written += piece.len() as u64;
            piece = again;
        }
        written
    };
    let thread = thread::spawn(move || {
        let accepted: Vec<TcpStream> = (0..count).map(|_| listener.accept().unwrap().0).collect();
        let pouring: Vec<_> =
            accepted.into_iter().map(|stream| thread::spawn(move || pour(stream))).collect();
        pouring.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    (address, thread)
}

fn is_served(proxy: &Proxy) {
    let answer = get(proxy.address, "/other");
    assert_eq!((answer.status, answer.text()), (200, "other"));
}

fn is_idle(proxy: &Proxy) -> bool {
    proxy.metric("mwl_requests_in_flight", &[]) == 0
}

/// Waits until no request is in flight any more.
fn until_idle(proxy: &Proxy) {
    let begun = tokio::time::Instant::now();
    while !is_idle(proxy) {
        assert!(begun.elapsed() < PATIENCE, "requests are in flight");
        thread::yield_now();
    }
}

/// A request of HTTP/1.1, or of HTTP/2, from a client that then reads nothing.
fn asks_and_reads_nothing(address: SocketAddr, http2: bool) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    if http2 {
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        stream.write_all(&frames::frame(frames::SETTINGS, 0, 0, &[])).unwrap();
        let head = frames::request("GET", "/hints", &[]);
        stream.write_all(&frames::frame(HEADERS, ENDS, 1, &head)).unwrap();
    } else {
        stream.write_all(&request("GET", "/hints", &[], b"")).unwrap();
    }
    stream
}

#[test]
fn hints_without_end_take_no_memory_and_end_with_their_client() {
    const HINT: &[u8] = b"HTTP/1.1 103 Early Hints\r\nlink: </a-style-sheet>; rel=preload\r\n\r\n";
    for http2 in [false, true] {
        let (hostile, upstream) = endless(1, HINT, HINT);
        let (proxy, _origin) = before(hostile, "", "");
        let client = asks_and_reads_nothing(proxy.address, http2);
        // More than the sockets hold: the client takes none of them.
        let full = [("route", "hostile"), ("reason", "full")];
        proxy.until_metric("mwl_interim_responses_dropped_total", &full, 20_000);
        is_served(&proxy);
        assert!(proxy.program().memory("VmHWM:") < LITTLE);
        drop(client);
        assert!(upstream.join().unwrap() > 20_000 * HINT.len() as u64);
        until_idle(&proxy);
        let left = [("route", "hostile"), ("status", "499")];
        proxy.until_metric("mwl_requests_total", &left, 1);
        is_served(&proxy);
    }
}

#[test]
fn responses_without_end_are_read_up_to_their_bound() {
    const CLIENTS: usize = 24;
    const CHUNK: &[u8] =
        b"40\r\n................................................................\r\n";
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n";
    let (hostile, upstream) = endless(CLIENTS, head, CHUNK);
    let reads = "    output: \"{{ step.result.value.body }}\"\n";
    let (proxy, _origin) = before(hostile, reads, "");
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| Client::connect(proxy.address)).collect();
    for client in &mut clients {
        client.send(request("GET", "/reads", &[], b""));
    }
    is_served(&proxy);
    for client in &mut clients {
        let answer = client.answer();
        assert_eq!(answer.status, 500);
        assert_eq!(answer.json()["code"], "Provider.Call.Http.BodyTooLarge");
    }
    let code = [("route", "hostile"), ("code", "Provider.Call.Http.BodyTooLarge")];
    assert_eq!(proxy.metric("mwl_attempts_total", &code), CLIENTS as u64);
    // A body of one MiB is in memory twice while its buffer grows.
    assert!(proxy.program().memory("VmHWM:") < LITTLE + CLIENTS as u64 * (2 << 10));
    // The upstream is let go, and what it had sent is not read on.
    upstream.join().unwrap();
    until_idle(&proxy);
    is_served(&proxy);
}

#[test]
fn heads_that_never_end_hold_little_together_and_no_longer_than_their_time() {
    const CLIENTS: u64 = 300;
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let (proxy, _origin) = before(nobody.local_addr().unwrap(), "", "headTimeout: PT3S");
    let before = proxy.program().memory("VmRSS:");
    let head = format!("GET /a HTTP/1.1\r\nHost: t\r\nX-Long: {}", "x".repeat(60_000));
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| Client::connect(proxy.address)).collect();
    for client in &mut clients {
        client.send(&head);
    }
    is_served(&proxy);
    let statuses: Vec<u16> = clients.iter_mut().map(|client| client.answer().status).collect();
    assert!(clients.iter_mut().all(Client::ended));
    let with = |status| statuses.iter().filter(|other| **other == status).count() as u64;
    let (late, full) = (with(408), with(503));
    assert_eq!(late + full, CLIENTS);
    assert!(late > 100 && full > 100, "{late} in time, {full} without room");
    let refused = |reason| proxy.metric("mwl_requests_refused_total", &[("reason", reason)]);
    assert_eq!((refused("headTimeout"), refused("overloaded")), (late, full));
    // Eight MiB of heads, and what their buffers take beside that.
    let peak = proxy.program().memory("VmHWM:");
    assert!(peak < before + (24 << 10), "{before} KiB grew to {peak} KiB");
    is_served(&proxy);
}

#[tokio::test]
async fn uploads_that_nobody_reads_hold_a_window_each() {
    const CONNECTIONS: u64 = 8;
    // Whoever connects is accepted by the system, and never answered.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let unread = "    input: null\n";
    let (proxy, _origin) = before(silent.local_addr().unwrap(), unread, "");
    let mut clients = Vec::new();
    let piece = frames::frame(DATA, 0, 0, &[b'u'; 15_000]);
    for _ in 0..CONNECTIONS {
        let mut client = Raw::connect(proxy.address, &[]).await;
        // After an answer, the connection's window is open.
        client.ask(1, "/other").await;
        client.of(DATA, 1).await;
        for stream in (3..203_u32).step_by(2) {
            let head = frames::request("POST", "/a", &[]);
            client.send(HEADERS, END_HEADERS, stream, &head).await;
            for _ in 0..4 {
                let mut piece = piece.clone();
                piece[5..9].copy_from_slice(&stream.to_be_bytes());
                client.write(&piece).await;
            }
        }
        clients.push(client);
    }
    proxy.until_metric("mwl_requests_in_flight", &[("route", "hostile")], CONNECTIONS * 100);
    is_served(&proxy);
    // One more piece is beyond the window.
    let [first, ..] = &mut clients[..] else { unreachable!() };
    first.send(DATA, 0, 3, &[b'u'; 15_000]).await;
    let told = first.until(|frame| [RST_STREAM, GOAWAY].contains(&frame.kind)).await;
    assert_eq!(told.reason(), 3, "FLOW_CONTROL_ERROR: {told:?}");
    let most = LITTLE + CONNECTIONS * 100 * 2 * 64;
    let peak = proxy.program().memory("VmHWM:");
    assert!(peak < most, "{peak} KiB, and at most {most} KiB are wanted");
    drop(clients);
    until_idle(&proxy);
    is_served(&proxy);
}

/// In HTTP/2, too: other requests have their turn, and a client that leaves is noticed.
#[tokio::test]
async fn hints_without_end_of_http_2_end_with_their_client() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hostile = listener.local_addr().unwrap();
    let upstream = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut upstream = Raw::welcome(stream, &[]).await;
        let asked = upstream.until(|frame| frame.kind == HEADERS).await;
        let hint = frames::block(&[(":status", "103"), ("link", "</a-style-sheet>; rel=preload")]);
        let hints = frames::frame(HEADERS, END_HEADERS, asked.stream, &hint).repeat(100);
        let (mut read, mut write) = tokio::io::split(upstream.stream);
        let mut discarded = tokio::io::sink();
        // Until the stream is reset, or the connection closed.
        let heard = async {
            let mut head = [0; 9];
            while read.read_exact(&mut head).await.is_ok() && head[3] != RST_STREAM {
                let size = u32::from_be_bytes([0, head[0], head[1], head[2]]);
                let mut payload = (&mut read).take(size.into());
                tokio::io::copy(&mut payload, &mut discarded).await.unwrap();
            }
        };
        let pours = async { while write.write_all(&hints).await.is_ok() {} };
        tokio::select! {
            () = heard => {}
            () = pours => {}
        }
    });
    let good = Upstream::play([always(200, "", "other")]).await;
    let proxy = proxy::Proxy::start(&format!(
        "upstreams: {{ good: {{ endpoints: ['http://{}'] }}, bad: {{ endpoints: ['http://{hostile}'], protocol: http2 }} }}
routes:
  - {{ name: other, match: {{ path: /other }}, upstream: good }}
  - {{ name: hostile, match: {{ pathPrefix: / }}, upstream: bad }}
",
        good.address
    ));
    let mut client = proxy.connect().await;
    client.send("GET /hints HTTP/1.1\r\nHost: t\r\n\r\n").await;
    let full = r#"mwl_interim_responses_dropped_total{reason="full",route="hostile"}"#;
    proxy.until(|proxy| proxy.metric(full) > 10_000).await;
    assert_eq!(proxy.ask("GET /other HTTP/1.1\r\nHost: t\r\n\r\n").await.body, "other");
    drop(client);
    within(upstream).await.unwrap();
    proxy.until_idle().await;
    assert_eq!(proxy.metric(r#"mwl_requests_total{route="hostile",status="499"}"#), 1);
}
