use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::one_route;
use crate::support::h2::{Client, request, whole};
use crate::support::proxy::{Proxy, within};
use crate::support::stack::audit;
use crate::support::upstream::{Act, Upstream, always, answer};

#[tokio::test]
async fn a_request_in_http_2_passes_to_an_http_1_upstream() {
    let upstream = Upstream::play([always(200, "x-b: 1\r\nconnection: x-b2\r\n", "hello")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = Client::connect(proxy.address).await;
    let fields = [("cookie", "a=1"), ("cookie", "b=2"), ("te", "trailers"), ("x-a", "1")];
    let answer = client.ask(request("POST", "/a%2Fb?q=%20", &fields), b"body").await;
    assert_eq!((answer.status, answer.text()), (200, "hello"));
    assert_eq!(answer.field("x-b"), ["1"]);
    assert!(answer.field("connection").is_empty());
    let seen = &upstream.requests()[0];
    assert_eq!(seen.line(), "POST /a%2Fb?q=%20 HTTP/1.1");
    assert_eq!(seen.field("host"), ["t"]);
    assert_eq!(seen.field("cookie"), ["a=1; b=2"]);
    assert_eq!(seen.field("transfer-encoding"), ["chunked"]);
    assert!(seen.field("te").is_empty());
    assert_eq!((seen.body.as_slice(), seen.whole), (&b"body"[..], true));
}

#[tokio::test]
async fn an_empty_body_and_a_head_s_stay_what_they_are() {
    let upstream = Upstream::run(|_, request| {
        let body = if request.line().starts_with("HEAD") { "" } else { "hello" };
        let length = format!("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{body}");
        Act::Answer(length.into())
    })
    .await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = Client::connect(proxy.address).await;
    for (method, body) in [("HEAD", ""), ("POST", "hello"), ("GET", "hello"), ("HEAD", "")] {
        let answer = client.ask(request(method, "/a", &[]), b"").await;
        assert_eq!((answer.text(), answer.field("content-length")), (body, vec!["5"]), "{method}");
    }
    for seen in upstream.requests() {
        assert!(seen.field("transfer-encoding").is_empty() && seen.whole, "{}", seen.head);
    }
    assert_eq!(upstream.accepted(), 1);
}

#[tokio::test]
async fn both_protocols_are_spoken_on_one_listener() {
    let upstream = Upstream::play([always(200, "", "hello")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    for _ in 0..2 {
        let mut client = Client::connect(proxy.address).await;
        assert_eq!(client.ask(request("GET", "/a", &[]), b"").await.text(), "hello");
        assert_eq!(proxy.ask("GET /a HTTP/1.1\r\nHost: t\r\n\r\n").await.body, "hello");
    }
    assert!(upstream.requests()[0].field("transfer-encoding").is_empty());
}

#[tokio::test]
async fn a_preface_in_pieces_is_known() {
    let upstream = Upstream::play([always(200, "", "hello")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = proxy.connect().await;
    for byte in b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" {
        client.send([*byte]).await;
        tokio::task::yield_now().await;
    }
    client.send([0, 0, 0, 4, 0, 0, 0, 0, 0]).await;
    let mut frame = [0; 4];
    within(client.stream.read_exact(&mut frame)).await.unwrap();
    assert_eq!(frame[3], 4, "the first frame is the server's SETTINGS");
}

#[tokio::test]
async fn a_slow_stream_holds_no_other_back() {
    let upstream = Upstream::run(|_, request| {
        if request.line().starts_with("GET /slow") { Act::Hang } else { always(200, "", "quick") }
    })
    .await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = Client::connect(proxy.address).await;
    let mut waiting = Vec::new();
    for _ in 0..50 {
        waiting.push(client.begin(request("GET", "/slow", &[]), true).await);
    }
    for _ in 0..20 {
        assert_eq!(client.ask(request("GET", "/quick", &[]), b"").await.text(), "quick");
    }
    assert_eq!(proxy.server.connections(), 1);
}

#[tokio::test]
async fn uploads_that_stand_still_take_no_window_from_one_that_moves() {
    let upstream = Upstream::run(|_, request| {
        // An early answer without an end: the rest of the upload is not read.
        if request.line().starts_with("POST /slow") {
            Act::Early(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n".to_vec())
        } else {
            always(200, "", "quick")
        }
    })
    .await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = Client::connect(proxy.address).await;
    let mut held = Vec::new();
    for _ in 0..20 {
        let (response, mut stream) = client.begin(request("POST", "/slow", &[]), false).await;
        // More than a window: the proxy must not read what the upstream leaves unread.
        stream.send_data(Bytes::from(vec![b's'; 16 << 20]), false).unwrap();
        held.push((response, stream));
    }
    let (response, mut stream) = client.begin(request("POST", "/quick", &[]), false).await;
    stream.send_data(Bytes::from(vec![b'q'; 1 << 20]), true).unwrap();
    assert_eq!(within(whole(response)).await.unwrap().text(), "quick");
}

/// A cleanup that reports the request's outcome to `/audit`.
const AUDIT: &str =
    concat!("    middleware:\n", audit!("u", "/audit", "{'type': middleware.result.type}"),);

#[tokio::test]
async fn a_stream_that_is_reset_cancels_its_execution_and_no_other() {
    let upstream = Upstream::run(|_, request| match request.line() {
        line if line.starts_with("POST /audit ") => always(200, "", ""),
        line if line.starts_with("GET /hang ") => Act::Hang,
        _ => always(200, "", "good"),
    })
    .await;
    let proxy = Proxy::start(&one_route(&upstream, AUDIT));
    let mut client = Client::connect(proxy.address).await;
    let (response, mut stream) = client.begin(request("GET", "/hang", &[]), true).await;
    upstream.until(|seen| seen.len() == 1).await;
    stream.send_reset(Reason::CANCEL);
    drop(response);
    let audited = |request: &crate::support::upstream::Arrived| {
        request.whole && request.line().starts_with("POST /audit ")
    };
    let seen = upstream.until(|seen| seen.iter().any(audited)).await;
    let audits: Vec<_> = seen.iter().filter(|request| audited(request)).collect();
    assert_eq!(audits.len(), 1);
    assert_eq!(audits[0].body, br#"{"type":"cancellation"}"#);
    upstream.ended(1).await;
    assert_eq!(client.ask(request("GET", "/good", &[]), b"").await.text(), "good");
    assert_eq!(proxy.metric(r#"mwl_requests_total{route="r",status="499"}"#), 1);
}

#[tokio::test]
async fn a_connection_that_goes_cancels_its_streams() {
    let upstream = Upstream::play([Act::Hang]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = Client::connect(proxy.address).await;
    let waiting = client.begin(request("GET", "/hang", &[]), true).await;
    upstream.until(|seen| seen.len() == 1).await;
    client.driver.abort();
    drop((waiting, client));
    upstream.ended(1).await;
    proxy.until_empty().await;
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_reset_and_never_ended() {
    let short = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789".to_vec();
    let chunk = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n".to_vec();
    let upstream = Upstream::play([Act::AnswerAndClose(short), Act::AnswerAndClose(chunk)]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = Client::connect(proxy.address).await;
    for _ in 0..2 {
        let error = client.try_ask(request("GET", "/a", &[]), b"").await.unwrap_err();
        assert!(error.is_reset() && error.is_remote(), "{error}");
    }
}

#[tokio::test]
async fn an_answer_before_the_upload_s_end_reaches_the_client() {
    let early = Act::EarlyAndClose(1024, answer(413, "", "too much"));
    let upstream = Upstream::play([early]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = Client::connect(proxy.address).await;
    for _ in 0..20 {
        let (response, mut stream) = client.begin(request("POST", "/a", &[]), false).await;
        stream.send_data(Bytes::from(vec![b'u'; 10 << 20]), true).unwrap();
        let answer = within(whole(response)).await.unwrap();
        assert_eq!((answer.status, answer.text()), (413, "too much"));
    }
}

#[tokio::test]
async fn a_head_has_the_same_bounds_as_in_http_1() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = Client::connect(proxy.address).await;
    let mut many = request("GET", "/a", &[]);
    for _ in 0..101 {
        many.headers_mut().append("x", "y".parse().unwrap());
    }
    assert_eq!(client.ask(many, b"").await.status, 431);
    let large = "x".repeat(70_000);
    let answer = client.ask(request("GET", "/a", &[("x", &large)]), b"").await;
    assert_eq!(answer.status, 431);
    assert_eq!(upstream.accepted(), 0);
    assert_eq!(client.ask(request("GET", "/a", &[]), b"").await.status, 200);
}

#[tokio::test]
async fn what_http_2_forbids_is_refused() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    for field in [("connection", "close"), ("transfer-encoding", "chunked"), ("te", "gzip")] {
        let mut client = Client::connect(proxy.address).await;
        let sent = client.sender.send_request(request("GET", "/a", &[field]), true);
        // The client's own library refuses some of them.
        let Ok((response, _)) = sent else { continue };
        let error = within(response).await.unwrap_err();
        assert_eq!(error.reason(), Some(Reason::PROTOCOL_ERROR), "{field:?}");
    }
    let mut client = Client::connect(proxy.address).await;
    let other = request("GET", "/a", &[("host", "other")]);
    let answer = client.ask(other, b"").await;
    assert_eq!(answer.status, 400);
    assert_eq!(answer.json()["detail"], "the Host field names another host than :authority");
    let twice = request("POST", "/a", &[("content-length", "5"), ("content-length", "5")]);
    let answer = client.ask(twice, b"hello").await;
    assert_eq!(answer.json()["detail"], "the Content-Length field is not one number");
    // Crumbs of a cookie are one field, however many came.
    let crumbs: Vec<_> = (0..99).map(|_| ("cookie", "a=b")).chain([("x", "y"); 98]).collect();
    assert_eq!(client.ask(request("GET", "/%00", &crumbs), b"").await.status, 400, "not 431");
    let mut connect = request("CONNECT", "", &[]);
    *connect.uri_mut() = "t:80".parse().unwrap();
    assert_eq!(client.ask(connect, b"").await.status, 405);
    assert_eq!(upstream.accepted(), 0);
}

#[tokio::test]
async fn no_more_streams_than_the_limit_are_open() {
    let upstream = Upstream::play([Act::Hang]).await;
    let proxy = Proxy::limited("streams: 3, ", &one_route(&upstream, ""));
    let mut client = Client::connect(proxy.address).await;
    // The settings are known once something was answered.
    client.ask(request("GET", "bad/%00", &[]), b"").await;
    let mut waiting = Vec::new();
    for _ in 0..3 {
        waiting.push(client.begin(request("GET", "/a", &[]), true).await);
    }
    assert_eq!(client.sender.current_max_send_streams(), 3);
}

#[tokio::test]
async fn a_drain_says_goodbye_and_lets_streams_end() {
    let pause = Duration::from_millis(100);
    let slow = vec![Vec::new(), answer(200, "", "last")];
    let upstream = Upstream::play([Act::Slowly(pause, slow)]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let idle = Client::connect(proxy.address).await;
    let mut client = Client::connect(proxy.address).await;
    let (response, _) = client.begin(request("GET", "/a", &[]), true).await;
    upstream.until(|seen| seen.len() == 1).await;
    let cut = tokio::join!(proxy.server.drain(Duration::from_secs(5)), async {
        assert_eq!(within(whole(response)).await.unwrap().text(), "last");
    });
    assert_eq!(cut.0, 0);
    for client in [idle, client] {
        drop(client.sender);
        within(client.driver).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn what_outlives_the_grace_is_cut() {
    let upstream = Upstream::play([Act::Hang]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = Client::connect(proxy.address).await;
    let (response, _) = client.begin(request("GET", "/a", &[]), true).await;
    upstream.until(|seen| seen.len() == 1).await;
    let (cut, answer) =
        tokio::join!(proxy.server.drain(Duration::from_millis(50)), within(whole(response)));
    assert_eq!((cut, answer.unwrap().status), (1, 503));
}

#[tokio::test]
async fn an_idle_connection_is_told_to_go() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let limits = "idleTimeout: PT1S, headTimeout: PT5S, ";
    let proxy = Proxy::limited(limits, &one_route(&upstream, ""));
    let mut client = Client::connect(proxy.address).await;
    client.ask(request("GET", "/a", &[]), b"").await;
    within(client.driver).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_client_that_speaks_no_http_2_after_its_preface_is_closed() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = proxy.connect().await;
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nGET / HTTP/1.1\r\nHost: t\r\n\r\n").await;
    let said = client.rest().await;
    assert!(!said.starts_with(b"HTTP/1.1"), "{said:?}");
    client.stream.write_all(b"x").await.ok();
    assert_eq!(upstream.accepted(), 0);
}

#[tokio::test]
async fn a_client_that_opens_streams_only_to_reset_them_is_stopped() {
    let upstream = Upstream::play([Act::Hang]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = Client::connect(proxy.address).await;
    for _ in 0..50 {
        // All of these are written at once, so the proxy cannot have answered one in between.
        for _ in 0..100 {
            let Ok((_, mut stream)) = client.sender.send_request(request("GET", "/a", &[]), true)
            else {
                break;
            };
            stream.send_reset(Reason::CANCEL);
        }
        tokio::task::yield_now().await;
    }
    // It was told ENHANCE_YOUR_CALM, or cut off before it could read that.
    let error = within(client.driver).await.unwrap().unwrap_err();
    assert!(error.is_io() || error.reason() == Some(Reason::ENHANCE_YOUR_CALM), "{error}");
    let mut other = Client::connect(proxy.address).await;
    let seen = upstream.requests().len();
    let _waiting = other.begin(request("GET", "/other", &[]), true).await;
    upstream.until(|all| all[seen..].iter().any(|one| one.line().starts_with("GET /other "))).await;
}
