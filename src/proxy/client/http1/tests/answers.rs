//! Whole answers, and how another client reads them.

use std::collections::VecDeque;
use std::sync::Mutex;

use http_body::{Body, Frame, SizeHint};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper::ext::on_informational;

use super::*;
use crate::proxy::h1::BodyWriter;

/// One exchange: a request, and its answer.
#[derive(Clone, Debug)]
struct Exchange {
    version: Version,
    method: Method,
    /// The request's `Connection`.
    connection: Option<&'static str>,
    takes_trailers: bool,
    hints: u8,
    status: u16,
    fields: Vec<Field>,
    pieces: Vec<Vec<u8>>,
    known: bool,
    trailed: bool,
}

/// What a client reads of an answer.
#[derive(Debug, Default, PartialEq)]
struct Read {
    hints: Vec<u16>,
    status: u16,
    fields: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    trailers: Vec<(String, Vec<u8>)>,
}

impl Exchange {
    fn is_old(&self) -> bool {
        self.version == Version::HTTP_10
    }

    fn is_bodiless(&self) -> bool {
        self.method == Method::HEAD || matches!(self.status, 204 | 304)
    }

    fn says(&self, name: &str) -> Option<Vec<u8>> {
        let found = self.fields.iter().find(|field| field.0 == name);
        found.map(|(_, value)| value.to_vec())
    }

    fn keeps(&self) -> bool {
        let asked = if self.is_old() {
            self.connection == Some("keep-alive")
        } else {
            self.connection != Some("close")
        };
        let ends = self.is_old() && !self.known && !self.is_bodiless();
        asked && !ends && self.says("connection").is_none()
    }

    /// What the client should read.
    fn wanted(&self) -> Read {
        let framed = ["content-length", "connection"];
        let kept = self.fields.iter().filter(|field| !framed.contains(&field.0));
        let mut fields: Vec<_> =
            kept.map(|(name, value)| ((*name).to_owned(), value.to_vec())).collect();
        let mut add = |name: &str, value: &[u8]| fields.push((name.to_owned(), value.to_vec()));
        if self.says("date").is_none() {
            add("date", NOW.as_bytes());
        }
        let whole = self.pieces.concat();
        let mut chunked = false;
        match (self.is_bodiless(), self.known) {
            (true, _) if self.status != 204 => {
                self.says("content-length")
                    .into_iter()
                    .for_each(|said| add("content-length", &said));
            }
            (false, true) => add("content-length", whole.len().to_string().as_bytes()),
            (false, false) if !self.is_old() => {
                chunked = true;
                add("transfer-encoding", b"chunked");
            }
            _ => {}
        }
        match (self.keeps(), self.is_old()) {
            (false, _) => add("connection", b"close"),
            (true, true) => add("connection", b"keep-alive"),
            (true, false) => {}
        }
        fields.sort_by(|one, other| one.0.cmp(&other.0));
        let trailed = chunked && self.trailed && self.takes_trailers;
        Read {
            hints: if self.is_old() { vec![] } else { vec![103; self.hints.into()] },
            status: self.status,
            fields,
            body: if self.is_bodiless() { vec![] } else { whole },
            trailers: if trailed { vec![("x-sum".to_owned(), b"1".to_vec())] } else { vec![] },
        }
    }

    fn request(&self) -> Request<Empty<Bytes>> {
        let mut request = Request::builder().uri("/a").header("host", "t");
        request = request.method(self.method.clone()).version(self.version);
        if self.takes_trailers {
            request = request.header("te", "trailers");
        }
        if let Some(connection) = self.connection {
            request = request.header("connection", connection);
        }
        request.body(Empty::new()).unwrap()
    }
}

/// A body in pieces, none of which is ready when it is first polled.
struct Pieces {
    frames: VecDeque<Frame<Bytes>>,
    length: Option<u64>,
    waits: bool,
}

impl Pieces {
    fn new(exchange: &Exchange) -> Self {
        let data = |piece: &Vec<u8>| Frame::data(Bytes::copy_from_slice(piece));
        let mut frames: VecDeque<_> = exchange.pieces.iter().map(data).collect();
        if exchange.trailed {
            let trailers = [(HeaderName::from_static("x-sum"), HeaderValue::from_static("1"))];
            frames.push_back(Frame::trailers(HeaderMap::from_iter(trailers)));
        }
        let length = exchange.known.then(|| exchange.pieces.concat().len() as u64);
        Self { frames, length, waits: false }
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.waits = !self.waits;
        if self.waits {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(self.frames.pop_front().map(Ok))
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// Answers the requests on `near` as a session does. Returns how many.
async fn answer(near: DuplexStream, exchanges: &[Exchange]) -> usize {
    let conn = ClientConnection::new(Io::Other(Box::new(near)));
    let mut output = WriteBuffer::default();
    for (number, exchange) in exchanges.iter().enumerate() {
        let Some(head) = next_head(&conn).await.unwrap() else {
            return number;
        };
        conn.lock().begin(head.body, head.asks);
        for _ in 0..if exchange.is_old() { 0 } else { exchange.hints } {
            conn.of_this_request()
                .say_before(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n")
                .unwrap();
        }
        conn.lock().answered();
        conn.lock().say_into(&mut output);
        let asking = AnswerContext {
            version: head.request.version,
            head: head.request.method == Method::HEAD,
            keeps: head.keeps,
            dates: true,
        };
        let (parts, body) = (parts(exchange.status, &exchange.fields), Pieces::new(exchange));
        let length = body.size_hint().exact();
        let (framing, keeps) = answer::head(output.text(), &parts, None, length, &asking, || NOW);
        assert_eq!(keeps, exchange.keeps());
        let mut sending = BodyWriter { body, framing, trailers: head.trailers };
        poll_fn(|cx| {
            loop {
                let polled = sending.poll_into(&mut output, cx).map(Result::unwrap);
                ready!(output.poll_write(conn.lock().io().unwrap(), cx, &mut false)).unwrap();
                ready!(polled);
                if sending.framing.is_done() {
                    return Poll::Ready(());
                }
            }
        })
        .await;
        if !keeps {
            return number + 1;
        }
    }
    exchanges.len()
}

/// Sends requests on `far`, one after the other, while the connection stays open.
async fn ask(far: DuplexStream, exchanges: &[Exchange]) -> Vec<Read> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(far)).await.unwrap();
    let driver = tokio::spawn(connection);
    let mut all = Vec::new();
    for exchange in exchanges {
        if sender.ready().await.is_err() {
            break;
        }
        let hints = Arc::new(Mutex::new(Vec::new()));
        let mut request = exchange.request();
        let told = Arc::clone(&hints);
        on_informational(&mut request, move |hint| {
            told.lock().unwrap().push(hint.status().as_u16());
        });
        let (head, body) = sender.send_request(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap();
        all.push(Read {
            hints: std::mem::take(&mut hints.lock().unwrap()),
            status: head.status.as_u16(),
            fields: listed(&head.headers),
            trailers: body.trailers().map(listed).unwrap_or_default(),
            body: body.to_bytes().to_vec(),
        });
    }
    driver.abort();
    all
}

type Field = (&'static str, &'static [u8]);

const FIELDS: [Field; 6] = [
    ("x-a", b"1"),
    ("x-a", b"caf\xe9"),
    ("set-cookie", b"a=b"),
    ("set-cookie", b"c"),
    ("etag", b"\"x\""),
    ("x-empty", b""),
];

/// Fields with a meaning for the connection.
const ONCE: [Field; 3] = [("date", b"now"), ("content-length", b"7"), ("connection", b"close")];

fn exchanges() -> impl Strategy<Value = Vec<Exchange>> {
    let asked = (
        prop::bool::weighted(0.3),
        prop::bool::weighted(0.3),
        prop::sample::select(&[None, Some("keep-alive"), Some("keep-alive"), Some("close")][..]),
        any::<bool>(),
    );
    let field = prop::sample::select(&FIELDS[..]);
    let special = prop::sample::subsequence(&ONCE[..], 0..=2);
    let answered = (
        0..3_u8,
        prop::sample::select(&[200, 200, 201, 204, 206, 299, 304, 404, 500, 503][..]),
        prop::collection::vec(field, 0..5),
        special,
        prop::collection::vec(prop::collection::vec(any::<u8>(), 0..3000), 0..5),
        any::<bool>(),
        any::<bool>(),
    );
    let both = (asked, answered).prop_map(|(asked, answered)| {
        let (old, head, connection, takes_trailers) = asked;
        let (hints, status, fields, once, pieces, known, trailed) = answered;
        let fields = [fields, once].concat();
        let version = if old { Version::HTTP_10 } else { Version::HTTP_11 };
        let method = if head { Method::HEAD } else { Method::GET };
        // The answer to a HEAD, and a 304, have no body.
        let none = head || status == 304;
        let (pieces, trailed) = if none { (vec![], false) } else { (pieces, trailed) };
        Exchange {
            version,
            method,
            connection,
            takes_trailers,
            hints,
            status,
            fields,
            pieces,
            known,
            trailed,
        }
    });
    prop::collection::vec(both, 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Whatever is answered, and however little fits through the pipe at a time, another client reads all of
    /// it; and the next answer belongs to the next request.
    #[test]
    fn another_client_reads_what_was_said(exchanges in exchanges(), narrow in 1..300_usize) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (near, far) = duplex(narrow);
        let (answered, read) =
            runtime.block_on(async { tokio::join!(answer(near, &exchanges), ask(far, &exchanges)) });
        let last = exchanges.iter().position(|exchange| !exchange.keeps());
        let count = last.map_or(exchanges.len(), |last| last + 1);
        prop_assert_eq!((answered, read.len()), (count, count));
        for (read, exchange) in read.iter().zip(&exchanges) {
            prop_assert_eq!(read, &exchange.wanted());
        }
    }
}
