//! A client's chunks, an upstream's failures and the retries between them, in any combination: the upstream
//! stores the client's exact bytes once, or reports that it did not.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::{size, spoken};
use crate::support::peer::{ALL, Act, CASE, DIGEST, Peer, Protocol, digest};
use crate::support::proxy::Proxy;
use crate::support::user::{Ask, Framing, Got, User, piecewise};

/// How much of a body the route keeps.
const LIMIT: usize = 2000;

/// Lengths near the limits.
const EDGES: [usize; 7] = [0, 1, LIMIT - 1, LIMIT, LIMIT + 1, 2 * LIMIT, 40 * LIMIT];

/// Repeats every failure, as long as the request can be sent again.
const RETRYING: &str = "    middleware:
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry: { with: { policies: [ { match: { codes: [Provider.Call.Http.*] }, attempts: 50 } ] } }
";

/// A client and an upstream.
#[derive(Clone, Debug)]
struct Script {
    client: Protocol,
    /// The first byte of the body, whose bytes count up.
    seed: u8,
    length: usize,
    /// Where the client cuts its body, and the pause after each piece in milliseconds.
    cuts: Vec<(usize, u64)>,
    /// Whether it declares the length of its body.
    declared: bool,
    /// What happens to the attempts before the one that is stored.
    acts: Vec<Act>,
}

impl Script {
    fn body(&self) -> Vec<u8> {
        (self.seed..251).chain(0..=255).cycle().take(self.length).collect()
    }

    /// The body in non-empty pieces, each with the pause after it.
    fn pieces(&self) -> Vec<(Bytes, Duration)> {
        let body = Bytes::from(self.body());
        let mut cuts = self.cuts.clone();
        cuts.push((self.length, 0));
        cuts.sort_unstable();
        let mut from = 0;
        let mut pieces = Vec::new();
        for (to, pause) in cuts {
            let to = to.min(self.length);
            if to > from {
                pieces.push((body.slice(from..to), Duration::from_millis(pause)));
                from = to;
            }
        }
        pieces
    }

    /// The first attempt that takes more of the body than is kept: no other can follow it.
    fn last_chance(&self) -> Option<&Act> {
        self.acts.iter().find(|act| match act {
            Act::Say(taken, _) | Act::Break(taken) => (*taken).min(self.length) > LIMIT,
            _ => false,
        })
    }
}

fn script() -> impl Strategy<Value = Script> {
    let protocol = prop_oneof![Just(Protocol::One), Just(Protocol::Two)];
    let length = prop_oneof![prop::sample::select(&EDGES[..]), 0..2 * LIMIT];
    let taken =
        prop_oneof![Just(0), Just(1), Just(LIMIT), Just(LIMIT + 1), Just(ALL), 0..3 * LIMIT];
    let act = (taken, any::<bool>())
        .prop_map(|(taken, say)| if say { Act::Say(taken, 503) } else { Act::Break(taken) });
    let cut = (0..3 * LIMIT, prop_oneof![4 => Just(0_u64), 1 => 1..4_u64]);
    let cuts = prop::collection::vec(cut, 0..8);
    (protocol, any::<u8>(), length, cuts, any::<bool>(), prop::collection::vec(act, 0..4)).prop_map(
        |(client, seed, length, cuts, declared, acts)| Script {
            client,
            seed,
            length,
            cuts,
            declared,
            acts,
        },
    )
}

/// A proxy with two endpoints, one of which refuses every connection.
struct Scene {
    peer: Peer,
    proxy: Proxy,
    scripts: Arc<Mutex<Vec<Vec<Act>>>>,
    _refusing: std::net::TcpListener,
}

impl Scene {
    async fn new(upstream: Protocol) -> Self {
        let scripts: Arc<Mutex<Vec<Vec<Act>>>> = Arc::default();
        let played = Arc::clone(&scripts);
        let peer = Peer::run(upstream, move |case, number| {
            let case: usize = case.parse().unwrap();
            played.lock().unwrap()[case].get(number).copied().unwrap_or(Act::Store)
        })
        .await;
        // Bound but not listening, so that nobody else gets the port.
        let refusing = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let refusing = refusing.unwrap();
        refusing.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        let refusing = std::net::TcpListener::from(refusing);
        let refused = refusing.local_addr().unwrap();
        let proxy = Proxy::start(&format!(
            "upstreams: {{ u: {{ endpoints: ['http://{refused}', 'http://{}']{} }} }}
routes:
  - name: r
    match: {{ pathPrefix: / }}
    upstream: u
    buffer: {{ replay: {LIMIT}B }}
{RETRYING}",
            peer.address,
            spoken(upstream),
        ));
        Self { peer, proxy, scripts, _refusing: refusing }
    }

    async fn play(&self, script: Script) -> Result<(), TestCaseError> {
        let case = {
            let mut scripts = self.scripts.lock().unwrap();
            scripts.push(script.acts.clone());
            scripts.len() - 1
        };
        let case = case.to_string();
        let got = self.exchange(&script, &case).await;
        let seen = self.peer.taken(&case);
        let body = script.body();
        for arrival in &seen {
            prop_assert!(body.starts_with(&arrival.body), "an attempt began as something else");
            prop_assert!(!arrival.whole || arrival.body == body, "whole, and short");
        }
        let stored = seen.iter().filter(|arrival| arrival.act == Act::Store && arrival.whole);
        let stored = stored.count();
        let Some(got) = got else {
            // The connection closed during an upload that nobody wanted any more.
            prop_assert!(script.length > LIMIT && stored == 0);
            return Ok(());
        };
        if got.status == 200 {
            prop_assert!(script.last_chance().is_none(), "a body that was not kept was sent again");
            prop_assert_eq!((stored, got.field(DIGEST)), (1, &*digest(&body)));
            prop_assert_eq!(seen.len(), script.acts.len() + 1, "{:?}", seen);
        } else {
            let kept = script.length <= LIMIT || script.acts.is_empty();
            prop_assert!(
                !kept,
                "a body that was kept, or that nobody took, was not sent again: {:?}",
                got
            );
            prop_assert_eq!(stored, 0);
            let last = seen.last().map(|arrival| arrival.act);
            let wanted = match last {
                Some(Act::Say(_, status)) => status,
                _ => 502,
            };
            prop_assert_eq!(got.status, wanted);
        }
        Ok(())
    }

    async fn exchange(&self, script: &Script, case: &str) -> Option<Got> {
        let framing = if script.declared { Framing::Length(script.length) } else { Framing::Open };
        let fields = vec![(CASE, case.to_owned())];
        let ask = Ask { method: Method::PUT, path: "/".to_owned(), fields, framing };
        let mut user = User::connect(self.proxy.address, script.client).await;
        let (pieces, upload) = piecewise();
        let send = async move {
            for (piece, pause) in script.pieces() {
                if pieces.send(piece).await.is_err() {
                    return;
                }
                if !pause.is_zero() {
                    tokio::time::sleep(pause).await;
                }
            }
        };
        let (response, ()) = tokio::join!(user.send(&ask, upload), send);
        Some(Got::read(response.ok()?).await)
    }
}

fn any_interleaving(upstream: Protocol) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let scene = runtime.block_on(Scene::new(upstream));
    let config = Config { cases: size(150, 5000), failure_persistence: None, ..Config::default() };
    let played =
        TestRunner::new(config).run(&script(), |script| runtime.block_on(scene.play(script)));
    if let Err(error) = played {
        panic!("{error}");
    }
    let suppressed = r#"mwl_retries_suppressed_total{reason="bodyNotReplayable",route="r"}"#;
    assert!(scene.proxy.metric(suppressed) > 0, "no script met the limit");
}

#[test]
fn the_exact_bytes_arrive_once_at_an_upstream_of_http_2() {
    any_interleaving(Protocol::Two);
}

#[test]
fn the_exact_bytes_arrive_once_at_an_upstream_of_http_1() {
    any_interleaving(Protocol::One);
}
