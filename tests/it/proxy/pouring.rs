//! Large bodies, which go from socket to socket: what a client gets, whatever becomes of either side.

use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::TcpSocket;
use tokio::time::sleep;

use super::one_route;
use crate::support::proxy::{Client, Proxy, within};
use crate::support::upstream::{Act, Upstream};

const GET: &str = "GET /a HTTP/1.1\r\nHost: t\r\n\r\n";
/// Large enough for many pieces.
const LARGE: usize = 3 << 20;

/// By so much the proxy's head is longer than the upstream's.
const DATED: usize = "date: Sat, 28 Nov 2026 00:00:00 GMT\r\n".len();

/// Letters of which no two stretches are alike, so that one that is lost or moved is seen.
fn letters(size: usize, seed: u32) -> String {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(b'a' + (state >> 24) as u8 % 26)
    };
    (0..size).map(next).collect()
}

fn said(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// Asserts that `response` is the one with this body, without showing a megabyte where it is not.
fn assert_is(response: &crate::support::proxy::Response, body: &str) {
    assert!(response.whole, "it came to {} of {} bytes", response.body.len(), body.len());
    let pairs = response.body.bytes().zip(body.bytes());
    let differs = pairs.into_iter().position(|(got, wanted)| got != wanted);
    assert_eq!((differs, response.body.len()), (None, body.len()));
}

#[tokio::test]
async fn bodies_around_the_bound_come_whole_and_in_order_over_kept_connections() {
    let sizes: Vec<usize> =
        vec![49_151, 49_152, 200_000, LARGE, 1, 65_536, 1 << 20, 57_344, 8_192, 40_000, 262_145];
    let bodies: Vec<_> = sizes.iter().zip(1..).map(|(size, seed)| letters(*size, seed)).collect();
    let acts: Vec<_> = bodies.iter().map(|body| Act::Answer(said(body))).collect();
    let upstream = Upstream::play(acts).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = proxy.connect().await;
    for body in &bodies {
        assert_is(&client.ask(GET).await, body);
    }
    assert_eq!(upstream.accepted(), 1);
    assert_eq!(proxy.metric(r#"mwl_requests_total{route="r",status="200"}"#), sizes.len() as u64);
}

/// The read that brings a head has about as much room as the last head took.
#[tokio::test]
async fn heads_of_all_sizes_stand_before_large_bodies() {
    let sizes = [0, 200, 5_000, 10, 9_000, 8_000, 40_000, 1, 300];
    let body = letters(200_000, 5);
    let padded = |size: &usize| {
        let padding = "p".repeat(*size);
        let head = format!("HTTP/1.1 200 OK\r\nX: {padding}\r\nContent-Length: {}", body.len());
        Act::Answer(format!("{head}\r\n\r\n{body}").into_bytes())
    };
    let upstream = Upstream::play(sizes.iter().map(padded).collect::<Vec<_>>()).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = proxy.connect().await;
    for size in sizes {
        let response = client.ask(GET).await;
        assert_eq!(response.field("x").concat().len(), size);
        assert_is(&response, &body);
    }
    assert_eq!(upstream.accepted(), 1);
}

/// A head waits for its body only where that is there.
#[tokio::test]
async fn what_came_of_a_large_answer_is_not_held_back() {
    let whole = said(&letters(LARGE, 6));
    for came in [0, 1, 300, 50_000, 70_000, 1_000_000] {
        let part = whole[..whole.len() - LARGE + came].to_vec();
        let upstream = Upstream::play([Act::AnswerAndHang(part.clone())]).await;
        let proxy = Proxy::start(&one_route(&upstream, ""));
        let mut client = proxy.connect().await;
        client.send(GET).await;
        let read = within(reads_slowly(&mut client, part.len() + DATED)).await;
        assert!(read.ends_with(&part[part.len() - came..]), "{came}");
    }
}

#[tokio::test]
async fn a_body_that_comes_in_pieces_is_poured_as_it_comes() {
    let body = letters(1 << 20, 7);
    let whole = said(&body);
    let parts: Vec<Vec<u8>> = whole.chunks(150_001).map(<[u8]>::to_vec).collect();
    let upstream = Upstream::play([Act::Slowly(Duration::from_millis(5), parts)]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = proxy.connect().await;
    for _ in 0..3 {
        assert_is(&client.ask(GET).await, &body);
    }
    assert_eq!(upstream.accepted(), 1);
}

/// Reads a little at a time, so that what was poured waits in the middle.
async fn reads_slowly(client: &mut Client, size: usize) -> Vec<u8> {
    let mut read = Vec::with_capacity(size);
    let mut piece = vec![0; 50_000];
    while read.len() < size {
        let got = client.stream.read(&mut piece).await.unwrap();
        assert!(got > 0, "it ended behind {} bytes", read.len());
        read.extend_from_slice(&piece[..got]);
        tokio::task::yield_now().await;
        if read.len() % 7 == 0 {
            sleep(Duration::from_millis(1)).await;
        }
    }
    read
}

#[tokio::test]
async fn slow_readers_side_by_side_each_get_their_own() {
    let bodies: Vec<_> = (0..40).map(|seed| letters(1 << 20, seed)).collect();
    let answers = bodies.clone();
    let upstream = Upstream::run(move |_, request| {
        let number: usize = request.line()[5..].split(' ').next().unwrap().parse().unwrap();
        Act::Answer(said(&answers[number]))
    })
    .await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    // More at once than there are pipes: the others are copied.
    let readers = bodies.iter().enumerate().map(async |(number, body)| {
        let mut client = proxy.connect().await;
        client.send(format!("GET /{number} HTTP/1.1\r\nHost: t\r\n\r\n")).await;
        sleep(Duration::from_millis(50)).await;
        let wanted = said(body);
        let head = b"HTTP/1.1 200 OK\r\n".len();
        let read = reads_slowly(&mut client, wanted.len() + DATED).await;
        assert!(read.starts_with(&wanted[..head]) && read.ends_with(body.as_bytes()), "{number}");
    });
    within(futures_util::future::join_all(readers)).await;
}

/// More than both sockets hold, so that a piece waits in its pipe while the client reads nothing.
#[tokio::test]
async fn a_piece_that_waits_is_the_next_to_be_read() {
    let body = letters(8 << 20, 9);
    let upstream = Upstream::play([Act::Answer(said(&body))]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(65_536).unwrap();
    let mut client = Client::over(socket.connect(proxy.address).await.unwrap());
    for _ in 0..2 {
        client.send(GET).await;
        sleep(Duration::from_millis(100)).await;
        assert_is(&client.response(false).await, &body);
    }
    assert_eq!(upstream.accepted(), 1);
}

#[tokio::test]
async fn a_client_that_leaves_in_the_midst_leaves_nothing_to_others() {
    // More than the sockets between here and there hold.
    let (lost, kept) = (letters(1 << 20, 1).repeat(24), letters(LARGE, 2));
    let answers = [said(&lost), said(&kept)];
    let upstream = Upstream::run(move |_, request| {
        Act::Answer(answers[usize::from(request.line().contains("/kept"))].clone())
    })
    .await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    for round in 0..40 {
        let mut leaver = proxy.connect().await;
        leaver.send("GET /lost HTTP/1.1\r\nHost: t\r\n\r\n").await;
        let mut some = vec![0; 1 + 40_000 * (round % 8)];
        within(leaver.stream.read_exact(&mut some)).await.unwrap();
        drop(leaver);
        if round % 10 == 9 {
            let response = proxy.ask("GET /kept HTTP/1.1\r\nHost: t\r\n\r\n").await;
            assert_is(&response, &kept);
        }
    }
    proxy.until_empty().await;
    assert_eq!(proxy.metric(r#"mwl_requests_total{route="r",status="200"}"#), 4);
    assert_eq!(proxy.metric(r#"mwl_requests_total{route="r",status="499"}"#), 40);
}

#[tokio::test]
async fn a_large_body_that_breaks_off_is_closed_short() {
    let mut whole = said(&letters(LARGE, 3));
    whole.truncate(LARGE / 2);
    let upstream = Upstream::play([Act::AnswerAndClose(whole)]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = proxy.connect().await;
    let response = client.ask(GET).await;
    assert!(!response.whole && response.body.len() > LARGE / 3, "{}", response.body.len());
    assert!(letters(LARGE, 3).starts_with(&response.body));
    assert!(client.rest().await.is_empty());
}

#[tokio::test]
async fn a_large_body_that_stands_still_is_cut() {
    let mut whole = said(&letters(LARGE, 4));
    whole.truncate(LARGE / 2);
    let upstream = Upstream::play([Act::AnswerAndHang(whole)]).await;
    let config = one_route(&upstream, "").replace("'] }", "'], idleTimeout: PT0.2S }");
    let proxy = Proxy::start(&config);
    let mut client = proxy.connect().await;
    let response = client.ask(GET).await;
    assert!(!response.whole && letters(LARGE, 4).starts_with(&response.body));
    upstream.ended(1).await;
}
