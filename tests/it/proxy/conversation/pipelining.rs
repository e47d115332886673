use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use mwl_proxy::proxy::Runtime;
use mwl_proxy::proxy::testing::alone;
use mwl_proxy::telemetry::metrics::Metrics;
use proptest::prelude::*;
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
use tokio::time::sleep;

use crate::support::proxy::{Client, runtime, within};

/// A request as a client writes it.
#[derive(Clone, Debug)]
struct Asked {
    /// How many empty lines come before it.
    empty: usize,
    method: &'static str,
    version: &'static str,
    body: Sent,
    fields: &'static str,
    /// Whether its upstream's answer has a length.
    sized: bool,
}

#[derive(Clone, Debug)]
enum Sent {
    Nothing,
    Sized(String),
    Chunked(Vec<String>),
}

impl Sent {
    fn data(&self) -> String {
        match self {
            Self::Nothing => String::new(),
            Self::Sized(data) => data.clone(),
            Self::Chunked(chunks) => chunks.concat(),
        }
    }
}

impl Asked {
    fn bytes(&self, number: usize) -> String {
        let Self { method, version, fields, .. } = self;
        let kind = if self.sized { "sized" } else { "chunked" };
        let mut all = "\r\n".repeat(self.empty);
        write!(all, "{method} /a/{number}/{kind} {version}\r\nHost: t\r\n{fields}").unwrap();
        match &self.body {
            Sent::Nothing => all.push_str("\r\n"),
            Sent::Sized(data) => {
                write!(all, "Content-Length: {}\r\n\r\n{data}", data.len()).unwrap();
            }
            Sent::Chunked(chunks) => {
                all.push_str("Transfer-Encoding: chunked\r\n\r\n");
                for chunk in chunks {
                    write!(all, "{:x}\r\n{chunk}\r\n", chunk.len()).unwrap();
                }
                all.push_str("0\r\n\r\n");
            }
        }
        all
    }

    fn is_malformed(&self) -> bool {
        let old_chunks = self.version == "HTTP/1.0" && matches!(self.body, Sent::Chunked(_));
        self.fields.contains(" :") || self.version == "HTTP/1.2" || old_chunks
    }

    /// Whether another is read behind it.
    fn keeps(&self) -> bool {
        match self.version {
            "HTTP/1.0" => {
                self.fields.contains("keep-alive") && (self.sized || self.method == "HEAD")
            }
            _ => !self.fields.contains("close"),
        }
    }

    fn answer(&self, number: usize) -> (u16, String) {
        match (self.is_malformed(), self.method) {
            (true, _) => (400, String::new()),
            (_, "HEAD") => (200, String::new()),
            (_, method) => (200, format!("{method} {number} {}", self.body.data())),
        }
    }
}

static SERVED: LazyLock<Arc<Runtime>> = LazyLock::new(|| {
    let file = "listeners: [{ address: '127.0.0.1:0' }]\nlimits: { workers: 1 }\nupstreams: { u: { endpoints: ['http://127.0.0.1:1'], keepAlive: PT1H } }\nroutes:\n  - { name: r, match: { pathPrefix: / }, upstream: u }\n";
    runtime(file, &Metrics::new())
});

/// Answers every request with what it was.
async fn echo(upstream: DuplexStream) {
    let answer = service_fn(|request: Request<Incoming>| async {
        let (head, body) = request.into_parts();
        let mut path = head.uri.path().split('/').skip(2);
        let (number, kind) = (path.next().unwrap(), path.next().unwrap());
        let body = body.collect().await.unwrap().to_bytes();
        let text = format!("{} {number} {}", head.method, String::from_utf8_lossy(&body));
        let body = if kind == "sized" {
            Full::from(text).boxed()
        } else {
            let (first, second) = text.split_at(text.len() / 2);
            let pieces = [first, second].map(|piece| Bytes::from(piece.to_owned()));
            let frames = pieces.map(|piece| Ok::<_, Infallible>(Frame::data(piece)));
            StreamBody::new(futures_util::stream::iter(frames)).boxed()
        };
        Ok::<_, Infallible>(Response::new(body))
    });
    // Its end is the proxy's.
    http1::Builder::new().serve_connection(TokioIo::new(upstream), answer).await.ok();
}

/// What a client reads that writes `pieces`, one after the other.
async fn converse(
    asked: &[Asked],
    pieces: &[&[u8]],
    narrow: usize,
    pause: Duration,
) -> (Vec<(u16, String)>, Vec<u8>) {
    let (near, client) = duplex(narrow);
    let (far, upstream) = duplex(1 << 16);
    let served = tokio::spawn(alone::serve(Arc::clone(&SERVED), near, Some(far)));
    let upstream = tokio::spawn(echo(upstream));
    let (read, mut write) = tokio::io::split(client);
    let mut client = Client::over(tokio::io::join(read, tokio::io::sink()));
    let says = async {
        for piece in pieces {
            if write.write_all(piece).await.is_err() {
                return;
            }
            sleep(pause).await;
        }
    };
    let hears = async {
        let mut all = Vec::new();
        for asked in asked {
            let response = client.response(asked.method == "HEAD" && !asked.is_malformed()).await;
            // What is wrong with a request is said in words of our own.
            let body = if response.status == 400 { String::new() } else { response.body };
            assert!(response.whole);
            all.push((response.status, body));
            if asked.is_malformed() || !asked.keeps() {
                break;
            }
        }
        all
    };
    let (all, ()) = tokio::join!(hears, says);
    let last = all.len() < asked.len()
        || asked.last().is_some_and(|last| last.is_malformed() || !last.keeps());
    if !last {
        write.shutdown().await.unwrap();
    }
    let behind = client.rest().await;
    drop((client, write));
    within(served).await.unwrap();
    upstream.abort();
    (all, behind)
}

fn asked() -> impl Strategy<Value = Asked> {
    let body = prop_oneof![
        Just(Sent::Nothing),
        "[a-z]{0,40}".prop_map(Sent::Sized),
        prop::collection::vec("[a-z]{1,40}", 0..4).prop_map(Sent::Chunked),
    ];
    let version = prop::sample::select(
        &["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/1.2"][..],
    );
    let fields = prop::sample::select(
        &[
            "",
            "",
            "",
            "",
            "Connection: keep-alive\r\n",
            "Connection: keep-alive\r\n",
            "Connection: close\r\n",
            "X : y\r\n",
            "Expect: 100-continue\r\n",
        ][..],
    );
    let method = prop::sample::select(&["GET", "POST", "PUT", "HEAD"][..]);
    (0..3_usize, method, version, body, fields, any::<bool>()).prop_map(
        |(empty, method, version, body, fields, sized)| Asked {
            empty,
            method,
            version,
            body,
            fields,
            sized,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Every request has its own answer, in its turn, and nothing else is said: however the requests come, and however
    /// narrow the way back is.
    #[test]
    fn each_request_has_its_answer_in_its_turn(
        asked in prop::collection::vec(asked(), 1..6),
        cuts in prop::collection::vec(any::<usize>(), 0..12),
        narrow in 1..400_usize,
        pauses in any::<bool>(),
    ) {
        let bytes = asked.iter().enumerate().map(|(number, one)| one.bytes(number)).collect::<String>().into_bytes();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces: Vec<_> = cuts.windows(2).map(|at| &bytes[at[0]..at[1]]).collect();
        let pause = if pauses { Duration::from_millis(5) } else { Duration::ZERO };
        let mut wanted = Vec::new();
        for (number, one) in asked.iter().enumerate() {
            wanted.push(one.answer(number));
            if one.is_malformed() || !one.keeps() {
                break;
            }
        }
        let mut time = tokio::runtime::Builder::new_current_thread();
        let time = time.enable_all().start_paused(true).build().unwrap();
        let (got, behind) = time.block_on(converse(&asked, &pieces, narrow, pause));
        prop_assert_eq!(got, wanted, "{}", String::from_utf8_lossy(&bytes));
        prop_assert_eq!(String::from_utf8_lossy(&behind), "");
    }
}
