//! What is known from one request to the next: breakers and limits, in virtual time.

use std::future::Future;
use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep};

use super::text;
use crate::support::h2;
use crate::support::piped::Piped;
use crate::support::proxy::Response;
use crate::support::upstream::{Act, Upstream, always};

const OPEN: &str = "Provider.Middleware.CircuitBreaker.Open";

/// A client of the proxy of a file with one endpoint, which answers so. Connections are kept while time passes.
fn piped(name: &str, acts: impl IntoIterator<Item = Act>) -> (Piped, Upstream) {
    let endpoint = regex::Regex::new(r#"endpoints: (\["[^"]*"\])"#).unwrap();
    let text = text(name);
    assert_eq!(endpoint.find_iter(&text).count(), 1, "{name}");
    let text = endpoint.replace(&text, "endpoints: $1, keepAlive: PT1H");
    let limits = "limits: { idleTimeout: PT1H, workers: 1 }";
    let (upstream, idle) = Upstream::piped(acts);
    (Piped::of_file(&format!("{limits}\n{text}"), idle), upstream)
}

/// Answers with these statuses in turn, the last one over and over.
fn statuses(all: &[u16]) -> Vec<Act> {
    all.iter().map(|status| always(*status, "", "upstream")).collect()
}

impl Piped {
    async fn asks(&mut self, method: &str) -> Response {
        let length = if method == "POST" { "Content-Length: 0\r\n" } else { "" };
        self.client.ask(&format!("{method} /a HTTP/1.1\r\nHost: t\r\n{length}\r\n")).await
    }

    /// The statuses of so many answers.
    async fn met(&mut self, method: &str, times: usize) -> Vec<u16> {
        let mut met = Vec::new();
        for _ in 0..times {
            met.push(self.asks(method).await.status);
        }
        met
    }
}

async fn seconds(seconds: u64) {
    sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn apisix_answers_502_for_twice_as_long_each_time() {
    let acts = [500, 503, 500, 500, 503, 200, 404, 500, 500, 500, 200];
    let (mut piped, upstream) = piped("apisix-api-breaker.yaml", statuses(&acts));
    assert_eq!(piped.met("GET", 4).await, [500, 503, 500, 502]);
    for (open, probe) in [(2, 500), (4, 503), (8, 200)] {
        seconds(open - 1).await;
        assert_eq!(piped.met("GET", 1).await, [502]);
        seconds(1).await;
        assert_eq!(piped.met("GET", 1).await, [probe]);
    }
    // One success closes it, and the next time begins with two seconds.
    assert_eq!(piped.met("GET", 5).await, [404, 500, 500, 500, 502]);
    seconds(2).await;
    assert_eq!(piped.met("GET", 1).await, [200]);
    assert_eq!(upstream.requests().len(), acts.len());
}

#[tokio::test(start_paused = true)]
async fn traefiks_breaker_opens_at_half_of_ten() {
    let acts = [[200; 5], [502; 5], [200; 5]].concat();
    let (mut piped, upstream) = piped("traefik-breaker.yaml", statuses(&acts));
    assert_eq!(piped.met("GET", 10).await, acts[..10]);
    let refused = piped.asks("GET").await;
    assert_eq!((refused.status, refused.json()["code"].clone()), (503, OPEN.into()));
    assert_eq!(refused.field("retry-after"), ["10"]);
    seconds(10).await;
    assert_eq!(piped.met("GET", 2).await, [200, 200]);
    assert_eq!(upstream.requests().len(), 12);
}

#[tokio::test(start_paused = true)]
async fn springs_breaker_leads_to_the_fallback_and_closes_after_three_probes() {
    let acts = [[500; 10], [200; 10]].concat();
    let (mut piped, upstream) = piped("spring-gateway.yaml", statuses(&acts));
    assert_eq!(piped.met("POST", 10).await, [500; 10]);
    let fallback = piped.asks("GET").await;
    assert_eq!((fallback.status, fallback.json()), (200, json!({ "from": "fallback" })));
    assert_eq!(upstream.requests().len(), 10);
    seconds(10).await;
    let state = r#"mwl_circuit_breaker_state{entry="service/0",route="service"}"#;
    for state_after in [1, 1, 0] {
        assert_eq!(piped.asks("GET").await.body, "upstream");
        assert_eq!(piped.metric(state), state_after);
    }
}

/// Asks over HTTP/2, without a bound for the answer. The status, and how long it took.
async fn ask(client: &mut h2::Client) -> impl Future<Output = (u16, f64)> + use<> {
    let begun = Instant::now();
    let (answer, _) = client.begin(h2::request("GET", "/a", &[]), true).await;
    async move {
        let answer = h2::whole(answer).await.unwrap();
        (answer.status, begun.elapsed().as_secs_f64())
    }
}

#[tokio::test(start_paused = true)]
async fn resilience4js_breaker_opens_after_five_calls() {
    let acts = [[503; 5], [200; 5]].concat();
    let (piped, upstream) = piped("resilience4j.yaml", statuses(&acts));
    let mut client = h2::Client::over(piped.client.stream).await;
    // Three attempts, ten seconds apart; then two, and the third finds it open.
    assert_eq!(ask(&mut client).await.await, (503, 20.0));
    assert_eq!(ask(&mut client).await.await, (503, 20.0));
    assert_eq!(upstream.requests().len(), 5);
    // It opened ten seconds ago. The next attempt is refused, and the one after it is the first of the probes.
    for took in [10.0, 0.0, 0.0, 0.0] {
        assert_eq!(ask(&mut client).await.await, (200, took));
    }
    assert_eq!(upstream.requests().len(), 9);
}

#[tokio::test(start_paused = true)]
async fn resilience4js_limits_let_two_at_once_and_five_a_second_pass() {
    const REQUESTS: usize = 16;
    let answer = [&b"HTTP/1.1 200 OK\r\n"[..], b"Content-Length: 0\r\n\r\n"];
    let parts = answer.iter().map(|part| part.to_vec()).collect();
    // An answer takes 0.2 s, and its connection is ready 0.2 s later.
    let (piped, upstream) =
        piped("resilience4j.yaml", [Act::Slowly(Duration::from_millis(200), parts)]);
    let mut client = h2::Client::over(piped.client.stream).await;
    let mut waiting = Vec::new();
    for _ in 0..REQUESTS {
        waiting.push(ask(&mut client).await);
    }
    let mut ends = futures_util::future::join_all(waiting).await;
    ends.sort_by(|one, other| one.1.total_cmp(&other.1));
    for (number, (status, at)) in (0_u32..).zip(ends) {
        // Two at once; the last one would wait for its turn for more than 2 s, and is tried again after ten.
        let wanted = if number == 15 { 10.2 } else { 0.2 + 0.4 * f64::from(number / 2) };
        assert!(status == 200 && (at - wanted).abs() < 0.01, "{number}: {at}, not {wanted}");
    }
    assert_eq!(upstream.requests().len(), REQUESTS);
}

#[tokio::test(start_paused = true)]
async fn daprs_breaker_opens_after_the_sixth_failure_for_five_minutes() {
    let acts = [[500; 6], [200; 6]].concat();
    let (mut piped, upstream) = piped("dapr.yaml", statuses(&acts));
    assert_eq!(piped.met("GET", 1).await, [500]);
    assert_eq!(upstream.requests().len(), 4);
    let second = piped.asks("GET").await;
    assert_eq!((second.status, upstream.requests().len()), (503, 6));
    seconds(299).await;
    assert_eq!(piped.asks("GET").await.json()["code"], OPEN);
    seconds(1).await;
    assert_eq!(piped.met("GET", 2).await, [200, 200]);
}
