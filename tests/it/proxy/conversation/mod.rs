/// Responses that break off.
mod breaking;
/// Clients that are still sending, or leave, when their request is answered.
mod lingering;
/// Requests that arrive before the answer to an earlier one.
mod pipelining;

use std::sync::Arc;
use std::time::Duration;

use mwl_proxy::telemetry::metrics::Metrics;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::{h2_upstreams, one_route};
use crate::support::h2;
use crate::support::piped::Piped;
use crate::support::proxy::{Client, Proxy, metric, within};
use crate::support::upstream::{Act, Upstream, always, answer};

const GET: &str = "GET /a HTTP/1.1\r\nHost: t\r\n\r\n";

/// A client's connection and an upstream's. Both are pipes, and time passes when everybody waits.
struct Line {
    client: Client<DuplexStream>,
    upstream: DuplexStream,
    served: JoinHandle<()>,
    metrics: Arc<Metrics>,
}

impl Line {
    /// With these `limits`. The pipe to the client holds `holds` bytes.
    fn new(limits: &str, holds: usize) -> Self {
        let (far, upstream) = duplex(1 << 20);
        let Piped { client, served, metrics } = Piped::serve(limits, "", holds, vec![far]);
        Self { client, upstream, served, metrics }
    }

    /// The upstream reads a request up to and including `end`.
    async fn hears(&mut self, end: &str) -> String {
        let mut read = Vec::new();
        while !read.ends_with(end.as_bytes()) {
            assert!(within(self.upstream.read_buf(&mut read)).await.unwrap() > 0, "{read:?}");
        }
        String::from_utf8(read).unwrap()
    }

    /// The upstream sends this.
    async fn says(&mut self, bytes: impl AsRef<[u8]>) {
        self.upstream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Everything that the client reads, `size` bytes at a time with a pause before each.
    async fn sips(&mut self, size: usize, pause: Duration) -> String {
        let (mut all, mut sip) = (Vec::new(), vec![0; size]);
        loop {
            sleep(pause).await;
            let read = self.client.stream.read(&mut sip).await.unwrap();
            if read == 0 {
                return String::from_utf8(all).unwrap();
            }
            all.extend_from_slice(&sip[..read]);
        }
    }
}

/// Whether the only request was counted with this status.
fn is_counted(metrics: &Metrics, status: u16) -> bool {
    metric(metrics, &format!(r#"mwl_requests_total{{route="r",status="{status}"}}"#)) == 1
}

/// However slowly a client reads, an answer that broke off has no end.
#[tokio::test(start_paused = true)]
async fn an_answer_that_breaks_off_before_a_client_that_does_not_read_never_looks_whole() {
    for chunks in [1, 10, 30] {
        let mut line = Line::new("", 64);
        line.client.send(GET).await;
        line.hears("\r\n\r\n").await;
        line.says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        for _ in 0..chunks {
            line.says(format!("64\r\n{}\r\n", "c".repeat(100))).await;
        }
        sleep(Duration::from_secs(1)).await;
        drop(line.upstream);
        sleep(Duration::from_secs(1)).await;
        let response = line.client.response(false).await;
        assert_eq!((response.status, response.whole), (200, false), "{chunks}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_its_answer_a_little_at_a_time_is_not_cut() {
    let mut line = Line::new("bodyTimeout: PT1S, idleTimeout: PT3S, ", 64);
    for size in [300, 3000] {
        line.client.send(GET).await;
        line.hears("\r\n\r\n").await;
        line.says(answer(200, "", &"b".repeat(size))).await;
        let (mut read, end) = (String::new(), "b".repeat(size));
        while !read.ends_with(&end) {
            sleep(Duration::from_millis(500)).await;
            let mut sip = [0; 20];
            let taken = line.client.stream.read(&mut sip).await.unwrap();
            assert!(taken > 0, "cut after {read}");
            read.push_str(std::str::from_utf8(&sip[..taken]).unwrap());
        }
    }
    // It counts as idle since it took the last bytes.
    let begun = Instant::now();
    assert_eq!(line.sips(1, Duration::ZERO).await, "");
    assert!(begun.elapsed() > Duration::from_millis(900), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_nothing_is_cut_though_it_took_some() {
    let mut line = Line::new("bodyTimeout: PT1S, ", 64);
    line.client.send(GET).await;
    line.hears("\r\n\r\n").await;
    line.says(answer(200, "", &"b".repeat(300_000))).await;
    let mut some = [0; 64];
    line.client.stream.read_exact(&mut some).await.unwrap();
    let begun = Instant::now();
    within(&mut line.served).await.unwrap();
    assert!((1000..2000).contains(&begun.elapsed().as_millis()), "{:?}", begun.elapsed());
    assert!(is_counted(&line.metrics, 499));
}

/// RFC 9112 §2.2. Some clients send an empty line after a body. It is not the beginning of a head that takes
/// too long.
#[tokio::test(start_paused = true)]
async fn an_empty_line_between_requests_is_nothing() {
    let mut line = Line::new("headTimeout: PT1S, idleTimeout: PT10S, ", 1 << 16);
    for request in [
        "\r\nPOST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\nhi\r\n".to_owned(),
        format!("\r\n\r\n\r\n{GET}"),
        format!("\r\n{GET}"),
    ] {
        line.client.send(&request).await;
        line.hears(if request.contains("hi") { "hi" } else { "\r\n\r\n" }).await;
        line.says(answer(200, "", "good")).await;
        assert_eq!(line.client.response(false).await.body, "good");
        // Longer than a head may take, but shorter than a client may be idle.
        sleep(Duration::from_secs(5)).await;
    }
    line.client.send("\r\n").await;
    let begun = Instant::now();
    assert!(line.client.rest().await.is_empty(), "nothing was asked, nothing is answered");
    assert!(begun.elapsed() > Duration::from_secs(4), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn empty_lines_keep_nobody_alive() {
    let mut line = Line::new("headTimeout: PT1S, idleTimeout: PT2S, ", 1 << 16);
    let begun = Instant::now();
    while line.client.offer(b"\r\n").await {
        sleep(Duration::from_millis(50)).await;
    }
    assert!((1000..1500).contains(&begun.elapsed().as_millis()), "{:?}", begun.elapsed());
    assert!(line.client.rest().await.is_empty());
}

/// Waits until the only request of `proxy` is counted with this status.
async fn until_counted(proxy: &Proxy, status: u16) {
    proxy.until(|proxy| is_counted(&proxy.metrics, status)).await;
    assert_eq!(proxy.server.in_flight(), 0);
}

/// In HTTP/2 a task of the library sends the body. The connection's task must learn that the whole body was read.
#[tokio::test]
async fn a_client_that_leaves_behind_its_upload_to_http_2_is_missed() {
    let upstream = h2::Upstream::play([h2::Act::Hang]).await;
    let proxy = Proxy::start(&h2_upstreams::one_route(upstream.address, "", ""));
    let mut client = proxy.connect().await;
    client.send("PUT /a HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\nhello").await;
    upstream.until(|seen| seen.first().is_some_and(|seen| seen.body.len() == 5)).await;
    client.send("world").await;
    upstream.until(|seen| seen[0].whole).await;
    drop(client);
    until_counted(&proxy, 499).await;
}

/// If the answer comes before the end of its request, a task of its own sends the rest of the request.
#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_behind_an_upload_that_was_answered_early_is_missed() {
    let mut line = Line::new("", 1 << 16);
    line.client.send("PUT /a HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\nhello").await;
    line.hears("hello").await;
    line.says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n").await;
    let mut read = Vec::new();
    while !read.ends_with(b"2\r\nhi\r\n") {
        assert!(within(line.client.stream.read_buf(&mut read)).await.unwrap() > 0);
    }
    line.client.send("world").await;
    line.hears("world").await;
    drop(line.client);
    assert_eq!(within(line.upstream.read(&mut [0])).await.unwrap(), 0);
    within(line.served).await.unwrap();
}

/// A connection that is closed with unread bytes is reset, and the reset may overtake the answer (RFC 9112
/// §9.6). So the proxy reads on for a while.
#[tokio::test(start_paused = true)]
async fn a_client_that_sends_on_behind_what_is_no_request_reads_why() {
    let long = "x".repeat(40_000);
    for (begins, status) in [
        ("GET / HTTP/1.1\r\nX : y\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nX: ", "431"),
        ("GET /", "414"),
        (
            "PUT / HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "400",
        ),
    ] {
        let mut line = Line::new("headSize: 8KiB, targetSize: 8KiB, bodyTimeout: PT1S, ", 4096);
        assert!(line.client.offer(begins.as_bytes()).await);
        assert!(line.client.offer(long.as_bytes()).await, "{begins}");
        let read = String::from_utf8(line.client.rest().await).unwrap();
        assert!(read.starts_with(&format!("HTTP/1.1 {status} ")), "{read}");
        assert!(line.client.offer(b"more").await && !line.served.is_finished(), "{begins}");
        sleep(Duration::from_secs(1)).await;
        within(line.served).await.unwrap();
        assert!(!line.client.offer(b"more").await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_while_it_is_answered_is_missed_at_once() {
    let upload = "POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\nhi";
    let begun = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n";
    // Before the answer, and during it; also with an empty line after the request.
    for (request, behind, answer) in [
        (GET, "", ""),
        (upload, "", ""),
        (upload, "\r\n", ""),
        (GET, "", begun),
        (GET, "\r\n", begun),
        (upload, "", begun),
    ] {
        let mut line = Line::new("", 1 << 16);
        line.client.send(format!("{request}{behind}")).await;
        line.hears(&request[request.len() - 2..]).await;
        line.says(answer).await;
        sleep(Duration::from_secs(1)).await;
        let left = Instant::now();
        drop(line.client);
        assert_eq!(within(line.upstream.read(&mut [0])).await.unwrap(), 0, "{request}{answer}");
        within(&mut line.served).await.unwrap();
        assert_eq!(left.elapsed(), Duration::ZERO);
        assert!(is_counted(&line.metrics, 499), "{request}{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn requests_that_come_early_wait_their_turn() {
    let mut line = Line::new("", 1 << 16);
    let request = |number: usize, body: &str| {
        let length = body.len();
        format!("POST /a/{number} HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n{body}")
    };
    line.client.send(request(0, "zero") + &request(1, "")).await;
    for number in 0..9 {
        let heard = line.hears(if number == 0 { "zero" } else { "\r\n\r\n" }).await;
        assert!(heard.starts_with(&format!("POST /a/{number} ")), "{heard}");
        // While each is answered, one more arrives: first its head, then the end of the head.
        let next = request(number + 2, "");
        let (first, second) = next.split_at(next.len() / 2);
        line.client.send(first).await;
        sleep(Duration::from_millis(1)).await;
        line.says(&answer(200, "", &format!("answer {number}"))[..30]).await;
        line.client.send(second).await;
        sleep(Duration::from_millis(1)).await;
        line.says(&answer(200, "", &format!("answer {number}"))[30..]).await;
        assert_eq!(line.client.response(false).await.body, format!("answer {number}"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_may_come_byte_by_byte() {
    let mut line = Line::new("", 1 << 16);
    for _ in 0..2 {
        let request = "\r\nPOST /a HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n";
        for byte in request.bytes() {
            line.client.send([byte]).await;
            sleep(Duration::from_millis(1)).await;
        }
        line.hears("0\r\n\r\n").await;
        line.says(answer(200, "", "good")).await;
        assert_eq!(line.client.response(false).await.body, "good");
    }
}

/// After an answer that needs no body, a body that has already arrived is discarded; if there is more, the
/// connection ends.
#[tokio::test(start_paused = true)]
async fn a_body_that_nobody_read_costs_the_connection_where_it_is_not_here_or_large() {
    let upload = |length: usize, sent: usize| {
        let body = "b".repeat(sent);
        format!("POST /x HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n{body}")
    };
    for (request, stays) in [
        (upload(0, 0), true),
        (upload(1, 1), true),
        (upload(50_000, 50_000), true),
        (upload(2, 1), false),
        (upload(200_000, 200_000), false),
        (
            "POST /x HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"
                .to_owned(),
            true,
        ),
        (
            "POST /x HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"
                .to_owned(),
            false,
        ),
        (
            "POST /x HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\nnone\r\n".to_owned(),
            false,
        ),
    ] {
        let shown = &request[..request.len().min(100)];
        let mut line = Line::new("bodyTimeout: PT1S, ", 1 << 18);
        line.client.send(&request).await;
        let refused = line.client.response(false).await;
        assert_eq!((refused.status, refused.whole), (404, true), "{shown}");
        assert_eq!(refused.field("connection").is_empty(), stays, "{shown}");
        if !stays {
            assert!(line.client.rest().await.is_empty(), "{shown}");
            within(line.served).await.unwrap();
            continue;
        }
        line.client.send(GET).await;
        line.hears("\r\n\r\n").await;
        line.says(answer(200, "", "next")).await;
        assert_eq!(line.client.response(false).await.body, "next", "{shown}");
    }
}

#[tokio::test]
async fn a_drain_lets_a_head_come_and_an_answer_stream_to_its_end() {
    let begun = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n".to_vec();
    let parts = vec![begun, Vec::new(), b"0\r\n\r\n".to_vec()];
    let streams = Act::Slowly(Duration::from_millis(100), parts);
    let upstream = Upstream::play([always(200, "", "x"), streams, always(200, "", "last")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let (mut half, mut reads) = (proxy.connect().await, proxy.connect().await);
    assert_eq!(half.ask(GET).await.body, "x");
    half.send("GET /a HT").await;
    reads.send(GET).await;
    upstream.until(|seen| seen.len() == 2).await;
    let mut first = [0; 15];
    within(reads.stream.read_exact(&mut first)).await.unwrap();
    let (cut, ()) = tokio::join!(proxy.server.drain(Duration::from_secs(5)), async {
        tokio::task::yield_now().await;
        half.send("TP/1.1\r\nHost: t\r\n\r\n").await;
        let last = half.response(false).await;
        assert_eq!((last.body.as_str(), last.field("connection")), ("last", vec!["close"]));
        assert!(half.rest().await.is_empty());
        let rest = String::from_utf8(reads.rest().await).unwrap();
        assert!(rest.ends_with("\r\n\r\n2\r\nhi\r\n0\r\n\r\n"), "{rest}");
    });
    assert_eq!(cut, 0);
}

/// A response that a route reads keeps its trailers, like one that streams, for clients that accept them.
#[tokio::test]
async fn an_answer_that_a_route_reads_keeps_its_trailers() {
    let said =
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX-Sum: 1\r\n\r\n";
    let upstream = Upstream::play([Act::Answer(said.to_vec())]).await;
    let reads =
        "    classify: [{ status: [200], when: \"{{ response.body == 'none' }}\", code: A.B }]\n";
    for route in ["", reads] {
        let proxy = Proxy::start(&one_route(&upstream, route));
        for (version, te, ends) in [
            ("1.1", "TE: trailers\r\n", "\r\n\r\n2\r\nhi\r\n0\r\nx-sum: 1\r\n\r\n"),
            ("1.1", "", "hi"),
            ("1.0", "TE: trailers\r\n", "\r\n\r\nhi"),
        ] {
            let mut client = proxy.connect().await;
            client
                .send(format!("GET /a HTTP/{version}\r\nHost: t\r\nConnection: close\r\n{te}\r\n"))
                .await;
            let read = String::from_utf8(client.rest().await).unwrap();
            let read = read.trim_end_matches("\r\n0\r\n\r\n");
            assert!(read.ends_with(ends), "{route}: {read}");
        }
    }
}

/// A reset must not overtake the answer, however much the client still sends.
#[tokio::test]
async fn a_client_that_sends_far_more_than_is_read_has_its_answer() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let proxy = Proxy::start(&one_route(&upstream, "").replace("pathPrefix: /", "path: /a"));
    for _ in 0..3 {
        let mut client = proxy.connect().await;
        let size = 32 << 20;
        client.send(format!("PUT /x HTTP/1.1\r\nHost: t\r\nContent-Length: {size}\r\n\r\n")).await;
        assert!(client.offer(&vec![b'b'; size]).await, "all of it is read");
        let refused = client.response(false).await;
        assert_eq!((refused.status, refused.whole), (404, true));
        assert_eq!(refused.field("connection"), ["close"]);
    }
}
