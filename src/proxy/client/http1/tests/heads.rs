//! The heads of answers, byte by byte.

use tokio::io::AsyncWriteExt;

use super::*;
use crate::proxy::h1::Framing;

const GET: AnswerContext =
    AnswerContext { version: Version::HTTP_11, head: false, keeps: true, dates: false };
const HEAD: AnswerContext = AnswerContext { head: true, ..GET };
const OLD: AnswerContext = AnswerContext { version: Version::HTTP_10, ..GET };

/// The head of an answer without a date, its framing, and whether the connection stays open.
fn said(
    asking: &AnswerContext,
    status: u16,
    fields: &[(&'static str, &[u8])],
    length: Option<u64>,
) -> (String, Framing, bool) {
    let mut out = Vec::new();
    let (framing, keeps) =
        answer::head(&mut out, &parts(status, fields), None, length, asking, || unreachable!());
    (out.escape_ascii().to_string().replace("\\r\\n", "\n"), framing, keeps)
}

fn is(head: &str, framing: Framing, keeps: bool) -> (String, Framing, bool) {
    (head.to_owned(), framing, keeps)
}

#[test]
fn a_length_is_said_where_it_is_known() {
    let length: &[(&str, &[u8])] = &[("content-length", b"7"), ("x-a", b"1")];
    for fields in [length, &length[1..]] {
        assert_eq!(
            said(&GET, 200, fields, Some(5)),
            is("HTTP/1.1 200 OK\nx-a: 1\ncontent-length: 5\n\n", Framing::Length(5), true),
            "the body's, whatever the fields say"
        );
    }
    assert_eq!(
        said(&GET, 404, &[], Some(0)),
        is("HTTP/1.1 404 Not Found\ncontent-length: 0\n\n", Framing::NONE, true)
    );
    assert_eq!(
        said(&OLD, 200, &[], Some(5)),
        is(
            "HTTP/1.1 200 OK\ncontent-length: 5\nconnection: keep-alive\n\n",
            Framing::Length(5),
            true
        )
    );
}

#[test]
fn what_has_no_known_length_comes_in_chunks_or_until_the_end() {
    assert_eq!(
        said(&GET, 200, &[("content-length", b"7")], None),
        is("HTTP/1.1 200 OK\ntransfer-encoding: chunked\n\n", Framing::Chunked, true)
    );
    assert_eq!(
        said(&OLD, 200, &[("content-length", b"7")], None),
        is("HTTP/1.1 200 OK\nconnection: close\n\n", Framing::UntilClose, false)
    );
}

#[test]
fn an_answer_without_a_body_may_say_the_length_that_it_has_elsewhere() {
    let not_modified = "HTTP/1.1 304 Not Modified\n";
    for (asking, status, line) in
        [(&HEAD, 200, "HTTP/1.1 200 OK\n"), (&GET, 304, not_modified), (&HEAD, 304, not_modified)]
    {
        for length in [None, Some(0), Some(5)] {
            assert_eq!(
                said(asking, status, &[("content-length", b"7")], length),
                is(&format!("{line}content-length: 7\n\n"), Framing::NONE, true)
            );
            assert_eq!(
                said(asking, status, &[], length),
                is(&format!("{line}\n"), Framing::NONE, true)
            );
        }
    }
    let old = AnswerContext { head: true, ..OLD };
    assert_eq!(
        said(&old, 200, &[], None),
        is("HTTP/1.1 200 OK\nconnection: keep-alive\n\n", Framing::NONE, true),
        "no end of the connection is needed to tell its end"
    );
}

/// RFC 9110 §8.6: a server must not send a length here.
#[test]
fn a_204_has_no_length() {
    for asking in [&GET, &HEAD] {
        for length in [None, Some(5)] {
            assert_eq!(
                said(asking, 204, &[("content-length", b"0"), ("etag", b"x")], length),
                is("HTTP/1.1 204 No Content\netag: x\n\n", Framing::NONE, true)
            );
        }
    }
}

#[test]
fn a_change_of_protocol_says_so_itself() {
    let fields: &[(&str, &[u8])] = &[("connection", b"Upgrade"), ("upgrade", b"websocket")];
    for keeps in [true, false] {
        let asking = AnswerContext { keeps, ..GET };
        let (head, framing, _) = said(&asking, 101, fields, Some(0));
        let wanted =
            "HTTP/1.1 101 Switching Protocols\nconnection: Upgrade\nupgrade: websocket\n\n";
        assert_eq!((head.as_str(), framing), (wanted, Framing::NONE));
    }
}

#[test]
fn an_end_is_said_whoever_wants_it() {
    let wanted =
        is("HTTP/1.1 200 OK\ncontent-length: 0\nconnection: close\n\n", Framing::NONE, false);
    let ends = AnswerContext { keeps: false, ..GET };
    assert_eq!(said(&ends, 200, &[], Some(0)), wanted);
    assert_eq!(said(&GET, 200, &[("connection", b"Close")], Some(0)), wanted);
    assert_eq!(said(&ends, 200, &[("connection", b"close")], Some(0)), wanted);
    let ends = AnswerContext { keeps: false, ..OLD };
    assert_eq!(said(&ends, 200, &[], Some(0)), wanted);
    // Any other option belongs to another hop.
    assert_eq!(
        said(&GET, 200, &[("connection", b"x-a")], Some(0)),
        is("HTTP/1.1 200 OK\ncontent-length: 0\n\n", Framing::NONE, true)
    );
}

#[test]
fn fields_pass_as_they_are_and_a_status_needs_no_words() {
    let fields: &[(&str, &[u8])] = &[
        ("set-cookie", b"b=1"),
        ("x-a", b"caf\xe9, \t\xff"),
        ("set-cookie", b"a=2"),
        ("x-empty", b""),
    ];
    let (head, ..) = said(&GET, 299, fields, Some(0));
    assert_eq!(
        head,
        "HTTP/1.1 299 \nset-cookie: b=1\nset-cookie: a=2\nx-a: caf\\xe9, \\t\\xff\nx-empty: \ncontent-length: 0\n\n"
    );
}

#[test]
fn a_date_is_added_once_and_only_where_there_is_none() {
    let dates = AnswerContext { dates: true, ..GET };
    let theirs: &[(&str, &[u8])] = &[("date", b"yesterday")];
    for (asking, fields, wanted) in [
        (&dates, &[][..], "date: Sat, 28 Nov 2026 10:00:00 GMT\n"),
        (&dates, theirs, "date: yesterday\n"),
        (&GET, theirs, "date: yesterday\n"),
        (&GET, &[], ""),
    ] {
        let mut out = Vec::new();
        answer::head(&mut out, &parts(204, fields), None, Some(0), asking, || NOW);
        let head = String::from_utf8(out).unwrap().replace('\r', "");
        assert_eq!(head, format!("HTTP/1.1 204 No Content\n{wanted}\n"));
    }
}

#[tokio::test]
async fn what_comes_before_an_answer_waits_within_a_bound_and_not_behind_it() {
    let (near, mut far) = duplex(64);
    let conn = ClientConnection::new(Io::Other(Box::new(near)));
    let hint = b"HTTP/1.1 103 Early Hints\r\n\r\n";
    assert_eq!(conn.say_before(hint), Err(DropReason::Late), "there is no request");
    far.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    next_head(&conn).await.unwrap().unwrap();
    let conn = conn.of_this_request();
    let most = 16 * 1024 / hint.len();
    for _ in 0..most {
        assert_eq!(conn.say_before(hint), Ok(()));
    }
    assert_eq!(conn.say_before(hint), Err(DropReason::Full));
    let mut output = WriteBuffer::default();
    conn.lock().say_into(&mut output);
    assert_eq!(*output.text(), hint.repeat(most));
    assert_eq!(conn.say_before(hint), Ok(()));
    conn.lock().answered();
    assert_eq!(conn.say_before(hint), Err(DropReason::Late));
}

/// Whatever remains of an answered request cannot affect the next one.
#[tokio::test]
async fn a_body_and_a_hint_are_of_their_own_request() {
    let (near, mut far) = duplex(1 << 10);
    let conn = ClientConnection::new(Io::Other(Box::new(near)));
    let post = b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\n";
    far.write_all(
        &[post.as_slice(), b"onePOST / HTTP/1.1\r\nContent-Length: 3\r\n\r\ntwo"].concat(),
    )
    .await
    .unwrap();
    let head = next_head(&conn).await.unwrap().unwrap();
    conn.lock().begin(head.body, head.asks);
    let stale = conn.of_this_request();
    assert!(conn.lock().read_out());
    let head = next_head(&conn).await.unwrap().unwrap();
    conn.lock().begin(head.body, head.asks);
    assert_eq!((stale.left(), stale.say_before(b"x")), (Some(0), Err(DropReason::Late)));
    let mut left_over = ClientBody::Http1(stale);
    assert!(left_over.frame().await.unwrap().is_err());
    let body = ClientBody::Http1(conn.of_this_request());
    assert_eq!(body.collect().await.unwrap().to_bytes(), "two");
}
