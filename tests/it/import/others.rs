//! Published policies of systems without an importer, written by hand: `tests/import/written/`.

use super::{explained, plays, source};

fn written(name: &str) -> String {
    let text = source(&format!("written/{name}.yaml"));
    assert!(text.starts_with("# ") && text.contains("\n# What differs: "), "{name}");
    text
}

#[test]
fn kong_retries_errors_and_timeouts_five_times() {
    let text = written("kong");
    plays(
        &text,
        &[
            ("GET /", &["reset", "refused", "hang", "200"], 4, &[0.0, 0.0, 0.0], 200),
            ("GET /", &["refused"], 6, &[0.0, 0.0, 0.0, 0.0, 0.0], 502),
            ("POST /", &["reset"], 1, &[], 502),
            ("POST /", &["refused", "200"], 2, &[0.0], 200),
            ("GET /", &["503"], 1, &[], 503),
        ],
    );
    assert!((explained(&text, "POST /", &["hang"]).took - 5.0).abs() < 0.001);
}

#[test]
fn linkerd_bounds_each_try_and_all_of_them() {
    let text = written("linkerd");
    plays(
        &text,
        &[
            ("POST /books", &["500", "503", "200"], 3, &[-0.025, -0.05], 200),
            ("GET /books", &["500"], 3, &[-0.025, -0.05], 500),
            ("GET /books", &["200,after=PT0.4S", "200"], 2, &[-0.025], 200),
            ("GET /books", &["429"], 1, &[], 429),
        ],
    );
    let hanging = explained(&text, "GET /books", &["hang"]);
    assert_eq!((hanging.attempts, hanging.status), (3, 504), "{hanging:?}");
    assert!((0.9..1.0).contains(&hanging.took), "{hanging:?}");
}

#[test]
fn polly_waits_by_a_list_of_25() {
    let text = written("polly");
    let met = explained(&text, "PUT /jobs/1", &["503"]);
    assert_eq!((met.attempts, met.status), (26, 503), "{met:?}");
    let waits = (met.waits.first().copied(), met.waits.get(24).copied());
    assert_eq!(waits, (Some(30.0), Some(20.0 * 86_400.0)), "{met:?}");
    assert!(met.waits.is_sorted(), "{met:?}");
}

#[test]
fn argo_retries_for_a_minute_at_most() {
    let text = written("argo");
    plays(
        &text,
        &[
            ("PUT /work", &["500", "404", "200"], 3, &[1.0, 2.0], 200),
            ("PUT /work", &["500"], 6, &[1.0, 2.0, 4.0, 8.0, 16.0], 500),
            ("PUT /work", &["hang"], 1, &[], 504),
        ],
    );
}

#[test]
fn a_publisher_of_grpc_has_five_attempts_on_seven_statuses() {
    let text = written("grpc-service-config");
    let publish = "POST /google.pubsub.v1.Publisher/Publish";
    plays(
        &text,
        &[
            (
                publish,
                &["200,content-type=application/grpc,grpc-status=14", "200"],
                2,
                &[-0.1],
                200,
            ),
            (
                publish,
                &["200,content-type=application/grpc,grpc-status=8"],
                5,
                &[-0.1, -0.13, -0.169, -0.2197],
                200,
            ),
            (publish, &["200,content-type=application/grpc,grpc-status=5"], 1, &[], 200),
            (publish, &["hang"], 1, &[], 504),
        ],
    );
}
