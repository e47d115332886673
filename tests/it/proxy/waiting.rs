//! How long an attempt waits for the head of its response.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::support::piped::Piped;
use crate::support::proxy::Response;
use crate::support::upstream::{Act, always};

const GET: &str = "GET /a HTTP/1.1\r\nHost: t\r\n\r\n";

/// Less than the bound: a client of these tests waits only ten seconds for its answer.
const PATIENCE: Duration = Duration::from_secs(55);

/// The answer to `request`, which comes when the bound has fired.
async fn late(piped: &mut Piped, request: &str) -> Response {
    piped.client.send(request).await;
    sleep(PATIENCE).await;
    piped.client.response(false).await
}

#[tokio::test(start_paused = true)]
async fn a_response_that_does_not_begin_in_time_is_a_504() {
    let (mut piped, upstream) = Piped::before([Act::Hang], "", "    exposeFailures: true\n");
    let begun = Instant::now();
    let response = late(&mut piped, GET).await;
    assert_eq!(begun.elapsed().as_secs(), 60);
    assert_eq!(response.status, 504);
    assert_eq!(response.field("proxy-status"), ["mwl-proxy; error=http_response_timeout"]);
    let failure = &response.json()["failures"][0];
    assert_eq!(failure["code"], "Provider.Call.Http.ResponseTimeout");
    assert_eq!(failure["details"]["requestSent"], "complete");
    // Nobody waits for what its connection might bring.
    assert_eq!(upstream.requests().len(), 1);
    upstream.ended(1).await;
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_client_that_is_still_sending_does_not_count() {
    let (mut piped, _upstream) = Piped::before([always(200, "", "good")], "", "");
    let begun = Instant::now();
    piped.client.send("POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\n\r\n").await;
    for byte in ["a", "b", "c", "d"] {
        sleep(Duration::from_secs(50)).await;
        piped.client.send(byte).await;
    }
    let response = piped.client.response(false).await;
    assert_eq!((response.status, begun.elapsed().as_secs()), (200, 200));
}

#[tokio::test(start_paused = true)]
async fn it_begins_when_the_request_is_sent() {
    let (mut piped, _upstream) = Piped::before([Act::Hang], "", "");
    let begun = Instant::now();
    piped.client.send("POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\na").await;
    sleep(Duration::from_secs(40)).await;
    piped.client.send("b").await;
    sleep(PATIENCE).await;
    assert_eq!(piped.client.response(false).await.status, 504);
    assert_eq!(begun.elapsed().as_secs(), 100);
}
