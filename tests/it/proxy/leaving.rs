use std::time::Duration;

use super::one_route;
use crate::support::proxy::{Client, Files, Proxy, within};
use crate::support::tls::{Authority, HTTP_1_1, client, connect};
use crate::support::upstream::{Act, Upstream, always};

/// How a client leaves.
#[derive(Clone, Copy, Debug)]
enum Leaves {
    Closes,
    Resets,
}

/// A cleanup that tells `/audit` the Result. Nothing reads the client's body.
const ROUTE: &str = "    input: null
    middleware:
      - provider: mwl:provider.middleware/mwl/finally/v1
        onAlways:
          with:
            call:
              provider: mwl:provider.call/mwl-proxy/http/v1
              input: \"{{ {'type': middleware.result.type} }}\"
              with: { upstream: u, method: POST, path: /audit }
";

async fn audited() -> Upstream {
    Upstream::run(|_, request| match request.line() {
        line if line.starts_with("POST /audit ") => always(200, "", "noted"),
        _ => Act::Hang,
    })
    .await
}

/// Sends `request`, and leaves as soon as the upstream has its request. Checks that the execution is cancelled, cleaned
/// up and counted.
async fn left(proxy: &Proxy, upstream: &Upstream, request: &[u8], leaves: Leaves) {
    let before = upstream.requests().len();
    let gone = proxy.metric(r#"mwl_requests_total{route="r",status="499"}"#);
    let mut client = proxy.connect().await;
    client.send(request).await;
    upstream.until(|seen| seen.len() > before).await;
    if matches!(leaves, Leaves::Resets) {
        client.stream.set_zero_linger().unwrap();
    }
    drop(client);
    let seen = upstream.until(|seen| seen.len() == before + 2 && seen[before + 1].whole).await;
    assert!(seen[before + 1].line().starts_with("POST /audit "), "{leaves:?}");
    assert_eq!(seen[before + 1].body, br#"{"type":"cancellation"}"#);
    proxy.until_idle().await;
    assert_eq!(proxy.metric(r#"mwl_requests_total{route="r",status="499"}"#), gone + 1);
}

fn post(size: usize, sent: usize, behind: &str) -> Vec<u8> {
    let head = format!("POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: {size}\r\n\r\n");
    [head.as_bytes(), &vec![b'x'; sent], behind.as_bytes()].concat()
}

const NEXT: &str = "GET /next HTTP/1.1\r\nHost: t\r\n\r\n";

#[tokio::test]
async fn a_client_that_leaves_is_noticed_whatever_is_unread() {
    let upstream = audited().await;
    let proxy = Proxy::start(&one_route(&upstream, ROUTE));
    let chunked = b"POST /a HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel";
    for leaves in [Leaves::Closes, Leaves::Resets] {
        for request in [
            post(2, 2, ""),
            post(2, 1, ""),
            post(2, 2, NEXT),
            post(50_000, 50_000, ""),
            post(1 << 30, 50_000, ""),
            chunked.to_vec(),
            [NEXT, NEXT].concat().into(),
            [NEXT, "GET /unfinished HT"].concat().into(),
            [NEXT.as_bytes(), &post(1 << 20, 50_000, "")].concat(),
        ] {
            left(&proxy, &upstream, &request, leaves).await;
        }
    }
    // A reset also overtakes what all buffers on the way hold.
    left(&proxy, &upstream, &post(1 << 30, 200_000, ""), Leaves::Resets).await;
}

/// An upload that the upstream does not accept is unread, too.
#[tokio::test]
async fn a_client_that_leaves_a_stalled_upload_is_noticed() {
    let upstream = Upstream::run(|_, _| Act::Early(Vec::new())).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = proxy.connect().await;
    client.send(post(1 << 30, 0, "")).await;
    upstream.until(|seen| seen.len() == 1).await;
    // As much as all buffers on the way hold.
    let chunk = vec![b'x'; 1 << 20];
    let mut in_vain = 0;
    while in_vain < 5000 {
        in_vain = if client.stream.try_write(&chunk).is_ok() { 0 } else { in_vain + 1 };
        tokio::task::yield_now().await;
    }
    client.stream.set_zero_linger().unwrap();
    drop(client);
    upstream.ended(1).await;
    proxy.until(|proxy| proxy.metric(r#"mwl_requests_total{route="r",status="499"}"#) == 1).await;
}

#[tokio::test]
async fn it_is_noticed_over_tls_too() {
    let upstream = audited().await;
    let authority = Authority::new();
    let issued = authority.issue(&["a.test"]);
    let files = Files::from([("server.pem", issued.chain()), ("server.key", issued.key())]);
    let tls = "listeners: [{ address: '127.0.0.1:0', tls: { certificate: server.pem, key: server.key } }]\nlimits: { workers: 1 }\n";
    let proxy = Proxy::whole(&format!("{tls}{}", one_route(&upstream, ROUTE)), &files);
    for request in [post(2, 1, ""), post(1 << 20, 50_000, ""), [NEXT, NEXT].concat().into()] {
        let before = upstream.requests().len();
        let stream = connect(proxy.address, client(&authority, None, &[HTTP_1_1])).await.unwrap();
        let mut client = Client::over(stream);
        client.send(request).await;
        upstream.until(|seen| seen.len() == before + 1).await;
        drop(client);
        upstream.until(|seen| seen.len() == before + 2 && seen[before + 1].whole).await;
        proxy.until_idle().await;
    }
    assert_eq!(proxy.metric(r#"mwl_requests_total{route="r",status="499"}"#), 3);
}

/// A client that stays gets all of its answers in order.
#[tokio::test]
async fn a_client_that_stays_is_answered_in_turn() {
    let upstream = Upstream::run(|number, _| {
        let pause = Duration::from_millis(20);
        Act::Slowly(
            pause,
            vec![Vec::new(), crate::support::upstream::answer(200, "", &number.to_string())],
        )
    })
    .await;
    let proxy = Proxy::start(&one_route(&upstream, "    input: null\n"));
    let mut client = proxy.connect().await;
    let all = [&post(3, 3, "")[..], NEXT.as_bytes(), &post(50_000, 50_000, ""), NEXT.as_bytes()];
    client.send(all.concat()).await;
    for number in 0..4 {
        assert_eq!(client.response(false).await.body, number.to_string());
    }
    assert_eq!(proxy.metric(r#"mwl_requests_total{route="r",status="499"}"#), 0);
}

/// RFC 9112 §9.6: a client that is still sending must not lose the answer to a reset.
#[tokio::test]
async fn an_early_answer_reaches_a_client_that_first_sends_everything() {
    let refusing = Upstream::play([Act::EarlyAndClose(
        0,
        b"HTTP/1.1 401 No\r\nContent-Length: 2\r\n\r\nno".to_vec(),
    )])
    .await;
    let reads = "    buffer: { request: 1KiB }\n    output: '{{ frame.input.body }}'\n";
    for (config, status) in [
        (one_route(&refusing, "").replace("pathPrefix: /", "path: /x"), 404),
        (one_route(&refusing, reads), 413),
        (one_route(&refusing, ""), 401),
    ] {
        let proxy = Proxy::limited("bodyTimeout: PT5S, ", &config);
        for chunked in [false, true] {
            let mut client = proxy.connect().await;
            let size = 24 * (1 << 20);
            let framing = if chunked {
                "Transfer-Encoding: chunked".to_owned()
            } else {
                format!("Content-Length: {size}")
            };
            client.send(format!("POST /a HTTP/1.1\r\nHost: t\r\n{framing}\r\n\r\n")).await;
            let data = vec![b'u'; 1 << 20];
            for part in 0..24 {
                let piece = if chunked {
                    [b"100000\r\n", &data[..], b"\r\n"].concat()
                } else {
                    data.clone()
                };
                assert!(client.offer(&piece).await, "{status}: cut at {part} MiB");
            }
            let response = client.response(false).await;
            assert_eq!((response.status, response.whole), (status, true));
            assert_eq!(response.field("connection"), ["close"]);
            assert!(within(client.rest()).await.is_empty());
        }
    }
}
