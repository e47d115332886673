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
    insta::assert_snapshot!(recipe(&[&["--request", "PUT /attempt-count"], &script[..]].concat()), @"");
}

#[test]
fn throttled_until_the_policy_is_exhausted() {
    insta::assert_snapshot!(recipe(&["--request", "POST /billing/charge", "--respond", "429"]), @"");
}

#[test]
fn a_bound_fires_in_a_gap() {
    let said = recipe(&["--request", "GET /total-budget", "--respond", "429,retry-after=60"]);
    insta::assert_snapshot!(told(&said), @"");
}

#[test]
fn a_post_is_not_sent_twice() {
    let request = ["--request", "POST /retryable-only", "--body", "{}"];
    let said = recipe(&[&request[..], &["--respond", "503", "--respond", "200"]].concat());
    insta::assert_snapshot!(told(&said), @"");
    let said = recipe(&[&request[..], &["--respond", "reset"]].concat());
    insta::assert_snapshot!(told(&said), @"");
}

#[test]
fn a_decline_is_caught_and_leads_to_other_steps() {
    let script = ["--respond", "402", "--respond", "204,upstream=audit"];
    let said = recipe(&[&["--request", "POST /billing/charge"], &script[..]].concat());
    insta::assert_snapshot!(told(&said), @"");
}

#[test]
fn an_audit_of_each_attempt_fails_and_is_caught() {
    let script = ["--respond", "429,retry-after=1", "--respond", "200"];
    let audit = ["--respond", "500,upstream=audit", "--respond", "refused,upstream=audit"];
    let request = ["--request", "GET /audit-each-attempt"];
    let said = recipe(&[&request[..], &script, &audit].concat());
    insta::assert_snapshot!(told(&said), @"");
}

#[test]
fn a_connection_that_was_found_closed_is_no_attempt() {
    let script = ["--respond", "503", "--respond", "reset", "--respond", "200"];
    let said = recipe(&[&["--request", "GET /retryable-only"], &script[..]].concat());
    insta::assert_snapshot!(told(&said), @"");
}

#[test]
fn a_gate_that_is_false_lets_the_failure_rise() {
    let said = recipe(&["--request", "GET /by-predicate", "--respond", "404"]);
    insta::assert_snapshot!(told(&said), @"");
}

#[test]
fn no_route_says_why_for_each() {
    let routes = "
- { name: pay, match: { methods: [POST], pathPrefix: /pay }, upstream: app }
- { name: beta, match: { headers: { x-beta: yes-please } }, upstream: app }
- { name: shop, match: { hosts: [shop.test] }, upstream: app }
";
    insta::assert_snapshot!(of(routes, &["--request", "GET /pay"]), @"");
    let said = of(routes, &["--request", "GET http://shop.test/pay?a=b"]);
    insta::assert_snapshot!(said, @"");
    let said = of(routes, &["--request", "GET /", "--header", "x-beta: yes-please"]);
    assert!(said.contains("\nroute beta: "), "{said}");
}

#[test]
fn a_request_that_is_none_is_refused_before_the_routes() {
    insta::assert_snapshot!(recipe(&["--request", "GET /a/../b"]), @"");
}

#[test]
fn the_client_leaves_and_the_cleanup_runs() {
    let request = ["--request", "GET /slow", "--respond", "hang", "--client-timeout", "PT0.5S"];
    insta::assert_snapshot!(said(&request).unwrap(), @"");
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
    insta::assert_snapshot!(said.unwrap(), @"");
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
    insta::assert_snapshot!(told(&said), @"");
}

#[test]
fn machines_are_told_the_same() {
    let script =
        ["--respond", "429,retry-after=2", "--respond", "refused", "--respond", "200,body={}"];
    let request =
        ["--request", "POST /total-budget?a=b", "--header", "x-a: 1", "--header", "x-a: 2"];
    let said = recipe(&[&request[..], &script, &["--format", "json", "--respond", "500"]].concat());
    insta::assert_snapshot!(said, @"");
}

#[test]
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
        "",
    ]);
    insta::assert_snapshot!(refused.unwrap_err(), @"");
    insta::assert_snapshot!(said(&["--request", "GET /ä"]).unwrap_err(), @"");
    insta::assert_snapshot!(said(&["--request", "GET  here"]).unwrap_err(), @"");
    insta::assert_snapshot!(said(&["--request", "GET /a#b"]).unwrap_err(), @"");
    let refused = said(&["--respond", "200", "--respond", "500,after=PT1S,upstream=flakey"]);
    insta::assert_snapshot!(refused.unwrap_err(), @"");
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
