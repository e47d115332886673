//! Whole exchanges over a pipe, with the `h2` crate's server at the other end.

use std::future::poll_fn;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use h2::server::{Connection, handshake};
use http::{Method, Request, Uri};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::sleep;

use super::*;
use crate::proxy::body::whole::Whole;
use crate::proxy::io::Io;
use crate::proxy::settings::HeadLimits;

const HEADS: HeadLimits = HeadLimits { size: 64 * 1024, fields: 100 };
const INTERVAL: Duration = Duration::from_secs(1);
const LIMITS: ExchangeLimits = ExchangeLimits { heads: HEADS, idle: Duration::from_secs(5) };

/// A connection that sends PINGs, and its other end.
async fn connected() -> (NewConnection, Connection<DuplexStream, Bytes>) {
    let (near, far) = duplex(1 << 20);
    let (near, deadline) = (Io::Other(Box::new(near)), Instant::now() + INTERVAL);
    let (opened, far) = tokio::join!(open(near, HEADS, INTERVAL, deadline), handshake(far));
    (opened.unwrap(), far.unwrap())
}

/// Sends the connection's only request.
fn ask(opened: &NewConnection) -> Exchange {
    opened.carried.store(1, Ordering::Relaxed);
    send(opened, RequestBody::EMPTY)
}

fn send(opened: &NewConnection, body: RequestBody) -> Exchange {
    let mut request = Request::new(body);
    *request.method_mut() = Method::PUT;
    *request.uri_mut() = Uri::from_static("http://t/");
    Exchange::send(&opened.sender, request, LIMITS, &opened.traffic).unwrap()
}

/// The error of a request that gets no response, and how long that takes.
async fn fails(mut exchange: Exchange) -> (Error, Duration) {
    let begun = Instant::now();
    let error = poll_fn(|cx| exchange.poll_answer(cx, &mut |_| {})).await.err().unwrap();
    (error, begun.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_is_sent_a_ping_and_closed() {
    let (opened, far) = connected().await;
    let (error, took) = fails(ask(&opened)).await;
    assert!(matches!(error, Error::Io(_)), "{error:?}");
    assert_eq!(took.as_secs(), 2, "{took:?}");
    assert!(opened.sender.check().is_err());
    drop(far);
}

#[tokio::test(start_paused = true)]
async fn a_slow_response_is_awaited_while_pings_are_answered() {
    let (opened, mut far) = connected().await;
    let answering = tokio::spawn(async move {
        let (_request, mut respond) = far.accept().await.unwrap().unwrap();
        let answered = async {
            sleep(INTERVAL * 100).await;
            respond.send_response(http::Response::new(()), true).unwrap();
        };
        tokio::join!(answered, async { while far.accept().await.is_some() {} });
    });
    let mut exchange = ask(&opened);
    let begun = Instant::now();
    let (answer, incoming) = poll_fn(|cx| exchange.poll_answer(cx, &mut |_| {})).await.unwrap();
    assert_eq!((answer.status.as_u16(), incoming.is_ended()), (200, true));
    assert!(begun.elapsed() >= INTERVAL * 100);
    drop((exchange, incoming, opened));
    answering.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_requests_is_sent_no_ping() {
    let (opened, far) = connected().await;
    sleep(INTERVAL * 100).await;
    assert!(opened.sender.check().is_ok());
    // A PING may follow the next request at once, or after an interval.
    let (_, took) = fails(ask(&opened)).await;
    assert!((1..=2).contains(&took.as_secs()), "{took:?}");
    drop(far);
}

#[tokio::test(start_paused = true)]
async fn an_upload_without_a_window_ends() {
    let (near, far) = duplex(1 << 20);
    let (near, deadline) = (Io::Other(Box::new(near)), Instant::now() + INTERVAL);
    let mut server = h2::server::Builder::new();
    let far = server.initial_window_size(100).handshake::<_, Bytes>(far);
    let (opened, far) = tokio::join!(open(near, HEADS, Duration::ZERO, deadline), far);
    let (opened, mut far) = (opened.unwrap(), far.unwrap());
    let serving = tokio::spawn(async move {
        let (mut request, _respond) = far.accept().await.unwrap().unwrap();
        // Every 4 s it takes a little, and then nothing any more.
        let taking = async {
            for _ in 0..3 {
                sleep(Duration::from_secs(4)).await;
                let body = request.body_mut();
                let size = body.data().await.unwrap().unwrap().len();
                body.flow_control().release_capacity(size).unwrap();
            }
            let rest = poll_fn(|cx| request.body_mut().poll_data(cx));
            sleep(Duration::from_secs(6)).await;
            rest.await
        };
        let (last, ()) = tokio::join!(taking, async { while far.accept().await.is_some() {} });
        last
    });
    let body = Whole::new(Bytes::from(vec![b'u'; 100_000]), None);
    let (error, took) = fails(send(&opened, RequestBody::Whole(body))).await;
    assert!(matches!(error, Error::Stalled(_)), "{error:?}");
    assert_eq!(took.as_secs(), 12 + 5, "{took:?}");
    drop(opened);
    let last = serving.await.unwrap();
    assert!(last.is_some_and(|last| last.is_ok_and(|data| data.len() == 100)));
}

/// The streams of the HEADERS frames that a client has written.
async fn opened_streams(far: &mut DuplexStream) -> Vec<u32> {
    let mut bytes = Vec::with_capacity(4096);
    far.read_buf(&mut bytes).await.unwrap();
    let mut rest = &bytes[24..];
    let mut streams = Vec::new();
    while let [_, l1, l2, kind, _, s0, s1, s2, s3, after @ ..] = rest {
        if *kind == 1 {
            streams.push(u32::from_be_bytes([*s0, *s1, *s2, *s3]));
        }
        rest = &after[usize::from(u16::from_be_bytes([*l1, *l2]))..];
    }
    streams
}

/// Otherwise it would wait until another stream has ended.
#[tokio::test(start_paused = true)]
async fn a_request_is_written_before_fewer_are_accepted() {
    let (near, mut far) = duplex(1 << 20);
    far.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
    let (near, deadline) = (Io::Other(Box::new(near)), Instant::now() + INTERVAL);
    let opened = open(near, HEADS, Duration::ZERO, deadline).await.unwrap();
    let _first = ask(&opened);
    sleep(Duration::from_millis(1)).await;
    // MAX_CONCURRENT_STREAMS of 1 arrives, and before it is read, there is another request.
    far.write_all(&[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1]).await.unwrap();
    assert!(opened.sender.current_max_send_streams() > 1);
    let _second = ask(&opened);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(opened.sender.current_max_send_streams(), 1);
    assert_eq!(opened_streams(&mut far).await, [1, 3]);
}
