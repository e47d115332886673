use super::one_route;
use crate::support::proxy::Proxy;
use crate::support::upstream::{Act, Upstream, always, answer};

const GET: &str = "GET /a HTTP/1.1\r\nHost: t\r\n\r\n";

#[tokio::test]
async fn a_request_passes_with_its_own_bytes() {
    let upstream = Upstream::play([always(200, "x-b: 1\r\n", "hello")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let request = "GET /a%2Fb//c?q=%20&r HTTP/1.1\r\nHost: T.test:81\r\nX-Request-Id: id-1\r\n\r\n";
    let response = proxy.ask(request).await;
    assert_eq!((response.status, response.body.as_str()), (200, "hello"));
    assert_eq!(response.field("x-b"), ["1"]);
    let seen = &upstream.requests()[0];
    assert_eq!(seen.line(), "GET /a%2Fb//c?q=%20&r HTTP/1.1");
    assert_eq!(seen.field("host"), ["T.test:81"]);
    assert_eq!(seen.field("x-request-id"), ["id-1"]);
    assert!(seen.field("transfer-encoding").is_empty());
    assert!(seen.field("content-length").is_empty());
}

#[tokio::test]
async fn a_request_without_an_id_gets_one() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    proxy.ask(GET).await;
    proxy.ask("GET /a HTTP/1.1\r\nHost: t\r\nX-Request-Id: not good\r\n\r\n").await;
    for seen in upstream.requests() {
        let id = seen.field("x-request-id")[0];
        assert_eq!((id.len(), id.as_bytes()[14]), (36, b'7'), "{id}");
    }
}

#[tokio::test]
async fn one_connection_s_fields_do_not_pass_either_way() {
    let fields = "connection: x-u\r\nx-u: 1\r\nkeep-alive: timeout=5\r\nx-v: 2\r\n";
    let upstream = Upstream::play([always(200, fields, "")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let request = "GET / HTTP/1.1\r\nHost: t\r\nConnection: close, X-Drop\r\nX-Drop: 1\r\nTE: trailers\r\nUpgrade: foo\r\nProxy-Connection: keep-alive\r\nX-Keep: 1\r\n\r\n";
    let response = proxy.ask(request).await;
    assert!(response.field("x-u").is_empty() && response.field("keep-alive").is_empty());
    assert_eq!(response.field("x-v"), ["2"]);
    let seen = &upstream.requests()[0];
    for name in ["connection", "x-drop", "te", "upgrade", "proxy-connection"] {
        assert!(seen.field(name).is_empty(), "{name}");
    }
    assert_eq!(seen.field("x-keep"), ["1"]);
}

#[tokio::test]
async fn upstream_connections_are_used_again() {
    let upstream = Upstream::play([always(200, "", "x")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = proxy.connect().await;
    for _ in 0..5 {
        assert_eq!(client.ask(GET).await.status, 200);
    }
    assert_eq!(upstream.accepted(), 1);
    assert_eq!(proxy.metric(r#"mwl_requests_total{route="r",status="200"}"#), 5);
}

#[tokio::test]
async fn the_absolute_form_names_the_host() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let request = "GET http://a.test/x?y HTTP/1.1\r\nHost: b.test\r\n\r\n";
    assert_eq!(proxy.ask(request).await.status, 200);
    let seen = &upstream.requests()[0];
    assert_eq!(seen.line(), "GET /x?y HTTP/1.1");
    assert_eq!(seen.field("host"), ["a.test"]);
}

#[tokio::test]
async fn no_route_is_a_problem_document() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let proxy = Proxy::start(&one_route(&upstream, "").replace("pathPrefix: /", "pathPrefix: /x"));
    let response = proxy.ask("GET / HTTP/1.1\r\nHost: t\r\n\r\n").await;
    assert_eq!(response.status, 404);
    assert_eq!(response.field("content-type"), ["application/problem+json"]);
    let status = ["mwl-proxy; error=destination_not_found"];
    assert_eq!(response.field("proxy-status"), status);
    let json = response.json();
    assert_eq!((&json["status"], &json["code"]), (&404.into(), &"Proxy.NoRoute".into()));
    assert_eq!(upstream.accepted(), 0);
}

#[tokio::test]
async fn a_head_has_a_length_and_no_body() {
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n".to_vec();
    let upstream = Upstream::play([Act::Answer(head), always(200, "", "next")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = proxy.connect().await;
    let response = client.ask("HEAD / HTTP/1.1\r\nHost: t\r\n\r\n").await;
    assert_eq!(response.field("content-length"), ["1234"]);
    assert_eq!(client.ask(GET).await.body, "next");
    assert_eq!(upstream.accepted(), 1);
}

#[tokio::test]
async fn a_204_has_no_length_and_its_stray_body_is_not_the_next_answer() {
    let stray = b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello".to_vec();
    let upstream = Upstream::play([Act::Answer(stray), always(200, "", "next")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = proxy.connect().await;
    let response = client.ask(GET).await;
    assert_eq!(response.status, 204);
    assert!(response.field("content-length").is_empty());
    assert_eq!(client.ask(GET).await.body, "next");
}

#[tokio::test]
async fn a_failure_keeps_the_upstream_s_own_answer() {
    let upstream = Upstream::play([always(404, "x-why: gone\r\n", "not here")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let response = proxy.ask(GET).await;
    assert_eq!((response.status, response.body.as_str()), (404, "not here"));
    assert_eq!(response.field("x-why"), ["gone"]);
    let series =
        r#"mwl_attempts_total{code="Provider.Call.Http.NonSuccessStatus",route="r",upstream="u"}"#;
    assert_eq!(proxy.metric(series), 1);
}

#[tokio::test]
async fn an_expression_reads_the_request_and_writes_the_answer() {
    let upstream = Upstream::play([always(200, "", r#"{"n":41}"#)]).await;
    let route = "    call:
      provider: mwl:provider.call/mwl-proxy/http/v1
      with: { path: /other, query: { id: \"{{ frame.input.body.id }}\" }, headers: { x-route: \"{{ execution.platform.route }}\" } }
      onSuccess: { value: \"{{ {'status': 201, 'body': {'all': call.result.value.status, 'who': execution.id}} }}\" }
";
    let route = one_route(&upstream, route).replace("    upstream: u\n", "");
    let route = route.replace("with: { path", "with: { upstream: u, path");
    let proxy = Proxy::start(&route);
    let request = "POST /x?a=1 HTTP/1.1\r\nHost: t\r\nX-Request-Id: q1\r\nContent-Type: application/json\r\nContent-Length: 8\r\n\r\n{\"id\":7}";
    let response = proxy.ask(request).await;
    assert_eq!((response.status, response.body.as_str()), (201, r#"{"all":200,"who":"q1"}"#));
    let seen = &upstream.requests()[0];
    assert_eq!(seen.line(), "POST /other?a=1&id=7 HTTP/1.1");
    assert_eq!(seen.field("x-route"), ["r"]);
    assert_eq!(seen.body, br#"{"id":7}"#);
}

#[tokio::test]
async fn an_http_1_0_answer_ends_with_its_connection() {
    let old = b"HTTP/1.0 200 OK\r\n\r\nold".to_vec();
    let upstream =
        Upstream::play([Act::AnswerAndClose(old), Act::Answer(answer(200, "", "x"))]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = proxy.connect().await;
    assert_eq!(client.ask(GET).await.body, "old");
    assert_eq!(client.ask(GET).await.body, "x");
    assert_eq!(upstream.accepted(), 2);
}

/// Some services put information for people there.
#[tokio::test]
async fn a_reason_phrase_passes_as_it_came() {
    let plain = "";
    let reads = "    output: '{{ step.result.value.body == \"x\" ? null : step.result.value }}'\n";
    for route in [plain, reads] {
        for (line, wanted) in [
            (&b"200 All Good"[..], &b"200 All Good"[..]),
            (b"200 OK", b"200 OK"),
            (b"200 ", b"200 "),
            (b"200", b"200 "),
            (b"200 P\xc5\x99\xc3\xadli\xc5\xa1 \t\xff", b"200 P\xc5\x99\xc3\xadli\xc5\xa1 \t\xff"),
            (b"299 Odd", b"299 Odd"),
            (b"404 Gone Fishing", b"404 Gone Fishing"),
            (b"503 Out to lunch", b"503 Out to lunch"),
        ] {
            let hint = b"HTTP/1.1 103 Soon\r\nLink: </a>\r\n\r\n";
            let rest = b"\r\nContent-Length: 2\r\n\r\nhi";
            let answer = [hint, b"HTTP/1.1 ".as_slice(), line, rest].concat();
            let upstream = Upstream::play([Act::Answer(answer)]).await;
            let proxy = Proxy::start(&one_route(&upstream, route));
            let mut client = proxy.connect().await;
            client.send("GET /a HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").await;
            let all = client.rest().await;
            let wanted =
                [b"HTTP/1.1 103 Soon\r\nlink: </a>\r\n\r\nHTTP/1.1 ", wanted, b"\r\n"].concat();
            assert!(all.starts_with(&wanted), "{} {}", line.escape_ascii(), all.escape_ascii());
        }
    }
}
