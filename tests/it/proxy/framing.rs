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
