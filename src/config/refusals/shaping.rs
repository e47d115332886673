//! What a route changes in messages.

use super::{of_file, of_route};

#[test]
fn fields_that_are_not_the_author_s() {
    let keys = "requestHeaders: { set: { Connection: close, host: x, a b: c }, remove: [content-length, x-request-id] }\n\
         responseHeaders: { append: { trailer: x, x-y: \"{{ 1 }}\", x-z: \"a\\nb\" } }";
    insta::assert_snapshot!(of_route(keys), @r#"
    error[reserved-header]: `Connection` cannot be changed by configuration: remove it
     --> c.yaml:6:28
      |
    6 |   requestHeaders: { set: { Connection: close, host: x, a b: c }, remove: [content-length, x-request-id] }
      |                            ^^^^^^^^^^
      = help: it is about one connection, and the proxy's own

    error[reserved-header]: `host` cannot be changed by configuration: remove it
     --> c.yaml:6:47
      |
    6 |   requestHeaders: { set: { Connection: close, host: x, a b: c }, remove: [content-length, x-request-id] }
      |                                               ^^^^
      = help: use `rewrite: { host: … }`

    error[bad-header]: `a b` is not the name of a header field: use letters, digits and hyphens
     --> c.yaml:6:56
      |
    6 |   requestHeaders: { set: { Connection: close, host: x, a b: c }, remove: [content-length, x-request-id] }
      |                                                        ^^^

    error[reserved-header]: `content-length` cannot be changed by configuration: remove it
     --> c.yaml:6:75
      |
    6 |   requestHeaders: { set: { Connection: close, host: x, a b: c }, remove: [content-length, x-request-id] }
      |                                                                           ^^^^^^^^^^^^^^
      = help: it frames the message

    error[reserved-header]: `x-request-id` cannot be changed by configuration: remove it
     --> c.yaml:6:91
      |
    6 |   requestHeaders: { set: { Connection: close, host: x, a b: c }, remove: [content-length, x-request-id] }
      |                                                                                           ^^^^^^^^^^^^
      = help: it is `execution.id`, which the client may choose

    error[reserved-header]: `trailer` cannot be changed by configuration: remove it
     --> c.yaml:7:32
      |
    7 |   responseHeaders: { append: { trailer: x, x-y: "{{ 1 }}", x-z: "a\nb" } }
      |                                ^^^^^^^
      = help: it is about one connection, and the proxy's own

    error[bad-header]: `x-y`: `{{ 1 }}` is an expression; these are literals: compute a field in the call's `with: { headers: … }`
     --> c.yaml:7:49
      |
    7 |   responseHeaders: { append: { trailer: x, x-y: "{{ 1 }}", x-z: "a\nb" } }
      |                                                 ^^^^^^^^^

    error[bad-header]: `x-z`: "a\nb" is not the value of a header field
     --> c.yaml:7:65
      |
    7 |   responseHeaders: { append: { trailer: x, x-y: "{{ 1 }}", x-z: "a\nb" } }
      |                                                                 ^^^^^^
    "#);
}

#[test]
fn a_rewrite_without_a_prefix_or_to_no_path() {
    insta::assert_snapshot!(of_route("rewrite: { pathPrefix: /a, host: 'a b' }"), @r#"
    error[missing-key]: `rewrite.pathPrefix` replaces the prefix that the route matches, and it matches none
     --> c.yaml:6:14
      |
    6 |   rewrite: { pathPrefix: /a, host: 'a b' }
      |              ^^^^^^^^^^
      = help: give the route a `match: { pathPrefix: … }`

    error[bad-host]: `host`: `a b` is not a host; write `host` or `host:port`
     --> c.yaml:6:36
      |
    6 |   rewrite: { pathPrefix: /a, host: 'a b' }
      |                                    ^^^^^
    "#);
    let keys = "match: { pathPrefix: /a }\nrewrite: { pathPrefix: /a/../b }";
    insta::assert_snapshot!(of_route(keys), @r#"
    error[bad-path]: `pathPrefix`: `/a/../b` is the path of no request: the path contains a dot segment; send the path that it stands for
     --> c.yaml:7:26
      |
    7 |   rewrite: { pathPrefix: /a/../b }
      |                          ^^^^^^^
    "#);
}

#[test]
fn ranges_that_are_none() {
    let rest = "forwarded: { trusted: [10.0.0.1/8, localhost, 10.0.0.0/40], via: yes }\n\
         routes: [{ name: r, upstream: billing }]";
    insta::assert_snapshot!(of_file(rest), @r#"
    error[bad-range]: `trusted`: `10.0.0.1/8` has bits beyond its length; write `10.0.0.0/8`
     --> c.yaml:3:24
      |
    3 | forwarded: { trusted: [10.0.0.1/8, localhost, 10.0.0.0/40], via: yes }
      |                        ^^^^^^^^^^

    error[bad-range]: `trusted`: `localhost` is no address range; write for example `10.0.0.0/8`, `fd00::/8` or `127.0.0.1`
     --> c.yaml:3:36
      |
    3 | forwarded: { trusted: [10.0.0.1/8, localhost, 10.0.0.0/40], via: yes }
      |                                    ^^^^^^^^^

    error[bad-range]: `trusted`: `10.0.0.0/40` is no address range; write for example `10.0.0.0/8`, `fd00::/8` or `127.0.0.1`
     --> c.yaml:3:47
      |
    3 | forwarded: { trusted: [10.0.0.1/8, localhost, 10.0.0.0/40], via: yes }
      |                                               ^^^^^^^^^^^

    error[wrong-type]: `via` is the string `yes`, not a boolean
     --> c.yaml:3:66
      |
    3 | forwarded: { trusted: [10.0.0.1/8, localhost, 10.0.0.0/40], via: yes }
      |                                                                  ^^^
      = help: in YAML 1.2 only `true` and `false` are; write `true`
    "#);
}
