//! The forms of a route, which requests each matches, and the answers made from a Flow's Result.

use serde_json::json;

use crate::support::client::{Client, ask, get, post, request};
use crate::support::origin::{Origin, Turn, answer};
use crate::support::program::{Directory, Proxy, configuration};

#[test]
fn a_request_passes_unchanged_and_so_does_its_answer() {
    let fields = [("x-one", "1"), ("x-two", "a, b"), ("set-cookie", "a=1"), ("set-cookie", "b=2")];
    let origin = Origin::always(answer(203, &fields, "hello"));
    let routes = "  - { name: all, match: { pathPrefix: / }, upstream: billing }\n";
    let proxy = Proxy::before(&[("billing", origin.address)], routes);
    let sent = [
        ("X-Kept", "as it is"),
        ("Cookie", "c=3"),
        ("Connection", "x-hop"),
        ("X-Hop", "for the proxy alone"),
        ("Keep-Alive", "timeout=5"),
        ("TE", "trailers, gzip"),
    ];
    let got = ask(proxy.address, request("PATCH", "/a%2Fb//c;d?q=%20&q=2&e", &sent, b"body"));
    assert_eq!((got.status, got.text()), (203, "hello"));
    assert_eq!(got.field("x-one"), Some("1"));
    assert_eq!(got.field("x-two"), Some("a, b"));
    assert_eq!(got.head.fields("set-cookie").collect::<Vec<_>>(), ["a=1", "b=2"]);

    let seen = &origin.seen()[0];
    assert_eq!(seen.head.line, "PATCH /a%2Fb//c;d?q=%20&q=2&e HTTP/1.1");
    assert_eq!(seen.body, b"body");
    assert_eq!(seen.head.field("x-kept"), Some("as it is"));
    assert_eq!(seen.head.field("cookie"), Some("c=3"));
    for hop in ["x-hop", "keep-alive", "te"] {
        assert_eq!(seen.head.field(hop), None, "`{hop}` is for one connection");
    }
}

#[test]
fn an_execution_has_the_requests_id_or_a_new_one() {
    let origin = Origin::always(answer(200, &[], ""));
    let routes = "  - { name: all, match: { pathPrefix: / }, upstream: billing }\n";
    let proxy = Proxy::before(&[("billing", origin.address)], routes);
    ask(proxy.address, request("GET", "/", &[("x-request-id", "abc-123")], b""));
    get(proxy.address, "/");
    get(proxy.address, "/");
    let ids: Vec<String> =
        origin.seen().iter().map(|seen| seen.head.field("x-request-id").unwrap().into()).collect();
    assert_eq!(ids[0], "abc-123");
    assert_ne!(ids[1], ids[2]);
    for id in &ids[1..] {
        let id = uuid::Uuid::parse_str(id).unwrap();
        assert_eq!(id.get_version_num(), 7);
    }
}

const FLOW: &str = r#"{
  "$schema": "https://mwl.dev/v0.1/flow/schema.json",
  "parameters": {
    "type": "object",
    "properties": { "tenant": { "type": "string" }, "limit": { "type": "integer", "default": 5 } },
    "required": ["tenant"]
  },
  "entrypoint": "send",
  "steps": {
    "send": {
      "action": "Call",
      "call": {
        "provider": "mwl:provider.call/mwl-proxy/http/v1",
        "with": {
          "upstream": "billing",
          "query": { "tenant": "{{ vars.tenant }}", "limit": "{{ string(vars.limit) }}" }
        }
      },
      "next": "done"
    },
    "done": { "action": "Return" }
  }
}"#;

#[test]
fn a_flow_in_a_file_takes_the_routes_arguments() {
    let origin = Origin::always(answer(200, &[], "ok"));
    let directory = Directory::new();
    directory.write("flows/send.json", FLOW);
    let routes = "
  - { name: a, match: { pathPrefix: /a }, flow: flows/send.json, with: { tenant: one } }
  - { name: b, match: { pathPrefix: /b }, flow: flows/send.json, with: { tenant: two, limit: 9 } }
";
    let file = configuration(&[("billing", origin.address)], routes);
    let proxy = Proxy::start_in(directory, &file);
    assert_eq!(get(proxy.address, "/a").text(), "ok");
    assert_eq!(get(proxy.address, "/b").text(), "ok");
    let query = |number: usize| {
        let line = origin.seen()[number].head.line.clone();
        let (_, query) = line.trim_end_matches(" HTTP/1.1").split_once('?').unwrap();
        let mut pairs: Vec<_> = query.split('&').map(str::to_owned).collect();
        pairs.sort();
        pairs
    };
    assert_eq!(query(0), ["limit=5", "tenant=one"]);
    assert_eq!(query(1), ["limit=9", "tenant=two"]);
}

#[test]
fn the_first_route_that_matches_takes_the_request() {
    let returning = |name: &str, matches: &str| {
        format!(
            "  - name: {name}
    match: {matches}
    flow: {{ entrypoint: done, steps: {{ done: {{ action: Return, value: {{ route: {name} }} }} }} }}
"
        )
    };
    let routes = [
        returning("exact", "{ path: /a/b }"),
        returning("host", "{ hosts: [\"*.example.com\"], pathPrefix: /a }"),
        returning("field", "{ headers: { x-tier: gold }, pathPrefix: /a }"),
        returning("query", "{ query: { debug: \"1\" }, pathPrefix: /a }"),
        returning("write", "{ methods: [POST, PUT], pathPrefix: /a }"),
        returning("read", "{ methods: [GET], pathPrefix: /a }"),
    ];
    let billing = Origin::always(Turn::Hang);
    let proxy = Proxy::before(&[("billing", billing.address)], &routes.concat());
    let route = |method: &str, target: &str, fields: &str| {
        let host = if fields.contains("Host:") { "" } else { "Host: t\r\n" };
        let got = ask(proxy.address, format!("{method} {target} HTTP/1.1\r\n{host}{fields}\r\n"));
        assert_eq!(got.status, 200, "{method} {target}: {}", got.text());
        assert_eq!(got.field("content-type"), Some("application/json"));
        got.json()["route"].as_str().unwrap().to_owned()
    };
    assert_eq!(route("GET", "/a/b", "x-tier: gold\r\n"), "exact");
    assert_eq!(route("GET", "/a/b?debug=1", ""), "exact");
    assert_eq!(route("GET", "/a", "Host: API.example.com:81\r\n"), "host");
    assert_eq!(route("GET", "/a/c", "X-Tier: gold\r\n"), "field");
    assert_eq!(route("GET", "/a/c", "X-Tier: tin\r\n"), "read");
    assert_eq!(route("GET", "/a/c?x=2&debug=1", ""), "query");
    assert_eq!(route("PUT", "/a/c", "Content-Length: 0\r\n"), "write");
    assert_eq!(route("GET", "/a/", ""), "read");

    for (method, target) in [("GET", "/ab"), ("DELETE", "/a"), ("GET", "/")] {
        let got = ask(proxy.address, request(method, target, &[], b""));
        assert_eq!(got.status, 404, "{method} {target}");
        assert_eq!(got.field("content-type"), Some("application/problem+json"));
        assert_eq!(got.json()["status"].as_f64(), Some(404.0));
    }
    assert_eq!(billing.count(), 0);
}

#[test]
fn a_route_may_be_a_call_of_its_own() {
    let origin = Origin::always(answer(201, &[], "made"));
    let routes = r#"
  - name: called
    match: { path: /called }
    call:
      provider: mwl:provider.call/mwl-proxy/http/v1
      input: "{{ {'from': call.input.path, 'by': call.input.headers['x-user']} }}"
      with: { upstream: billing, method: PUT, path: /elsewhere, headers: { x-kind: call } }
"#;
    let proxy = Proxy::before(&[("billing", origin.address)], routes);
    let got = ask(proxy.address, request("GET", "/called", &[("X-User", "u1")], b""));
    assert_eq!((got.status, got.text()), (201, "made"));
    let seen = &origin.seen()[0];
    assert_eq!(seen.head.line, "PUT /elsewhere HTTP/1.1");
    assert_eq!(seen.head.field("x-kind"), Some("call"));
    assert_eq!(seen.head.field("content-type"), Some("application/json"));
    let body: serde_json::Value = serde_json::from_slice(&seen.body).unwrap();
    assert_eq!(body, json!({ "from": "/called", "by": "u1" }));
}

#[test]
fn a_flow_reads_a_body_only_where_an_expression_names_it() {
    let fields = [("content-type", "application/json")];
    let origin = Origin::always(answer(200, &fields, r#"{"total":7}"#));
    let routes = r#"
  - name: read
    match: { path: /read }
    flow:
      entrypoint: send
      steps:
        send:
          action: Call
          call: { provider: mwl:provider.call/mwl-proxy/http/v1, with: { upstream: billing } }
          output: "{{ {'asked': frame.input.body.amount, 'total': step.result.value.body.total} }}"
          next: done
        done: { action: Return }
"#;
    let proxy = Proxy::before(&[("billing", origin.address)], routes);
    let got = post(proxy.address, "/read", r#"{"amount":3}"#);
    assert_eq!(got.status, 200, "{}", got.text());
    assert_eq!(got.json(), json!({ "asked": 3, "total": 7 }));
    assert_eq!(origin.seen()[0].body, br#"{"amount":3}"#, "and it is sent all the same");
}

#[test]
fn what_a_flow_returns_is_the_answer() {
    let returning = |path: &str, value: &str| {
        format!(
            "  - name: {path}
    match: {{ path: /{path} }}
    flow: {{ entrypoint: done, steps: {{ done: {{ action: Return, value: {value} }} }} }}
"
        )
    };
    let routes = [
        returning("teapot", "{ status: 418, headers: { x-kind: tea }, body: { short: true } }"),
        returning("more", "{ status: 418, other: 1 }"),
        returning("list", "[1, 2]"),
        "  - name: raise
    match: { path: /raise }
    flow: { entrypoint: no, steps: { no: { action: Raise, result: { code: Order.Refused, message: secret } } } }
"
        .to_owned(),
    ];
    let unused = Origin::always(Turn::Hang);
    let proxy = Proxy::before(&[("billing", unused.address)], &routes.concat());
    let got = get(proxy.address, "/teapot");
    assert_eq!((got.status, got.field("x-kind")), (418, Some("tea")));
    assert_eq!(got.json(), json!({ "short": true }));
    let got = get(proxy.address, "/more");
    assert_eq!((got.status, got.json()), (200, json!({ "status": 418, "other": 1 })));
    let got = get(proxy.address, "/list");
    assert_eq!((got.status, got.json()), (200, json!([1, 2])));
    let got = get(proxy.address, "/raise");
    assert_eq!(got.status, 500);
    assert_eq!(got.field("content-type"), Some("application/problem+json"));
    assert_eq!(got.json()["code"], "Order.Refused");
}

#[test]
fn a_head_request_gets_the_fields_and_no_body() {
    let head = |status: u16| {
        Turn::Say(format!("HTTP/1.1 {status} X\r\nContent-Length: 1234\r\n\r\n").into_bytes())
    };
    let origin = Origin::script([head(200), head(503), head(200), answer(200, &[], "body")]);
    let routes = "
  - name: all
    match: { pathPrefix: / }
    upstream: billing
    middleware:
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry: { with: { policies: [{ match: { codes: [Provider.Call.Http.Unavailable] }, attempts: 2 }] } }
";
    let proxy = Proxy::before(&[("billing", origin.address)], routes);
    let mut client = Client::connect(proxy.address);
    for seen in [1, 3] {
        client.send(request("HEAD", "/", &[], b""));
        let got = client.answer_to_head();
        assert_eq!((got.status, got.field("content-length")), (200, Some("1234")));
        assert_eq!(origin.count(), seen);
    }
    let got = client.ask(request("GET", "/", &[], b""));
    assert_eq!(got.text(), "body", "the connection is where the answer to HEAD left it");
}

#[test]
fn a_problem_in_answer_to_head_has_no_body_either() {
    let port = crate::support::origin::Port::hold();
    let routes = "  - { name: all, match: { pathPrefix: /a }, upstream: billing }\n";
    let proxy = Proxy::before(&[("billing", port.address)], routes);
    let mut client = Client::connect(proxy.address);
    for (path, status) in [("/a", 502), ("/b", 404)] {
        client.send(request("HEAD", path, &[], b""));
        let got = client.answer_to_head();
        assert_eq!(
            (got.status, got.field("content-type")),
            (status, Some("application/problem+json"))
        );
        client.send(request("GET", path, &[], b""));
        assert_eq!(client.answer().json()["status"].as_f64(), Some(f64::from(status)));
    }
}
