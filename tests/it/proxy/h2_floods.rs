use std::fmt::Write as _;

use super::one_route;
use crate::support::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, ENDS, Frame, GOAWAY, HEADERS, PING, PRIORITY,
    RST_STREAM, Raw, SETTINGS, WINDOW_UPDATE, block, frame, request, settings,
};
use crate::support::h2::{self, Client};
use crate::support::proxy::{Proxy, within};
use crate::support::upstream::{Act, Upstream, always};

const PROTOCOL_ERROR: u32 = 1;
const FLOW_CONTROL_ERROR: u32 = 3;
const REFUSED_STREAM: u32 = 7;
const ENHANCE_YOUR_CALM: u32 = 11;

fn refused(proxy: &Proxy, reason: &str) -> u64 {
    proxy.metric(&format!(r#"mwl_requests_refused_total{{reason="{reason}"}}"#))
}

/// Waits for a refusal to be counted.
async fn until_refused(proxy: &Proxy, reason: &str) {
    within(async {
        while refused(proxy, reason) == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Another client is served.
async fn is_served(proxy: &Proxy) {
    let mut other = Client::connect(proxy.address).await;
    assert_eq!(other.ask(h2::request("GET", "/a", &[]), b"").await.text(), "good");
}

/// Frames that each bring nothing, without end.
#[tokio::test]
async fn frames_that_bring_nothing_have_a_bound() {
    let upstream = Upstream::play([always(200, "", "good")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let floods: [(&str, Vec<u8>); 8] = [
        ("PING", frame(PING, 0, 0, &[0; 8])),
        ("SETTINGS", frame(SETTINGS, 0, 0, &[])),
        ("SETTINGS that change", frame(SETTINGS, 0, 0, &settings(&[(4, 70_000)]))),
        ("WINDOW_UPDATE", frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        ("PRIORITY", frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 1])),
        ("RST_STREAM", frame(RST_STREAM, 0, 1, &[0, 0, 0, 8])),
        ("unknown", frame(0xbe, 0, 0, b"?")),
        ("a stream's WINDOW_UPDATE", frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1])),
    ];
    for (count, (what, flood)) in (1..).zip(floods) {
        let mut client = Raw::connect(proxy.address, &[]).await;
        client.ask(1, "/a").await;
        client.of(DATA, 1).await;
        for _ in 0..100 {
            if !client.write(&flood.repeat(100)).await {
                break;
            }
        }
        let rest = client.rest().await;
        // Told to calm down, or cut off before it could read that.
        let told = rest.iter().filter(|frame| frame.kind == GOAWAY);
        assert!(told.map(Frame::reason).all(|reason| reason == ENHANCE_YOUR_CALM), "{what}");
        within(async {
            while refused(&proxy, "flood") < count {
                tokio::task::yield_now().await;
            }
        })
        .await;
        is_served(&proxy).await;
    }
}

/// As many in all, but each with something that it belongs to.
#[tokio::test]
async fn frames_that_belong_to_something_are_no_flood() {
    let upstream = Upstream::play([always(200, "", "good")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = Raw::connect(proxy.address, &[]).await;
    for stream in (1..2001).step_by(2) {
        client.send(PRIORITY, 0, stream, &[0, 0, 0, 0, 1]).await;
        client.ask(stream, "/a").await;
        client.of(DATA, stream).await;
        client.open(0, 4).await;
        client.send(PING, 0, 0, &[0; 8]).await;
    }
    assert_eq!(refused(&proxy, "flood"), 0);
}

#[tokio::test]
async fn empty_pieces_of_a_body_have_a_bound() {
    let upstream = Upstream::run(|_, request| {
        if request.line().starts_with("POST") { Act::Hang } else { always(200, "", "good") }
    })
    .await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = Raw::connect(proxy.address, &[]).await;
    client.send(HEADERS, END_HEADERS, 1, &request("POST", "/a", &[])).await;
    for _ in 0..100 {
        client.write(&frame(DATA, 0, 1, &[]).repeat(100)).await;
    }
    client.rest().await;
    until_refused(&proxy, "flood").await;
    is_served(&proxy).await;
}

/// One octet of a body in each frame: what they cost beside it has a bound, where nobody takes them.
#[tokio::test]
async fn a_body_in_crumbs_that_nobody_takes_has_a_bound() {
    let upstream = Upstream::run(|_, request| {
        if request.line().starts_with("POST") { Act::Hang } else { always(200, "", "good") }
    })
    .await;
    let reads = "    input: null\n";
    let proxy = Proxy::start(&one_route(&upstream, reads));
    let mut client = Raw::connect(proxy.address, &[]).await;
    for stream in (1..=99).step_by(2) {
        client.send(HEADERS, END_HEADERS, stream, &request("POST", "/a", &[])).await;
        client.write(&frame(DATA, 0, stream, b"c").repeat(1000)).await;
    }
    client.rest().await;
    until_refused(&proxy, "flood").await;
}

#[tokio::test]
async fn a_head_that_goes_on_and_on_has_a_bound() {
    let upstream = Upstream::play([always(200, "", "good")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    // Small pieces that end nothing, large ones, and empty ones.
    for piece in [block(&[("x", "y")]), block(&[("x", &"y".repeat(16_000))]), Vec::new()] {
        let mut client = Raw::connect(proxy.address, &[]).await;
        client.send(HEADERS, END_STREAM, 1, &request("GET", "/a", &[])).await;
        for _ in 0..2000 {
            if !client.send(CONTINUATION, 0, 1, &piece).await {
                break;
            }
        }
        let rest = client.rest().await;
        let told = rest.iter().find(|frame| frame.kind == GOAWAY);
        assert!(told.is_none_or(|told| told.reason() != 0), "{rest:?}");
    }
    until_refused(&proxy, "flood").await;
    is_served(&proxy).await;
}

/// An entry that the table remembers, said again and again in one octet each.
#[tokio::test]
async fn a_small_block_that_makes_a_large_head_is_refused() {
    let upstream = Upstream::play([always(200, "", "good")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = Raw::connect(proxy.address, &[]).await;
    let entry = [&[0x40][..], &block(&[("x-bomb", &"b".repeat(3000))])[1..]].concat();
    let first = [request("GET", "/a", &[]), entry].concat();
    client.send(HEADERS, ENDS, 1, &first).await;
    client.of(DATA, 1).await;
    // Forty times three thousand bytes are over the limit, two hundred are far over the library's.
    for (stream, times) in [(3, 40), (5, 90)] {
        let bomb = [request("GET", "/a", &[]), vec![0xbe; times]].concat();
        client.send(HEADERS, ENDS, stream, &bomb).await;
        client.of(HEADERS, stream).await;
    }
    within(async {
        while refused(&proxy, "headTooLarge") < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // Ten thousand end the connection.
    let bomb = [request("GET", "/a", &[]), vec![0xbe; 10_000]].concat();
    client.send(HEADERS, ENDS, 7, &bomb).await;
    let goaway = client.rest().await.into_iter().find(|frame| frame.kind == GOAWAY).unwrap();
    assert_eq!(goaway.reason(), ENHANCE_YOUR_CALM);
    until_refused(&proxy, "flood").await;
    assert_eq!(upstream.requests().len(), 1);
}

/// Opens streams and says what makes the other side reset them: the streams are over, what answers them is not.
#[tokio::test]
async fn a_client_that_has_its_streams_reset_is_stopped() {
    let upstream = Upstream::run(|_, request| {
        if request.line().starts_with("GET /hang") { Act::Hang } else { always(200, "", "good") }
    })
    .await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = Raw::connect(proxy.address, &[]).await;
    for run in 0..20_000_u32 {
        let stream = 2 * run + 1;
        client.ask(stream, "/hang").await;
        // A window beyond any: a stream error.
        if !client.send(WINDOW_UPDATE, 0, stream, &[0x7f, 0xff, 0xff, 0xff]).await {
            break;
        }
    }
    let rest = client.rest().await;
    let resets = rest.iter().filter(|frame| frame.kind == RST_STREAM).count();
    assert!(resets <= 1100, "{resets}");
    let wrong = rest.iter().find(|frame| {
        frame.kind == RST_STREAM && ![FLOW_CONTROL_ERROR, REFUSED_STREAM].contains(&frame.reason())
    });
    assert_eq!(wrong, None);
    until_refused(&proxy, "flood").await;
    is_served(&proxy).await;
}

#[tokio::test]
async fn what_is_refused_below_is_counted() {
    let upstream = Upstream::play([always(200, "", "good")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = Raw::connect(proxy.address, &[]).await;
    let malformed = [
        request("GET", "/a b", &[]),
        request("GET", "", &[]),
        request("GET", "/a", &[("connection", "close")]),
        request("GET", "/a", &[(":path", "/late")]),
        request("GET", "/a", &[("X-Upper", "y")]),
        request("GET", "/a#b", &[]),
        block(&[(":method", "GET"), (":authority", "t"), (":path", "/a")]),
    ];
    let count = malformed.len() as u64;
    for (stream, head) in (1..).step_by(2).zip(malformed) {
        client.send(HEADERS, ENDS, stream, &head).await;
        assert_eq!(client.of(RST_STREAM, stream).await.reason(), PROTOCOL_ERROR);
    }
    // Between two that are good.
    client.ask(101, "/a").await;
    client.of(DATA, 101).await;
    assert_eq!(refused(&proxy, "malformedHead"), count);
    // What is reset behind its head is no refusal.
    let short = request("POST", "/a", &[("content-length", "5")]);
    client.send(HEADERS, END_HEADERS, 103, &short).await;
    upstream.until(|seen| seen.len() == 2).await;
    client.send(DATA, END_STREAM, 103, b"four").await;
    assert_eq!(client.of(RST_STREAM, 103).await.reason(), PROTOCOL_ERROR);
    client.ask(105, "/a").await;
    client.of(DATA, 105).await;
    assert_eq!(refused(&proxy, "malformedHead"), count);
    assert_eq!(refused(&proxy, "malformedFrame"), 0);
}

/// However its bytes come, and whether or not the client reads: what is served was not refused.
#[tokio::test]
async fn a_head_that_comes_in_pieces_is_no_refusal() {
    let upstream = Upstream::play([always(200, "", "good")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = Raw::connect(proxy.address, &[]).await;
    for stream in [1, 3, 5] {
        for byte in frame(HEADERS, ENDS, stream, &request("GET", "/a", &[])) {
            client.write(&[byte]).await;
            tokio::task::yield_now().await;
        }
        client.of(DATA, stream).await;
    }
    let counted = proxy.metrics.render();
    let refused = counted.lines().filter(|line| line.starts_with("mwl_requests_refused_total{"));
    assert!(refused.clone().count() > 0 && refused.clone().all(|line| line.ends_with(" 0")));
}

#[tokio::test]
async fn a_broken_frame_ends_the_connection_and_is_counted() {
    let upstream = Upstream::play([always(200, "", "good")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let broken = [
        frame(DATA, 0, 0, b"x"),
        frame(SETTINGS, 0, 0, &[0; 5]),
        frame(PING, 0, 0, &[0; 7]),
        frame(HEADERS, ENDS, 2, &request("GET", "/a", &[])),
        frame(HEADERS, ENDS, 1, &[0xff; 20]),
        frame(CONTINUATION, END_HEADERS, 1, &[]),
        frame(WINDOW_UPDATE, 0, 0, &[0; 4]),
        vec![0xff; 9],
    ];
    for (count, broken) in (1..).zip(broken) {
        let mut client = Raw::connect(proxy.address, &[]).await;
        client.write(&broken).await;
        let rest = client.rest().await;
        let mut told = String::new();
        write!(told, "{broken:?}: {rest:?}").unwrap();
        assert!(rest.iter().any(|frame| frame.kind == GOAWAY && frame.reason() != 0), "{told}");
        within(async {
            while refused(&proxy, "malformedFrame") < count {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
    is_served(&proxy).await;
}

/// RFC 9113 §3.4: nothing behind such a beginning is served.
#[tokio::test]
async fn a_first_frame_that_is_not_settings_ends_the_connection() {
    let upstream = Upstream::play([always(200, "", "good")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let head = frame(HEADERS, ENDS, 1, &request("GET", "/a", &[]));
    let ping = frame(PING, 0, 0, &[0; 8]);
    let greeting = frame(SETTINGS, 0, 0, &[]);
    for (count, begins) in (1..).zip([head.clone(), [ping, greeting, head].concat()]) {
        let mut client = Raw::without_settings(proxy.address).await;
        client.write(&begins).await;
        let rest = client.rest().await;
        let last = rest.last().unwrap();
        assert_eq!((last.kind, last.reason()), (GOAWAY, PROTOCOL_ERROR));
        assert!(rest.iter().all(|frame| frame.stream == 0), "{rest:?}");
        proxy.until(|proxy| refused(proxy, "malformedFrame") == count).await;
    }
    assert_eq!(upstream.accepted(), 0);
    is_served(&proxy).await;
}

#[tokio::test]
async fn streams_beyond_the_limit_are_refused_and_counted() {
    let upstream = Upstream::play([Act::Hang]).await;
    let proxy = Proxy::limited("streams: 2, ", &one_route(&upstream, ""));
    let mut client = Raw::connect(proxy.address, &[]).await;
    for stream in [1, 3, 5] {
        client.ask(stream, "/a").await;
    }
    assert_eq!(client.of(RST_STREAM, 5).await.reason(), REFUSED_STREAM);
    until_refused(&proxy, "overloaded").await;
    assert_eq!(refused(&proxy, "overloaded"), 1);
}

/// What an upstream sends without end ends its connection, and not the proxy's patience.
#[tokio::test]
async fn an_upstream_that_floods_is_left() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let flooding = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut upstream = Raw::welcome(stream, &[]).await;
        upstream.until(|frame| frame.kind == HEADERS).await;
        let ping = frame(PING, 0, 0, &[0; 8]).repeat(100);
        while upstream.write(&ping).await {}
    });
    let proxy = Proxy::start(&super::h2_upstreams::one_route(address, "", ""));
    let response = proxy.ask("POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\n\r\nx").await;
    assert_eq!(response.status, 502);
    assert_eq!(response.json()["code"], "Provider.Call.Http.ConnectionClosed");
    within(flooding).await.unwrap();
}
