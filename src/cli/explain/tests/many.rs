//! Many requests, and two configurations beside each other.

use super::*;

const RETRIED: &str = r#"
- name: all
  upstream: app
  middleware:
    - provider: mwl:provider.middleware/mwl/retry/v1
      onEntry: { with: { policies: [{ match: { codes: ["Provider.Call.*"], retryable: true }, attempts: 3, backoff: { initial: PT0.1S, jitter: full } }] } }
"#;

const MIX: [&str; 2] = ["--mix", "200@20ms..80ms:90,503,x-a=b:7,reset:3"];

#[test]
fn many_requests_give_figures_and_the_same_ones_each_time() {
    let ask = |more: &[&str]| of(RETRIED, &[&MIX[..], &["--runs", "1000"], more].concat());
    insta::assert_snapshot!(ask(&[]), @"
    GET /, 1,000 times: 200@20ms..80ms:90, 503,x-a=b:7, reset:3

    route all: every request
      retry: Provider.Call.*, retryable, 3 attempts, waits PT0.1S, jitter full

    success           100.00% (1,000)
    answers           200    100.00% (1,000)
                            p50      p90      p95      p99    p99.9     most     mean
    latency, s            0.052    0.078    0.100    0.147    0.187    0.206    0.055
    attempts                  1        1        2        2        3        3     1.10
    upstream app      1,102 requests, 1.10 for each of the client's; 102 of them again
    retries           Provider.Call.Http.ConnectionClosed 25
                      Provider.Call.Http.Unavailable 76
    ");
    assert_eq!(ask(&[]), ask(&[]));
    assert_ne!(ask(&["--seed", "1"]), ask(&["--seed", "2"]));
    let told = json(&ask(&["--json"]));
    assert_eq!((&told["runs"], &told["route"]), (&1000.into(), &"all".into()));
    let counted: u64 =
        told["answers"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(counted, 1000);
    let requests = told["upstreams"]["app"]["requests"].as_f64().unwrap();
    assert!(
        (told["upstreams"]["app"]["amplification"].as_f64().unwrap() - requests / 1000.0).abs()
            < 1e-9
    );
}

#[test]
fn each_of_many_requests_gets_all_responses() {
    let script = ["--respond", "503", "--respond", "200", "--runs", "50", "--json"];
    let told = json(&of(RETRIED, &script));
    assert_eq!((&told["successes"], &told["attempts"]["mean"]), (&50.into(), &2.0.into()));
    assert_eq!(told["retries"]["Provider.Call.Http.Unavailable"], 50);
    assert_ne!(told["latency"]["p50"], told["latency"]["p90"], "jitter is drawn anew");
}

#[test]
fn requests_without_an_end_are_told_and_end_the_runs() {
    let round = "- name: round\n  flow:\n    entrypoint: a\n    steps:\n      a: { action: Pass, next: b }\n      b: { action: Pass, next: a }\n";
    let told = json(&of(round, &["--runs", "50", "--json"]));
    assert_eq!((&told["runs"], &told["answers"]["never waits"]), (&1.into(), &1.into()));
    assert_eq!(told["stopped"], "a request loops without a call or a wait");
    let said = of(
        "- name: r\n  upstream: app\n",
        &["--client-timeout", "5s", "--mix", "hang:1", "--runs", "9"],
    );
    assert!(said.contains("the client left 100.00% (9)"), "{said}");
}

const RECIPE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/config/minimal.yaml");

fn beside(arguments: &[&str]) -> String {
    let upstream = ["--upstream", "http://127.0.0.1:3000", "--against", RECIPE];
    let said = said(&[&upstream[..], arguments].concat());
    said.unwrap_or_else(|refused| panic!("{refused}")).replace(RECIPE, "minimal.yaml")
}

#[test]
fn two_policies_stand_beside_each_other_with_what_changes() {
    insta::assert_snapshot!(beside(&["--respond", "503", "--respond", "200@20ms"]), @"
    GET /

                --upstream                                   minimal.yaml
    * route     app                                          everything
    * attempts  2                                            1
    * ended     0.000 s app: Provider.Call.Http.Unavailable  0.000 s everything: Provider.Call.Http.Unavailable
                0.053 s app: 200
    * waits     PT0.033S
    * Result    success                                      Provider.Call.Http.Unavailable
    * answer    200                                          503
    * after     0.053 s                                      0.000 s

    What changes: route, attempts, ended, waits, Result, answer, after.
    ");
    insta::assert_snapshot!(beside(&["--respond", "200"]), @"
    GET /

                --upstream        minimal.yaml
    * route     app               everything
      attempts  1                 1
    * ended     0.000 s app: 200  0.000 s everything: 200
      Result    success           success
      answer    200               200
      after     0.000 s           0.000 s

    What changes: route, ended.
    ");
    let told = json(&beside(&["--respond", "503", "--respond", "200", "--json"]));
    let changes: Vec<_> = told["changes"].as_array().unwrap().iter().collect();
    let attempts = changes.iter().find(|change| change["what"] == "attempts").unwrap();
    assert_eq!((&attempts["from"][0], &attempts["to"][0]), (&"2".into(), &"1".into()));
    assert_eq!(told["policies"][1]["explained"]["response"]["status"], 503);
}

#[test]
fn figures_of_two_policies_stand_beside_each_other() {
    let said = beside(&[&MIX[..], &["--runs", "500"]].concat());
    insta::assert_snapshot!(said, @"
    GET /

                    --upstream                                                       minimal.yaml
    * success       100.00% (500)                                                    90.40% (452)
    * answers       200    100.00% (500)                                             200    90.40% (452)
                                                                                     502    2.20% (11)
                                                                                     503    7.40% (37)
                          p50      p90      p95      p99    p99.9     most     mean        p50      p90      p95      p99    p99.9     most     mean
    * latency, s        0.052    0.077    0.086    0.140    0.207    0.207    0.054      0.046    0.074    0.077    0.080    0.080    0.080    0.046
    * attempts              1        1        2        2        3        3     1.10          1        1        1        1        1        1     1.00
    * upstream app  553 requests, 1.11 for each of the client's; 53 of them again    500 requests, 1.00 for each of the client's
    * retries       Provider.Call.Http.ConnectionClosed 13
                    Provider.Call.Http.Unavailable 39

    What changes: success, answers, latency, s, attempts, upstream app, retries.
    ");
}
