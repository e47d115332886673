//! Circuit breakers and limits of concurrency, in virtual time.

use super::*;

#[test]
fn a_breaker_opens_within_one_request_and_its_probe_closes_it() {
    let route = r#"
  - name: r
    upstream: app
    middleware:
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry: { with: { policies: [{ match: { codes: ["*"] }, attempts: 5, backoff: { initial: PT1S } }] } }
        onFailure: { with: { delay: "{{ has(middleware.result.details.state) ? middleware.result.details.retryAfter : null }}" } }
      - provider: mwl:provider.middleware/mwl-proxy/circuit-breaker/v1
        onEntry: { with: { consecutive: 2, openFor: PT1M } }
"#;
    let said = of(
        route,
        &["--request", "GET /a", "--respond", "503", "--respond", "503", "--respond", "200"],
    );
    for line in [
        "    0.000 s circuit-breaker: closed: lets this run pass (0 of 2 failures in a row)",
        "    1.000 s circuit-breaker: closed: lets this run pass (1 of 2 failures in a row)",
        "    2.000 s circuit-breaker: open: refuses this run (for PT59S)",
        "   61.000 s circuit-breaker: half-open: lets this run through (1 probe)",
        "The client gets 200 after PT1M1S:",
    ] {
        assert!(said.contains(line), "{line} in {said}");
    }
}

#[test]
fn a_limit_says_what_it_found() {
    let route = r"
  - name: r
    upstream: app
    middleware:
      - { provider: mwl:provider.middleware/mwl-proxy/concurrency-limit/v1, onEntry: { with: { max: 3 } } }
";
    let said = of(route, &["--request", "GET /a", "--respond", "200"]);
    let line = "concurrency-limit: lets this run through (1 of 3 at once)";
    assert!(said.contains(line), "{said}");
}
