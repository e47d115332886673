//! A `Gather` that sends the client's own request to several upstreams.

use crate::support::proxy::Proxy;
use crate::support::upstream::{Upstream, always};

/// A route whose Flow sends the request to both upstreams at once, and returns the Results.
fn to_both(a: &Upstream, b: &Upstream) -> String {
    let call = |name: &str| {
        format!(
            "{{ provider: 'mwl:provider.call/mwl-proxy/http/v1', with: {{ upstream: {name} }} }}"
        )
    };
    format!(
        "upstreams:
  a: {{ endpoints: ['http://{}'] }}
  b: {{ endpoints: ['http://{}'] }}
routes:
  - name: r
    match: {{ pathPrefix: / }}
    flow:
      $schema: https://mwl.dev/v0.1/flow/schema.json
      entrypoint: fan
      steps:
        fan:
          action: Gather
          calls: [{}, {}]
          completion: {{ successes: 0, wait: true }}
          output: \"{{{{ step.results.map(r, r.type == 'success' ? string(r.value.status) : r.code) }}}}\"
          next: done
        done: {{ action: Return }}
",
        a.address,
        b.address,
        call("a"),
        call("b")
    )
}

fn put(size: usize) -> String {
    format!("PUT /a HTTP/1.1\r\nHost: t\r\nContent-Length: {size}\r\n\r\n{}", "b".repeat(size))
}

#[tokio::test]
async fn a_body_that_can_be_replayed_reaches_all_of_them() {
    let a = Upstream::play([always(200, "", "a")]).await;
    let b = Upstream::play([always(201, "", "b")]).await;
    let proxy = Proxy::start(&to_both(&a, &b));
    let response = proxy.ask(&put(65_536)).await;
    assert_eq!((response.status, response.body.as_str()), (200, r#"["200","201"]"#));
    for upstream in [&a, &b] {
        let seen = upstream.requests();
        assert_eq!((seen.len(), seen[0].body.len(), seen[0].whole), (1, 65_536, true));
        assert_eq!(seen[0].line(), "PUT /a HTTP/1.1");
    }
}

#[tokio::test]
async fn chunks_reach_all_of_them() {
    let a = Upstream::play([always(200, "", "a")]).await;
    let b = Upstream::play([always(201, "", "b")]).await;
    let proxy = Proxy::start(&to_both(&a, &b));
    let request = "PUT / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n";
    assert_eq!(proxy.ask(request).await.body, r#"["200","201"]"#);
    for upstream in [&a, &b] {
        assert_eq!(upstream.requests()[0].body, b"abcdef");
    }
}

#[tokio::test]
async fn trailers_reach_all_of_them() {
    let a = Upstream::play([always(200, "", "a")]).await;
    let b = Upstream::play([always(201, "", "b")]).await;
    let proxy = Proxy::start(&to_both(&a, &b));
    let request = "PUT / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 1\r\nHost: z\r\n\r\n";
    assert_eq!(proxy.ask(request).await.body, r#"["200","201"]"#);
    for upstream in [&a, &b] {
        let seen = &upstream.requests()[0];
        assert_eq!(
            (seen.body.as_slice(), &seen.trailers[..]),
            (&b"abc"[..], &["x-sum: 1".to_owned()][..])
        );
    }
}

#[tokio::test]
async fn a_body_beyond_the_replay_limit_reaches_none_and_each_says_so() {
    let a = Upstream::play([always(200, "", "a")]).await;
    let b = Upstream::play([always(201, "", "b")]).await;
    let proxy = Proxy::start(&to_both(&a, &b));
    let response = proxy.ask(&put(65_537)).await;
    let code = "Provider.Call.Http.BodyNotReplayable";
    assert_eq!(response.body, format!(r#"["{code}","{code}"]"#));
    assert!(a.requests().is_empty() && b.requests().is_empty());
}

#[tokio::test]
async fn a_request_without_a_body_reaches_all_of_them() {
    let a = Upstream::play([always(200, "", "a")]).await;
    let b = Upstream::play([always(201, "", "b")]).await;
    let proxy = Proxy::start(&to_both(&a, &b));
    let response = proxy.ask("GET /a HTTP/1.1\r\nHost: t\r\n\r\n").await;
    assert_eq!(response.body, r#"["200","201"]"#);
}
