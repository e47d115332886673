use std::time::Duration;

use super::one_route;
use crate::support::piped::Piped;
use crate::support::proxy::Proxy;
use crate::support::stack::retry;
use crate::support::upstream::{Act, Upstream, always};

const GET: &str = "GET /a HTTP/1.1\r\nHost: t\r\n\r\n";
const RETRY: &str = concat!("    middleware:\n", retry!("match: { codes: ['*'] }, attempts: 3"));
const SPENT: &str = r#"mwl_retries_suppressed_total{reason="retryBudgetSpent",route="r"}"#;

/// Half of the requests fail, in no order.
fn flaky(number: usize) -> Act {
    let mut mixed = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^= mixed >> 29;
    mixed = mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let fails = mixed >> 63 == 0;
    if fails { always(503, "", "down") } else { always(200, "", "good") }
}

/// How many requests arrived for each of the clients'.
fn arrived(upstream: &Upstream, sent: u32) -> f64 {
    f64::from(u32::try_from(upstream.requests().len()).unwrap()) / f64::from(sent)
}

/// How much of the clients' load arrived at the upstream, and how many retries were not made, of clients that send a hundred
/// requests a second for half a minute of virtual time.
async fn storm(budget: &str) -> (f64, u64) {
    const REQUESTS: u32 = 3000;
    let (upstream, idle) = Upstream::piped((0..12_000).map(flaky));
    let mut piped = Piped::with_upstream(budget, ("", RETRY), 1 << 16, idle);
    for _ in 0..REQUESTS {
        piped.client.ask(GET).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    (arrived(&upstream, REQUESTS), piped.metric(SPENT))
}

#[tokio::test(start_paused = true)]
async fn a_budget_keeps_a_storm_of_retries_from_an_upstream_that_fails() {
    let (unbounded, spent) = storm("").await;
    assert!((1.70..1.80).contains(&unbounded), "{unbounded}");
    assert_eq!(spent, 0);
    let (bounded, spent) = storm(", retryBudget: {}").await;
    assert!((1.15..=1.2).contains(&bounded), "{bounded}");
    assert!(spent > 0);
    let stated = format!("{unbounded:.2} of the load without a budget, {bounded:.2} with one");
    insta::assert_snapshot!(stated, @"1.75 of the load without a budget, 1.20 with one");
}

/// The same on sockets, over two workers.
#[tokio::test]
async fn all_workers_share_a_budget() {
    const REQUESTS: u32 = 1000;
    let mut all = Vec::new();
    for budget in ["", ", retryBudget: { minPerSecond: 0, window: PT1H }"] {
        let upstream = Upstream::run(|number, _| flaky(number)).await;
        let route = one_route(&upstream, RETRY).replacen("'] }", &format!("']{budget} }}"), 1);
        let listener = "listeners: [{ address: '127.0.0.1:0' }]\nlimits: { workers: 2 }\n";
        let proxy =
            Proxy::whole(&format!("{listener}{route}"), &crate::support::proxy::Files::new());
        let mut clients = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let mut client = proxy.connect().await;
            clients.spawn(async move {
                for _ in 0..REQUESTS / 8 {
                    client.ask(GET).await;
                }
            });
        }
        while let Some(done) = clients.join_next().await {
            done.unwrap();
        }
        all.push(arrived(&upstream, REQUESTS));
    }
    let [unbounded, bounded] = all[..] else { unreachable!() };
    assert!((1.65..1.85).contains(&unbounded), "{unbounded}");
    assert!((1.15..=1.2).contains(&bounded), "{bounded}");
}

#[tokio::test]
async fn a_retry_beyond_the_budget_gives_up_with_the_upstreams_own_response() {
    let upstream =
        Upstream::run(|number, _| always(503, "x-a: b\r\n", &format!("no {number}"))).await;
    let budget = "retryBudget: { share: 0, minPerSecond: 0 }";
    let slow = RETRY.replace("attempts: 3", "attempts: 3, backoff: { initial: PT1H }");
    let route = one_route(&upstream, &slow).replacen("'] }", &format!("'], {budget} }}"), 1);
    let proxy = Proxy::start(&route);
    let answer = proxy.ask(GET).await;
    assert_eq!((answer.status, answer.body.as_str()), (503, "no 0"));
    assert_eq!(answer.field("x-a"), ["b"]);
    assert_eq!(proxy.metric(SPENT), 1);
}

#[tokio::test]
async fn what_is_spent_stays_spent_over_reloads() {
    let upstream = Upstream::play([always(503, "", "down")]).await;
    let route = one_route(&upstream, RETRY);
    let budget = "'], retryBudget: { share: 1, minPerSecond: 0, window: PT1H } }";
    let route = route.replacen("'] }", budget, 1);
    let proxy = Proxy::start(&route);
    proxy.ask(GET).await;
    // One request allows one re-run.
    assert_eq!(upstream.requests().len(), 2);
    for _ in 0..3 {
        proxy.replace(&route.replace("name: r\n", "name: s\n")).await;
        proxy.replace(&route).await;
    }
    proxy.ask(GET).await;
    assert_eq!(upstream.requests().len(), 4);
}

/// A Flow's own Retry asks for the upstream whose failure it is.
#[tokio::test]
async fn the_budget_is_that_of_the_upstream_that_has_failed() {
    let good = Upstream::play([always(200, "", "{}")]).await;
    let bad = Upstream::play([always(503, "", "down")]).await;
    let call =
        "action: Call, call: { provider: 'mwl:provider.call/mwl-proxy/http/v1', with: { upstream:";
    let none = "retryBudget: { share: 0, minPerSecond: 0 }";
    for (of_good, of_bad, attempts) in [(none, "maxIdle: 1", 3), ("maxIdle: 1", none, 1)] {
        let before = bad.requests().len();
        let proxy = Proxy::start(&format!(
            "upstreams:
  good: {{ endpoints: ['http://{}'], {of_good} }}
  bad: {{ endpoints: ['http://{}'], {of_bad} }}
routes:
  - name: r
    flow:
      entrypoint: one
      middleware:
{}      steps:
        one: {{ {call} good }} }}, next: two }}
        two: {{ {call} bad }} }}, next: end }}
        end: {{ action: Return }}
",
            good.address,
            bad.address,
            retry!("match: { codes: ['*'] }, attempts: 3")
        ));
        let answer = proxy.ask(GET).await;
        assert_eq!((answer.status, answer.body.as_str()), (503, "down"));
        assert_eq!(bad.requests().len() - before, attempts);
    }
}
