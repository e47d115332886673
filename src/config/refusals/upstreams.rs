//! The protocols, endpoints and balance of upstreams.

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
