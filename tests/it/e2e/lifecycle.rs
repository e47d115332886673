//! Starting, probing, and stopping.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::thread;

use serde_json::Value;
use tokio::time::Instant;

use crate::support::client::{Client, ask, get, request};
use crate::support::message::Head;
use crate::support::origin::{Origin, State, Turn, answer, bytes};
use crate::support::program::{Program, Proxy, command, configuration};
use crate::support::stack::{audit, heeding, retry};
use crate::support::watched::{Gate, PATIENCE, Watched};

const ROUTES: &str = "  - { name: all, match: { pathPrefix: / }, upstream: billing }\n";

/// Waits until nobody listens there.
pub(super) fn until_refused(address: std::net::SocketAddr) {
    let begun = Instant::now();
    while TcpStream::connect(address).is_ok() {
        assert!(begun.elapsed() < PATIENCE, "{address} still accepts");
        thread::yield_now();
    }
}

/// Waits until `/readyz` reports it. Returns when that was first asked.
pub(super) fn until_not_ready(admin: std::net::SocketAddr) {
    let begun = Instant::now();
    while get(admin, "/readyz").status != 503 {
        assert!(begun.elapsed() < PATIENCE, "still ready");
    }
}

#[test]
fn on_a_term_signal_what_runs_ends_by_itself_and_nothing_new_begins() {
    let gate = Gate::default();
    let origin = Origin::always(Turn::Gated(gate.clone(), bytes(200, &[], "done")));
    let mut proxy = Proxy::before(&[("billing", origin.address)], ROUTES);
    let mut busy = Client::connect(proxy.address);
    busy.send(request("GET", "/", &[], b""));
    origin.until_state(0, State::Whole);

    proxy.program().signal("TERM");
    until_refused(proxy.address);
    gate.open();
    let got = busy.answer();
    assert_eq!((got.status, got.text()), (200, "done"));
    assert_eq!(got.field("connection"), Some("close"));
    assert!(busy.ended());
    assert_eq!(proxy.exit().code(), Some(0));
}

#[test]
fn an_idle_connection_does_not_hold_the_end_up() {
    let origin = Origin::always(answer(200, &[], ""));
    let mut proxy = Proxy::before(&[("billing", origin.address)], ROUTES);
    let mut idle = Client::connect(proxy.address);
    assert_eq!(idle.ask(request("GET", "/", &[], b"")).status, 200);
    proxy.program().signal("TERM");
    assert!(idle.ended());
    assert_eq!(proxy.exit().code(), Some(0));
}

#[test]
fn while_the_listeners_stay_for_the_delay_the_proxy_says_it_is_not_ready() {
    let origin = Origin::always(answer(200, &[], ""));
    let file = configuration(&[("billing", origin.address)], ROUTES);
    let mut proxy = Proxy::start(&format!("shutdown: {{ delay: PT1S }}\n{file}"));
    assert_eq!(get(proxy.admin, "/readyz").status, 200);
    let begun = Instant::now();
    proxy.program().signal("TERM");
    until_not_ready(proxy.admin);
    assert_eq!(get(proxy.address, "/").status, 200, "it still accepts");
    assert_eq!(get(proxy.admin, "/livez").status, 200);
    until_refused(proxy.address);
    assert!(begun.elapsed().as_secs() >= 1, "the delay is kept");
    assert_eq!(proxy.exit().code(), Some(0));
}

/// A Retry inside of an audit, for requests in an attempt, in a gap, in an audit and in a stream.
const AUDITED: &str = concat!(
    "  - name: pay\n    match: { pathPrefix: / }\n    upstream: billing\n    middleware:\n",
    audit!(
        "audit",
        "{{ '/' + execution.id }}",
        "{'id': execution.id, 'result': middleware.result}"
    ),
    retry!("match: { codes: [Provider.Call.*] }, attempts: 3"),
    heeding!(),
);

/// Requests in every state that a request can have, and an idle connection.
struct Busy {
    proxy: Proxy,
    /// Dropping it would end it.
    _billing: Origin,
    audit: Origin,
    attempt: Client,
    gap: Client,
    auditing: Client,
    stream: Client,
    /// The stream's head.
    head: Head,
    idle: Client,
    /// When opened, all upstreams continue.
    gate: Gate,
}

impl Drop for Busy {
    fn drop(&mut self) {
        // Nobody waits there any more.
        self.gate.open();
    }
}

impl Busy {
    /// The gap lasts `wait` seconds.
    fn new(settings: &str, wait: &'static str) -> Self {
        let gate = Gate::default();
        let opens = gate.clone();
        let tried = Watched::new(false);
        let billing = Origin::by(move |head, _| match head.field("x-request-id") {
            Some("in-an-attempt") => Turn::Gated(opens.clone(), bytes(200, &[], "done")),
            Some("in-a-gap") if !tried.update(|tried| std::mem::replace(tried, true)) => {
                answer(503, &[("Retry-After", wait)], "later")
            }
            Some("in-a-stream") => {
                let (first, second) = ("2\r\nab\r\n", "2\r\ncd\r\n0\r\n\r\n");
                let first = format!("HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n{first}");
                Turn::Halves(first.into_bytes(), opens.clone(), second.as_bytes().to_vec())
            }
            _ => answer(200, &[], "done"),
        });
        let opens = gate.clone();
        let audit = Origin::by(move |head, _| {
            let accepted = b"HTTP/1.1 204 No Content\r\n\r\n".to_vec();
            if head.line.contains("/in-an-audit") {
                return Turn::Gated(opens.clone(), accepted);
            }
            Turn::Say(accepted)
        });
        let upstreams = [("billing", billing.address), ("audit", audit.address)];
        let proxy = Proxy::start(&format!("{settings}\n{}", configuration(&upstreams, AUDITED)));
        let ask = |id: &str| {
            let mut client = Client::connect(proxy.address);
            client.send(request("GET", "/", &[("X-Request-Id", id)], b""));
            client
        };
        let [attempt, gap, auditing, mut stream, mut idle] =
            ["in-an-attempt", "in-a-gap", "in-an-audit", "in-a-stream", "idle"].map(ask);
        let head = stream.head();
        assert_eq!(idle.answer().status, 200);
        billing.until_count(5);
        // The failed attempt is counted when its gap begins, the retry when it is made.
        let failed = [("upstream", "billing"), ("code", "Provider.Call.Http.Unavailable")];
        proxy.until_metric("mwl_attempts_total", &failed, 1);
        // Audits: of the stream, which was accepted with its head; of the idle connection's request; and of the
        // waiting one.
        audit.until_count(3);
        Self { proxy, _billing: billing, audit, attempt, gap, auditing, stream, head, idle, gate }
    }

    /// The audited ids, each with the code of its failure.
    fn audited(&self) -> BTreeMap<String, String> {
        let audits = self.audit.seen();
        let told = audits.iter().map(|seen| {
            let told: Value = serde_json::from_slice(&seen.body).unwrap();
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            (text(&told["id"]), text(&told["result"]["code"]))
        });
        let all: BTreeMap<String, String> = told.collect();
        assert_eq!(all.len(), audits.len(), "each once");
        all
    }
}

#[test]
fn on_a_term_signal_everything_comes_to_its_own_end() {
    let mut busy = Busy::new("shutdown: { delay: PT1S, grace: PT10S }", "2");
    let begun = Instant::now();
    busy.proxy.program().signal("TERM");
    until_not_ready(busy.proxy.admin);
    // Clients that have not noticed yet are still served.
    assert_eq!(get(busy.proxy.address, "/").text(), "done");
    until_refused(busy.proxy.address);
    assert!(begun.elapsed().as_secs() >= 1, "the delay is kept");
    assert!(busy.idle.ended());
    // The gap ends, and the next attempt is made.
    let got = busy.gap.answer();
    assert_eq!((got.status, got.text()), (200, "done"));
    assert_eq!(got.field("connection"), Some("close"));
    busy.gate.open();
    for client in [&mut busy.attempt, &mut busy.auditing] {
        let got = client.answer();
        assert_eq!((got.status, got.text()), (200, "done"));
        assert_eq!(got.field("connection"), Some("close"));
        assert!(client.ended());
    }
    assert_eq!(busy.stream.body(busy.head.clone()).expect("all of it").text(), "abcd");
    assert_eq!(busy.proxy.exit().code(), Some(0));
    let audited = busy.audited();
    assert_eq!(audited.len(), 6, "{audited:?}");
    assert!(audited.values().all(String::is_empty), "{audited:?}");
    let lines = busy.proxy.program().lines();
    let stopping = lines.iter().skip_while(|line| !line.contains("Stopping."));
    let complaints = |line: &&String| line.contains("ERROR") || line.contains("WARN");
    assert_eq!(stopping.into_iter().find(complaints), None, "an orderly stop");
}

#[test]
fn what_does_not_end_within_the_grace_is_cancelled_and_audited() {
    let settings = "shutdown: { grace: PT0.5S }\nlimits: { cleanup: PT1S }";
    let mut busy = Busy::new(settings, "60");
    busy.proxy.program().signal("TERM");
    let begun = Instant::now();
    for client in [&mut busy.attempt, &mut busy.gap] {
        let got = client.answer();
        assert_eq!((got.status, got.json()["code"].as_str()), (503, Some("System.Cancelled")));
    }
    // An answer that was being sent breaks off visibly.
    assert!(busy.stream.body(busy.head.clone()).is_none());
    assert_eq!(busy.proxy.exit().code(), Some(1), "something was cut");
    let took = begun.elapsed().as_secs_f64();
    assert!((0.5..8.0).contains(&took), "grace, cleanup and a last second, not {took}");
    let audited = busy.audited();
    for id in ["in-an-attempt", "in-a-gap"] {
        assert_eq!(audited[id], "System.Cancelled");
    }
    // An audit that was not accepted in time is logged with its execution.
    let lines = busy.proxy.program().lines();
    let lost = |line: &&String| line.contains("A cleanup failed.");
    let lost: Vec<&String> = lines.iter().filter(lost).collect();
    assert!(lost.len() == 1 && lost[0].contains("in-an-audit"), "{lost:?}");
}

#[test]
fn a_second_signal_stops_at_once_and_says_what_it_lost() {
    let mut busy = Busy::new("shutdown: { grace: PT60S }", "60");
    busy.proxy.program().signal("TERM");
    until_refused(busy.proxy.address);
    let begun = Instant::now();
    busy.proxy.program().signal("INT");
    assert_eq!(busy.proxy.exit().code(), Some(1));
    let took = begun.elapsed().as_secs_f64();
    assert!(took < 5.0, "a last second for audits, not {took}");
    // Audits that are accepted at once arrive.
    let audited = busy.audited();
    for id in ["in-an-attempt", "in-a-gap"] {
        assert_eq!(audited[id], "System.Cancelled");
    }
    let lines = busy.proxy.program().lines();
    let lost = |line: &&String| line.contains("dropped before its cleanups had run");
    let lost: Vec<&String> = lines.iter().filter(lost).collect();
    assert!(lost.len() == 1 && lost[0].contains("in-an-audit"), "{lost:?}");
    // Of the attempt, the gap, the audit and the stream, the last two did not end.
    let counts = lines.iter().find(|line| line.contains("Stopping at once.")).expect("a count");
    assert!(counts.contains(r#""cut":4"#) && counts.contains(r#""unfinished":2"#), "{counts}");
}

#[test]
fn a_kill_loses_what_was_in_flight_and_nothing_else() {
    let mut busy = Busy::new("", "60");
    for number in 0..20 {
        let fields = [("X-Request-Id", &*format!("before-{number}"))];
        let got = ask(busy.proxy.address, request("POST", "/", &fields, b"some body"));
        assert_eq!(got.status, 200);
    }
    busy.proxy.program().signal("KILL");
    assert_eq!(busy.proxy.exit().code(), None);
    assert!(busy.attempt.ended() && busy.gap.ended());
    // Every request that was answered was audited before its answer.
    let audited = busy.audited();
    assert!((0..20).all(|number| audited.contains_key(&format!("before-{number}"))));
    // Of the running requests: the stream, the idle connection's last one, and the one whose audit was running.
    assert_eq!(audited.len(), 23, "{audited:?}");
}

#[test]
fn the_admin_address_tells_what_is_served() {
    let origin = Origin::always(answer(200, &[], ""));
    let proxy = Proxy::before(&[("billing", origin.address)], ROUTES);
    assert_eq!(get(proxy.admin, "/livez").status, 200);
    assert_eq!(get(proxy.admin, "/readyz").status, 200);
    let routes = get(proxy.admin, "/routes");
    assert!(routes.status == 200 && routes.text().contains("all"), "{}", routes.text());
    let config = get(proxy.admin, "/config");
    let upstream = origin.address.to_string();
    assert!(config.status == 200 && config.text().contains(&upstream), "{}", config.text());
    assert_eq!(get(proxy.admin, "/nothing").status, 404);
    let got = get(proxy.admin, "/reload");
    assert_eq!((got.status, got.field("allow")), (405, Some("POST")));

    assert_eq!(get(proxy.address, "/").status, 200);
    let metrics = get(proxy.admin, "/metrics");
    assert_eq!(metrics.field("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    for family in ["mwl_requests_total", "mwl_config_info", "mwl_upstream_connections", "process_"]
    {
        assert!(metrics.text().contains(&format!("# TYPE {family}")), "{family}");
    }
}

#[test]
fn a_file_that_does_not_check_does_not_start() {
    let directory = crate::support::program::Directory::new();
    let path = directory.write("proxy.yaml", "listeners: []\nroute: []\n");
    let mut program = Program::spawn(command(&["run", "-c", path.to_str().unwrap()]));
    let status = program.exit();
    assert_eq!(status.code(), Some(1));
    let lines = program.lines().join("\n");
    assert!(lines.contains("proxy.yaml:2:1"), "{lines}");
}
