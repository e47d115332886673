//! Minutes of everything at once: as much load as there is room for, upstreams that fail in every way, slow
//! clients, clients that leave, reloads. The memory stays where it was.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::time::Instant;

use super::chaos::Chaos;
use super::{Held, Over, say, size};
use crate::support::client::{Client, ask, request};
use crate::support::program::{Proxy, configuration};
use crate::support::stack::{audit, retry, timeout};
use crate::support::watched::pause;

fn file(billing: &Chaos, audit: &Chaos, number: usize) -> String {
    let routes = concat!(
        "  - name: plain\n    match: { pathPrefix: /plain }\n    upstream: billing\n    middleware:\n",
        timeout!("PT0.5S"),
        "  - name: pay\n    upstream: billing\n    middleware:\n",
        audit!("audit", "/audit", "{'execution': execution.id, 'result': middleware.result}"),
        retry!("match: { codes: ['*'] }, attempts: 3, backoff: { initial: PT0.01S }"),
        timeout!("PT0.2S"),
    );
    let upstreams = [("billing", billing.address), ("audit", audit.address)];
    let file = configuration(&upstreams, routes).replacen("\"] }", "\"], keepAlive: PT1S }", 1);
    format!("environment: generation-{number}\n{file}")
}

/// What the clients do until it is over.
struct Crowd {
    address: SocketAddr,
    over: AtomicBool,
    answers: AtomicU64,
}

impl Crowd {
    fn goes_on(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }

    /// As fast as it can, on connections that are kept.
    fn busy(&self, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        let mut client = Client::connect(self.address);
        while self.goes_on() {
            let body = vec![b'b'; random.random_range(0..8192)];
            let path = if random.random() { "/plain" } else { "/pay" };
            client.send(request("POST", path, &[], &body));
            match client.whole_answer_or_end() {
                Some(_) => {
                    self.answers.fetch_add(1, Ordering::Relaxed);
                }
                None => client = Client::connect(self.address),
            }
        }
    }

    /// A byte now and then, out and in; or it is gone in the middle.
    fn slow(&self, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        while self.goes_on() {
            let Ok(mut stream) = TcpStream::connect(self.address) else { continue };
            stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            let request = request("POST", "/pay", &[], &[b'b'; 64]);
            let cut = random.random_range(0..request.len() * 2);
            for byte in request.iter().take(cut) {
                // The proxy may have had enough of it.
                if !self.goes_on() || stream.write_all(&[*byte]).is_err() {
                    break;
                }
                pause(2);
            }
            let mut some = [0; 16];
            while self.goes_on() && stream.read(&mut some).is_ok_and(|size| size > 0) {
                pause(1);
            }
        }
    }
}

#[test]
fn the_memory_stays_where_it_was() {
    let seconds = size(3, 300);
    let (billing, audit) = (Chaos::start(7), Chaos::sink());
    let proxy = Proxy::start(&file(&billing, &audit, 0));
    let crowd =
        Crowd { address: proxy.address, over: AtomicBool::new(false), answers: AtomicU64::new(0) };
    let mut held = Vec::new();
    let begun = Instant::now();
    thread::scope(|scope| {
        let crowd = &crowd;
        for seed in 0..24 {
            scope.spawn(move || crowd.busy(seed));
        }
        for seed in 100..108 {
            scope.spawn(move || crowd.slow(seed));
        }
        let over = Over(&crowd.over);
        for second in 1..=seconds {
            pause(1000);
            proxy.rewrite(&file(&billing, &audit, second));
            assert_eq!(ask(proxy.admin, request("POST", "/reload", &[], b"")).status, 200);
            held.push(Held::by(&proxy));
        }
        drop(over);
    });
    let took = begun.elapsed().as_secs_f64();
    let most = |part: &[Held]| part.iter().map(|held| held.memory).max().unwrap();
    let third = held.len() / 3;
    let (early, late) = (most(&held[third..third * 2]), most(&held[third * 2..]));
    let answers = crowd.answers.load(Ordering::Relaxed);
    say(&format!(
        "{took:.0} s: {answers} answers ({:.0}/s), {} attempts, {} audits; resident at most {} KiB in the \
         first third, {early} in the second, {late} in the last",
        f64::from(u32::try_from(answers).unwrap()) / took,
        billing.served(),
        audit.served(),
        most(&held[..third]),
    ));
    assert!(answers > 0 && audit.served() > 0);
    assert!(late <= early + early / 10 + (2 << 10), "{held:?}");
}
