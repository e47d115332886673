//! Reloads while requests run, and very many of them: no client notices, each content is applied once, and
//! nothing leaks.

use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tokio::time::Instant;

use super::{Held, Over, say, size};
use crate::support::client::{Client, ask, get, request};
use crate::support::origin::{Origin, answer};
use crate::support::program::{Proxy, configuration};
use crate::support::watched::{PATIENCE, pause};

/// A configuration that carries its number. Every other one has an additional listener.
fn generation(origin: SocketAddr, number: usize) -> String {
    let route = format!(
        r#"
  - name: all
    match: {{ pathPrefix: / }}
    call:
      provider: mwl:provider.call/mwl-proxy/http/v1
      with: {{ upstream: billing, headers: {{ x-generation: "{number}" }} }}
    middleware:
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry: {{ with: {{ policies: [{{ match: {{ codes: [Provider.Call.*] }}, attempts: 3 }}] }} }}
        onFailure: {{ with: {{ delay: "{{{{ middleware.result.details.retryAfter }}}}" }} }}
"#
    );
    let file = configuration(&[("billing", origin)], &route);
    let file = file.replacen("\"] }", "\"], keepAlive: PT0.5S }", 1);
    if number.is_multiple_of(2) {
        file
    } else {
        file.replacen("[{", "[{ address: '[::1]:0' }, {", 1)
    }
}

/// Answers with the generation in the request. For the path `/gap`, only the second attempt succeeds, after a while.
fn upstream(gap: u64) -> Origin {
    let seen = Mutex::new(HashSet::new());
    Origin::by(move |head, _| {
        let fresh = || {
            let id = head.field("x-request-id").unwrap().to_owned();
            seen.lock().unwrap().insert(id)
        };
        if head.line.contains("/gap") && fresh() {
            return answer(503, &[("Retry-After", &gap.to_string())], "");
        }
        answer(200, &[("x-generation", head.field("x-generation").unwrap())], "")
    })
}

/// A proxy, and how many generations it must have applied and refused so far.
struct Scene {
    proxy: Proxy,
    origin: Origin,
    number: usize,
    applied: u64,
    refused: u64,
}

impl Scene {
    fn new(gap: u64) -> Self {
        let origin = upstream(gap);
        let proxy = Proxy::start(&generation(origin.address, 0));
        Self { proxy, origin, number: 0, applied: 0, refused: 0 }
    }

    fn next(&mut self) -> String {
        self.number += 1;
        self.applied += 1;
        generation(self.origin.address, self.number)
    }

    fn reload(&self) -> u16 {
        ask(self.proxy.admin, request("POST", "/reload", &[], b"")).status
    }

    /// Makes one reload, each time in a different way, and waits for it.
    fn step(&mut self, turn: usize) {
        let path = self.proxy.directory().path("proxy.yaml");
        match turn % 6 {
            0 => {
                let file = self.next();
                self.proxy.rewrite(&file);
                assert_eq!(self.reload(), 200);
            }
            1 => {
                self.proxy.rewrite(&format!("surprise: {turn}\n"));
                assert_eq!(self.reload(), 422);
                // If the watcher refused it first, an explicit reload is told so again.
                let refused = self.counted("refused");
                assert!(refused == self.refused + 1 || refused == self.refused + 2, "{refused}");
                self.refused = refused;
            }
            2 => {
                let file = self.next();
                self.proxy.rewrite(&file);
            }
            3 => {
                let file = self.next();
                self.proxy.rewrite(&file);
                self.proxy.program().signal("HUP");
            }
            4 => {
                let file = self.next();
                let (first, second) = file.split_at(file.len() / 2);
                let mut writer = fs::File::create(&path).unwrap();
                writer.write_all(first.as_bytes()).unwrap();
                pause(30);
                writer.write_all(second.as_bytes()).unwrap();
            }
            _ => {
                fs::write(&path, "").unwrap();
                self.refused += 1;
            }
        }
        self.until_done();
    }

    fn counted(&self, outcome: &str) -> u64 {
        self.proxy.metric("mwl_config_reloads_total", &[("outcome", outcome)])
    }

    fn until_done(&self) {
        let begun = Instant::now();
        loop {
            let found = (self.counted("applied"), self.counted("refused"));
            if found == (self.applied, self.refused) {
                return;
            }
            let (applied, refused) = (self.applied, self.refused);
            assert!(found.0 <= applied && found.1 <= refused, "{found:?}: applied twice");
            assert!(
                begun.elapsed() < PATIENCE,
                "{found:?} of {applied} applied, {refused} refused"
            );
            pause(10);
        }
    }

    fn served(&self) -> usize {
        let got = get(self.proxy.address, "/");
        assert_eq!(got.status, 200);
        got.field("x-generation").unwrap().parse().unwrap()
    }
}

/// Sends `rate` requests per second on one connection until `done`.
fn load(address: SocketAddr, rate: u32, done: &AtomicBool, count: &AtomicU64) {
    let mut client = Client::connect(address);
    let (begun, every) = (Instant::now(), Duration::from_secs(1) / rate);
    for number in 1.. {
        if done.load(Ordering::Relaxed) {
            return;
        }
        let got = client.ask(request("POST", "/", &[], b"some body"));
        assert_eq!(got.status, 200, "{}", got.text());
        count.fetch_add(1, Ordering::Relaxed);
        let due = every * number;
        pause(u64::try_from(due.saturating_sub(begun.elapsed()).as_millis()).unwrap());
    }
}

/// Sends requests one after the other, each of which waits in a gap.
fn gaps(address: SocketAddr, done: &AtomicBool) -> usize {
    let mut client = Client::connect(address);
    let mut count = 0;
    while !done.load(Ordering::Relaxed) {
        let id = format!("gap-{count}");
        let got = client.ask(request("POST", "/gap", &[("X-Request-Id", &id)], b"some body"));
        assert_eq!(got.status, 200, "{}", got.text());
        count += 1;
    }
    count
}

#[test]
fn reloads_under_load_cost_no_request() {
    let (reloads, rate, gap) = size((12, 40, 1), (200, 100, 5));
    let mut scene = Scene::new(gap);
    // Allocate everything that is made only once before counting.
    for turn in 0..6 {
        scene.step(turn);
    }
    get(scene.proxy.address, "/");
    pause(700);
    let before = Held::by(&scene.proxy);
    let address = scene.proxy.address;
    let (done, count, begun) = (AtomicBool::new(false), AtomicU64::new(0), Instant::now());
    let waited = thread::scope(|scope| {
        for _ in 0..5 {
            scope.spawn(|| load(address, rate, &done, &count));
        }
        let waiting = scope.spawn(|| gaps(address, &done));
        let over = Over(&done);
        for turn in 0..reloads {
            scene.step(turn);
            // Two hundred of them are spread over a minute.
            let due = Duration::from_millis(300) * u32::try_from(turn).unwrap();
            pause(u64::try_from(due.saturating_sub(begun.elapsed()).as_millis()).unwrap());
        }
        drop(over);
        waiting.join().unwrap()
    });
    let took = begun.elapsed().as_secs_f64();
    assert!(waited >= 1);
    if !scene.number.is_multiple_of(2) {
        // As at the beginning, without the second listener.
        scene.step(0);
    }
    assert_eq!(scene.served(), scene.number);
    scene.until_done();
    let after = before.until_back(&scene.proxy);
    let (requests, applied, refused) = (count.into_inner(), scene.applied, scene.refused);
    assert_eq!(
        scene.proxy.metric("mwl_requests_total", &[("status", "200")]),
        requests + waited as u64 + 2,
        "counters are not reset"
    );
    assert!(after.memory < before.memory + (16 << 10), "{after:?} after {before:?}");
    say(&format!(
        "{reloads} reloads in {took:.1} s ({applied} applied, {refused} refused) under {requests} requests, \
         {waited} in gaps: no error; before {before:?}, after {after:?}"
    ));
}

#[test]
fn a_thousand_reloads_leave_nothing_behind() {
    let (first, last): (usize, usize) = size((20, 60), (200, 1000));
    let mut scene = Scene::new(1);
    let mut held = Vec::new();
    for turn in 1..=last {
        let file = scene.next();
        scene.proxy.rewrite(&file);
        assert_eq!(scene.reload(), 200);
        if turn.is_multiple_of(first) {
            assert_eq!(scene.served(), scene.number);
            held.push(Held::by(&scene.proxy));
        }
    }
    scene.until_done();
    let (before, after) = (held[0], held[0].until_back(&scene.proxy));
    assert!(after.memory < before.memory + (4 << 10), "{held:?}");
    say(&format!("{last} reloads, held after each {first}: {held:?}"));
}
