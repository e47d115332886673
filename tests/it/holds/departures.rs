//! Clients that leave at any moment, before an upstream that does anything: every execution that began is
//! audited once, and nothing is left of any.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::{size, spoken};
use crate::support::peer::{ALL, Act, CASE, Peer, Protocol};
use crate::support::proxy::Proxy;
use crate::support::user::{Ask, Framing, Got, User, piecewise};

/// How many clients there are at once.
const AT_ONCE: usize = 40;
/// How long every body is.
const LENGTH: usize = 600;

/// When a client leaves.
#[derive(Clone, Copy, Debug)]
enum Leave {
    Never,
    /// When the upstream has seen so many of its requests.
    At(usize),
    /// After so long.
    After(Duration),
}

/// One client and what the upstream does with it.
#[derive(Clone, Debug)]
struct Script {
    client: Protocol,
    leave: Leave,
    /// How much of its body it sends.
    sends: usize,
    acts: [Act; 3],
}

impl Script {
    fn random(random: &mut StdRng, clients: &[Protocol]) -> Self {
        let leave = match random.random_range(0..4) {
            0 | 1 => Leave::Never,
            2 => Leave::At(random.random_range(1..=3)),
            _ => Leave::After(Duration::from_millis(random.random_range(0..40))),
        };
        let stays = matches!(leave, Leave::Never);
        let sends = match random.random_range(0..3) {
            0 if !stays => random.random_range(0..LENGTH),
            _ => LENGTH,
        };
        Self {
            client: clients[random.random_range(0..clients.len())],
            leave,
            sends,
            acts: std::array::from_fn(|_| act(random)),
        }
    }
}

fn act(random: &mut StdRng) -> Act {
    let taken = random.random_range(0..=LENGTH);
    match random.random_range(0..8) {
        0 => Act::Store,
        1 => Act::Say(ALL, 503),
        2 => Act::Say(taken, 429),
        3 => Act::Break(taken),
        4 => Act::Half,
        5 => Act::Hang,
        _ => Act::Late(Duration::from_millis(random.random_range(0..30))),
    }
}

/// A cleanup around a Retry around a bound.
const ROUTE: &str = "    middleware:
      - provider: mwl:provider.middleware/mwl/finally/v1
        onAlways:
          with:
            call:
              provider: mwl:provider.call/mwl-proxy/http/v1
              input: \"{{ {'type': middleware.result.type} }}\"
              with: { upstream: audit, method: POST, path: /audit, headers: { x-case: \"{{ execution.id }}\" } }
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry: { with: { policies: [ { match: { codes: ['*'] }, attempts: 3, backoff: { initial: PT0.005S } } ] } }
      - { provider: mwl:provider.middleware/mwl/timeout/v1, onEntry: { with: { duration: PT0.04S } } }
";

async fn departures(clients: &'static [Protocol], upstream: Protocol, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let count = size(400, 10_000);
    let scripts: Arc<Vec<Script>> =
        Arc::new((0..count).map(|_| Script::random(&mut random, clients)).collect());
    let played = Arc::clone(&scripts);
    let peer = Peer::run(upstream, move |case, number| {
        let case: usize = case.parse().unwrap();
        played[case].acts.get(number).copied().unwrap_or(Act::Store)
    })
    .await;
    let audit = Peer::play(Protocol::One, &[]).await;
    let proxy = Proxy::start(&format!(
        "upstreams:
  u: {{ endpoints: ['http://{}']{} }}
  audit: {{ endpoints: ['http://{}'] }}
routes:
  - name: r
    match: {{ pathPrefix: / }}
    upstream: u
{ROUTE}",
        peer.address,
        spoken(upstream),
        audit.address
    ));
    for _ in 0..3 * count {
        peer.go();
    }
    let stage = Arc::new((peer, proxy));
    let room = Arc::new(Semaphore::new(AT_ONCE));
    let mut running = JoinSet::new();
    for case in 0..count {
        let (room, stage) = (Arc::clone(&room), Arc::clone(&stage));
        let script = scripts[case].clone();
        running.spawn(async move {
            let _one = room.acquire().await.unwrap();
            (case, play(&stage.0, &stage.1, case, script).await)
        });
    }
    let mut answered = HashMap::new();
    while let Some(done) = running.join_next().await {
        let (case, got) = done.unwrap();
        if let Some(got) = got {
            answered.insert(case, got);
        }
    }
    let (peer, proxy) = &*stage;
    proxy.until_idle().await;
    audited_once(peer, proxy, &audit, &scripts, &answered);
    assert_eq!(proxy.metric(r#"mwl_requests_in_flight{route="r"}"#), 0);
}

/// What the books say.
fn audited_once(
    peer: &Peer,
    proxy: &Proxy,
    audit: &Peer,
    scripts: &[Script],
    answered: &HashMap<usize, Got>,
) {
    let mut audits: HashMap<usize, serde_json::Value> = HashMap::new();
    for arrival in audit.arrivals() {
        assert!(arrival.whole, "half an audit: {arrival:?}");
        let case: usize = arrival.case.parse().unwrap();
        let told: serde_json::Value = serde_json::from_slice(&arrival.body).unwrap();
        assert!(audits.insert(case, told).is_none(), "{case} was audited twice");
    }
    // An execution that began is one that was counted.
    let begun: u64 = proxy
        .metrics
        .render()
        .lines()
        .filter(|line| line.starts_with("mwl_requests_total{route=\"r\""))
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum();
    assert_eq!(audits.len() as u64, begun, "audits, and executions that began");
    for arrival in peer.arrivals() {
        let case: usize = arrival.case.parse().unwrap();
        assert!(audits.contains_key(&case), "{case} reached the upstream and was not audited");
    }
    let mut cancelled = 0;
    for (case, script) in scripts.iter().enumerate() {
        let told = audits.get(&case).map(|told| told["type"].as_str().unwrap());
        cancelled += usize::from(told == Some("cancellation"));
        if let Some(got) = answered.get(&case) {
            let wanted = if got.status == 200 { &["success"][..] } else { &["error", "timeout"] };
            assert!(
                told.is_some_and(|told| wanted.contains(&told)),
                "{case}: {told:?} for {got:?}"
            );
        } else {
            assert!(!matches!(script.leave, Leave::Never), "{case} stayed and got no answer");
        }
    }
    assert!(cancelled > scripts.len() / 20, "only {cancelled} were cancelled");
}

/// What the client got, where it stayed for it.
async fn play(peer: &Peer, proxy: &Proxy, case: usize, script: Script) -> Option<Got> {
    let case = case.to_string();
    let fields = vec![(CASE, case.clone()), ("x-request-id", case.clone())];
    let framing = Framing::Length(LENGTH);
    let ask = Ask { method: Method::PUT, path: "/".to_owned(), fields, framing };
    let mut user = User::connect(proxy.address, script.client).await;
    let (pieces, upload) = piecewise();
    let exchange = async {
        let send = async {
            let _taken = pieces.send(vec![b'b'; script.sends].into()).await.is_ok();
            if script.sends < LENGTH {
                // The rest never comes: the client leaves first.
                std::future::pending::<()>().await;
            }
            drop(pieces);
        };
        let respond = async { Got::read(user.send(&ask, upload).await.unwrap()).await };
        tokio::join!(respond, send).0
    };
    let leave = async {
        match script.leave {
            Leave::Never => std::future::pending().await,
            Leave::At(count) => peer.until_case(&case, count).await,
            Leave::After(time) => tokio::time::sleep(time).await,
        }
    };
    tokio::select! {
        got = exchange => Some(got),
        () = leave => None,
        // Some of those who would leave at the upstream's third request never see it made.
        () = tokio::time::sleep(Duration::from_secs(1)), if !matches!(script.leave, Leave::Never) => None,
    }
}

const BOTH: &[Protocol] = &[Protocol::One, Protocol::Two];

#[tokio::test]
async fn every_execution_before_an_upstream_of_http_1_is_audited_once() {
    departures(BOTH, Protocol::One, 1).await;
}

#[tokio::test]
async fn every_execution_before_an_upstream_of_http_2_is_audited_once() {
    departures(BOTH, Protocol::Two, 2).await;
}
