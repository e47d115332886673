//! Clients that leave at any moment, before upstreams that fail in every way: an audit for each execution
//! whose stack was established, and one only.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use socket2::SockRef;
use tokio::time::Instant;

use super::chaos::Chaos;
use super::{say, size};
use crate::support::client::{Client, request};
use crate::support::origin::{Origin, State, Turn};
use crate::support::program::Proxy;
use crate::support::stack::{audit, retry, timeout};
use crate::support::watched::{PATIENCE, pause};

const ROUTE: &str = concat!(
    "  - name: pay\n    upstream: billing\n    middleware:\n",
    audit!("audit", "/audit", "execution.id"),
    retry!("match: { codes: ['*'] }, attempts: 3, backoff: { initial: PT0.01S }"),
    timeout!("PT0.2S"),
);

#[test]
fn every_execution_is_audited_once_whoever_leaves() {
    let count = size(300, 10_000);
    let billing = Chaos::start(17);
    let audit = Origin::always(Turn::Say(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec()));
    let upstreams = [("billing", billing.address), ("audit", audit.address)];
    let mut proxy = Proxy::before(&upstreams, ROUTE);
    let (next, answered) = (AtomicU64::new(0), Mutex::new(BTreeSet::new()));
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let mut kept = None;
                while let Some(number) = take(&next, count) {
                    let mut random = StdRng::seed_from_u64(number);
                    let (id, request) = charge(number, &mut random);
                    if random.random_ratio(1, 3) {
                        leave(proxy.address, &request, &mut random);
                    } else if asked(&mut kept, proxy.address, &request) {
                        answered.lock().unwrap().insert(id);
                    }
                }
            });
        }
    });
    let established = |proxy: &Proxy| proxy.metric("mwl_requests_total", &[("route", "pay")]);
    let begun = Instant::now();
    while audit.count() as u64 != established(&proxy) {
        let (audits, executions) = (audit.count(), established(&proxy));
        assert!(begun.elapsed() < PATIENCE, "{audits} audits of {executions} executions");
        pause(20);
    }
    let executions = established(&proxy);
    proxy.stop();
    let audits = audit.seen();
    assert_eq!(audits.len() as u64, executions, "none came late");
    assert!(audits.iter().all(|audit| audit.state == State::Served));
    let ids: BTreeSet<String> =
        audits.iter().map(|audit| serde_json::from_slice(&audit.body).unwrap()).collect();
    assert_eq!(ids.len(), audits.len(), "an execution was audited twice");
    let answered = answered.into_inner().unwrap();
    assert!(answered.is_subset(&ids), "an answer without an audit");
    let (got, attempts) = (answered.len(), billing.served());
    assert!(ids.len() > got && got > ids.len() / 2, "{got} answers to {} executions", ids.len());
    say(&format!(
        "{count} requests: {executions} executions, {} audits, {got} answers, {attempts} attempts",
        audits.len()
    ));
}

fn take(next: &AtomicU64, count: u64) -> Option<u64> {
    let number = next.fetch_add(1, Ordering::Relaxed);
    (number < count).then_some(number)
}

/// A request that names its execution.
fn charge(number: u64, random: &mut StdRng) -> (String, Vec<u8>) {
    let id = format!("order-{number}");
    let body = vec![b'b'; random.random_range(0..4096)];
    let request = request("POST", "/pay", &[("X-Request-Id", &id)], &body);
    (id, request)
}

/// Sends a part of the request, or all of it, waits a moment, perhaps reads a little, and is gone.
fn leave(address: SocketAddr, request: &[u8], random: &mut StdRng) {
    let mut stream = TcpStream::connect(address).unwrap();
    let sent =
        if random.random_bool(0.3) { random.random_range(0..request.len()) } else { request.len() };
    // What the proxy no longer takes is not sent.
    stream.write_all(&request[..sent]).ok();
    pause(random.random_range(0..40));
    if random.random_bool(0.3) {
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        // Something, nothing or an end: who leaves does not care.
        let _size = stream.read(&mut [0; 64]).unwrap_or(0);
    }
    if random.random_bool(0.5) {
        SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    }
}

/// Asks on the connection that is kept, or on a new one. Whether a whole answer came.
fn asked(kept: &mut Option<Client>, address: SocketAddr, request: &[u8]) -> bool {
    let mut client = kept.take().unwrap_or_else(|| Client::connect(address));
    client.send(request);
    let Some(whole) = client.whole_answer_or_end() else {
        return false;
    };
    *kept = Some(client);
    whole
}
