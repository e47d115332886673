//! Each file in `config/`, played by `explain` and by the running proxy in real time: the same attempts, codes, waits and
//! answers.
//!
//! The files are taken as they are, but for what no test can have: their addresses, draws (a jitter, a share of faults) and
//! waits of minutes. With `MWL_ENDURANCE=1` a gap in real time may also be at most 20 ms longer than the one in virtual time;
//! otherwise only the machine's load would be tested.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::explain::{BAD, DECLINED, DOWN, FINE, MISSING, RESET, Reply, THROTTLED};
use crate::support::client::{ask, get, request};
use crate::support::origin::{Origin, answer};
use crate::support::program::{Directory, Proxy, run};

/// How much longer a gap may be in real time, in seconds.
const LATE: f64 = 0.02;

/// A request, to a file whose upstream gives these replies.
struct Case {
    file: &'static str,
    upstream: &'static str,
    asked: (&'static str, &'static str),
    replies: &'static [Reply],
}

const LATER: Reply = ("429,retry-after=1", || answer(429, &[("Retry-After", "1")], ""));

#[rustfmt::skip]
const CASES: &[Case] = &[
    Case { file: "minimal", upstream: "app", asked: ("GET", "/"), replies: &[FINE] },
    Case { file: "minimal", upstream: "app", asked: ("GET", "/"), replies: &[DOWN] },
    Case { file: "minimal", upstream: "app", asked: ("POST", "/"), replies: &[RESET] },
    Case { file: "quickstart", upstream: "flaky", asked: ("GET", "/flaky"), replies: &[DOWN, DOWN, FINE] },
    Case { file: "quickstart", upstream: "flaky", asked: ("GET", "/throttled"), replies: &[LATER, FINE] },
    Case { file: "quickstart", upstream: "flaky", asked: ("POST", "/charge"), replies: &[DECLINED] },
    Case { file: "recipe", upstream: "billing", asked: ("POST", "/billing/charge"), replies: &[THROTTLED, LATER, FINE] },
    Case { file: "recipe", upstream: "billing", asked: ("POST", "/billing/charge"), replies: &[DECLINED] },
    Case { file: "recipe", upstream: "billing", asked: ("GET", "/total-budget"), replies: &[THROTTLED, FINE] },
    Case { file: "recipe", upstream: "billing", asked: ("GET", "/audit-each-attempt"), replies: &[THROTTLED, FINE] },
    Case { file: "recipe", upstream: "billing", asked: ("GET", "/attempt-count"), replies: &[DOWN, BAD, FINE] },
    Case { file: "recipe", upstream: "billing", asked: ("GET", "/gated"), replies: &[DOWN, FINE] },
    Case { file: "recipe", upstream: "billing", asked: ("GET", "/retryable-only"), replies: &[DOWN, DOWN, DOWN] },
    Case { file: "recipe", upstream: "billing", asked: ("POST", "/retryable-only"), replies: &[DOWN] },
    Case { file: "recipe", upstream: "billing", asked: ("GET", "/by-predicate"), replies: &[MISSING] },
    Case { file: "recipe", upstream: "billing", asked: ("GET", "/anything"), replies: &[FINE] },
    Case { file: "faults", upstream: "app", asked: ("GET", "/retried"), replies: &[FINE] },
    Case { file: "faults", upstream: "app", asked: ("GET", "/slow"), replies: &[FINE] },
    Case { file: "circuit-breaker", upstream: "billing", asked: ("GET", "/billing"), replies: &[DOWN, FINE] },
    Case { file: "circuit-breaker", upstream: "prices", asked: ("GET", "/prices"), replies: &[DOWN] },
    Case { file: "concurrency-limit", upstream: "app", asked: ("GET", "/reports"), replies: &[FINE] },
    Case { file: "health", upstream: "billing", asked: ("GET", "/a"), replies: &[DOWN, FINE] },
    Case { file: "limits", upstream: "app", asked: ("GET", "/limited"), replies: &[FINE] },
    Case { file: "reference", upstream: "app", asked: ("GET", "/nowhere/at/all"), replies: &[DOWN, FINE] },
];

/// What came of a request.
#[derive(Debug, PartialEq)]
struct Came {
    status: u64,
    body: String,
    /// Step, number, whether a cleanup's, and status or code of each attempt.
    attempts: Vec<(String, u64, bool, String)>,
}

/// From the end of each attempt of a Step to the beginning of the next, in seconds.
type Gaps = Vec<f64>;

/// The file with addresses of this test.
fn adapted(case: &Case, app: SocketAddr, others: SocketAddr) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("config/{}.yaml", case.file));
    let output = run(&["config", "-c", path.to_str().unwrap()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut file: Value = serde_json::from_slice(&output.stdout).unwrap();
    calm(&mut file);
    let root = file.as_object_mut().unwrap();
    root.insert("listeners".into(), json!([{ "address": "127.0.0.1:0" }]));
    root.insert("admin".into(), json!({ "address": "127.0.0.1:0" }));
    for key in ["tracing", "log", "stacks"] {
        root.remove(key);
    }
    for (name, upstream) in root["upstreams"].as_object_mut().unwrap() {
        let address = if name == case.upstream { app } else { others };
        let upstream = upstream.as_object_mut().unwrap();
        for key in ["tls", "protocol", "health", "proxyProtocol"] {
            upstream.remove(key);
        }
        upstream.insert("endpoints".into(), json!([format!("http://{address}")]));
    }
    file.to_string()
}

/// Takes the draws away, and shortens the waits of schedules.
fn calm(value: &mut Value) {
    if let Some(backoff) = value.get_mut("backoff").and_then(Value::as_object_mut) {
        backoff.insert("jitter".into(), "none".into());
        backoff.insert("initial".into(), "PT0.05S".into());
        backoff.insert("max".into(), "PT1S".into());
    }
    let fault = ["status", "reset", "delay"].iter().any(|key| value.get(key).is_some());
    if fault && value.get("share").is_some_and(Value::is_number) {
        value["share"] = json!(1);
    }
    match value {
        Value::Array(items) => items.iter_mut().for_each(calm),
        Value::Object(members) => members.values_mut().for_each(calm),
        _ => {}
    }
}

/// The body, without the execution's id.
fn masked(body: &str) -> String {
    match serde_json::from_str::<Value>(body) {
        Ok(Value::Object(mut problem)) if problem.contains_key("executionId") => {
            problem.remove("executionId");
            Value::Object(problem).to_string()
        }
        _ => body.to_owned(),
    }
}

fn happens(case: &Case, file: &str) -> (Came, Gaps) {
    let mut proxy = Proxy::start(file);
    let (method, target) = case.asked;
    let got = ask(proxy.address, request(method, target, &[], b""));
    let ended = || {
        let page = get(proxy.admin, "/executions");
        let listed: Value = serde_json::from_str(page.text()).unwrap();
        listed["executions"].as_array().unwrap().first().cloned()
    };
    // The record is there once the cleanups have ended, which is after the answer.
    let since = tokio::time::Instant::now();
    let record = loop {
        if let Some(record) = ended() {
            break record;
        }
        assert!(since.elapsed().as_secs() < 10, "no record of {method} {target}");
        std::thread::yield_now();
    };
    proxy.stop();
    let number = |attempt: &Value, key: &str| attempt[key].as_f64().unwrap();
    let mut spans = Vec::new();
    let attempts = record["attempts"].as_array().unwrap().iter().map(|attempt| {
        let cleanup = attempt["cleanup"] == true;
        let start = number(attempt, "began");
        if !cleanup {
            spans.push((start, start + number(attempt, "took")));
        }
        let ended =
            attempt["code"].as_str().map_or_else(|| attempt["status"].to_string(), str::to_owned);
        (
            attempt["step"].as_str().unwrap().to_owned(),
            attempt["attempt"].as_u64().unwrap(),
            cleanup,
            ended,
        )
    });
    let attempts = attempts.collect();
    let result = Came { status: got.status.into(), body: masked(got.text()), attempts };
    (result, gaps(&spans))
}

fn said(case: &Case, file: &Path) -> (Came, Gaps) {
    let line = format!("{} {}", case.asked.0, case.asked.1);
    let mut arguments =
        vec!["explain".to_owned(), "-c".into(), file.to_str().unwrap().into(), "--json".into()];
    arguments.extend(["--request".to_owned(), line]);
    let known: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let alone = known["upstreams"].as_object().unwrap().len() == 1;
    for (written, _) in case.replies {
        // Kept for this upstream, where Steps call others. Where there is one, its cleanups get none of them.
        let of = if alone { String::new() } else { format!(",upstream={}", case.upstream) };
        arguments.extend(["--respond".to_owned(), format!("{written}{of}")]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let output = run(&arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (mut attempts, mut spans) = (Vec::new(), Vec::new());
    for event in told["events"].as_array().unwrap() {
        let ended = match event["event"].as_str().unwrap() {
            "attempt.done" => event["status"].to_string(),
            "attempt.failed" => event["failure"]["code"].as_str().unwrap().to_owned(),
            _ => continue,
        };
        let cleanup = event["cleanup"] == true;
        let step = event["step"].as_str().unwrap().to_owned();
        if !cleanup {
            let end = seconds(event["at"].as_str().unwrap());
            spans.push((end - seconds(event["took"].as_str().unwrap()), end));
        }
        attempts.push((step, event["attempt"].as_u64().unwrap(), cleanup, ended));
    }
    let result = Came {
        status: told["response"]["status"].as_u64().unwrap(),
        body: masked(told["response"]["body"].as_str().unwrap()),
        attempts,
    };
    (result, gaps(&spans))
}

fn gaps(spans: &[(f64, f64)]) -> Gaps {
    spans.windows(2).map(|pair| pair[1].0 - pair[0].1).collect()
}

/// An ISO 8601 duration of hours, minutes and seconds.
fn seconds(text: &str) -> f64 {
    let (mut all, mut digits) = (0.0, String::new());
    for sign in text.trim_start_matches("PT").chars() {
        let unit = match sign {
            'H' => 3600.0,
            'M' => 60.0,
            'S' => 1.0,
            _ => {
                digits.push(sign);
                continue;
            }
        };
        all += digits.parse::<f64>().unwrap() * unit;
        digits.clear();
    }
    all
}

#[test]
fn every_file_does_what_explain_says_of_it() {
    let exact = std::env::var_os("MWL_ENDURANCE").is_some();
    let mut latest = 0.0_f64;
    for case in CASES {
        let replies: Vec<_> = case.replies.iter().map(|(_, turn)| turn()).collect();
        let number = AtomicUsize::new(0);
        // Calls of cleanups to the same upstream get 200, as `explain` gives them.
        let app = Origin::by(move |head, _| {
            if head.line.contains(" /audit") && !head.line.contains("audit-each") {
                return answer(200, &[], "");
            }
            let place = number.fetch_add(1, Ordering::Relaxed);
            replies.get(place).or_else(|| replies.last()).cloned().unwrap()
        });
        let others = Origin::always(answer(200, &[], ""));
        let file = adapted(case, app.address, others.address);
        let directory = Directory::new();
        // Flows of files are in it already.
        let path = directory.write("proxy.json", &file);
        let what = format!(
            "{} {:?} {:?}",
            case.file,
            case.asked,
            case.replies.iter().map(|r| r.0).collect::<Vec<_>>()
        );
        let ((said, virtual_gaps), (came, real_gaps)) = (said(case, &path), happens(case, &file));
        assert_eq!(said, came, "{what}");
        assert_eq!(virtual_gaps.len(), real_gaps.len(), "{what}");
        for (wanted, real) in virtual_gaps.iter().zip(&real_gaps) {
            let late = real - wanted;
            assert!(late > -0.002, "{what}: waited {real} s in place of {wanted} s");
            assert!(!exact || late < LATE, "{what}: waited {real} s in place of {wanted} s");
            latest = latest.max(late);
        }
    }
    println(&format!(
        "{} cases; the largest difference of a gap: {:.1} ms",
        CASES.len(),
        latest * 1000.0
    ));
}

#[expect(clippy::print_stdout, reason = "the figure, for who runs it with --nocapture")]
fn println(line: &str) {
    println!("{line}");
}

#[test]
fn every_file_has_a_case() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("config");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let file = path.extension().is_some_and(|extension| extension == "yaml");
        assert!(
            !file || CASES.iter().any(|case| case.file == name),
            "config/{name}.yaml has no case"
        );
    }
}
