//! The examples of the documents of NoETL, Chevere and tower, and a Step Functions machine: imported, each behaves as its
//! document says. `docs/coming-from.md` has the same as Flows.

use mwl_proxy::import::Kind;

use super::{explained, plays, written};

#[test]
fn step_functions_ignores_a_task_that_failed_four_times() {
    let text = written(Kind::StepFunctions, "step-functions.json", 0, &["unsafe-retry"]);
    plays(
        &text,
        &[
            ("POST /orders", &["500", "refused", "200"], 3, &[-1.0, -2.0], 200),
            ("POST /orders", &["404"], 4, &[-1.0, -2.0, -4.0], 204),
            ("POST /orders", &["reset"], 4, &[-1.0, -2.0, -4.0], 204),
        ],
    );
}

#[test]
fn step_functions_selects_by_error() {
    let text = written(Kind::StepFunctions, "step-functions-by-error.json", 3, &["unsafe-retry"]);
    plays(
        &text,
        &[
            ("POST /charge", &["429"], 5, &[10.0, 15.0, 20.0, 20.0], 204),
            ("POST /charge", &["reset", "429", "200"], 3, &[10.0, 15.0], 200),
            ("POST /charge", &["402"], 1, &[], 402),
            ("POST /charge", &["500"], 1, &[], 204),
        ],
    );
}

/// What services in front of a database and of a program say.
const DEADLOCK: &str = "409,content-type=application/json,body={\"code\":\"40P01\"}";
const UNIQUE: &str = "409,content-type=application/json,body={\"code\":\"23505\"}";
const LATE: &str = "500,content-type=application/json,body={\"message\":\"Connection Timeout\"}";
const WRONG: &str = "500,content-type=application/json,body={\"message\":\"no such column\"}";

const BUSY: [f64; 9] = [2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

#[test]
fn noetl_retries_ten_times_and_fails_the_rest() {
    let text = written(Kind::Noetl, "noetl-fetch-page.yaml", 0, &[]);
    plays(
        &text,
        &[
            ("GET /items", &["429", "503", "200"], 3, &[2.0, 4.0], 200),
            ("GET /items", &["500"], 10, &BUSY, 500),
            ("GET /items", &["404"], 1, &[], 404),
            ("GET /items", &["reset"], 1, &[], 502),
        ],
    );
}

#[test]
fn noetl_has_three_rules_for_three_kinds_of_errors() {
    let text = written(Kind::Noetl, "noetl-three-rules.yaml", 0, &["unbounded-delay"]);
    let items = "GET /api/v1/items?page=1";
    plays(
        &text,
        &[
            (items, &["429", "429", "200"], 3, &[2.0, 4.0], 200),
            (items, &["503"], 10, &BUSY, 503),
            (items, &["401"], 1, &[], 401),
            (items, &["404"], 3, &[1.0, 2.0], 404),
            (items, &["reset", "refused", "200"], 3, &[1.0, 2.0], 200),
            (items, &["hang", "200"], 2, &[1.0], 200),
        ],
    );
}

#[test]
fn noetl_retries_what_a_database_says() {
    let text = written(Kind::Noetl, "noetl-postgres.yaml", 1, &[]);
    let store = "POST /rows";
    plays(
        &text,
        &[
            (store, &[DEADLOCK, DEADLOCK, "201"], 3, &[2.0, 4.0], 201),
            (store, &[DEADLOCK], 5, &[2.0, 4.0, 8.0, 16.0], 409),
            (store, &[UNIQUE], 1, &[], 409),
            (store, &["500,body=down"], 1, &[], 500),
        ],
    );
}

#[test]
fn noetl_retries_by_a_message() {
    let text = written(Kind::Noetl, "noetl-python.yaml", 1, &["unbounded-delay"]);
    plays(
        &text,
        &[
            ("POST /", &[LATE, LATE, "200"], 3, &[1.0, 2.0], 200),
            ("POST /", &[LATE], 3, &[1.0, 2.0], 500),
            ("POST /", &[WRONG], 1, &[], 500),
            ("POST /", &["500,body=Timeout"], 1, &[], 500),
        ],
    );
}

#[test]
fn noetl_breaks_jumps_and_goes_on() {
    let text = written(Kind::Noetl, "noetl-playbook.yaml", 1, &[]);
    plays(
        &text,
        &[
            ("GET /legacy", &["500", "502", "200"], 3, &[1.0, 2.0], 200),
            ("POST /legacy", &["500"], 5, &[1.0, 2.0, 4.0, 8.0], 500),
            ("GET /legacy", &["404"], 1, &[], 404),
            ("GET /items", &["404"], 1, &[], 204),
            ("GET /items", &["410"], 1, &[], 204),
            ("GET /items", &["502", "200,upstream=mirror.example.com"], 2, &[], 200),
            ("GET /items", &["429"], 3, &[1.0, 1.0], 429),
            ("GET /items", &["400"], 1, &[], 400),
            ("GET /mirror", &["503", "200"], 2, &[3.0], 200),
            ("GET /mirror", &["500"], 1, &[], 204),
        ],
    );
}

#[test]
fn cheveres_job_is_attempted_three_times() {
    let text = written(Kind::Chevere, "chevere-job.php", 0, &[]);
    plays(
        &text,
        &[
            ("POST /", &["500", "404", "200"], 3, &[1.0, 1.0], 200),
            ("POST /", &["500"], 3, &[1.0, 1.0], 500),
            ("POST /", &["hang"], 1, &[], 504),
        ],
    );
    assert!((explained(&text, "POST /", &["hang"]).took - 5.0).abs() < 0.001);
}

#[test]
fn cheveres_four_use_cases_have_their_own_attempts_waits_and_bounds() {
    let text = written(Kind::Chevere, "chevere-use-cases.php", 0, &[]);
    for (path, attempts, wait, bound) in [
        ("FetchApi", 3, 2.0, 10.0),
        ("DatabaseInsert", 5, 0.5, 5.0),
        ("UploadFile", 3, 1.0, 30.0),
        ("PaymentProcessor", 2, 5.0, 15.0),
    ] {
        let request = format!("POST /{path}");
        let met = explained(&text, &request, &["500"]);
        assert_eq!((met.attempts, met.status), (attempts, 500), "{path}: {met:?}");
        assert_eq!(met.waits, vec![wait; attempts - 1], "{path}");
        let met = explained(&text, &request, &["hang"]);
        assert_eq!((met.attempts, met.status), (1, 504), "{path}: {met:?}");
        assert!((met.took - bound).abs() < 0.001, "{path}: {met:?}");
        let met = explained(&text, &request, &["reset", "200"]);
        assert_eq!((met.attempts, met.status), (2, 200), "{path}: {met:?}");
    }
}

#[test]
fn cheveres_workflow_retries_each_job_by_itself() {
    let text = written(
        Kind::Chevere,
        "chevere-workflow.php",
        2,
        &["no-backoff", "no-backoff", "unbounded-call"],
    );
    plays(
        &text,
        &[
            ("POST /job1", &["500", "200"], 2, &[0.0], 200),
            ("POST /job1", &["500"], 2, &[0.0], 500),
            ("POST /job2", &["500", "500", "200"], 3, &[0.0, 0.0], 200),
            ("POST /job2", &["hang"], 1, &[], 504),
            ("POST /job3", &["500"], 1, &[], 500),
        ],
    );
}

#[test]
fn towers_two_orders_bound_all_attempts_or_each() {
    let text = written(Kind::Tower, "tower.rs.txt", 0, &[]);
    plays(
        &text,
        &[
            ("GET /total", &["503", "502", "503", "200"], 4, &[-0.1, -0.2, -0.4], 200),
            ("GET /total", &["503"], 4, &[-0.1, -0.2, -0.4], 503),
            ("GET /total", &["404"], 1, &[], 404),
            ("POST /total", &["503"], 1, &[], 503),
            ("POST /total", &["refused", "200"], 2, &[-0.1], 200),
            ("GET /total", &["hang"], 1, &[], 504),
            ("GET /each", &["hang", "200"], 2, &[-0.1], 200),
            ("POST /each", &["hang"], 1, &[], 504),
        ],
    );
    assert!((explained(&text, "GET /total", &["hang"]).took - 10.0).abs() < 0.001);
    assert!((explained(&text, "POST /each", &["hang"]).took - 2.0).abs() < 0.001);
    let each = explained(&text, "GET /each", &["hang"]);
    assert_eq!(each.attempts, 4, "{each:?}");
    assert!((8.0..9.0).contains(&each.took), "{each:?}");
}
