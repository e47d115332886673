use std::sync::Arc;

use tokio::net::TcpListener;

use super::h2_upstreams;
use crate::support::h2;
use crate::support::names::Names;
use crate::support::proxy::{Client, Proxy, within};
use crate::support::stack::retry;
use crate::support::upstream::{Upstream, always};

const GET: &str = "GET /a HTTP/1.1\r\nHost: t\r\n\r\n";

/// With the upstream `u.test:port`. `upstream` holds the upstream's further members, `route` the route's.
fn config(port: u16, upstream: &str, route: &str) -> String {
    format!(
        "upstreams: {{ u: {{ endpoints: ['http://u.test:{port}'], keepAlive: PT1M{upstream} }} }}\nroutes:\n  - name: r\n    match: {{ pathPrefix: / }}\n    upstream: u\n    exposeFailures: true\n{route}"
    )
}

/// A Retry of three attempts on failed connects.
const RETRY: &str = concat!(
    "    middleware:\n",
    retry!("match: { codes: [Provider.Call.Http.ConnectionFailed] }, attempts: 3"),
);

/// Sockets at 127.0.0.2 and 127.0.0.3, with the same port.
async fn sockets() -> (TcpListener, TcpListener, u16) {
    loop {
        let two = TcpListener::bind("127.0.0.2:0").await.unwrap();
        let port = two.local_addr().unwrap().port();
        if let Ok(three) = TcpListener::bind(("127.0.0.3", port)).await {
            return (two, three, port);
        }
    }
}

/// An upstream at each of them, which answer `two` and `three`.
async fn two() -> (Upstream, Upstream, u16) {
    let (two, three, port) = sockets().await;
    (Upstream::behind(two, "two"), Upstream::behind(three, "three"), port)
}

fn idle(proxy: &Proxy) -> u64 {
    proxy.metric(r#"mwl_upstream_connections{state="idle",upstream="u"}"#)
}

#[tokio::test]
async fn a_new_connect_sees_a_new_address() {
    let (two, three, port) = two().await;
    let names = Names::saying(&["127.0.0.2"]);
    let proxy = Proxy::resolved(&config(port, "", ""), &names);
    let mut client = proxy.connect().await;
    assert_eq!(client.ask(GET).await.body, "two");
    names.say(Ok(vec!["127.0.0.3"]));
    // A pooled connection is used for as long as it exists.
    assert_eq!(client.ask(GET).await.body, "two");
    assert_eq!(names.asked(), ["u.test"]);
    drop(two);
    for _ in 0..3 {
        assert_eq!(client.ask(GET).await.body, "three");
    }
    assert_eq!((names.asked().len(), three.accepted()), (2, 1));
}

/// Two clients whose requests to `upstream` are running on a connection each; their last byte is missing.
async fn under_way(proxy: &Proxy, upstream: &Upstream) -> [Client; 2] {
    let mut clients = [proxy.connect().await, proxy.connect().await];
    for (number, client) in clients.iter_mut().enumerate() {
        client.send("POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\n\r\n").await;
        upstream.until(|seen| seen.len() == number + 1).await;
    }
    clients
}

async fn end(clients: &mut [Client; 2], body: &str) {
    for client in clients {
        client.send("x").await;
        assert_eq!(client.response(false).await.body, body);
    }
}

#[tokio::test]
async fn connections_to_an_address_that_is_gone_end_with_their_request() {
    let (two, three, port) = two().await;
    let names = Names::saying(&["127.0.0.2"]);
    let proxy = Proxy::resolved(&config(port, "", ""), &names);
    let mut clients = under_way(&proxy, &two).await;
    names.say(Ok(vec!["127.0.0.3"]));
    assert_eq!(proxy.ask(GET).await.body, "three");
    end(&mut clients, "two").await;
    two.ended(2).await;
    assert_eq!(idle(&proxy), 1);
    for client in &mut clients {
        assert_eq!(client.ask(GET).await.body, "three");
    }
    assert_eq!((two.accepted(), three.accepted()), (2, 1));
}

#[tokio::test]
async fn connections_to_an_address_that_stays_stay() {
    let (two, three, port) = two().await;
    let names = Names::saying(&["127.0.0.2"]);
    let proxy = Proxy::resolved(&config(port, "", ""), &names);
    let mut clients = under_way(&proxy, &two).await;
    names.say(Ok(vec!["127.0.0.3", "127.0.0.2"]));
    // The address that was known stays, so the connect goes there. Once the other is known, requests go there: it has fewer.
    assert_eq!(proxy.ask(GET).await.body, "two");
    // The look-up may end a little later.
    let mut asked = 0;
    while proxy.ask(GET).await.body != "three" {
        asked += 1;
        assert!(asked < 1000, "nothing goes to the address that came");
    }
    end(&mut clients, "two").await;
    assert_eq!((idle(&proxy), two.accepted(), three.accepted()), (4, 3, 1));
}

#[tokio::test]
async fn a_retry_looks_the_name_up_again() {
    let (two, three, port) = sockets().await;
    drop(two);
    let three = Upstream::behind(three, "three");
    let names = Names::playing([Ok(vec!["127.0.0.2"]), Ok(vec!["127.0.0.3"])]);
    let proxy = Proxy::resolved(&config(port, "", RETRY), &names);
    assert_eq!(proxy.ask(GET).await.body, "three");
    assert_eq!((names.asked().len(), three.accepted()), (2, 1));
    let failed =
        r#"mwl_attempts_total{code="Provider.Call.Http.ConnectionFailed",route="r",upstream="u"}"#;
    assert_eq!(proxy.metric(failed), 1);
}

#[tokio::test]
async fn a_name_that_is_not_there_is_a_failed_connect() {
    let names = Names::playing([Err("Name or service not known")]);
    let proxy = Proxy::resolved(&config(80, "", RETRY), &names);
    let response = proxy.ask(GET).await;
    assert_eq!(response.status, 502);
    assert_eq!(response.field("proxy-status"), ["mwl-proxy; error=dns_error"]);
    assert_eq!(names.asked().len(), 3);
    let failure = &response.json()["failures"][1];
    assert_eq!(failure["code"], "Provider.Call.Http.ConnectionFailed");
    assert_eq!(failure["details"]["phase"], "dns");
    assert_eq!(failure["details"]["requestSent"], "none");
    let message =
        "r: attempt 3 of 3: upstream u cannot be resolved (u.test): Name or service not known";
    assert_eq!(failure["message"], message);
    names.say(Ok(vec![]));
    let response = proxy.ask(GET).await;
    let message = "r: attempt 3 of 3: upstream u cannot be resolved (u.test): it has no address";
    assert_eq!(response.json()["failures"][1]["message"], message);
}

#[tokio::test]
async fn a_name_that_is_lost_leaves_its_last_addresses() {
    let (two, _three, port) = two().await;
    let names = Names::saying(&["127.0.0.2"]);
    let proxy = Proxy::resolved(&config(port, "", ""), &names);
    let mut client = proxy.connect().await;
    assert_eq!(client.ask(GET).await.body, "two");
    names.say(Err("Temporary failure in name resolution"));
    client.send("POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\n\r\n").await;
    // The only connection is taken once the request is running.
    two.until(|seen| seen.len() == 2).await;
    assert_eq!(proxy.ask(GET).await.body, "two");
    assert_eq!(proxy.metric(r#"mwl_name_lookup_failures_total{upstream="u"}"#), 1);
    client.send("x").await;
    assert_eq!(client.response(false).await.body, "two");
    assert_eq!(proxy.ask(GET).await.body, "two");
    assert_eq!(two.accepted(), 2);
}

#[tokio::test]
async fn concurrent_connects_share_a_look_up() {
    let (two, _three, port) = two().await;
    let names = Names::held(&["127.0.0.2"]);
    let proxy = Arc::new(Proxy::resolved(&config(port, ", connectTimeout: PT10S", ""), &names));
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let proxy = Arc::clone(&proxy);
        asking.spawn(async move { proxy.ask(GET).await.body });
    }
    proxy.until(|proxy| proxy.metric(r#"mwl_requests_in_flight{route="r"}"#) == 20).await;
    names.answer();
    assert!(within(asking.join_all()).await.into_iter().all(|body| body == "two"));
    assert_eq!((names.asked().len(), two.accepted()), (1, 20));
}

#[tokio::test]
async fn a_look_up_that_hangs_is_waited_for_by_all_and_by_none_too_long() {
    let (_two, _three, port) = two().await;
    let names = Names::held(&["127.0.0.2"]);
    let config = config(port, ", connectTimeout: PT0.05S", RETRY);
    let proxy = Proxy::resolved(&config, &names);
    let response = proxy.ask(GET).await;
    assert_eq!(response.field("proxy-status"), ["mwl-proxy; error=dns_timeout"]);
    let failure = &response.json()["failures"][1];
    assert_eq!(failure["details"]["phase"], "dns");
    let message =
        "r: attempt 3 of 3: upstream u cannot be resolved (u.test): no answer within PT0.05S";
    assert_eq!(failure["message"], message);
    // A second look-up joined the first. Both are still running, for whoever is there when one ends.
    assert_eq!(names.asked().len(), 2);
    names.answer();
    within(async {
        while proxy.ask(GET).await.body != "two" {
            names.answer();
        }
    })
    .await;
}

#[tokio::test]
async fn the_second_address_serves_where_the_first_refuses() {
    let upstream = Upstream::run(|_, _| always(200, "", "good")).await;
    let port = upstream.address.port();
    let names = Names::held(&["::1", "127.0.0.9", "127.0.0.1"]);
    let proxy = Proxy::resolved(&config(port, ", connectTimeout: PT10S", ""), &names);
    let size = 5 << 20;
    let mut client = proxy.connect().await;
    client.send(format!("PUT /a HTTP/1.1\r\nHost: t\r\nContent-Length: {size}\r\n\r\n")).await;
    // Nothing of the body is read while there is no connection: only the sockets' buffers fill.
    let body = vec![b'b'; size];
    let mut sent = fill(&client, &body);
    proxy.until(|_| !names.asked().is_empty()).await;
    for _ in 0..3 {
        // By its answer, the only worker had time to read more.
        assert_eq!(proxy.ask("GET /a HTTP/1.1\r\n\r\n").await.status, 400);
        sent += fill(&client, &body[sent..]);
    }
    assert!(sent < size, "a body of {size} bytes fits into the buffers");
    names.answer();
    client.send(&body[sent..]).await;
    assert_eq!(client.response(false).await.body, "good");
    let seen = upstream.requests();
    assert_eq!((seen.len(), seen[0].body.len()), (1, size));
    let success = r#"mwl_attempts_total{code="success",route="r",upstream="u"}"#;
    assert_eq!(proxy.metric(success), 1);
}

/// Writes what the sockets hold. Returns how much that is.
fn fill(client: &Client, bytes: &[u8]) -> usize {
    let mut sent = 0;
    while sent < bytes.len()
        && let Ok(more) = client.stream.try_write(&bytes[sent..])
    {
        sent += more;
    }
    sent
}

#[tokio::test]
async fn a_name_whose_every_address_refuses_says_so_of_each() {
    let free = std::net::TcpListener::bind("127.0.0.2:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let names = Names::saying(&["127.0.0.2", "127.0.0.3"]);
    let proxy = Proxy::resolved(&config(port, "", ""), &names);
    let response = proxy.ask(GET).await;
    assert_eq!(response.field("proxy-status"), ["mwl-proxy; error=connection_refused"]);
    let json = response.json();
    let message = json["failures"][0]["message"].as_str().unwrap();
    let [two, three] = ["127.0.0.2 refused the connection", "127.0.0.3 refused the connection"];
    let start = "r: attempt 1: upstream u has 2 addresses and no connection: ";
    // The first is drawn at random.
    let either = [format!("{start}{two}, {three}"), format!("{start}{three}, {two}")];
    assert!(either.iter().any(|wanted| wanted == message), "{message}");
}

#[tokio::test]
async fn a_shared_connection_to_an_address_that_is_gone_carries_no_further_request() {
    let (two, three, _) = sockets().await;
    let reply = |body| h2::Act::Answer(h2::reply(200, body));
    let two = h2::Upstream::on(
        two,
        1,
        move |number, _| {
            if number == 0 { reply("two") } else { h2::Act::Hang }
        },
    );
    let three = h2::Upstream::on(three, 9, move |_, _| reply("three"));
    let names = Names::saying(&["127.0.0.2"]);
    let rest = h2_upstreams::one_route(two.address, ", keepAlive: PT1M", "");
    let rest = rest.replace("127.0.0.2", "u.test");
    let proxy = Proxy::resolved(&rest, &names);
    assert_eq!(proxy.ask(GET).await.body, "two");
    names.say(Ok(vec!["127.0.0.3"]));
    // The connection takes one request at a time, so the next one connects, and sees the change.
    let mut held = proxy.connect().await;
    held.send(GET).await;
    two.until(|seen| seen.len() == 2).await;
    assert_eq!(proxy.ask(GET).await.body, "three");
    drop(held);
    // The connection ends with its last request.
    proxy
        .until(|proxy| {
            proxy.metric(r#"mwl_upstream_connections{state="active",upstream="u"}"#) == 0
        })
        .await;
    assert_eq!(idle(&proxy), 1);
    for _ in 0..3 {
        assert_eq!(proxy.ask(GET).await.body, "three");
    }
    assert_eq!((two.requests().len(), two.accepted(), three.accepted()), (2, 1, 1));
}
