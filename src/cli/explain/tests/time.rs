use super::*;

#[test]
fn a_wait_beyond_the_bound_is_not_begun() {
    let said = recipe(&["--request", "GET /total-budget", "--respond", "429,retry-after=60"]);
    insta::assert_snapshot!(told(&said), @r##"
        0.000 s total-budget: attempt 1
        0.000 s   GET /total-budget to billing (127.0.0.1:3000)
                  answers --respond #1: 429,retry-after=60
        0.000 s   Provider.Call.Http.Throttled, retryable
                  total-budget: attempt 1: upstream billing answered 429
        0.000 s retry gives up: Provider.Middleware.Retry.Exhausted
                  gave up after 1 run: the wait is PT1M, and a bound fires in PT30S

    Result: error Provider.Middleware.Retry.Exhausted
        gave up after 1 run: the wait is PT1M, and a bound fires in PT30S
      because of error Provider.Call.Http.Throttled
        total-budget: attempt 1: upstream billing answered 429
    The client gets 429:
      retry-after: 60
      content-length: 0
    "##);
}

#[test]
fn the_client_leaves_and_the_cleanup_runs() {
    let request = ["--request", "GET /slow", "--respond", "hang", "--client-timeout", "PT0.5S"];
    insta::assert_snapshot!(said(&request).unwrap(), @r##"
    GET /slow

    not flaky: the path is /slow, not /flaky
    not throttled: the path is /slow, not /throttled
    route slow: path /slow
      finally: calls a Flow of its own
      timeout: PT1S

        0.000 s slow: attempt 1
        0.000 s   GET /slow to flaky (flaky:80)
                  answers --respond #1: hang
        0.500 s   cut off after PT0.5S by a cancellation: nobody waits any more
        0.500 s cleanup, tell: attempt 1
        0.500 s   POST /audit to flaky (flaky:80)
                  answers 200 (nothing else is scripted for it)
        0.500 s   200, a success
        0.500 s the cleanup of slow is done

    Result: cancellation System.Cancelled
        the work was cancelled
    The client leaves after PT0.5S, unanswered.
    "##);
}

#[test]
fn what_nothing_bounds_is_said_to_wait_for_ever() {
    let said = recipe(&["--request", "GET /other", "--respond", "hang"]);
    assert!(said.ends_with("The client waits for ever: nothing bounds what hangs."), "{said}");
    let request = ["--request", "GET /other", "--respond", "hang", "--client-timeout", "PT1H"];
    let said = recipe(&request);
    assert!(said.ends_with("The client leaves after PT1H, unanswered."), "{said}");
}

#[test]
fn hours_of_waiting_take_no_time_and_dates_are_read_against_the_virtual_clock() {
    let routes = r#"
- name: slow
  upstream: app
  middleware:
    - provider: mwl:provider.middleware/mwl/retry/v1
      onEntry: { with: { policies: [{ match: { codes: ["*"] }, attempts: 4, backoff: { initial: PT1H, rate: 3 } }] } }
      onFailure: { with: { delay: "{{ has(middleware.result.details.retryAfter) ? middleware.result.details.retryAfter : null }}" } }
"#;
    let date = "503,retry-after=Thu, 01 Jan 2026 04:00:30 GMT,x-a=b, c";
    let script = ["--respond", "500", "--respond", "500", "--respond", date, "--respond", "200"];
    let told = json(&of(routes, &[&["--format", "json"], &script[..]].concat()));
    let delays: Vec<&Json> =
        told["events"].as_array().unwrap().iter().map(|e| &e["delay"]).collect();
    let delays: Vec<&str> = delays.iter().filter_map(|delay| delay.as_str()).collect();
    assert_eq!(delays, ["PT1H", "PT3H", "PT30S"]);
    assert_eq!(told["took"], "PT4H30S");
    assert_eq!(told["response"]["status"], 200);
}

#[test]
fn jitter_is_the_same_for_the_same_seed() {
    let request = ["--request", "POST /billing/charge", "--respond", "429"];
    let seeded = |seed| recipe(&[&request[..], &["--seed", seed]].concat());
    assert_eq!(seeded("7"), seeded("7"));
    assert_ne!(seeded("7"), seeded("8"));
    assert_eq!(seeded("0"), recipe(&request));
}

#[test]
fn a_flow_that_never_waits_is_said_to_come_to_no_end() {
    let round = r"
- name: round
  flow:
    $schema: https://mwl.dev/v0.1/flow/schema.json
    entrypoint: a
    middleware:
      - provider: mwl:provider.middleware/mwl/timeout/v1
        onEntry: { with: { duration: PT30S } }
    steps:
      a: { action: Call, call: { provider: mwl:provider.call/mwl-proxy/http/v1, with: { upstream: app } }, next: b }
      b: { action: Pass, next: c }
      c: { action: Pass, next: b }
";
    insta::assert_snapshot!(of(round, &["--respond", "200,after=PT1S"]), @r#"
    GET /

    route round: every request
      timeout: PT30S

        0.000 s a: attempt 1
        0.000 s   GET / to app (app:80)
                  answers --respond #1: 200,after=PT1S
        1.000 s   200, a success after PT1S

    The Flow goes from Step to Step without a call or a wait after PT1S, and comes to no end: only a Timeout around it would end it, in real time.
    "#);
    let machines = json(&of(round, &["--respond", "200", "--format", "json"]));
    assert_eq!(machines["end"], "neverWaits");
    // Also when there is something to unwind.
    let audited = round.replace("    steps:", "      - provider: mwl:provider.middleware/mwl/finally/v1
        onAlways: { with: { call: { provider: mwl:provider.call/mwl-proxy/http/v1, with: { upstream: audit } } } }
    steps:");
    let machines = json(&of(&audited, &["--respond", "200", "--format", "json"]));
    assert_eq!(machines["end"], "neverWaits");
}
