use super::one_route;
use crate::support::proxy::{Client, Proxy};
use crate::support::upstream::{Act, Upstream, always};

/// A cleanup that never ends by itself.
const FINALLY: &str = "    middleware:
      - provider: mwl:provider.middleware/mwl/finally/v1
        onAlways: { with: { call: { provider: mwl:provider.call/mwl-proxy/http/v1, input: null, with: { upstream: u, method: POST, path: /audit } } } }
";
const RUNNING: &str = r#"mwl_cleanups_in_flight{route="r"}"#;
const UNFINISHED: &str = r#"mwl_finally_total{outcome="unfinished",route="r"}"#;

async fn start(limits: &str) -> (Upstream, Proxy) {
    let upstream = Upstream::run(|_, seen| {
        let hangs = seen.line().contains("/hang") || seen.line().contains("/audit");
        if hangs && seen.field("x-good").is_empty() { Act::Hang } else { always(200, "", "x") }
    });
    let upstream = upstream.await;
    let proxy = Proxy::limited(limits, &one_route(&upstream, FINALLY));
    (upstream, proxy)
}

/// `count` clients leave, one after the other, and each leaves a cleanup behind.
async fn leave(upstream: &Upstream, proxy: &Proxy, count: usize) {
    for _ in 0..count {
        let seen = upstream.requests().len();
        let mut client: Client = proxy.connect().await;
        client.send("GET /hang HTTP/1.1\r\nHost: t\r\n\r\n").await;
        upstream.until(|all| all.len() == seen + 1).await;
        drop(client);
        upstream.until(|all| all.len() == seen + 2).await;
    }
}

#[tokio::test]
async fn what_abandoned_requests_leave_behind_takes_no_place_of_others() {
    let (upstream, proxy) = start("requests: 2, ").await;
    leave(&upstream, &proxy, 10).await;
    assert_eq!(proxy.metric(RUNNING), 10);
    assert_eq!(proxy.metric(r#"mwl_requests_in_flight{route="r"}"#), 0);
    assert_eq!(proxy.server.in_flight(), 10, "a drain waits for them");
    let mut client = proxy.connect().await;
    client.send("GET /hang HTTP/1.1\r\nHost: t\r\n\r\n").await;
    upstream.until(|seen| seen.len() == 21).await;
    assert_eq!(proxy.metric(r#"mwl_requests_refused_total{reason="overloaded"}"#), 0);
}

#[tokio::test]
async fn beyond_their_bound_the_oldest_is_cut_off() {
    let (upstream, proxy) = start("cleanups: 3, ").await;
    leave(&upstream, &proxy, 5).await;
    proxy.until(|proxy| proxy.metric(RUNNING) == 3).await;
    assert_eq!((proxy.metric(UNFINISHED), proxy.server.in_flight()), (2, 3));
}
