//! Stores, and entries that name them.

use super::of_file;

/// A file whose store `fleet` has these members, and whose route's limit names `fleet`.
fn told(members: &str) -> String {
    of_file(&format!(
        "stores: {{ fleet: {{ {members} }} }}\nroutes: [{{ name: r, upstream: billing }}]"
    ))
}

#[test]
fn addresses() {
    insta::assert_snapshot!(told("redis: 'http://a:6379'"), @r"
    error[bad-url]: `redis`: `http://a:6379` has the scheme `http`; write for example `redis://127.0.0.1:6379`
     --> c.yaml:3:27
      |
    3 | stores: { fleet: { redis: 'http://a:6379' } }
      |                           ^^^^^^^^^^^^^^^
    ");
    insta::assert_snapshot!(told("redis: 'redis://user:secret@a'"), @r"
    error[bad-url]: `redis`: the URL holds credentials; write them as `user` and `password`
     --> c.yaml:3:27
      |
    3 | stores: { fleet: { redis: 'redis://user:secret@a' } }
      |                           ^^^^^^^^^^^^^^^^^^^^^^^
    ");
    insta::assert_snapshot!(told("redis: 'redis://a/sessions'"), @r"
    error[bad-url]: `redis`: `redis://a/sessions` has a path that is no number of a database; write for example `redis://127.0.0.1:6379`
     --> c.yaml:3:27
      |
    3 | stores: { fleet: { redis: 'redis://a/sessions' } }
      |                           ^^^^^^^^^^^^^^^^^^^^
    ");
    insta::assert_snapshot!(told("timeout: PT1S"), @r"
    error[missing-key]: a store needs `redis`: Where it is: `redis://host:port`, or `rediss://host:port` with TLS. A path is the number of a database: `redis://host:6379/2`.
     --> c.yaml:3:18
      |
    3 | stores: { fleet: { timeout: PT1S } }
      |                  ^^^^^^^^^^^^^^^^^
    ");
}

#[test]
fn what_does_not_go_together() {
    insta::assert_snapshot!(told("redis: 'redis://a', tls: { serverName: b }"), @r"
    error[unused-tls]: `tls` is there, but the store is not `rediss://`
     --> c.yaml:3:40
      |
    3 | stores: { fleet: { redis: 'redis://a', tls: { serverName: b } } }
      |                                        ^^^
      = help: write it as `rediss://host:port`
    ");
    insta::assert_snapshot!(told("redis: 'redis://a', password: x, passwordFile: y"), @r"
    error[duplicate-password]: a store has a `password` or a `passwordFile`, not both
     --> c.yaml:3:53
      |
    3 | stores: { fleet: { redis: 'redis://a', password: x, passwordFile: y } }
      |                                                     ^^^^^^^^^^^^
    ");
    insta::assert_snapshot!(told("redis: 'redis://a', onError: pass, timeout: PT1M"), @r"
    error[unknown-word]: `onError` is `pass`; wanted: allow, deny
     --> c.yaml:3:49
      |
    3 | stores: { fleet: { redis: 'redis://a', onError: pass, timeout: PT1M } }
      |                                                 ^^^^

    error[bad-duration]: `timeout`: `PT1M` is out of range; wanted: from `PT0.001S` to `PT10S`
     --> c.yaml:3:64
      |
    3 | stores: { fleet: { redis: 'redis://a', onError: pass, timeout: PT1M } }
      |                                                                ^^^^
    ");
}
