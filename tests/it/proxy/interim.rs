use std::fmt::Write as _;
use std::time::Duration;

use tokio::io::AsyncReadExt;

use super::one_route;
use crate::support::h2;
use crate::support::proxy::{Client, Proxy, within};
use crate::support::stack::{audit, retry};
use crate::support::upstream::{Act, Upstream, always, answer};

const GET: &str = "GET /a HTTP/1.1\r\nHost: t\r\n\r\n";
const LAST: &str = "GET /a HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
/// As an upstream sends it, and as a client reads it.
const HINT: &[u8] = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nConnection: x-a\r\nX-A: 1\r\nKeep-Alive: x\r\nContent-Length: 5\r\n\r\n";
const HINTED: &str = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n";

const RETRY: &str =
    concat!("    middleware:\n", retry!("match: { codes: [Provider.Call.Http.*] }, attempts: 3"),);

/// A hint and a response, together.
fn hinted(status: u16, body: &str) -> Act {
    Act::Answer([HINT, &answer(status, "", body)].concat())
}

/// Reads exactly these bytes.
async fn hears(client: &mut Client, wanted: &str) {
    let mut read = vec![0; wanted.len()];
    within(client.stream.read_exact(&mut read)).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&read), wanted);
}

/// Everything that a client reads until the connection closes.
async fn heard(proxy: &Proxy, request: &str) -> String {
    let mut client = proxy.connect().await;
    client.send(request).await;
    String::from_utf8(client.rest().await).unwrap()
}

fn dropped(proxy: &Proxy, reason: &str) -> u64 {
    let series = r#"mwl_interim_responses_dropped_total{reason="REASON",route="r"}"#;
    proxy.metric(&series.replace("REASON", reason))
}

#[tokio::test]
async fn a_hint_is_heard_before_there_is_an_answer() {
    let upstream = Upstream::play([Act::AnswerAndHang(HINT.to_vec())]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = proxy.connect().await;
    client.send(GET).await;
    hears(&mut client, HINTED).await;
    assert_eq!(proxy.server.in_flight(), 1);
}

#[tokio::test]
async fn all_interim_answers_come_in_their_order_and_the_answer_behind_them() {
    let interim = "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 X\r\nLink: </b>\r\nLink: </c>\r\n\r\nHTTP/1.1 150 Y\r\nx-b: 1\r\nTrailer: x\r\nTransfer-Encoding: chunked\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n";
    let all = [HINT, interim.as_bytes(), &answer(200, "", "final")].concat();
    let upstream = Upstream::play([Act::Answer(all)]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let wanted = format!(
        "{HINTED}HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 X\r\nlink: </b>\r\nlink: </c>\r\n\r\nHTTP/1.1 150 Y\r\nx-b: 1\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"
    );
    let mut client = proxy.connect().await;
    for _ in 0..2 {
        client.send(GET).await;
        hears(&mut client, &wanted).await;
        hears(&mut client, "content-length: 5\r\n").await;
        // The library writes the rest of the head.
        let mut rest = String::new();
        while !rest.ends_with("\r\n\r\nfinal") {
            rest.push(char::from(within(client.stream.read_u8()).await.unwrap()));
        }
    }
    assert_eq!(upstream.accepted(), 1);
}

#[tokio::test]
async fn what_a_route_takes_off_answers_it_takes_off_what_comes_before_them() {
    let hint = b"HTTP/1.1 103 Early Hints\r\nServer: x\r\nX-Set: theirs\r\nLink: </a>\r\n\r\n";
    let upstream = Upstream::play([Act::AnswerAndHang(hint.to_vec())]).await;
    let edits = "    responseHeaders: { remove: [server], set: { x-set: ours }, append: { x-more: '1' } }\n";
    let proxy = Proxy::start(&one_route(&upstream, edits));
    let mut client = proxy.connect().await;
    client.send(GET).await;
    hears(&mut client, HINTED).await;
}

#[tokio::test]
async fn the_hints_of_every_attempt_are_heard() {
    let upstream =
        Upstream::play([hinted(503, "busy"), hinted(503, "busy"), hinted(200, "good")]).await;
    let proxy = Proxy::start(&one_route(&upstream, RETRY));
    let all = heard(&proxy, LAST).await;
    assert!(all.starts_with(&format!("{HINTED}{HINTED}{HINTED}HTTP/1.1 200 OK\r\n")), "{all}");
    assert!(all.ends_with("good") && all.matches("HTTP/1.1 ").count() == 4, "{all}");
    assert_eq!(upstream.requests().len(), 3);
}

/// An audit is a call of the Flow's own, so its interim responses do not go to the client.
#[tokio::test]
async fn the_hints_to_a_call_of_the_flow_s_own_are_not_heard() {
    let upstream = Upstream::play([hinted(200, "good")]).await;
    let audit =
        concat!("    middleware:\n", audit!("u", "/audit", "{'type': middleware.result.type}"));
    let proxy = Proxy::start(&one_route(&upstream, audit));
    let all = heard(&proxy, LAST).await;
    assert!(all.starts_with(&format!("{HINTED}HTTP/1.1 200 OK\r\n")), "{all}");
    assert_eq!(all.matches("HTTP/1.1 ").count(), 2, "{all}");
    assert_eq!(upstream.requests().len(), 2);
}

#[tokio::test]
async fn a_head_is_hinted_at_too_and_its_connection_goes_on() {
    let head = [HINT, b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n"].concat();
    let upstream = Upstream::play([Act::Answer(head), always(200, "", "next")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = proxy.connect().await;
    client.send("HEAD /a HTTP/1.1\r\nHost: t\r\n\r\n").await;
    hears(&mut client, HINTED).await;
    assert_eq!(client.response(true).await.field("content-length"), ["1234"]);
    assert_eq!(client.ask(GET).await.body, "next");
}

#[tokio::test]
async fn older_clients_hear_none_and_that_is_counted() {
    let upstream = Upstream::play([hinted(200, "good")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let old = heard(&proxy, "GET /a HTTP/1.0\r\nHost: t\r\n\r\n").await;
    assert!(old.starts_with("HTTP/1.1 200 OK\r\n") && old.ends_with("good"), "{old}");
    assert_eq!(dropped(&proxy, "http10"), 1);
}

/// What a client of HTTP/2 hears of `proxy`: the hints' links, and the answer.
async fn heard_in_http_2(proxy: &Proxy) -> (Vec<String>, h2::Answer) {
    let mut client = h2::Client::connect(proxy.address).await;
    let (mut response, _stream) = client.begin(h2::request("GET", "/a", &[]), true).await;
    let mut hints = Vec::new();
    while let Some(hint) = h2::interim(&mut response).await {
        assert_eq!(hint.status(), 103);
        assert!(!hint.headers().contains_key("x-a"), "{hint:?}");
        assert!(!hint.headers().contains_key("content-length"), "{hint:?}");
        hints.push(hint.headers()["link"].to_str().unwrap().to_owned());
    }
    (hints, within(h2::whole(response)).await.unwrap())
}

#[tokio::test]
async fn a_client_of_http_2_hears_the_hints_of_every_attempt() {
    let upstream =
        Upstream::play([hinted(503, "busy"), hinted(503, "busy"), hinted(200, "good")]).await;
    let proxy = Proxy::start(&one_route(&upstream, RETRY));
    let (hints, answer) = heard_in_http_2(&proxy).await;
    assert_eq!(hints, ["</a>", "</a>", "</a>"]);
    assert_eq!((answer.status, answer.text()), (200, "good"));
    assert_eq!(proxy.metrics.render().matches("mwl_interim_responses_dropped_total{").count(), 0);
}

#[tokio::test]
async fn a_client_of_http_2_hears_a_hint_before_there_is_an_answer() {
    let upstream = Upstream::play([Act::AnswerAndHang(HINT.to_vec())]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = h2::Client::connect(proxy.address).await;
    let (mut response, _stream) = client.begin(h2::request("GET", "/a", &[]), true).await;
    assert_eq!(h2::interim(&mut response).await.unwrap().headers()["link"], "</a>");
    assert_eq!(proxy.server.in_flight(), 1);
}

#[tokio::test]
async fn a_client_hears_hints_while_it_sends() {
    let upstream = Upstream::play([Act::Before(HINT.to_vec(), answer(200, "", "got it"))]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = proxy.connect().await;
    client.send("PUT /a HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\nhello").await;
    hears(&mut client, HINTED).await;
    client.send("world").await;
    assert_eq!(client.response(false).await.body, "got it");
    assert_eq!(upstream.requests()[0].body, b"helloworld");
}

/// The 100 for the client is before or after the hint, never inside of it.
#[tokio::test]
async fn a_client_that_waits_to_be_asked_is_asked_once_and_hears_hints_too() {
    let before = [HINT, b"HTTP/1.1 100 Continue\r\n\r\n", HINT].concat();
    let upstream = Upstream::play([Act::Before(before, answer(200, "", "got it"))]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = proxy.connect().await;
    client
        .send("PUT /a HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        .await;
    let mut read = vec![0; 2 * HINTED.len() + 25];
    within(client.stream.read_exact(&mut read)).await.unwrap();
    let read = String::from_utf8(read).unwrap();
    assert_eq!(read.matches("HTTP/1.1 100 Continue\r\n\r\n").count(), 1, "{read}");
    assert_eq!(read.matches(HINTED).count(), 2, "{read}");
    client.send("hello").await;
    assert_eq!(client.response(false).await.body, "got it");
}

#[tokio::test]
async fn a_hint_that_comes_byte_by_byte_is_heard_whole() {
    let all = [HINT, &answer(200, "", "good")].concat();
    let bytes = all.iter().map(|byte| vec![*byte]).collect();
    let upstream = Upstream::play([Act::Slowly(Duration::from_millis(1), bytes)]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let all = heard(&proxy, LAST).await;
    assert!(
        all.starts_with(&format!("{HINTED}HTTP/1.1 200 OK\r\n")) && all.ends_with("good"),
        "{all}"
    );
}

#[tokio::test]
async fn an_upstream_that_dies_behind_its_hint_has_not_answered() {
    let upstream = Upstream::play([Act::AnswerAndClose(HINT.to_vec())]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let all = heard(&proxy, LAST).await;
    let (hint, answer) = all.split_at(HINTED.len());
    assert_eq!(hint, HINTED);
    assert!(answer.starts_with("HTTP/1.1 502 "), "{all}");
    assert!(answer.contains("Provider.Call.Http.ConnectionClosed"), "{all}");
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn pipelined_requests_get_each_its_own_in_order() {
    let upstream = Upstream::run(|number, _| {
        let hint = format!("HTTP/1.1 103 Early Hints\r\nx-n: {number}\r\n\r\n").into_bytes();
        Act::Answer([hint, answer(200, "", &format!("answer {number}"))].concat())
    })
    .await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let all = heard(&proxy, &format!("{GET}{GET}{LAST}")).await;
    let mut rest = all.as_str();
    for number in 0..3 {
        let hint = format!("HTTP/1.1 103 Early Hints\r\nx-n: {number}\r\n\r\nHTTP/1.1 200 OK\r\n");
        rest = rest.strip_prefix(&hint).unwrap_or_else(|| panic!("{all}"));
        let body = format!("\r\n\r\nanswer {number}");
        rest = rest.split_once(&body).unwrap_or_else(|| panic!("{all}")).1;
    }
    assert_eq!(rest, "");
}

/// The rest of an earlier answer is sent before the hint for the next request.
#[tokio::test]
async fn a_hint_waits_for_the_rest_of_the_answer_before_it() {
    let size = 16 << 20;
    let large = answer(200, "", &"l".repeat(size));
    let not_modified = b"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n";
    let upstream =
        Upstream::play([Act::Answer(large), Act::Answer([HINT, not_modified].concat())]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = proxy.connect().await;
    client.send(format!("{GET}{LAST}")).await;
    let response = client.response(false).await;
    assert_eq!((response.body.len(), response.whole), (size, true));
    let rest = String::from_utf8(client.rest().await).unwrap();
    let wanted = format!("{HINTED}HTTP/1.1 304 Not Modified\r\ncontent-length: 7\r\n");
    assert!(rest.starts_with(&wanted) && rest.ends_with("\r\n\r\n"), "{rest}");
    assert_eq!(rest.matches("\r\n\r\n").count(), 2, "{rest}");
}

/// An upstream that sends far more than a client reads: the queue is bounded, and the answer arrives complete.
#[tokio::test]
async fn a_client_that_does_not_read_makes_no_hints_pile_up() {
    let hint = format!("HTTP/1.1 103 Early Hints\r\nx: {}\r\n\r\n", "h".repeat(7000));
    let many = hint.repeat(4000).into_bytes();
    let upstream = Upstream::play([Act::Before(many, answer(200, "", "good"))]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = proxy.connect().await;
    client.send(LAST).await;
    proxy.until(|proxy| dropped(proxy, "full") > 0).await;
    let all = String::from_utf8(client.rest().await).unwrap();
    let passed = all.matches(&hint).count();
    let mut told = String::new();
    write!(told, "{passed} hints").unwrap();
    assert_eq!(u64::try_from(passed).unwrap() + dropped(&proxy, "full"), 4000, "{told}");
    let rest = &all[passed * hint.len()..];
    assert!(rest.starts_with("HTTP/1.1 200 OK\r\n") && rest.ends_with("good"), "{told} and {rest}");
}
