use super::one_route;
use crate::support::proxy::Proxy;
use crate::support::upstream::{Act, Upstream, always};

const GET: &str = "GET /a HTTP/1.1\r\nHost: t\r\n\r\n";

fn get(target: &str, fields: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: shop.test:81\r\n{fields}\r\n")
}

#[tokio::test]
async fn a_prefix_is_replaced_and_the_rest_of_the_target_keeps_its_bytes() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    for (from, to, target, wanted) in [
        ("/api/", "/", "/ap%69/a%2Fb?q=%20", "/a%2Fb?q=%20"),
        ("/api", "/v2", "/api//x/%7e?%41", "/v2//x/%7e?%41"),
        ("/api", "/v2/", "/api", "/v2/"),
        ("/", "/all", "http://a.test/x", "/all/x"),
    ] {
        let config = one_route(&upstream, &format!("    rewrite: {{ pathPrefix: {to} }}\n"));
        let config =
            config.replace("match: { pathPrefix: /", &format!("match: {{ pathPrefix: {from}"));
        let proxy = Proxy::start(&config);
        assert_eq!(proxy.ask(&get(target, "")).await.status, 200, "{target}");
        let line = upstream.requests().last().unwrap().line().to_owned();
        assert_eq!(line, format!("GET {wanted} HTTP/1.1"), "{from} {to} {target}");
    }
}

#[tokio::test]
async fn a_flow_reads_what_will_be_sent_and_every_attempt_sends_it() {
    let upstream = Upstream::play([always(503, "", ""), always(200, "", "")]).await;
    let route = "    rewrite: { pathPrefix: /v2, host: inner.test }
    requestHeaders: { set: { x-tenant: main } }
    middleware:
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry: { with: { policies: [ { match: { codes: [Provider.Call.Http.*] }, attempts: 3 } ] } }
    output: \"{{ frame.input.host + ' ' + frame.input.path + ' ' + frame.input.headers['x-tenant'] }}\"\n";
    let config = one_route(&upstream, route).replace("pathPrefix: /}", "pathPrefix: /a }");
    let config = config.replace("match: { pathPrefix: / }", "match: { pathPrefix: /a }");
    let proxy = Proxy::start(&config);
    let response = proxy.ask(&get("/a/x", "X-Tenant: other\r\n")).await;
    assert_eq!(response.body, r#""inner.test /v2/x main""#);
    let seen = upstream.requests();
    assert_eq!(seen.len(), 2);
    for seen in seen {
        assert_eq!(seen.line(), "GET /v2/x HTTP/1.1");
        assert_eq!(
            (seen.field("host"), seen.field("x-tenant")),
            (vec!["inner.test"], vec!["main"])
        );
    }
}

#[tokio::test]
async fn fields_are_removed_set_and_appended_on_both_ways() {
    let answer = always(200, "x-a: 1\r\nx-a: 2\r\nx-b: 1\r\nserver: secret\r\n", "x");
    let upstream = Upstream::play([answer]).await;
    let route = "    requestHeaders: { set: { x-s: new }, append: { x-p: more }, remove: [x-r] }
    responseHeaders: { set: { x-a: one }, append: { x-b: two }, remove: [server] }\n";
    let proxy = Proxy::start(&one_route(&upstream, route));
    let fields = "X-S: 1\r\nX-S: 2\r\nX-P: 1\r\nX-R: 1\r\nX-R: 2\r\nX-K: kept\r\n";
    let response = proxy.ask(&get("/", fields)).await;
    assert_eq!(response.field("x-a"), ["one"]);
    assert_eq!(response.field("x-b"), ["1", "two"]);
    assert!(response.field("server").is_empty());
    let seen = &upstream.requests()[0];
    assert_eq!(seen.field("x-s"), ["new"]);
    assert_eq!(seen.field("x-p"), ["1", "more"]);
    assert!(seen.field("x-r").is_empty());
    assert_eq!(seen.field("x-k"), ["kept"]);
}

#[tokio::test]
async fn the_proxy_s_own_answers_of_a_route_carry_its_fields_too() {
    let upstream = Upstream::play([Act::Close]).await;
    let route = "    responseHeaders: { set: { strict-transport-security: max-age=1 } }\n";
    let proxy =
        Proxy::start(&one_route(&upstream, route).replace("pathPrefix: /", "pathPrefix: /a"));
    let response = proxy.ask(GET).await;
    assert_eq!(response.status, 502);
    assert_eq!(response.field("strict-transport-security"), ["max-age=1"]);
    let nobody_s = proxy.ask(&get("/x", "")).await;
    assert_eq!(nobody_s.status, 404);
    assert!(nobody_s.field("strict-transport-security").is_empty());
}

#[tokio::test]
async fn the_host_is_the_client_s_the_endpoint_s_or_the_route_s() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let own = upstream.address.to_string();
    let ours = "{ host: upstream, endpoints";
    for (policy, route, wanted) in [
        ("{ endpoints", "", "shop.test:81"),
        (ours, "", own.as_str()),
        ("{ endpoints", "    rewrite: { host: inner.test }\n", "inner.test"),
        (ours, "    rewrite: { host: 'inner.test:8' }\n", "inner.test:8"),
    ] {
        let config = one_route(&upstream, route).replace("{ endpoints", policy);
        let proxy = Proxy::start(&config);
        assert_eq!(proxy.ask(&get("/", "")).await.status, 200);
        assert_eq!(upstream.requests().last().unwrap().field("host"), [wanted], "{policy} {route}");
    }
}

/// What an upstream sees of `fields`, and which client a Flow sees.
async fn told(forwarded: &str, fields: &str) -> (Vec<String>, String) {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let route = "    output: \"{{ execution.platform.client.address }}\"\n";
    let proxy = Proxy::start(&format!("{forwarded}{}", one_route(&upstream, route)));
    let response = proxy.ask(&get("/", fields)).await;
    let seen = &upstream.requests()[0];
    let about = |line: &&str| {
        let name = line.split(':').next().unwrap().to_ascii_lowercase();
        name.contains("forward") || name.ends_with("-ip") || name == "via" || name.contains("envoy")
    };
    // Each process has another name.
    let plain = |line: &str| match line.rsplit_once("mwl-proxy-") {
        Some((before, name)) if name.len() == 8 => format!("{before}mwl-proxy"),
        _ => line.to_owned(),
    };
    let mut lines: Vec<String> = seen.head.lines().skip(1).filter(about).map(plain).collect();
    lines.sort_unstable();
    (lines, response.body)
}

const CLAIMS: &str = "X-Forwarded-For: 192.0.2.1, 10.0.0.9\r\nX-Forwarded-Proto: https\r\nForwarded: for=192.0.2.1\r\nX_Forwarded_For: 6.6.6.6\r\nX.Forwarded.For: 6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\n";

#[tokio::test]
async fn without_the_section_the_fields_pass_and_nobody_reads_them() {
    let (lines, client) = told("", CLAIMS).await;
    assert_eq!(
        lines,
        [
            "forwarded: for=192.0.2.1",
            "x-forwarded-for: 192.0.2.1, 10.0.0.9",
            "x-forwarded-proto: https",
            "x-real-ip: 6.6.6.6",
            "x.forwarded.for: 6.6.6.6",
            "x_forwarded_for: 6.6.6.6",
        ]
    );
    assert_eq!(client, r#""127.0.0.1""#);
}

#[tokio::test]
async fn an_untrusted_client_s_claims_are_dropped() {
    let more = "True-Client-IP: 6.6.6.6\r\nCF-Connecting-IP: 6.6.6.6\r\nX-Client-IP: 6.6.6.6\r\nX-Cluster-Client-IP: 6.6.6.6\r\nX-Original-Forwarded-For: 6.6.6.6\r\nX-Envoy-External-Address: 6.6.6.6\r\nX-Forwarded-Client-Cert: x\r\n";
    let claims = format!("{CLAIMS}{more}");
    let (lines, client) = told("forwarded: { forwarded: true }\n", &claims).await;
    assert_eq!(
        lines,
        [
            "forwarded: for=127.0.0.1;host=\"shop.test:81\";proto=http",
            "via: 1.1 mwl-proxy",
            "x-forwarded-for: 127.0.0.1",
            "x-forwarded-host: shop.test:81",
            "x-forwarded-proto: http",
        ]
    );
    assert_eq!(client, r#""127.0.0.1""#);
}

#[tokio::test]
async fn a_trusted_proxy_s_claims_are_believed_and_added_to() {
    let trusting = "forwarded: { trusted: [127.0.0.0/8, 10.0.0.0/8], via: false }\n";
    let (lines, client) = told(trusting, CLAIMS).await;
    assert_eq!(
        lines,
        [
            "forwarded: for=192.0.2.1",
            "x-forwarded-for: 192.0.2.1, 10.0.0.9, 127.0.0.1",
            "x-forwarded-host: shop.test:81",
            "x-forwarded-proto: https",
            "x-real-ip: 6.6.6.6",
        ]
    );
    assert_eq!(client, r#""192.0.2.1""#);
}

/// A client may name any field in `Connection`: named fields are removed, and the proxy adds its own after that.
#[tokio::test]
async fn a_client_cannot_have_the_proxy_s_own_fields_taken_off() {
    let claims =
        "Connection: close, X-Forwarded-For, X-Forwarded-Host, Via\r\nX-Forwarded-For: 6.6.6.6\r\n";
    let (lines, client) = told("forwarded: { trusted: [127.0.0.1] }\n", claims).await;
    assert_eq!(
        lines,
        [
            "via: 1.1 mwl-proxy",
            "x-forwarded-for: 127.0.0.1",
            "x-forwarded-host: shop.test:81",
            "x-forwarded-proto: http",
        ]
    );
    assert_eq!(client, r#""127.0.0.1""#);
    let upstream = Upstream::play([always(200, "", "")]).await;
    let route = "    requestHeaders: { set: { x-tenant: main } }\n";
    let proxy = Proxy::start(&one_route(&upstream, route));
    proxy.ask(&get("/", "Connection: x-tenant\r\n")).await;
    assert_eq!(upstream.requests()[0].field("x-tenant"), ["main"]);
}

/// RFC 9110 §7.6.3: nothing else would end it.
#[tokio::test]
async fn a_request_that_comes_back_is_refused() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = |forwarded: &str| {
        format!(
            "listeners: [{{ address: '{free}' }}]\nlimits: {{ workers: 1 }}\n{forwarded}upstreams: {{ u: {{ endpoints: ['http://{free}'] }} }}\nroutes: [ {{ name: r, match: {{ pathPrefix: / }}, upstream: u }} ]\n"
        )
    };
    for forwarded in ["", "forwarded: { trusted: [] }\n"] {
        let proxy = Proxy::whole(&config(forwarded), &crate::support::proxy::Files::new());
        let mut http2 = crate::support::h2::Client::connect(proxy.address).await;
        let answer = http2.ask(crate::support::h2::request("GET", "/a", &[]), b"").await;
        assert_eq!((answer.status, &answer.json()["code"]), (508, &"Proxy.LoopDetected".into()));
        let response = proxy.ask(GET).await;
        assert_eq!(response.status, 508);
        assert_eq!(response.field("proxy-status"), ["mwl-proxy; error=proxy_loop_detected"]);
        let passed = proxy.metric("mwl_attempts_total{code=\"Provider.Call.Http.NonSuccessStatus\",route=\"r\",upstream=\"u\"}");
        assert_eq!((passed, proxy.metric("mwl_requests_refused_total{reason=\"loop\"}")), (2, 2));
    }
    // Another proxy of this kind on the way is not a loop.
    let upstream = Upstream::play([always(200, "", "")]).await;
    let proxy = Proxy::start(&format!("forwarded: {{}}\n{}", one_route(&upstream, "")));
    assert_eq!(proxy.ask(&get("/", "Via: 1.1 mwl-proxy-01234567\r\n")).await.status, 200);
}

/// On answers that an upstream gave, on the proxy's own, and on refusals.
#[tokio::test]
async fn every_answer_has_the_id_if_the_file_names_a_field_for_it() {
    let upstream = Upstream::play([always(200, "X-Id: theirs\r\n", "good")]).await;
    let config = one_route(&upstream, "").replace("pathPrefix: /", "pathPrefix: /a");
    let proxy = Proxy::start(&format!("requestIdHeader: x-id\n{config}"));
    let ask = async |path: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nHost: t\r\nX-Request-Id: mine\r\n\r\n");
        let response = proxy.ask(&head).await;
        let fields = response.field("x-id").into_iter().map(str::to_owned).collect::<Vec<_>>();
        (response.status, fields)
    };
    assert_eq!(ask("/a").await, (200, vec!["mine".to_owned()]));
    drop(upstream);
    let (status, fields) = ask("/a").await;
    assert_eq!((status, fields), (502, vec!["mine".to_owned()]));
    let (status, fields) = ask("/elsewhere").await;
    assert_eq!((status, fields.len()), (404, 1));
}
