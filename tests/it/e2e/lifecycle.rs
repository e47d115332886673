//! Starting, being looked at, and stopping.

use std::net::TcpStream;
use std::thread;

use tokio::time::Instant;

use crate::support::client::{Client, get, request};
use crate::support::origin::{Origin, State, Turn, answer, bytes};
use crate::support::program::{Program, Proxy, command, configuration};
use crate::support::watched::{Gate, PATIENCE};

const ROUTES: &str = "  - { name: all, match: { pathPrefix: / }, upstream: billing }\n";

/// Waits until nobody listens there.
fn until_refused(address: std::net::SocketAddr) {
    let begun = Instant::now();
    while TcpStream::connect(address).is_ok() {
        assert!(begun.elapsed() < PATIENCE, "{address} still accepts");
        thread::yield_now();
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
    proxy.program().signal("TERM");
    let begun = Instant::now();
    while get(proxy.admin, "/readyz").status != 503 {
        assert!(begun.elapsed() < PATIENCE, "still ready");
    }
    assert_eq!(get(proxy.address, "/").status, 200, "it still accepts");
    assert_eq!(get(proxy.admin, "/livez").status, 200);
    until_refused(proxy.address);
    assert!(begun.elapsed().as_secs_f64() > 0.8, "the delay is kept");
    assert_eq!(proxy.exit().code(), Some(0));
}

#[test]
fn what_does_not_end_within_the_grace_is_cancelled_and_audited() {
    let origin = Origin::always(Turn::Hang);
    let audit = super::recipe::sink();
    let routes = r#"
  - name: all
    match: { pathPrefix: / }
    upstream: billing
    middleware:
      - provider: mwl:provider.middleware/mwl/finally/v1
        onAlways:
          with:
            call:
              provider: mwl:provider.call/mwl-proxy/http/v1
              input: "{{ middleware.result }}"
              with: { upstream: audit, method: POST, path: /audit }
"#;
    let upstreams = [("billing", origin.address), ("audit", audit.address)];
    let file = configuration(&upstreams, routes);
    let mut proxy = Proxy::start(&format!("shutdown: {{ grace: PT0.3S }}\n{file}"));
    let mut client = Client::connect(proxy.address);
    client.send(request("GET", "/", &[], b""));
    origin.until_state(0, State::Whole);
    proxy.program().signal("TERM");
    assert_eq!(client.answer().status, 503);
    origin.until_state(0, State::Left);
    assert_eq!(super::recipe::told(&audit, 0)["code"], "System.Cancelled");
    assert_ne!(proxy.exit().code(), Some(0), "something was cut");
    assert_eq!(audit.count(), 1);
}

#[test]
fn a_second_signal_stops_at_once() {
    let origin = Origin::always(Turn::Hang);
    let mut proxy = Proxy::before(&[("billing", origin.address)], ROUTES);
    let mut client = Client::connect(proxy.address);
    client.send(request("GET", "/", &[], b""));
    origin.until_state(0, State::Whole);
    proxy.program().signal("TERM");
    until_refused(proxy.address);
    proxy.program().signal("TERM");
    assert!(!proxy.exit().success());
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
