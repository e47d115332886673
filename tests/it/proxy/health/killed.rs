use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::{GET, config, up, url};
use crate::support::proxy::Proxy;
use crate::support::upstream::Upstream;

/// How many clients ask at once.
const CLIENTS: u64 = 8;

/// The small size, or the full one with `MWL_ENDURANCE=1`.
fn size(small: u64, large: u64) -> u64 {
    if std::env::var_os("MWL_ENDURANCE").is_some() { large } else { small }
}

/// Clients that ask without a pause, until they are told to end.
struct Load {
    ends: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
    clients: JoinSet<()>,
}

impl Load {
    fn on(proxy: &Arc<Proxy>) -> Self {
        let [asked, failed] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
        let (ends, mut clients) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
        for _ in 0..CLIENTS {
            let (proxy, ends) = (Arc::clone(proxy), Arc::clone(&ends));
            let (asked, failed) = (Arc::clone(&asked), Arc::clone(&failed));
            clients.spawn(async move {
                let mut client = proxy.connect().await;
                while !ends.load(Ordering::Relaxed) {
                    let answer = client.ask(GET).await;
                    failed.fetch_add((answer.status != 200).into(), Ordering::Relaxed);
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        Self { ends, asked, failed, clients }
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Waits for so many more requests.
    async fn more(&self, count: u64) {
        let until = self.asked() + count;
        while self.asked() < until {
            sleep(Duration::from_millis(5)).await;
        }
    }

    async fn end(mut self) -> u64 {
        self.ends.store(true, Ordering::Relaxed);
        while let Some(ended) = self.clients.join_next().await {
            ended.unwrap();
        }
        self.failed.load(Ordering::Relaxed)
    }
}

/// The attempts that an endpoint has had.
fn attempts(proxy: &Proxy, address: SocketAddr) -> u64 {
    ["success", "failure"].iter().map(|outcome| {
        proxy.metric(&format!(r#"mwl_endpoint_attempts_total{{endpoint="{address}",outcome="{outcome}",upstream="u"}}"#))
    }).sum()
}

/// Waits until an endpoint is up, or not.
async fn until(proxy: &Proxy, endpoint: SocketAddr, is_up: u64) {
    let begun = Instant::now();
    while proxy.metric(&up(endpoint)) != is_up {
        assert!(begun.elapsed() < Duration::from_secs(20), "it is never {is_up}");
        sleep(Duration::from_millis(2)).await;
    }
}

/// What came of an endpoint of three that was killed and came back.
#[derive(Debug)]
struct Killed {
    /// How many requests failed, of all.
    failed: u64,
    asked: u64,
    /// The share of attempts that it got: once it was out, in the first second of its return, and later.
    out: f64,
    first: f64,
    later: f64,
}

/// The share of attempts that an endpoint gets while so much time passes and so many requests are made, at least.
async fn share_of(
    (proxy, load, endpoint): (&Proxy, &Load, SocketAddr),
    during: Duration,
    least: u64,
) -> f64 {
    let before = (attempts(proxy, endpoint), load.asked());
    load.more(least).await;
    sleep(during).await;
    let (to, of) = (attempts(proxy, endpoint) - before.0, load.asked() - before.1);
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let share = to as f64 / of as f64;
    share
}

/// In the full size, waits until its share has grown, and checks that it is a third.
async fn until_whole(share: (&Proxy, &Load, SocketAddr)) {
    if size(0, 1) == 1 {
        sleep(Duration::from_secs(8)).await;
        let whole = share_of(share, Duration::from_secs(1), 1).await;
        assert!((0.3..0.36).contains(&whole), "{whole}");
    }
}

async fn kill(route: &str) -> Killed {
    let listeners = [(); 3].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let behind = |listener: std::net::TcpListener| {
        listener.set_nonblocking(true).unwrap();
        Upstream::behind(TcpListener::from_std(listener).unwrap(), "x")
    };
    let all = listeners.map(behind);
    let keys = "health: { path: /healthz, interval: PT0.1S, timeout: PT1S }, \
                ejection: { consecutiveFailures: 3, baseTime: PT0.2S }";
    let file = config(&all.each_ref().map(url), keys)
        .replace("upstream: u }]", &format!("upstream: u{route} }}]"));
    let proxy = Arc::new(Proxy::start(&file));
    let load = Load::on(&proxy);
    load.more(size(300, 10_000)).await;
    let [first, second, third] = all;
    let address = third.address;
    drop(third);
    until(&proxy, address, 0).await;
    // An ejection ends before checks have found it unhealthy; after that it stays out.
    load.more(size(200, 2_000)).await;
    sleep(Duration::from_millis(500)).await;
    let share = (&*proxy, &load, address);
    let out = share_of(share, Duration::ZERO, size(2_000, 50_000)).await;
    let back = Upstream::behind(TcpListener::bind(address).await.unwrap(), "x");
    until(&proxy, address, 1).await;
    let begun = share_of(share, Duration::from_secs(1), 1).await;
    sleep(Duration::from_secs(2)).await;
    let later = share_of(share, Duration::from_secs(1), 1).await;
    until_whole(share).await;
    let asked = load.asked();
    let failed = load.end().await;
    drop((first, second, back));
    Killed { failed, asked, out, first: begun, later }
}

#[expect(clippy::print_stderr, reason = "the figures are what the test is for")]
fn judge(what: &str, killed: &Killed, most: u64) {
    let Killed { failed, asked, out, first, later } = killed;
    eprintln!(
        "{what}: {failed} of {asked} failed; its share of attempts: {out:.4} once it was out, {first:.3} at first, {later:.3} later"
    );
    assert!(killed.failed <= most, "{killed:?}");
    assert!(killed.out < 0.01, "{killed:?}");
    assert!((0.01..0.15).contains(&killed.first), "it begins slowly: {killed:?}");
    assert!(killed.later > killed.first && killed.later < 0.28, "it gets more: {killed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_killed_under_load_costs_a_few_requests_without_retry() {
    let killed = kill("").await;
    // Those that fill the counts of failures in a row, those at it when it dies, and those of the second ejection.
    judge("without Retry", &killed, 2 * 3 + 2 * CLIENTS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_killed_under_load_costs_none_with_retry() {
    let retry = ", middleware: [{ provider: mwl:provider.middleware/mwl/retry/v1, onEntry: { with: { policies: [{ match: { retryable: true }, attempts: 2 }] } } }]";
    judge("with Retry", &kill(retry).await, 0);
}
