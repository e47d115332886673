//! Requests on a connection, as read by us and by another server.

use std::convert::Infallible;
use std::sync::Mutex;

use http_body_util::Empty;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::proxy::request::head::ReceivedHead;

/// A request as it was read.
#[derive(Clone, Debug, PartialEq)]
struct Heard {
    line: String,
    fields: Vec<(String, Vec<u8>)>,
    /// `None` if it broke off.
    body: Option<Vec<u8>>,
    trailers: Vec<(String, Vec<u8>)>,
}

/// All requests that were read, and whether something invalid followed.
type All = (Vec<Heard>, bool);

impl Heard {
    fn of(head: &ReceivedHead) -> Self {
        let line = format!(
            "{} {:?} {} {:?}",
            head.method,
            head.absolute,
            head.target.as_str(),
            head.version
        );
        Self { line, fields: listed(&head.headers), body: None, trailers: Vec::new() }
    }

    fn ends(&mut self, collected: http_body_util::Collected<Bytes>) {
        self.trailers = collected.trailers().map(listed).unwrap_or_default();
        self.body = Some(collected.to_bytes().to_vec());
    }
}

/// Sends `pieces`, one at a time.
async fn say(mut far: DuplexStream, pieces: &[&[u8]]) {
    for piece in pieces {
        if far.write_all(piece).await.is_err() {
            break;
        }
        tokio::task::yield_now().await;
    }
    far.shutdown().await.ok();
    // The answers are discarded.
    let mut answers = Vec::new();
    far.read_to_end(&mut answers).await.ok();
}

/// What our reading half reads.
async fn by_talk(near: DuplexStream) -> All {
    let conn = ClientConnection::new(Io::Other(Box::new(near)));
    let mut all = Vec::new();
    loop {
        let head = match next_head(&conn).await {
            Ok(Some(head)) => head,
            Ok(None) => return (all, false),
            Err(_refusal) => return (all, true),
        };
        let mut request = Heard::of(&head.request);
        conn.lock().begin(head.body, head.asks);
        let body = ClientBody::Http1(conn.of_this_request());
        let whole = match body.collect().await {
            Ok(collected) => {
                request.ends(collected);
                true
            }
            Err(_broken) => false,
        };
        all.push(request);
        if !whole || !head.keeps {
            return (all, false);
        }
    }
}

/// What the library reads.
async fn by_library(near: DuplexStream) -> All {
    let all = Mutex::new(Vec::new());
    let service = service_fn(|request: Request<hyper::body::Incoming>| {
        let (parts, body) = request.into_parts();
        let mut heard = Heard::of(&parts.into());
        let all = &all;
        async move {
            if let Ok(collected) = body.collect().await {
                heard.ends(collected);
            }
            all.lock().unwrap().push(heard);
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    let mut library = http1::Builder::new();
    library.half_close(true);
    let served = library.serve_connection(TokioIo::new(near), service).await;
    let refused = served.is_err_and(|error| error.is_parse());
    let all = std::mem::take(&mut *all.lock().unwrap());
    let broken = all.last().is_some_and(|last| last.body.is_none());
    (all, refused && !broken)
}

fn run<F: Future<Output = All>>(pieces: &[&[u8]], hear: impl FnOnce(DuplexStream) -> F) -> All {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (near, far) = duplex(1 << 20);
    runtime.block_on(async { tokio::join!(hear(near), say(far, pieces)).0 })
}

/// Requests, and parts of them with all the usual mistakes. No length ends between CR and LF: the library skips a line
/// feed alone before a request.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        4 => Just("GET /a?b HTTP/1.1\r\n"),
        4 => Just("POST /c HTTP/1.1\r\n"),
        1 => Just("PUT http://h/d HTTP/1.0\r\n"),
        1 => Just("OPTIONS * HTTP/1.1\r\n"),
        1 => prop::sample::select(&[
            "\r\nGET / HTTP/1.1\r\n", "GET  / HTTP/1.1\r\n", "GET / HTTP/1.2\r\n", "G(T / HTTP/1.1\r\n",
            "GET / \r\n", "GET /\x7f HTTP/1.1\r\n", " GET / HTTP/1.1\r\n",
            "GET //x HTTP/1.1\r\n", "GET h HTTP/1.1\r\n", "PRI * HTTP/2.0\r\n",
        ][..]),
    ];
    let field = prop_oneof![
        6 => Just("Host: t\r\n"),
        3 => prop::sample::select(&[
            "Content-Length: 3\r\n", "Content-Length: 0\r\n", "Transfer-Encoding: chunked\r\n",
            "X: \u{e9}\r\n", "X:y\r\n", "X:  y \t\r\n", "Cookie: a=b\r\n",
        ][..]),
        1 => prop::sample::select(&[
            "Connection: close\r\n", "Connection: keep-alive\r\n", "Connection: x, Close\r\n",
            "Content-Length: 5\r\n", "Content-Length: +3\r\n", "Content-Length: 03\r\n", "Content-Length:\r\n",
            "Transfer-Encoding: gzip\r\n", "Transfer-Encoding: gzip, chunked\r\n", "X : y\r\n", "X\r\n",
            " folded\r\n", "X: \0\r\n", "X: a\rb\r\n", ": y\r\n", "Expect: 100-continue\r\n", "TE: trailers\r\n",
        ][..]),
    ];
    let body = prop_oneof![
        4 => Just(""),
        2 => Just("abc"),
        3 => Just("2\r\nde\r\n0\r\n\r\n"),
        1 => prop::sample::select(&[
            "1;e=f\r\ng\r\n0\r\nX-Sum: 1\r\n\r\n", "0\r\nX : 1\r\n\r\n", "g\r\n", "2\r\nabc\r\n", "1\nx\r\n0\r\n\r\n", "5\r\nab",
        ][..]),
    ];
    let request = (line, prop::collection::vec(field, 0..4), body)
        .prop_map(|(line, fields, body)| [line, &fields.concat(), "\r\n", body].concat());
    prop::collection::vec(request, 1..4).prop_map(|all| all.concat().into_bytes())
}

/// Where the two differ on purpose: the library accepts two framings, keeps the first of equal lengths, and accepts a
/// line feed alone as the end of a line.
fn is_one_of_ours(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    text.split("HTTP/1").any(|request| {
        let lengths = request.matches("Content-Length").count();
        lengths > 1 || lengths == 1 && request.contains("Transfer-Encoding")
    })
}

/// RFC 9112 §2.2: empty lines may come before a request, and end like all others.
#[test]
fn only_whole_empty_lines_may_come_before_a_request() {
    let get = "GET /a HTTP/1.1\r\nHost: t\r\n\r\n";
    let post = "POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\nhi";
    let sound = ["", "\r\n", "\r\n\r\n"].map(|before| (before, true));
    let broken = ["\n", "\n\n", "\r\n\n", "\n\r\n", "\r", "\r\r\n", "\n\r"];
    for (before, is_heard) in sound.into_iter().chain(broken.map(|before| (before, false))) {
        for first in ["", get, post] {
            let bytes = [first, before, get].concat();
            let singles: Vec<&[u8]> = bytes.as_bytes().chunks(1).collect();
            for pieces in [&[bytes.as_bytes()][..], &singles] {
                let (all, refused) = run(pieces, by_talk);
                let count = usize::from(!first.is_empty()) + usize::from(is_heard);
                assert_eq!((all.len(), refused), (count, !is_heard), "{before:?} behind {first:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Another server reads the same requests from any bytes.
    #[test]
    fn another_server_hears_the_same(bytes in bytes()) {
        prop_assume!(!is_one_of_ours(&bytes));
        let (mut ours, refused) = run(&[&bytes], by_talk);
        let (mut theirs, theirs_refused) = run(&[&bytes], by_library);
        // After something invalid or a broken body, no request follows. How that is reported is our own.
        for all in [&mut ours, &mut theirs] {
            all.retain(|heard| heard.body.is_some());
        }
        prop_assert_eq!(&ours, &theirs, "{:?}", String::from_utf8_lossy(&bytes));
        prop_assert_eq!(refused, theirs_refused, "{:?}", String::from_utf8_lossy(&bytes));
    }

    /// However the bytes are cut, the requests are the same.
    #[test]
    fn cuts_change_no_request(
        bytes in bytes(),
        cuts in prop::collection::vec(any::<usize>(), 0..9),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces: Vec<_> = cuts.windows(2).map(|at| &bytes[at[0]..at[1]]).collect();
        let whole = run(&[&bytes], by_talk);
        prop_assert_eq!(run(&pieces, by_talk), whole, "{:?}", String::from_utf8_lossy(&bytes));
    }
}
