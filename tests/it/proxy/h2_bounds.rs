use std::sync::Arc;
use std::time::Duration;

use mwl_proxy::proxy::testing::alone;
use mwl_proxy::telemetry::metrics::Metrics;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::one_route;
use crate::support::frames::{
    DATA, END_STREAM, HEADERS, INITIAL_WINDOW_SIZE, RST_STREAM, Raw, request,
};
use crate::support::proxy::{Proxy, runtime, within};
use crate::support::upstream::{Upstream, always, answer};

const CANCEL: u32 = 8;

/// One client's connection and one upstream's, which are pipes, in time that passes when all wait.
struct Line {
    client: Raw<DuplexStream>,
    upstream: DuplexStream,
    served: JoinHandle<()>,
    metrics: Arc<Metrics>,
}

impl Line {
    /// A client that gives each stream so much of a window; `holds`: so much does the pipe to it.
    async fn new(limits: &str, window: u32, holds: usize) -> Self {
        let metrics = Metrics::new();
        let file = format!(
            "listeners: [{{ address: '127.0.0.1:0' }}]\nlimits: {{ {limits}workers: 1 }}\nupstreams: {{ u: {{ endpoints: ['http://127.0.0.1:1'], keepAlive: PT1M, idleTimeout: PT1H }} }}\nroutes:\n  - {{ name: r, match: {{ pathPrefix: /a }}, upstream: u }}\n"
        );
        let runtime = runtime(&file, &metrics);
        let (near, client) = duplex(holds);
        let (far, upstream) = duplex(1 << 20);
        let served = tokio::spawn(alone::serve(runtime, near, Some(far)));
        let client = Raw::greet(client, &[(INITIAL_WINDOW_SIZE, window)]).await;
        Self { client, upstream, served, metrics }
    }

    /// The upstream reads a request's head.
    async fn hears(&mut self) {
        let mut read = Vec::new();
        while !read.ends_with(b"\r\n\r\n") {
            assert!(within(self.upstream.read_buf(&mut read)).await.unwrap() > 0, "{read:?}");
        }
    }

    /// Asks for `/a`, and has the upstream answer with so much.
    async fn asked(&mut self, size: usize) {
        self.client.ask(1, "/a").await;
        self.hears().await;
        self.upstream.write_all(&answer(200, "", &"b".repeat(size))).await.unwrap();
    }

    fn counted(&self, status: u16) -> bool {
        let series = format!(r#"mwl_requests_total{{route="r",status="{status}"}} 1"#);
        self.metrics.render().lines().any(|line| line == series)
    }
}

/// Many at once, on as many places as there are: all of them are free again, and nobody else was refused.
#[tokio::test]
async fn silent_streams_give_their_places_back() {
    let upstream = Upstream::run(|_, request| {
        let large = request.line().starts_with("GET /large");
        always(200, "", &"b".repeat(if large { 100_000 } else { 4 }))
    })
    .await;
    let limits = "bodyTimeout: PT0.5S, requests: 401, ";
    // On a busy machine 400 connects may take more than a second.
    let patient = "'], connectTimeout: PT1M }";
    let proxy = Proxy::limited(limits, &one_route(&upstream, "").replace("'] }", patient));
    let begun = Instant::now();
    let mut silent = Vec::new();
    for window in [0, 0, 1, 1] {
        let mut client = Raw::connect(proxy.address, &[(INITIAL_WINDOW_SIZE, window)]).await;
        for stream in (1..=199).step_by(2) {
            client.ask(stream, "/large").await;
        }
        silent.push(client);
    }
    let mut other = proxy.connect().await;
    loop {
        let answer = other.ask("GET /small HTTP/1.1\r\nHost: t\r\n\r\n").await;
        assert_eq!((answer.status, answer.body.as_str()), (200, "bbbb"));
        if proxy.metric(r#"mwl_requests_total{route="r",status="499"}"#) == 400 {
            break;
        }
        // A request that got another status would never be counted as one of a client that left.
        let late = begun.elapsed() > Duration::from_secs(30);
        assert!(!late, "{}", proxy.metrics.render());
        sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(proxy.server.in_flight(), 0);
    drop(silent);
}

/// However small its window is: what a client does not read is not held for it, nor the upstream's connection.
#[tokio::test(start_paused = true)]
async fn an_answer_that_its_client_gives_no_window_for_is_reset_and_its_upstream_let_go() {
    for window in [0, 1] {
        let mut line = Line::new("bodyTimeout: PT5S, ", window, 1 << 20).await;
        let begun = Instant::now();
        line.asked(100_000).await;
        assert_eq!(line.client.of(HEADERS, 1).await.flags & END_STREAM, 0);
        if window == 1 {
            assert_eq!(line.client.of(DATA, 1).await.payload, b"b");
        }
        let reset = line.client.of(RST_STREAM, 1).await;
        assert_eq!(reset.reason(), CANCEL);
        let took = begun.elapsed();
        assert!((5000..6000).contains(&took.as_millis()), "{took:?}");
        // What is left of the answer is nobody's.
        let ended = async { while line.upstream.read(&mut [0; 64]).await.is_ok_and(|n| n > 0) {} };
        within(ended).await;
        assert!(line.counted(499));
        // The connection serves on.
        assert!(!line.served.is_finished());
        line.client.ask(3, "/nowhere").await;
        line.client.of(HEADERS, 3).await;
    }
}

#[tokio::test(start_paused = true)]
async fn streams_that_nobody_reads_do_not_hold_up_one_that_is_read() {
    let mut line = Line::new("bodyTimeout: PT5S, ", 0, 1 << 20).await;
    line.asked(1000).await;
    line.client.of(HEADERS, 1).await;
    line.client.ask(3, "/nowhere").await;
    line.client.of(HEADERS, 3).await;
    for _ in 0..20 {
        sleep(Duration::from_secs(1)).await;
        line.client.open(3, 10).await;
        let next = line.client.until(|frame| frame.kind != HEADERS).await;
        if (next.kind, next.stream) == (RST_STREAM, 1) {
            return;
        }
        assert_eq!((next.kind, next.stream), (DATA, 3));
    }
    panic!("the stream that nobody reads is held");
}

/// A little now and then is not nothing, however long it takes.
#[tokio::test(start_paused = true)]
async fn a_client_that_opens_its_window_a_little_at_a_time_gets_all() {
    let mut line = Line::new("bodyTimeout: PT5S, ", 0, 1 << 20).await;
    line.asked(50_000).await;
    line.client.of(HEADERS, 1).await;
    let mut taken = 0;
    while taken < 50_000 {
        sleep(Duration::from_secs(4)).await;
        line.client.open(1, 500).await;
        taken += line.client.of(DATA, 1).await.payload.len();
    }
    assert_eq!(taken, 50_000);
    assert!(line.counted(200));
}

/// The window is wide open, and the socket is what is slow: the connection's own clock counts what it takes.
#[tokio::test(start_paused = true)]
async fn a_client_whose_socket_is_slow_is_not_silent() {
    let mut line = Line::new("bodyTimeout: PT5S, ", 1 << 30, 256).await;
    line.client.open(0, 1 << 30).await;
    line.asked(40_000).await;
    let mut taken = 0;
    while taken < 40_000 {
        sleep(Duration::from_millis(900)).await;
        let mut sip = [0; 200];
        let read = within(line.client.stream.read(&mut sip)).await.unwrap();
        assert!(read > 0, "cut after {taken}");
        taken += read;
    }
    assert!(line.counted(200));
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_stands_still_has_a_bound_for_its_stream_alone() {
    let mut line = Line::new("bodyTimeout: PT5S, ", 1 << 20, 1 << 20).await;
    let head = request("POST", "/a", &[("content-length", "10")]);
    line.client.send(HEADERS, 4, 1, &head).await;
    line.client.send(DATA, 0, 1, b"hello").await;
    line.hears_some(b"hello").await;
    let begun = Instant::now();
    line.client.of(HEADERS, 1).await;
    let took = begun.elapsed();
    assert!((5000..6000).contains(&took.as_millis()), "{took:?}");
    assert!(line.counted(408));
    line.client.ask(3, "/nowhere").await;
    line.client.of(HEADERS, 3).await;
}

impl Line {
    /// The upstream reads up to this.
    async fn hears_some(&mut self, end: &[u8]) {
        let mut read = Vec::new();
        while !read.ends_with(end) {
            assert!(within(self.upstream.read_buf(&mut read)).await.unwrap() > 0, "{read:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_limit_ends_a_connection_whose_streams_have_ended() {
    let mut line = Line::new("idleTimeout: PT3S, headTimeout: PT2S, ", 1 << 20, 1 << 20).await;
    line.asked(10).await;
    line.client.of(DATA, 1).await;
    let begun = Instant::now();
    let goaway = line.client.until(|frame| frame.kind == crate::support::frames::GOAWAY).await;
    assert_eq!(goaway.reason(), 0);
    // A client that does not answer the farewell is gone.
    within(&mut line.served).await.unwrap();
    assert!((3000..8000).contains(&begun.elapsed().as_millis()), "{:?}", begun.elapsed());
}
