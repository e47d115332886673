//! Whole exchanges over a pipe, and what another client makes of the same bytes.

mod answers;
mod exchanges;

use std::borrow::Cow;
use std::future::poll_fn;

use http::{Request, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::yield_now;

use super::*;

fn outgoing(method: Method) -> Outgoing<'static> {
    Outgoing {
        method,
        uri: Cow::Owned(Uri::from_static("/a?b=c")),
        fields: Cow::Owned(HeaderMap::new()),
        names_endpoint: false,
        upgrade: None,
        expects: false,
        trailers: false,
    }
}

fn link() -> (Box<Link>, DuplexStream) {
    let (near, far) = duplex(1 << 20);
    (Link::new(Io::Other(Box::new(near))), far)
}

fn asked(method: Method) -> (Box<Link>, DuplexStream) {
    let (mut link, far) = link();
    link.send(&outgoing(method), "e:1", RequestBody::Empty);
    (link, far)
}

/// What a client makes of what an upstream says.
#[derive(Debug, Default, PartialEq)]
struct Heard {
    /// `Err` where there was no answer: whether what came was no HTTP.
    status: Option<Result<u16, bool>>,
    fields: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    trailers: Vec<(String, Vec<u8>)>,
    /// Whether the body came to its end.
    whole: bool,
    /// Whether the connection carries another request.
    reusable: bool,
}

fn listed(fields: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    let one = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        (name.as_str().to_owned(), value.as_bytes().to_vec())
    };
    let mut all: Vec<_> = fields.iter().map(one).collect();
    all.sort();
    all
}

impl Heard {
    fn frame(&mut self, frame: Frame<Bytes>) {
        match frame.into_data() {
            Ok(data) => self.body.extend_from_slice(&data),
            Err(frame) => self.trailers = listed(frame.trailers_ref().unwrap()),
        }
    }
}

/// Hears a request, says `pieces`, one at a time, and then closes the connection or leaves it open.
async fn say(mut far: DuplexStream, pieces: Vec<Vec<u8>>, closes: bool) -> Option<DuplexStream> {
    let mut asked = Vec::new();
    while !asked.ends_with(b"\r\n\r\n") {
        far.read_buf(&mut asked).await.unwrap();
    }
    for piece in pieces {
        if far.write_all(&piece).await.is_err() {
            return None;
        }
        for _ in 0..3 {
            yield_now().await;
        }
    }
    (!closes).then_some(far)
}

async fn by_link(method: Method, pieces: Vec<Vec<u8>>, closes: bool) -> Heard {
    let (mut link, far) = asked(method);
    let hear = async {
        let mut heard = Heard::default();
        match poll_fn(|cx| link.poll_answer(cx, &mut |_| {})).await {
            Ok(answer) => {
                heard.status = Some(Ok(answer.status.as_u16()));
                heard.fields = listed(&answer.fields);
            }
            Err(error) => {
                heard.status = Some(Err(matches!(error, Error::Malformed(_))));
                return heard;
            }
        }
        loop {
            match poll_fn(|cx| link.poll_body(cx)).await {
                Some(Ok(frame)) => heard.frame(frame),
                Some(Err(_)) => return heard,
                None => break,
            }
        }
        heard.whole = true;
        // What came right behind it has its time to come.
        for _ in 0..20 {
            yield_now().await;
        }
        heard.reusable = link.rest() && link.is_quiet();
        heard
    };
    let (heard, _open) = tokio::join!(hear, say(far, pieces, closes));
    heard
}

async fn by_library(method: Method, pieces: Vec<Vec<u8>>, closes: bool) -> Heard {
    let (near, far) = duplex(1 << 20);
    let mut client = http1::Builder::new();
    let made = client.max_header_size(SIZE).handshake(TokioIo::new(near)).await;
    let (mut sender, connection) = made.unwrap();
    let driver = tokio::spawn(connection.with_upgrades());
    let request = Request::builder().method(method).uri("/a?b=c").header("host", "e:1");
    let hear = async {
        let mut heard = Heard::default();
        let mut response =
            match sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await {
                Ok(response) => response,
                Err(error) => {
                    heard.status = Some(Err(error.is_parse()));
                    return heard;
                }
            };
        heard.status = Some(Ok(response.status().as_u16()));
        heard.fields = listed(response.headers());
        while let Some(frame) = response.body_mut().frame().await {
            match frame {
                Ok(frame) => heard.frame(frame),
                Err(_) => return heard,
            }
        }
        heard.whole = true;
        for _ in 0..20 {
            yield_now().await;
        }
        heard.reusable = sender.is_ready();
        heard
    };
    let (heard, _open) = tokio::join!(hear, say(far, pieces, closes));
    driver.abort();
    heard
}

fn paused() -> tokio::runtime::Runtime {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true).build().unwrap()
}
