//! An upstream that closes each connection just when the next request arrives: no client notices, and nothing
//! is done twice that must not be.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::size;
use crate::support::proxy::{Client, Proxy};

/// The clients, each with its own upstream. The proxy prefers recently used connections, so two clients with
/// the same upstream would not both use an idle one.
const LANES: usize = 8;

/// Closes a connection that has been idle for `period`: every other one at that moment, and the rest on arrival
/// of the next request.
#[derive(Debug)]
struct Closing {
    address: SocketAddr,
    log: Arc<Mutex<Log>>,
    _task: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Log {
    /// How often each request was served, by its id.
    served: HashMap<String, usize>,
    connections: usize,
    /// Requests on whose connection the upstream closed.
    dropped: Vec<String>,
}

impl Closing {
    async fn start(period: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let log = Arc::new(Mutex::new(Log::default()));
        let mut task = JoinSet::new();
        let kept = Arc::clone(&log);
        task.spawn(async move {
            let mut connections = JoinSet::new();
            for number in 0_usize.. {
                let Ok((stream, _)) = listener.accept().await else { return };
                kept.lock().unwrap().connections += 1;
                connections.spawn(serve(stream, period, number % 2 == 0, Arc::clone(&kept)));
            }
        });
        Self { address, log, _task: task }
    }
}

async fn serve(mut stream: TcpStream, period: Duration, at_once: bool, log: Arc<Mutex<Log>>) {
    stream.set_nodelay(true).unwrap();
    let mut deadline = None;
    let mut buffer = Vec::new();
    loop {
        let idle = async {
            match deadline {
                Some(deadline) if at_once => sleep_until(deadline).await,
                _ => std::future::pending().await,
            }
        };
        let read = tokio::select! {
            read = stream.read_buf(&mut buffer) => read,
            () = idle => return,
        };
        if !read.is_ok_and(|size| size > 0) {
            return;
        }
        let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8(buffer.drain(..end + 4).collect()).unwrap();
        let id = head.lines().find_map(|line| line.strip_prefix("x-request-id: "));
        let id = id.expect("an id").to_owned();
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            log.lock().unwrap().dropped.push(id);
            return;
        }
        *log.lock().unwrap().served.entry(id).or_default() += 1;
        deadline = Instant::now().checked_add(period);
        if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.is_err() {
            return;
        }
    }
}

/// The result of a run.
#[derive(Debug, Default)]
struct Tally {
    ok: usize,
    /// 502, because the connection was lost.
    lost: usize,
    dropped: usize,
    resent: u64,
    connections: usize,
}

/// Sends `count` requests with this method over all lanes, about one each `period`.
async fn race(method: &'static str, count: usize, period: Duration) -> Tally {
    let mut upstreams = Vec::new();
    let mut file = String::from("upstreams:\n");
    for lane in 0..LANES {
        let upstream = Closing::start(period).await;
        writeln!(file, "  u{lane}: {{ endpoints: ['http://{}'] }}", upstream.address).unwrap();
        upstreams.push(upstream);
    }
    file.push_str("routes:\n");
    for lane in 0..LANES {
        let path = format!("{{ pathPrefix: /{lane} }}");
        writeln!(file, "  - {{ name: r{lane}, match: {path}, upstream: u{lane} }}").unwrap();
    }
    let proxy = Arc::new(Proxy::start(&file));
    let mut lanes = JoinSet::new();
    for lane in 0..LANES {
        let proxy = Arc::clone(&proxy);
        lanes.spawn(async move { requests(&proxy, method, lane, count / LANES, period).await });
    }
    let mut tally = Tally::default();
    while let Some(done) = lanes.join_next().await {
        let (ok, lost) = done.unwrap();
        tally.ok += ok;
        tally.lost += lost;
    }
    for (lane, upstream) in upstreams.iter().enumerate() {
        let log = upstream.log.lock().unwrap();
        tally.dropped += log.dropped.len();
        tally.connections += log.connections;
        let series = format!(r#"mwl_stale_connection_resends_total{{upstream="u{lane}"}}"#);
        tally.resent += proxy.metric(&series);
        assert!(log.served.values().all(|times| *times == 1), "served twice: {:?}", log.served);
        let again = log.dropped.iter().filter(|id| log.served.contains_key(*id)).count();
        // A dropped GET is served by its resend; other methods must never be resent.
        assert_eq!(again, if method == "GET" { log.dropped.len() } else { 0 });
    }
    tally
}

async fn requests(
    proxy: &Proxy,
    method: &str,
    lane: usize,
    count: usize,
    period: Duration,
) -> (usize, usize) {
    let mut random = StdRng::seed_from_u64(lane as u64);
    let mut client: Client = proxy.connect().await;
    let (mut ok, mut lost) = (0, 0);
    for number in 0..count {
        let length = if method == "POST" { "Content-Length: 0\r\n" } else { "" };
        let request = format!(
            "{method} /{lane} HTTP/1.1\r\nHost: t\r\nX-Request-Id: {lane}-{number}\r\n{length}\r\n"
        );
        let response = client.ask(&request).await;
        match response.status {
            200 => ok += 1,
            502 => {
                assert_eq!(response.json()["code"], "Provider.Call.Http.ConnectionClosed");
                lost += 1;
            }
            other => panic!("{other}: {response:?}"),
        }
        // Near the moment when the upstream closes: at most one percent of the period before or after.
        let jitter = period.mul_f64(random.random_range(0.99..1.01));
        tokio::time::sleep(jitter).await;
    }
    (ok, lost)
}

#[tokio::test]
async fn no_get_is_lost_and_each_that_is_sent_again_is_counted() {
    let (count, period) = size((320, 10), (2000, 200));
    let tally = race("GET", count, Duration::from_millis(period)).await;
    assert_eq!((tally.ok, tally.lost), (count, 0), "{tally:?}");
    assert!(tally.dropped > 0, "no request met a connection that was being closed: {tally:?}");
    // Those that the upstream dropped, and those that it never saw.
    assert!(tally.resent >= tally.dropped as u64, "{tally:?}");
    assert!(tally.resent <= tally.connections as u64, "{tally:?}");
    shown("GET", &tally);
}

#[tokio::test]
async fn no_post_is_sent_twice() {
    // Multiples of the number of lanes.
    let (count, period) = size((160, 10), (504, 200));
    let tally = race("POST", count, Duration::from_millis(period)).await;
    assert_eq!(tally.ok + tally.lost, count, "{tally:?}");
    assert!(tally.lost >= tally.dropped && tally.dropped > 0, "{tally:?}");
    // Sent again only if nothing of it was written.
    assert!(tally.resent <= tally.connections as u64, "{tally:?}");
    shown("POST", &tally);
}

#[expect(clippy::print_stderr, reason = "the figures of an endurance run are read by people")]
fn shown(method: &str, tally: &Tally) {
    eprintln!("{method}: {tally:?}");
}
