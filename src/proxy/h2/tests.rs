//! Bodies over a connection, and what another HTTP/2 makes of them.

use std::convert::Infallible;
use std::pin::Pin;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, StreamBody};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use proptest::prelude::*;
use tokio::io::duplex;

use super::*;
use crate::proxy::settings::HeadLimits;

const HEADS: HeadLimits = HeadLimits { size: 64 * 1024, fields: 100 };

/// The frames of a body.
type Frames = Vec<Result<Frame<Bytes>, Infallible>>;
type Made =
    StreamBody<futures_util::stream::Iter<std::vec::IntoIter<Result<Frame<Bytes>, Infallible>>>>;

/// A body in these pieces, with this trailer.
fn body(pieces: &[usize], trailer: Option<u8>) -> Made {
    let piece = |(at, size): (usize, &usize)| {
        Ok(Frame::data(Bytes::from(vec![u8::try_from(at % 251).unwrap(); *size])))
    };
    let mut frames: Frames = pieces.iter().enumerate().map(piece).collect();
    if let Some(trailer) = trailer {
        let fields = HeaderMap::from_iter([("x-sum".parse().unwrap(), u16::from(trailer).into())]);
        frames.push(Ok(Frame::trailers(fields)));
    }
    StreamBody::new(futures_util::stream::iter(frames))
}

/// What came of one.
async fn taken<B: Body<Data = Bytes> + Unpin>(body: B) -> Option<(Bytes, Option<HeaderMap>)> {
    let all = body.collect().await.ok()?;
    let trailers = all.trailers().cloned();
    Some((all.to_bytes(), trailers))
}

/// A request of another client's whose body comes back as it is, over a connection of which the pipe holds `holds`,
/// and the client gives a window of `window`.
async fn echoed(request: Made, holds: usize, window: u32) -> Option<(Bytes, Option<HeaderMap>)> {
    let (near, far) = duplex(holds);
    let echo = tokio::spawn(async move {
        let protocol = Builder::new().initial_window_size(WINDOW);
        let mut connection =
            protocol.max_send_buffer_size(WINDOW as usize).serve(near).await.unwrap();
        let mut echoes = tokio::task::JoinSet::new();
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            let (head, stream) = request.into_parts();
            let incoming = Incoming::new(stream, &head.headers, HEADS);
            echoes.spawn(async move {
                let stream = respond.send_response(Response::new(()), false).unwrap();
                let mut sending = BodyWriter::new(stream, incoming);
                std::future::poll_fn(|cx| sending.poll(cx)).await.unwrap();
            });
        }
    });
    let mut protocol = http2::Builder::new(TokioExecutor::new());
    protocol.initial_stream_window_size(window).initial_connection_window_size(window.max(65_535));
    let (mut sender, connection) = protocol.handshake(TokioIo::new(far)).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut request = Request::new(request);
    *request.uri_mut() = "http://t/".parse().unwrap();
    *request.method_mut() = http::Method::POST;
    let response = sender.send_request(request).await.unwrap();
    let taken = taken(response.into_body()).await;
    drop(sender);
    connection.await.unwrap().unwrap();
    echo.await.unwrap();
    taken
}

fn run<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the pieces, the windows and the pipe: what was sent comes back.
    #[test]
    fn a_body_comes_back_as_it_went(
        pieces in prop::collection::vec(
            prop_oneof![Just(0), 1..50_usize, 1000..40_000_usize, Just(65_536), Just(200_000)], 0..8),
        trailer: Option<u8>,
        holds in prop_oneof![40..200_usize, Just(1 << 20)],
        window in prop_oneof![Just(1_u32 << 16), 1000..20_000_u32],
    ) {
        let wanted = run(taken(body(&pieces, trailer)));
        let came = run(echoed(body(&pieces, trailer), holds, window));
        prop_assert_eq!(came, wanted);
    }
}

/// The other end says `last` in the place of the end of a body: how that is read.
async fn ends(last: impl FnOnce(&mut h2::SendStream<Bytes>)) -> (Vec<u8>, Result<(), String>) {
    let (near, far) = duplex(1 << 20);
    let client = h2::client::handshake(far);
    let (client, connection) = tokio::join!(client, Builder::new().serve(near));
    let ((mut sender, driver), mut connection) = (client.unwrap(), connection.unwrap());
    let driver = tokio::spawn(driver);
    let mut request = Request::new(());
    *request.uri_mut() = "http://t/".parse().unwrap();
    let (_response, mut stream) = sender.send_request(request, false).unwrap();
    stream.send_data(Bytes::from_static(b"half"), false).unwrap();
    let (request, _respond) = connection.accept().await.unwrap().unwrap();
    let serving = tokio::spawn(async move { while connection.accept().await.is_some() {} });
    let (head, body) = request.into_parts();
    let mut incoming = Incoming::new(body, &head.headers, HEADS);
    let mut read = Vec::new();
    let first = incoming.frame().await.unwrap().unwrap().into_data().unwrap();
    read.extend_from_slice(&first);
    last(&mut stream);
    let ended = loop {
        match std::future::poll_fn(|cx| Pin::new(&mut incoming).poll_frame(cx)).await {
            Some(Ok(frame)) => read.extend(frame.into_data().unwrap_or_default()),
            Some(Err(error)) => break Err(error.to_string()),
            None => break Ok(()),
        }
    };
    driver.abort();
    serving.abort();
    (read, ended)
}

#[tokio::test]
async fn only_an_end_ends_a_body() {
    let whole = ends(|stream| stream.send_data(Bytes::from_static(b"!"), true).unwrap()).await;
    assert_eq!(whole, (b"half!".to_vec(), Ok(())));
    for reason in [h2::Reason::NO_ERROR, h2::Reason::CANCEL] {
        let (read, ended) = ends(|stream| stream.send_reset(reason)).await;
        assert_eq!(read, b"half");
        assert!(ended.unwrap_err().starts_with("stream error received"), "{reason:?}");
    }
}

#[test]
fn a_connection_s_window_has_a_bound() {
    assert_eq!(connection_window(100), 100 * WINDOW);
    assert_eq!(connection_window(u32::MAX), (1 << 31) - 1);
}
