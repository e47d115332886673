//! A case for each warning.

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
"#)), @r#"
    warning[unreachable-catch]: this clause is never reached: an earlier one matches all that it matches
     --> f:11:9 `{ match: { codes: [Provider.Call.Http.Throttled], types: [error] }, next: b }`
     ::: f:10:9 `{ match: { codes: [Provider.Call.*], types: [error, timeout] }, next: b }` matches first
    warning[unreachable-catch]: this clause is never reached: an earlier one matches all that it matches
     --> f:14:9 `{ match: { retryable: true }, next: b }`
     ::: f:13:9 `{ match: { codes: ["*"] }, next: b }` matches first
    "#);
}

#[test]
fn a_hidden_flow_and_an_unreached_step() {
    insta::assert_snapshot!(warned(&root(r"
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
")), @"
    warning[shadowed-flow]: the Flow `F` hides an outer Flow of that name
     --> f:7:14 `F`
     ::: f:5:3 `F` hidden here
    warning[unreached-step]: no way leads to the Step `b`
     --> f:12:3 `b`
      = help: name it in a `next`, or remove it
    warning[unreached-step]: no way leads to the Step `c`
     --> f:13:3 `c`
      = help: name it in a `next`, or remove it
    ");
}

#[test]
fn codes_that_nobody_declares() {
    insta::assert_snapshot!(warned(&root(r"
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
")), @"
    warning[undeclared-code]: nothing declares a failure code that `Provider.Call.Http.Throtled` matches
     --> f:12:36 `Provider.Call.Http.Throtled`
      = help: did you mean `Provider.Call.Http.Throttled`?
    warning[undeclared-code]: nothing declares a failure code that `System.Canceled` matches
     --> f:17:28 `System.Canceled`
      = help: did you mean `System.Cancelled`?
    warning[undeclared-code]: nothing declares a failure code that `Mine.Unknown` matches
     --> f:18:28 `Mine.Unknown`
      = help: did you mean `Mine.Known`?
    ");
    // A provider that may emit any code makes every pattern possible.
    insta::assert_snapshot!(warned(&root(r"
steps:
  a:
    action: Call
    call: { provider: mwl:provider.call/mwl/mock/v1, with: { value: 1 } }
    next: b
    catch: [{ match: { codes: [Any.Thing] }, next: b }]
  b: { action: Return }
")), @"");
}

#[test]
fn codes_of_others() {
    insta::assert_snapshot!(warned(&root(r"
steps:
  a: { action: Match, cases: [{ when: false, next: b }], default: { next: c } }
  b: { action: Raise, result: { code: System.Broken } }
  c: { action: Raise, result: { code: Provider.Call.Http.Throttled, type: tiemout } }
")), @"
    warning[minted-code]: `System.` is the engine's: a reader takes this failure for one of theirs
     --> f:6:39 `System.Broken`
      = help: raise a code of your own, such as `Payments.Rejected`
    warning[minted-code]: `Provider.` is the providers': a reader takes this failure for one of theirs
     --> f:7:39 `Provider.Call.Http.Throttled`
      = help: raise a code of your own, such as `Payments.Rejected`
    warning[reserved-type]: `tiemout` is no type of the specification, which reserves lower case
     --> f:7:75 `tiemout`
      = help: did you mean `timeout`?
    ");
}

#[test]
fn types_that_are_not_in_pascal_case() {
    insta::assert_snapshot!(warned(&root(r"
steps:
  a:
    action: Call
    call: { provider: mwl:provider.call/acme/http/v1, with: { path: / } }
    next: b
    catch: [{ match: { types: [Processing_Error, processingError, ProcessingError, HTTP2, error] }, next: b }]
  b: { action: Raise, result: { code: A.B, type: Processing-Error } }
")), @"
    warning[reserved-type]: the type `Processing_Error` is not written in PascalCase
     --> f:9:32 `Processing_Error`
      = help: write a type of your own in PascalCase
    warning[reserved-type]: `processingError` is no type of the specification, which reserves lower case
     --> f:9:50 `processingError`
      = help: write a type of your own in PascalCase
    warning[reserved-type]: the type `Processing-Error` is not written in PascalCase
     --> f:10:50 `Processing-Error`
      = help: write a type of your own in PascalCase
    ");
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
"#)), @"
    warning[unbounded-delay]: `delay` decides how long a retry waits, and no Timeout around it bounds that
     --> f:5:15 `mwl:provider.middleware/mwl/retry/v1`
      = help: put a Timeout entry before this one
    warning[amplified-runs]: a retry within a retry: each multiplies the runs of the other
     --> f:14:19 `mwl:provider.middleware/mwl/retry/v1`
     ::: f:5:15 `mwl:provider.middleware/mwl/retry/v1` the outer one
      = help: one execution may make up to 12 requests here; keep one of them
    ");
}

#[test]
fn re_runs_within_re_runs() {
    const LOOP: &str = r#"{ provider: mwl:provider.middleware/mwl/loop/v1, onSuccess: { when: "{{ middleware.metadata.iteration < 3 }}" } }"#;
    const RETRY: &str = "{ provider: mwl:provider.middleware/mwl/retry/v1, onEntry: { with: { policies: [{ match: { types: [error] }, attempts: 4, backoff: { initial: PT1S } }] } } }";
    let nested = |outer: &str, inner: &str| {
        warned(&root(&format!(
            "
steps:
  a:
    action: Call
    middleware:
      - {outer}
      - {inner}
    call: {{ provider: mwl:provider.call/acme/http/v1, with: {{ path: / }} }}
    next: b
  b: {{ action: Return }}
"
        )))
    };
    insta::assert_snapshot!(nested(LOOP, RETRY), @"
    warning[amplified-runs]: a retry within a loop: each multiplies the runs of the other
     --> f:9:21 `mwl:provider.middleware/mwl/retry/v1`
     ::: f:8:21 `mwl:provider.middleware/mwl/loop/v1` the outer one
      = help: keep one of them
    ");
    for (outer, inner, said) in [
        (RETRY, LOOP, "a loop within a retry"),
        (LOOP, LOOP, "a loop within a loop"),
        (RETRY, RETRY, "a retry within a retry"),
    ] {
        let warned = nested(outer, inner);
        assert!(warned.starts_with(&format!("warning[amplified-runs]: {said}:")), "{warned}");
    }
    // Each attempt runs the cleanup; a cleanup around the Retry runs once.
    let cleanup = format!(
        "{{ provider: mwl:provider.middleware/mwl/finally/v1, onAlways: {{ with: {{ call: {{ provider: mwl:provider.call/acme/http/v1, \
         with: {{ path: / }} }}, middleware: [{{ provider: mwl:provider.middleware/mwl/timeout/v1, onEntry: {{ with: {{ duration: PT10S }} }} }}, {RETRY}] }} }} }}"
    );
    let said = nested(RETRY, &cleanup);
    assert!(said.starts_with("warning[amplified-runs]: a retry within a retry:"), "{said}");
    assert_eq!(nested(&cleanup, RETRY), "");
}

#[test]
fn what_a_guard_keeps_from_being_read() {
    let output = |expression: &str| {
        warned(&root(&format!(
            "
steps:
  a: {{ action: Call, call: {{ provider: mwl:provider.call/acme/http/v1, with: {{ path: / }}, input: \"{{{{ {expression} }}}}\" }}, next: b }}
  b: {{ action: Return }}
"
        )))
    };
    for asked in [
        "has(call.index) ? call.index : -1.0",
        "call.?index.orValue(-1.0)",
        "has(call.index) && call.index > 3.0",
        "[1.0].all(i, has(call.result) ? call.result.value == i : true)",
    ] {
        assert_eq!(output(asked), "", "{asked}");
    }
    insta::assert_snapshot!(output("false && step.result.value"), @"
    warning[unreadable-binding]: `step.result` cannot be read here: it is there in a `Call` Step's `output`, `assign` and `catch`
     --> f:5:111 `s`
    ");
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
"#)), @"
    warning[fragile-cleanup]: this cleanup is neither bounded nor best-effort: if it fails, it supersedes a success
     --> f:8:19 `mwl:provider.middleware/mwl/finally/v1`
      = help: bound it with a Timeout in `with.middleware`, or call an inline Flow whose Call Step catches `*` and returns
    ");
}

#[test]
fn a_gate_of_nothing_and_successes_out_of_reach() {
    insta::assert_snapshot!(warned(&root(r#"
middleware: [{ provider: mwl:provider.middleware/mwl/timeout/v1, onEntry: { with: { duration: PT1S } }, onAlways: { when: "{{ true }}" } }]
steps:
  a: { action: Gather, calls: [{ flow: F }], completion: { successes: 2 }, next: b }
  b: { action: Return }
flows: { F: { entrypoint: x, steps: { x: { action: Return } } } }
"#)), @"
    warning[idle-when]: `when` gates nothing: the middleware does not act at `onAlways`
     --> f:4:117 `when`
    warning[unmeetable-completion]: `successes` is 2, more than the 1 in `calls`: the Gather always fails
     --> f:6:71 `2`
    ");
}

#[test]
fn a_loop_that_only_a_bound_ends() {
    insta::assert_snapshot!(warned(&root(r"
middleware:
  - { provider: mwl:provider.middleware/mwl/timeout/v1, onEntry: { with: { duration: PT1S } } }
  - { provider: mwl:provider.middleware/mwl/loop/v1, onSuccess: { when: true } }
steps: { a: { action: Return } }
")), @r#"
    warning[endless-loop]: a Loop whose `onSuccess.when` is always true ends only by a failure or a bound
     --> f:6:73 `true`
      = help: write onSuccess: { "when": "{{ … }}" }: the loop goes on while it is true
    "#);
}

#[test]
fn a_literal_delay_or_a_delay_instead_of_a_backoff_is_fine() {
    insta::assert_snapshot!(warned(&root(r#"
middleware:
  - provider: mwl:provider.middleware/mwl/retry/v1
    onEntry: { with: { policies: [{ match: { codes: ["*"] }, attempts: 3 }] } }
    onFailure: { with: { delay: PT1S } }
steps: { a: { action: Return } }
"#)), @"");
}

#[test]
fn steps_that_never_come_to_an_end() {
    insta::assert_snapshot!(warned(&root(r#"
steps:
  a: { action: Match, cases: [{ when: "{{ step.input == 1 }}", next: out }], default: { next: b } }
  b: { action: Pass, next: c }
  c: { action: Sleep, for: PT1S, next: b }
  out: { action: Return }
"#)), @"
    warning[endless-steps]: no way leads from the Step `b` to an end
     --> f:6:3 `b`
      = help: let one of the Steps on its way lead to a `Return` or a `Raise`
    ");
}

#[test]
fn a_loop_with_a_way_out_or_a_call_may_end() {
    insta::assert_snapshot!(warned(&root(r#"
steps:
  a: { action: Match, cases: [{ when: "{{ step.input == 1 }}", next: b }], default: { next: a } }
  b: { action: Call, call: { provider: mwl:provider.call/acme/http/v1, with: { path: / } }, next: b }
"#)), @"");
}

#[test]
fn a_gather_whose_length_is_computed() {
    let gather = |more: &str| {
        warned(&root(&format!(
            "
steps:
  a: {{ action: Gather, {more}, call: {{ flow: F }}, next: b }}
  b: {{ action: Return }}
flows:
  F: {{ entrypoint: a, steps: {{ a: {{ action: Return }} }} }}
"
        )))
    };
    let over = "over: '{{ step.input }}'";
    insta::assert_snapshot!(gather(over), @"
    warning[unbounded-gather]: this Gather's length is computed, and it states no `concurrency`: a route runs 64 dispatches at once
     --> f:5:30 `'{{ step.input }}'`
      = help: write a `concurrency`; `null` is for no limit
    ");
    assert_eq!(gather(&format!("{over}, concurrency: 2000")), "");
    assert_eq!(gather(&format!("{over}, concurrency: null")), "");
    assert_eq!(gather("over: [1, 2, 3]"), "");
}

/// A predicate is the author's own affair.
#[test]
fn predicates_that_always_or_never_hold_get_no_warning() {
    insta::assert_snapshot!(warned(&root(r#"
steps:
  a:
    action: Match
    cases:
      - { when: "{{ 1 > 2 }}", next: b }
      - { when: true, next: b }
      - { when: "{{ true }}", next: c }
    default: { next: c }
  b: { action: Return }
  c: { action: Return }
"#)), @"");
}
