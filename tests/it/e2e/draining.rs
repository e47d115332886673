//! Stopping with tunnels and HTTP/2 connections.

use std::io::{Read, Write};
use std::net::SocketAddr;

use futures_util::{SinkExt, StreamExt};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, client_async};

use super::lifecycle::{until_not_ready, until_refused};
use crate::support::client::{Client, get, request};
use crate::support::h2;
use crate::support::origin::{Origin, Turn, answer, bytes};
use crate::support::program::{Proxy, configuration};
use crate::support::proxy::within;
use crate::support::stack::{heeding, retry};
use crate::support::watched::{Gate, PATIENCE, Watched};
use crate::support::websocket;

const ROUTES: &str = concat!(
    "  - { name: chat, match: { path: /chat }, upstream: chat }\n",
    "  - name: pay\n    match: { pathPrefix: / }\n    upstream: app\n    middleware:\n",
    retry!("match: { codes: [Provider.Call.*] }, attempts: 3"),
    heeding!(),
);

/// A connection in each relevant state.
struct Open {
    proxy: Proxy,
    /// Dropping it would end it.
    _app: Origin,
    /// When opened, the upstream answers the running attempts.
    gate: Gate,
    attempt: Client,
    gap: Client,
    idle: Client,
    chat: WebSocketStream<TcpStream>,
    /// HTTP/2, with a running request.
    busy: h2::Client,
    under_way: h2::client::ResponseFuture,
    /// HTTP/2, without a request.
    silent: std::net::TcpStream,
}

impl Drop for Open {
    fn drop(&mut self) {
        // Nobody waits there any more.
        self.gate.open();
    }
}

impl Open {
    async fn new() -> Self {
        let gate = Gate::default();
        let (opens, tried) = (gate.clone(), Watched::new(false));
        let app = Origin::by(move |head, _| match head.field("x-request-id") {
            Some("in-an-attempt") => Turn::Gated(opens.clone(), bytes(200, &[], "done")),
            Some("in-a-gap") if !tried.update(|tried| std::mem::replace(tried, true)) => {
                answer(503, &[("Retry-After", "2")], "later")
            }
            _ => answer(200, &[], "done"),
        });
        let upstreams = [("app", app.address), ("chat", websocket::server().await)];
        let file = configuration(&upstreams, ROUTES);
        let proxy = Proxy::start(&format!("shutdown: {{ delay: PT1S, grace: PT5S }}\n{file}"));
        let ask = |id: &str| {
            let mut client = Client::connect(proxy.address);
            client.send(request("GET", "/", &[("X-Request-Id", id)], b""));
            client
        };
        let [attempt, gap, mut idle] = ["in-an-attempt", "in-a-gap", "idle"].map(ask);
        assert_eq!(idle.answer().status, 200);
        let chat = TcpStream::connect(proxy.address).await.unwrap();
        let (chat, _) = within(client_async("ws://t/chat", chat)).await.unwrap();
        let mut busy = h2::Client::connect(proxy.address).await;
        let long = h2::request("GET", "/", &[("x-request-id", "in-an-attempt")]);
        let (under_way, _) = busy.begin(long, true).await;
        let silent = greet(proxy.address);
        app.until_count(4);
        let failed = [("upstream", "app"), ("code", "Provider.Call.Http.Unavailable")];
        proxy.until_metric("mwl_attempts_total", &failed, 1);
        Self { proxy, _app: app, gate, attempt, gap, idle, chat, busy, under_way, silent }
    }

    /// Sends SIGTERM and checks its effects, except on the tunnel, which still carries messages. Returns when
    /// it was sent.
    async fn stop(&mut self) -> Instant {
        let begun = Instant::now();
        self.proxy.program().signal("TERM");
        until_not_ready(self.proxy.admin);
        assert_eq!(get(self.proxy.address, "/").text(), "done", "it still accepts");
        assert_eq!(self.converse("before").await, "before");
        until_refused(self.proxy.address);
        assert!(begun.elapsed().as_secs() >= 1, "the delay is kept");
        assert!(self.idle.ended());
        let last = frames(&mut self.silent);
        assert!(last.contains(&Some(0)), "a GOAWAY without an error, then the end: {last:?}");
        self.end_by_themselves().await;
        assert_eq!(self.converse("after").await, "after");
        begun
    }

    /// The running and the waiting requests end by themselves.
    async fn end_by_themselves(&mut self) {
        self.gate.open();
        for client in [&mut self.attempt, &mut self.gap] {
            let got = client.answer();
            assert_eq!((got.status, got.text()), (200, "done"));
            assert_eq!(got.field("connection"), Some("close"));
            assert!(client.ended());
        }
        let got = within(h2::whole(&mut self.under_way)).await.unwrap();
        assert_eq!((got.status, got.text()), (200, "done"));
        within(&mut self.busy.driver).await.unwrap().expect("a GOAWAY without an error");
    }

    async fn converse(&mut self, words: &'static str) -> String {
        within(self.chat.send(Message::text(words))).await.unwrap();
        within(self.chat.next()).await.unwrap().unwrap().into_text().unwrap().to_string()
    }

    /// The log lines since the signal that have one of these levels.
    fn complaints(&self, levels: &[&str]) -> Vec<String> {
        let lines = self.proxy.program().lines();
        let stopping = lines.into_iter().skip_while(|line| !line.contains("Stopping."));
        stopping.filter(|line| levels.iter().any(|level| line.contains(level))).collect()
    }
}

/// An HTTP/2 connection without a request.
fn greet(address: SocketAddr) -> std::net::TcpStream {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).unwrap();
    // The other side's first frame holds its settings: it serves this connection.
    let mut head = [0; 9];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(head[3], 4);
    let mut settings = vec![0; usize::from(head[2])];
    stream.read_exact(&mut settings).unwrap();
    stream
}

/// Reads to the end and answers pings. For each frame, returns the error code if it is a GOAWAY.
fn frames(stream: &mut std::net::TcpStream) -> Vec<Option<u32>> {
    let mut told = Vec::new();
    let mut head = [0; 9];
    while stream.read_exact(&mut head).is_ok() {
        let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
        stream.read_exact(&mut payload).unwrap();
        told.push(match (head[3], head[4]) {
            (6, 0) => {
                head[4] = 1;
                stream.write_all(&[&head[..], &payload].concat()).unwrap();
                None
            }
            (7, _) => Some(u32::from_be_bytes(payload[4..8].try_into().unwrap())),
            _ => None,
        });
    }
    told
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_term_signal_every_kind_of_connection_comes_to_its_own_end() {
    let mut open = Open::new().await;
    open.stop().await;
    within(open.chat.close(None)).await.unwrap();
    while let Some(Ok(_)) = within(open.chat.next()).await {}
    open.chat.get_mut().shutdown().await.unwrap();
    assert_eq!(open.proxy.exit().code(), Some(0));
    assert_eq!(open.complaints(&["ERROR", "WARN"]), [""; 0], "an orderly stop");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tunnel_that_outlives_the_grace_is_closed_and_the_exit_code_says_so() {
    let mut open = Open::new().await;
    let begun = open.stop().await;
    let end = within(open.chat.next()).await;
    assert!(!matches!(end, Some(Ok(_))), "{end:?}");
    let took = begun.elapsed().as_secs_f64();
    assert!((6.0..20.0).contains(&took), "the delay and the grace, not {took}");
    assert_eq!(open.proxy.exit().code(), Some(1));
    assert_eq!(open.complaints(&["ERROR"]), [""; 0]);
    let cut = open.complaints(&["WARN"]);
    assert!(cut.len() == 1 && cut[0].contains("requests were cut"), "{cut:?}");
}
