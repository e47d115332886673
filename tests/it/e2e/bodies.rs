//! Bodies: replayed completely, bounded, and streamed when nobody needs them twice.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::support::client::{Answer, Client, ask, request};
use crate::support::message::Framing;
use crate::support::origin::{Origin, Port, Turn, answer};
use crate::support::program::Proxy;
use crate::support::stack::retry;

/// A route that makes up to three attempts without waiting.
const RETRYING: &str = concat!(
    "  - name: all\n    match: { pathPrefix: / }\n    upstream: billing\n    middleware:\n",
    retry!("match: { codes: [Provider.Call.*] }, attempts: 3"),
);

fn retrying(origin: &Origin) -> Proxy {
    Proxy::before(&[("billing", origin.address)], RETRYING)
}

/// Random bytes, so that no two places are alike.
fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut random = StdRng::seed_from_u64(seed);
    (0..length).map(|_| random.random()).collect()
}

/// The body in chunks of random sizes.
fn chunked(body: &[u8], random: &mut StdRng) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = body;
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(random.random_range(1..=rest.len().min(9000)));
        bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
        rest = after;
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    bytes
}

/// One of the two hundred uploads.
struct Upload {
    body: Vec<u8>,
    bytes: Vec<u8>,
    /// What its first attempt meets. `None` means a refused connection.
    first: Option<Turn>,
}

fn upload(number: usize) -> Upload {
    let mut random = StdRng::seed_from_u64(number as u64);
    // Half of the lengths are near the limits, where off-by-one mistakes are found.
    let length = match number % 4 {
        0 => random.random_range(0..4),
        1 => 60 * 1024 - random.random_range(0..4),
        _ => random.random_range(0..=60 * 1024),
    };
    let body = noise(length, number as u64);
    let label = number.to_string();
    let path = format!("/{number}/");
    let bytes = if random.random() {
        request("PUT", &path, &[("x-upload", &label)], &body)
    } else {
        let fields = [("x-upload", label.as_str()), ("Transfer-Encoding", "chunked")];
        let head = request("DELETE", &path, &fields, b"");
        [head, chunked(&body, &mut random)].concat()
    };
    let part = random.random_range(0..=length);
    let unavailable = crate::support::origin::bytes(503, &[("Connection", "close")], "not yet");
    let first = match number % 8 {
        0 => None,
        1 => Some(Turn::Reset(0)),
        2 | 3 => Some(Turn::Reset(part)),
        4 => Some(Turn::Close),
        5 | 6 => Some(Turn::Early(part, unavailable)),
        _ => Some(answer(503, &[], "not yet")),
    };
    Upload { body, bytes, first }
}

#[test]
fn two_hundred_uploads_that_fail_once_arrive_whole() {
    let uploads: Vec<Upload> = (0..200).map(upload).collect();
    let firsts: Vec<Option<Turn>> = uploads.iter().map(|upload| upload.first.clone()).collect();
    let runs: Mutex<HashMap<usize, usize>> = Mutex::default();
    let origin = Origin::by(move |head, _| {
        let number: usize = head.field("x-upload").unwrap().parse().unwrap();
        let mut runs = runs.lock().unwrap();
        let run = runs.entry(number).or_default();
        *run += 1;
        let first = firsts[number].clone().filter(|_| *run == 1);
        first.unwrap_or_else(|| answer(200, &[], "stored"))
    });

    // Each upload whose connection is refused has its own upstream, which starts after its first attempt has failed.
    let mut ports: HashMap<usize, Port> = HashMap::new();
    let mut upstreams: Vec<(String, SocketAddr)> = vec![("billing".into(), origin.address)];
    let mut routes = String::new();
    for number in (0..200).filter(|number| uploads[*number].first.is_none()) {
        let port = Port::hold();
        upstreams.push((format!("late-{number}"), port.address));
        ports.insert(number, port);
        write!(
            routes,
            "
  - name: late-{number}
    match: {{ pathPrefix: /{number} }}
    upstream: late-{number}
    middleware:
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry:
          with:
            policies:
              - match: {{ codes: [Provider.Call.Http.ConnectionFailed] }}
                attempts: 5000
                backoff: {{ initial: PT0.01S }}
"
        )
        .unwrap();
    }
    let named: Vec<(&str, SocketAddr)> =
        upstreams.iter().map(|(name, address)| (name.as_str(), *address)).collect();
    let proxy = Arc::new(Proxy::before(&named, &(routes + RETRYING)));
    let stored = |answer: &Answer| assert_eq!((answer.status, answer.text()), (200, "stored"));

    // These uploads run one after another; the others come from eight clients at once.
    for (number, port) in ports {
        let mut client = Client::connect(proxy.address);
        client.send(&uploads[number].bytes);
        let route = format!("late-{number}");
        proxy.until_metric("mwl_retries_total", &[("route", &route)], 1);
        let late = port.listen(|_, _| answer(200, &[], "stored"));
        stored(&client.answer());
        let seen = late.seen();
        assert_eq!(seen.len(), 1);
        assert!(seen[0].body == uploads[number].body, "upload {number} did not arrive whole");
    }
    let others: Vec<usize> = (0..200).filter(|n| uploads[*n].first.is_some()).collect();
    thread::scope(|scope| {
        for worker in 0..8 {
            let (uploads, others, proxy) = (&uploads, &others, &proxy);
            scope.spawn(move || {
                let mut client = Client::connect(proxy.address);
                for number in others.iter().skip(worker).step_by(8) {
                    stored(&client.ask(&uploads[*number].bytes));
                }
            });
        }
    });
    let seen = origin.seen();
    for number in others {
        let label = number.to_string();
        let ours = |seen: &&_| {
            let seen: &crate::support::origin::Seen = seen;
            seen.head.field("x-upload") == Some(&label)
        };
        let attempts: Vec<_> = seen.iter().filter(ours).collect();
        assert_eq!(attempts.len(), 2, "upload {number} fails once");
        let body = &uploads[number].body;
        assert!(attempts[1].body == *body, "upload {number} did not arrive whole");
        assert!(body.starts_with(&attempts[0].body), "upload {number} began as something else");
    }
}

#[test]
fn a_body_of_the_limit_is_replayed_and_one_byte_more_is_not() {
    let limit = 64 * 1024;
    let script = [
        answer(503, &[], "first"),
        answer(200, &[], "second"),
        answer(503, &[("x-own", "1")], "only"),
    ];
    let origin = Origin::script(script);
    let proxy = retrying(&origin);

    let body = noise(limit, 1);
    let got = ask(proxy.address, request("PUT", "/", &[], &body));
    assert_eq!((got.status, got.text()), (200, "second"));
    let seen = origin.seen();
    assert!(seen.len() == 2 && seen.iter().all(|seen| seen.body == body));
    assert_eq!(proxy.metric("mwl_retries_suppressed_total", &[("route", "all")]), 0);

    let body = noise(limit + 1, 2);
    let got = ask(proxy.address, request("PUT", "/", &[], &body));
    assert_eq!((got.status, got.text(), got.field("x-own")), (503, "only", Some("1")));
    let seen = origin.seen();
    assert!(seen.len() == 3 && seen[2].body == body, "sent once, and whole");
    let labels = [("route", "all"), ("reason", "bodyNotReplayable")];
    assert_eq!(proxy.metric("mwl_retries_suppressed_total", &labels), 1);
}

#[test]
fn a_route_sets_its_own_replay_limit() {
    let origin = Origin::always(answer(503, &[], "no"));
    let routes = format!("{RETRYING}    buffer: {{ replay: 1KiB }}\n");
    let proxy = Proxy::before(&[("billing", origin.address)], &routes);
    assert_eq!(ask(proxy.address, request("PUT", "/", &[], &noise(1024, 1))).status, 503);
    assert_eq!(origin.count(), 3);
    assert_eq!(ask(proxy.address, request("PUT", "/", &[], &noise(1025, 1))).status, 503);
    assert_eq!(origin.count(), 4);
}

#[test]
fn a_chunked_body_is_replayed_with_one_framing() {
    let origin = Origin::script([answer(500, &[], ""), answer(200, &[], "")]);
    let proxy = retrying(&origin);
    let alphabet = "abcdefghijklmnopqrstuvwxyz";
    let sent = format!(
        "PUT / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n1a\r\n{alphabet}\r\n0\r\n\r\n"
    );
    assert_eq!(ask(proxy.address, sent).status, 200);
    let seen = origin.seen();
    assert_eq!(seen.len(), 2);
    for attempt in seen {
        assert_eq!(attempt.body, alphabet.as_bytes());
        assert!(matches!(attempt.framing, Some(Framing::Chunked | Framing::Length(26))));
    }
}

#[test]
fn an_empty_body_stays_a_valid_empty_body() {
    let script = (0..6).map(|n| answer(if n % 2 == 0 { 503 } else { 200 }, &[], ""));
    let origin = Origin::script(script);
    let proxy = retrying(&origin);
    let mut client = Client::connect(proxy.address);
    for sent in [
        "PUT / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "PUT / HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: t\r\n\r\n",
    ] {
        assert_eq!(client.ask(sent).status, 200, "{sent}");
    }
    let seen = origin.seen();
    assert_eq!(seen.len(), 6);
    assert!(seen.iter().all(|seen| seen.length == 0));
    for get in &seen[4..] {
        assert_eq!(get.framing, None, "no framing is invented for a GET: {:?}", get.head);
    }
}

#[test]
fn nothing_of_a_discarded_answer_reaches_the_client() {
    let old = "x".repeat(20_000);
    let origin = Origin::script([answer(429, &[("x-old", "1")], &old), answer(200, &[], "new")]);
    let proxy = retrying(&origin);
    let mut client = Client::connect(proxy.address);
    let got = client.ask(request("GET", "/", &[], b""));
    assert_eq!((got.status, got.text(), got.field("x-old")), (200, "new", None));
    let connections: Vec<usize> = origin.seen().iter().map(|seen| seen.connection).collect();
    assert!(connections == [0, 0] || connections == [0, 1], "{connections:?}");
}

/// Once the client has the answer's head, it cannot be taken back. So there is no retry, the client sees that
/// the answer broke off, and the log says why.
#[test]
fn an_answer_that_breaks_off_is_said_in_the_log_and_not_tried_again() {
    let length = "HTTP/1.1 200 X\r\nConnection: close\r\nContent-Length: 100\r\n\r\n";
    let chunks =
        "HTTP/1.1 200 X\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
    let length = format!("{length}{}", "x".repeat(40));
    for (said, begun) in [(length.as_str(), 40), (chunks, 5)] {
        let origin = Origin::always(Turn::Say(said.as_bytes().to_vec()));
        let proxy = retrying(&origin);
        let mut client = Client::connect(proxy.address);
        client.send(request("GET", "/", &[], b""));
        let head = client.head();
        assert!(head.line.starts_with("HTTP/1.1 200 "), "{}", head.line);
        assert!(client.body(head).is_none(), "{begun} bytes of an answer that is not whole");
        let said = proxy.program().line("the broken answer", |line| {
            let line = serde_json::from_str::<Value>(line).ok()?;
            (line["code"] == "Proxy.ResponseTruncated").then_some(line)
        });
        assert_eq!(said["message"], "The response broke off after its head.");
        let named = ["route", "upstream", "method", "path", "status", "bytes", "untold"];
        let wanted = json!(["all", "billing", "GET", "/", 200, begun, 0]);
        assert_eq!(json!(named.map(|name| &said[name])), wanted);
        assert_eq!(said["endpoint"], origin.address.to_string());
        assert!(said["execution"].is_string() && said["error"].is_string(), "{said}");
        assert_eq!(origin.count(), 1);
    }
}

#[test]
fn an_answer_that_comes_before_the_body_has_gone_does_not_cut_the_next_attempt() {
    let body = noise(40 * 1024, 7);
    let early = crate::support::origin::bytes(503, &[("Connection", "close")], "early");
    let origin = Origin::script([Turn::Early(1024, early), answer(200, &[], "late")]);
    let proxy = retrying(&origin);
    let mut client = Client::connect(proxy.address);
    let bytes = request("PUT", "/", &[], &body);
    let (first, second) = bytes.split_at(2048);
    client.send(first);
    // The second attempt begins while the client has only sent half of the body.
    origin.until_count(2);
    client.send(second);
    let got = client.answer();
    assert_eq!((got.status, got.text()), (200, "late"));
    assert!(origin.seen()[1].body == body);
}

#[test]
fn a_route_that_runs_nothing_again_keeps_nothing() {
    const LENGTH: u64 = 200 << 20;
    let origin = Origin::always(answer(200, &[], "stored"));
    let routes = "  - { name: all, match: { pathPrefix: / }, upstream: billing }\n";
    let proxy = Proxy::before(&[("billing", origin.address)], routes);
    let mut client = Client::connect(proxy.address);
    client.send(format!("PUT / HTTP/1.1\r\nHost: t\r\nContent-Length: {LENGTH}\r\n\r\n"));
    let piece = noise(1 << 20, 3);
    for _ in 0..LENGTH >> 20 {
        client.send(&piece);
    }
    assert_eq!(client.answer().text(), "stored");
    assert_eq!(origin.seen()[0].length, LENGTH);
    let peak = proxy.program().memory("VmHWM:");
    assert!(peak < 40 << 10, "at most {peak} KiB were resident");
}
