//! Two endpoints, one of which fails every request in some way: with a second attempt, no client sees that.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::task::JoinSet;

use super::size;
use crate::support::proxy::Proxy;
use crate::support::upstream::{Act, Upstream, always};

const CLIENTS: usize = 16;

const RETRY: &str = "      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry: { with: { policies: [ { match: { codes: ['*'] }, attempts: 2 } ] } }
";

const TIMEOUT: &str = "      - provider: mwl:provider.middleware/mwl/timeout/v1
        onEntry: { with: { duration: PT1S } }
";

/// Sends all requests to a proxy before an endpoint that is good and one that does `bad`. Returns how many failed, and how
/// many attempts came to the bad one.
async fn failures(bad: Act, upstream: &str, bound: &str) -> (usize, usize) {
    let requests = size(400, 10_000);
    let good = Upstream::run(|_, _| always(200, "", "good")).await;
    let bad = Upstream::play([bad]).await;
    let proxy = Arc::new(Proxy::start(&format!(
        "upstreams: {{ u: {{ endpoints: ['http://{}', 'http://{}']{upstream} }} }}
routes:
  - name: r
    upstream: u
    middleware:
{RETRY}{bound}",
        bad.address, good.address,
    )));
    let left = Arc::new(AtomicUsize::new(requests));
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (proxy, left) = (Arc::clone(&proxy), Arc::clone(&left));
        clients.spawn(async move {
            let mut client = proxy.connect().await;
            let mut failed = 0;
            let take = |left: usize| left.checked_sub(1);
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
                let answer = client.ask("GET /a HTTP/1.1\r\nHost: t\r\n\r\n").await;
                failed += usize::from(answer.status != 200 || answer.body != "good");
            }
            failed
        });
    }
    let failed: usize = clients.join_all().await.into_iter().sum();
    let of_good = format!(
        r#"mwl_endpoint_attempts_total{{endpoint="{}",outcome="success",upstream="u"}}"#,
        good.address
    );
    assert_eq!(proxy.metric(&of_good), requests as u64);
    let seen = bad.requests().len();
    (failed, seen)
}

fn answers_503() -> Act {
    always(503, "", "bad")
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_notices_an_endpoint_that_always_answers_503() {
    for balance in ["", ", balance: roundRobin", ", balance: random"] {
        let (failed, seen) = failures(answers_503(), balance, "").await;
        assert!(failed == 0 && seen > 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_notices_an_endpoint_that_always_closes() {
    for act in [Act::Close, Act::Reset] {
        let (failed, seen) = failures(act, "", "").await;
        assert!(failed == 0 && seen > 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_notices_an_endpoint_that_always_hangs() {
    let (failed, seen) = failures(Act::Hang, ", responseTimeout: PT1S", "").await;
    assert!(failed == 0 && seen > 0);
    // A bound around each attempt does the same.
    let (failed, seen) = failures(Act::Hang, "", TIMEOUT).await;
    assert!(failed == 0 && seen > 0);
}

/// An endpoint that fails at once has nothing in flight. It does not look idle for that.
#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_fails_fast_does_not_attract_requests() {
    let (failed, seen) = failures(answers_503(), "", "").await;
    let requests = size(400, 10_000);
    assert!(failed == 0 && seen < requests / 2, "{seen} of {requests} attempts");
}
