//! Compares `explain` with the program on sockets: the same must happen.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::Value;

use crate::support::client::{self, request};
use crate::support::origin::{Origin, Port, Turn, answer};
use crate::support::program::{Directory, Proxy, configuration, run};

/// A response of the upstream, as `--respond` writes it and as the scripted origin plays it.
pub(super) type Reply = (&'static str, fn() -> Turn);

pub(super) const THROTTLED: Reply =
    ("429,retry-after=0", || answer(429, &[("Retry-After", "0")], ""));
pub(super) const DOWN: Reply = ("503,x-a=b", || answer(503, &[("x-a", "b")], ""));
pub(super) const BAD: Reply = ("502", || answer(502, &[], ""));
pub(super) const DECLINED: Reply = ("402,body=no", || answer(402, &[], "no"));
pub(super) const MISSING: Reply = ("404", || answer(404, &[], ""));
pub(super) const RESET: Reply = ("reset", || Turn::Reset(usize::MAX - 1));
pub(super) const FINE: Reply = ("200,body=fine", || answer(200, &[], "fine"));

const ROUTES: &str = r#"
  - name: patient
    match: { pathPrefix: /patient }
    upstream: app
    classify: [{ status: [402], code: Provider.Call.Payments.CardDeclined, retryable: false }]
    middleware:
      - provider: mwl:provider.middleware/mwl/finally/v1
        onAlways:
          with:
            call:
              provider: mwl:provider.call/mwl-proxy/http/v1
              input: "{{ middleware.result.type }}"
              with: { upstream: audit, method: POST, path: /audit }
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry:
          with:
            policies:
              - { match: { codes: [Provider.Call.Http.Throttled] }, attempts: 3, backoff: { initial: PT10S } }
              - match: { codes: ["Provider.Call.Http.*"], retryable: true }
                attempts: 4
                backoff: { initial: PT0.01S, rate: 2, jitter: full }
        onFailure:
          with:
            delay: "{{ has(middleware.result.details.retryAfter) ? middleware.result.details.retryAfter : null }}"
      - provider: mwl:provider.middleware/mwl/timeout/v1
        onEntry: { with: { duration: PT1S } }
    catch: [{ match: { codes: [Provider.Call.Payments.CardDeclined] }, next: declined }]
    steps:
      declined: { action: Return, value: { status: 402, body: { error: card declined } } }
"#;

/// What is compared: the client's status and body, the number of attempts by code, the number of requests, and
/// the number of retries.
#[derive(Debug, PartialEq)]
struct Seen {
    status: u64,
    body: String,
    codes: Vec<(String, u64)>,
    requests: u64,
    audits: u64,
    retries: u64,
}

const CODES: [&str; 7] = [
    "success",
    "Provider.Call.Http.Throttled",
    "Provider.Call.Http.Unavailable",
    "Provider.Call.Http.BadGateway",
    "Provider.Call.Http.NonSuccessStatus",
    "Provider.Call.Http.ConnectionClosed",
    "Provider.Call.Http.ConnectionFailed",
];

/// What happens on sockets.
fn happens(method: &str, app: SocketAddr, requests: impl FnOnce() -> usize) -> Seen {
    let audit = super::recipe::sink();
    let mut proxy = Proxy::before(&[("app", app), ("audit", audit.address)], ROUTES);
    let got = client::ask(proxy.address, request(method, "/patient", &[], b""));
    let codes = CODES.iter().map(|code| {
        let labels = [("route", "patient"), ("upstream", "app"), ("code", *code)];
        ((*code).to_owned(), proxy.metric("mwl_attempts_total", &labels))
    });
    let codes = codes.filter(|(_, count)| *count > 0).collect();
    let retries = proxy.metric("mwl_retries_total", &[("route", "patient")]);
    let seen = Seen {
        status: got.status.into(),
        body: got.text().to_owned(),
        codes,
        retries,
        requests: requests() as u64,
        audits: audit.count() as u64,
    };
    proxy.stop();
    seen
}

/// What `explain` says.
fn said(method: &str, file: &Path, replies: &[&str]) -> Seen {
    let line = format!("{method} /patient");
    let mut arguments = vec!["explain", "-c", file.to_str().unwrap(), "--request", &line];
    arguments.extend(replies.iter().flat_map(|reply| ["--respond", reply]));
    arguments.extend(["--format", "json"]);
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let events = told["events"].as_array().unwrap();
    let count = |holds: &dyn Fn(&Value) -> bool| events.iter().filter(|e| holds(e)).count() as u64;
    let of_step = |event: &Value| event["step"] == "patient" && event["cleanup"] != true;
    let codes = CODES.iter().map(|code| {
        let held = |event: &Value| {
            of_step(event)
                && (event["event"] == "attempt.failed" && event["failure"]["code"] == *code
                    || event["event"] == "attempt.done" && *code == "success")
        };
        ((*code).to_owned(), count(&held))
    });
    let sent = |upstream: &str| {
        count(&|event| event["event"] == "request.sent" && event["upstream"] == upstream)
    };
    Seen {
        status: told["response"]["status"].as_u64().unwrap(),
        body: told["response"]["body"].as_str().unwrap().to_owned(),
        codes: codes.filter(|(_, count)| *count > 0).collect(),
        requests: sent("app"),
        audits: sent("audit"),
        retries: count(&|event| event["event"] == "retry.scheduled"),
    }
}

fn file(directory: &Directory) -> std::path::PathBuf {
    let any = SocketAddr::from(([127, 0, 0, 1], 1));
    directory.write("proxy.yaml", &configuration(&[("app", any), ("audit", any)], ROUTES))
}

#[test]
fn it_says_what_happens_on_sockets() {
    let directory = Directory::new();
    let file = file(&directory);
    let cases: [(&str, &[Reply]); 8] = [
        ("POST", &[FINE]),
        ("POST", &[THROTTLED, THROTTLED, FINE]),
        ("POST", &[THROTTLED, THROTTLED, THROTTLED]),
        ("GET", &[DOWN, BAD, DOWN, DOWN]),
        ("POST", &[DOWN]),
        ("POST", &[DECLINED]),
        ("PUT", &[MISSING]),
        ("GET", &[DOWN, RESET, FINE]),
    ];
    for (method, replies) in cases {
        let origin = Origin::script(replies.iter().map(|(_, turn)| turn()));
        let happened = happens(method, origin.address, || origin.count());
        let replies: Vec<&str> = replies.iter().map(|(written, _)| *written).collect();
        assert_eq!(said(method, &file, &replies), happened, "{method} {replies:?}");
    }
}

#[test]
fn it_says_what_comes_of_an_upstream_that_is_not_there() {
    let directory = Directory::new();
    let port = Port::hold();
    let happened = happens("POST", port.address, || 0);
    let mut said = said("POST", &file(&directory), &["refused"]);
    // The ids of the executions differ.
    let problem = |body: &str| {
        let mut problem: Value = serde_json::from_str(body).unwrap();
        problem["executionId"] = Value::Null;
        problem.to_string()
    };
    said.body = problem(&said.body);
    assert_eq!(said, Seen { body: problem(&happened.body), ..happened });
}

#[test]
fn it_opens_no_socket_and_needs_no_file() {
    let output =
        run(&["explain", "--request", "GET /flaky", "--respond", "503", "--respond", "200"]);
    assert_eq!(output.status.code(), Some(0));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.starts_with("GET /flaky\n\nroute flaky: path /flaky\n"), "{said}");
    assert!(said.contains("The client gets 200 after PT0."), "{said}");

    let output = run(&["explain", "--upstream", "http://127.0.0.1:9", "--respond", "504"]);
    assert_eq!(output.status.code(), Some(0));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("app: attempt 3"), "{said}");
    assert!(!said.contains("app: attempt 4"), "{said}");
}

#[test]
fn mistakes_exit_with_2() {
    for arguments in [
        &["explain", "-c", "/nowhere/to/be/found.yaml"][..],
        &["explain", "--respond", "99"],
        &["explain", "--upstream", "nonsense"],
        &["explain", "-c", "a", "--upstream", "http://b"],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
}

/// What is explained of a configuration with these upstreams and routes, as JSON and as text.
fn explained(upstreams: &str, routes: &str, replies: &[&str]) -> (Value, String) {
    let directory = Directory::new();
    let text = format!(
        "listeners: [{{ address: 127.0.0.1:0 }}]\nupstreams: {{ {upstreams} }}\nroutes:\n{routes}"
    );
    let file = directory.write("proxy.yaml", &text);
    let mut arguments = vec!["explain", "-c", file.to_str().unwrap()];
    arguments.extend(replies.iter().flat_map(|reply| ["--respond", reply]));
    let said = |more: &[&str]| {
        let output = run(&[&arguments[..], more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    (serde_json::from_str(&said(&["--format", "json"])).unwrap(), said(&[]))
}

const APP: &str = "app: { endpoints: [http://app] }";

#[test]
fn attempts_side_by_side_take_each_their_own_time() {
    let routes = r#"
- name: fan
  flow:
    entrypoint: all
    middleware:
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry: { with: { policies: [{ match: { codes: ["*"] }, attempts: 2, backoff: { initial: PT1M } }] } }
    steps:
      all:
        action: Gather
        over: "{{ [1, 2, 3] }}"
        call:
          flow:
            entrypoint: one
            steps:
              one:
                action: Call
                call: { provider: mwl:provider.call/mwl-proxy/http/v1, with: { upstream: app, method: GET, path: /one } }
                middleware:
                  - provider: mwl:provider.middleware/mwl/retry/v1
                    onEntry: { with: { policies: [{ match: { codes: [Provider.Call.Http.Unavailable] }, attempts: 2, backoff: { initial: PT10S } }] } }
                next: done
              done: { action: Return, value: "{{ 1 }}" }
        next: end
      end: { action: Return }
"#;
    let replies = [
        "200,after=PT3S",
        "503,after=PT2S",
        "404,after=PT1S",
        "200,after=PT4S",
        "200,after=PT6S",
        "200,after=PT5S",
        "200,after=PT7S",
    ];
    let (told, said) = explained(APP, routes, &replies);
    let events = told["events"].as_array().unwrap();
    let ends = events.iter().filter(|event| event.get("took").is_some());
    let ends: Vec<_> = ends
        .map(|end| {
            let text = |member: &str| end[member].as_str().unwrap();
            let number = |member: &str| end[member].as_u64().unwrap();
            (text("at"), number("dispatch"), number("attempt"), text("event"), text("took"))
        })
        .collect();
    assert_eq!(
        ends,
        [
            ("PT1S", 2, 1, "attempt.failed", "PT1S"),
            ("PT2S", 1, 1, "attempt.failed", "PT2S"),
            ("PT3S", 0, 1, "attempt.done", "PT3S"),
            ("PT16S", 1, 2, "attempt.done", "PT4S"),
            ("PT1M21S", 1, 1, "attempt.done", "PT5S"),
            ("PT1M22S", 0, 1, "attempt.done", "PT6S"),
            ("PT1M23S", 2, 1, "attempt.done", "PT7S"),
        ]
    );
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("dispatch 2")).collect();
    insta::assert_snapshot!(lines.join("\n"), @"
     0.000 s one, dispatch 2: attempt 1
     0.000 s   dispatch 2: GET /one to app (app:80)
     1.000 s   dispatch 2: Provider.Call.Http.NonSuccessStatus, not retryable after PT1S
    76.000 s one, dispatch 2: attempt 1
    76.000 s   dispatch 2: GET /one to app (app:80)
    83.000 s   dispatch 2: 200, a success after PT7S
    ");
}

#[test]
fn what_comes_late_comes_all_the_same_and_what_never_comes_never_does() {
    let entry = |name: &str, with: &str| {
        format!(
            "  middleware: [{{ provider: mwl:provider.middleware/mwl/{name}/v1, onEntry: {{ with: {{ {with} }} }} }}]\n"
        )
    };
    let retry = entry(
        "retry",
        "policies: [{ match: { codes: ['*'] }, attempts: 9, backoff: { initial: P100D } }]",
    );
    let bound = entry("timeout", "duration: P30D");
    let cases: [(&str, &[&str], (&str, &str)); 4] = [
        ("", &["200,after=P8D"], ("answered", "PT192H")),
        (&bound, &["hang"], ("answered", "PT720H")),
        (&retry, &["503", "503", "200"], ("answered", "PT4800H")),
        ("", &["hang"], ("waitsForever", "PT43800000H")),
    ];
    for protocol in ["", ", protocol: http2, pingInterval: PT30S"] {
        let upstreams =
            format!("app: {{ endpoints: [http://app], responseTimeout: PT0S{protocol} }}");
        for (policy, replies, wanted) in cases {
            let routes = format!("- name: app\n  upstream: app\n{policy}");
            let (told, said) = explained(&upstreams, &routes, replies);
            assert_eq!(
                (&told["end"], &told["took"]),
                (&wanted.0.into(), &wanted.1.into()),
                "{said}"
            );
        }
    }
    // What goes on for ever is told from what hangs.
    let round = "- name: round\n  flow:\n    entrypoint: a\n    steps:\n      a: { action: Sleep, for: PT1S, next: b }\n      b: { action: Pass, next: a }\n";
    assert_eq!(explained(APP, round, &[]).0["end"], "endless");
}

#[test]
fn a_wait_beyond_the_upstream_s_limit_is_said_with_what_was_asked() {
    let routes = r#"
- name: app
  upstream: app
  middleware:
    - provider: mwl:provider.middleware/mwl/retry/v1
      onEntry: { with: { policies: [{ match: { codes: ["*"] }, attempts: 3 }] } }
      onFailure: { with: { delay: "{{ middleware.result.details.retryAfter }}" } }
"#;
    let upstreams = "app: { endpoints: [http://app], retryAfterMax: PT1M }";
    let replies = ["429,retry-after=3600", "429,retry-after=60", "200"];
    let (told, said) = explained(upstreams, routes, &replies);
    let lines: Vec<&str> = said.lines().filter(|line| line.contains(" s retry: ")).collect();
    insta::assert_snapshot!(lines.join("\n"), @"
     0.000 s retry: policy 0 takes Provider.Call.Http.Throttled and waits PT1M: its `delay` says so; the upstream asks for PT1H, which its `retryAfterMax` cuts to PT1M
    60.000 s retry: policy 0 takes Provider.Call.Http.Throttled and waits PT1M: its `delay` says so; the upstream asks for PT1M
    ");
    let asked = told["events"].as_array().unwrap().iter();
    let asked: Vec<_> = asked
        .filter(|event| event["event"] == "retry.scheduled")
        .map(|event| (&event["retryAfter"], event.get("retryAfterAsked")))
        .collect();
    assert_eq!(asked, [(&"PT1M".into(), Some(&"PT1H".into())), (&"PT1M".into(), None)]);
}
