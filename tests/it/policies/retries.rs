//! What each policy does with one request, as `explain` plays it, in virtual time.

use super::text;
use crate::import::{explained, plays};

#[test]
fn istio_retries_what_was_refused_and_conflicts() {
    plays(
        &text("istio-service-and-rule.yaml"),
        &[
            ("POST /a", &["refused", "409", "200"], 3, &[-0.025, -0.05], 200),
            ("POST /a", &["409"], 4, &[-0.025, -0.05, -0.1], 409),
            (
                "POST /a",
                &["200,content-type=application/grpc,grpc-status=14", "200"],
                2,
                &[-0.025],
                200,
            ),
            ("GET /a", &["503"], 1, &[], 503),
            ("GET /a", &["reset"], 1, &[], 502),
        ],
    );
    let took = explained(&text("istio-service-and-rule.yaml"), "GET /a", &["hang"]).took;
    assert!((took - 10.0).abs() < 0.001, "{took}");
}

#[test]
fn nginx_makes_two_tries_and_sends_no_post_again() {
    plays(
        &text("nginx-next-server.yaml"),
        &[
            ("GET /a", &["502", "200"], 2, &[0.01], 200),
            ("GET /a", &["hang", "200"], 2, &[0.01], 200),
            ("GET /a", &["503"], 2, &[0.01], 503),
            ("GET /a", &["500"], 1, &[], 500),
            ("POST /a", &["502"], 1, &[], 502),
            ("POST /a", &["refused", "200"], 2, &[0.01], 200),
        ],
    );
}

#[test]
fn haproxy_makes_one_more_attempt_of_a_get() {
    plays(
        &text("haproxy-another-server.yaml"),
        &[
            ("GET /a", &["500", "200"], 2, &[0.01], 200),
            ("GET /a", &["refused", "500"], 2, &[0.01], 500),
            ("GET /a", &["404"], 1, &[], 404),
            ("PUT /a", &["500"], 1, &[], 500),
            ("POST /a", &["reset"], 1, &[], 502),
            ("POST /a", &["refused", "200"], 2, &[0.01], 200),
        ],
    );
}

#[test]
fn traefik_makes_three_attempts_where_no_answer_came() {
    plays(
        &text("traefik-breaker.yaml"),
        &[
            ("GET /a", &["reset", "refused", "200"], 3, &[-0.1, -0.14], 200),
            ("GET /a", &["refused"], 3, &[-0.1, -0.14], 502),
            ("GET /a", &["503"], 1, &[], 503),
            ("POST /a", &["reset"], 1, &[], 502),
        ],
    );
}

#[test]
fn caddy_asks_for_fifteen_seconds() {
    let text = text("caddy-first-that-is-well.yaml");
    plays(&text, &[("GET /a", &["refused", "reset", "200"], 3, &[0.25, 0.25], 200)]);
    let met = explained(&text, "GET /a", &["refused"]);
    assert_eq!(met.status, 502, "{met:?}");
    assert!((14.0..=15.0).contains(&met.took) && met.attempts >= 59, "{met:?}");
}

#[test]
fn spring_retries_a_get_and_falls_back() {
    let text = text("spring-gateway.yaml");
    plays(
        &text,
        &[
            ("GET /a", &["503", "502", "200"], 3, &[0.1, 0.2], 200),
            // The fallback's.
            ("GET /a", &["503"], 4, &[0.1, 0.2, 0.4], 200),
            ("POST /a", &["503"], 1, &[], 503),
            ("POST /a", &["refused"], 1, &[], 200),
            ("GET /a", &["500"], 1, &[], 500),
        ],
    );
    let met = explained(&text, "GET /a", &["hang"]);
    assert_eq!((met.attempts, met.status), (1, 200), "{met:?}");
    assert!((met.took - 3.0).abs() < 0.001, "{met:?}");
}

#[test]
fn resilience4j_makes_three_calls_of_a_second_ten_seconds_apart() {
    let text = text("resilience4j.yaml");
    plays(
        &text,
        &[
            ("PUT /a", &["503", "refused", "200"], 3, &[10.0, 10.0], 200),
            ("GET /a", &["404"], 3, &[10.0, 10.0], 404),
        ],
    );
    let met = explained(&text, "GET /a", &["hang"]);
    assert_eq!((met.attempts, met.status), (3, 504), "{met:?}");
    assert!((met.took - 23.0).abs() < 0.001, "{met:?}");
}

#[test]
fn dapr_makes_three_retries_with_growing_waits() {
    let text = text("dapr.yaml");
    plays(
        &text,
        &[
            ("GET /a", &["429", "refused", "200"], 3, &[-0.5, -0.75], 200),
            ("GET /a", &["500"], 4, &[-0.5, -0.75, -1.125], 500),
            ("GET /a", &["404"], 1, &[], 404),
            ("POST /a", &["503"], 1, &[], 503),
        ],
    );
    let met = explained(&text, "GET /a", &["hang"]);
    assert_eq!((met.attempts, met.status), (4, 504), "{met:?}");
    assert!((240.0..243.0).contains(&met.took), "{met:?}");
}
