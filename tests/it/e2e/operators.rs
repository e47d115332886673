//! What an operator sees: the access log, the last executions, the tap, metrics, who may ask.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::client::{Client, ask, get, post, request};
use crate::support::origin::{Origin, State, Turn, answer};
use crate::support::program::{Proxy, command, configuration};
use crate::support::watched::PATIENCE;

/// Two more attempts for what is unavailable, a tenth of a second apart.
const RETRIED: &str = "
  - name: pay
    match: { pathPrefix: /pay }
    upstream: billing
    middleware:
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry:
          with:
            policies:
              - match: { codes: [Provider.Call.Http.Unavailable] }
                attempts: 2
                backoff: { initial: PT0.1S }
";

/// The same before a cleanup.
const AUDITED: &str = "
  - name: pay
    upstream: billing
    middleware:
      - provider: mwl:provider.middleware/mwl/finally/v1
        onAlways:
          with:
            call:
              provider: mwl:provider.call/mwl-proxy/http/v1
              input: \"{{ middleware.result.type }}\"
              with: { upstream: audit, method: POST, path: /audit }
";

/// The records that the program has written.
fn records(proxy: &Proxy) -> Vec<Value> {
    let lines = proxy.program().lines();
    let records = lines.iter().filter(|line| line.contains("\"bytesOut\""));
    records.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Waits for the record of this execution.
fn record(proxy: &Proxy, id: &str) -> Value {
    proxy.program().line("the record", |line| {
        let record: Value = serde_json::from_str(line).ok()?;
        (record["execution"] == id && record.get("bytesOut").is_some()).then_some(record)
    })
}

fn with_id(method: &str, path: &str, id: &str, body: &str) -> Vec<u8> {
    request(method, path, &[("X-Request-Id", id)], body.as_bytes())
}

#[test]
fn the_access_log_has_a_record_of_each_request_and_its_attempts() {
    let origin = Origin::script([answer(503, &[], ""), answer(200, &[], "hello")]);
    let file = configuration(&[("billing", origin.address)], RETRIED);
    let proxy = Proxy::start(&format!("log: {{ access: {{ }} }}\n{file}"));
    let fields = [("X-Request-Id", "r-1"), ("Idempotency-Key", "k")];
    assert_eq!(
        ask(proxy.address, request("POST", "/pay?card=4242", &fields, b"12345")).status,
        200
    );
    let mut found = record(&proxy, "r-1");
    assert!(found["duration"].as_f64().unwrap() >= 0.1, "{found}");
    assert!(found["time"].as_str().unwrap().ends_with('Z'), "{found}");
    for attempt in found["attempts"].as_array_mut().unwrap() {
        assert!(attempt["took"].as_f64().unwrap() > 0.0);
        for measured in ["took", "began"] {
            attempt.as_object_mut().unwrap().remove(measured);
        }
    }
    for measured in ["duration", "time"] {
        found.as_object_mut().unwrap().remove(measured);
    }
    let endpoint = origin.address.to_string();
    let attempt = |number: u32, status: u16| {
        json!({
            "step": "pay", "attempt": number, "upstream": "billing", "endpoint": endpoint,
            "status": status, "code": null, "waited": null, "source": null,
        })
    };
    let (mut first, mut second) = (attempt(1, 503), attempt(2, 200));
    first["code"] = json!("Provider.Call.Http.Unavailable");
    second["waited"] = json!(0.1);
    second["source"] = json!("schedule");
    assert_eq!(
        found,
        json!({
            "execution": "r-1", "route": "pay", "client": "127.0.0.1", "method": "POST",
            "path": "/pay", "status": 200, "result": "success", "code": null,
            "bytesIn": 5, "bytesOut": 5, "attempts": [first, second],
        })
    );
}

#[test]
fn failures_and_refusals_are_written_where_only_they_are_wanted() {
    let origin = Origin::by(|head, _| {
        let status = if head.line.contains("/pay/bad") { 500 } else { 200 };
        answer(status, &[], "")
    });
    let file = configuration(&[("billing", origin.address)], RETRIED);
    let mut proxy = Proxy::start(&format!("log: {{ access: {{ when: failures }} }}\n{file}"));
    assert_eq!(ask(proxy.address, with_id("GET", "/pay/good", "good", "")).status, 200);
    assert_eq!(ask(proxy.address, with_id("GET", "/pay/bad", "bad", "")).status, 500);
    assert_eq!(ask(proxy.address, with_id("GET", "/elsewhere", "lost", "")).status, 404);
    proxy.stop();
    let shown: Vec<_> = records(&proxy)
        .iter()
        .map(|record| (record["path"].clone(), record["route"].clone(), record["code"].clone()))
        .collect();
    assert_eq!(
        shown,
        [
            (json!("/pay/bad"), json!("pay"), json!("Provider.Call.Http.NonSuccessStatus")),
            (json!("/elsewhere"), Value::Null, json!("Proxy.NoRoute")),
        ]
    );
}

#[test]
fn a_reload_turns_the_access_log_on_and_off() {
    let origin = Origin::always(answer(200, &[], ""));
    let off = configuration(&[("billing", origin.address)], RETRIED);
    let on = format!("log: {{ access: {{ }} }}\n{off}");
    let mut proxy = Proxy::start(&off);
    let tell = |id: &str| {
        assert_eq!(ask(proxy.address, with_id("GET", "/pay", id, "")).status, 200);
    };
    tell("before");
    for (file, id) in [(&on, "between"), (&off, "after")] {
        proxy.rewrite(file);
        assert_eq!(post(proxy.admin, "/reload", "").status, 200);
        tell(id);
    }
    proxy.stop();
    let records = records(&proxy);
    let ids: Vec<&Value> = records.iter().map(|record| &record["execution"]).collect();
    assert_eq!(ids, ["between"]);
}

#[test]
fn the_last_executions_show_their_attempts_and_failures() {
    let origin = Origin::by(|head, _| {
        let status = if head.line.contains("/pay/bad") { 503 } else { 200 };
        answer(status, &[], "")
    });
    let proxy = Proxy::before(&[("billing", origin.address)], RETRIED);
    assert_eq!(ask(proxy.address, with_id("GET", "/pay/bad", "bad", "")).status, 503);
    for number in 0..200 {
        let id = format!("good-{number}");
        assert_eq!(ask(proxy.address, with_id("GET", "/pay/good", &id, "")).status, 200);
    }
    let failures = get(proxy.admin, "/executions?outcome=failure").json();
    let [failed] = failures["executions"].as_array().unwrap().as_slice() else {
        panic!("{failures}");
    };
    assert_eq!((&failed["execution"], &failed["status"]), (&json!("bad"), &json!(503)));
    let codes = |list: &Value| -> Vec<String> {
        let items = list.as_array().unwrap().iter();
        items.map(|item| item["code"].as_str().unwrap().to_owned()).collect()
    };
    let unavailable = "Provider.Call.Http.Unavailable";
    assert_eq!(codes(&failed["attempts"]), [unavailable; 2]);
    assert_eq!(
        codes(&failed["failures"])[..2],
        ["Provider.Middleware.Retry.Exhausted", unavailable]
    );
    let message = failed["failures"][1]["message"].as_str().unwrap();
    assert!(message.contains("upstream billing answered 503"), "{message}");
    // Plain successes are many: some of them are kept, and never in the place of a failure.
    let successes = get(proxy.admin, "/executions?outcome=success&route=pay").json();
    let kept = successes["executions"].as_array().unwrap().len();
    assert!((32..=128).contains(&kept), "{kept}");
    let none = get(proxy.admin, "/executions?route=other").json();
    assert_eq!(none, json!({ "kept": 128, "executions": [] }));
}

#[test]
fn an_execution_that_its_client_left_shows_what_its_cleanup_did() {
    let (origin, audit) = (Origin::always(Turn::Hang), Origin::always(answer(200, &[], "")));
    let upstreams = [("billing", origin.address), ("audit", audit.address)];
    let mut proxy = Proxy::start(&format!(
        "log: {{ access: {{ when: failures }} }}\n{}",
        configuration(&upstreams, AUDITED)
    ));
    let mut client = Client::connect(proxy.address);
    client.send(with_id("GET", "/", "left", ""));
    origin.until_state(0, State::Whole);
    drop(client);
    let found = record(&proxy, "left");
    assert_eq!((&found["status"], &found["result"]), (&json!(499), &json!("cancellation")));
    let attempts = found["attempts"].as_array().unwrap();
    let shown: Vec<_> = attempts
        .iter()
        .map(|attempt| (&attempt["upstream"], &attempt["status"], &attempt["code"]))
        .collect();
    assert_eq!(
        shown,
        [
            (&json!("billing"), &Value::Null, &json!("System.Cancelled")),
            (&json!("audit"), &json!(200), &Value::Null),
        ]
    );
    assert_eq!(
        (&attempts[0]["interrupted"], &attempts[1]["cleanup"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(attempts[0]["endpoint"], origin.address.to_string());
    proxy.stop();
}

/// A listener to `/tap`.
struct Tap {
    stream: TcpStream,
    text: String,
}

impl Tap {
    fn open(admin: SocketAddr, query: &str) -> Self {
        let mut stream = TcpStream::connect(admin).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&request("GET", &format!("/tap{query}"), &[], b"")).unwrap();
        let mut tap = Self { stream, text: String::new() };
        tap.until(": listening");
        assert!(tap.text.contains("content-type: text/event-stream"), "{}", tap.text);
        tap
    }

    /// Whether there is room for one.
    fn is_welcome(admin: SocketAddr) -> bool {
        let mut stream = TcpStream::connect(admin).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&request("GET", "/tap", &[], b"")).unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        status == *b"HTTP/1.1 200"
    }

    /// Reads until this has come.
    fn until(&mut self, wanted: &str) {
        while !self.text.contains(wanted) {
            let mut piece = [0; 4096];
            let read = self.stream.read(&mut piece).expect(wanted);
            assert!(read > 0, "no {wanted} in {}", self.text);
            self.text.push_str(&String::from_utf8_lossy(&piece[..read]));
        }
    }

    /// The names of the events, and the executions that they are of.
    fn events(&self) -> Vec<(String, String)> {
        let data = self.text.lines().filter_map(|line| line.strip_prefix("data: "));
        let events = data.map(|data| serde_json::from_str::<Value>(data).unwrap());
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        events.map(|event| (text(&event["event"]), text(&event["execution"]))).collect()
    }
}

#[test]
fn a_tap_hears_what_it_asks_for() {
    let origin = Origin::by(|head, number| {
        let status = if head.line.contains("/bad") || number == 0 { 503 } else { 200 };
        answer(status, &[], "")
    });
    let routes = format!("{RETRIED}  - {{ name: other, upstream: billing }}\n");
    let proxy = Proxy::before(&[("billing", origin.address)], &routes);
    let mut all = Tap::open(proxy.admin, "?route=pay");
    let mut failures = Tap::open(proxy.admin, "?outcome=failure");
    ask(proxy.address, with_id("GET", "/pay", "retried", ""));
    ask(proxy.address, with_id("GET", "/other", "elsewhere", ""));
    ask(proxy.address, with_id("GET", "/other/bad", "failed", ""));
    ask(proxy.address, with_id("GET", "/pay", "last", ""));
    all.until("\"execution\":\"last\"");
    all.until("execution.done\",\"execution\":\"last\"");
    let heard = all.events();
    let of = |id: &str| -> Vec<&str> {
        let own = heard.iter().filter(|(_, execution)| execution == id);
        own.map(|(name, _)| name.as_str()).collect()
    };
    assert_eq!(
        of("retried"),
        [
            "execution.started",
            "attempt.started",
            "attempt.failed",
            "retry.scheduled",
            "attempt.started",
            "attempt.done",
            "execution.done",
        ]
    );
    assert_eq!((of("elsewhere"), of("failed")), (Vec::new(), Vec::new()));
    failures.until("execution.done\",\"execution\":\"failed\"");
    let heard: BTreeSet<String> = failures.events().into_iter().map(|(_, id)| id).collect();
    assert_eq!(heard, BTreeSet::from(["failed".to_owned()]), "successes are not heard");
    // Room for listeners is bounded, and comes back.
    let taps: Vec<Tap> = (0..14).map(|_| Tap::open(proxy.admin, "")).collect();
    assert_eq!(get(proxy.admin, "/tap").status, 503);
    assert_eq!(get(proxy.admin, "/readyz").status, 200);
    drop((all, failures, taps));
    let begun = Instant::now();
    while !Tap::is_welcome(proxy.admin) {
        assert!(begun.elapsed() < PATIENCE, "there is no room for a listener");
    }
}

#[test]
fn a_token_is_asked_for_and_a_reload_changes_it() {
    let origin = Origin::always(answer(200, &[], ""));
    let file = |token: &str| {
        configuration(&[("billing", origin.address)], RETRIED).replace(
            "admin: { address: 127.0.0.1:0 }",
            &format!("admin: {{ address: 127.0.0.1:0, token: {token} }}"),
        )
    };
    let proxy = Proxy::start(&file("first"));
    let status = |path: &str, token: &str| {
        let auth = format!("Bearer {token}");
        ask(proxy.admin, request("GET", path, &[("Authorization", &auth)], b"")).status
    };
    for path in ["/metrics", "/routes", "/executions", "/config", "/tap"] {
        assert_eq!(get(proxy.admin, path).status, 401, "{path}");
        assert_eq!(status(path, "wrong"), 401, "{path}");
    }
    assert_eq!(post(proxy.admin, "/reload", "").status, 401);
    assert_eq!((get(proxy.admin, "/livez").status, get(proxy.admin, "/readyz").status), (200, 200));
    assert_eq!(status("/metrics", "first"), 200);
    let auth = [("Authorization", "Bearer first")];
    let config = ask(proxy.admin, request("GET", "/config", &auth, b"")).json();
    assert_eq!(config["config"]["admin"]["token"], "(hidden)");
    proxy.rewrite(&file("second"));
    assert_eq!(ask(proxy.admin, request("POST", "/reload", &auth, b"")).status, 200);
    assert_eq!((status("/metrics", "first"), status("/metrics", "second")), (401, 200));
}

#[test]
fn routes_show_what_they_counted() {
    let origin = Origin::script([answer(503, &[], ""), answer(200, &[], "")]);
    let proxy = Proxy::before(&[("billing", origin.address)], RETRIED);
    assert_eq!(get(proxy.address, "/pay").status, 200);
    let routes = get(proxy.admin, "/routes").json();
    let counters = &routes[0]["counters"];
    assert_eq!(counters["requests"], json!({ "200": 1 }));
    assert_eq!(counters["attempts"], json!({ "success": 1, "Provider.Call.Http.Unavailable": 1 }));
    assert_eq!(counters["retries"], json!({ "Provider.Call.Http.Unavailable": 1 }));
    assert!(counters["duration"]["p50"].as_f64().unwrap() >= 0.1, "{counters}");
}

#[test]
fn buckets_are_the_configuration_s() {
    let origin = Origin::always(answer(200, &[], ""));
    let file = configuration(&[("billing", origin.address)], RETRIED);
    let proxy = Proxy::start(&format!("metrics: {{ buckets: [0.5, 2] }}\n{file}"));
    assert_eq!(get(proxy.address, "/pay").status, 200);
    let metrics = get(proxy.admin, "/metrics");
    let bounds: Vec<&str> = metrics
        .text()
        .lines()
        .filter_map(|line| line.strip_prefix("mwl_request_duration_seconds_bucket{route=\"pay\","))
        .filter_map(|line| line.split('"').nth(1))
        .collect();
    assert_eq!(bounds, ["0.5", "2", "+Inf"]);
}

/// How many series the proxy has.
fn series(proxy: &Proxy) -> usize {
    let metrics = get(proxy.admin, "/metrics");
    metrics.text().lines().filter(|line| !line.starts_with('#')).count()
}

#[test]
fn ten_thousand_hostile_requests_add_less_than_a_hundred_series() {
    let origin = Origin::by(|head, _| {
        let status = head.line.split('/').nth(2).and_then(|digits| digits.parse().ok());
        answer(status.unwrap_or(200), &[], "")
    });
    let routes = "  - { name: all, match: { pathPrefix: /pay }, upstream: billing }\n";
    let proxy = Proxy::before(&[("billing", origin.address)], routes);
    assert_eq!(get(proxy.address, "/pay/200/").status, 200);
    let before = series(&proxy);
    let mut client = Client::connect(proxy.address);
    for number in 0..10_000_u32 {
        // Statuses from 200 to 999: those below are no final answers.
        let status = 200 + number % 800;
        let bytes = match number % 10 {
            0 => format!("GET /lost/{number} HTTP/1.1\r\nHost: h{number}.test\r\n\r\n"),
            1 => format!("GET /pay/../{number} HTTP/1.1\r\nHost: a\r\n\r\n"),
            2 => format!("X{number} /pay/{status}/ HTTP/1.1\r\nHost: h{number}.test\r\n\r\n"),
            _ => format!(
                "GET /pay/{status}/{number}?q={number} HTTP/1.1\r\nHost: h{number}.test\r\nX-Request-Id: {number}\r\n\r\n"
            ),
        };
        client.send(bytes);
        if client.answer_or_end().is_none_or(|answer| answer.field("connection") == Some("close")) {
            client = Client::connect(proxy.address);
        }
    }
    let added = series(&proxy) - before;
    assert!(added < 100, "{added} series more");
    assert!(proxy.metric("mwl_requests_total", &[("status", "other")]) > 1000);
}

/// Debian's `prometheus` has the linter; where it is not installed, the unit tests hold its rules.
#[test]
fn promtool_finds_nothing_to_say() {
    let origin = Origin::script([answer(503, &[], ""), answer(200, &[], "")]);
    let proxy = Proxy::before(&[("billing", origin.address)], RETRIED);
    assert_eq!(get(proxy.address, "/pay").status, 200);
    let spawned = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut promtool) = spawned else { return };
    promtool.stdin.take().unwrap().write_all(&get(proxy.admin, "/metrics").body).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && said.is_empty(), "{said}");
}

#[test]
fn an_admin_address_for_everybody_needs_a_token() {
    let directory = crate::support::program::Directory::new();
    let file = |admin: &str| {
        format!(
            "listeners: [{{ address: 127.0.0.1:0 }}]\nadmin: {admin}\nupstreams: {{ a: {{ endpoints: [http://127.0.0.1:1] }} }}\nroutes: [{{ name: r, upstream: a }}]\n"
        )
    };
    let check = |admin: &str| {
        let path = directory.write("proxy.yaml", &file(admin));
        let output = command(&["check", path.to_str().unwrap()]).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let (code, said) = check("{ address: 0.0.0.0:9900 }");
    assert!(code == Some(1) && said.contains("open-admin") && said.contains(":2:8"), "{said}");
    assert_eq!(check("{ address: 0.0.0.0:9900, token: abc }").0, Some(0));
    assert_eq!(check("{ address: \"[::1]:9900\" }").0, Some(0));
    let (code, said) = check("{ address: 0.0.0.0:9900, token: \"\" }");
    assert!(code == Some(1) && said.contains("bad-token"), "{said}");
}
