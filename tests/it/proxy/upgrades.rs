use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::Message;

use super::one_route;
use crate::support::piped::Piped;
use crate::support::proxy::{Client, Proxy, within};
use crate::support::stack::retry;
use crate::support::upstream::{Act, Upstream, always};
use crate::support::websocket;

const ASK: &str = "GET /ws HTTP/1.1\r\nHost: t\r\nConnection: keep-alive, Upgrade\r\nUpgrade: x/1\r\nX-K: 1\r\n\r\n";
const AGREE: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x/1\r\nX-A: 2\r\n\r\n";
const RETRY: &str =
    concat!("    middleware:\n", retry!("match: { codes: [Provider.Call.Http.*] }, attempts: 3"),);

fn echo() -> Act {
    Act::Echo(AGREE.to_vec())
}

/// Says `words` and hears them again.
async fn converse<T>(client: &mut Client<T>, words: &str)
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    client.send(words).await;
    let mut heard = vec![0; words.len()];
    within(client.stream.read_exact(&mut heard)).await.unwrap();
    assert_eq!(heard, words.as_bytes());
}

#[tokio::test]
async fn a_websocket_carries_messages_of_any_size_and_its_farewell() {
    let server = websocket::server().await;
    let config = format!(
        "upstreams: {{ u: {{ endpoints: ['http://{server}'] }} }}\nroutes: [{{ name: r, upstream: u }}]\n"
    );
    let proxy = Proxy::start(&config);
    let stream = TcpStream::connect(proxy.address).await.unwrap();
    let (mut socket, answer) = within(client_async("ws://t/chat", stream)).await.unwrap();
    assert_eq!(answer.status().as_u16(), 101);
    let large = vec![7_u8; 1_000_000];
    for message in [Message::text("hello"), Message::binary(large), Message::text("")] {
        within(socket.send(message.clone())).await.unwrap();
        assert_eq!(within(socket.next()).await.unwrap().unwrap(), message);
    }
    assert_eq!(proxy.metric(r#"mwl_requests_in_flight{route="r"}"#), 1);
    assert_eq!(proxy.server.connections(), 1);
    within(socket.close(None)).await.unwrap();
    assert!(within(socket.next()).await.unwrap().unwrap().is_close());
    drop(socket);
    proxy.until_empty().await;
    assert_eq!(proxy.metric(r#"mwl_requests_total{route="r",status="101"}"#), 1);
    assert_eq!(proxy.metric(r#"mwl_requests_in_flight{route="r"}"#), 0);
    let active = r#"mwl_upstream_connections{state="active",upstream="u"}"#;
    assert_eq!(proxy.metric(active), 0);
}

#[tokio::test]
async fn through_a_retry_the_second_answer_opens_the_tunnel_and_nothing_opens_another() {
    let upstream = Upstream::play([always(503, "", "busy"), echo()]).await;
    let proxy = Proxy::start(&one_route(&upstream, RETRY));
    let mut client = proxy.connect().await;
    let answer = client.ask(ASK).await;
    assert_eq!(answer.status, 101);
    assert_eq!(answer.field("connection"), ["upgrade"]);
    assert_eq!((answer.field("upgrade"), answer.field("x-a")), (vec!["x/1"], vec!["2"]));
    assert!(
        answer.field("content-length").is_empty() && answer.field("transfer-encoding").is_empty()
    );
    for words in ["one", "GET / HTTP/1.1\r\n\r\n", "three"] {
        converse(&mut client, words).await;
    }
    drop(client);
    proxy.until_empty().await;
    upstream.ended(1).await;
    let seen = upstream.requests();
    assert_eq!(seen.len(), 2, "nothing after the close");
    for seen in seen {
        assert_eq!(
            (seen.field("connection"), seen.field("upgrade")),
            (vec!["upgrade"], vec!["x/1"])
        );
        assert_eq!(seen.field("x-k"), ["1"]);
    }
}

#[tokio::test]
async fn words_that_come_with_the_heads_are_not_lost() {
    let greeting = [AGREE, b"welcome"].concat();
    let upstream = Upstream::play([Act::Echo(greeting)]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = proxy.connect().await;
    client.send([ASK, "early"].concat()).await;
    assert_eq!(client.response(false).await.status, 101);
    let mut heard = client.buffered();
    within(async {
        while heard.len() < 12 {
            client.stream.read_buf(&mut heard).await.unwrap();
        }
    })
    .await;
    assert_eq!(heard, b"welcomeearly");
}

/// A hint that came first is said first: behind the 101 it would be a word of the other protocol.
#[tokio::test]
async fn a_hint_comes_before_the_change_of_protocol() {
    let hint = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n";
    let upstream = Upstream::play([Act::Echo([hint.as_bytes(), AGREE].concat())]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    for _ in 0..10 {
        let mut client = proxy.connect().await;
        client.send(ASK).await;
        let mut heard = vec![0; hint.len()];
        within(client.stream.read_exact(&mut heard)).await.unwrap();
        assert_eq!(heard, hint.as_bytes());
        assert_eq!(client.response(false).await.status, 101);
        assert!(client.buffered().is_empty());
        converse(&mut client, "words").await;
    }
}

#[tokio::test]
async fn one_side_s_end_is_passed_on_and_the_other_may_still_speak() {
    let upstream = Upstream::play([echo()]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = proxy.connect().await;
    assert_eq!(client.ask(ASK).await.status, 101);
    client.send("last words").await;
    tokio::io::AsyncWriteExt::shutdown(&mut client.stream).await.unwrap();
    assert_eq!(client.rest().await, b"last words");
    proxy.until_empty().await;
}

#[tokio::test]
async fn an_upstream_that_does_not_agree_answers_as_ever() {
    let upstream =
        Upstream::play([always(426, "upgrade: x/2\r\n", "no"), always(200, "", "plain")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = proxy.connect().await;
    let answer = client.ask(ASK).await;
    assert_eq!((answer.status, answer.body.as_str()), (426, "no"));
    assert_eq!(client.ask(ASK).await.body, "plain");
    let get = "GET / HTTP/1.1\r\nHost: t\r\n\r\n";
    assert_eq!(client.ask(get).await.body, "plain");
    assert_eq!(upstream.accepted(), 1);
    assert!(upstream.requests()[2].field("upgrade").is_empty());
    // The library lets go of a connection that once might have changed: it is closed all the same.
    client.send(ASK.replace("keep-alive", "close")).await;
    assert_eq!(client.response(false).await.body, "plain");
    assert!(client.rest().await.is_empty());
}

#[tokio::test]
async fn what_is_no_offer_is_not_passed_on_and_101_is_then_no_answer() {
    let upstream = Upstream::play([Act::Answer(AGREE.to_vec())]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    for (number, (version, fields)) in [
        ("1.1", "Upgrade: x/1\r\n"),
        ("1.1", "Connection: upgrade\r\n"),
        ("1.1", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"),
        ("1.1", "Connection: upgrade\r\nUpgrade: TLS/1.0, HTTP/2.0\r\n"),
        ("1.0", "Connection: upgrade\r\nUpgrade: x/1\r\n"),
        ("1.1", ""),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = proxy.ask(&format!("GET / HTTP/{version}\r\nHost: t\r\n{fields}\r\n")).await;
        assert_eq!(answer.status, 502, "{fields:?}");
        assert_eq!(answer.json()["code"], "Provider.Call.Http.ProtocolError");
        let seen = &upstream.requests()[number];
        for name in ["connection", "upgrade", "http2-settings"] {
            assert!(seen.field(name).is_empty(), "{fields:?}: {name}");
        }
    }
    let other = ASK.replace("x/1", "y");
    let answer = proxy.ask(&other).await;
    assert_eq!(answer.status, 502, "it was not offered x/1");
}

#[tokio::test]
async fn a_drain_waits_for_a_tunnel_until_its_grace_is_over() {
    let upstream = Upstream::play([echo()]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = proxy.connect().await;
    assert_eq!(client.ask(ASK).await.status, 101);
    // A drain that is given up in its grace is as good as one whose grace goes on.
    tokio::select! {
        cut = proxy.server.drain(Duration::from_mins(1)) => panic!("{cut} were cut in the grace"),
        () = converse(&mut client, "still here") => {}
    }
    let cut = proxy.server.drain(Duration::from_millis(20)).await;
    assert!(client.rest().await.is_empty());
    assert_eq!(cut, 1);
    upstream.ended(1).await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_tunnel_has_a_bound() {
    let limits = "tunnelTimeout: PT3S, bodyTimeout: PT1S, idleTimeout: PT1S, headTimeout: PT1S, ";
    let (mut piped, upstream) = Piped::before([echo()], limits, "");
    let ask = ASK.replace("/ws", "/a");
    assert_eq!(piped.client.ask(&ask).await.status, 101);
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_secs(2)).await;
        converse(&mut piped.client, "tick").await;
    }
    let begun = tokio::time::Instant::now();
    assert!(piped.client.rest().await.is_empty());
    assert_eq!(begun.elapsed().as_secs(), 3);
    upstream.ended(1).await;
}

#[tokio::test]
async fn a_tunnel_counts_against_the_limits_of_connections_and_requests() {
    let upstream = Upstream::play([echo(), always(200, "", "x")]).await;
    let proxy = Proxy::limited("connections: 2, requests: 1, ", &one_route(&upstream, ""));
    let mut client = proxy.connect().await;
    assert_eq!(client.ask(ASK).await.status, 101);
    let mut second = proxy.connect().await;
    let get = "GET / HTTP/1.1\r\nHost: t\r\n\r\n";
    assert_eq!(second.ask(get).await.status, 503);
    let mut third = proxy.connect().await;
    third.send(get).await;
    converse(&mut client, "held").await;
    assert_eq!(second.ask(get).await.status, 503);
    drop(client);
    assert_eq!(third.response(false).await.body, "x");
}
