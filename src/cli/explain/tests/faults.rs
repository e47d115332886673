//! Faults, in virtual time.

use super::*;

/// A bound around a Retry around a fault: what each position sees.
fn stack(bound: &str, with: &str) -> String {
    format!(
        r"
  - name: r
    upstream: app
    middleware:
      - {{ provider: mwl:provider.middleware/mwl/timeout/v1, onEntry: {{ with: {{ duration: {bound} }} }} }}
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry: {{ with: {{ policies: [{{ match: {{ codes: [Provider.Middleware.Fault.Injected] }}, attempts: 2, backoff: {{ initial: PT1S }} }}] }} }}
      - {{ provider: mwl:provider.middleware/mwl-proxy/fault/v1, onEntry: {{ with: {{ {with} }} }} }}
"
    )
}

#[test]
fn a_retry_around_a_fault_takes_it_and_the_client_gets_its_status() {
    let said = of(&stack("PT1M", "share: 1, delay: PT2S, status: 503"), &["--request", "GET /a"]);
    for line in [
        "    0.000 s fault: injects 503 after PT2S (100% of the runs)",
        "    2.000 s retry: policy 0 takes Provider.Middleware.Fault.Injected and waits PT1S: its schedule",
        "    3.000 s fault: injects 503 after PT2S (100% of the runs)",
        "    5.000 s retry gives up: Provider.Middleware.Retry.Exhausted",
        "The client gets 503 after PT5S:",
    ] {
        assert!(said.contains(line), "{line} in {said}");
    }
}

#[test]
fn a_bound_around_a_delay_fires() {
    let said = of(&stack("PT3S", "share: 1, delay: PT1H"), &["--request", "GET /a"]);
    for line in [
        "    0.000 s fault: injects a wait of PT1H (100% of the runs)",
        "The client gets 504 after PT3S:",
    ] {
        assert!(said.contains(line), "{line} in {said}");
    }
}

#[test]
fn a_reset_leaves_the_client_unanswered() {
    let said = of(&stack("PT1M", "share: 1, reset: true"), &["--request", "GET /a"]);
    assert!(said.ends_with("The client's connection is closed after PT1S, unanswered."), "{said}");
}

#[test]
fn a_delay_alone_goes_on_and_a_share_of_none_lets_pass() {
    let respond = ["--request", "GET /a", "--respond", "200"];
    let said = of(&stack("PT1M", "share: 1, delay: PT2S"), &respond);
    assert!(said.contains("fault: injects a wait of PT2S (100% of the runs)"), "{said}");
    assert!(said.contains("The client gets 200 after PT2S:"), "{said}");
    let said = of(&stack("PT1M", "share: 0, status: 500"), &respond);
    assert!(said.contains("fault: lets this run pass (0% of the runs get 500)"), "{said}");
}

/// The example runs: what each route's words say, and what one request gets.
#[test]
fn the_example_injects_what_it_says() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/config/faults.yaml");
    let ask = |request: &str, more: &[&str]| {
        let arguments = [&["-c", file, "--request", request, "--respond", "200"], more].concat();
        said(&arguments).unwrap()
    };
    let said = ask("GET /retried", &["--seed", "3"]);
    assert!(said.contains("  fault: 503, in 10% of the runs"), "{said}");
    assert!(said.contains("The client gets 200"), "{said}");
    let said = ask("GET /a", &["--header", "x-chaos: 1", "--header", "x-user: user-1"]);
    assert!(said.contains("% of the keys"), "{said}");
    let said = ask("GET /a", &[]);
    assert!(!said.contains("fault: injects") && said.contains("The client gets 200"), "{said}");
}
