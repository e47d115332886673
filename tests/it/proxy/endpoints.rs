use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinSet;

use crate::support::h2;
use crate::support::names::Names;
use crate::support::proxy::{Files, Proxy};
use crate::support::upstream::{Act, Upstream, always};

const GET: &str = "GET /a HTTP/1.1\r\nHost: t\r\n\r\n";

/// Three upstreams, which answer `0`, `1` and `2`.
async fn three() -> Vec<Upstream> {
    let mut all = Vec::new();
    for body in ["0", "1", "2"] {
        all.push(Upstream::behind(TcpListener::bind("127.0.0.1:0").await.unwrap(), body));
    }
    all
}

/// One route to the upstream `u` with these members.
fn config(upstream: &str) -> String {
    format!("upstreams: {{ u: {{ {upstream} }} }}\nroutes: [{{ name: r, upstream: u }}]\n")
}

fn urls<'a>(upstreams: impl IntoIterator<Item = &'a Upstream>) -> String {
    let urls = upstreams.into_iter().map(|upstream| format!("'http://{}'", upstream.address));
    urls.collect::<Vec<_>>().join(", ")
}

/// How often each body came in `times` answers.
async fn bodies(proxy: &Proxy, times: usize) -> BTreeMap<String, usize> {
    let (mut client, mut bodies) = (proxy.connect().await, BTreeMap::new());
    for _ in 0..times {
        let answer = client.ask(GET).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        *bodies.entry(answer.body).or_default() += 1;
    }
    bodies
}

#[tokio::test]
async fn turns_follow_the_weights() {
    let all = three().await;
    let endpoints = format!(
        "endpoints: ['http://{}', {{ url: 'http://{}', weight: 3 }}, 'http://{}'], balance: roundRobin",
        all[0].address, all[1].address, all[2].address,
    );
    let proxy = Proxy::start(&config(&endpoints));
    let counts = bodies(&proxy, 50).await;
    assert_eq!(counts.into_values().collect::<Vec<_>>(), [10, 30, 10]);
}

#[tokio::test]
async fn the_endpoint_with_fewer_requests_is_taken() {
    let slow = Upstream::play([Act::Hang]).await;
    let good = Upstream::run(|_, _| always(200, "", "good")).await;
    let proxy = Proxy::start(&config(&format!("endpoints: [{}]", urls([&slow, &good]))));
    // Whichever is drawn first: from two requests on, one hangs.
    let mut held = Vec::new();
    while slow.requests().is_empty() {
        let mut client = proxy.connect().await;
        client.send(GET).await;
        proxy.until(|_| slow.requests().len() + good.requests().len() > held.len()).await;
        held.push(client);
    }
    assert_eq!(bodies(&proxy, 20).await, [("good".to_owned(), 20)].into());
    assert_eq!(slow.requests().len(), 1);
}

#[tokio::test]
async fn each_endpoint_has_an_http_2_connection_of_its_own() {
    let mut all = Vec::new();
    for body in ["0", "1"] {
        all.push(h2::Upstream::run(100, move |_, _| h2::Act::Answer(h2::reply(200, body))).await);
    }
    let urls =
        format!("'http://{}', {{ url: 'http://{}', weight: 2 }}", all[0].address, all[1].address);
    let endpoints =
        format!("endpoints: [{urls}], protocol: http2, balance: roundRobin, keepAlive: PT1M");
    let proxy = Proxy::start(&config(&endpoints));
    assert_eq!(bodies(&proxy, 30).await.into_values().collect::<Vec<_>>(), [10, 20]);
    assert_eq!((all[0].accepted(), all[1].accepted()), (1, 1));
}

/// The answers' bodies by key.
async fn owners(proxy: &Proxy, keys: usize) -> BTreeMap<usize, String> {
    let mut asking = JoinSet::new();
    for key in 0..keys {
        // Each on a connection of its own, so that both workers get some.
        let mut client = proxy.connect().await;
        asking.spawn(async move {
            let request = format!("GET /a HTTP/1.1\r\nHost: t\r\nX-User: user-{key}\r\n\r\n");
            (key, client.ask(&request).await.body)
        });
    }
    asking.join_all().await.into_iter().collect()
}

#[tokio::test]
async fn a_key_belongs_to_one_endpoint_whichever_proxy_and_worker_asks() {
    let all = three().await;
    let started = |endpoints: String| {
        let hash = "balance: { hash: \"{{ step.input.headers['x-user'] }}\" }";
        let rest = config(&format!("endpoints: [{endpoints}], {hash}"));
        let text =
            format!("listeners: [{{ address: '127.0.0.1:0' }}]\nlimits: {{ workers: 2 }}\n{rest}");
        Proxy::whole(&text, &Files::new())
    };
    let (one, other) = (started(urls(&all)), started(urls(all.iter().rev())));
    let owned = owners(&one, 60).await;
    for proxy in [&one, &other] {
        assert_eq!(owners(proxy, 60).await, owned);
    }
    for body in ["0", "1", "2"] {
        let share = owned.values().filter(|owner| *owner == body).count();
        assert!((5..40).contains(&share), "{owned:?}");
    }
    // Without the key, any endpoint serves, and no definition is at fault.
    assert_eq!(bodies(&one, 200).await.len(), 3);
    assert_eq!(one.metric("mwl_definition_faults_total"), 0);
}

#[tokio::test]
async fn a_failed_attempt_goes_on_to_another_endpoint_than_its_key_s() {
    let bad = Upstream::run(|_, _| always(503, "", "bad")).await;
    let good = Upstream::run(|_, _| always(200, "", "good")).await;
    let hash = "balance: { hash: '{{ execution.platform.client.address }}' }";
    let retry = "middleware: [{ provider: 'mwl:provider.middleware/mwl/retry/v1', onEntry: { with: { policies: [{ match: { codes: ['*'] }, attempts: 2 }] } } }]";
    let proxy = Proxy::start(&format!(
        "upstreams: {{ u: {{ endpoints: [{}], {hash} }} }}\nroutes: [{{ name: r, upstream: u, {retry} }}]\n",
        urls([&bad, &good]),
    ));
    assert_eq!(bodies(&proxy, 10).await, [("good".to_owned(), 10)].into());
    // All have the same key.
    assert!([0, 10].contains(&bad.requests().len()));
}

/// The path of a Unix socket that is removed at the end.
struct SocketPath(PathBuf);

impl SocketPath {
    fn new(name: &str) -> Self {
        let file = format!("mwl-proxy-{}-{name}.sock", std::process::id());
        Self(std::env::temp_dir().join(file))
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        // It may never have been bound.
        let _removed = fs::remove_file(&self.0).is_ok();
    }
}

/// Answers every request on a Unix socket with its own head.
fn echo(path: &SocketPath) -> tokio::task::JoinHandle<()> {
    let listener = UnixListener::bind(&path.0).unwrap();
    tokio::spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            connections.spawn(async move {
                let (mut head, mut part) = (Vec::new(), [0; 4096]);
                while let Ok(read @ 1..) = stream.read(&mut part).await {
                    head.extend_from_slice(&part[..read]);
                    if head.ends_with(b"\r\n\r\n") {
                        let text = String::from_utf8(std::mem::take(&mut head)).unwrap();
                        let answer = format!(
                            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}",
                            text.len()
                        );
                        stream.write_all(answer.as_bytes()).await.unwrap();
                    }
                }
            });
        }
    })
}

#[tokio::test]
async fn a_unix_socket_is_an_endpoint_as_any_other() {
    let path = SocketPath::new("endpoint");
    let _serving = echo(&path);
    let url = format!("unix:{}", path.0.display());
    let proxy = Proxy::start(&config(&format!("endpoints: ['{url}']")));
    let mut client = proxy.connect().await;
    for _ in 0..3 {
        let seen = client.ask(GET).await.body;
        assert!(seen.starts_with("GET /a HTTP/1.1\r\n") && seen.contains("t\r\n"), "{seen}");
    }
    let attempts = format!(
        r#"mwl_endpoint_attempts_total{{endpoint="{url}",outcome="success",upstream="u"}}"#
    );
    assert_eq!(proxy.metric(&attempts), 3);
    assert_eq!(proxy.metric(r#"mwl_upstream_connections{state="idle",upstream="u"}"#), 1);
    let proxy = Proxy::start(&config(&format!("endpoints: ['{url}'], host: upstream")));
    let seen = proxy.ask(GET).await.body.to_ascii_lowercase();
    assert!(seen.contains("host: localhost\r\n"), "{seen}");
}

#[tokio::test]
async fn a_unix_socket_that_is_not_there_is_a_failed_connect() {
    let path = SocketPath::new("none");
    let rest = config(&format!("endpoints: ['unix:{}']", path.0.display()));
    let proxy = Proxy::start(&rest.replace("upstream: u }", "upstream: u, exposeFailures: true }"));
    let answer = proxy.ask(GET).await;
    let failure = &answer.json()["failures"][0];
    assert_eq!((answer.status, &failure["details"]["phase"]), (502, &"connect".into()));
    assert_eq!(failure["details"]["endpoint"], format!("unix:{}", path.0.display()));
}

#[tokio::test]
async fn every_address_of_a_name_is_an_endpoint() {
    let two = TcpListener::bind("127.0.0.2:0").await.unwrap();
    let port = two.local_addr().unwrap().port();
    let Ok(three) = TcpListener::bind(("127.0.0.3", port)).await else {
        // Somebody else has the port.
        return;
    };
    let (_two, three) = (Upstream::behind(two, "two"), Upstream::behind(three, "three"));
    let names = Names::saying(&["127.0.0.2", "127.0.0.3", "::1"]);
    let upstream =
        format!("endpoints: ['http://u.test:{port}'], balance: roundRobin, keepAlive: PT1M");
    let proxy = Proxy::resolved(&config(&upstream), &names);
    let counts = bodies(&proxy, 20).await;
    assert!(counts["two"] >= 9 && counts["three"] >= 9, "{counts:?}");
    let of = |address: &str| {
        format!(
            r#"mwl_endpoint_attempts_total{{endpoint="{address}:{port}",outcome="success",upstream="u"}}"#
        )
    };
    assert_eq!(proxy.metric(&of("127.0.0.2")), counts["two"] as u64);
    assert_eq!(proxy.metric(&of("127.0.0.3")), counts["three"] as u64);
    // One that leaves gets nothing more, and its connections are closed.
    names.say(Ok(vec!["127.0.0.2"]));
    let mut held = proxy.connect().await;
    held.send("POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\n\r\n").await;
    proxy.until(|proxy| proxy.server.in_flight() == 1).await;
    let before = three.requests().len();
    // Two at a time: one of them must connect, and sees the change.
    for _ in 0..3 {
        proxy.ask(GET).await;
    }
    held.send("x").await;
    assert_eq!(held.response(false).await.status, 200);
    let after = bodies(&proxy, 10).await;
    assert_eq!(after, [("two".to_owned(), 10)].into());
    assert!(three.requests().len() <= before + 3);
}
