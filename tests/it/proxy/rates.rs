//! `rate-limit` on sockets: what a client gets, and what stands around it makes of it.

use super::one_route;
use crate::support::h2::{Client, request};
use crate::support::proxy::Proxy;
use crate::support::upstream::{Upstream, always};

const GET: &str = "GET /a HTTP/1.1\r\nHost: t\r\n\r\n";
const LIMITED: &str = "Provider.Middleware.RateLimit.Limited";

/// A route whose stack is a limit with these arguments, behind `outer` entries.
fn limited(outer: &str, with: &str) -> String {
    format!(
        "    middleware:
{outer}      - provider: mwl:provider.middleware/mwl-proxy/rate-limit/v1
        onEntry: {{ with: {{ {with} }} }}
"
    )
}

#[tokio::test]
async fn beyond_the_limit_is_a_429_that_says_when_to_come_again() {
    let upstream = Upstream::run(|_, _| always(200, "", "good")).await;
    let route = limited("", "rate: 2, per: PT1H");
    let proxy = Proxy::start(&one_route(&upstream, &route));
    assert_eq!([proxy.ask(GET).await.status, proxy.ask(GET).await.status], [200, 200]);
    let refused = proxy.ask(GET).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.json()["code"], LIMITED);
    assert_eq!(refused.field("ratelimit-policy"), [r#""default";q=2;w=3600"#]);
    let after: u64 = refused.field("retry-after")[0].parse().unwrap();
    assert!((1700..=1800).contains(&after), "{after}");
    assert_eq!(refused.field("ratelimit"), [format!(r#""default";r=0;t={after}"#)]);
    assert_eq!(upstream.requests().len(), 2);
    let series =
        format!(r#"mwl_middleware_refusals_total{{code="{LIMITED}",entry="r/0",route="r"}}"#);
    assert_eq!(proxy.metric(&series), 1);
    // Over HTTP/2 it is the same limit.
    let mut client = Client::connect(proxy.address).await;
    let response = client.ask(request("GET", "/a", &[]), b"").await;
    assert_eq!(response.status, 429);
}

#[tokio::test]
async fn each_key_has_its_limit() {
    let upstream = Upstream::run(|_, _| always(200, "", "good")).await;
    let key = r#"rate: 1, per: PT1H, key: "{{ frame.input.headers['x-user'] }}""#;
    let proxy = Proxy::start(&one_route(&upstream, &limited("", key)));
    let ask = async |user: &str| {
        proxy.ask(&format!("GET /a HTTP/1.1\r\nHost: t\r\nX-User: {user}\r\n\r\n")).await.status
    };
    assert_eq!(
        [ask("a").await, ask("b").await, ask("a").await, ask("b").await],
        [200, 200, 429, 429]
    );
}

#[tokio::test]
async fn who_waits_for_a_turn_gets_one_and_a_retry_around_asks_again() {
    let upstream = Upstream::run(|_, _| always(200, "", "good")).await;
    let route = limited("", "rate: 20, per: PT1S, burst: 1, wait: PT10S");
    let proxy = Proxy::start(&one_route(&upstream, &route));
    let begun = tokio::time::Instant::now();
    for _ in 0..5 {
        assert_eq!(proxy.ask(GET).await.status, 200);
    }
    // Four turns, 50 ms apart.
    assert!(begun.elapsed().as_millis() >= 200, "{:?}", begun.elapsed());
    let retry = format!(
        "      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry: {{ with: {{ policies: [ {{ match: {{ codes: [{LIMITED}] }}, attempts: 3, backoff: {{ initial: PT0.1S }} }} ] }} }}
"
    );
    let proxy = Proxy::start(&one_route(&upstream, &limited(&retry, "rate: 20, burst: 1")));
    assert_eq!([proxy.ask(GET).await.status, proxy.ask(GET).await.status], [200, 200]);
}

/// A client that leaves while it waits gives its turn back, and the limit lets the next one have it.
#[tokio::test]
async fn who_leaves_while_it_waits_takes_nothing() {
    let upstream = Upstream::run(|_, _| always(200, "", "good")).await;
    let route = limited("", "rate: 1, per: PT1H, burst: 1, wait: PT90M");
    let proxy = Proxy::start(&one_route(&upstream, &route));
    assert_eq!(proxy.ask(GET).await.status, 200);
    for _ in 0..5 {
        let mut leaving = proxy.connect().await;
        leaving.send(GET).await;
        let waiting = r#"mwl_requests_in_flight{route="r"}"#;
        // Only one turn comes within ninety minutes: one that was not given back would refuse the next.
        proxy.until(|proxy| proxy.metric(waiting) == 1).await;
        drop(leaving);
        proxy.until(|proxy| proxy.metric(waiting) == 0).await;
    }
    let refused = r#"mwl_middleware_refusals_total{code="Provider.Middleware.RateLimit.Limited",entry="r/0",route="r"}"#;
    assert_eq!(proxy.metric(refused), 0);
    assert_eq!(upstream.requests().len(), 1);
}
