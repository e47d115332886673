//! Whole exchanges over a pipe.

mod reading;

use std::borrow::Cow;
use std::future::poll_fn;
use std::pin::Pin;

use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex,
};
use tokio::task::yield_now;
use tokio::time::Instant;

use super::*;
use crate::proxy::body::whole::Whole;
use crate::proxy::io::failed_write::WRITE_FAILURE_GRACE;
use crate::proxy::message::target::Target;

/// The limits of a response's head.
const HEADS: HeadLimits = HeadLimits { size: SIZE, fields: 100 };

const SIZE: usize = 64 * 1024;

fn target(text: &str) -> Target {
    Target::of_text(text.to_owned()).unwrap()
}

fn outgoing(method: Method) -> RequestHead<'static> {
    RequestHead {
        method,
        target: Cow::Owned(target("/a?b=c")),
        fields: Cow::Owned(HeaderMap::new()),
        names_endpoint: false,
        upgrade: None,
        expects: false,
        trailers: false,
    }
}

fn conn() -> (Box<Http1Connection>, DuplexStream) {
    let (near, far) = duplex(1 << 20);
    (Http1Connection::new(Io::Other(Box::new(near)), HEADS), far)
}

fn asked(method: Method) -> (Box<Http1Connection>, DuplexStream) {
    let (mut conn, far) = conn();
    conn.send(&outgoing(method), "e:1", RequestBody::EMPTY);
    (conn, far)
}

#[tokio::test(start_paused = true)]
async fn interim_answers_are_handed_on_one_by_one() {
    let (mut conn, mut far) = asked(Method::GET);
    let hint = |n: usize| format!("HTTP/1.1 103 Early\r\nX: {n}\r\n\r\n");
    let hints = (0..1000).map(hint).collect::<Vec<_>>().concat();
    let said = format!("{hints}HTTP/1.1 100 Go\r\nX: 1000\r\n\r\nHTTP/1.1 204 No\r\n\r\n");
    let say = async {
        for piece in said.as_bytes().chunks(7001) {
            far.write_all(piece).await.unwrap();
            yield_now().await;
        }
    };
    let mut heard = Vec::new();
    let hear = poll_fn(|cx| {
        conn.poll_answer(cx, &mut |answer| {
            heard.push(answer.fields["x"].to_str().unwrap().parse::<usize>().unwrap());
        })
    });
    let (answer, ()) = tokio::join!(hear, say);
    assert_eq!(answer.unwrap().status, 204);
    assert_eq!(heard, (0..=1000).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_changed_protocol_begins_with_what_came_behind_the_head() {
    let (mut conn, mut far) = asked(Method::GET);
    far.write_all(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\nwelcome").await.unwrap();
    let answer = poll_fn(|cx| conn.poll_answer(cx, &mut |_| {})).await.unwrap();
    assert_eq!(answer.status, 101);
    far.write_all(b" back").await.unwrap();
    let mut read = [0; 12];
    let mut bytes = conn.bytes();
    bytes.read_exact(&mut read).await.unwrap();
    assert_eq!(&read, b"welcome back");
    bytes.write_all(b"thanks").await.unwrap();
    drop(conn);
    let mut said = String::new();
    far.read_to_string(&mut said).await.unwrap();
    assert_eq!(said, "GET /a?b=c HTTP/1.1\r\nhost: e:1\r\n\r\nthanks");
}

#[tokio::test(start_paused = true)]
async fn a_failed_write_waits_until_all_is_read() {
    let (mut conn, mut far) = conn();
    far.write_all(b"HTTP/1.1 413 No\r\nContent-Length: 2\r\n\r\nno").await.unwrap();
    drop(far);
    conn.send(&outgoing(Method::POST), "e:1", RequestBody::Whole(Whole::new("x".into(), None)));
    assert!(!conn.seen().wrote);
    let answer = poll_fn(|cx| conn.poll_answer(cx, &mut |_| {})).await.unwrap();
    assert_eq!(answer.status, 413);
    let frame = poll_fn(|cx| conn.poll_body(cx)).await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "no");
    assert!(conn.is_read() && !conn.rest());
}

/// The other side neither reads nor writes.
#[tokio::test(start_paused = true)]
async fn a_failed_write_does_not_wait_for_ever() {
    struct Deaf(DuplexStream);
    impl AsyncRead for Deaf {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<std::io::Result<()>> {
            Pin::new(&mut self.0).poll_read(cx, buf)
        }
    }
    impl AsyncWrite for Deaf {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &[u8],
        ) -> Poll<std::io::Result<usize>> {
            Poll::Ready(Err(std::io::ErrorKind::BrokenPipe.into()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }
    let (near, _far) = duplex(64);
    let mut conn = Http1Connection::new(Io::Other(Box::new(Deaf(near))), HEADS);
    let begun = Instant::now();
    conn.send(&outgoing(Method::GET), "e:1", RequestBody::EMPTY);
    let error = poll_fn(|cx| conn.poll_answer(cx, &mut |_| {})).await.unwrap_err();
    assert!(matches!(error, Error::Io(_)), "{error:?}");
    assert_eq!(begun.elapsed(), WRITE_FAILURE_GRACE);
    // Nothing of it was written, so another connection can send it unchanged.
    let unsent = conn.unsent(&error).unwrap();
    let (mut other, mut far) = self::conn();
    other.resend(unsent);
    drop(other);
    let mut said = String::new();
    far.read_to_string(&mut said).await.unwrap();
    assert_eq!(said, "GET /a?b=c HTTP/1.1\r\nhost: e:1\r\n\r\n");
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_quiet_until_something_comes() {
    let (mut conn, mut far) = conn();
    assert!(conn.is_quiet());
    far.write_all(b"HTTP/1.1 408 Late\r\n\r\n").await.unwrap();
    assert!(!conn.is_quiet());
    let (mut conn, far) = self::conn();
    drop(far);
    assert!(!conn.is_quiet());
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_holds_no_buffer() {
    let (mut conn, mut far) = asked(Method::GET);
    let size = 300_000;
    let body = "x".repeat(size);
    let say = format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n{body}");
    far.write_all(say.as_bytes()).await.unwrap();
    poll_fn(|cx| conn.poll_answer(cx, &mut |_| {})).await.unwrap();
    let mut reads = 0;
    while let Some(frame) = poll_fn(|cx| conn.poll_body(cx)).await {
        assert!(frame.unwrap().data_ref().unwrap().len() <= 256 * 1024);
        reads += 1;
    }
    assert!(reads <= 5, "{reads} reads");
    assert!(conn.rest());
    assert_eq!((conn.input.capacity(), conn.pending.len()), (0, 0));
}

#[test]
fn a_head_is_written_as_it_stands() {
    let fields = [("host", "t"), ("x", "1"), ("x", "2"), ("content-length", "5")];
    let mut all = HeaderMap::new();
    for (name, value) in fields {
        all.append(name, value.parse().unwrap());
    }
    let written = |change: &dyn Fn(&mut RequestHead<'_>), body: RequestBody| {
        let mut outgoing = RequestHead { fields: Cow::Borrowed(&all), ..outgoing(Method::PUT) };
        change(&mut outgoing);
        let mut out = Vec::new();
        let framing = encode::head(&mut out, &outgoing, "e:1", &body);
        (String::from_utf8(out).unwrap(), framing)
    };
    let hello = || RequestBody::Whole(Whole::new("hello".into(), None));
    assert_eq!(
        written(&|_| {}, hello()),
        (
            "PUT /a?b=c HTTP/1.1\r\nhost: t\r\nx: 1\r\nx: 2\r\ncontent-length: 5\r\n\r\n"
                .to_owned(),
            Framing::Length(5)
        )
    );
    let named = written(&|outgoing| outgoing.names_endpoint = true, hello()).0;
    assert_eq!(
        named,
        "PUT /a?b=c HTTP/1.1\r\nx: 1\r\nx: 2\r\ncontent-length: 5\r\nhost: e:1\r\n\r\n"
    );
    let bare = |outgoing: &mut RequestHead<'_>| {
        outgoing.fields = Cow::Owned(HeaderMap::new());
        outgoing.target = Cow::Owned(target("*"));
        outgoing.upgrade = Some(http::HeaderValue::from_static("x/1"));
    };
    assert_eq!(
        written(&bare, hello()).0,
        "PUT * HTTP/1.1\r\nhost: e:1\r\ncontent-length: 5\r\nconnection: upgrade\r\nupgrade: x/1\r\n\r\n"
    );
    let query = |outgoing: &mut RequestHead<'_>| {
        outgoing.target = Cow::Owned(target("/`?q=\"<a>\""));
    };
    let odd = written(&query, RequestBody::EMPTY).0;
    assert!(odd.starts_with("PUT /`?q=\"<a>\" HTTP/1.1\r\n"), "{odd}");
}

/// A body in memory is sent together with the head.
#[tokio::test(start_paused = true)]
async fn a_body_in_memory_goes_out_with_the_head() {
    let (mut conn, mut far) = conn();
    conn.send(&outgoing(Method::POST), "e:1", RequestBody::Whole(Whole::new("hello".into(), None)));
    assert!(conn.is_sent() && conn.seen().wrote && !conn.seen().read);
    let mut said = vec![0; 1 << 10];
    let size = far.read(&mut said).await.unwrap();
    let wanted = "POST /a?b=c HTTP/1.1\r\nhost: e:1\r\ncontent-length: 5\r\n\r\nhello";
    assert_eq!(std::str::from_utf8(&said[..size]).unwrap(), wanted);
}
