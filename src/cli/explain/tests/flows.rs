use super::*;

#[test]
fn a_decline_is_caught_and_leads_to_other_steps() {
    let script = ["--respond", "402", "--respond", "204,upstream=audit"];
    let said = recipe(&[&["--request", "POST /billing/charge"], &script[..]].concat());
    insta::assert_snapshot!(told(&said), @r##"
        0.000 s charge-payment: attempt 1
        0.000 s   POST /billing/charge to billing (127.0.0.1:3000)
                  answers --respond #1: 402
        0.000 s   Provider.Call.Payments.CardDeclined, not retryable
                  charge-payment: attempt 1 of 7: upstream billing answered 402
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
                  audit-each-attempt: attempt 1 of 7: upstream billing answered 429
        0.000 s cleanup, tell: attempt 1
        0.000 s   POST /audit to audit (127.0.0.1:3001)
                  answers --respond #3: 500,upstream=audit
        0.000 s   Provider.Call.Http.NonSuccessStatus, not retryable
                  tell: attempt 1: upstream audit answered 500 (not retryable: a POST without an Idempotency-Key)
        0.000 s the `catch` of tell takes Provider.Call.Http.NonSuccessStatus: next is told
        0.000 s the cleanup of audit-each-attempt is done, but its Flow caught a failure
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
        1.000 s the cleanup of audit-each-attempt is done, but its Flow caught a failure

    Result: success, {"headers":{"content-length":"0"},"status":200}
    The client gets 200 after PT1S:
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
    let script = ["503", "refused", "reset", "200,body=at last"];
    let script: Vec<&str> = script.into_iter().flat_map(|text| ["--respond", text]).collect();
    let arguments = [&["--request", "POST /a", "--body", "{}"][..], &script].concat();
    let said = of_text(text.to_owned(), &arguments);
    insta::assert_snapshot!(told(&said), @r##"
        0.000 s all: attempt 1
        0.000 s   POST /a to app (app:80)
                  answers --respond #1: 503
        0.000 s   Provider.Call.Http.Unavailable, not retryable
                  all: attempt 1 of 5: upstream app answered 503 (not retryable: a POST without an Idempotency-Key)
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
                  all: attempt 3 of 5: upstream app closed the connection before it answered: connection error: connection reset (not retryable: a POST without an Idempotency-Key)
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
