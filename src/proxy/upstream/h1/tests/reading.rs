//! What is read of an upstream's bytes, compared with another client.

use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use tokio::task::yield_now;

use super::*;

/// What a client reads of an upstream's response.
#[derive(Debug, Default, PartialEq)]
struct Heard {
    /// `Err` if there was no response: whether the bytes were not HTTP.
    status: Option<Result<u16, bool>>,
    fields: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    trailers: Vec<(String, Vec<u8>)>,
    /// Whether the body was complete.
    whole: bool,
    /// Whether the connection can carry another request.
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

/// Reads a request, sends `pieces`, one at a time, and then closes the connection or leaves it open.
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
    let (mut conn, far) = asked(method);
    let hear = async {
        let mut heard = Heard::default();
        match poll_fn(|cx| conn.poll_answer(cx, &mut |_| {})).await {
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
            match poll_fn(|cx| conn.poll_body(cx)).await {
                Some(Ok(frame)) => heard.frame(frame),
                Some(Err(_)) => return heard,
                None => break,
            }
        }
        heard.whole = true;
        // Wait for bytes right after the response.
        for _ in 0..20 {
            yield_now().await;
        }
        heard.reusable = conn.rest() && conn.is_quiet();
        heard
    };
    let (heard, _open) = tokio::join!(hear, say(far, pieces, closes));
    heard
}

async fn by_library(method: Method, pieces: Vec<Vec<u8>>, closes: bool) -> Heard {
    let (near, far) = duplex(1 << 20);
    let mut client = http1::Builder::new();
    client.max_header_size(SIZE).allow_spaces_after_header_name_in_responses(true);
    let made = client.handshake(TokioIo::new(near)).await;
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

/// Responses that both read alike, and whether the upstream closes after each.
const SAME: [(&str, bool); 41] = [
    ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", false),
    ("HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello", false),
    ("HTTP/1.1 299 \r\nContent-Length: 0\r\n\r\n", false),
    ("HTTP/1.1 200 OK\r\ncontent-length:5\r\nX:  a b \t\r\nX: c\r\n\r\nhello", false),
    ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello, and more", false),
    ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel", true),
    ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello", false),
    ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: x, Close\r\n\r\n", false),
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\nConnection: keep-alive\r\n\r\n",
        false,
    ),
    ("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi", false),
    ("HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nhi", false),
    ("HTTP/1.0 200 OK\r\n\r\nhi", true),
    ("HTTP/1.1 200 OK\r\n\r\nuntil the end", true),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", false),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n3;a=b\r\nabc\r\nA \r\n0123456789\r\n000\r\nX-A: 1\r\nX-B: 2\r\n\r\n",
        false,
    ),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nmore", false),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", true),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n", true),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloX\r\n0\r\n\r\n", true),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n", true),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nzz\r\n0\r\n\r\n", false),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nzz", true),
    ("HTTP/1.1 204 No Content\r\n\r\n", false),
    ("HTTP/1.1 204 No Content\r\nX: y\r\n\r\nbody", false),
    ("HTTP/1.1 304 Not Modified\r\nContent-Length: 50\r\n\r\n", false),
    ("HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n", false),
    (
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        false,
    ),
    ("HTTP/1.1 100 Continue\r\n\r\n", true),
    ("HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello", true),
    ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", true),
    ("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", true),
    ("HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n", true),
    ("HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n", true),
    ("HTTP/1.1 200 OK\r\nX : a\r\n\r\n", true),
    ("HTTP/1.1 200 OK\r\n: a\r\n\r\n", true),
    ("HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n", true),
    ("HTTP/1.1 20 OK\r\n\r\n", true),
    ("HTTP/1.2 200 OK\r\n\r\n", true),
    ("HTTP/2 200\r\n\r\n", true),
    ("SSH-2.0-x\r\n\r\n", true),
    ("", true),
];

#[test]
fn another_client_makes_the_same_of_it() {
    for (answer, closes) in SAME {
        for method in [Method::GET, Method::HEAD] {
            let pieces = || vec![answer.as_bytes().to_vec()];
            let (ours, theirs) = paused().block_on(async {
                let ours = by_link(method.clone(), pieces(), closes).await;
                (ours, by_library(method.clone(), pieces(), closes).await)
            });
            // A framing field is checked even where it frames nothing.
            let stricter = method == Method::HEAD && ours.status == Some(Err(true));
            assert!(ours == theirs || stricter, "{method} {answer:?}: {ours:?}, not {theirs:?}");
        }
    }
}

/// Cases where we are stricter, because two readers could understand the bytes differently.
#[test]
fn what_two_readers_may_read_in_two_ways_is_no_answer() {
    let fields = "X: y\r\n".repeat(101);
    for bad in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Transfer-Encoding: gzip\r\nContent-Length: 5\r\n",
        &fields,
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\n{bad}\r\n0\r\n\r\n").into_bytes();
        let heard = paused().block_on(by_link(Method::GET, vec![answer], true));
        assert_eq!(heard.status, Some(Err(true)), "{bad}");
    }
}

/// Its sender may not have meant the coding, so nothing follows it.
#[test]
fn an_old_answer_in_chunks_is_read_and_is_the_last() {
    let old = "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n";
    let answer = format!("{old}\r\n2\r\nhi\r\n0\r\n\r\n").into_bytes();
    let heard = paused().block_on(by_link(Method::GET, vec![answer], false));
    assert_eq!(heard.status, Some(Ok(200)));
    assert!(heard.whole && !heard.reusable);
    let framed_twice = format!("{old}Content-Length: 2\r\n\r\n2\r\nhi\r\n0\r\n\r\n").into_bytes();
    let heard = paused().block_on(by_link(Method::GET, vec![framed_twice], false));
    assert_eq!(heard.status, Some(Err(true)));
}

#[test]
fn a_length_that_is_given_twice_goes_on_once() {
    for twice in ["Content-Length: 2, 2\r\n", "Content-Length: 2\r\nContent-Length: 2\r\n"] {
        let answer = format!("HTTP/1.1 200 OK\r\n{twice}\r\nhi").into_bytes();
        let heard = paused().block_on(by_link(Method::GET, vec![answer], false));
        assert_eq!(heard.fields, [("content-length".to_owned(), b"2".to_vec())]);
        assert!(heard.whole && heard.reusable);
    }
}

#[test]
fn a_head_has_a_bound_however_it_comes() {
    let head = |size: usize| {
        let before = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: ";
        format!("{before}{}\r\n\r\n", "x".repeat(size - before.len() - 4)).into_bytes()
    };
    let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(2 * SIZE)).into_bytes();
    let lines = "\r\n".repeat(SIZE).into_bytes();
    for (answer, heard) in [
        (head(SIZE), Ok(200)),
        (head(SIZE + 1), Err(true)),
        (endless, Err(true)),
        (lines, Err(true)),
    ] {
        let pieces: Vec<_> = answer.chunks(5000).map(<[u8]>::to_vec).collect();
        let whole = paused().block_on(by_link(Method::GET, vec![answer], false));
        let cut = paused().block_on(by_link(Method::GET, pieces, false));
        assert_eq!((whole.status, cut.status), (Some(heard), Some(heard)));
    }
}

#[test]
fn the_limits_of_a_head_are_those_that_are_set() {
    let answer = |fields: usize| {
        let fields = "Set-Cookie: a=b\r\n".repeat(fields);
        Bytes::from(format!("HTTP/1.1 204 No\r\n{fields}\r\n"))
    };
    let parse = |fields: usize, heads: HeadLimits| head::parse(&answer(fields), false, heads);
    for fields in [50, 100, 400] {
        let heads = HeadLimits { size: 1 << 20, fields };
        let (head, _) = parse(fields, heads).unwrap().unwrap();
        assert_eq!(head.fields.len(), fields);
        assert_eq!(parse(fields + 1, heads).err(), Some(Malformed::TooManyFields(fields)));
    }
    let heads = HeadLimits { size: 40, fields: 100 };
    assert_eq!(parse(2, heads).err(), Some(Malformed::HeadTooLarge(40)));
}

proptest! {
    /// However a response is cut, it is the same response.
    #[test]
    fn cuts_change_no_answer(
        case in 0..SAME.len(),
        cuts in prop::collection::vec(any::<usize>(), 0..8),
    ) {
        let (answer, closes) = SAME[case];
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (answer.len() + 1)).collect();
        cuts.extend([0, answer.len()]);
        cuts.sort_unstable();
        let cut = cuts.windows(2).map(|at| answer.as_bytes()[at[0]..at[1]].to_vec());
        let pieces: Vec<_> = cut.filter(|piece| !piece.is_empty()).collect();
        let (whole, cut) = paused().block_on(async {
            let whole = by_link(Method::GET, vec![answer.into()], closes).await;
            (whole, by_link(Method::GET, pieces, closes).await)
        });
        prop_assert_eq!(whole, cut, "{:?}", answer);
    }
}
