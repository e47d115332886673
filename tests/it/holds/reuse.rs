//! Reuse of connections to upstreams, and the moment at which a timeout ends.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use super::{one_route, retrying};
use crate::support::peer::{self, Peer, Protocol, STORED};
use crate::support::piped::Piped;
use crate::support::proxy::Proxy;
use crate::support::stack::timeout;
use crate::support::upstream::{Act, Upstream, always, answer};
use crate::support::user::{Ask, Framing, Got, User, piecewise};
use crate::support::watched::PATIENCE;

const GET: &str = "GET /a HTTP/1.1\r\nHost: t\r\n\r\n";

#[tokio::test]
async fn connections_to_a_thousand_upstreams_that_nobody_calls_again_are_closed() {
    let upstream = Upstream::play([always(200, "", "x")]).await;
    let mut file = String::from("upstreams:\n");
    let mut routes = String::from("routes:\n");
    for number in 0..1000 {
        let address = upstream.address;
        writeln!(file, "  u{number}: {{ endpoints: ['http://{address}'], keepAlive: PT0.2S }}")
            .unwrap();
        let path = format!("{{ path: /{number} }}");
        writeln!(routes, "  - {{ name: r{number}, match: {path}, upstream: u{number} }}").unwrap();
    }
    let proxy = Proxy::start(&(file + &routes));
    let mut client = proxy.connect().await;
    for number in 0..1000 {
        let request = format!("GET /{number} HTTP/1.1\r\nHost: t\r\n\r\n");
        assert_eq!(client.ask(&request).await.status, 200);
    }
    assert_eq!(upstream.accepted(), 1000);
    upstream.ended(1000).await;
    let idle = |text: &str| {
        let ours = |line: &&str| line.starts_with("mwl_upstream_connections{");
        text.lines().filter(ours).all(|line| line.ends_with(" 0"))
    };
    // The other side sees a connection close before it is counted.
    let begun = tokio::time::Instant::now();
    while !idle(&proxy.metrics.render()) {
        assert!(begun.elapsed() < PATIENCE, "the gauges forgot them");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn bodies_without_a_length_leave_a_connection_of_http_2_as_it_was() {
    // Each ends with an empty frame. A peer that uses this library closes a connection after a hundred such frames.
    let peer = Peer::run(Protocol::Two, |_, _| peer::Act::Open).await;
    let proxy = Proxy::start(&one_route(&peer, Protocol::Two, &retrying(3)));
    let mut user = User::connect(proxy.address, Protocol::Two).await;
    let ask = Ask {
        method: http::Method::PUT,
        path: "/".to_owned(),
        fields: Vec::new(),
        framing: Framing::Open,
    };
    for _ in 0..250 {
        let (pieces, upload) = piecewise();
        let send = async move { pieces.send("in pieces".into()).await.unwrap() };
        let (response, ()) = tokio::join!(user.send(&ask, upload), send);
        let got = Got::read(response.unwrap()).await;
        assert_eq!((got.status, got.whole, &*got.body), (200, true, STORED.as_bytes()));
    }
    assert_eq!((peer.connections(), peer.arrivals().len()), (1, 250));
}

#[tokio::test(start_paused = true)]
async fn a_bound_ends_where_the_head_is_accepted() {
    let parts =
        vec![b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello".to_vec(), b"world".to_vec()];
    let bound = concat!("    middleware:\n", timeout!("PT1S"));
    let slowly = Act::Slowly(Duration::from_secs(2), parts);
    let (mut piped, _upstream) = Piped::before([slowly], "", bound);
    let response = piped.client.ask(GET).await;
    assert_eq!((response.status, response.whole, &*response.body), (200, true, "helloworld"));
    assert_eq!(piped.metric(r#"mwl_timeouts_total{entry="r/0",route="r"}"#), 0);
}

#[tokio::test(start_paused = true)]
async fn a_bound_for_each_attempt_holds_for_the_last_too() {
    let retry = retrying(2).replace("Provider.Call.Http.*", "'*'").replace(", retryable: true", "");
    let route = retry + timeout!("PT1S");
    let (mut piped, upstream) = Piped::before([Act::Hang], "", &route);
    let begun = tokio::time::Instant::now();
    let response = piped.client.ask(GET).await;
    assert_eq!((response.status, &response.json()["attempts"]), (504, &2.into()));
    assert_eq!(begun.elapsed().as_millis() / 100, 20);
    assert_eq!(upstream.requests().len(), 2);
    assert_eq!(piped.metric(r#"mwl_timeouts_total{entry="r/1",route="r"}"#), 2);
}

/// Below the limit for discarding, with and without a length, and above it: the next attempt uses the same
/// connection or a second one, and there is never a third.
#[tokio::test(start_paused = true)]
async fn what_an_attempt_left_unread_is_no_part_of_the_next_answer() {
    let small = "w".repeat(20_000);
    let large = "x".repeat(60_000);
    let endless = "y".repeat(200_000);
    let chunked =
        format!("HTTP/1.1 503 X\r\nTransfer-Encoding: chunked\r\n\r\nea60\r\n{large}\r\n0\r\n\r\n");
    for (old, connections) in [
        (answer(429, "x-old: 1\r\n", &small), 1),
        (answer(503, "x-old: 1\r\n", &large), 1),
        (chunked.into_bytes(), 1),
        (answer(503, "x-old: 1\r\n", &endless), 2),
    ] {
        let retry = retrying(3).replace("attempts: 3", "attempts: 3, backoff: { initial: PT0.5S }");
        let acts = [Act::Answer(old), always(200, "", "new")];
        let (mut piped, upstream) = Piped::before(acts, "", &retry);
        for _ in 0..3 {
            let response = piped.client.ask(GET).await;
            assert_eq!((response.status, &*response.body), (200, "new"));
            assert!(response.field("x-old").is_empty());
        }
        let used: BTreeSet<_> = upstream.requests().iter().map(|seen| seen.connection).collect();
        assert_eq!((used.len(), upstream.requests().len()), (connections, 4));
    }
}
