//! `explain` against the program on sockets: what it says is what happens.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::Value;

use crate::support::client::{self, request};
use crate::support::origin::{Origin, Port, Turn, answer};
use crate::support::program::{Directory, Proxy, configuration, run};

/// What the upstream does, as `--respond` writes it and as the scripted origin plays it.
type Reply = (&'static str, fn() -> Turn);

const THROTTLED: Reply = ("429,retry-after=0", || answer(429, &[("Retry-After", "0")], ""));
const DOWN: Reply = ("503,x-a=b", || answer(503, &[("x-a", "b")], ""));
const BAD: Reply = ("502", || answer(502, &[], ""));
const DECLINED: Reply = ("402,body=no", || answer(402, &[], "no"));
const MISSING: Reply = ("404", || answer(404, &[], ""));
const RESET: Reply = ("reset", || Turn::Reset(usize::MAX - 1));
const FINE: Reply = ("200,body=fine", || answer(200, &[], "fine"));

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

/// What is compared: the client's status and body, how often each code came of an attempt, how many requests
/// came, and how many retries there were.
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

/// On sockets.
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

/// As `explain` says.
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
    // The execution's id differs.
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
