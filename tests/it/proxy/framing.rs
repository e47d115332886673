use super::one_route;
use crate::support::proxy::Proxy;
use crate::support::upstream::{Act, Upstream, always};

/// Sends `bytes` and reads until the proxy closes.
async fn say(proxy: &Proxy, bytes: &[u8]) -> String {
    let mut client = proxy.connect().await;
    client.send(bytes).await;
    String::from_utf8_lossy(&client.rest().await).into_owned()
}

/// One complete 400, then a close; the upstream sees nothing.
async fn refused(requests: &[&[u8]]) {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    for request in requests {
        let said = say(&proxy, request).await;
        let shown = String::from_utf8_lossy(request);
        assert!(said.starts_with("HTTP/1.1 400 "), "{shown:?} got {said:?}");
        assert_eq!(said.matches("HTTP/1.1").count(), 1, "{shown:?} got {said:?}");
    }
    assert_eq!(upstream.accepted(), 0);
}

#[tokio::test]
async fn a_length_that_is_none_is_refused() {
    let long = "9".repeat(25);
    let lengths = ["+5", "", "5,6", "0x5", "5 5", "-1", &long];
    let requests: Vec<_> = lengths
        .iter()
        .map(|length| {
            format!("POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\nhello")
        })
        .chain([
            "POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello"
                .to_owned(),
        ])
        .collect();
    let requests: Vec<&[u8]> = requests.iter().map(String::as_bytes).collect();
    refused(&requests).await;
}

#[tokio::test]
async fn an_old_request_with_chunks_is_refused() {
    let request = b"POST /a HTTP/1.0\r\nHost: t\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    refused(&[request]).await;
}

#[tokio::test]
async fn a_field_that_is_none_is_refused() {
    let fields: [&[u8]; 6] =
        [b": x", b"Foo : bar", b"Fo\0o: bar", b"Foo: a\0b", b"Foo: x\r\n bar", b"Foo\rBar: x"];
    let requests: Vec<Vec<u8>> = fields
        .iter()
        .map(|field| [b"GET /a HTTP/1.1\r\nHost: t\r\n", *field, b"\r\n\r\n"].concat())
        .collect();
    let requests: Vec<&[u8]> = requests.iter().map(Vec::as_slice).collect();
    refused(&requests).await;
}

#[tokio::test]
async fn a_host_that_is_none_is_refused() {
    let hosts = ["", "Host: a.test, b.test\r\n", "Host: a@b\r\n", "Host: [::1\r\n"];
    let more = ["Host: a.test:99999\r\n", "Host: a/b\r\n", "Host: a\r\nHost: b\r\n"];
    let requests: Vec<_> = hosts
        .iter()
        .chain(&more)
        .map(|host| format!("GET /a HTTP/1.1\r\n{host}\r\n"))
        .chain(["GET http://u:p@a.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n".to_owned()])
        .collect();
    let requests: Vec<&[u8]> = requests.iter().map(String::as_bytes).collect();
    refused(&requests).await;
}

#[tokio::test]
async fn a_path_that_means_another_one_is_refused() {
    let paths = ["/pub/%2e%2e/admin", "/pub/../admin", "/a%00b"];
    let requests: Vec<_> =
        paths.iter().map(|path| format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n")).collect();
    let requests: Vec<&[u8]> = requests.iter().map(String::as_bytes).collect();
    refused(&requests).await;
}

/// With two framings, one request becomes two for a reader who chooses the other one.
#[tokio::test]
async fn a_request_of_two_framings_is_refused() {
    let fields = [
        "Content-Length: 6\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 6",
        "Content-Length: 6\r\nTransfer-Encoding: gzip",
        "Transfer-Encoding: gzip",
    ];
    let requests = fields.map(|fields| {
        format!(
            "POST /a HTTP/1.1\r\nHost: t\r\n{fields}\r\n\r\n0\r\n\r\nGET /b HTTP/1.1\r\nHost: t\r\n\r\n"
        )
    });
    let requests: Vec<&[u8]> = requests.iter().map(String::as_bytes).collect();
    refused(&requests).await;
}

#[tokio::test]
async fn what_follows_an_unread_body_is_no_request() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let proxy = Proxy::start(&one_route(&upstream, "").replace("pathPrefix: /", "path: /admin"));
    let inner = "GET /admin HTTP/1.1\r\nHost: t\r\nX-Y: aaaaaaaa\r\n\r\n";
    let length = inner.len();
    let bytes = format!("POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n{inner}");
    let mut client = proxy.connect().await;
    client.send(bytes).await;
    assert_eq!(client.response(false).await.status, 404);
    drop(client);
    assert_eq!(proxy.ask("GET /b HTTP/1.1\r\nHost: t\r\n\r\n").await.status, 404);
    assert_eq!(upstream.accepted(), 0);
}

#[tokio::test]
async fn a_head_that_is_too_large_has_its_own_status() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let field = format!("GET / HTTP/1.1\r\nHost: t\r\nX: {}\r\n\r\n", "x".repeat(128 * 1024));
    let fields = format!("GET / HTTP/1.1\r\nHost: t\r\n{}\r\n", "X: y\r\n".repeat(101));
    for bytes in [field, fields] {
        let said = say(&proxy, bytes.as_bytes()).await;
        assert!(said.starts_with("HTTP/1.1 431 "), "{said:?}");
    }
    assert_eq!(upstream.accepted(), 0);
}

#[tokio::test]
async fn an_upstream_that_speaks_no_http_is_a_protocol_error() {
    let bad = [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 7\r\n\r\nhelloXX".to_owned(),
        "SSH-2.0-x\r\n\r\n".to_owned(),
        format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(128 * 1024)),
    ];
    for bad in bad {
        let upstream = Upstream::play([Act::Answer(bad.into_bytes())]).await;
        let proxy = Proxy::start(&one_route(&upstream, ""));
        let response = proxy.ask("GET /a HTTP/1.1\r\nHost: t\r\n\r\n").await;
        assert_eq!(response.status, 502);
        assert_eq!(response.json()["code"], "Provider.Call.Http.ProtocolError");
        upstream.ended(1).await;
    }
}

#[tokio::test]
async fn connect_opens_no_tunnel() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let said = say(&proxy, b"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n").await;
    assert!(said.starts_with("HTTP/1.1 405 "), "{said}");
    assert_eq!(upstream.accepted(), 0);
}

/// A coding that is not decoded cannot get a new framing: the bytes would mean something else.
#[tokio::test]
async fn an_unknown_coding_is_refused_from_either_side() {
    let coded = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nzz\r\n0\r\n\r\n";
    let upstream = Upstream::play([Act::Answer(coded.to_vec())]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    for coding in ["gzip, chunked", "chunked, chunked", "chunked\r\nTransfer-Encoding: chunked"] {
        let request = format!(
            "POST /a HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: {coding}\r\n\r\n0\r\n\r\nGET /b HTTP/1.1\r\nHost: t\r\n\r\n"
        );
        let said = say(&proxy, request.as_bytes()).await;
        assert!(said.starts_with("HTTP/1.1 501 "), "{coding}: {said}");
        assert_eq!(said.matches("HTTP/1.1").count(), 1, "{coding}: {said}");
    }
    assert_eq!(upstream.accepted(), 0);
    let response = proxy.ask("GET /a HTTP/1.1\r\nHost: t\r\n\r\n").await;
    assert_eq!(response.status, 502);
    assert_eq!(response.json()["code"], "Provider.Call.Http.ProtocolError");
    upstream.ended(1).await;
}

/// An old peer may not have meant the coding that it names: the connection ends after the message (RFC 9112 §6.1).
#[tokio::test]
async fn an_old_answer_in_chunks_is_passed_on_and_its_connection_closed() {
    let old = b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n";
    let upstream = Upstream::play([Act::Answer(old.to_vec()), always(200, "", "next")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = proxy.connect().await;
    let response = client.ask("GET /a HTTP/1.1\r\nHost: t\r\n\r\n").await;
    assert_eq!((response.status, response.body.as_str()), (200, "hi"));
    upstream.ended(1).await;
    assert_eq!(client.ask("GET /a HTTP/1.1\r\nHost: t\r\n\r\n").await.body, "next");
    assert_eq!(upstream.accepted(), 2);
}

#[tokio::test]
async fn an_escaped_letter_is_routed_as_the_letter_and_sent_as_it_came() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let config = one_route(&upstream, "").replace("pathPrefix: /", "pathPrefix: /%61dmin");
    let proxy = Proxy::start(&config);
    for path in ["/admin/x", "/%61dm%69n/%78", "/%61dmin/%2f?q=%61", "/admin"] {
        let response = proxy.ask(&format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n")).await;
        assert_eq!(response.status, 200, "{path}");
        assert_eq!(upstream.requests().last().unwrap().line(), format!("GET {path} HTTP/1.1"));
    }
    for path in ["/adm%2561n", "/admin%2Fx", "/%41dmin"] {
        let response = proxy.ask(&format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n")).await;
        assert_eq!(response.status, 404, "{path}");
    }
}

#[tokio::test]
async fn suspicious_but_legal_paths_pass_byte_for_byte() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    for path in
        ["/a%2fb", "/a%5cb", "/a%3bb", "/a%25b", "/a%3fb", "/a%23b", "//evil.test/x", "/a;b=c//"]
    {
        let response = proxy.ask(&format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n")).await;
        assert_eq!(response.status, 200, "{path}");
        assert_eq!(upstream.requests().last().unwrap().line(), format!("GET {path} HTTP/1.1"));
    }
}

/// A connection chooses its protocol before its first request: HTTP/2's preface after one is not a request.
#[tokio::test]
async fn a_preface_behind_a_request_changes_no_protocol() {
    let upstream = Upstream::play([always(200, "", "hello")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    for between in ["", "\r\n"] {
        let request = format!(
            "GET /a HTTP/1.1\r\nHost: t\r\n\r\n{between}PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"
        );
        let said = say(&proxy, request.as_bytes()).await;
        assert!(said.starts_with("HTTP/1.1 200 "), "{said:?}");
        let (_, after) = said.split_once("hello").unwrap();
        // A refusal in HTTP/1.1 or nothing, but never a frame.
        assert!(after.is_empty() || after.starts_with("HTTP/1.1 400 "), "{after:?}");
    }
    assert_eq!(upstream.requests().len(), 2);
}

/// Bodies with one wrong byte in the framing.
const BROKEN: [&str; 14] = [
    "0x5\r\nhello\r\n",
    "-5\r\nhello\r\n",
    "+5\r\nhello\r\n",
    "1_0\r\nhello\r\n",
    "5\0\r\nhello\r\n",
    "5\nhello\r\n",
    "5\rhello\r\n",
    "5;\0\r\nhello\r\n",
    "5\r\nhelloX\r\n",
    "5\r\nhello\n",
    "fffffffffffffffff\r\nhello\r\n",
    "5\r\nhello\r\n0\r\nX : y\r\n\r\n",
    "5\r\nhello\r\n0\r\n\n",
    "5\r\nhello\r\n0\r\nX: y\n\r\n",
];

/// RFC 9112 §7.1: nobody knows where a malformed body ends. So nothing after it is a request, whether the body is sent
/// on, read, or not wanted.
#[tokio::test]
async fn nothing_after_a_malformed_body_is_read() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let flow = |value: &str| {
        format!(
            "routes:\n  - name: r\n    match: {{ pathPrefix: / }}\n    flow: {{ entrypoint: a, steps: {{ a: {{ action: Return, value: {value} }} }} }}\n"
        )
    };
    for (config, status) in [
        (one_route(&upstream, ""), 400),
        (one_route(&upstream, "    input: null\n"), 200),
        (one_route(&upstream, "").replace("pathPrefix: /", "path: /b"), 404),
        (flow("'{{ frame.input.body }}'"), 400),
        (flow("1"), 200),
    ] {
        let proxy = Proxy::start(&config);
        for broken in BROKEN {
            let bytes = format!(
                "POST /a HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n{broken}0\r\n\r\nGET /b HTTP/1.1\r\nHost: t\r\n\r\n"
            );
            let said = say(&proxy, bytes.as_bytes()).await;
            let head = said.split("\r\n\r\n").next().unwrap().to_ascii_lowercase();
            assert!(head.starts_with(&format!("http/1.1 {status} ")), "{broken:?}: {said}");
            assert!(head.contains("\r\nconnection: close"), "{broken:?}: {said}");
            assert_eq!(said.matches("HTTP/1.1").count(), 1, "{broken:?}: {said}");
        }
    }
    assert!(upstream.requests().iter().all(|request| !request.line().contains("/b")));
}

/// The same for a response: its connection is not used again.
#[tokio::test]
async fn nothing_after_a_malformed_response_is_read() {
    for broken in BROKEN.iter().filter(|broken| !broken.contains(" : ")) {
        let answer = format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{broken}0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nanother"
        );
        let upstream =
            Upstream::play([Act::Answer(answer.into_bytes()), always(200, "", "its own")]).await;
        let proxy = Proxy::start(&one_route(&upstream, ""));
        let response = proxy.ask("GET /a HTTP/1.1\r\nHost: t\r\n\r\n").await;
        assert!(!response.whole, "{broken:?}: {response:?}");
        upstream.ended(1).await;
        let response = proxy.ask("GET /a HTTP/1.1\r\nHost: t\r\n\r\n").await;
        assert_eq!((response.body.as_str(), upstream.accepted()), ("its own", 2), "{broken:?}");
    }
}

/// RFC 9112 §2.2 allows to accept it, but other servers do not.
#[tokio::test]
async fn a_line_feed_alone_ends_no_line_of_a_head() {
    let good = "GET /a HTTP/1.1\r\nHost: t\r\nX: y \r\nEmpty:\r\nBlank: \t\r\n\r\n";
    let lines = good.matches("\r\n").count();
    let requests: Vec<Vec<u8>> = (0..lines)
        .map(|wrong| {
            let mut parts = good.split("\r\n").enumerate().peekable();
            let mut bytes = Vec::new();
            while let Some((at, part)) = parts.next() {
                bytes.extend_from_slice(part.as_bytes());
                if parts.peek().is_some() {
                    bytes.extend_from_slice(if at == wrong { b"\n" } else { b"\r\n" });
                }
            }
            bytes
        })
        .collect();
    let requests: Vec<&[u8]> = requests.iter().map(Vec::as_slice).collect();
    refused(&requests).await;
    let answers = [
        "HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX:\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\n",
        "\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 103 Early Hints\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    ];
    for answer in answers {
        let upstream = Upstream::play([Act::Answer(answer.as_bytes().to_vec())]).await;
        let proxy = Proxy::start(&one_route(&upstream, ""));
        let response = proxy.ask("GET /a HTTP/1.1\r\nHost: t\r\n\r\n").await;
        assert_eq!(response.status, 502, "{answer:?}");
        assert_eq!(response.json()["code"], "Provider.Call.Http.ProtocolError", "{answer:?}");
    }
}

/// RFC 9112 §5.1: in a response they are removed, and the field counts for the framing.
#[tokio::test]
async fn spaces_before_a_colon_of_a_response_are_removed() {
    let sized = "HTTP/1.1 200 OK\r\nContent-Length : 2\r\nX-A \t: y\r\n\r\nhi";
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding : chunked\r\nX-A: y\r\nTrailer: X-B\r\n\r\n2\r\nhi\r\n0\r\nX-B : z\r\n\r\n";
    let twice = "HTTP/1.1 200 OK\r\nContent-Length : 2\r\nTransfer-Encoding : chunked\r\n\r\n";
    let acts = [sized, chunked, twice].map(|answer| Act::Answer(answer.as_bytes().to_vec()));
    let upstream = Upstream::play(acts).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    for _ in 0..2 {
        let response = proxy.ask("GET /a HTTP/1.1\r\nHost: t\r\n\r\n").await;
        assert_eq!((response.status, response.body.as_str()), (200, "hi"));
        assert_eq!(response.field("x-a"), ["y"]);
    }
    assert_eq!(upstream.accepted(), 1, "each ended where it says");
    assert_eq!(proxy.ask("GET /a HTTP/1.1\r\nHost: t\r\n\r\n").await.status, 502);
}

/// The same limits apply to both sides, and a message names the limit.
#[tokio::test]
async fn limits_of_a_head_hold_for_answers_too() {
    let answer = |fields: usize, size: usize| {
        let many = "Set-Cookie: a=b\r\n".repeat(fields - 2);
        let large = "x".repeat(size);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n{many}X: {large}\r\n\r\nhi");
        Act::Answer(head.into_bytes())
    };
    for (limits, fields, size, wanted) in [
        ("", 100, 1, Ok(())),
        ("", 101, 1, Err("the head has more than 100 fields (limits.headers)")),
        ("", 2, 66_000, Err("the head is over 65536 bytes (limits.headSize)")),
        ("headers: 300, ", 300, 1, Ok(())),
        ("headers: 300, ", 301, 1, Err("the head has more than 300 fields (limits.headers)")),
        ("headers: 10, ", 11, 1, Err("the head has more than 10 fields (limits.headers)")),
        ("headSize: 1MiB, ", 2, 900_000, Ok(())),
        ("headSize: 8KiB, ", 2, 9_000, Err("the head is over 8192 bytes (limits.headSize)")),
    ] {
        let upstream = Upstream::play([answer(fields, size)]).await;
        let route = "    exposeFailures: true\n    middleware:\n      - provider: mwl:provider.middleware/mwl/retry/v1\n        onEntry: { with: { policies: [{ match: { codes: ['*'], retryable: true }, attempts: 2 }] } }\n";
        let proxy = Proxy::limited(limits, &one_route(&upstream, route));
        let response = proxy.ask("GET /a HTTP/1.1\r\nHost: t\r\n\r\n").await;
        match wanted {
            Ok(()) => {
                assert_eq!((response.status, response.body.as_str()), (200, "hi"), "{limits}");
                assert_eq!(response.field("set-cookie").len(), fields - 2);
            }
            Err(message) => {
                assert_eq!(response.status, 502, "{limits} {fields} {size}");
                assert!(response.body.contains(message), "{}", response.body);
            }
        }
        assert_eq!(upstream.requests().len(), 1, "the next response would be the same");
    }
}
