//! Addresses, URLs, durations, sizes, numbers, booleans.

use super::{of_file, of_route, rendered};

#[test]
fn addresses() {
    let text = "listeners: [{ address: \"localhost:80\" }, { address: 8080 }, {}]\n\
         routes: [{ name: r, call: {} }]\n";
    insta::assert_snapshot!(rendered(text), @r#"
    error[bad-address]: `address`: `localhost:80` is not an address with a port; write `127.0.0.1:80`
     --> c.yaml:1:24
      |
    1 | listeners: [{ address: "localhost:80" }, { address: 8080 }, {}]
      |                        ^^^^^^^^^^^^^^

    error[wrong-type]: `address` is the number 8080; wanted: an address and a port, such as `127.0.0.1:8080`
     --> c.yaml:1:53
      |
    1 | listeners: [{ address: "localhost:80" }, { address: 8080 }, {}]
      |                                                     ^^^^

    error[missing-key]: a listener needs `address`: An address and a port; port 0 lets the system choose.
     --> c.yaml:1:61
      |
    1 | listeners: [{ address: "localhost:80" }, { address: 8080 }, {}]
      |                                                             ^^
    "#);
}

#[test]
fn one_address_twice() {
    let text = "listeners: [{ address: 127.0.0.1:1 }, { address: 127.0.0.1:1 }]\n\
         routes: [{ name: r, call: {} }]\n";
    insta::assert_snapshot!(rendered(text), @r"
    error[duplicate-address]: two listeners have the address 127.0.0.1:1
     --> c.yaml:1:39
      |
    1 | listeners: [{ address: 127.0.0.1:1 }, { address: 127.0.0.1:1 }]
      |                                       ^^^^^^^^^^^^^^^^^^^^^^^^
     ::: c.yaml:1:13
      |
    1 | listeners: [{ address: 127.0.0.1:1 }, { address: 127.0.0.1:1 }]
      |             ^^^^^^^^^^^^^^^^^^^^^^^^ the first
    ");
}

#[test]
fn urls() {
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams:\n\
         \x20 a: { endpoints: [\"ftp://a\", \"a:80\", \"http://a/b\"] }\n\
         \x20 b: { endpoints: [] }\n\
         \x20 c: {}\n\
         routes: [{ name: r, upstream: a }]\n";
    insta::assert_snapshot!(rendered(text), @r#"
    error[bad-url]: `endpoints`: `ftp://a` has the scheme `ftp`; write for example `http://127.0.0.1:3000`
     --> c.yaml:3:20
      |
    3 |   a: { endpoints: ["ftp://a", "a:80", "http://a/b"] }
      |                    ^^^^^^^^^

    error[bad-url]: `endpoints`: `a:80` is not a URL; write for example `http://127.0.0.1:3000`
     --> c.yaml:3:31
      |
    3 |   a: { endpoints: ["ftp://a", "a:80", "http://a/b"] }
      |                               ^^^^^^

    error[bad-url]: `endpoints`: `http://a/b` names a path; an endpoint is a host and a port, and a route's call has the path; write for example `http://127.0.0.1:3000`
     --> c.yaml:3:39
      |
    3 |   a: { endpoints: ["ftp://a", "a:80", "http://a/b"] }
      |                                       ^^^^^^^^^^^^

    error[empty-list]: `endpoints` is empty; at least one URL is wanted
     --> c.yaml:4:19
      |
    4 |   b: { endpoints: [] }
      |                   ^^

    error[missing-key]: an upstream needs `endpoints`: Where it answers: `http://host:port`, `https://host:port` or `unix:/path`, each alone or as `url` with a `weight`. At least one. Each address of a name is an endpoint.
     --> c.yaml:5:6
      |
    5 |   c: {}
      |      ^^
    "#);
}

#[test]
fn durations() {
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams:\n\
         \x20 a: { endpoints: [http://a], connectTimeout: 5, idleTimeout: 30s, keepAlive: -PT1S, retryAfterMax: P999D }\n\
         routes: [{ name: r, upstream: a }]\n";
    insta::assert_snapshot!(rendered(text), @r"
    error[wrong-type]: `connectTimeout` is the number 5; wanted: an ISO 8601 duration with its unit, such as `PT1.5S`
     --> c.yaml:3:47
      |
    3 |   a: { endpoints: [http://a], connectTimeout: 5, idleTimeout: 30s, keepAlive: -PT1S, retryAfterMax: P999D }
      |                                               ^

    error[bad-duration]: `idleTimeout`: `30s` is not an ISO 8601 duration; write `PT30S`
     --> c.yaml:3:63
      |
    3 |   a: { endpoints: [http://a], connectTimeout: 5, idleTimeout: 30s, keepAlive: -PT1S, retryAfterMax: P999D }
      |                                                               ^^^

    error[bad-duration]: `keepAlive`: `-PT1S` is negative; a duration here is zero or more
     --> c.yaml:3:79
      |
    3 |   a: { endpoints: [http://a], connectTimeout: 5, idleTimeout: 30s, keepAlive: -PT1S, retryAfterMax: P999D }
      |                                                                               ^^^^^

    error[bad-duration]: `retryAfterMax`: `P999D` is out of range; wanted: from `PT0S` to `P365D`
     --> c.yaml:3:101
      |
    3 |   a: { endpoints: [http://a], connectTimeout: 5, idleTimeout: 30s, keepAlive: -PT1S, retryAfterMax: P999D }
      |                                                                                                     ^^^^^
    ");
}

#[test]
fn a_bound_of_no_time() {
    let text = "listeners: [{ address: 127.0.0.1:0 }]\n\
         upstreams: { a: { endpoints: [http://a], connectTimeout: PT0S } }\n\
         routes: [{ name: r, upstream: a }]\n";
    insta::assert_snapshot!(rendered(text), @r"
    error[bad-duration]: `connectTimeout`: `PT0S` is out of range; wanted: from `PT0.001S` to `P365D`
     --> c.yaml:2:58
      |
    2 | upstreams: { a: { endpoints: [http://a], connectTimeout: PT0S } }
      |                                                          ^^^^
    ");
}

#[test]
fn sizes() {
    insta::assert_snapshot!(of_route("buffer: { request: 64, response: 64KB, replay: 2GiB }"), @r"
    error[wrong-type]: `request` is the number 64; wanted: a size with its unit, such as `64KiB` or `64B`
     --> c.yaml:6:22
      |
    6 |   buffer: { request: 64, response: 64KB, replay: 2GiB }
      |                      ^^

    error[bad-size]: `response`: `64KB` has the unit `KB`; wanted: B, KiB, MiB or GiB
     --> c.yaml:6:36
      |
    6 |   buffer: { request: 64, response: 64KB, replay: 2GiB }
      |                                    ^^^^

    error[bad-size]: `replay`: `2GiB` is out of range; wanted: from `0B` to `1GiB`
     --> c.yaml:6:50
      |
    6 |   buffer: { request: 64, response: 64KB, replay: 2GiB }
      |                                                  ^^^^
    ");
}

#[test]
fn counts() {
    let rest = "routes: [{ name: r, upstream: billing }]\n\
         limits: { headers: 0, connections: 1.5, workers: many }";
    insta::assert_snapshot!(of_file(rest), @r"
    error[out-of-range]: `headers` is 0; wanted: a whole number from 1 to 1000
     --> c.yaml:4:20
      |
    4 | limits: { headers: 0, connections: 1.5, workers: many }
      |                    ^

    error[out-of-range]: `connections` is 1.5; wanted: a whole number from 1 to 1000000
     --> c.yaml:4:36
      |
    4 | limits: { headers: 0, connections: 1.5, workers: many }
      |                                    ^^^

    error[wrong-type]: `workers` is the string `many`; wanted: a whole number
     --> c.yaml:4:50
      |
    4 | limits: { headers: 0, connections: 1.5, workers: many }
      |                                                  ^^^^
    ");
}

#[test]
fn a_boolean_of_yaml_1_1() {
    insta::assert_snapshot!(of_route("exposeFailures: no"), @r"
    error[wrong-type]: `exposeFailures` is the string `no`, not a boolean
     --> c.yaml:6:19
      |
    6 |   exposeFailures: no
      |                   ^^
      = help: in YAML 1.2 only `true` and `false` are; write `false`
    ");
}

#[test]
fn an_environment_that_is_no_string() {
    let rest = "environment: 7\n\
         routes: [{ name: r, upstream: billing }]";
    insta::assert_snapshot!(of_file(rest), @r"
    error[wrong-type]: `environment` is the number 7; wanted: a string
     --> c.yaml:3:14
      |
    3 | environment: 7
      |              ^
    ");
}
