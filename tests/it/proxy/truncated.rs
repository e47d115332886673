use ::h2::Reason;
use tokio::io::AsyncReadExt;

use super::{h2_upstreams, one_route};
use crate::support::h2::{self, Client, Reply, reply, request};
use crate::support::proxy::{Proxy, within};
use crate::support::upstream::{Act, Upstream, always};

const GET: &str = "GET /a HTTP/1.1\r\nHost: t\r\n\r\n";
const BROKEN: &str = r#"mwl_requests_total{route="r",status="598"}"#;
const LEFT: &str = r#"mwl_requests_total{route="r",status="499"}"#;
const WHOLE: &str = r#"mwl_requests_total{route="r",status="200"}"#;
const TRUNCATED: &str = r#"mwl_responses_truncated_total{route="r",upstream="u"}"#;

/// The counters of answers: broken off, by their clients' leaving, whole, and those of the upstream.
fn counted(proxy: &Proxy) -> [u64; 4] {
    [BROKEN, LEFT, WHOLE, TRUNCATED].map(|series| proxy.metric(series))
}

/// Asks once with each protocol. Both clients see that the answer is not whole.
async fn asked_by_both(proxy: &Proxy) {
    let response = proxy.ask(GET).await;
    assert_eq!((response.status, response.whole), (200, false));
    let mut client = Client::connect(proxy.address).await;
    let error = client.try_ask(request("GET", "/a", &[]), b"").await.unwrap_err();
    assert!(error.is_reset() && error.is_remote(), "{error}");
}

#[tokio::test]
async fn an_answer_that_an_upstream_of_http_1_breaks_off_is_its_failure() {
    let length = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789".to_vec();
    let chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n".to_vec();
    // Large enough to go from socket to socket.
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 4000000\r\n\r\n".to_vec();
    let large = [head, vec![b'x'; 2_000_000]].concat();
    for broken in [length, chunks, large] {
        let upstream = Upstream::play([Act::AnswerAndClose(broken)]).await;
        let proxy = Proxy::start(&one_route(&upstream, ""));
        asked_by_both(&proxy).await;
        proxy.until_empty().await;
        assert_eq!(counted(&proxy), [2, 0, 0, 2]);
        // The head was accepted: the attempt is what that said.
        let success = r#"mwl_attempts_total{code="success",route="r",upstream="u"}"#;
        assert_eq!(proxy.metric(success), 2);
    }
}

#[tokio::test]
async fn an_answer_that_an_upstream_of_http_2_breaks_off_is_its_failure() {
    let broken = Reply { reset: Some(Reason::INTERNAL_ERROR), ..reply(200, "half") };
    let upstream = h2::Upstream::play([h2::Act::Answer(broken)]).await;
    let proxy = Proxy::start(&h2_upstreams::one_route(upstream.address, "", ""));
    asked_by_both(&proxy).await;
    proxy.until_empty().await;
    assert_eq!(counted(&proxy), [2, 0, 0, 2]);
}

#[tokio::test]
async fn an_answer_that_stands_still_is_the_upstream_s_failure() {
    let part = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789".to_vec();
    let upstream = Upstream::play([Act::AnswerAndHang(part)]).await;
    let config = one_route(&upstream, "").replace("'] }", "'], idleTimeout: PT0.1S }");
    let proxy = Proxy::start(&config);
    assert!(!proxy.ask(GET).await.whole);
    proxy.until_empty().await;
    assert_eq!(counted(&proxy), [1, 0, 0, 1]);
}

/// The client's doing, in whatever protocol: its request breaks off, and an upstream that has begun to answer then
/// stops.
#[tokio::test]
async fn an_answer_that_ends_with_its_client_is_no_failure_of_the_upstream() {
    let part = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789".to_vec();
    let upstream = Upstream::play([Act::AnswerAndHang(part)]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = proxy.connect().await;
    client.send(GET).await;
    within(client.stream.read_exact(&mut [0; 10])).await.unwrap();
    drop(client);
    let mut client = Client::connect(proxy.address).await;
    let (response, mut stream) = client.begin(request("GET", "/a", &[]), true).await;
    let response = response.await.unwrap();
    stream.send_reset(Reason::CANCEL);
    drop(response);
    proxy.until(|proxy| proxy.metric(LEFT) == 2).await;
    assert_eq!(counted(&proxy), [0, 2, 0, 0]);
}

/// A whole answer to the same kind of request counts as ever.
#[tokio::test]
async fn a_whole_answer_is_none_of_them() {
    let upstream = Upstream::play([always(200, "", "good")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    assert!(proxy.ask(GET).await.whole);
    proxy.until_empty().await;
    assert_eq!(counted(&proxy), [0, 0, 1, 0]);
}
