use super::*;

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
            "message": "total-budget: attempt 1 of 7: upstream billing answered 429",
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
            "message": "total-budget: attempt 2 of 7: upstream billing refused the connection",
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
