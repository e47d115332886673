//! Policies that people have published, in each system's own form.

use mwl_proxy::import::{Kind, import};

use super::{plays, written};

const SLOW: &str = "200,after=PT20M";

#[test]
fn istio_retries_any_5xx_ten_times() {
    let text = written(Kind::Istio, "istio-any-5xx.yaml", 0, &[]);
    let waits = [-0.025, -0.05, -0.1, -0.2, -0.25, -0.25, -0.25, -0.25, -0.25, -0.25];
    let waits: &[f64] = Box::leak(Box::new(waits));
    plays(
        &text,
        &[
            ("POST http://ratings/", &["500", "503", "200"], 3, &[-0.025, -0.05], 200),
            ("POST http://ratings/", &["200,after=PT0.006S", "200"], 2, &[-0.025], 200),
            ("GET http://ratings/", &["500"], 11, waits, 500),
            ("GET http://ratings/", &["reset", "200"], 2, &[-0.025], 200),
            ("GET http://ratings/", &["404"], 1, &[], 404),
        ],
    );
}

#[test]
fn an_istio_service_and_its_rule_become_a_route_and_an_upstream() {
    let text = written(Kind::Istio, "istio-service-and-rule.yaml", 2, &[]);
    let host = "POST http://orders.shop.svc.cluster.local/";
    plays(
        &text,
        &[
            (host, &["refused", "200"], 2, &[-0.025], 200),
            (host, &["409"], 4, &[-0.025, -0.05, -0.1], 409),
            (host, &["503"], 1, &[], 503),
            (host, &["reset"], 1, &[], 502),
            (host, &[SLOW], 1, &[], 504),
        ],
    );
}

#[test]
fn envoy_waits_as_a_throttled_response_says() {
    let text =
        written(Kind::Envoy, "envoy-throttling.yaml", 0, &["unbounded-delay", "unbounded-call"]);
    plays(
        &text,
        &[
            ("GET /q", &["429,retry-after=7", "429", "200"], 3, &[7.0, -0.05], 200),
            ("GET /q", &["429,retry-after=900", "200"], 2, &[60.0], 200),
            ("GET /q", &["429"], 4, &[-0.025, -0.05, -0.1], 429),
            ("GET /q", &[SLOW], 1, &[], 504),
            ("POST /q", &["429"], 1, &[], 429),
            ("GET /q", &["503"], 1, &[], 503),
        ],
    );
}

#[test]
fn envoy_retries_5xx_and_tries_that_take_too_long() {
    let text = written(Kind::Envoy, "envoy-hedging.yaml", 2, &[]);
    plays(
        &text,
        &[
            ("POST /", &[SLOW, "500", "200"], 3, &[-0.025, -0.05], 200),
            ("GET /", &["503"], 4, &[-0.025, -0.05, -0.1], 503),
        ],
    );
}

#[test]
fn envoy_gateway_retries_500_and_failed_connects() {
    let text = written(Kind::EnvoyGateway, "envoy-gateway.yaml", 0, &[]);
    plays(
        &text,
        &[
            ("POST /", &["500", "refused", "200"], 3, &[-0.1, -0.2], 200),
            ("GET /", &["500"], 6, &[-0.1, -0.2, -0.4, -0.8, -1.6], 500),
            ("GET /", &["503"], 1, &[], 503),
            ("GET /", &[SLOW], 1, &[], 504),
        ],
    );
}

#[test]
fn nginx_asks_the_next_server_for_what_may_be_sent_twice() {
    let text = written(Kind::Nginx, "nginx-two-servers.conf", 0, &["no-backoff"]);
    plays(
        &text,
        &[
            ("GET /", &["502", "200"], 2, &[0.0], 200),
            ("GET /", &["503"], 2, &[0.0], 503),
            ("POST /", &["502"], 1, &[], 502),
            ("POST /", &["refused", "200"], 2, &[0.0], 200),
            ("GET /", &["500"], 1, &[], 500),
            ("GET /", &["hang", "200"], 2, &[0.0], 200),
        ],
    );
}

#[test]
fn nginx_sends_a_post_again_where_it_says_so_and_answers_errors_with_a_page() {
    let text = written(Kind::Nginx, "nginx-any-method.conf", 0, &["no-backoff"]);
    let host = |method: &str| -> &'static str {
        Box::leak(format!("{method} http://shop.example.com/").into_boxed_str())
    };
    plays(
        &text,
        &[
            (host("POST"), &["500", "404", "200"], 3, &[0.0, 0.0], 200),
            (host("POST"), &["502"], 3, &[0.0, 0.0], 503),
            (host("GET"), &["504"], 3, &[0.0, 0.0], 503),
            (host("GET"), &["refused"], 3, &[0.0, 0.0], 503),
            (host("GET"), &["hang"], 3, &[0.0, 0.0], 503),
            (host("GET"), &["500"], 3, &[0.0, 0.0], 500),
            (host("GET"), &["401"], 1, &[], 401),
        ],
    );
}

#[test]
fn haproxy_retries_once_and_only_a_get() {
    let text = written(Kind::Haproxy, "haproxy-another-server.cfg", 2, &["no-backoff"]);
    plays(
        &text,
        &[
            ("GET /", &["500", "200"], 2, &[0.0], 200),
            ("GET /", &["hang", "200"], 2, &[0.0], 200),
            ("GET /", &["503"], 2, &[0.0], 503),
            ("POST /", &["503"], 1, &[], 503),
            ("POST /", &["refused", "200"], 2, &[0.0], 200),
            ("GET /", &["404"], 1, &[], 404),
        ],
    );
}

#[test]
fn haproxy_servers_that_want_a_proxy_header_get_one() {
    for (parameter, version) in [("send-proxy", "v1"), ("send-proxy-v2", "v2")] {
        let file = format!("listen all\n  bind :80\n  server a 10.0.0.1:80 {parameter}\n");
        let imported = import(Kind::Haproxy, "a.cfg", &file).unwrap();
        assert_eq!((&imported.errors[..], imported.lost.len()), (&[][..], 0), "{}", imported.text);
        assert!(
            imported.text.contains(&format!("proxyProtocol: {version}\n")),
            "{}",
            imported.text
        );
    }
}
