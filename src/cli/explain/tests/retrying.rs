use super::*;

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
                  attempt-count: attempt 1 of 5: upstream billing answered 503 (retryable: PUT is idempotent)
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
      timeout: PT20M
      retry: Provider.Call.Http.Throttled, 5 attempts, waits PT10S ×2 up to PT2M, jitter full; Provider.Call.Http.ConnectionFailed, 3 attempts, waits PT1S ×2; waits {{ has(middleware.result.details.retryAfter) ? middleware.result.details.retryAfter : null }} where that says so
      timeout: PT30S

        0.000 s charge-payment: attempt 1
        0.000 s   POST /billing/charge to billing (127.0.0.1:3000)
                  answers --respond #1: 429
        0.000 s   Provider.Call.Http.Throttled, retryable
                  charge-payment: attempt 1 of 7: upstream billing answered 429
        0.000 s retry: policy 0 takes Provider.Call.Http.Throttled and waits PT3.246S: its schedule, drawn from PT0S to PT10S
                  policy 0: Provider.Call.Http.Throttled, 5 attempts, waits PT10S ×2 up to PT2M, jitter full
        3.246 s charge-payment: attempt 2
        3.246 s   POST /billing/charge to billing (127.0.0.1:3000), on the connection from before
                  answers --respond #1 again, for want of another: 429
        3.246 s   Provider.Call.Http.Throttled, retryable
                  charge-payment: attempt 2 of 7: upstream billing answered 429
        3.246 s retry: policy 0 takes Provider.Call.Http.Throttled and waits PT7.645S: its schedule, drawn from PT0S to PT20S
                  policy 0: Provider.Call.Http.Throttled, 5 attempts, waits PT10S ×2 up to PT2M, jitter full
       10.891 s charge-payment: attempt 3
       10.891 s   POST /billing/charge to billing (127.0.0.1:3000)
                  answers --respond #1 again, for want of another: 429
       10.891 s   Provider.Call.Http.Throttled, retryable
                  charge-payment: attempt 3 of 7: upstream billing answered 429
       10.891 s retry: policy 0 takes Provider.Call.Http.Throttled and waits PT14.385S: its schedule, drawn from PT0S to PT40S
                  policy 0: Provider.Call.Http.Throttled, 5 attempts, waits PT10S ×2 up to PT2M, jitter full
       25.276 s charge-payment: attempt 4
       25.276 s   POST /billing/charge to billing (127.0.0.1:3000)
                  answers --respond #1 again, for want of another: 429
       25.276 s   Provider.Call.Http.Throttled, retryable
                  charge-payment: attempt 4 of 7: upstream billing answered 429
       25.276 s retry: policy 0 takes Provider.Call.Http.Throttled and waits PT0.917S: its schedule, drawn from PT0S to PT1M20S
                  policy 0: Provider.Call.Http.Throttled, 5 attempts, waits PT10S ×2 up to PT2M, jitter full
       26.193 s charge-payment: attempt 5
       26.193 s   POST /billing/charge to billing (127.0.0.1:3000), on the connection from before
                  answers --respond #1 again, for want of another: 429
       26.193 s   Provider.Call.Http.Throttled, retryable
                  charge-payment: attempt 5 of 7: upstream billing answered 429
       26.193 s retry gives up: Provider.Middleware.Retry.Exhausted
                  charge-payment: policy 0 is exhausted after 5 runs
       26.193 s cleanup, tell: attempt 1
       26.193 s   POST /audit to audit (127.0.0.1:3001)
                  answers 200 (nothing else is scripted for it)
       26.193 s   200, a success
       26.193 s the cleanup of charge-payment is done

    Result: error Provider.Middleware.Retry.Exhausted
        charge-payment: policy 0 is exhausted after 5 runs
      because of error Provider.Call.Http.Throttled
        charge-payment: attempt 5 of 7: upstream billing answered 429
    The client gets 429 after PT26.193S:
      content-length: 0
    "##);
}

#[test]
fn a_post_is_not_sent_twice() {
    let request = ["--request", "POST /retryable-only", "--body", "{}"];
    let said = recipe(&[&request[..], &["--respond", "503", "--respond", "200"]].concat());
    insta::assert_snapshot!(told(&said), @"
        0.000 s retryable-only: attempt 1
        0.000 s   POST /retryable-only to billing (127.0.0.1:3000)
                  answers --respond #1: 503
        0.000 s   Provider.Call.Http.Unavailable, not retryable
                  retryable-only: attempt 1 of 3: upstream billing answered 503 (not retryable: a POST without an Idempotency-Key)
        0.000 s retry: a policy takes Provider.Call.Http.Unavailable, but only if it is retryable; it rises

    Result: error Provider.Call.Http.Unavailable
        retryable-only: attempt 1 of 3: upstream billing answered 503 (not retryable: a POST without an Idempotency-Key)
    The client gets 503:
      content-length: 0

    Nothing asked for --respond #2: 200.
    ");
    let said = recipe(&[&request[..], &["--respond", "reset"]].concat());
    insta::assert_snapshot!(told(&said), @r##"
        0.000 s retryable-only: attempt 1
        0.000 s   POST /retryable-only to billing (127.0.0.1:3000)
                  answers --respond #1: reset
        0.000 s   Provider.Call.Http.ConnectionClosed, not retryable
                  retryable-only: attempt 1 of 3: upstream billing closed the connection before it answered: connection error: connection reset (not retryable: a POST without an Idempotency-Key)
        0.000 s retry: a policy takes Provider.Call.Http.ConnectionClosed, but only if it is retryable; it rises

    Result: error Provider.Call.Http.ConnectionClosed
        retryable-only: attempt 1 of 3: upstream billing closed the connection before it answered: connection error: connection reset (not retryable: a POST without an Idempotency-Key)
    The client gets 502:
      content-type: application/problem+json
      proxy-status: mwl-proxy; error=connection_terminated
      content-length: 147

      {"attempts":1,"code":"Provider.Call.Http.ConnectionClosed","executionId":"019b76da-a800-73df-9876-9bcf70e03541","status":502,"title":"Bad Gateway"}
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
                  retryable-only: attempt 1 of 3: upstream billing answered 503 (retryable: GET is idempotent)
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
fn the_policy_of_the_dev_proxy_can_be_seen() {
    let script = ["--respond", "503", "--respond", "200,after=PT1.5S,body=late, but here"];
    let said = said(&[&["--upstream", "http://127.0.0.1:3000"], &script[..]].concat());
    insta::assert_snapshot!(said.unwrap(), @r##"
    GET /

    route app: every request
      timeout: PT2M
      retry: Provider.Call.*, retryable, 3 attempts, waits PT0.1S ×2 up to PT2S, jitter full; waits {{ has(middleware.result.details.retryAfter) ? middleware.result.details.retryAfter : null }} where that says so

        0.000 s app: attempt 1
        0.000 s   GET / to app (127.0.0.1:3000)
                  answers --respond #1: 503
        0.000 s   Provider.Call.Http.Unavailable, retryable
                  app: attempt 1 of 3: upstream app answered 503 (retryable: GET is idempotent)
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
fn a_retry_after_that_cannot_be_read_is_told() {
    let told = |field: &str| {
        let answer = format!("503,retry-after={field}");
        let said = recipe(&["--request", "GET /total-budget", "--respond", &answer]);
        assert!(said.contains("upstream billing answered 503"), "{said}");
        said.contains(
            "answered 503 with a Retry-After that is neither seconds nor a date (retryable",
        )
    };
    for field in ["2s", "soon", "-1", "1.5", "Thu, 01 Jan 2026"] {
        assert!(told(field), "{field}");
    }
    for field in ["0", "2", "Thu, 01 Jan 2026 04:00:30 GMT"] {
        assert!(!told(field), "{field}");
    }
}
