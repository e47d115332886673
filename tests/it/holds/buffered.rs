//! Many large bodies that an expression reads, at once: memory, and the wait of other clients.

use std::fmt::Write;
use std::thread;
use std::time::Duration;

use tokio::time::Instant;

use super::size;
use crate::support::client::{Client, request};
use crate::support::origin::{Origin, Turn, bytes};
use crate::support::program::{Proxy, configuration};
use crate::support::watched::{Gate, pause};

const ROUTES: &str = "
  - name: reads
    match: { pathPrefix: /reads }
    upstream: u
    buffer: { request: 2MiB }
    output: \"{{ frame.input.body.a }}\"
  - name: plain
    match: { pathPrefix: / }
    upstream: u
";

/// How long a plain request of another client may take, but for one in a hundred.
const WAIT: Duration = Duration::from_millis(20);

/// `{"a":1,"b":[[[…120 deep…]],…]}` of one MiB.
fn nested() -> Vec<u8> {
    let deep = format!("{}{}", "[".repeat(120), "]".repeat(120));
    let count = (1 << 20) / (deep.len() + 1);
    format!(r#"{{"a":1,"b":[{}]}}"#, vec![deep; count].join(",")).into_bytes()
}

/// Asks for the plain route again and again for this long. Returns how long each answer took, the shortest first.
fn plain(proxy: &Proxy, lasts: Duration) -> Vec<Duration> {
    let mut client = Client::connect(proxy.address);
    let begun = Instant::now();
    let mut took = Vec::new();
    while begun.elapsed() < lasts {
        let asked = Instant::now();
        assert_eq!(client.ask(request("GET", "/", &[], b"")).status, 200);
        took.push(asked.elapsed());
        pause(1);
    }
    took.sort_unstable();
    took
}

#[expect(clippy::print_stderr, reason = "the figures of an endurance run")]
#[test]
fn many_large_bodies_take_no_more_than_they_may_and_no_time_of_others() {
    // Clients, the limit, and what the program may take beside it: a small run has as many threads. In MiB.
    let (count, limit, otherwise) = size((50, 32, 160), (200, 128, 72));
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::by(move |head, _| {
        let answer = bytes(200, &[], "ok");
        if head.line.contains("/reads") {
            Turn::Gated(held.clone(), answer)
        } else {
            Turn::Say(answer)
        }
    });
    let mut file = configuration(&[("u", origin.address)], ROUTES);
    writeln!(file, "limits: {{ bufferedBytes: {limit}MiB }}").unwrap();
    let proxy = Proxy::start(&file);
    let asked = request("POST", "/reads", &[("content-type", "application/json")], &nested());
    let (address, asked) = (proxy.address, &asked);
    let (took, statuses) = thread::scope(|scope| {
        let clients: Vec<_> = (0..count)
            .map(|_| {
                scope.spawn(move || {
                    let mut client = Client::connect(address);
                    client.send(asked);
                    // A refusal may be lost if the client is still sending.
                    client.answer_or_end().map_or(503, |answer| answer.status)
                })
            })
            .collect();
        let took = plain(&proxy, Duration::from_secs(3));
        gate.open();
        let statuses: Vec<u16> = clients.into_iter().map(|client| client.join().unwrap()).collect();
        (took, statuses)
    });
    let with = |status| statuses.iter().filter(|other| **other == status).count() as u64;
    let (served, refused) = (with(200), with(503));
    let (peak, p99) = (proxy.program().memory("VmHWM:") >> 10, took[took.len() * 99 / 100]);
    eprintln!("{served} served, {refused} refused, {peak} MiB at most, others' p99 {p99:?}");
    assert_eq!(served + refused, count);
    assert!(served > 0);
    assert_eq!(proxy.metric("mwl_requests_refused_total", &[("reason", "bufferedBytes")]), refused);
    assert!(peak < limit + otherwise, "{peak} MiB");
    assert_eq!(proxy.metric("mwl_buffered_bytes", &[]), 0);
    let lines = proxy.program().lines();
    let told = lines.iter().filter(|line| line.contains("found no room in limits.bufferedBytes"));
    assert!((1..=8).contains(&told.count()), "{lines:#?}");
    // A build for tests parses too slowly to say anything about time.
    assert!(cfg!(debug_assertions) || p99 < WAIT, "{p99:?}");
}
