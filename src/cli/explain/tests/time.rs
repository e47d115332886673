use super::*;

#[test]
fn a_wait_beyond_the_bound_is_not_begun() {
    let said = recipe(&["--request", "GET /total-budget", "--respond", "429,retry-after=60"]);
    insta::assert_snapshot!(told(&said), @r##"
        0.000 s total-budget: attempt 1
        0.000 s   GET /total-budget to billing (127.0.0.1:3000)
                  answers --respond #1: 429,retry-after=60
        0.000 s   Provider.Call.Http.Throttled, retryable
                  total-budget: attempt 1 of 7: upstream billing answered 429
        0.000 s retry gives up: Provider.Middleware.Retry.Exhausted
                  total-budget: gave up after 1 run: the wait is PT1M, and a bound fires in PT30S

    Result: error Provider.Middleware.Retry.Exhausted
        total-budget: gave up after 1 run: the wait is PT1M, and a bound fires in PT30S
      because of error Provider.Call.Http.Throttled
        total-budget: attempt 1 of 7: upstream billing answered 429
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
    let text = "listeners: [{ address: 127.0.0.1:0 }]
upstreams: { app: { endpoints: [http://app], responseTimeout: PT0S } }
routes: [{ name: all, upstream: app }]
";
    let said = of_text(text.to_owned(), &["--respond", "hang"]);
    assert!(said.ends_with("The client waits for ever: nothing bounds what hangs."), "{said}");
    let said = of_text(text.to_owned(), &["--respond", "hang", "--client-timeout", "PT1H"]);
    assert!(said.ends_with("The client leaves after PT1H, unanswered."), "{said}");
}

#[test]
fn a_call_s_own_bound_on_its_response_goes_before_the_upstream_s() {
    let route = "
- name: all
  call: { provider: mwl:provider.call/mwl-proxy/http/v1, with: { upstream: app, responseTimeout: PT5S } }
";
    let told = json(&of(route, &["--respond", "hang", "--format", "json"]));
    assert_eq!((&told["took"], &told["response"]["status"]), (&"PT5S".into(), &504.into()));
    let told = json(&of(
        &route.replace("PT5S", "PT0S"),
        &["--respond", "200,after=PT2M", "--format", "json"],
    ));
    assert_eq!((&told["took"], &told["response"]["status"]), (&"PT2M".into(), &200.into()));
}

#[test]
fn the_standard_stack_repeats_a_get_that_got_no_response_and_no_post_without_a_key() {
    let route = "- { name: all, upstream: app, middleware: [{ stack: mwl-proxy/standard }] }";
    let script = ["--respond", "hang", "--respond", "200"];
    let asked = |request: &[&str]| of(route, &[request, &script[..]].concat());
    let get = asked(&["--request", "GET /a"]);
    assert!(get.contains("The client gets 200 after PT1M0.033S"), "{get}");
    let post = asked(&["--request", "POST /a"]);
    insta::assert_snapshot!(told(&post), @r##"
        0.000 s all: attempt 1
        0.000 s   POST /a to app (app:80)
                  answers --respond #1: hang
       60.000 s   Provider.Call.Http.ResponseTimeout, not retryable after PT1M
                  all: attempt 1 of 3: upstream app sent no response head within PT1M (responseTimeout) (not retryable: a POST without an Idempotency-Key)
       60.000 s retry: a policy takes Provider.Call.Http.ResponseTimeout, but only if it is retryable; it rises

    Result: error Provider.Call.Http.ResponseTimeout
        all: attempt 1 of 3: upstream app sent no response head within PT1M (responseTimeout) (not retryable: a POST without an Idempotency-Key)
    The client gets 504 after PT1M:
      content-type: application/problem+json
      proxy-status: mwl-proxy; error=http_response_timeout
      content-length: 150

      {"attempts":1,"code":"Provider.Call.Http.ResponseTimeout","executionId":"019b76da-a800-73df-9876-9bcf70e03541","status":504,"title":"Gateway Timeout"}

    Nothing asked for --respond #2: 200.
    "##);
    let keyed = asked(&["--request", "POST /a", "--header", "idempotency-key: k"]);
    assert!(keyed.contains("The client gets 200 after"), "{keyed}");
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
