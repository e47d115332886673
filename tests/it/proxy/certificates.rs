use serde_json::json;

use crate::support::h2;
use crate::support::proxy::{Client, Files, Proxy, within};
use crate::support::tls::{Authority, H2, Issued, client, connect};

const GET: &str = "GET /a HTTP/1.1\r\nHost: t\r\n\r\n";

/// A listener that asks for certificates, with routes that begin with these.
fn proxy(authority: &Authority, routes: &str) -> Proxy {
    let server = authority.issue(&["a.test"]);
    let files = Files::from([
        ("server.pem", server.chain()),
        ("server.key", server.key()),
        ("clients.pem", authority.pem()),
    ]);
    let config = format!(
        "listeners:
  - address: 127.0.0.1:0
    tls: {{ certificate: server.pem, key: server.key, clientCa: clients.pem }}
limits: {{ workers: 1 }}
routes:
{routes}
  - name: shown
    flow: {{ entrypoint: s, steps: {{ s: {{ action: Return, value: '{{{{ execution.platform.client.certificate }}}}' }} }} }}
"
    );
    Proxy::whole(&config, &files)
}

async fn ask(proxy: &Proxy, authority: &Authority, shows: &Issued) -> serde_json::Value {
    let stream = within(connect(proxy.address, client(authority, Some(shows), &[]))).await;
    Client::over(stream.unwrap()).ask(GET).await.json()
}

#[tokio::test]
async fn expressions_read_the_clients_certificate() {
    let authority = Authority::new();
    let proxy = proxy(&authority, "");
    let ada = authority.issue(&["ada.test", "192.0.2.1"]);
    let seen = ask(&proxy, &authority, &ada).await;
    assert_eq!(seen["subject"], "CN=rcgen self signed cert");
    assert_eq!(seen["sans"], json!(["dns:ada.test", "ip:192.0.2.1"]));
    let fingerprint = seen["fingerprint"].as_str().unwrap();
    assert_eq!(fingerprint.len(), 64);
    let stream = within(connect(proxy.address, client(&authority, Some(&ada), &[H2]))).await;
    let mut two = h2::Client::over(stream.unwrap()).await;
    for _ in 0..2 {
        let answer = two.ask(h2::request("GET", "/a", &[]), b"").await;
        let again: serde_json::Value = serde_json::from_str(answer.text()).unwrap();
        assert_eq!(again, seen);
    }
    let other = ask(&proxy, &authority, &authority.issue(&["ada.test"])).await;
    assert_ne!(other["fingerprint"], seen["fingerprint"]);
}

#[tokio::test]
async fn routes_are_found_by_the_clients_certificate() {
    let authority = Authority::new();
    let [ada, bob] = [authority.issue(&["ada.a.test"]), authority.issue(&["bob.b.test"])];
    let plain = proxy(&authority, "");
    let print = ask(&plain, &authority, &bob).await["fingerprint"].clone();
    let says = |name: &str, certificate: &str| {
        format!(
            "  - name: {name}
    match: {{ path: /a, clientCertificate: {certificate} }}
    flow: {{ entrypoint: s, steps: {{ s: {{ action: Return, value: {name} }} }} }}
"
        )
    };
    let routes = [
        says("nobody", "{ subjects: ['CN=eve'] }"),
        says("other", "{ sans: ['dns:*.a.test'], subjects: ['CN=eve'] }"),
        says("of-a", "{ sans: ['uri:*', 'dns:*.a.test'] }"),
        says("bob", &format!("{{ fingerprints: [{print}] }}")),
    ];
    let proxy = proxy(&authority, &routes.concat());
    assert_eq!(ask(&proxy, &authority, &ada).await, "of-a");
    assert_eq!(ask(&proxy, &authority, &bob).await, "bob");
    let eve = ask(&proxy, &authority, &authority.issue(&["eve.c.test"])).await;
    assert_eq!(eve["sans"], json!(["dns:eve.c.test"]));
}

/// Without a certificate its member is not there, so that `has` can ask for it.
#[tokio::test]
async fn a_client_in_clear_text_has_no_certificate() {
    let route = "flow: { entrypoint: s, steps: { s: { action: Return, value: '{{ has(execution.platform.client.certificate) }}' } } }";
    let certificate = "match: { clientCertificate: {} }";
    let routes = format!("routes: [{{ name: c, {certificate}, {route} }}, {{ name: r, {route} }}]");
    let proxy = Proxy::start(&routes);
    let answer = proxy.ask(GET).await;
    assert_eq!(answer.body, "false");
    assert_eq!(proxy.metric(r#"mwl_requests_total{route="r",status="200"}"#), 1);
}
