//! What proxies share in a store: a real Redis, its death and its return.
//!
//! `cargo nextest run --test it -E 'test(proxy::stores)' --no-capture` prints what was measured.
#![expect(clippy::print_stdout, reason = "what was measured is to be seen")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::idempotent::{WAITING, idempotent, post};
use super::one_route;
use crate::support::program::Directory;
use crate::support::proxy::{Files, Proxy};
use crate::support::redis::Redis;
use crate::support::tls::Authority;
use crate::support::upstream::{Act, Upstream, always};

const GET: &str = "GET /a HTTP/1.1\r\nHost: t\r\n\r\n";
const ERRORS: &str = r#"mwl_store_errors_total{store="fleet"}"#;

/// A route with this stack, and the store `fleet` with these further keys.
fn shared(redis: &Redis, upstream: &Upstream, keys: &str, stack: &str) -> String {
    let route = one_route(upstream, stack);
    format!("stores: {{ fleet: {{ redis: 'redis://{}', {keys} }} }}\n{route}", redis.address)
}

fn limit(with: &str) -> String {
    format!(
        "    middleware:
      - provider: mwl:provider.middleware/mwl-proxy/rate-limit/v1
        onEntry: {{ with: {{ {with}, store: fleet }} }}
"
    )
}

async fn good() -> Upstream {
    Upstream::run(|_, _| always(200, "", "good")).await
}

/// Ten proxies, each asked as fast as it answers, let through what one of them would.
#[tokio::test]
async fn ten_proxies_share_one_limit() {
    let (redis, upstream) = (Redis::start().await, good().await);
    let file = shared(&redis, &upstream, "timeout: PT5S", &limit("rate: 100, burst: 10"));
    let proxies: Vec<_> = (0..10).map(|_| Arc::new(Proxy::start(&file))).collect();
    let begun = Instant::now();
    let asking: Vec<_> = proxies
        .iter()
        .map(|proxy| {
            let proxy = Arc::clone(proxy);
            tokio::spawn(async move {
                let mut client = proxy.connect().await;
                let (mut passed, mut asked) = (0_u64, 0_u64);
                while begun.elapsed() < Duration::from_secs(3) {
                    asked += 1;
                    passed += u64::from(client.ask(GET).await.status == 200);
                }
                (passed, asked)
            })
        })
        .collect();
    let (mut passed, mut asked) = (0, 0);
    for one in asking {
        let (more, of) = one.await.unwrap();
        (passed, asked) = (passed + more, asked + of);
    }
    let took = begun.elapsed();
    let errors: u64 = proxies.iter().map(|proxy| proxy.metric(ERRORS)).sum();
    println!("ten proxies, 100 a second: {passed} of {asked} passed in {took:?}, {errors} errors");
    assert_eq!(errors, 0);
    let due = 10 + u64::try_from(took.as_millis()).unwrap() / 10 + 1;
    assert!(passed <= due, "{passed} passed, {due} were due");
    assert!(passed >= 250 && asked > 2 * passed, "{passed} of {asked}");
    assert_eq!(upstream.requests().len() as u64, passed);
}

/// Asks one request after the other, in four connections, until it is told to end.
struct Load {
    over: Arc<AtomicBool>,
    passed: Arc<AtomicU64>,
    refused: Arc<AtomicU64>,
    slowest: Arc<AtomicU64>,
    asking: Vec<tokio::task::JoinHandle<()>>,
}

impl Load {
    fn begin(proxy: &Arc<Proxy>) -> Self {
        let mut load = Self {
            over: Arc::default(),
            passed: Arc::default(),
            refused: Arc::default(),
            slowest: Arc::default(),
            asking: Vec::new(),
        };
        for _ in 0..4 {
            let (proxy, over, passed) =
                (Arc::clone(proxy), Arc::clone(&load.over), Arc::clone(&load.passed));
            let (refused, slowest) = (Arc::clone(&load.refused), Arc::clone(&load.slowest));
            load.asking.push(tokio::spawn(async move {
                let mut client = proxy.connect().await;
                while !over.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    let status = client.ask(GET).await.status;
                    let took = u64::try_from(begun.elapsed().as_millis()).unwrap();
                    slowest.fetch_max(took, Ordering::Relaxed);
                    let counter = if status == 200 { &passed } else { &refused };
                    counter.fetch_add(1, Ordering::Relaxed);
                    sleep(Duration::from_millis(2)).await;
                }
            }));
        }
        load
    }

    /// How many passed and were refused since the last time, and how long the slowest took, in milliseconds.
    fn seen(&self) -> (u64, u64, u64) {
        let take = |counter: &AtomicU64| counter.swap(0, Ordering::Relaxed);
        (take(&self.passed), take(&self.refused), take(&self.slowest))
    }

    async fn end(self) {
        self.over.store(true, Ordering::Relaxed);
        for one in self.asking {
            one.await.unwrap();
        }
    }
}

/// A store that dies or stalls under load holds no request beyond its `timeout`; `onError` decides meanwhile; and when it
/// returns, it counts again.
#[tokio::test]
async fn a_store_that_is_gone_or_stalls_holds_nobody() {
    let upstream = good().await;
    for on_error in ["allow", "deny"] {
        let mut redis = Redis::start().await;
        let keys = format!("timeout: PT0.2S, onError: {on_error}");
        // Beyond what four connections ask: only the store's absence refuses.
        let stack = limit("rate: 1000000");
        let proxy = Arc::new(Proxy::start(&shared(&redis, &upstream, &keys, &stack)));
        let load = Load::begin(&proxy);
        let answered = async |count: u64| {
            let before = load.seen();
            while load.passed.load(Ordering::Relaxed) + load.refused.load(Ordering::Relaxed) < count
            {
                sleep(Duration::from_millis(5)).await;
            }
            let seen = load.seen();
            println!("{on_error}: {seen:?} passed, refused, slowest (ms); before {before:?}");
            seen
        };
        let (passed, refused, _) = answered(200).await;
        assert_eq!((passed >= 200, refused), (true, 0));
        redis.kill();
        // Those under way when it died are counted apart.
        answered(20).await;
        let (passed, refused, slowest) = answered(200).await;
        let without = if on_error == "allow" { (passed, 0) } else { (0, refused) };
        assert_eq!((passed, refused), without);
        assert!(slowest < 2_000, "{slowest}");
        redis.run().await;
        let returned = Instant::now();
        let errors = async || {
            let before = proxy.metric(ERRORS);
            sleep(Duration::from_millis(300)).await;
            proxy.metric(ERRORS) - before
        };
        while errors().await > 0 {
            assert!(returned.elapsed() < Duration::from_secs(20), "it has not returned");
        }
        println!("{on_error}: counts again {:?} after its return", returned.elapsed());
        answered(20).await;
        let (passed, refused, _) = answered(100).await;
        assert_eq!((passed >= 100, refused), (true, 0));
        // It accepts connections and says nothing. `a_silent_store_is_waited_for_no_longer_than_its_timeout` says for how long
        // it is waited for.
        redis.stall();
        answered(60).await;
        let (passed, refused, slowest) = answered(200).await;
        let without = if on_error == "allow" { (passed, 0) } else { (0, refused) };
        assert_eq!((passed, refused), without);
        assert!(slowest < 2_000, "{slowest}");
        redis.wake();
        let returned = Instant::now();
        while errors().await > 0 {
            assert!(returned.elapsed() < Duration::from_secs(20), "it has not returned");
        }
        load.end().await;
        let refused = proxy.ask(GET).await;
        assert_eq!(refused.status, 200);
    }
}

/// A server that is stopped: five decisions wait for its `timeout` and no longer, and then nobody waits.
#[tokio::test]
async fn a_silent_store_is_waited_for_no_longer_than_its_timeout() {
    const TIMEOUT: Duration = Duration::from_millis(50);
    let (redis, upstream) = (Redis::start().await, good().await);
    let file = shared(&redis, &upstream, "timeout: PT0.05S, onError: deny", &limit("rate: 1000"));
    let proxy = Proxy::start(&file);
    let mut client = proxy.connect().await;
    while client.ask(GET).await.status != 200 {
        // On a busy machine the first ones may come before the connection.
    }
    redis.stall();
    let errors = proxy.metric(ERRORS);
    let mut waited = Vec::new();
    for _ in 0..20 {
        let begun = Instant::now();
        let refused = client.ask(GET).await;
        waited.push(begun.elapsed());
        assert_eq!(refused.json()["code"], "Provider.Middleware.RateLimit.StoreUnavailable");
    }
    redis.wake();
    println!("waited: {waited:?}");
    assert_eq!(proxy.metric(ERRORS) - errors, 20);
    // Nothing else in the way of these takes as long as twenty timeouts, and none of them is a second.
    assert!(waited[..5].iter().all(|waited| *waited >= TIMEOUT), "{waited:?}");
    assert!(waited.iter().all(|waited| *waited < TIMEOUT * 20), "{waited:?}");
    // The others fail at once: at the most a few find a connection that was opened before it was stopped.
    let at_once = waited[5..].iter().filter(|waited| **waited < TIMEOUT).count();
    assert!(at_once >= 8, "{waited:?}");
}

#[tokio::test]
async fn without_its_store_a_limit_that_denies_says_why() {
    let upstream = good().await;
    let mut redis = Redis::start().await;
    redis.kill();
    let keys = "timeout: PT2S, onError: deny";
    let proxy = Proxy::start(&shared(&redis, &upstream, keys, &limit("rate: 5")));
    let refused = proxy.ask(GET).await;
    assert_eq!(refused.status, 503);
    assert_eq!(refused.json()["code"], "Provider.Middleware.RateLimit.StoreUnavailable");
    assert_eq!(refused.field("retry-after"), ["1"]);
    assert_eq!(proxy.metric(ERRORS), 1);
    let stack = idempotent("", "store: fleet");
    let proxy = Proxy::start(&shared(&redis, &upstream, keys, &stack));
    let refused = proxy.ask(&post("k", "/pay", "ten")).await;
    assert_eq!(refused.status, 503);
    assert_eq!(refused.json()["code"], "Provider.Middleware.Idempotency.StoreUnavailable");
    assert!(upstream.requests().is_empty());
}

/// One key, two proxies at once, each with a Retry around: one request at the upstream, and two equal answers.
#[tokio::test]
async fn one_key_at_two_proxies_is_one_request() {
    let parts = vec![
        b"HTTP/1.1 201 Created\r\n".to_vec(),
        b"content-length: 4\r\nx-a: b\r\n\r\ndone".to_vec(),
    ];
    let slow = Act::Slowly(Duration::from_millis(200), parts);
    let upstream = Upstream::run(move |_, _| slow.clone()).await;
    let redis = Redis::start().await;
    let stack = idempotent(WAITING, "store: fleet");
    let file = shared(&redis, &upstream, "timeout: PT5S", &stack);
    let proxies = [Proxy::start(&file), Proxy::start(&file)];
    for round in 0..5 {
        let request = post(&format!("key-{round}"), "/pay", "ten");
        let (one, other) = tokio::join!(proxies[0].ask(&request), proxies[1].ask(&request));
        assert_eq!((one.status, &*one.body), (201, "done"));
        assert_eq!((other.status, &*other.body), (201, "done"));
        assert_eq!((one.field("x-a"), other.field("x-a")), (vec!["b"], vec!["b"]));
        let replayed = [&one, &other].map(|one| one.field("idempotency-replayed").len());
        assert_eq!(replayed[0] + replayed[1], 1);
        assert_eq!(upstream.requests().len(), round + 1);
    }
    let refused = proxies[1].ask(&post("key-0", "/pay", "eleven")).await;
    assert_eq!(refused.status, 422);
}

/// A client that leaves gives its key back to the whole fleet.
#[tokio::test]
async fn an_interrupted_first_frees_its_key_for_all() {
    let upstream = Upstream::play([Act::Hang, always(200, "", "yes")]).await;
    let redis = Redis::start().await;
    let stack = idempotent(WAITING, "store: fleet");
    let file = shared(&redis, &upstream, "timeout: PT5S", &stack);
    let proxies = [Proxy::start(&file), Proxy::start(&file)];
    let mut leaving = proxies[0].connect().await;
    leaving.send(post("k", "/pay", "ten")).await;
    upstream.until(|seen| seen.len() == 1).await;
    drop(leaving);
    assert_eq!(proxies[1].ask(&post("k", "/pay", "ten")).await.body, "yes");
    assert_eq!(upstream.requests().len(), 2);
}

/// A turn that a waiting client has left is given back in the store, too.
#[tokio::test]
async fn who_leaves_while_it_waits_gives_its_turn_back() {
    let (redis, upstream) = (Redis::start().await, good().await);
    let stack = limit("rate: 1, per: PT1H, burst: 1, wait: PT90M");
    let proxy = Proxy::start(&shared(&redis, &upstream, "timeout: PT5S", &stack));
    assert_eq!(proxy.ask(GET).await.status, 200);
    let waiting = r#"mwl_requests_in_flight{route="r"}"#;
    for _ in 0..3 {
        let mut leaving = proxy.connect().await;
        leaving.send(GET).await;
        // Long enough for it to be refused, if its turn were not there.
        sleep(Duration::from_millis(100)).await;
        assert_eq!(proxy.metric(waiting), 1);
        drop(leaving);
        proxy.until(|proxy| proxy.metric(waiting) == 0).await;
    }
    assert_eq!(upstream.requests().len(), 1);
}

/// A user of an ACL with a password from a file, and none without it.
#[tokio::test]
async fn a_store_asks_for_a_password() {
    let upstream = good().await;
    let acl = ["--user", "mwl", "on", ">s3cret", "~mwl:*", "+@all", "--requirepass", "other"];
    let redis = Redis::with(&acl).await;
    let ask = async |keys: &str| {
        let keys = format!("timeout: PT5S, onError: deny, {keys}");
        let file = shared(&redis, &upstream, &keys, &limit("rate: 5"));
        let file =
            format!("listeners: [{{ address: '127.0.0.1:0' }}]\nlimits: {{ workers: 1 }}\n{file}");
        let files = [("password", "s3cret\n".to_owned())].into();
        Proxy::whole(&file, &files).ask(GET).await.status
    };
    assert_eq!(ask("user: mwl, passwordFile: password").await, 200);
    assert_eq!(ask("user: mwl, password: s3cret").await, 200);
    assert_eq!(ask("password: other").await, 200);
    assert_eq!(ask("user: mwl, password: wrong").await, 503);
    assert_eq!(ask("prefix: mwl").await, 503);
}

/// Over TLS the server must be the one that is meant, and may want to know who asks.
#[tokio::test]
async fn a_store_is_asked_over_tls() {
    let (upstream, directory) = (good().await, Directory::new());
    let (authority, clients) = (Authority::new(), Authority::new());
    let served = authority.issue(&["store.test"]);
    let (_redis, address) = Redis::with_tls(&served, &clients, &directory).await;
    let own = clients.issue(&["proxy.test"]);
    let files = Files::from([
        ("ca.pem", authority.pem()),
        ("other.pem", clients.pem()),
        ("own.pem", own.chain()),
        ("own.key", own.key()),
    ]);
    let shown = "certificate: own.pem, key: own.key";
    for (tls, statuses) in [
        (format!("ca: ca.pem, serverName: store.test, {shown}"), [200, 429]),
        (format!("ca: ca.pem, serverName: another.test, {shown}"), [503, 503]),
        (format!("ca: other.pem, serverName: store.test, {shown}"), [503, 503]),
        ("ca: ca.pem, serverName: store.test".to_owned(), [503, 503]),
    ] {
        let limit = limit("rate: 1, per: PT1H");
        let file = format!(
            "listeners: [{{ address: '127.0.0.1:0' }}]
limits: {{ workers: 1 }}
stores: {{ fleet: {{ redis: 'rediss://{address}', timeout: PT5S, onError: deny, tls: {{ {tls} }} }} }}
{}",
            one_route(&upstream, &limit)
        );
        let proxy = Proxy::whole(&file, &files);
        for status in statuses {
            assert_eq!(proxy.ask(GET).await.status, status, "{tls}");
        }
        let errors = if statuses[0] == 503 { 2 } else { 0 };
        assert_eq!(proxy.metric(ERRORS), errors, "{tls}");
    }
}
