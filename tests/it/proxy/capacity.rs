use std::time::Duration;

use tokio::time::Instant;

use super::one_route;
use crate::support::h2;
use crate::support::proxy::{Client, Proxy};
use crate::support::stack::timeout;
use crate::support::upstream::{Act, Upstream, always};

const GET: &str = "GET /a HTTP/1.1\r\nHost: t\r\n\r\n";
const WAITING: &str = r#"mwl_upstream_requests_waiting{upstream="u"}"#;

/// A configuration with one route to `upstream`, whose further keys are `keys`.
fn bounded(upstream: &Upstream, keys: &str, route: &str) -> String {
    one_route(upstream, route).replace("'] }", &format!("'], {keys} }}"))
}

/// Hangs for `/hang`, and answers everything else.
async fn hanging() -> Upstream {
    Upstream::run(
        |_, seen| {
            if seen.line().contains("/hang") { Act::Hang } else { always(200, "", "x") }
        },
    )
    .await
}

async fn hang(proxy: &Proxy, upstream: &Upstream, count: usize) -> Vec<Client> {
    let mut held = Vec::new();
    for _ in 0..count {
        let mut client = proxy.connect().await;
        client.send("GET /hang HTTP/1.1\r\nHost: t\r\n\r\n").await;
        held.push(client);
    }
    upstream.until(|seen| seen.len() == count).await;
    held
}

#[tokio::test]
async fn one_request_too_many_waits_and_then_says_so() {
    let upstream = hanging().await;
    let proxy = Proxy::start(&bounded(&upstream, "maxRequests: 2, maxWait: PT0.1S", ""));
    let held = hang(&proxy, &upstream, 2).await;
    let begun = Instant::now();
    let refused = proxy.ask(GET).await;
    assert!(begun.elapsed() >= Duration::from_millis(100));
    assert_eq!(refused.status, 502);
    assert_eq!(refused.json()["code"], "Provider.Call.Http.ConnectionFailed");
    let said = refused.field("proxy-status").join("");
    assert!(said.contains("error=connection_limit_reached"), "{said}");
    assert_eq!((proxy.metric(WAITING), upstream.requests().len()), (0, 2));
    drop(held);
    proxy.until(|proxy| proxy.metric(r#"mwl_requests_in_flight{route="r"}"#) == 0).await;
    assert_eq!(proxy.ask(GET).await.status, 200);
}

#[tokio::test]
async fn who_waits_gets_the_place_of_one_that_ends() {
    let upstream = hanging().await;
    let proxy = Proxy::start(&bounded(&upstream, "maxRequests: 1, maxWait: PT60S", ""));
    let held = hang(&proxy, &upstream, 1).await;
    let mut waiting = proxy.connect().await;
    waiting.send(GET).await;
    let mut leaving = proxy.connect().await;
    leaving.send(GET).await;
    proxy.until(|proxy| proxy.metric(WAITING) == 2).await;
    drop(leaving);
    proxy.until(|proxy| proxy.metric(WAITING) == 1).await;
    drop(held);
    assert_eq!(waiting.response(false).await.status, 200);
    assert_eq!((proxy.metric(WAITING), upstream.requests().len()), (0, 2));
    // The answer's end gives the place back, and so does a connection that is used again.
    assert_eq!(waiting.ask(GET).await.status, 200);
}

#[tokio::test]
async fn the_failure_s_phase_is_capacity() {
    let upstream = hanging().await;
    let catch = "    catch: [ { match: { codes: [Provider.Call.Http.ConnectionFailed] }, next: told } ]
    steps: { told: { action: Return, value: { status: 503, body: \"{{ failure.details.phase }}\" } } }
";
    let proxy = Proxy::start(&bounded(&upstream, "maxRequests: 1, maxWait: PT0S", catch));
    let _held = hang(&proxy, &upstream, 1).await;
    let told = proxy.ask(GET).await;
    assert_eq!((told.status, told.body.as_str()), (503, "capacity"));
}

#[tokio::test]
async fn streams_of_one_connection_have_the_same_bound() {
    let upstream = h2::Upstream::run(100, |_, _| h2::Act::Answer(h2::reply(200, "x"))).await;
    let file = format!(
        "upstreams: {{ u: {{ endpoints: ['http://{}'], protocol: http2, maxRequests: 1, maxWait: PT10S }} }}\nroutes: [ {{ name: r, match: {{ pathPrefix: / }}, upstream: u }} ]\n",
        upstream.address
    );
    let proxy = Proxy::start(&file);
    let asked = (0..8).map(|_| proxy.ask(GET));
    let answers = futures_util::future::join_all(asked).await;
    assert!(answers.iter().all(|answer| answer.status == 200));
    assert_eq!((upstream.accepted(), proxy.metric(WAITING)), (1, 0));
}

#[tokio::test]
async fn a_gather_whose_length_is_computed_runs_64_at_once() {
    let gather = |more: &str| {
        format!(
            "    flow:
      entrypoint: all
      steps:
        all: {{ action: Gather, over: \"{{{{ lists.range(100) }}}}\", {more}call: {{ provider: mwl:provider.call/mwl-proxy/http/v1, with: {{ upstream: u, method: GET, path: /hang }} }}, next: end }}
        end: {{ action: Return }}
"
        )
    };
    for (more, wanted) in [("", 64), ("concurrency: null, ", 100), ("concurrency: 7, ", 7)] {
        let upstream = hanging().await;
        let file = one_route(&upstream, &gather(more)).replace("    upstream: u\n", "");
        let proxy = Proxy::start(&file);
        let mut client = proxy.connect().await;
        client.send(GET).await;
        upstream.until(|seen| seen.len() == wanted).await;
        // A client behind the others is answered after whatever was begun before it.
        tokio::task::yield_now().await;
        assert_eq!(upstream.requests().len(), wanted, "{more}");
    }
}

/// A bound that fires while an attempt waits for a place: no endpoint was asked, so none is at fault, and no breaker opens.
#[tokio::test]
async fn who_is_interrupted_while_it_waits_blames_no_endpoint() {
    let (one, two) = (hanging().await, hanging().await);
    let file = format!(
        "upstreams:
  u:
    endpoints: ['http://{}', 'http://{}']
    balance: roundRobin
    maxRequests: 1
    maxWait: PT60S
    ejection: {{ consecutiveFailures: 1 }}
routes:
  - {{ name: hang, match: {{ path: /hang }}, upstream: u }}
  - name: r
    upstream: u
    middleware:
      - {{ provider: 'mwl:provider.middleware/mwl-proxy/circuit-breaker/v1', onEntry: {{ with: {{ consecutive: 1 }} }} }}
{}",
        one.address,
        two.address,
        timeout!("PT0.02S")
    );
    let proxy = Proxy::start(&file);
    let _held = hang(&proxy, &one, 1).await;
    for _ in 0..4 {
        assert_eq!(proxy.ask(GET).await.status, 504);
    }
    for endpoint in [one.address, two.address] {
        let series = format!(r#"{{endpoint="{endpoint}",outcome="failure",upstream="u"}}"#);
        assert_eq!(proxy.metric(&format!("mwl_endpoint_attempts_total{series}")), 0);
        let up = format!(r#"mwl_endpoint_up{{endpoint="{endpoint}",upstream="u"}}"#);
        assert_eq!(proxy.metric(&up), 1);
    }
}
