//! What a route matches.

use super::of_route;

#[test]
fn methods() {
    insta::assert_snapshot!(of_route(r#"match: { methods: [post, "GE T"] }"#), @r#"
    error[bad-method]: `post` is never a request's method: methods are case-sensitive
     --> c.yaml:6:22
      |
    6 |   match: { methods: [post, "GE T"] }
      |                      ^^^^
      = help: write `POST`

    error[bad-method]: `GE T` is not a method
     --> c.yaml:6:28
      |
    6 |   match: { methods: [post, "GE T"] }
      |                            ^^^^^^
    "#);
}

#[test]
fn methods_as_a_string() {
    insta::assert_snapshot!(of_route("match: { methods: POST }"), @r"
    error[wrong-type]: `methods` is the string `POST`; wanted: a list
     --> c.yaml:6:21
      |
    6 |   match: { methods: POST }
      |                     ^^^^
    ");
}

#[test]
fn paths() {
    insta::assert_snapshot!(of_route(r#"match: { path: a, pathPrefix: "/a?b" }"#), @r#"
    error[bad-path]: `path`: `a` does not start with `/`; write `/a`
     --> c.yaml:6:18
      |
    6 |   match: { path: a, pathPrefix: "/a?b" }
      |                  ^

    error[bad-path]: `pathPrefix`: `/a?b` is more than a path; parameters are matched by `query`
     --> c.yaml:6:33
      |
    6 |   match: { path: a, pathPrefix: "/a?b" }
      |                                 ^^^^^^
    "#);
}

#[test]
fn hosts() {
    insta::assert_snapshot!(of_route(r#"match: { hosts: ["http://a", "a:80", "*"] }"#), @r#"
    error[bad-host]: `hosts`: `http://a` is not a host; write a name without scheme and port, such as `api.example.com` or `*.example.com`
     --> c.yaml:6:20
      |
    6 |   match: { hosts: ["http://a", "a:80", "*"] }
      |                    ^^^^^^^^^^

    error[bad-host]: `hosts`: `a:80` is not a host; write a name without scheme and port, such as `api.example.com` or `*.example.com`
     --> c.yaml:6:32
      |
    6 |   match: { hosts: ["http://a", "a:80", "*"] }
      |                                ^^^^^^

    error[bad-host]: `hosts`: `*` is not a host; write a name without scheme and port, such as `api.example.com` or `*.example.com`
     --> c.yaml:6:40
      |
    6 |   match: { hosts: ["http://a", "a:80", "*"] }
      |                                        ^^^
    "#);
}

#[test]
fn headers_and_query() {
    let keys = r#"match: { headers: { "a b": x, c: 1 }, query: { d: true } }"#;
    insta::assert_snapshot!(of_route(keys), @r#"
    error[bad-header]: `a b` is not the name of a header field: use letters, digits and hyphens
     --> c.yaml:6:23
      |
    6 |   match: { headers: { "a b": x, c: 1 }, query: { d: true } }
      |                       ^^^^^

    error[wrong-type]: `c` is the number 1; wanted: a string, or null for any value
     --> c.yaml:6:36
      |
    6 |   match: { headers: { "a b": x, c: 1 }, query: { d: true } }
      |                                    ^

    error[wrong-type]: `d` is the boolean `true`; wanted: a string, or null for any value
     --> c.yaml:6:53
      |
    6 |   match: { headers: { "a b": x, c: 1 }, query: { d: true } }
      |                                                     ^^^^
    "#);
}
