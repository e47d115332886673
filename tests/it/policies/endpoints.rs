use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::policy;
use crate::support::h2;
use crate::support::upstream::{Act, Upstream, always};

const GET: &str = "GET /a HTTP/1.1\r\nHost: t\r\n\r\n";
const POST: &str = "POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\nhi";

#[tokio::test]
async fn envoy_never_asks_the_host_that_failed_again() {
    let one = Upstream::play([always(500, "", "one")]).await;
    let two = Upstream::play([Act::Hang]).await;
    let three = Upstream::play([always(200, "", "three")]).await;
    let addresses = [one.address, two.address, three.address];
    let proxy = policy("envoy-retry-other-host.yaml", &addresses, 20);
    for asked in 1..=20 {
        let answer = proxy.ask(GET).await;
        assert_eq!((answer.status, answer.body.as_str()), (200, "three"));
        assert_eq!(three.requests().len(), asked);
        assert!(one.requests().len() <= asked && two.requests().len() <= asked);
    }
    // A failure counts as load for a while, so that most requests begin at the host that answers.
    assert!(one.requests().len() + two.requests().len() >= 1, "nobody asked the hosts that fail");
}

#[tokio::test]
async fn envoys_retries_have_a_budget() {
    let down = Upstream::play([always(503, "", "down")]).await;
    let proxy = policy("envoy-retry-other-host.yaml", &[down.address; 3], 1);
    // A POST that may have been done is not done again.
    assert_eq!(proxy.ask(POST).await.status, 503);
    assert_eq!(down.requests().len(), 1);
    let mut client = proxy.connect().await;
    for _ in 0..60 {
        assert_eq!(client.ask(GET).await.body, "down");
    }
    // Ten a second, for the ten seconds that are counted.
    assert_eq!(down.requests().len(), 1 + 60 + 100);
    let spent = r#"mwl_retries_suppressed_total{reason="retryBudgetSpent",route="app"}"#;
    assert!(proxy.metric(spent) >= 60 - 100 / 3 - 1);
}

#[tokio::test]
async fn istio_takes_an_endpoint_out_after_five_5xx() {
    let answering =
        |status| async move { h2::Upstream::play([h2::Act::Answer(h2::reply(status, "x"))]).await };
    let (conflict, well) = (answering(409).await, answering(200).await);
    let addresses = [conflict.address, well.address, well.address];
    let proxy = policy("istio-service-and-rule.yaml", &addresses, 1);
    for _ in 0..20 {
        assert_eq!(proxy.ask(POST).await.status, 200, "a conflict goes to another endpoint");
    }
    let sick = [answering(500).await, answering(500).await, answering(500).await];
    let addresses: Vec<_> = sick.iter().map(|upstream| upstream.address).collect();
    let proxy = policy("istio-service-and-rule.yaml", &addresses, 1);
    let is_out = |endpoint: &SocketAddr| {
        proxy.metric(&format!(
            r#"mwl_endpoint_ejections_total{{cause="status",endpoint="{endpoint}",upstream="orders"}}"#
        )) == 1
    };
    let mut client = proxy.connect().await;
    let mut asked = 0;
    while !addresses.iter().any(is_out) {
        assert_eq!(client.ask(GET).await.status, 500);
        asked += 1;
    }
    // A tenth of three is none, but one always may be out.
    assert!((5..=13).contains(&asked), "{asked}");
    for _ in 0..20 {
        assert_eq!(client.ask(GET).await.status, 500);
    }
    let out: Vec<_> = sick.iter().filter(|upstream| is_out(&upstream.address)).collect();
    assert_eq!((out.len(), out[0].requests().len()), (1, 5));
}

#[tokio::test]
async fn nginx_goes_to_the_next_server_and_leaves_one_that_fails_out() {
    let down = Upstream::play([always(502, "", "down")]).await;
    let good = Upstream::play([always(200, "", "good")]).await;
    let proxy = policy("nginx-next-server.yaml", &[down.address, good.address], 100);
    let mut client = proxy.connect().await;
    for _ in 0..2 {
        while down.requests().len() % 2 == 0 {
            assert_eq!(client.ask(GET).await.body, "good");
        }
        while down.requests().len() % 2 == 1 {
            assert_eq!(client.ask(GET).await.body, "good");
        }
        let out =
            format!(r#"mwl_endpoint_up{{endpoint="{}",upstream="application"}}"#, down.address);
        assert_eq!(proxy.metric(&out), 0);
        // After ten seconds, here a tenth of one, it is asked again.
        proxy.until(|proxy| proxy.metric(&out) == 1).await;
    }
}

#[tokio::test]
async fn haproxy_goes_to_the_other_server() {
    let failing = Upstream::play([always(500, "", "failing")]).await;
    let good = Upstream::play([always(200, "", "good")]).await;
    let proxy = policy("haproxy-another-server.yaml", &[failing.address, good.address], 1);
    let mut client = proxy.connect().await;
    for _ in 0..10 {
        assert_eq!(client.ask(GET).await.body, "good");
    }
    let mut bodies: Vec<String> = Vec::new();
    for _ in 0..2 {
        bodies.push(client.ask(POST).await.body);
    }
    bodies.sort();
    assert_eq!(bodies, ["failing", "good"], "a POST is sent once");
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxy = policy("haproxy-another-server.yaml", &[closed, good.address], 1);
    for _ in 0..4 {
        assert_eq!(proxy.ask(POST).await.body, "good", "a refused connection is no attempt of it");
    }
}

/// Answers everything, or resets requests and fails checks.
async fn site(well: &Arc<AtomicBool>) -> Upstream {
    let well = Arc::clone(well);
    Upstream::run(move |_, seen| {
        match (well.load(Ordering::SeqCst), seen.line().contains("/healthz")) {
            (true, _) => always(200, "", "x"),
            (false, true) => always(500, "", ""),
            (false, false) => Act::Reset,
        }
    })
    .await
}

#[tokio::test]
async fn caddy_asks_the_first_that_is_well() {
    let states: Vec<_> = (0..3).map(|_| Arc::new(AtomicBool::new(true))).collect();
    let mut sites = Vec::new();
    for well in &states {
        sites.push(site(well).await);
    }
    let addresses: Vec<_> = sites.iter().map(|site| site.address).collect();
    let proxy = policy("caddy-first-that-is-well.yaml", &addresses, 20);
    let asked = |at: usize| {
        let seen = sites[at].requests();
        seen.iter().filter(|seen| !seen.line().contains("/healthz")).count()
    };
    let mut client = proxy.connect().await;
    let mut order = Vec::new();
    for asks in [10, 10] {
        let before: Vec<_> = (0..3).map(asked).collect();
        for _ in 0..asks {
            assert_eq!(client.ask(GET).await.body, "x");
        }
        let got: Vec<_> = (0..3).filter(|at| asked(*at) - before[*at] == asks).collect();
        let [first] = got[..] else { panic!("{order:?}: {before:?}, then {got:?}") };
        order.push(first);
        // The first request that meets it is tried again elsewhere.
        states[first].store(false, Ordering::SeqCst);
        assert_eq!(client.ask(GET).await.body, "x");
    }
    assert_ne!(order[0], order[1]);
    // Well again, and known by a check.
    states[order[0]].store(true, Ordering::SeqCst);
    let up = |at: usize| {
        format!(r#"mwl_endpoint_up{{endpoint="{}",upstream="sites"}}"#, sites[at].address)
    };
    proxy.until(|proxy| proxy.metric(&up(order[0])) == 1).await;
}
