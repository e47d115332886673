//! Flows that go round and round without a call or a wait: a mistake of their author's, which must not become
//! other people's.

use std::time::Duration;

use crate::support::proxy::{Client, Proxy};
use crate::support::upstream::{Upstream, always};

/// A route `other` before the upstream, and at `/round` a Flow without an end. `stack` are entries around it.
fn config(upstream: &Upstream, stack: &str) -> String {
    format!(
        "upstreams: {{ u: {{ endpoints: ['http://{}'] }} }}
routes:
  - {{ name: other, match: {{ path: /other }}, upstream: u }}
  - name: round
    match: {{ path: /round }}
    flow:
      $schema: https://mwl.dev/v0.1/flow/schema.json
      entrypoint: a
      middleware: [{stack}]
      steps:
        a: {{ action: Pass, next: b }}
        b: {{ action: Pass, next: a }}
",
        upstream.address
    )
}

const AUDIT: &str = "{ provider: 'mwl:provider.middleware/mwl/finally/v1', onAlways: { with: { call: { provider: 'mwl:provider.call/mwl-proxy/http/v1', with: { upstream: u, path: /audit }, input: null } } } }";

/// A client whose request goes round in `proxy`.
async fn going_round(proxy: &Proxy) -> Client {
    let mut client = proxy.connect().await;
    client.send("GET /round HTTP/1.1\r\nHost: t\r\n\r\n").await;
    proxy.until(|proxy| proxy.metric(r#"mwl_requests_in_flight{route="round"}"#) == 1).await;
    client
}

#[tokio::test]
async fn others_on_its_worker_are_served_and_it_ends_with_its_client() {
    let upstream = Upstream::play([always(200, "", "good")]).await;
    for stack in ["", AUDIT] {
        let proxy = Proxy::start(&config(&upstream, stack));
        let client = going_round(&proxy).await;
        for _ in 0..5 {
            let response = proxy.ask("GET /other HTTP/1.1\r\nHost: t\r\n\r\n").await;
            assert_eq!(response.body, "good");
        }
        assert_eq!(proxy.server.in_flight(), 1);
        drop(client);
        proxy.until_idle().await;
        assert_eq!(proxy.metric(r#"mwl_requests_total{route="round",status="499"}"#), 1);
    }
    let lines: Vec<_> = upstream.requests().iter().map(|seen| seen.line().to_owned()).collect();
    let audits = lines.iter().filter(|line| line.contains("/audit")).count();
    assert_eq!((audits, lines.len()), (1, 11));
}

#[tokio::test]
async fn a_bound_ends_it() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let bound = "{ provider: 'mwl:provider.middleware/mwl/timeout/v1', onEntry: { with: { duration: PT0.1S } } }";
    let proxy = Proxy::start(&config(&upstream, bound));
    assert_eq!(proxy.ask("GET /round HTTP/1.1\r\nHost: t\r\n\r\n").await.status, 504);
}

#[tokio::test]
async fn the_end_of_the_process_ends_it() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    for stack in ["", AUDIT] {
        let proxy = Proxy::start(&config(&upstream, stack));
        let mut client = going_round(&proxy).await;
        let grace = Duration::from_millis(50);
        let (cut, response) = tokio::join!(proxy.server.drain(grace), client.response(false));
        assert_eq!((cut, response.status), (1, 503));
    }
}
