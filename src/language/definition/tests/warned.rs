//! One case for each thing that is advised against.

use super::*;

#[test]
fn an_unreachable_clause() {
    insta::assert_snapshot!(warned(&root(r#"
steps:
  a:
    action: Call
    call: { provider: mwl:provider.call/acme/http/v1, with: { path: / } }
    next: b
    catch:
      - { match: { codes: [Provider.Call.*], types: [error, timeout] }, next: b }
      - { match: { codes: [Provider.Call.Http.Throttled], types: [error] }, next: b }
      - { match: { codes: [Provider.Call.Http.Throttled] }, next: b }
      - { match: { codes: ["*"] }, next: b }
      - { match: { retryable: true }, next: b }
  b: { action: Return }
"#)), @"");
}

#[test]
fn a_hidden_flow_and_an_unreached_step() {
    insta::assert_snapshot!(warned(&root(r#"
flows:
  F: { entrypoint: a, steps: { a: { action: Return } } }
  G:
    flows: { F: { entrypoint: a, steps: { a: { action: Return } } } }
    entrypoint: a
    steps: { a: { action: Return } }
steps:
  a: { action: Return }
  b: { action: Pass, next: c }
  c: { action: Pass, next: b }
"#)), @"");
}

#[test]
fn codes_that_nobody_declares() {
    insta::assert_snapshot!(warned(&root(r#"
steps:
  a:
    action: Call
    middleware:
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry:
          with:
            policies:
              - { match: { codes: [Provider.Call.Http.Throtled] }, attempts: 2, backoff: { initial: PT1S } }
              - { match: { codes: [Provider.Call.Http.Grpc.Unavailable, Mine.Known, System.*] }, attempts: 1 }
    call: { provider: mwl:provider.call/acme/http/v1, with: { path: / } }
    next: b
    catch:
      - { match: { codes: [System.Canceled] }, next: b }
      - { match: { codes: [Mine.Unknown] }, next: b }
  b: { action: Raise, result: { code: Mine.Known } }
"#)), @"");
    // A provider that may emit anything bounds nothing.
    assert_eq!(
        warned(&root(
            r#"
steps:
  a:
    action: Call
    call: { provider: mwl:provider.call/mwl/mock/v1, with: { value: 1 } }
    next: b
    catch: [{ match: { codes: [Any.Thing] }, next: b }]
  b: { action: Return }
"#
        )),
        ""
    );
}

#[test]
fn codes_of_others() {
    insta::assert_snapshot!(warned(&root(r#"
steps:
  a: { action: Match, cases: [{ when: false, next: b }], default: { next: c } }
  b: { action: Raise, result: { code: System.Broken } }
  c: { action: Raise, result: { code: Provider.Call.Http.Throttled, type: tiemout } }
"#)), @"");
}

#[test]
fn retries() {
    insta::assert_snapshot!(warned(&root(r#"
middleware:
  - provider: mwl:provider.middleware/mwl/retry/v1
    onEntry: { with: { policies: [{ match: { codes: ["*"] }, attempts: 3 }] } }
    onFailure: { with: { delay: "{{ middleware.result.details.retryAfter }}" } }
steps:
  a:
    action: Call
    middleware:
      - provider: mwl:provider.middleware/mwl/timeout/v1
        onEntry: { with: { duration: PT1S } }
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry: { with: { policies: [{ match: { types: [error] }, attempts: 4, backoff: { initial: PT1S } }] } }
        onFailure: { with: { delay: "{{ middleware.result.details.retryAfter }}" } }
    call: { provider: mwl:provider.call/acme/http/v1, with: { path: / } }
    next: b
  b: { action: Return }
"#)), @"");
}

#[test]
fn a_loop_around_a_retry_multiplies_nothing() {
    assert_eq!(
        warned(&root(
            r#"
steps:
  a:
    action: Call
    middleware:
      - provider: mwl:provider.middleware/mwl/loop/v1
        onSuccess: { when: "{{ middleware.metadata.iteration < 3 }}" }
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry: { with: { policies: [{ match: { types: [error] }, attempts: 4, backoff: { initial: PT1S } }] } }
    call: { provider: mwl:provider.call/acme/http/v1, with: { path: / } }
    next: b
  b: { action: Return }
"#
        )),
        ""
    );
}

#[test]
fn cleanups() {
    insta::assert_snapshot!(warned(&root(r#"
steps:
  a:
    action: Call
    middleware:
      - provider: mwl:provider.middleware/mwl/finally/v1
        onAlways: { with: { call: { provider: mwl:provider.call/acme/http/v1, with: { path: /audit } } } }
      - provider: mwl:provider.middleware/mwl/finally/v1
        onAlways:
          with:
            call: { provider: mwl:provider.call/acme/http/v1, with: { path: /bounded } }
            middleware: [{ provider: mwl:provider.middleware/mwl/timeout/v1, onEntry: { with: { duration: PT1S } } }]
      - provider: mwl:provider.middleware/mwl/finally/v1
        onAlways:
          with:
            call:
              flow:
                entrypoint: try
                steps:
                  try:
                    action: Call
                    call: { provider: mwl:provider.call/acme/http/v1, with: { path: /best-effort } }
                    next: done
                    catch: [{ match: { codes: ["*"] }, next: done }]
                  done: { action: Return }
    call: { provider: mwl:provider.call/acme/http/v1, with: { path: / } }
    next: b
  b: { action: Return }
"#)), @"");
}

#[test]
fn a_gate_of_nothing_and_successes_out_of_reach() {
    insta::assert_snapshot!(warned(&root(r#"
middleware: [{ provider: mwl:provider.middleware/mwl/timeout/v1, onEntry: { with: { duration: PT1S } }, onAlways: { when: "{{ true }}" } }]
steps:
  a: { action: Gather, calls: [{ flow: F }], completion: { successes: 2 }, next: b }
  b: { action: Return }
flows: { F: { entrypoint: x, steps: { x: { action: Return } } } }
"#)), @"");
}
