//! The protocols, endpoints and balance of upstreams, and the health of their endpoints.

use super::rendered;
use crate::config::tests::TestOrigin;

#[test]
fn protocols() {
    let text = "listeners: [{ address: 127.0.0.1:1 }]\n\
         upstreams: { u: { endpoints: [http://a], protocol: htp2, pingInterval: -PT1S } }\n\
         routes: [{ name: r, upstream: u }]\n";
    insta::assert_snapshot!(rendered(text), @r"
    error[unknown-word]: `protocol` is `htp2`; wanted: http1, http2
     --> c.yaml:2:52
      |
    2 | upstreams: { u: { endpoints: [http://a], protocol: htp2, pingInterval: -PT1S } }
      |                                                    ^^^^
      = help: did you mean `http2`?

    error[bad-duration]: `pingInterval`: `-PT1S` is negative; a duration here is zero or more
     --> c.yaml:2:72
      |
    2 | upstreams: { u: { endpoints: [http://a], protocol: htp2, pingInterval: -PT1S } }
      |                                                                        ^^^^^
    ");
}

/// A configuration whose upstream has these members.
fn with(members: &str) -> String {
    format!(
        "listeners: [{{ address: 127.0.0.1:1 }}]\nupstreams: {{ u: {{ {members} }} }}\nroutes: [{{ name: r, upstream: u }}]\n"
    )
}

/// What is told of it.
fn told(members: &str) -> String {
    rendered(&with(members))
}

fn accepted(members: &str) -> bool {
    let text = with(members);
    let mut world = TestOrigin::default();
    world.files.insert("c.yaml", &text);
    world.load("c.yaml").is_ok_and(|loaded| loaded.warnings.is_empty())
}

#[test]
fn endpoints_have_weights_and_forms() {
    for (endpoint, wanted) in [
        ("{ url: http://a, weight: 0 }", "`weight` is 0; wanted: a whole number from 1 to 1000"),
        ("{ uri: http://a }", "did you mean `url`?"),
        ("7", "`endpoints` is the number 7; wanted: a string"),
        ("unix:app.sock", "`unix:app.sock` names no file; write for example `unix:/run/app.sock`"),
        ("unix:/run/", "`unix:/run/` names no file"),
    ] {
        let told = told(&format!("endpoints: [{endpoint}]"));
        assert!(told.contains(wanted), "{told}");
    }
    let long = told(&format!("endpoints: ['unix:/{}']", "a".repeat(107)));
    assert!(long.contains("longer than the 107 bytes that a socket's path may have"), "{long}");
    assert!(accepted("endpoints: [{ url: http://a, weight: 1000 }, 'unix:/run/a b.sock']"));
}

#[test]
fn a_key_is_an_expression_over_what_is_known_before_the_request() {
    for (balance, wanted) in [
        ("leastRequests", "wanted: leastRequest, roundRobin, random, or `{ hash: … }`"),
        ("7", "`balance` is the number 7; wanted: a string"),
        ("{ key: a }", "`balance` by a key needs `hash`"),
        ("{ hash: a }", "`hash` is the string `a`, which is the same for every request"),
        ("{ hash: '{{ step. }}' }", "bad-expression"),
        ("{ hash: '{{ vars.a }}' }", "vars"),
        ("{ hash: '{{ step.input.body.id }}' }", "other than `body`"),
        ("{ hash: '{{ step.input }}' }", "other than `body`"),
        ("{ hash: '{{ execution.metadata.entered }}' }", "of `execution` `id`"),
    ] {
        let told = told(&format!("endpoints: [http://a], balance: {balance}"));
        assert!(told.contains(wanted), "{told}");
    }
    for balance in [
        "roundRobin",
        "{ hash: \"{{ step.input.headers['x-user'] }}\" }",
        "{ hash: '{{ execution.platform.client.address + execution.id }}' }",
        "{ hash: '{{ has(step.input.query.user) ? step.input.query.user : null }}' }",
    ] {
        assert!(accepted(&format!("endpoints: [http://a], balance: {balance}")), "{balance}");
    }
}

#[test]
fn health_and_ejection() {
    let text = "listeners: [{ address: 127.0.0.1:1 }]\n\
         upstreams:\n\
         \x20 none: { endpoints: [http://a], health: { interval: PT1S } }\n\
         \x20 both: { endpoints: [http://a], health: { path: /h, grpc: s } }\n\
         \x20 http1: { endpoints: [http://a], health: { grpc: s, statuses: [200] } }\n\
         \x20 path: { endpoints: [http://a], health: { path: healthz#x, statuses: [20x], healthyAfter: 0 } }\n\
         \x20 times: { endpoints: [http://a], ejection: { maxShare: 0, baseTime: PT9M, maxTme: PT1M } }\n\
         routes: [{ name: r, upstream: none }]\n";
    insta::assert_snapshot!(rendered(text), @r"
    error[health-question]: `health` does not say what to ask
     --> c.yaml:3:34
      |
    3 |   none: { endpoints: [http://a], health: { interval: PT1S } }
      |                                  ^^^^^^
      = help: write `path: /healthz`, or `grpc: SERVICE` for gRPC's health service

    error[health-question]: `health` has `path` and `grpc`; a check asks one of them
     --> c.yaml:4:54
      |
    4 |   both: { endpoints: [http://a], health: { path: /h, grpc: s } }
      |                                                      ^^^^
      = help: write `path: /healthz`, or `grpc: SERVICE` for gRPC's health service

    error[grpc-health]: `grpc` asks over HTTP/2, and this upstream speaks HTTP/1.1
     --> c.yaml:5:45
      |
    5 |   http1: { endpoints: [http://a], health: { grpc: s, statuses: [200] } }
      |                                             ^^^^
      = help: write `protocol: http2` beside `health`, or a `path` here

    error[unused-statuses]: `statuses` are those of a `path`; gRPC's health service answers `SERVING`
     --> c.yaml:5:54
      |
    5 |   http1: { endpoints: [http://a], health: { grpc: s, statuses: [200] } }
      |                                                      ^^^^^^^^
      = help: remove it

    error[bad-path]: `path`: `healthz#x` is not a path; write for example `/healthz`
     --> c.yaml:6:50
      |
    6 |   path: { endpoints: [http://a], health: { path: healthz#x, statuses: [20x], healthyAfter: 0 } }
      |                                                  ^^^^^^^^^

    error[wrong-type]: `statuses` is the string `20x`; wanted: a status from 100 to 599, or a class such as `5xx`
     --> c.yaml:6:72
      |
    6 |   path: { endpoints: [http://a], health: { path: healthz#x, statuses: [20x], healthyAfter: 0 } }
      |                                                                        ^^^

    error[out-of-range]: `maxShare` is 0; wanted: a number from 0.01 to 1
     --> c.yaml:7:57
      |
    7 |   times: { endpoints: [http://a], ejection: { maxShare: 0, baseTime: PT9M, maxTme: PT1M } }
      |                                                         ^

    error[out-of-range]: `maxTime` is shorter than `baseTime`, the time of the first ejection
     --> c.yaml:7:70
      |
    7 |   times: { endpoints: [http://a], ejection: { maxShare: 0, baseTime: PT9M, maxTme: PT1M } }
      |                                                                      ^^^^

    error[unknown-key]: `maxTme` is not a key of `ejection` of an upstream
     --> c.yaml:7:76
      |
    7 |   times: { endpoints: [http://a], ejection: { maxShare: 0, baseTime: PT9M, maxTme: PT1M } }
      |                                                                            ^^^^^^
      = help: did you mean `maxTime`?
    ");
}

/// What people write who have seen other proxies' files.
#[test]
fn short_forms() {
    let file = |upstream: &str, route: &str| {
        rendered(&format!(
            "listeners: [{{ address: 127.0.0.1:80 }}]\nupstreams: {{ app: {upstream} }}\nroutes: [{{ name: r, upstream: app, {route} }}]\n"
        ))
    };
    let app = "{ endpoints: [http://a] }";
    for (told, wanted) in [
        (file("http://a", ""), "wanted: an upstream, an object: `{ endpoints: [\"http://a\"] }`"),
        (file(app, "path: /a"), "= help: it is a key of `match`: write `match: { path: … }`"),
        (
            file(app, "retries: 3"),
            "= help: a stack does that: `middleware: [{ stack: mwl-proxy/standard }]`",
        ),
        (file(app, "timeout: PT1S"), "= help: a stack does that"),
        // A key that is nearly right is meant as that.
        (file(app, "mach: {}"), "= help: did you mean `match`?"),
    ] {
        assert!(told.contains(wanted), "{told}");
    }
}
