//! Endpoints that are checked, ejected, drained, and that come back.

/// An endpoint that is killed under load, and returns.
mod killed;
/// What outlives a reload, and what ends with it.
mod reloads;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::h2;
use crate::support::proxy::{Files, Proxy};
use crate::support::tls::{Authority, Farewell, Front, HTTP_1_1, server};
use crate::support::upstream::{Act, Arrived, Upstream, always};

const GET: &str = "GET /a HTTP/1.1\r\nHost: t\r\n\r\n";

/// Checks that come often.
const OFTEN: &str = "health: { path: '/healthz?deep=1', interval: PT0.02S, timeout: PT5S, healthyAfter: 2, unhealthyAfter: 2 }";

/// A route to `endpoints`, with these further keys of the upstream.
fn config(endpoints: &[String], keys: &str) -> String {
    format!(
        "upstreams: {{ u: {{ endpoints: ['{}'], balance: roundRobin, {keys} }} }}\n\
         routes: [{{ name: r, upstream: u }}]\n",
        endpoints.join("', '")
    )
}

fn url(upstream: &Upstream) -> String {
    format!("http://{}", upstream.address)
}

/// The series of one endpoint.
fn up(endpoint: SocketAddr) -> String {
    format!(r#"mwl_endpoint_up{{endpoint="{endpoint}",upstream="u"}}"#)
}

fn is_check(seen: &Arrived) -> bool {
    seen.line().contains("/healthz")
}

fn asked(upstream: &Upstream) -> usize {
    upstream.requests().iter().filter(|seen| !is_check(seen)).count()
}

/// Answers requests, and checks as long as it is `well`; ill, it answers them 500.
async fn checked(well: &Arc<AtomicBool>) -> Upstream {
    let well = Arc::clone(well);
    Upstream::run(move |_, seen| {
        let ill = is_check(seen) && !well.load(Ordering::SeqCst);
        always(if ill { 500 } else { 200 }, "", "x")
    })
    .await
}

#[tokio::test]
async fn an_endpoint_whose_checks_fail_gets_nothing_until_they_are_good_again() {
    let well = Arc::new(AtomicBool::new(true));
    let (first, second) = (checked(&well).await, Upstream::play([always(200, "", "x")]).await);
    let proxy = Proxy::start(&config(&[url(&first), url(&second)], OFTEN));
    for _ in 0..4 {
        assert_eq!(proxy.ask(GET).await.status, 200);
    }
    assert_eq!((asked(&first), asked(&second)), (2, 2));
    well.store(false, Ordering::SeqCst);
    proxy.until(|proxy| proxy.metric(&up(first.address)) == 0).await;
    for _ in 0..6 {
        assert_eq!(proxy.ask(GET).await.status, 200);
    }
    assert_eq!((asked(&first), asked(&second)), (2, 8));
    let summary = &proxy.server.runtime().upstream_summaries()[0];
    let shown = &summary.endpoints[0];
    assert_eq!(
        (shown.state, shown.why.as_deref()),
        ("unhealthy", Some("the last check: answered 500"))
    );
    assert!(!summary.panic, "half of two are well");
    well.store(true, Ordering::SeqCst);
    proxy.until(|proxy| proxy.metric(&up(first.address)) == 1).await;
    let seen = first.until(|seen| seen.iter().any(is_check)).await;
    let check = seen.iter().find(|seen| is_check(seen)).unwrap();
    assert_eq!(check.line(), "GET /healthz?deep=1 HTTP/1.1");
    assert_eq!(check.field("host"), [first.address.to_string()]);
    assert_eq!(check.field("user-agent"), ["mwl-proxy-health"]);
    assert_eq!(check.field("connection"), ["close"]);
    let cause = format!(
        r#"mwl_endpoint_ejections_total{{cause="healthCheck",endpoint="{}",upstream="u"}}"#,
        first.address
    );
    assert_eq!(proxy.metric(&cause), 1);
}

#[tokio::test]
async fn where_fewer_than_half_are_well_all_are_used() {
    let well = Arc::new(AtomicBool::new(false));
    let (first, second) = (checked(&well).await, checked(&well).await);
    let third = Upstream::play([always(200, "", "x")]).await;
    let proxy = Proxy::start(&config(&[url(&first), url(&second), url(&third)], OFTEN));
    proxy
        .until(|proxy| proxy.metric(&up(first.address)) + proxy.metric(&up(second.address)) == 0)
        .await;
    assert!(proxy.server.runtime().upstream_summaries()[0].panic);
    for _ in 0..6 {
        assert_eq!(proxy.ask(GET).await.status, 200);
    }
    assert_eq!((asked(&first), asked(&second), asked(&third)), (2, 2, 2));
}

/// A check that finds a server, TLS and all, and one that finds none, side by side.
#[tokio::test]
async fn checks_go_over_tls() {
    let upstream = Upstream::play([always(204, "", "")]).await;
    let authority = Authority::new();
    let issued = authority.issue(&["a.test"]);
    let good =
        Front::before(upstream.address, server(&issued, &[HTTP_1_1], None), Farewell::Said).await;
    let other = authority.issue(&["b.test"]);
    let bad =
        Front::before(upstream.address, server(&other, &[HTTP_1_1], None), Farewell::Said).await;
    let yaml = format!(
        "listeners: [{{ address: '127.0.0.1:0' }}]\nlimits: {{ workers: 1 }}\n\
         upstreams: {{ u: {{ endpoints: ['https://{}', 'https://{}'], tls: {{ ca: ca.pem, serverName: a.test }}, {OFTEN} }} }}\n\
         routes: [{{ name: r, upstream: u }}]\n",
        good.address, bad.address
    );
    let proxy = Proxy::whole(&yaml, &Files::from([("ca.pem", authority.pem())]));
    let line =
        |address, value| format!(r#"mwl_endpoint_up{{endpoint="{address}",upstream="u"}} {value}"#);
    let (out, stays) = (line(bad.address, 0), line(good.address, 1));
    proxy.until(|proxy| proxy.metrics.render().contains(&out)).await;
    assert!(proxy.metrics.render().contains(&stays));
    let shown = proxy.server.runtime().upstream_summaries().remove(0).endpoints.remove(1);
    assert!(shown.why.unwrap().contains("certificate"), "it says what is wrong");
    upstream.until(|seen| seen.iter().any(is_check)).await;
}

#[tokio::test]
async fn checks_go_over_http_2_and_ask_grpc_s_health_service() {
    let status = Arc::new(AtomicBool::new(true));
    let serving = Arc::clone(&status);
    let upstream = h2::Upstream::run(100, move |_, _| {
        let body: &[u8] = if serving.load(Ordering::SeqCst) {
            b"\0\0\0\0\x02\x08\x01"
        } else {
            b"\0\0\0\0\x02\x08\x02"
        };
        h2::Act::Answer(h2::Reply {
            status: 200,
            fields: h2::fields(&[("content-type", "application/grpc")]),
            chunks: vec![(Duration::ZERO, body)],
            trailers: Some((Duration::ZERO, h2::fields(&[("grpc-status", "0")]))),
            ..h2::Reply::default()
        })
    })
    .await;
    let keys = "protocol: http2, health: { grpc: a.B, interval: PT0.02S, timeout: PT5S, healthyAfter: 1, unhealthyAfter: 1 }";
    let proxy = Proxy::start(&config(&[format!("http://{}", upstream.address)], keys));
    let seen = upstream.until(|seen| seen.iter().filter(|seen| seen.whole).count() > 2).await;
    assert_eq!(seen[0].uri, format!("http://{}/grpc.health.v1.Health/Check", upstream.address));
    assert_eq!(
        (seen[0].method.as_str(), seen[0].body.as_slice()),
        ("POST", &b"\0\0\0\0\x05\x0a\x03a.B"[..])
    );
    assert_eq!(
        (seen[0].field("te"), seen[0].field("content-type")),
        (vec!["trailers"], vec!["application/grpc"])
    );
    let state = || proxy.server.runtime().upstream_summaries().remove(0).endpoints.remove(0);
    assert_eq!(state().state, "up");
    status.store(false, Ordering::SeqCst);
    proxy.until(|_| state().state == "unhealthy").await;
    assert_eq!(state().why.as_deref(), Some("the last check: is NOT_SERVING"));
    // The only endpoint is used all the same.
    assert_eq!(proxy.ask(GET).await.status, 200);
    status.store(true, Ordering::SeqCst);
    proxy.until(|_| state().state == "up").await;
}

#[tokio::test]
async fn a_path_is_asked_over_http_2_too_and_each_check_is_a_new_connection() {
    let upstream = h2::Upstream::play([h2::Act::Answer(h2::reply(204, ""))]).await;
    let keys = format!("protocol: http2, {OFTEN}");
    let proxy = Proxy::start(&config(&[format!("http://{}", upstream.address)], &keys));
    let seen = upstream.until(|seen| seen.len() > 3).await;
    assert_eq!(seen[0].uri, format!("http://{}/healthz?deep=1", upstream.address));
    assert_eq!(seen.iter().map(|seen| seen.connection).collect::<Vec<_>>()[..4], [0, 1, 2, 3]);
    assert_eq!(proxy.metric(r#"mwl_upstream_connections{state="active",upstream="u"}"#), 0);
}

#[tokio::test]
async fn a_unix_socket_is_checked() {
    let directory = crate::support::program::Directory::new();
    let path = directory.path("app.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let proxy = Proxy::start(&config(
        &[format!("unix:{}", path.display()), "http://127.0.0.1:1".into()],
        OFTEN,
    ));
    let shown = |place: usize| {
        proxy.server.runtime().upstream_summaries().remove(0).endpoints.remove(place)
    };
    let serving = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = [0; 1024];
            let read = tokio::io::AsyncReadExt::read(&mut stream, &mut head).await.unwrap();
            assert!(head[..read].starts_with(b"GET /healthz?deep=1 HTTP/1.1\r\n"));
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
            tokio::io::AsyncWriteExt::write_all(&mut stream, answer).await.unwrap();
        }
    });
    proxy.until(|_| shown(1).state == "unhealthy" && shown(0).checks.success > 2).await;
    assert_eq!((shown(0).state, shown(0).checks.failure), ("up", 0));
    serving.abort();
}

#[tokio::test]
async fn a_drained_endpoint_gets_nothing_new_until_it_is_restored() {
    let (first, second) = (
        Upstream::play([always(200, "", "x")]).await,
        Upstream::play([always(200, "", "x")]).await,
    );
    let proxy = Proxy::start(&config(&[url(&first), url(&second)], ""));
    let runtime = proxy.server.runtime();
    let switches = proxy.metrics.switches();
    let name = first.address.to_string();
    assert_eq!(runtime.drain(switches, "u", &name, true), Some(1));
    assert_eq!(
        (runtime.drain(switches, "v", &name, true), runtime.drain(switches, "u", "a:1", true)),
        (None, Some(0))
    );
    for _ in 0..4 {
        assert_eq!(proxy.ask(GET).await.status, 200);
    }
    assert_eq!((asked(&first), asked(&second)), (0, 4));
    assert_eq!(proxy.metric(&up(first.address)), 0);
    let switch = format!(r#"mwl_operator_switches{{kind="drain",what="u/{name}"}}"#);
    assert_eq!(proxy.metric(&switch), 1);
    // Also where the other one is drained as well: nobody is left, and the client is told so.
    assert_eq!(runtime.drain(switches, "u", &second.address.to_string(), true), Some(1));
    assert_eq!(proxy.ask(GET).await.status, 502);
    assert_eq!((asked(&first), asked(&second)), (0, 4));
    assert_eq!(runtime.drain(switches, "u", &name, false), Some(1));
    assert_eq!(proxy.ask(GET).await.status, 200);
    assert_eq!((asked(&first), asked(&second)), (1, 4));
    assert_eq!(proxy.metric(&switch), 0);
}

#[tokio::test]
async fn failed_attempts_in_a_row_eject_and_a_success_between_them_does_not() {
    let turns = |fails: fn(usize) -> bool| {
        Upstream::run(
            move |number, _| {
                if fails(number) { always(503, "", "") } else { always(200, "", "") }
            },
        )
    };
    // The first fails twice, succeeds once, and so on; the second fails three times at last.
    let (first, second) = (turns(|number| number % 3 != 2).await, turns(|number| number > 5).await);
    let third = Upstream::play([Act::Answer(crate::support::upstream::answer(404, "", ""))]).await;
    let keys = "ejection: { consecutiveFailures: 3, baseTime: PT60S, maxTime: PT60S }";
    let proxy = Proxy::start(&config(&[url(&first), url(&second), url(&third)], keys));
    for _ in 0..27 {
        proxy.ask(GET).await;
    }
    // A 404 says nothing against an endpoint.
    assert_eq!(
        (asked(&second), proxy.metric(&up(first.address)), proxy.metric(&up(third.address))),
        (9, 1, 1)
    );
    let cause = format!(
        r#"mwl_endpoint_ejections_total{{cause="status",endpoint="{}",upstream="u"}}"#,
        second.address
    );
    assert_eq!((proxy.metric(&up(second.address)), proxy.metric(&cause)), (0, 1));
    for _ in 0..6 {
        proxy.ask(GET).await;
    }
    assert_eq!(asked(&second), 9);
}

#[tokio::test]
async fn the_example_leaves_out_what_is_down() {
    let well = Arc::new(AtomicBool::new(false));
    let first = checked(&well).await;
    let others = [
        Upstream::play([always(200, "", "x")]).await,
        Upstream::play([always(200, "", "x")]).await,
    ];
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/config/health.yaml");
    let text = std::fs::read_to_string(path).unwrap();
    let text = text
        .replace("127.0.0.1:8080", "127.0.0.1:0")
        .replace("127.0.0.1:3001", &first.address.to_string())
        .replace("127.0.0.1:3002", &others[0].address.to_string())
        .replace("127.0.0.1:3003", &others[1].address.to_string())
        .replace("ledger.internal:50051", "127.0.0.1:1")
        .replace("interval: PT5S", "interval: PT0.02S");
    let proxy = Proxy::whole(&text, &Files::new());
    let first_of = || proxy.server.runtime().upstream_summaries().remove(0).endpoints.remove(0);
    proxy.until(|_| first_of().state == "unhealthy").await;
    let before = asked(&first);
    for _ in 0..6 {
        assert_eq!(proxy.ask(GET).await.status, 200);
    }
    assert_eq!(asked(&first), before);
}
