use std::net::SocketAddr;
use std::time::Duration;

use ::h2::Reason;
use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::{h2_upstreams, one_route};
use crate::support::frames::{
    self, CONTINUATION, DATA, END_HEADERS, END_STREAM, ENDS, HEADERS, MAX_CONCURRENT_STREAMS,
    RST_STREAM, Raw, SETTINGS, block, settings,
};
use crate::support::h2::{self, Client, Reply, fields, reply, request, whole};
use crate::support::proxy::{Proxy, within};
use crate::support::upstream::{Act, Upstream, always, answer};

const GET: &str = "GET /a HTTP/1.1\r\nHost: t\r\n\r\n";

/// An upstream of HTTP/2 that answers each request on its one connection with these frames, given the stream.
async fn raw(answer: impl Fn(u32) -> Vec<u8> + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let mut upstream = Raw::welcome(stream, &[]).await;
            while let Some(frame) = upstream.next().await {
                if frame.kind == HEADERS && frame.flags & END_STREAM != 0 {
                    upstream.write(&answer(frame.stream)).await;
                }
            }
        }
    });
    address
}

/// What an upstream says on a stream.
type Way = Box<dyn Fn(u32) -> Vec<u8> + Send>;

/// A head of this status, by its place in the static table, with these fields.
fn head(status: u8, flags: u8, stream: u32, fields: &[(&str, &str)]) -> Vec<u8> {
    frames::frame(HEADERS, flags, stream, &[vec![status], block(fields)].concat())
}

const OK: u8 = 0x88;
const NO_CONTENT: u8 = 0x89;
const NOT_MODIFIED: u8 = 0x8b;

/// A client that drops its upload has not ended it, whatever the reason that it gives.
#[tokio::test]
async fn an_upload_that_is_reset_is_not_whole_whatever_the_reason() {
    for reason in [Reason::NO_ERROR, Reason::CANCEL, Reason::INTERNAL_ERROR] {
        let upstream = Upstream::play([always(200, "", "good")]).await;
        let proxy = Proxy::start(&one_route(&upstream, ""));
        let mut client = Client::connect(proxy.address).await;
        let (response, mut stream) = client.begin(request("POST", "/a", &[]), false).await;
        stream.send_data(Bytes::from_static(b"half"), false).unwrap();
        upstream.until(|seen| seen.first().is_some_and(|seen| seen.body == b"half")).await;
        stream.send_reset(reason);
        drop(response);
        upstream.ended(1).await;
        assert!(!upstream.requests()[0].whole, "{reason:?}");
        within(async {
            while proxy.metric(r#"mwl_requests_total{route="r",status="499"}"#) == 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

#[tokio::test]
async fn an_upload_that_is_reset_is_not_whole_for_an_upstream_of_http_2() {
    let upstream = h2::Upstream::play([h2::Act::Answer(reply(200, "good"))]).await;
    let proxy = Proxy::start(&h2_upstreams::one_route(upstream.address, "", ""));
    let mut client = Client::connect(proxy.address).await;
    let (response, mut stream) = client.begin(request("POST", "/a", &[]), false).await;
    stream.send_data(Bytes::from_static(b"half"), false).unwrap();
    upstream.until(|seen| seen.first().is_some_and(|seen| seen.body == b"half")).await;
    stream.send_reset(Reason::NO_ERROR);
    drop(response);
    within(async {
        while proxy.server.in_flight() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(client.ask(request("GET", "/b", &[]), b"").await.text(), "good");
    assert!(!upstream.requests()[0].whole);
}

/// An upstream that drops its answer has not ended it, with a length and without.
#[tokio::test]
async fn an_answer_that_is_reset_is_not_whole_whatever_the_reason() {
    for reason in [Reason::NO_ERROR, Reason::CANCEL, Reason::INTERNAL_ERROR] {
        for told in [&[][..], &[("content-length", "1000")]] {
            let broken = Reply { fields: fields(told), reset: Some(reason), ..reply(200, "half") };
            let upstream = h2::Upstream::play([h2::Act::Answer(broken)]).await;
            let proxy = Proxy::start(&h2_upstreams::one_route(upstream.address, "", ""));
            let response = proxy.ask(GET).await;
            assert_eq!((response.whole, response.body.as_str()), (false, "half"), "{reason:?}");
            let mut client = Client::connect(proxy.address).await;
            let (response, _) = client.begin(request("GET", "/a", &[]), true).await;
            // The reset comes behind what was handed over before.
            let mut body = within(response).await.unwrap().into_body();
            assert_eq!(within(body.data()).await.unwrap().unwrap(), "half");
            let error = within(body.data()).await.unwrap().unwrap_err();
            assert!(error.is_reset() && error.is_remote(), "{error}");
            assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR));
        }
    }
}

/// Whole, and then told to send no more: an answer that came before its request's end (RFC 9113 §8.1).
#[tokio::test]
async fn an_upstream_that_wants_no_more_of_a_request_has_answered_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut upstream = Raw::welcome(stream, &[]).await;
        upstream.of(HEADERS, 1).await;
        let no_error = frames::frame(RST_STREAM, 0, 1, &[0; 4]);
        let data = frames::frame(DATA, END_STREAM, 1, b"enough");
        let all = [head(OK, END_HEADERS, 1, &[]), data, no_error].concat();
        upstream.write(&all).await;
        upstream.rest().await;
    });
    let proxy = Proxy::start(&h2_upstreams::one_route(address, "", ""));
    let mut client = Client::connect(proxy.address).await;
    let (response, mut stream) = client.begin(request("POST", "/a", &[]), false).await;
    stream.send_data(Bytes::from_static(b"half"), false).unwrap();
    let answer = within(whole(response)).await.unwrap();
    assert_eq!((answer.status, answer.text()), (200, "enough"));
}

#[tokio::test]
async fn an_answer_without_a_body_has_none_however_its_upstream_ends_it() {
    let length = ("content-length", "628");
    let empty = |stream| frames::frame(DATA, END_STREAM, stream, b"");
    let data = |stream| frames::frame(DATA, END_STREAM, stream, b"unasked");
    let ways: [(u16, Way); 5] = [
        (
            304,
            Box::new(move |at| {
                [head(NOT_MODIFIED, END_HEADERS, at, &[length]), empty(at)].concat()
            }),
        ),
        (304, Box::new(move |at| head(NOT_MODIFIED, ENDS, at, &[length]))),
        (304, Box::new(move |at| [head(NOT_MODIFIED, END_HEADERS, at, &[]), data(at)].concat())),
        (204, Box::new(move |at| [head(NO_CONTENT, END_HEADERS, at, &[]), data(at)].concat())),
        (
            204,
            Box::new(move |at| [head(NO_CONTENT, END_HEADERS, at, &[length]), empty(at)].concat()),
        ),
    ];
    for (status, way) in ways {
        let proxy = Proxy::start(&h2_upstreams::one_route(raw(way).await, "", ""));
        let mut client = Client::connect(proxy.address).await;
        let mut old = proxy.connect().await;
        // The connections serve on, all three.
        for _ in 0..3 {
            let answer = client.ask(request("GET", "/a", &[]), b"").await;
            assert_eq!((answer.status, answer.text()), (status, ""));
            let told = answer.field("content-length");
            assert!(if status == 204 { told.is_empty() } else { told.len() < 2 }, "{told:?}");
            old.send(GET).await;
            let answer = old.response(true).await;
            assert_eq!((answer.status, answer.body.as_str()), (status, ""));
        }
        let series = format!(r#"mwl_requests_total{{route="r",status="{status}"}}"#);
        assert_eq!(proxy.metric(&series), 6);
        within(async {
            while proxy.server.in_flight() > 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

/// What a Flow returns, too.
#[tokio::test]
async fn a_204_of_the_flow_s_own_has_no_body() {
    let upstream = Upstream::play([always(200, "", "x")]).await;
    let returns = "    output: \"{{ {'status': 204, 'body': 'unasked'} }}\"\n";
    let proxy = Proxy::start(&one_route(&upstream, returns));
    let mut client = Client::connect(proxy.address).await;
    let answer = client.ask(request("GET", "/a", &[]), b"").await;
    assert_eq!((answer.status, answer.text()), (204, ""));
    assert_eq!(proxy.metric(r#"mwl_requests_total{route="r",status="204"}"#), 1);
}

/// One limit, on the message: what the wire makes of a cookie does not count.
#[tokio::test]
async fn the_crumbs_of_a_cookie_are_one_field() {
    let upstream = Upstream::play([always(200, "", "good")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = Client::connect(proxy.address).await;
    let asked = |crumbs: usize, others: usize| {
        let mut request = request("GET", "/a", &[]);
        for crumb in 0..crumbs {
            let crumb = format!("c{crumb}=v").parse().unwrap();
            request.headers_mut().append("cookie", crumb);
        }
        for other in 0..others {
            let name: http::HeaderName = format!("x-{other}").parse().unwrap();
            request.headers_mut().append(name, "y".parse().unwrap());
        }
        request
    };
    for (crumbs, others, status) in [(90, 15, 200), (300, 99, 200), (0, 100, 200), (2, 100, 431)] {
        let answer = client.ask(asked(crumbs, others), b"").await;
        assert_eq!(answer.status, status, "{crumbs} and {others}");
    }
    let cookie = upstream.requests()[0].field("cookie")[0].to_owned();
    assert_eq!((cookie.matches("; ").count(), &cookie[..10]), (89, "c0=v; c1=v"));
}

/// An answer's head has the limits of a request's, in both protocols.
#[tokio::test]
async fn an_answer_s_head_has_the_limits_that_are_set() {
    let many = |count: usize| vec![("set-cookie", "a=b"); count];
    let large = |size: usize| "x".repeat(size);
    let limits = "headers: 200, headSize: 128KiB, ";
    // Fields, the size of another, and the statuses by default and with the limits above.
    for (count, size, default, raised) in [
        (95, 0, 200, 200),
        (150, 0, 502, 200),
        (250, 0, 502, 502),
        (0, 66_000, 502, 200),
        (0, 140_000, 502, 502),
    ] {
        let text = large(size);
        let mut told = many(count);
        told.push(("x", text.leak()));
        let two = h2::Upstream::play([h2::Act::Answer(Reply {
            fields: fields(&told),
            ..reply(200, "good")
        })])
        .await;
        let line = |(name, value): &(&str, &str)| format!("{name}: {value}\r\n");
        let lines = told.iter().map(line).collect::<Vec<_>>().concat();
        let one = Upstream::play([Act::Answer(answer(200, &lines, "good"))]).await;
        for (limits, wanted) in [("", default), (limits, raised)] {
            let to_two = h2_upstreams::one_route(two.address, "", "");
            for config in [one_route(&one, ""), to_two] {
                let proxy = Proxy::limited(limits, &config);
                let response = proxy.ask(GET).await;
                assert_eq!(response.status, wanted, "{count} {size} {limits} {config}");
                if wanted == 502 {
                    assert_eq!(response.json()["code"], "Provider.Call.Http.ProtocolError");
                }
            }
        }
    }
}

/// All of them, or the stream is reset: what the library leaves out may be what says how a call ended.
#[tokio::test]
async fn an_answer_s_trailers_come_whole_or_not_at_all() {
    let told = |size: usize| {
        let mut trailers = fields(&[("x-first", "1")]);
        trailers.insert("x-large", "l".repeat(size).parse().unwrap());
        trailers.append("grpc-status", "0".parse().unwrap());
        trailers
    };
    for (size, passes) in [(60_000, true), (70_000, false), (300_000, false)] {
        let trailers = Some((Duration::ZERO, told(size)));
        let answered = Reply { trailers, ..reply(200, "hello") };
        let upstream = h2::Upstream::play([h2::Act::Answer(answered)]).await;
        let proxy = Proxy::start(&h2_upstreams::one_route(upstream.address, "", ""));
        // A client that takes them.
        let mut builder = h2::client::Builder::new();
        builder.max_header_list_size(1 << 20);
        let stream = tokio::net::TcpStream::connect(proxy.address).await.unwrap();
        let (sender, connection) = within(builder.handshake(stream)).await.unwrap();
        let mut client = Client { sender, driver: tokio::spawn(connection) };
        match client.try_ask(request("GET", "/a", &[]), b"").await {
            Ok(answer) => {
                assert!(passes, "{size}");
                assert_eq!(answer.trailer("x-large").map(str::len), Some(size));
                assert_eq!(answer.trailer("grpc-status"), Some("0"));
            }
            Err(error) => {
                assert!(!passes, "{size}: {error}");
                assert!(error.is_reset() && error.is_remote(), "{error}");
            }
        }
        // And over HTTP/1.1, where they end a body in chunks.
        assert_eq!(proxy.ask(GET).await.whole, passes, "{size}");
    }
}

/// A client's, too. The last: fields that the library cuts off, and says nothing of.
#[tokio::test]
async fn a_request_s_trailers_come_whole_or_not_at_all() {
    let upstream = Upstream::play([always(200, "", "good")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    // The first is within the limit.
    for size in [60_000, 70_000, 300_000] {
        let mut client = Raw::connect(proxy.address, &[]).await;
        let head = frames::request("PUT", "/a", &[("trailer", "x-large"), ("te", "trailers")]);
        client.send(HEADERS, END_HEADERS, 1, &head).await;
        client.send(DATA, 0, 1, b"hello").await;
        let trailers = block(&[("x-first", "1"), ("x-large", &"l".repeat(size)), ("x-last", "1")]);
        let mut pieces = trailers.chunks(16_000).peekable();
        let mut kind = (HEADERS, END_STREAM);
        while let Some(piece) = pieces.next() {
            let ends = if pieces.peek().is_none() { END_HEADERS } else { 0 };
            client.send(kind.0, kind.1 | ends, 1, piece).await;
            kind = (CONTINUATION, 0);
        }
        client
            .until(|frame| frame.stream == 1 && [HEADERS, RST_STREAM].contains(&frame.kind))
            .await;
        assert_eq!(upstream.requests().iter().filter(|seen| seen.whole).count(), 1, "{size}");
    }
}

/// It may take fewer from now on than it said: the next request goes over another connection, and waits for nothing.
#[tokio::test]
async fn an_upstream_that_takes_fewer_streams_from_now_on_gets_another_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (lowers, mut lowered) = mpsc::channel::<()>(1);
    let (tells, mut told) = mpsc::channel::<u32>(9);
    tokio::spawn(async move {
        for connection in 0_u32.. {
            let (stream, _) = listener.accept().await.unwrap();
            let mut upstream = Raw::welcome(stream, &[(MAX_CONCURRENT_STREAMS, 100)]).await;
            let tells = tells.clone();
            let first = async {
                let asked = upstream.until(|frame| frame.kind == HEADERS).await;
                tells.send(connection).await.unwrap();
                if connection == 0 {
                    lowered.recv().await;
                    let fewer = settings(&[(MAX_CONCURRENT_STREAMS, 1)]);
                    upstream.send(SETTINGS, 0, 0, &fewer).await;
                    // Behind it, so that it is known that it was read.
                    upstream.send(frames::PING, 0, 0, &[7; 8]).await;
                    upstream.until(|frame| frame.kind == frames::PING).await;
                    tells.send(connection).await.unwrap();
                } else {
                    upstream.write(&head(OK, ENDS, asked.stream, &[])).await;
                }
            };
            first.await;
            tokio::spawn(async move { upstream.rest().await });
        }
    });
    let proxy = Proxy::start(&h2_upstreams::one_route(address, "", ""));
    let mut client = Client::connect(proxy.address).await;
    let _waiting = client.begin(request("GET", "/first", &[]), true).await;
    assert_eq!(within(told.recv()).await, Some(0));
    lowers.send(()).await.unwrap();
    assert_eq!(within(told.recv()).await, Some(0));
    assert_eq!(client.ask(request("GET", "/second", &[]), b"").await.status, 200);
    assert_eq!(within(told.recv()).await, Some(1));
}

/// Hints of an upstream of HTTP/2 reach clients of both protocols, of every attempt.
#[tokio::test]
async fn hints_come_from_an_upstream_of_http_2() {
    let hints = || vec![fields(&[("link", "</a>")]), fields(&[("link", "</b>")])];
    let acts = [(503, "busy"), (200, "good")];
    let acts = acts.map(|(status, body)| h2::Act::Hint(hints(), reply(status, body)));
    let script = move |number: usize| acts[number % 2].clone();
    let upstream = h2::Upstream::run(100, move |number, _| script(number)).await;
    let policy = "{ match: { codes: [Provider.Call.Http.*] }, attempts: 3 }";
    let retry = format!(
        "    middleware:\n      - provider: mwl:provider.middleware/mwl/retry/v1\n        onEntry: {{ with: {{ policies: [ {policy} ] }} }}\n"
    );
    let proxy = Proxy::start(&h2_upstreams::one_route(upstream.address, "", &retry));
    let mut client = Client::connect(proxy.address).await;
    let (mut response, _stream) = client.begin(request("GET", "/a", &[]), true).await;
    let mut heard = Vec::new();
    while let Some(hint) = h2::interim(&mut response).await {
        heard.push((hint.status().as_u16(), hint.headers()["link"].clone()));
    }
    assert_eq!(heard.len(), 4, "{heard:?}");
    assert_eq!((heard[0].0, &heard[3].1), (103, &"</b>".parse().unwrap()));
    assert_eq!(within(whole(response)).await.unwrap().text(), "good");
    let mut old = proxy.connect().await;
    old.send("GET /a HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").await;
    let said = String::from_utf8(old.rest().await).unwrap();
    assert_eq!(said.matches("HTTP/1.1 103 Early Hints\r\nlink: </").count(), 4, "{said}");
    assert!(said.contains("\r\ngood\r\n"), "{said}");
    assert!(!proxy.metrics.render().contains("mwl_interim_responses_dropped_total{"));
}

/// What an upstream may not say in HTTP/2.
#[tokio::test]
async fn a_change_of_the_protocol_is_no_answer_in_http_2() {
    let switched = |stream| {
        let fields = block(&[(":status", "101")]);
        frames::frame(HEADERS, END_HEADERS, stream, &fields)
    };
    let proxy = Proxy::start(&h2_upstreams::one_route(raw(switched).await, "", ""));
    let response = proxy.ask(GET).await;
    assert_eq!(response.status, 502);
    assert_eq!(response.json()["code"], "Provider.Call.Http.ProtocolError");
}
