use super::h2_upstreams::one_route as h2_route;
use super::one_route;
use crate::support::frames::{DATA, Raw};
use crate::support::h2;
use crate::support::proxy::{Proxy, Response};
use crate::support::upstream::{Upstream, always};

/// A guard of `/admin` and of `secret.test`, and everything else before `upstream`.
fn guarded(upstream: &Upstream, paths: &str) -> String {
    let guard = "flow: { entrypoint: a, steps: { a: { action: Return, value: { status: 403 } } } }";
    format!(
        "{paths}upstreams: {{ u: {{ endpoints: ['http://{}'] }} }}\nroutes:\n  - name: admin\n    match: {{ pathPrefix: /admin }}\n    {guard}\n  - name: secret\n    match: {{ hosts: [secret.test, '*.deep.test.'] }}\n    {guard}\n  - {{ name: all, match: {{ pathPrefix: / }}, upstream: u }}\n",
        upstream.address
    )
}

/// RFC 9113 §8.3.1.
#[tokio::test]
async fn a_query_alone_is_no_path_in_http_2() {
    let upstream = Upstream::play([always(200, "", "good")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let mut client = Raw::connect(proxy.address, &[]).await;
    client.ask(1, "?x").await;
    let answer = String::from_utf8(client.of(DATA, 1).await.payload).unwrap();
    assert!(answer.contains("the target is neither a path nor a whole http URI"), "{answer}");
    client.ask(3, "/?x").await;
    assert_eq!(client.of(DATA, 3).await.payload, b"good");
    assert_eq!(upstream.requests().len(), 1);
}

async fn get(proxy: &Proxy, target: &str, host: &str) -> Response {
    proxy.ask(&format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n")).await
}

#[tokio::test]
async fn no_path_with_the_guarded_meaning_misses_its_route() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let cases = [
        ("/admin", [403, 403, 403, 403]),
        ("/%61dmin/x", [403, 403, 403, 403]),
        ("/admin;/i.txt", [403, 403, 403, 400]),
        ("/admin;a=b/i.txt", [403, 403, 403, 400]),
        ("/;/admin/i.txt", [403, 403, 403, 400]),
        ("http://t.test/admin;x", [403, 403, 403, 400]),
        ("/pub/..%2fadmin", [400; 4]),
        ("/x/%2e%2e%2fadmin", [400; 4]),
        ("/x%2f../admin", [400; 4]),
        ("/.%2fadmin", [400; 4]),
        ("/x%5c..%5cadmin", [400; 4]),
        ("/x/..\\admin", [400; 4]),
        ("/x/..;/admin", [400; 4]),
        ("http://t.test/x/../admin", [400; 4]),
        ("//admin", [200, 403, 200, 200]),
        ("/x//admin", [200, 200, 200, 200]),
        ("/%2fadmin", [200, 200, 400, 200]),
        ("/x\\admin", [200, 200, 400, 200]),
        ("/x;y", [200, 200, 200, 400]),
    ];
    for (at, paths) in ["", "mergeSlashes: true", "encodedSlashes: refuse", "parameters: refuse"]
        .iter()
        .enumerate()
    {
        let proxy = Proxy::start(&guarded(&upstream, &format!("paths: {{ {paths} }}\n")));
        let mut client = h2::Client::connect(proxy.address).await;
        for (target, wanted) in cases {
            assert_eq!(get(&proxy, target, "t.test").await.status, wanted[at], "{paths} {target}");
            if target.starts_with('/') {
                let request = h2::request("GET", target, &[]);
                assert_eq!(client.ask(request, b"").await.status, wanted[at], "{paths} {target}");
            }
        }
    }
    let sent = upstream.requests();
    assert!(sent.iter().any(|seen| seen.line() == "GET /x;y HTTP/1.1"), "it is sent on as it came");
    assert!(sent.iter().all(|seen| !seen.line().contains("..")));
}

#[tokio::test]
async fn a_dot_at_the_end_of_a_host_is_ignored() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let proxy = Proxy::start(&guarded(&upstream, ""));
    for host in [
        "secret.test",
        "secret.test.",
        "SECRET.test.:80",
        "a.deep.test",
        "a.deep.test.",
        "a.b.deep.test.:1",
    ] {
        assert_eq!(get(&proxy, "/", host).await.status, 403, "{host}");
        assert_eq!(get(&proxy, &format!("http://{host}/"), "t").await.status, 403, "{host}");
        let mut client = h2::Client::connect(proxy.address).await;
        let uri = format!("http://{host}/");
        let request = http::Request::builder().uri(uri).body(()).unwrap();
        assert_eq!(client.ask(request, b"").await.status, 403, "{host}");
    }
    for host in ["secret.test..", ".", "%73ecret.test", ".:80"] {
        assert_eq!(get(&proxy, "/", host).await.status, 400, "{host}");
    }
    let given = [("other.test.", "other.test"), ("other.test.:81", "other.test:81"), ("o", "o")];
    for (host, sent) in given {
        assert_eq!(get(&proxy, "/", host).await.status, 200);
        assert_eq!(upstream.requests().last().unwrap().field("host"), [sent]);
    }
}

/// Some services rely on characters that are not allowed in a URI.
#[tokio::test]
async fn graphic_characters_pass_byte_for_byte() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let proxy = Proxy::start(&one_route(&upstream, ""));
    let all: String = ('!'..='~').filter(|c| !matches!(c, '#' | '?')).collect();
    let targets = [
        "/db/_all_docs?key=\"abc\"".to_owned(),
        "/query?q=time>now()-1h".to_owned(),
        "/a`b?c`d".to_owned(),
        format!("/p{all}"),
        format!("/p?{all}?"),
    ];
    for target in &targets {
        assert_eq!(get(&proxy, target, "t").await.status, 200, "{target}");
        let line = upstream.requests().last().unwrap().line().to_owned();
        assert_eq!(line, format!("GET {target} HTTP/1.1"));
    }
    for target in
        ["/a#b", "/a?b#c", "/#", "/caf\u{e9}", "/a?q=\u{e9}", "/a\x7f", "/a?\x01", "http://t/a#b"]
    {
        assert_eq!(get(&proxy, target, "t").await.status, 400, "{target}");
    }
    let targets = targets.len();
    assert_eq!(upstream.requests().len(), targets);
    // An expression reads what came, and so does a match.
    let route = "    output: '{{ frame.input.path + \" \" + frame.input.query.q }}'\n";
    let config = one_route(&upstream, route)
        .replace("pathPrefix: / }", "path: '/a<b', query: { q: '<z>' } }");
    let proxy = Proxy::start(&config);
    for target in ["/a<b?q=<z>", "/a%3Cb?q=%3cz%3E"] {
        let path = target.split('?').next().unwrap();
        assert_eq!(get(&proxy, target, "t").await.body, format!("\"{path} <z>\""));
    }
}

/// The HTTP/2 library does not support these targets.
#[tokio::test]
async fn a_target_that_http_2_does_not_support_is_refused() {
    let upstream = h2::Upstream::play([h2::Act::Answer(h2::reply(200, "hi"))]).await;
    let route = "    exposeFailures: true\n";
    let proxy = Proxy::start(&h2_route(upstream.address, "", route));
    assert_eq!(get(&proxy, "/a%3C?q=%22", "t").await.status, 200);
    for target in ["/a?q=\"b\"", "/a`", "/<>"] {
        let response = get(&proxy, target, "t").await;
        assert_eq!(response.status, 400, "{target}");
        assert!(response.body.contains("must be percent-encoded"), "{}", response.body);
    }
    let call = "    call: { provider: mwl:provider.call/mwl-proxy/http/v1, with: { upstream: u, path: '/a`b' } }\n    exposeFailures: true\n";
    let config = h2_route(upstream.address, "", call).replace("    upstream: u\n", "");
    let response = get(&Proxy::start(&config), "/", "t").await;
    assert_eq!(response.status, 500);
    assert_eq!(response.json()["code"], "System.ParameterValidationFailed");
    assert_eq!(upstream.requests().len(), 1);
}

/// A client's value cannot lead an expression's path to another resource: the Step fails.
#[tokio::test]
async fn a_target_of_an_expression_must_pass_the_checks() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let config = |with: &str| {
        let call = format!(
            "    call: {{ provider: mwl:provider.call/mwl-proxy/http/v1, with: {{ upstream: u, {with} }} }}\n    exposeFailures: true\n"
        );
        one_route(&upstream, &call).replace("    upstream: u\n", "")
    };
    let path = Proxy::start(&config("path: \"{{ '/users/' + frame.input.query.id }}\""));
    for id in [
        "alice%23x",
        "..%2Fadmin",
        "%C3%A9",
        "a%20b",
        "%2E%2E",
        "x%2F..%5Cy",
        "a%0d%0aX:%20y",
        "%3Fq",
        "%2e%252f",
    ] {
        let response = get(&path, &format!("/?id={id}"), "t").await;
        assert_eq!(response.status, 500, "{id}");
        let body = response.json();
        assert_eq!(body["code"], "System.ParameterValidationFailed", "{id}");
        let message = body["failures"][0]["message"].as_str().unwrap();
        assert!(message.starts_with("r: "), "{message}");
    }
    assert_eq!(upstream.requests().len(), 0);
    assert_eq!(get(&path, "/?id=alice%2Fx", "t").await.status, 200);
    assert_eq!(upstream.requests()[0].line(), "GET /users/alice/x?id=alice%2Fx HTTP/1.1");
    let host = Proxy::start(&config("headers: { host: '{{ frame.input.headers[\"x-host\"] }}' }"));
    for (made, status) in
        [("", 500), ("a b", 500), ("a/b", 500), ("a.test, b", 500), ("a.test:8", 200)]
    {
        let request = format!("GET / HTTP/1.1\r\nHost: t\r\nX-Host: {made}\r\n\r\n");
        assert_eq!(proxy_status(&host, &request).await, status, "{made:?}");
    }
    assert_eq!(upstream.requests().last().unwrap().field("host"), ["a.test:8"]);
    let strict = config("path: '{{ \"/\" + frame.input.query.id }}'");
    let strict =
        Proxy::start(&format!("paths: {{ encodedSlashes: refuse, parameters: refuse }}\n{strict}"));
    for (id, status) in [("a%252fb", 500), ("a%5cb", 500), ("a%3bb", 500), ("a%2fb", 200)] {
        assert_eq!(get(&strict, &format!("/?id={id}"), "t").await.status, status, "{id}");
    }
}

async fn proxy_status(proxy: &Proxy, request: &str) -> u16 {
    proxy.ask(request).await.status
}

/// A target that became too long is not shortened or replaced.
#[tokio::test]
async fn a_target_that_is_made_too_long_is_not_sent() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let call = "    call: { provider: mwl:provider.call/mwl-proxy/http/v1, with: { upstream: u, query: { q: '{{ frame.input.body }}' } } }\n    exposeFailures: true\n";
    let proxy = Proxy::start(&one_route(&upstream, call).replace("    upstream: u\n", ""));
    let post = |size: usize| {
        let body = "x".repeat(size);
        format!(
            "POST /a HTTP/1.1\r\nHost: t\r\nContent-Type: text/plain\r\nContent-Length: {size}\r\n\r\n{body}"
        )
    };
    assert_eq!(proxy.ask(&post(60_000)).await.status, 200);
    let response = proxy.ask(&post(66_000)).await;
    assert_eq!(
        (response.status, &response.json()["code"]),
        (500, &"System.ParameterValidationFailed".into())
    );
    assert_eq!(
        response.json()["failures"][0]["message"],
        "r: `query`: the target is over 65534 bytes"
    );
    let route = format!("    rewrite: {{ pathPrefix: /{} }}\n", "p".repeat(3000));
    let proxy = Proxy::limited("targetSize: 63KiB, ", &one_route(&upstream, &route));
    for (size, status) in [(60_000, 200), (64_000, 414)] {
        let target = format!("/{}", "y".repeat(size));
        assert_eq!(get(&proxy, &target, "t").await.status, status, "{size}");
    }
    let lines: Vec<usize> = upstream.requests().iter().map(|seen| seen.line().len()).collect();
    assert_eq!(
        lines,
        ["POST /a?q= HTTP/1.1".len() + 60_000, "GET / HTTP/1.1".len() + 3000 + 1 + 60_000]
    );
}
