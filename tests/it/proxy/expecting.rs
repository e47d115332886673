use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::time::Instant;

use super::h2_upstreams::one_route as h2_route;
use super::{one_route, refusing};
use crate::support::h2;
use crate::support::proxy::{Client, Proxy, within};
use crate::support::upstream::{Act, Upstream, always, answer};

const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";

fn head(length: usize) -> String {
    format!(
        "PUT /a HTTP/1.1\r\nHost: t\r\nExpect: 100-Continue\r\nContent-Length: {length}\r\n\r\n"
    )
}

/// Reads exactly a 100.
async fn asked_for(client: &mut Client) {
    let mut read = [0; CONTINUE.len()];
    within(client.stream.read_exact(&mut read)).await.unwrap();
    assert_eq!(read, CONTINUE.as_bytes());
}

#[tokio::test]
async fn a_body_is_asked_for_when_the_upstream_asks() {
    let upstream = Upstream::play([Act::Ask(answer(200, "", "got it"))]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = proxy.connect().await;
    let begun = Instant::now();
    for _ in 0..2 {
        client.send(head(5)).await;
        asked_for(&mut client).await;
        client.send("hello").await;
        let got = client.response(false).await;
        assert_eq!((got.status, got.body.as_str()), (200, "got it"));
    }
    assert!(begun.elapsed() < Duration::from_secs(1), "nothing was waited for but the 100");
    for seen in upstream.requests() {
        assert_eq!(seen.field("expect"), ["100-Continue"]);
        assert_eq!((seen.body.as_slice(), seen.whole), (&b"hello"[..], true));
    }
    assert_eq!(upstream.accepted(), 1);
}

#[tokio::test]
async fn an_upstream_that_refuses_by_the_head_is_sent_no_body_and_the_client_is_not_asked() {
    let upstream = Upstream::play([Act::Early(answer(413, "", "too much"))]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = proxy.connect().await;
    client.send(head(1_000_000)).await;
    let all = String::from_utf8(client.rest().await).unwrap();
    assert!(all.starts_with("HTTP/1.1 413 "), "{all}");
    assert!(all.ends_with("too much"), "{all}");
    upstream.ended(1).await;
    assert!(upstream.requests()[0].body.is_empty());
}

#[tokio::test]
async fn an_upstream_that_never_asks_gets_the_body_after_a_second() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = proxy.connect().await;
    let begun = Instant::now();
    client.send(head(5)).await;
    asked_for(&mut client).await;
    assert!(begun.elapsed() >= Duration::from_secs(1));
    client.send("hello").await;
    assert_eq!(client.response(false).await.status, 200);
    assert_eq!(upstream.requests()[0].body, b"hello");
}

const RETRY: &str = "    middleware:
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry: { with: { policies: [ { match: { codes: [Provider.Call.Http.*] }, attempts: 3 } ] } }
";

/// A route with a Retry and two endpoints: one refuses, one answers.
async fn half_there(act: Act) -> (Upstream, Proxy) {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let refusing = closed.local_addr().unwrap();
    drop(closed);
    let upstream = Upstream::play([act]).await;
    let config = one_route(&upstream, RETRY).replace(
        "endpoints: [",
        &format!("balance: roundRobin, endpoints: ['http://{refusing}', "),
    );
    let proxy = Proxy::start(&config);
    (upstream, proxy)
}

/// Far more than is kept for replay. It arrives complete, because nothing of it was read for the attempt that
/// got no connection.
#[tokio::test]
async fn nothing_of_a_body_is_read_before_there_is_a_connection() {
    let (upstream, proxy) = half_there(always(200, "", "whole")).await;
    let size = 5 * 1024 * 1024;
    let mut client = proxy.connect().await;
    client.send(format!("POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: {size}\r\n\r\n")).await;
    client.send(vec![b'b'; size]).await;
    assert_eq!(client.response(false).await.body, "whole");
    assert_eq!(upstream.requests()[0].body.len(), size);
    let failed =
        r#"mwl_attempts_total{code="Provider.Call.Http.ConnectionFailed",route="r",upstream="u"}"#;
    assert_eq!(proxy.metric(failed), 1);
}

#[tokio::test]
async fn the_client_is_asked_once_and_only_when_there_is_a_connection() {
    let (upstream, proxy) = half_there(Act::Ask(answer(200, "", "whole"))).await;
    let size = 5 * 1024 * 1024;
    let mut client = proxy.connect().await;
    client.send(head(size)).await;
    asked_for(&mut client).await;
    assert_eq!(upstream.requests().len(), 1);
    client.send(vec![b'b'; size]).await;
    let mut all = [0; 15];
    within(client.stream.read_exact(&mut all)).await.unwrap();
    assert_eq!(&all, b"HTTP/1.1 200 OK");
    assert_eq!(upstream.requests()[0].body.len(), size);
}

#[tokio::test]
async fn a_refusal_after_the_body_was_asked_for_is_retried_with_the_body() {
    let upstream =
        Upstream::play([Act::Ask(answer(503, "", "")), Act::Ask(answer(200, "", "whole"))]).await;
    let proxy = Proxy::start(&one_route(&upstream, RETRY));
    let mut client = proxy.connect().await;
    client.send(head(5)).await;
    asked_for(&mut client).await;
    client.send("hello").await;
    assert_eq!(client.response(false).await.body, "whole");
    let seen = upstream.requests();
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|seen| seen.body == b"hello"));
}

#[tokio::test]
async fn nobody_is_asked_for_a_body_that_is_not_there_or_that_the_route_has_read() {
    let upstream = Upstream::play([always(200, "", "x")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = proxy.connect().await;
    client.send("GET /a HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\n\r\n").await;
    let mut read = [0; 15];
    within(client.stream.read_exact(&mut read)).await.unwrap();
    assert_eq!(&read, b"HTTP/1.1 200 OK");
    let old = "POST /a HTTP/1.0\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi";
    let said = {
        let mut client = proxy.connect().await;
        client.send(old).await;
        String::from_utf8(client.rest().await).unwrap()
    };
    assert!(said.starts_with("HTTP/1.0 200 ") || said.starts_with("HTTP/1.1 200 "), "{said}");
    let reads = Proxy::start(&one_route(&upstream, "    output: \"{{ frame.input.body }}\"\n"));
    let mut client = reads.connect().await;
    client.send(head(2)).await;
    asked_for(&mut client).await;
    client.send("hi").await;
    assert_eq!(client.response(false).await.body, r#""hi""#);
    assert!(upstream.requests().iter().all(|seen| seen.field("expect").is_empty()));
}

#[tokio::test]
async fn a_client_is_asked_when_an_upstream_of_http_2_asks() {
    let upstream = h2::Upstream::play([h2::Act::Ask(h2::reply(200, "got it"))]).await;
    let proxy = Proxy::start(&h2_route(upstream.address, "", ""));
    let mut client = proxy.connect().await;
    let begun = Instant::now();
    client.send(head(5)).await;
    asked_for(&mut client).await;
    assert!(begun.elapsed() < Duration::from_secs(1), "nothing was waited for but the 100");
    let seen = upstream.until(|seen| !seen.is_empty()).await;
    assert_eq!(seen[0].field("expect"), ["100-Continue"]);
    assert!(seen[0].body.is_empty() && !seen[0].whole);
    client.send("hello").await;
    assert_eq!(client.response(false).await.body, "got it");
    let seen = upstream.requests();
    assert_eq!((seen[0].body.as_slice(), seen[0].whole), (&b"hello"[..], true));
}

#[tokio::test]
async fn an_upstream_of_http_2_that_refuses_by_the_head_is_sent_no_body() {
    let upstream = h2::Upstream::play([h2::Act::Early(h2::reply(413, "too much"))]).await;
    let proxy = Proxy::start(&h2_route(upstream.address, "", ""));
    let mut client = proxy.connect().await;
    client.send(head(1_000_000)).await;
    let all = String::from_utf8(client.rest().await).unwrap();
    assert!(all.starts_with("HTTP/1.1 413 ") && all.contains("too much"), "{all}");
    let seen = upstream.requests();
    assert!(seen[0].body.is_empty() && !seen[0].whole);
}

#[tokio::test]
async fn a_client_of_http_2_that_waits_to_be_asked_is_when_the_upstream_asks() {
    let upstream = Upstream::play([Act::Ask(answer(200, "", "got it"))]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = h2::Client::connect(proxy.address).await;
    let begun = Instant::now();
    let waits = h2::request("PUT", "/a", &[("expect", "100-continue"), ("content-length", "5")]);
    let (mut response, mut stream) = client.begin(waits, false).await;
    assert_eq!(h2::interim(&mut response).await.unwrap().status(), 100);
    assert!(begun.elapsed() < Duration::from_secs(1), "nothing was waited for but the 100");
    assert_eq!(upstream.requests()[0].field("expect"), ["100-continue"]);
    stream.send_data(bytes::Bytes::from_static(b"hello"), true).unwrap();
    assert!(h2::interim(&mut response).await.is_none(), "it is asked once");
    let answer = within(h2::whole(response)).await.unwrap();
    assert_eq!((answer.status, answer.text()), (200, "got it"));
    assert_eq!(upstream.requests()[0].body, b"hello");
}

#[tokio::test]
async fn a_client_of_http_2_is_not_asked_for_what_is_refused_by_the_head() {
    let upstream = Upstream::play([Act::Early(answer(413, "", "too much"))]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = h2::Client::connect(proxy.address).await;
    let waits = h2::request("PUT", "/a", &[("expect", "100-continue"), ("content-length", "5")]);
    let (mut response, _stream) = client.begin(waits, false).await;
    assert!(h2::interim(&mut response).await.is_none());
    let answer = within(h2::whole(response)).await.unwrap();
    assert_eq!((answer.status, answer.text()), (413, "too much"));
    upstream.ended(1).await;
    assert!(upstream.requests()[0].body.is_empty());
}

#[tokio::test]
async fn a_refusal_asks_for_no_body_and_says_that_the_connection_closes() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    for (proxy, status) in refusing(&upstream) {
        let mut client = proxy.connect().await;
        client.send(head(5)).await;
        let response = client.response(false).await;
        assert_eq!((response.status, response.field("connection")), (status, vec!["close"]));
        assert!(client.rest().await.is_empty());
    }
}

/// What is here need not be asked for, nor waited with.
#[tokio::test]
async fn only_the_attempt_that_reads_a_body_first_waits_to_be_asked_for_it() {
    let upstream = Upstream::play([
        always(503, "", ""),
        always(503, "", ""),
        always(503, "", ""),
        always(200, "", "got it"),
    ])
    .await;
    let route = "    middleware:\n      - provider: mwl:provider.middleware/mwl/retry/v1\n        onEntry: { with: { policies: [{ match: { codes: [Provider.Call.Http.Unavailable] }, attempts: 9 }] } }\n";
    let proxy = Proxy::start(&one_route(&upstream, route));
    let mut client = proxy.connect().await;
    let begun = Instant::now();
    client.send(head(5)).await;
    asked_for(&mut client).await;
    client.send("hello").await;
    assert_eq!(client.response(false).await.body, "got it");
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}: one wait of a second");
    let seen = upstream.requests();
    let expecting: Vec<_> = seen.iter().map(|seen| seen.field("expect").len()).collect();
    assert_eq!(expecting, [1, 0, 0, 0]);
    assert!(seen.iter().all(|seen| seen.whole && seen.body == b"hello"));
}
