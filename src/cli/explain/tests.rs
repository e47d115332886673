use std::path::PathBuf;

use clap::Parser;
use serde_json::Value as Json;

use super::*;
use crate::cli::{Cli, Command};

/// The arguments, read as they are typed.
fn typed(arguments: &[&str]) -> Explain {
    let line = ["mwl-proxy", "explain"].iter().chain(arguments);
    match Cli::try_parse_from(line).unwrap().command {
        Some(Command::Explain(explain)) => explain,
        other => panic!("{other:?}"),
    }
}

fn said(arguments: &[&str]) -> Result<String, String> {
    let explain = typed(arguments);
    explained(&explain, &input(&explain)?).map(|(_, said)| said)
}

/// What is said of the retry-composition recipe.
fn recipe(arguments: &[&str]) -> String {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/config/recipe.yaml");
    said(&[&["-c", file], arguments].concat()).unwrap_or_else(|refused| panic!("{refused}"))
}

/// What is said of a configuration with these routes and the upstreams `app` and `audit`.
fn of(routes: &str, arguments: &[&str]) -> String {
    let text = format!(
        "listeners: [{{ address: 127.0.0.1:0 }}]\n\
         upstreams:\n  app: {{ endpoints: [http://app] }}\n  audit: {{ endpoints: [http://audit] }}\n\
         routes:\n{}",
        routes.trim_start_matches('\n')
    );
    let input = Input::Text { name: PathBuf::from("c.yaml"), text, variables: Vec::new() };
    explained(&typed(arguments), &input)
        .map_or_else(|refused| panic!("{refused}"), |(_, said)| said)
}

fn json(said: &str) -> Json {
    serde_json::from_str(said).unwrap()
}

/// What follows the description of the routes.
fn told(said: &str) -> &str {
    said.split_once("\n\n").and_then(|(_, rest)| rest.split_once("\n\n")).unwrap().1
}

#[test]
fn a_503_that_says_when_a_lost_connection_and_a_200() {
    let script = ["--respond", "503,retry-after=2", "--respond", "reset", "--respond", "200"];
    insta::assert_snapshot!(recipe(&[&["--request", "PUT /attempt-count"], &script[..]].concat()), @r##"
    PUT /attempt-count

    not charge-payment: the method is PUT, not POST
    not total-budget: the path /attempt-count is not beneath /total-budget
    not audit-each-attempt: the path /attempt-count is not beneath /audit-each-attempt
    route attempt-count: path /attempt-count and beneath
      retry: Provider.Call.Http.*, retryable, 5 attempts, waits PT0.1S

        0.000 s attempt-count: attempt 1
        0.000 s   PUT /attempt-count to billing (127.0.0.1:3000)
                  answers --respond #1: 503,retry-after=2
        0.000 s   Provider.Call.Http.Unavailable, retryable
                  attempt-count: attempt 1 of 5: upstream billing answered 503
        0.000 s retry: policy 0 takes Provider.Call.Http.Unavailable and waits PT0.1S: its schedule; the upstream asks for PT2S
                  policy 0: Provider.Call.Http.*, retryable, 5 attempts, waits PT0.1S
        0.100 s attempt-count: attempt 2
        0.100 s   PUT /attempt-count to billing (127.0.0.1:3000), on the connection from before
                  answers --respond #2: reset
        0.100 s   PUT /attempt-count to billing (127.0.0.1:3000), once more: the connection from before was found closed (no new attempt)
                  answers --respond #3: 200
        0.100 s   200, a success

    Result: success, {"body":null,"headers":{"x-attempts":"2"},"status":200}
    The client gets 200 after PT0.1S:
      x-attempts: 2
      content-length: 0
    "##);
}

#[test]
fn throttled_until_the_policy_is_exhausted() {
    insta::assert_snapshot!(recipe(&["--request", "POST /billing/charge", "--respond", "429"]), @r##"
    POST /billing/charge

    route charge-payment: POST, path /billing/charge and beneath
      finally: calls a Flow of its own
      retry: Provider.Call.Http.Throttled, 5 attempts, waits PT10S ×2 up to PT2M, jitter full; Provider.Call.Http.ConnectionFailed, 3 attempts, waits PT1S ×2; waits {{ has(middleware.result.details.retryAfter) ? middleware.result.details.retryAfter : null }} where that says so
      timeout: PT30S

        0.000 s charge-payment: attempt 1
        0.000 s   POST /billing/charge to billing (127.0.0.1:3000)
                  answers --respond #1: 429
        0.000 s   Provider.Call.Http.Throttled, retryable
                  charge-payment: attempt 1: upstream billing answered 429
        0.000 s retry: policy 0 takes Provider.Call.Http.Throttled and waits PT3.246S: its schedule, drawn from PT0S to PT10S
                  policy 0: Provider.Call.Http.Throttled, 5 attempts, waits PT10S ×2 up to PT2M, jitter full
        3.246 s charge-payment: attempt 2
        3.246 s   POST /billing/charge to billing (127.0.0.1:3000), on the connection from before
                  answers --respond #1 again, for want of another: 429
        3.246 s   Provider.Call.Http.Throttled, retryable
                  charge-payment: attempt 2: upstream billing answered 429
        3.246 s retry: policy 0 takes Provider.Call.Http.Throttled and waits PT7.645S: its schedule, drawn from PT0S to PT20S
                  policy 0: Provider.Call.Http.Throttled, 5 attempts, waits PT10S ×2 up to PT2M, jitter full
       10.891 s charge-payment: attempt 3
       10.891 s   POST /billing/charge to billing (127.0.0.1:3000)
                  answers --respond #1 again, for want of another: 429
       10.891 s   Provider.Call.Http.Throttled, retryable
                  charge-payment: attempt 3: upstream billing answered 429
       10.891 s retry: policy 0 takes Provider.Call.Http.Throttled and waits PT14.385S: its schedule, drawn from PT0S to PT40S
                  policy 0: Provider.Call.Http.Throttled, 5 attempts, waits PT10S ×2 up to PT2M, jitter full
       25.276 s charge-payment: attempt 4
       25.276 s   POST /billing/charge to billing (127.0.0.1:3000)
                  answers --respond #1 again, for want of another: 429
       25.276 s   Provider.Call.Http.Throttled, retryable
                  charge-payment: attempt 4: upstream billing answered 429
       25.276 s retry: policy 0 takes Provider.Call.Http.Throttled and waits PT0.917S: its schedule, drawn from PT0S to PT1M20S
                  policy 0: Provider.Call.Http.Throttled, 5 attempts, waits PT10S ×2 up to PT2M, jitter full
       26.193 s charge-payment: attempt 5
       26.193 s   POST /billing/charge to billing (127.0.0.1:3000), on the connection from before
                  answers --respond #1 again, for want of another: 429
       26.193 s   Provider.Call.Http.Throttled, retryable
                  charge-payment: attempt 5: upstream billing answered 429
       26.193 s retry gives up: Provider.Middleware.Retry.Exhausted
                  policy 0 is exhausted after 5 runs
       26.193 s cleanup, tell: attempt 1
       26.193 s   POST /audit to audit (127.0.0.1:3001)
                  answers 200 (nothing else is scripted for it)
       26.193 s   200, a success
       26.193 s the cleanup of charge-payment is done

    Result: error Provider.Middleware.Retry.Exhausted
        policy 0 is exhausted after 5 runs
      because of error Provider.Call.Http.Throttled
        charge-payment: attempt 5: upstream billing answered 429
    The client gets 429 after PT26.193S:
      content-length: 0
    "##);
}

#[test]
fn a_bound_fires_in_a_gap() {
    let said = recipe(&["--request", "GET /total-budget", "--respond", "429,retry-after=60"]);
    insta::assert_snapshot!(told(&said), @r##"
        0.000 s total-budget: attempt 1
        0.000 s   GET /total-budget to billing (127.0.0.1:3000)
                  answers --respond #1: 429,retry-after=60
        0.000 s   Provider.Call.Http.Throttled, retryable
                  total-budget: attempt 1: upstream billing answered 429
        0.000 s retry: policy 0 takes Provider.Call.Http.Throttled and waits PT1M: its `delay` says so; the upstream asks for PT1M
                  policy 0: Provider.Call.Http.Throttled, 5 attempts, waits PT10S ×2 up to PT2M, jitter full
       30.000 s a bound fires: Provider.Middleware.Timeout.Exceeded
                  no Result was accepted in time: the bound is PT30S

    Result: timeout Provider.Middleware.Timeout.Exceeded
        no Result was accepted in time: the bound is PT30S
    The client gets 504 after PT30S:
      content-type: application/problem+json
      proxy-status: mwl-proxy; error=http_response_timeout
      retry-after: 60
      content-length: 152

      {"attempts":1,"code":"Provider.Middleware.Timeout.Exceeded","executionId":"019b76da-a800-73df-9876-9bcf70e03541","status":504,"title":"Gateway Timeout"}
    "##);
}

#[test]
fn a_post_is_not_sent_twice() {
    let request = ["--request", "POST /retryable-only", "--body", "{}"];
    let said = recipe(&[&request[..], &["--respond", "503", "--respond", "200"]].concat());
    insta::assert_snapshot!(told(&said), @r##"
        0.000 s retryable-only: attempt 1
        0.000 s   POST /retryable-only to billing (127.0.0.1:3000)
                  answers --respond #1: 503
        0.000 s   Provider.Call.Http.Unavailable, not retryable
                  retryable-only: attempt 1 of 3: upstream billing answered 503
        0.000 s retry: no policy takes Provider.Call.Http.Unavailable; it rises

    Result: error Provider.Call.Http.Unavailable
        retryable-only: attempt 1 of 3: upstream billing answered 503
    The client gets 503:
      content-length: 0

    Nothing asked for --respond 200.
    "##);
    let said = recipe(&[&request[..], &["--respond", "reset"]].concat());
    insta::assert_snapshot!(told(&said), @r##"
        0.000 s retryable-only: attempt 1
        0.000 s   POST /retryable-only to billing (127.0.0.1:3000)
                  answers --respond #1: reset
        0.000 s   Provider.Call.Http.ConnectionClosed, not retryable
                  retryable-only: attempt 1 of 3: upstream billing closed the connection before it answered: connection error: connection reset
        0.000 s retry: no policy takes Provider.Call.Http.ConnectionClosed; it rises

    Result: error Provider.Call.Http.ConnectionClosed
        retryable-only: attempt 1 of 3: upstream billing closed the connection before it answered: connection error: connection reset
    The client gets 502:
      content-type: application/problem+json
      proxy-status: mwl-proxy; error=connection_terminated
      content-length: 147

      {"attempts":1,"code":"Provider.Call.Http.ConnectionClosed","executionId":"019b76da-a800-73df-9876-9bcf70e03541","status":502,"title":"Bad Gateway"}
    "##);
}

#[test]
fn a_decline_is_caught_and_leads_to_other_steps() {
    let script = ["--respond", "402", "--respond", "204,upstream=audit"];
    let said = recipe(&[&["--request", "POST /billing/charge"], &script[..]].concat());
    insta::assert_snapshot!(told(&said), @r##"
        0.000 s charge-payment: attempt 1
        0.000 s   POST /billing/charge to billing (127.0.0.1:3000)
                  answers --respond #1: 402
        0.000 s   Provider.Call.Payments.CardDeclined, not retryable
                  charge-payment: attempt 1: upstream billing answered 402
        0.000 s retry: no policy takes Provider.Call.Payments.CardDeclined; it rises
        0.000 s cleanup, tell: attempt 1
        0.000 s   POST /audit to audit (127.0.0.1:3001)
                  answers --respond #2: 204,upstream=audit
        0.000 s   204, a success
        0.000 s the cleanup of charge-payment is done
        0.000 s the `catch` of charge-payment takes Provider.Call.Payments.CardDeclined: next is notify-customer
        0.000 s notify-customer: attempt 1
        0.000 s   POST /notify to audit (127.0.0.1:3001), on the connection from before
                  answers --respond #2 again, for want of another: 204,upstream=audit
        0.000 s   204, a success

    Result: success, {"body":{"error":"card declined"},"status":402}
    The client gets 402:
      content-type: application/json
      content-length: 25

      {"error":"card declined"}
    "##);
}

#[test]
fn an_audit_of_each_attempt_fails_and_is_caught() {
    let script = ["--respond", "429,retry-after=1", "--respond", "200"];
    let audit = ["--respond", "500,upstream=audit", "--respond", "refused,upstream=audit"];
    let request = ["--request", "GET /audit-each-attempt"];
    let said = recipe(&[&request[..], &script, &audit].concat());
    insta::assert_snapshot!(told(&said), @r##"
        0.000 s audit-each-attempt: attempt 1
        0.000 s   GET /audit-each-attempt to billing (127.0.0.1:3000)
                  answers --respond #1: 429,retry-after=1
        0.000 s   Provider.Call.Http.Throttled, retryable
                  audit-each-attempt: attempt 1: upstream billing answered 429
        0.000 s cleanup, tell: attempt 1
        0.000 s   POST /audit to audit (127.0.0.1:3001)
                  answers --respond #3: 500,upstream=audit
        0.000 s   Provider.Call.Http.NonSuccessStatus, not retryable
                  tell: attempt 1: upstream audit answered 500
        0.000 s the `catch` of tell takes Provider.Call.Http.NonSuccessStatus: next is told
        0.000 s the cleanup of audit-each-attempt is done
        0.000 s retry: policy 0 takes Provider.Call.Http.Throttled and waits PT1S: its `delay` says so; the upstream asks for PT1S
                  policy 0: Provider.Call.Http.Throttled, 5 attempts, waits PT10S ×2 up to PT2M, jitter full
        1.000 s audit-each-attempt: attempt 2
        1.000 s   GET /audit-each-attempt to billing (127.0.0.1:3000), on the connection from before
                  answers --respond #2: 200
        1.000 s   200, a success
        1.000 s cleanup, tell: attempt 1
        1.000 s   audit (127.0.0.1:3001) refuses --respond #4: refused,upstream=audit
        1.000 s   Provider.Call.Http.ConnectionFailed, retryable
                  tell: attempt 1: upstream audit refused the connection
        1.000 s the `catch` of tell takes Provider.Call.Http.ConnectionFailed: next is told
        1.000 s the cleanup of audit-each-attempt is done

    Result: success, {"headers":{"content-length":"0"},"status":200}
    The client gets 200 after PT1S:
      content-length: 0
    "##);
}

#[test]
fn a_connection_that_was_found_closed_is_no_attempt() {
    let script = ["--respond", "503", "--respond", "reset", "--respond", "200"];
    let said = recipe(&[&["--request", "GET /retryable-only"], &script[..]].concat());
    insta::assert_snapshot!(told(&said), @r##"
        0.000 s retryable-only: attempt 1
        0.000 s   GET /retryable-only to billing (127.0.0.1:3000)
                  answers --respond #1: 503
        0.000 s   Provider.Call.Http.Unavailable, retryable
                  retryable-only: attempt 1 of 3: upstream billing answered 503
        0.000 s retry: policy 0 takes Provider.Call.Http.Unavailable and waits PT0.033S: its schedule, drawn from PT0S to PT0.1S
                  policy 0: Provider.Call.*, retryable, 3 attempts, waits PT0.1S ×2, jitter full
        0.033 s retryable-only: attempt 2
        0.033 s   GET /retryable-only to billing (127.0.0.1:3000), on the connection from before
                  answers --respond #2: reset
        0.033 s   GET /retryable-only to billing (127.0.0.1:3000), once more: the connection from before was found closed (no new attempt)
                  answers --respond #3: 200
        0.033 s   200, a success

    Result: success, {"headers":{"content-length":"0"},"status":200}
    The client gets 200 after PT0.033S:
      content-length: 0
    "##);
}

#[test]
fn a_gate_that_is_false_lets_the_failure_rise() {
    let said = recipe(&["--request", "GET /by-predicate", "--respond", "404"]);
    insta::assert_snapshot!(told(&said), @r##"
        0.000 s by-predicate: attempt 1
        0.000 s   GET /by-predicate to billing (127.0.0.1:3000)
                  answers --respond #1: 404
        0.000 s   Provider.Call.Http.NonSuccessStatus, not retryable
                  by-predicate: attempt 1 of 3: upstream billing answered 404
        0.000 s retry: its `when` is false; Provider.Call.Http.NonSuccessStatus rises

    Result: error Provider.Call.Http.NonSuccessStatus
        by-predicate: attempt 1 of 3: upstream billing answered 404
    The client gets 404:
      content-length: 0
    "##);
}

#[test]
fn no_route_says_why_for_each() {
    let routes = "
- { name: pay, match: { methods: [POST], pathPrefix: /pay }, upstream: app }
- { name: beta, match: { headers: { x-beta: yes-please } }, upstream: app }
- { name: shop, match: { hosts: [shop.test] }, upstream: app }
";
    insta::assert_snapshot!(of(routes, &["--request", "GET /pay"]), @r##"
    GET /pay

    not pay: the method is GET, not POST
    not beta: there is no header x-beta=yes-please
    not shop: the host is 127.0.0.1, not shop.test
    No route takes the request.

    The client gets 404:
      content-type: application/problem+json
      proxy-status: mwl-proxy; error=destination_not_found
      content-length: 149

      {"code":"Proxy.NoRoute","detail":"no route takes this request","executionId":"019b76da-a800-73df-9876-9bcf70e03541","status":404,"title":"Not Found"}
    "##);
    let said = of(routes, &["--request", "GET http://shop.test/pay?a=b"]);
    insta::assert_snapshot!(said, @r##"
    GET /pay?a=b

    not pay: the method is GET, not POST
    not beta: there is no header x-beta=yes-please
    route shop: host shop.test

        0.000 s shop: attempt 1
        0.000 s   GET /pay?a=b to app (app:80)
                  answers 200 (nothing else is scripted for it)
        0.000 s   200, a success

    Result: success, {"headers":{"content-length":"0"},"status":200}
    The client gets 200:
      content-length: 0
    "##);
    let said = of(routes, &["--request", "GET /", "--header", "x-beta: yes-please"]);
    assert!(said.contains("\nroute beta: "), "{said}");
}

#[test]
fn a_request_that_is_none_is_refused_before_the_routes() {
    insta::assert_snapshot!(recipe(&["--request", "GET /a/../b"]), @r##"
    GET /a/../b

    The request is refused before any route is asked.

    The client gets 400:
      content-type: application/problem+json
      proxy-status: mwl-proxy; error=http_request_error
      connection: close
      content-length: 189

      {"code":"Proxy.BadRequest","detail":"the path holds a dot segment; send the path that it stands for","executionId":"019b76da-a800-73df-9876-9bcf70e03541","status":400,"title":"Bad Request"}
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
fn the_policy_of_the_dev_proxy_can_be_seen() {
    let script = ["--respond", "503", "--respond", "200,after=PT1.5S,body=late, but here"];
    let said = said(&[&["--upstream", "http://127.0.0.1:3000"], &script[..]].concat());
    insta::assert_snapshot!(said.unwrap(), @r##"
    GET /

    route app: every request
      timeout: PT2M
      retry: Provider.Call.*, retryable, 3 attempts, waits PT0.1S ×2 up to PT2S, jitter full; waits {{ has(middleware.result.details.retryAfter) ? middleware.result.details.retryAfter : null }} where that says so
      timeout: PT30S

        0.000 s app: attempt 1
        0.000 s   GET / to app (127.0.0.1:3000)
                  answers --respond #1: 503
        0.000 s   Provider.Call.Http.Unavailable, retryable
                  app: attempt 1 of 3: upstream app answered 503
        0.000 s retry: policy 0 takes Provider.Call.Http.Unavailable and waits PT0.033S: its schedule, drawn from PT0S to PT0.1S
                  policy 0: Provider.Call.*, retryable, 3 attempts, waits PT0.1S ×2 up to PT2S, jitter full
        0.033 s app: attempt 2
        0.033 s   GET / to app (127.0.0.1:3000), on the connection from before
                  answers --respond #2: 200,after=PT1.5S,body=late, but here
        1.533 s   200, a success after PT1.5S

    Result: success, {"headers":{"content-length":"14"},"status":200}
    The client gets 200 after PT1.533S:
      content-length: 14

      late, but here
    "##);
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
fn calls_side_by_side_each_get_what_is_theirs() {
    let routes = r#"
- name: both
  flow:
    entrypoint: all
    steps:
      all:
        action: Gather
        over: "{{ ['a', 'b', 'c'] }}"
        call:
          flow:
            entrypoint: one
            steps:
              one:
                action: Call
                call:
                  provider: mwl:provider.call/mwl-proxy/http/v1
                  with: { upstream: app, method: GET, path: /one }
                middleware:
                  - provider: mwl:provider.middleware/mwl/finally/v1
                    onAlways:
                      with:
                        call:
                          provider: mwl:provider.call/mwl-proxy/http/v1
                          with: { upstream: app, method: POST, path: /audit }
                next: done
              done: { action: Return, value: "{{ 1 }}" }
        next: end
      end: { action: Return }
"#;
    let script = ["--respond", "200,after=PT3S", "--respond", "200", "--respond", "200,after=PT1S"];
    let told = json(&of(routes, &[&["--format", "json"], &script[..]].concat()));
    let sent: Vec<_> = told["events"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["event"] == "request.sent")
        .map(|event| (event["target"].as_str().unwrap(), event["respond"].as_u64()))
        .collect();
    let steps: Vec<_> = sent.iter().filter(|(target, _)| *target == "/one").collect();
    assert_eq!(steps, [&("/one", Some(1)), &("/one", Some(2)), &("/one", Some(3))]);
    let audits: Vec<_> = sent.iter().filter(|(target, _)| *target == "/audit").collect();
    assert_eq!(audits, [&("/audit", None); 3]);
    assert_eq!((&told["took"], &told["response"]["status"]), (&"PT3S".into(), &200.into()));
}

#[test]
fn an_upstream_that_speaks_http_2_is_rehearsed_in_http_2() {
    let text = r#"
listeners: [{ address: 127.0.0.1:0 }]
upstreams: { app: { endpoints: [http://app], protocol: http2 } }
routes:
- name: all
  upstream: app
  middleware:
    - provider: mwl:provider.middleware/mwl/retry/v1
      onEntry: { with: { policies: [{ match: { codes: ["*"] }, attempts: 5, backoff: { initial: PT1S } }] } }
"#;
    let input =
        Input::Text { name: PathBuf::from("c.yaml"), text: text.to_owned(), variables: Vec::new() };
    let script = ["503", "refused", "reset", "200,body=at last"];
    let script: Vec<&str> = script.into_iter().flat_map(|text| ["--respond", text]).collect();
    let arguments = [&["--request", "POST /a", "--body", "{}"][..], &script].concat();
    let (_, said) = explained(&typed(&arguments), &input).unwrap();
    insta::assert_snapshot!(told(&said), @r##"
        0.000 s all: attempt 1
        0.000 s   POST /a to app (app:80)
                  answers --respond #1: 503
        0.000 s   Provider.Call.Http.Unavailable, not retryable
                  all: attempt 1 of 5: upstream app answered 503
        0.000 s retry: policy 0 takes Provider.Call.Http.Unavailable and waits PT1S: its schedule
                  policy 0: *, 5 attempts, waits PT1S
        1.000 s all: attempt 2
        1.000 s   app (app:80) refuses --respond #2: refused
        1.000 s   Provider.Call.Http.ConnectionFailed, retryable
                  all: attempt 2 of 5: upstream app refused the connection
        1.000 s retry: policy 0 takes Provider.Call.Http.ConnectionFailed and waits PT1S: its schedule
                  policy 0: *, 5 attempts, waits PT1S
        2.000 s all: attempt 3
        2.000 s   POST /a to app (app:80)
                  answers --respond #3: reset
        2.000 s   Provider.Call.Http.ConnectionClosed, not retryable
                  all: attempt 3 of 5: upstream app closed the connection before it answered: connection error: connection reset
        2.000 s retry: policy 0 takes Provider.Call.Http.ConnectionClosed and waits PT1S: its schedule
                  policy 0: *, 5 attempts, waits PT1S
        3.000 s all: attempt 4
        3.000 s   POST /a to app (app:80)
                  answers --respond #4: 200,body=at last
        3.000 s   200, a success

    Result: success, {"headers":{"content-length":"7"},"status":200}
    The client gets 200 after PT3S:
      content-length: 7

      at last
    "##);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a snapshot is as long as what it shows")]
fn machines_are_told_the_same() {
    let script =
        ["--respond", "429,retry-after=2", "--respond", "refused", "--respond", "200,body={}"];
    let request =
        ["--request", "POST /total-budget?a=b", "--header", "x-a: 1", "--header", "x-a: 2"];
    let said = recipe(&[&request[..], &script, &["--format", "json", "--respond", "500"]].concat());
    insta::assert_snapshot!(said, @r##"
    {
      "end": "answered",
      "events": [
        {
          "at": "PT0S",
          "attempt": 1,
          "event": "attempt.started",
          "step": "total-budget"
        },
        {
          "at": "PT0S",
          "attempt": 1,
          "endpoint": "127.0.0.1:3000",
          "event": "request.sent",
          "method": "POST",
          "resent": false,
          "respond": 1,
          "reused": false,
          "step": "total-budget",
          "target": "/total-budget?a=b",
          "upstream": "billing"
        },
        {
          "at": "PT0S",
          "attempt": 1,
          "event": "attempt.failed",
          "failure": {
            "code": "Provider.Call.Http.Throttled",
            "details": {
              "connectionReused": false,
              "endpoint": "127.0.0.1:3000",
              "headers": {
                "content-length": "0",
                "retry-after": "2"
              },
              "requestSent": "complete",
              "retryAfter": "PT2S",
              "status": 429
            },
            "message": "total-budget: attempt 1: upstream billing answered 429",
            "retryable": true,
            "type": "error"
          },
          "step": "total-budget",
          "took": "PT0S"
        },
        {
          "at": "PT0S",
          "code": "Provider.Call.Http.Throttled",
          "delay": "PT2S",
          "event": "retry.scheduled",
          "policy": 0,
          "retryAfter": "PT2S",
          "says": "Provider.Call.Http.Throttled, 5 attempts, waits PT10S ×2 up to PT2M, jitter full",
          "source": "override",
          "step": "total-budget"
        },
        {
          "at": "PT2S",
          "attempt": 2,
          "event": "attempt.started",
          "step": "total-budget"
        },
        {
          "at": "PT2S",
          "attempt": 2,
          "endpoint": "127.0.0.1:3000",
          "event": "connection.refused",
          "respond": 2,
          "step": "total-budget",
          "upstream": "billing"
        },
        {
          "at": "PT2S",
          "attempt": 2,
          "event": "attempt.failed",
          "failure": {
            "code": "Provider.Call.Http.ConnectionFailed",
            "details": {
              "connectionReused": false,
              "endpoint": "127.0.0.1:3000",
              "phase": "connect",
              "requestSent": "none"
            },
            "message": "total-budget: attempt 2: upstream billing refused the connection",
            "retryable": true,
            "type": "error"
          },
          "step": "total-budget",
          "took": "PT0S"
        },
        {
          "at": "PT2S",
          "code": "Provider.Call.Http.ConnectionFailed",
          "delay": "PT1S",
          "event": "retry.scheduled",
          "policy": 1,
          "says": "Provider.Call.Http.ConnectionFailed, 3 attempts, waits PT1S ×2",
          "source": "schedule",
          "step": "total-budget"
        },
        {
          "at": "PT3S",
          "attempt": 3,
          "event": "attempt.started",
          "step": "total-budget"
        },
        {
          "at": "PT3S",
          "attempt": 3,
          "endpoint": "127.0.0.1:3000",
          "event": "request.sent",
          "method": "POST",
          "resent": false,
          "respond": 3,
          "reused": false,
          "step": "total-budget",
          "target": "/total-budget?a=b",
          "upstream": "billing"
        },
        {
          "at": "PT3S",
          "attempt": 3,
          "event": "attempt.done",
          "status": 200,
          "step": "total-budget",
          "took": "PT0S"
        }
      ],
      "request": {
        "headers": {
          "host": "127.0.0.1:8080",
          "x-a": [
            "1",
            "2"
          ]
        },
        "method": "POST",
        "target": "/total-budget?a=b"
      },
      "response": {
        "body": "{}",
        "headers": {
          "content-length": "2"
        },
        "status": 200
      },
      "result": {
        "type": "success",
        "value": {
          "headers": {
            "content-length": "2"
          },
          "status": 200
        }
      },
      "route": "total-budget",
      "routes": [
        {
          "name": "charge-payment",
          "takes": false,
          "why": "the path /total-budget is not beneath /billing/charge"
        },
        {
          "name": "total-budget",
          "takes": true,
          "why": null
        }
      ],
      "took": "PT3S",
      "unused": [
        "500"
      ]
    }
    "##);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a snapshot is as long as what it shows")]
fn every_mistake_in_the_arguments_is_pointed_at() {
    let refused = said(&[
        "--request",
        "post /gated",
        "--header",
        "a b: c",
        "--header",
        "naïve",
        "--header",
        "content-length: 4",
        "--body",
        "@/nowhere/to/be/found",
        "--client-timeout",
        "5",
        "--respond",
        "703",
        "--respond",
        "reset,x=1",
        "--respond",
        "200,x-ä=1",
        "--respond",
        "200,x-a=1,retry after",
        "--respond",
        "hang,after=PT1S",
        "--respond",
        "200,after=1s",
        "--respond",
        "teapot",
    ]);
    insta::assert_snapshot!(refused.unwrap_err(), @r##"
    error[invalid-argument]: `post` is another method than `POST`: case matters
     --> --request:1:1
      |
    1 | post /gated
      | ^

    error[invalid-argument]: `a b` is no name of a header field
     --> --header #1:1:1
      |
    1 | a b: c
      | ^

    error[invalid-argument]: `naïve` is no field; write `name: value`
     --> --header #2:1:1
      |
    1 | naïve
      | ^

    error[invalid-argument]: `content-length` follows from the body and cannot be written
     --> --header #3:1:1
      |
    1 | content-length: 4
      | ^

    error[invalid-argument]: /nowhere/to/be/found cannot be read: No such file or directory (os error 2)
     --> --body:1:2
      |
    1 | @/nowhere/to/be/found
      |  ^

    error[invalid-argument]: `703` is no response: a status from 200 to 599, `reset`, `refused` or `hang`
     --> --respond #1:1:1
      |
    1 | 703
      | ^

    error[invalid-argument]: `reset` is no answer: it has no `x`
     --> --respond #2:1:7
      |
    1 | reset,x=1
      |       ^

    error[invalid-argument]: `x-ä=1` is no `name=value`
     --> --respond #3:1:5
      |
    1 | 200,x-ä=1
      |     ^

    error[invalid-argument]: `hang` never answers: `after` has no meaning
     --> --respond #5:1:6
      |
    1 | hang,after=PT1S
      |      ^

    error[invalid-argument]: `1s` is no duration above zero, such as PT5S or PT0.5S
     --> --respond #6:1:11
      |
    1 | 200,after=1s
      |           ^

    error[invalid-argument]: `teapot` is no response: a status from 200 to 599, `reset`, `refused` or `hang`
     --> --respond #7:1:1
      |
    1 | teapot
      | ^

    error[invalid-argument]: `5` is no duration above zero, such as PT5S or PT0.5S
     --> --client-timeout:1:1
      |
    1 | 5
      | ^
    "##);
    insta::assert_snapshot!(said(&["--request", "GET /ä"]).unwrap_err(), @r##"
    error[invalid-argument]: a target holds no 'ä'; percent-encode it
     --> --request:1:6
      |
    1 | GET /ä
      |      ^
    "##);
    insta::assert_snapshot!(said(&["--request", "GET  here"]).unwrap_err(), @r##"
    error[invalid-argument]: `here` is no target: it begins with `/`, such as `/billing/charge`
     --> --request:1:6
      |
    1 | GET  here
      |      ^
    "##);
    insta::assert_snapshot!(said(&["--request", "GET /a#b"]).unwrap_err(), @r##"
    error[invalid-argument]: a fragment is never sent
     --> --request:1:7
      |
    1 | GET /a#b
      |       ^
    "##);
    let refused = said(&["--respond", "200", "--respond", "500,after=PT1S,upstream=flakey"]);
    insta::assert_snapshot!(refused.unwrap_err(), @r##"
    error[invalid-argument]: there is no upstream `flakey`; there is `flaky`
     --> --respond #2:1:25
      |
    1 | 500,after=PT1S,upstream=flakey
      |                         ^
    "##);
}

#[test]
fn a_response_is_read_to_its_end() {
    let read = |text: &str| response::read(text).unwrap().planned;
    let body = |text: &str| match read(text).act {
        crate::proxy::rehearsal::Act::Answer { body, .. } => {
            String::from_utf8(body.to_vec()).unwrap()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(body(r#"200,body={"a":1,"b=c":2},after=PT2S,upstream=u"#), r#"{"a":1,"b=c":2}"#);
    let wrong = response::read("200,body=a,after=noon").unwrap_err();
    assert_eq!((wrong.offset, wrong.message.contains("`noon`")), (17, true));
    assert_eq!(body("200,body=a,b=c"), "a,b=c");
    let planned = read("refused,upstream=u,after=PT2S");
    assert_eq!((planned.upstream.as_deref(), planned.after.as_secs()), (Some("u"), 2));
}
