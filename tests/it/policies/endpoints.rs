use super::policy;
use crate::support::upstream::{Act, Upstream, always};

const GET: &str = "GET /a HTTP/1.1\r\nHost: t\r\n\r\n";
const POST: &str = "POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\nhi";

#[tokio::test]
async fn envoy_never_asks_the_host_that_failed_again() {
    let one = Upstream::play([always(500, "", "one")]).await;
    let two = Upstream::play([Act::Hang]).await;
    let three = Upstream::play([always(200, "", "three")]).await;
    let addresses = [one.address, two.address, three.address];
    let proxy = policy("envoy-retry-other-host.yaml", &addresses, 20);
    for asked in 1..=20 {
        let answer = proxy.ask(GET).await;
        assert_eq!((answer.status, answer.body.as_str()), (200, "three"));
        assert_eq!(three.requests().len(), asked);
        assert!(one.requests().len() <= asked && two.requests().len() <= asked);
    }
    // A failure counts as load for a while, so that most requests begin at the host that answers.
    assert!(one.requests().len() + two.requests().len() >= 1, "nobody asked the hosts that fail");
}

#[tokio::test]
async fn envoys_retries_have_a_budget() {
    let down = Upstream::play([always(503, "", "down")]).await;
    let proxy = policy("envoy-retry-other-host.yaml", &[down.address; 3], 1);
    // A POST that may have been done is not done again.
    assert_eq!(proxy.ask(POST).await.status, 503);
    assert_eq!(down.requests().len(), 1);
    let mut client = proxy.connect().await;
    for _ in 0..60 {
        assert_eq!(client.ask(GET).await.body, "down");
    }
    // Ten a second, for the ten seconds that are counted.
    assert_eq!(down.requests().len(), 1 + 60 + 100);
    let spent = r#"mwl_retries_suppressed_total{reason="retryBudgetSpent",route="app"}"#;
    assert!(proxy.metric(spent) >= 60 - 100 / 3 - 1);
}
