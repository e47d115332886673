//! The examples of `config/` for middlewares that know what happened before, over sockets.

use super::*;
use crate::support::proxy::{Files, Response};
use crate::support::upstream::{Act, always};

/// A file of `config/` whose upstreams are `upstream`, on a port that the system chooses.
fn example(name: &str, upstream: &Upstream) -> Proxy {
    let path = format!("{}/config/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let there = upstream.address.to_string();
    let text = text.replace("127.0.0.1:8080", "127.0.0.1:0");
    let text = text.replace("127.0.0.1:3000", &there).replace("127.0.0.1:3001", &there);
    Proxy::whole(&text, &Files::new())
}

async fn get(proxy: &Proxy, path: &str) -> Response {
    proxy.ask(&format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n")).await
}

#[tokio::test]
async fn an_open_breaker_answers_503_until_it_may_be_asked_again() {
    let upstream = Upstream::run(|_, _| always(503, "", "no")).await;
    let proxy = example("circuit-breaker.yaml", &upstream);
    // The first request makes three attempts, the second two: that is five in a row.
    assert_eq!(get(&proxy, "/billing/a").await.body, "no");
    let second = get(&proxy, "/billing/a").await;
    assert_eq!((second.status, second.json()["code"].clone()), (503, OPEN.into()));
    assert_eq!(second.field("retry-after"), ["10"]);
    assert_eq!(second.field("proxy-status"), ["mwl-proxy; error=destination_unavailable"]);
    // The other route of its name has something else to say.
    let balance = get(&proxy, "/balance").await;
    assert_eq!((balance.status, balance.json()), (200, serde_json::json!({ "balance": null })));
    assert_eq!(upstream.requests().len(), 5);
    for entry in [r#"entry="billing/1",route="billing""#, r#"entry="balance/0",route="balance""#] {
        assert_eq!(proxy.metric(&format!("mwl_circuit_breaker_state{{{entry}}}")), 2, "{entry}");
    }
    let refusals = format!(
        r#"mwl_middleware_refusals_total{{code="{OPEN}",entry="balance/0",route="balance"}}"#
    );
    assert_eq!(proxy.metric(&refusals), 1);
}

const OPEN: &str = "Provider.Middleware.CircuitBreaker.Open";

#[tokio::test]
async fn a_breaker_outlives_a_reload_that_leaves_it_as_it_is() {
    let upstream = Upstream::run(|_, _| always(503, "", "no")).await;
    let with = |consecutive| {
        one_route(
            &upstream,
            &format!(
                "    middleware:
      - provider: mwl:provider.middleware/mwl-proxy/circuit-breaker/v1
        onEntry: {{ with: {{ consecutive: {consecutive} }} }}
"
            ),
        )
    };
    let proxy = Proxy::start(&with(2));
    for _ in 0..2 {
        get(&proxy, "/a").await;
    }
    let state = r#"mwl_circuit_breaker_state{entry="r/0",route="r"}"#;
    assert_eq!((get(&proxy, "/a").await.status, proxy.metric(state)), (503, 2));
    for _ in 0..100 {
        proxy.replace(&with(2)).await;
    }
    assert_eq!(
        (get(&proxy, "/a").await.json()["code"].clone(), proxy.metric(state)),
        (OPEN.into(), 2)
    );
    assert_eq!(upstream.requests().len(), 2);
    // With other settings it begins anew.
    proxy.replace(&with(3)).await;
    assert_eq!((get(&proxy, "/a").await.body, proxy.metric(state)), ("no".to_owned(), 0));
}

#[tokio::test]
async fn the_example_of_apisix_answers_502() {
    let upstream = Upstream::run(|_, _| always(500, "", "no")).await;
    let proxy = example("circuit-breaker.yaml", &upstream);
    let mut statuses = Vec::new();
    for _ in 0..5 {
        statuses.push(get(&proxy, "/apisix").await.status);
    }
    assert_eq!(statuses, [500, 500, 500, 502, 502]);
    assert_eq!(upstream.requests().len(), 3);
    // Each of ten requests to the other route fails; then it is open.
    for _ in 0..10 {
        assert_eq!(get(&proxy, "/prices").await.body, "no");
    }
    assert_eq!(get(&proxy, "/prices").await.json()["code"], OPEN);
}

#[tokio::test]
async fn more_at_once_than_a_limit_allows_wait_or_are_refused() {
    let upstream = Upstream::run(|_, _| Act::Hang).await;
    let proxy = example("concurrency-limit.yaml", &upstream);
    let ask = "GET /reports/a HTTP/1.1\r\nHost: t\r\n\r\n";
    let mut held = Vec::new();
    for number in 0..6 {
        let mut client = proxy.connect().await;
        client.send(ask).await;
        held.push(client);
        upstream.until(|arrived| arrived.len() == (number + 1).min(2)).await;
    }
    // Two go on; four come to wait.
    let in_flight = r#"mwl_requests_in_flight{route="reports"}"#;
    proxy.until(|proxy| proxy.metric(in_flight) == 6).await;
    let full = get(&proxy, "/reports/a").await;
    assert_eq!(full.status, 503);
    assert_eq!(full.json()["code"], "Provider.Middleware.ConcurrencyLimit.Full");
    assert_eq!(upstream.requests().len(), 2);
    // A client that leaves gives its place to the first who waits.
    held.remove(0);
    upstream.until(|arrived| arrived.len() == 3).await;
    // One client has one search at once.
    let mut client = proxy.connect().await;
    client.send("GET /search HTTP/1.1\r\nHost: t\r\n\r\n").await;
    upstream.until(|arrived| arrived.len() == 4).await;
    assert_eq!(get(&proxy, "/search").await.status, 503);
}
