//! A client that leaves cancels its request: there is one audit, no upstream keeps working, and no new attempt
//! is made.

use super::recipe::{sink, told};
use crate::support::client::{Client, request};
use crate::support::origin::{Origin, State, Turn, answer};
use crate::support::program::Proxy;
use crate::support::stack::{audit, heeding, retry};

const ROUTE: &str = concat!(
    "  - name: pay\n    match: { pathPrefix: / }\n    upstream: billing\n    middleware:\n",
    audit!("audit", "/audit", "middleware.result"),
    retry!("match: { codes: [Provider.Call.*] }, attempts: 9"),
    heeding!(),
);

fn scene(billing: &Origin) -> (Proxy, Origin) {
    let audit = sink();
    let upstreams = [("billing", billing.address), ("audit", audit.address)];
    (Proxy::before(&upstreams, ROUTE), audit)
}

/// Checks for one audit of a cancellation, one request, and a 499 in the metrics.
fn cancelled_once(mut proxy: Proxy, billing: &Origin, audit: &Origin) {
    let told = told(audit, 0);
    assert_eq!(told["type"], "cancellation");
    assert_eq!(told["code"], "System.Cancelled");
    proxy.until_metric("mwl_requests_total", &[("route", "pay"), ("status", "499")], 1);
    assert_eq!(proxy.metric("mwl_requests_in_flight", &[("route", "pay")]), 0);
    proxy.stop();
    assert_eq!((billing.count(), audit.count()), (1, 1));
}

#[test]
fn in_an_attempt() {
    let billing = Origin::always(Turn::Hang);
    let (proxy, audit) = scene(&billing);
    let mut client = Client::connect(proxy.address);
    client.send(request("POST", "/pay", &[], b"amount=12"));
    billing.until_state(0, State::Whole);
    drop(client);
    billing.until_state(0, State::Left);
    cancelled_once(proxy, &billing, &audit);
}

#[test]
fn in_a_gap() {
    let billing = Origin::always(answer(429, &[("Retry-After", "60")], "later"));
    let (proxy, audit) = scene(&billing);
    let mut client = Client::connect(proxy.address);
    client.send(request("POST", "/pay", &[], b"amount=12"));
    proxy.until_metric("mwl_attempts_total", &[("route", "pay"), ("upstream", "billing")], 1);
    drop(client);
    proxy.until_metric("mwl_retries_suppressed_total", &[("route", "pay")], 1);
    assert_eq!(proxy.metric("mwl_retries_total", &[("route", "pay")]), 0, "none was made");
    cancelled_once(proxy, &billing, &audit);
}

#[test]
fn in_the_middle_of_its_own_body() {
    let billing = Origin::always(answer(200, &[], "never"));
    let (proxy, audit) = scene(&billing);
    let mut client = Client::connect(proxy.address);
    client.send("POST /pay HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\n12345");
    billing.until_count(1);
    client.reset();
    let cut = billing.until_state(0, State::Cut);
    assert!(b"12345".starts_with(&cut.body), "{:?}", cut.body);
    cancelled_once(proxy, &billing, &audit);
}

#[test]
fn while_the_audit_is_being_written() {
    let billing = Origin::always(answer(200, &[], "paid"));
    let gate = crate::support::watched::Gate::default();
    let accepted = b"HTTP/1.1 204 No Content\r\n\r\n".to_vec();
    let audit = Origin::always(Turn::Gated(gate.clone(), accepted));
    let upstreams = [("billing", billing.address), ("audit", audit.address)];
    let mut proxy = Proxy::before(&upstreams, ROUTE);
    let mut client = Client::connect(proxy.address);
    client.send(request("POST", "/pay", &[], b"amount=12"));
    audit.until_state(0, State::Whole);
    drop(client);
    gate.open();
    assert_eq!(told(&audit, 0)["type"], "success", "what was in flight when the audit began");
    proxy.stop();
    assert_eq!((billing.count(), audit.count()), (1, 1), "the audit ran to its end, once");
}

#[test]
fn before_its_head_was_whole() {
    let billing = Origin::always(answer(200, &[], "never"));
    let (mut proxy, audit) = scene(&billing);
    let mut client = Client::connect(proxy.address);
    client.send("POST /pay HTTP/1.1\r\nHost: t\r\nContent-");
    drop(client);
    // When another client has been served, the proxy has processed everything before it.
    assert_eq!(crate::support::client::get(proxy.address, "/").status, 200);
    proxy.stop();
    assert_eq!((billing.count(), audit.count()), (1, 1), "the other client's, and no more");
}
