use std::sync::Arc;
use std::time::Duration;

use mwl_proxy::telemetry::switches::SwitchKind;

use super::one_route;
use crate::support::proxy::Proxy;
use crate::support::stack::retry;
use crate::support::upstream::{Upstream, always};

const GET: &str = "GET /a HTTP/1.1\r\nHost: t\r\n\r\n";
const RETRY: &str = concat!("    middleware:\n", retry!("match: { codes: ['*'] }, attempts: 3"));

fn suppressed(proxy: &Proxy) -> u64 {
    proxy.metric(r#"mwl_retries_suppressed_total{reason="switchedOff",route="r"}"#)
}

fn off(proxy: &Proxy, length: Duration) {
    proxy.metrics.switches().set(SwitchKind::Retries, &Arc::from("r"), Some(length));
}

#[tokio::test]
async fn retries_that_an_operator_has_switched_off_are_not_made() {
    let upstream = Upstream::run(|number, _| always(503, "", &format!("no {number}"))).await;
    let proxy = Proxy::start(&one_route(&upstream, RETRY));
    assert_eq!(proxy.ask(GET).await.body, "no 2");
    off(&proxy, Duration::from_hours(1));
    // The client gets the upstream's own response.
    let answer = proxy.ask(GET).await;
    assert_eq!((answer.status, answer.body.as_str()), (503, "no 3"));
    assert_eq!(suppressed(&proxy), 1);
    // A reload leaves the switch as it is, also one that changes the route.
    proxy.replace(&one_route(&upstream, &RETRY.replace("attempts: 3", "attempts: 4"))).await;
    assert_eq!(proxy.ask(GET).await.body, "no 4");
    assert_eq!(suppressed(&proxy), 2);
    proxy.metrics.switches().clear(SwitchKind::Retries, &Arc::from("r"));
    assert_eq!(proxy.ask(GET).await.body, "no 8");
    assert_eq!(suppressed(&proxy), 2);
}

/// Failures that no upstream made are run again, too, and other routes go on.
#[tokio::test]
async fn a_switch_concerns_every_retry_of_its_route_and_no_other() {
    let upstream = Upstream::run(|_, _| always(503, "", "")).await;
    let config = format!(
        "upstreams: {{ u: {{ endpoints: ['http://{}'] }} }}
routes:
  - name: r
    match: {{ path: /a }}
    flow:
      entrypoint: s
      middleware:
{}      steps: {{ s: {{ action: Raise, result: {{ code: Own.Failure }} }} }}
  - name: other
    upstream: u
{RETRY}",
        upstream.address,
        retry!("match: { codes: ['*'] }, attempts: 3")
    );
    let proxy = Proxy::start(&config);
    off(&proxy, Duration::from_hours(1));
    let answer = proxy.ask(GET).await;
    assert_eq!(answer.json()["code"], "Provider.Middleware.Retry.Exhausted");
    assert_eq!(answer.json()["attempts"], 0);
    assert_eq!(suppressed(&proxy), 1);
    assert_eq!(proxy.ask("GET /b HTTP/1.1\r\nHost: t\r\n\r\n").await.status, 503);
    assert_eq!(upstream.requests().len(), 3);
}

/// What a cleanup does must be done, also while an operator spares an upstream.
#[tokio::test]
async fn the_retries_of_cleanups_go_on() {
    let upstream = Upstream::run(|_, _| always(200, "", "good")).await;
    let told = Upstream::play([always(503, "", ""), always(200, "", "")]).await;
    let audit = "    middleware:
      - provider: mwl:provider.middleware/mwl/finally/v1
        onAlways:
          with:
            call:
              flow:
                entrypoint: tell
                steps:
                  tell:
                    action: Call
                    call:
                      provider: mwl:provider.call/mwl-proxy/http/v1
                      input: null
                      with: { upstream: told, method: POST, path: /told }
                    middleware:
                      - provider: mwl:provider.middleware/mwl/retry/v1
                        onEntry: { with: { policies: [{ match: { codes: ['*'] }, attempts: 3 }] } }
                    next: told
                  told: { action: Return }
";
    let config = one_route(&upstream, audit).replace(
        "upstreams: {",
        &format!("upstreams: {{ told: {{ endpoints: ['http://{}'] }},", told.address),
    );
    let proxy = Proxy::start(&config);
    off(&proxy, Duration::from_hours(1));
    assert_eq!(proxy.ask(GET).await.body, "good");
    assert_eq!(told.requests().len(), 2);
    assert_eq!(suppressed(&proxy), 0);
}
