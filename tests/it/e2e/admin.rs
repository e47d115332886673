//! The admin address: the tap, the metrics, and who may read them.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::operators::{RETRIED, with_id};
use crate::support::client::{Client, ask, get, post, request};
use crate::support::origin::{Origin, answer};
use crate::support::program::{Proxy, command, configuration};
use crate::support::watched::PATIENCE;

/// A listener to `/tap`.
pub(super) struct Tap {
    stream: TcpStream,
    text: String,
}

impl Tap {
    pub(super) fn open(admin: SocketAddr, query: &str) -> Self {
        let mut stream = TcpStream::connect(admin).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&request("GET", &format!("/tap{query}"), &[], b"")).unwrap();
        let mut tap = Self { stream, text: String::new() };
        tap.until(": listening");
        assert!(tap.text.contains("content-type: text/event-stream"), "{}", tap.text);
        tap
    }

    /// Whether there is room for another listener.
    fn is_welcome(admin: SocketAddr) -> bool {
        let mut stream = TcpStream::connect(admin).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&request("GET", "/tap", &[], b"")).unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        status == *b"HTTP/1.1 200"
    }

    /// Reads until this has come.
    pub(super) fn until(&mut self, wanted: &str) {
        while !self.text.contains(wanted) {
            let mut piece = [0; 4096];
            let read = self.stream.read(&mut piece).expect(wanted);
            assert!(read > 0, "no {wanted} in {}", self.text);
            self.text.push_str(&String::from_utf8_lossy(&piece[..read]));
        }
    }

    /// The events that have come whole.
    pub(super) fn data(&self) -> Vec<Value> {
        let whole = self.text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let data = whole.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(|data| serde_json::from_str(data).unwrap()).collect()
    }

    /// The names of the events, and their executions.
    fn events(&self) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        self.data().iter().map(|event| (text(&event["event"]), text(&event["execution"]))).collect()
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
    // The room for listeners is bounded, and is freed again.
    let taps: Vec<Tap> = (0..14).map(|_| Tap::open(proxy.admin, "")).collect();
    assert_eq!(get(proxy.admin, "/tap").status, 503);
    assert_eq!(get(proxy.admin, "/readyz").status, 200);
    drop((all, failures, taps));
    let begun = Instant::now();
    while !Tap::is_welcome(proxy.admin) {
        assert!(begun.elapsed() < PATIENCE, "there is no room for a listener");
    }
}

/// What is served is asked, not what the file says by now. Neither listeners nor the log take the answer's events for a client's.
#[test]
fn questions_are_answered_by_what_is_served_and_heard_by_nobody() {
    let origin = Origin::always(answer(200, &[], ""));
    let proxy = Proxy::before(&[("billing", origin.address)], RETRIED);
    let mut tap = Tap::open(proxy.admin, "");
    proxy.rewrite("no configuration");
    assert_eq!(post(proxy.admin, "/reload", "").status, 422);
    let question = r#"{ "request": "GET /pay/1", "respond": ["503", "200,body=told"] }"#;
    let told = post(proxy.admin, "/explain", question).json();
    assert_eq!((&told["route"], &told["response"]["body"]), (&json!("pay"), &json!("told")));
    assert_eq!(told["took"], "PT0.1S");
    let refused = post(proxy.admin, "/explain", r#"{ "respond": ["503,retry-after=2", "20"] }"#);
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("`20` is no response"), "{}", refused.text());
    // One that fails would be a warning in the log.
    assert_eq!(
        post(proxy.admin, "/explain", r#"{ "request": "GET /pay", "respond": ["500"] }"#).status,
        200
    );
    assert_eq!(origin.count(), 0, "nothing is sent");
    ask(proxy.address, with_id("GET", "/pay", "real", ""));
    tap.until("execution.done");
    assert!(tap.data().iter().all(|event| event["execution"] == "real"), "{:?}", tap.data());
    let lines = proxy.program().lines();
    assert!(!lines.iter().any(|line| line.contains("A request failed")), "{lines:#?}");
    let history = get(proxy.admin, "/history").json();
    assert_eq!((&history["every"], &history["kept"]), (&json!(5), &json!(180)));
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
    let proxy = Proxy::start(&file("first-of-two-tokens"));
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
    assert_eq!(status("/metrics", "first-of-two-tokens"), 200);
    let auth = [("Authorization", "Bearer first-of-two-tokens")];
    let config = ask(proxy.admin, request("GET", "/config", &auth, b"")).json();
    assert_eq!(config["config"]["admin"]["token"], "(hidden)");
    proxy.rewrite(&file("second-of-two-tokens"));
    assert_eq!(ask(proxy.admin, request("POST", "/reload", &auth, b"")).status, 200);
    assert_eq!(
        (status("/metrics", "first-of-two-tokens"), status("/metrics", "second-of-two-tokens")),
        (401, 200)
    );
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

/// How many series the proxy exports.
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
        // Statuses from 200 to 999: lower ones are not final.
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

/// Debian's `prometheus` package contains the linter. Without it, only the unit tests check its rules.
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
    assert_eq!(check("{ address: 0.0.0.0:9900, token: sixteen-and-more }").0, Some(0));
    assert_eq!(check("{ address: \"[::1]:9900\" }").0, Some(0));
    for token in ["\"\"", "a", "fifteen-letters", "sixteen letters and blanks"] {
        let (code, said) = check(&format!("{{ address: 0.0.0.0:9900, token: {token} }}"));
        assert!(code == Some(1) && said.contains("bad-token"), "{said}");
    }
}
