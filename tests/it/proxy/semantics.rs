use std::time::Duration;

use tokio::io::AsyncReadExt;

use super::one_route;
use crate::support::h2;
use crate::support::proxy::{Proxy, within};
use crate::support::upstream::{Act, Upstream, always, answer};

const GET: &str = "GET /a HTTP/1.1\r\nHost: t\r\n\r\n";
const HEAD: &str = "HEAD /a HTTP/1.1\r\nHost: t\r\n\r\n";

fn retry(codes: &str) -> String {
    format!(
        "    middleware:
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry: {{ with: {{ policies: [ {{ match: {{ codes: [{codes}] }}, attempts: 3 }} ] }} }}
"
    )
}

fn bytes(text: &str) -> Act {
    Act::Answer(text.as_bytes().to_vec())
}

#[tokio::test]
async fn a_head_is_answered_by_a_head_alone_whatever_came_before_it() {
    let upstream = Upstream::play([
        bytes("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n"),
        bytes("HTTP/1.1 503 Busy\r\nContent-Length: 9\r\nRetry-After: 0\r\n\r\n"),
        bytes("HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n"),
        bytes("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
        Act::Answer(answer(200, "", "next")),
    ])
    .await;
    let proxy = Proxy::start(&one_route(&upstream, &retry("Provider.Call.Http.Unavailable")));
    let mut client = proxy.connect().await;
    for length in [&["1234"][..], &["1234"], &[]] {
        let response = client.ask(HEAD).await;
        assert_eq!((response.status, response.field("content-length")), (200, length.to_vec()));
    }
    assert_eq!(client.ask(GET).await.body, "next", "no byte of a body was there to be misread");
    assert_eq!(upstream.accepted(), 1);
    assert_eq!(upstream.requests().len(), 5);
}

/// A server may send the length that a 200 would have (RFC 9110 section 8.6).
#[tokio::test]
async fn a_304_keeps_its_fields_its_length_included_and_has_no_body() {
    let upstream = Upstream::run(|_, request| {
        if request.line().contains("/next") {
            return always(200, "", "next");
        }
        let length = if request.line().contains("/none") { "" } else { "Content-Length: 100\r\n" };
        Act::Answer(
            format!("HTTP/1.1 304 Not Modified\r\n{length}ETag: \"x\"\r\n\r\n").into_bytes(),
        )
    })
    .await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = proxy.connect().await;
    for method in ["GET", "HEAD", "PUT"] {
        let response = client.ask(&format!("{method} /a HTTP/1.1\r\nHost: t\r\n\r\n")).await;
        assert!(response.head.starts_with("HTTP/1.1 304 Not Modified\r\n"), "{}", response.head);
        assert_eq!(response.field("content-length"), ["100"], "{method}");
        assert_eq!(response.field("etag"), ["\"x\""]);
        let response = client.ask("GET /next HTTP/1.1\r\nHost: t\r\n\r\n").await;
        assert_eq!(response.body, "next", "no byte of a body was there to be misread");
    }
    let response = client.ask("GET /none HTTP/1.1\r\nHost: t\r\n\r\n").await;
    assert!(response.status == 304 && response.field("content-length").is_empty());
    let old = proxy.ask("GET /a HTTP/1.0\r\nHost: t\r\n\r\n").await;
    assert!(old.head.starts_with("HTTP/1.1 304 Not Modified\r\n"), "the proxy's own version");
    assert_eq!(
        (old.field("content-length"), old.field("connection")),
        (vec!["100"], vec!["close"])
    );
    assert_eq!(upstream.accepted(), 1);
}

#[tokio::test]
async fn a_304_keeps_its_length_for_a_client_of_http_2_and_a_204_has_none_for_any() {
    let told = |status: &str| bytes(&format!("HTTP/1.1 {status} X\r\nContent-Length: 100\r\n\r\n"));
    let upstream = Upstream::play([told("304"), told("204"), told("204")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = h2::Client::connect(proxy.address).await;
    let not_modified = client.ask(h2::request("GET", "/a", &[]), b"").await;
    assert_eq!((not_modified.status, not_modified.field("content-length")), (304, vec!["100"]));
    let none = client.ask(h2::request("GET", "/a", &[]), b"").await;
    assert!(none.status == 204 && none.field("content-length").is_empty());
    let none = proxy.ask(GET).await;
    assert!(none.status == 204 && none.field("content-length").is_empty());
}

/// A 304 to an upload whose client waits for a 100: the added line is in the final response's head, not in the 100's.
#[tokio::test]
async fn a_304_keeps_its_length_behind_a_100() {
    let answer = b"HTTP/1.1 304 X\r\nContent-Length: 100\r\n\r\n".to_vec();
    let upstream = Upstream::play([Act::Ask(answer)]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = proxy.connect().await;
    client
        .send(
            "PUT /a HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
        )
        .await;
    let response = client.response(false).await;
    assert_eq!((response.status, response.field("content-length")), (304, vec!["100"]));
}

#[tokio::test]
async fn a_204_s_stray_body_costs_the_connection_that_it_came_on() {
    let stray = bytes("HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello");
    let upstream = Upstream::play([stray, always(200, "", "next")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = proxy.connect().await;
    let response = client.ask(GET).await;
    assert_eq!(response.status, 204);
    assert!(response.field("content-length").is_empty());
    assert_eq!(client.ask(GET).await.body, "next");
    assert_eq!(upstream.accepted(), 2);
}

#[tokio::test]
async fn a_whole_uri_without_a_path_asks_for_the_root() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    for (target, line) in [
        ("GET http://a.test", "GET / HTTP/1.1"),
        ("GET http://a.test?q", "GET /?q HTTP/1.1"),
        ("GET https://a.test:8/x", "GET /x HTTP/1.1"),
        ("OPTIONS *", "OPTIONS * HTTP/1.1"),
    ] {
        let response = proxy.ask(&format!("{target} HTTP/1.1\r\nHost: b.test\r\n\r\n")).await;
        assert_eq!(response.status, 200, "{target}");
        assert_eq!(upstream.requests().last().unwrap().line(), line);
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_framed_is_no_failed_connection() {
    let two = bytes("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 7\r\n\r\nhelloXX");
    let upstream = Upstream::play([two]).await;
    let policy = retry("Provider.Call.Http.ConnectionFailed, Provider.Call.Http.NonSuccessStatus");
    let proxy = Proxy::start(&one_route(&upstream, &policy));
    let response = proxy.ask(GET).await;
    assert_eq!(response.status, 502);
    assert_eq!(response.json()["code"], "Provider.Call.Http.ProtocolError");
    assert_eq!(response.field("proxy-status"), ["mwl-proxy; error=http_protocol_error"]);
    upstream.ended(1).await;
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn a_client_that_still_listens_is_told_what_is_wrong_with_its_chunks() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    for broken in [
        "5\r\nhello\r\n\r\n\r\n",
        "5\r\nhelloX\r\n",
        "x\r\n",
        "-1\r\n\r\n",
        "5 5\r\nhello\r\n",
        "fffffffffffffffff\r\n",
    ] {
        let mut client = proxy.connect().await;
        client
            .send(format!(
                "POST /a HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n{broken}"
            ))
            .await;
        let response = client.response(false).await;
        assert_eq!(response.status, 400, "{broken:?}");
        assert_eq!(response.json()["code"], "Provider.Call.Http.RequestAborted");
        assert!(client.rest().await.is_empty(), "{broken:?}");
    }
    proxy.until_idle().await;
    assert!(upstream.requests().iter().all(|request| !request.whole));
}

/// Like the library, and like most proxies: nobody can tell a client that shuts down its sending side from one
/// that has left.
#[tokio::test]
async fn a_client_that_shuts_its_sending_side_down_counts_as_gone() {
    let upstream = Upstream::play([Act::Hang]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = proxy.connect().await;
    client.send(GET).await;
    upstream.until(|seen| seen.len() == 1).await;
    tokio::io::AsyncWriteExt::shutdown(&mut client.stream).await.unwrap();
    assert!(client.rest().await.is_empty());
    upstream.ended(1).await;
    // First its connection closes, and then it is counted.
    proxy.until(|proxy| proxy.metric(r#"mwl_requests_total{route="r",status="499"}"#) > 0).await;
}

#[tokio::test]
async fn fields_of_one_hop_stay_on_it() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let request = "GET / HTTP/1.1\r\nHost: t\r\nKeep-Alive: x\r\nProxy-Connection: keep-alive\r\nTE: trailers, gzip\r\nUpgrade: foo\r\nProxy-Authorization: Basic eA==\r\n\r\n";
    assert_eq!(proxy.ask(request).await.status, 200);
    let seen = &upstream.requests()[0];
    for name in ["keep-alive", "proxy-connection", "te", "upgrade", "connection"] {
        assert!(seen.field(name).is_empty(), "{name}");
    }
    assert_eq!(seen.field("proxy-authorization"), ["Basic eA=="]);
}

#[tokio::test]
async fn a_hop_is_counted_where_hops_are_counted() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    for (method, sent, wanted) in [
        ("OPTIONS", "5", "4"),
        ("TRACE", "1", "0"),
        ("GET", "0", "0"),
        ("OPTIONS", "many", "many"),
        ("OPTIONS", "99999999999999999999", "99999999999999999999"),
    ] {
        let request = format!("{method} / HTTP/1.1\r\nHost: t\r\nMax-Forwards: {sent}\r\n\r\n");
        assert_eq!(proxy.ask(&request).await.status, 200, "{method} {sent}");
        assert_eq!(upstream.requests().last().unwrap().field("max-forwards"), [wanted]);
    }
    let last = proxy.ask("TRACE / HTTP/1.1\r\nHost: t\r\nMax-Forwards: 0\r\n\r\n").await;
    assert_eq!(last.status, 405);
    let all = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, TRACE";
    assert_eq!(last.field("allow"), [all]);
    assert_eq!(upstream.requests().len(), 5);
    let config = one_route(&upstream, "").replace("pathPrefix: /", "methods: [GET, PUT], path: /a");
    let proxy = Proxy::start(&config);
    for (request, allow) in [
        ("OPTIONS /a HTTP/1.1\r\nHost: t\r\nMax-Forwards: 0\r\n\r\n", "GET, PUT"),
        ("CONNECT t:1 HTTP/1.1\r\nHost: t:1\r\n\r\n", "GET, PUT"),
    ] {
        let response = proxy.ask(request).await;
        // No route takes OPTIONS there.
        let status = if request.starts_with("OPTIONS") { 404 } else { 405 };
        assert_eq!(response.status, status);
        if status == 405 {
            assert_eq!(response.field("allow"), [allow]);
        }
    }
}

/// RFC 9110 §5.3: one server reads the first of two fields, another one the last.
#[tokio::test]
async fn a_field_that_must_be_there_once_is_not_repeated() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut http2 = h2::Client::connect(proxy.address).await;
    for name in [
        "authorization",
        "proxy-authorization",
        "content-type",
        "content-range",
        "origin",
        "idempotency-key",
        "max-forwards",
    ] {
        let request = format!("GET /a HTTP/1.1\r\nHost: t\r\n{name}: 1\r\n{name}: 1\r\n\r\n");
        let response = proxy.ask(&request).await;
        let detail = format!("the request has more than one `{name}` field, and may have one");
        assert_eq!((response.status, &response.json()["detail"]), (400, &detail.as_str().into()));
        let request = h2::request("GET", "/a", &[(name, "1"), (name, "2")]);
        assert_eq!(http2.ask(request, b"").await.status, 400, "{name}");
    }
    assert_eq!(upstream.requests().len(), 0);
    let lists = "Accept: a\r\nAccept: b\r\nCookie: a\r\nCookie: b\r\nX-A: 1\r\nX-A: 2\r\nX-Request-ID: one\r\nX-Request-ID: two\r\n";
    let request = format!("GET /a HTTP/1.1\r\nHost: t\r\n{lists}\r\n");
    assert_eq!(proxy.ask(&request).await.status, 200);
    let seen = &upstream.requests()[0];
    assert_eq!((seen.field("accept"), seen.field("x-a")), (vec!["a", "b"], vec!["1", "2"]));
    // Two ids are removed, and the request gets a new one.
    assert_eq!(seen.field("x-request-id").len(), 1);
    assert_eq!(seen.field("x-request-id")[0].len(), 36);
}

/// RFC 9110 §15.
#[tokio::test]
async fn a_status_beyond_599_is_not_valid() {
    for status in [600, 799, 999] {
        let answer = format!("HTTP/1.1 {status} Odd\r\nContent-Length: 2\r\n\r\nhi");
        let upstream = Upstream::play([Act::Answer(answer.into_bytes())]).await;
        let proxy = Proxy::start(&one_route(&upstream, "    exposeFailures: true\n"));
        let response = proxy.ask("GET /a HTTP/1.1\r\nHost: t\r\n\r\n").await;
        assert_eq!(
            (response.status, &response.json()["code"]),
            (502, &"Provider.Call.Http.ProtocolError".into())
        );
        let wanted = format!(
            "r: attempt 1: upstream u answered {status}, which is no status (retryable: GET is idempotent)"
        );
        assert_eq!(response.json()["failures"][0]["message"], wanted);
        let http2 = h2::Upstream::play([h2::Act::Answer(h2::reply(status, ""))]).await;
        let proxy = Proxy::start(&super::h2_upstreams::one_route(http2.address, "", ""));
        assert_eq!(proxy.ask("GET /a HTTP/1.1\r\nHost: t\r\n\r\n").await.status, 502, "{status}");
        let flow = format!(
            "routes: [ {{ name: r, match: {{ pathPrefix: / }}, flow: {{ entrypoint: a, steps: {{ a: {{ action: Return, value: {{ status: {status} }} }} }} }} }} ]\n"
        );
        let response = Proxy::start(&flow).ask("GET /a HTTP/1.1\r\nHost: t\r\n\r\n").await;
        assert_eq!((response.status, &response.json()["code"]), (500, &"Proxy.BadResponse".into()));
    }
    let upstream = Upstream::play([always(599, "", "last")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    assert_eq!(proxy.ask("GET /a HTTP/1.1\r\nHost: t\r\n\r\n").await.status, 599);
}

const OLD: &str = "GET /a HTTP/1.0\r\nHost: t\r\n\r\n";

/// What an HTTP/1.0 client reads until the connection ends, and how it ends.
async fn old_client(proxy: &Proxy) -> (String, std::io::Result<()>) {
    let mut client = proxy.connect().await;
    client.send(OLD).await;
    let mut read = Vec::new();
    let ended = within(client.stream.read_to_end(&mut read)).await.map(drop);
    (String::from_utf8(read).unwrap(), ended)
}

/// An older client knows the end of an answer without a length only by the connection's end: one that breaks
/// off must not look complete.
#[tokio::test]
async fn an_answer_that_breaks_off_is_no_end_to_an_older_client() {
    let chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
    let whole = bytes(&format!("{chunks}0\r\n\r\n"));
    let cut = Act::AnswerAndClose(chunks.as_bytes().to_vec());
    let upstream = Upstream::play([whole.clone(), cut, whole]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    for broken in [false, true, false] {
        let (read, ended) = old_client(&proxy).await;
        assert!(
            read.starts_with("HTTP/1.1 200 OK\r\n") && read.ends_with("\r\n\r\nhello"),
            "{read}"
        );
        let reset = ended.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset);
        assert_eq!(reset, broken);
    }
}

#[tokio::test]
async fn an_answer_that_a_stop_cuts_is_no_end_to_an_older_client() {
    let begun = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
    let upstream = Upstream::play([Act::AnswerAndHang(begun.to_vec())]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = proxy.connect().await;
    client.send(OLD).await;
    let mut read = Vec::new();
    while !read.ends_with(b"hello") {
        assert!(within(client.stream.read_buf(&mut read)).await.unwrap() > 0);
    }
    proxy.server.drain(Duration::from_millis(10)).await;
    proxy.server.end().await;
    let error = within(client.stream.read_to_end(&mut read)).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}
