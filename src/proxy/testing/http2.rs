//! One HTTP/2 connection in memory, whose other side may send any bytes.

use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::proxy::h2::{Builder, Error, RecvStream, ResponseFuture, SendResponse, SendStream};

/// How long a connection may go on after the last byte, in virtual time.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many bytes the other side takes.
const TAKEN: usize = 1 << 20;
/// How many requests a client sends.
const REQUESTS: usize = 3;

/// A client sends these bytes behind its preface, to a server that reads and answers every request. Returns what the server
/// has sent.
///
/// # Panics
/// When the server does not end.
pub async fn served(bytes: &[u8]) -> Vec<u8> {
    let (near, far) = duplex(TAKEN);
    let serving = async {
        let builder = Builder::new().max_concurrent_streams(10).max_header_list_size(10_000);
        let Ok(mut server) = builder.serve(near).await else {
            return;
        };
        let mut answering = JoinSet::new();
        while let Some(Ok((request, respond))) = server.accept().await {
            answering.spawn(answer(request.into_body(), respond));
        }
    };
    let greeting = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], bytes].concat();
    let (said, ended) = tokio::join!(other_side(far, &greeting), within(PATIENCE * 2, serving));
    assert!(ended.is_some(), "the server does not end");
    said
}

/// A server sends these bytes to a client that has made some requests. Returns what the client has sent.
///
/// # Panics
/// When the client does not end.
pub async fn asked(bytes: &[u8]) -> Vec<u8> {
    let (near, far) = duplex(TAKEN);
    let asking = async {
        let (sender, connection) = Builder::new().max_header_list_size(10_000).connect(near);
        let mut asking = JoinSet::new();
        asking.spawn(async move { drop(connection.await) });
        for number in 0..REQUESTS {
            let ends = number == 0;
            if let Ok((response, stream)) = sender.send_request(request(), ends) {
                asking.spawn(ask(response, (!ends).then_some(stream)));
            }
        }
        drop(sender);
        while asking.join_next().await.is_some() {}
    };
    let (said, ended) = tokio::join!(other_side(far, bytes), within(PATIENCE * 2, asking));
    assert!(ended.is_some(), "the client does not end");
    said
}

/// Sends bytes and takes what comes, until nothing comes any more.
async fn other_side(mut far: DuplexStream, bytes: &[u8]) -> Vec<u8> {
    let mut said = Vec::new();
    if far.write_all(bytes).await.is_ok() {
        // After that it says nothing, and then it closes.
        let reading = async { while far.read_buf(&mut said).await.is_ok_and(|read| read > 0) {} };
        within(PATIENCE, reading).await;
    }
    said
}

/// What `done` gives, unless that takes longer than `limit`.
async fn within<T>(limit: Duration, done: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        done = done => Some(done),
        () = sleep(limit) => None,
    }
}

fn request() -> Request<()> {
    let mut request = Request::new(());
    *request.uri_mut() = http::Uri::from_static("http://t/");
    request
}

async fn answer(body: RecvStream, mut respond: SendResponse) {
    if let Ok(stream) = respond.send_response(Response::new(()), false) {
        drop(tokio::join!(read(body), send(stream)));
    }
}

async fn ask(mut response: ResponseFuture, stream: Option<SendStream>) {
    let sending = async {
        if let Some(stream) = stream {
            drop(send(stream).await);
        }
    };
    let receiving = async {
        while let Some(Ok(_)) = poll_fn(|cx| response.poll_informational(cx)).await {}
        if let Ok(response) = response.await {
            drop(read(response.into_body()).await);
        }
    };
    tokio::join!(sending, receiving);
}

async fn send(mut stream: SendStream) -> Result<(), Error> {
    let mut left = Bytes::from(vec![b'd'; 70_000]);
    while !left.is_empty() {
        stream.reserve_capacity(left.len());
        let Some(capacity) = poll_fn(|cx| stream.poll_capacity(cx)).await else {
            return Ok(());
        };
        stream.send_data(left.split_to(capacity?.min(left.len())), false)?;
    }
    stream.send_trailers(HeaderMap::new())
}

async fn read(mut body: RecvStream) -> Result<Option<HeaderMap>, Error> {
    while let Some(data) = body.data().await {
        body.release_capacity(data?.len());
    }
    body.trailers().await
}
