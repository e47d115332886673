use std::time::Duration;

use tokio::time::Instant;

use super::{GET, OFTEN, asked, config, is_check, up, url};
use crate::support::proxy::Proxy;
use crate::support::upstream::{Act, Upstream, always};

/// Another configuration each time, with the same upstream.
fn generation(endpoints: &[String], keys: &str, number: usize) -> String {
    config(endpoints, keys).replace("name: r,", &format!("name: 'r{number}',"))
}

#[tokio::test]
async fn a_hundred_reloads_leave_endpoints_as_they_are() {
    let (bad, good) =
        (Upstream::play([always(500, "", "")]).await, Upstream::play([always(200, "", "")]).await);
    let drained = Upstream::play([always(200, "", "")]).await;
    let endpoints = [url(&bad), url(&good), url(&drained)];
    // One check within the test, and not one for each load.
    let keys = "ejection: { consecutiveFailures: 2, baseTime: PT5M }, health: { path: /healthz, interval: PT1H }";
    let proxy = Proxy::start(&generation(&endpoints, keys, 0));
    let name = drained.address.to_string();
    assert_eq!(proxy.server.runtime().drain(proxy.metrics.switches(), "u", &name, true), Some(1));
    for _ in 0..4 {
        proxy.ask(GET).await;
    }
    let summary = || proxy.server.runtime().upstream_summaries().remove(0);
    let states = || summary().endpoints.into_iter().map(|shown| shown.state).collect::<Vec<_>>();
    assert_eq!(states(), ["ejected", "up", "drained"]);
    let before = summary().endpoints.remove(0);
    let (tried, tasks) = (asked(&bad), proxy.server.tasks());
    for number in 1..=100 {
        proxy.replace(&generation(&endpoints, keys, number)).await;
        assert_eq!(proxy.ask(GET).await.status, 200);
    }
    assert_eq!(states(), ["ejected", "up", "drained"]);
    let after = summary().endpoints.remove(0);
    assert_eq!((after.until, after.attempts), (before.until, before.attempts));
    assert_eq!((asked(&bad), asked(&drained)), (tried, 0));
    assert!(proxy.server.tasks() <= tasks + 2, "{tasks} before");
    for upstream in [&bad, &good, &drained] {
        assert!(upstream.requests().iter().filter(|seen| is_check(seen)).count() <= 1);
    }
    // What changes the upstream begins anew, but for the drain, which is the operator's.
    proxy.replace(&generation(&endpoints, &keys.replace("PT1H", "PT2H"), 0)).await;
    assert_eq!(states(), ["up", "up", "drained"]);
    proxy.replace(&generation(&endpoints[..2], keys, 0)).await;
    proxy.replace(&generation(&endpoints, keys, 0)).await;
    assert_eq!(states(), ["up", "up", "drained"]);
    assert_eq!(proxy.server.runtime().drain(proxy.metrics.switches(), "u", &name, false), Some(1));
    assert_eq!(states(), ["up", "up", "up"]);
}

#[tokio::test]
async fn checks_end_with_their_upstream_and_so_do_its_series() {
    let upstream = Upstream::play([always(200, "", "")]).await;
    let other = Upstream::play([always(200, "", "")]).await;
    let proxy = Proxy::start(&config(&[url(&upstream)], OFTEN));
    upstream.until(|seen| seen.len() > 3).await;
    proxy.replace(&config(&[url(&other)], OFTEN)).await;
    other.until(|seen| seen.len() > 1).await;
    let checks = upstream.requests().len();
    other.until(|seen| seen.len() > 12).await;
    // One may have been under way.
    assert!(upstream.requests().len() <= checks + 1);
    proxy.metrics.render();
    assert!(!proxy.metrics.render().contains(&up(upstream.address)));
    assert!(proxy.metrics.render().contains(&up(other.address)));
}

/// Neither the drain nor the end of the process waits for a check.
#[tokio::test]
async fn a_check_that_hangs_holds_nothing_up() {
    let upstream = Upstream::play([Act::Hang]).await;
    let keys = "health: { path: /healthz, interval: PT0.01S, timeout: PT1H }";
    let proxy = Proxy::start(&config(&[url(&upstream)], keys));
    upstream.until(|seen| !seen.is_empty()).await;
    let begun = Instant::now();
    assert_eq!(proxy.server.drain(Duration::from_secs(30)).await, 0);
    proxy.server.end().await;
    drop(proxy);
    assert!(begun.elapsed() < Duration::from_secs(5));
    upstream.ended(1).await;
}
