use std::net::IpAddr;

use super::*;
use crate::language::observe::Caught;
use crate::language::outcome::Failure;
use crate::language::provider::DelaySource;
use crate::language::provider::middleware::timeout;
use crate::language::temporal::Timestamp;
use crate::telemetry::trace::Context;

/// A request that ended after this time.
pub(in crate::telemetry) fn request_ref(id: &str) -> RequestRef<'_> {
    Request {
        id,
        request: RequestId([0, 0, 0, 0, 0, 0, 0, 7]),
        route: Some("pay"),
        client: IpAddr::from([10, 0, 0, 9]),
        method: "POST",
        path: "/pay",
        received: 5,
        at: Timestamp::from_nanos(1_700_000_000_250_000_000),
        trace: None,
    }
}

/// The same, kept.
pub(in crate::telemetry) fn request(id: &str) -> Request {
    request_ref(id).to_owned()
}

/// The same, traced.
pub(in crate::telemetry) fn traced(context: Context) -> RequestRef<'static> {
    let (host, scheme, version) = ("shop.example:8443", "http", "1.1");
    Request { trace: Some(Traced { context, host, scheme, version }), ..request_ref("r-1") }
}

/// The record of a request that had its Result, a success unless it `failed`, and these attempts.
pub(in crate::telemetry) fn execution<R>(
    request: R,
    failed: bool,
    answer: AnswerSummary,
    attempts: u32,
) -> Execution<R> {
    let recorder = Recorder::default();
    (1..=attempts).for_each(|number| recorder.attempt(attempt(number, answer.began, None)));
    if !failed {
        recorder.result(&Outcome::Success(crate::language::value::Value::Null));
    }
    recorder.answered(answer);
    recorder.finish(|_| request).unwrap()
}

pub(in crate::telemetry) fn answer(status: u16, began: Instant, millis: u64) -> AnswerSummary {
    AnswerSummary { status, began, took: Duration::from_millis(millis), sent: 12 }
}

pub(in crate::telemetry) fn attempt(number: u32, began: Instant, code: Option<&str>) -> Attempt {
    Attempt {
        call: Call { step: "pay".into(), number, dispatch: None, cleanup: false },
        upstream: "billing".into(),
        endpoint: "127.0.0.1:3000".into(),
        status: Some(if code.is_some() { 503 } else { 200 }),
        code: code.map(Into::into),
        interrupted: false,
        wait: None,
        began,
        took: Duration::from_millis(20),
        span: None,
    }
}

fn finish(recorder: &Recorder) -> Execution<RequestRef<'static>> {
    recorder.finish(|_| request_ref("r-1")).unwrap()
}

fn line(record: &Execution<RequestRef<'_>>) -> String {
    let mut line = Vec::new();
    record.line(&mut KnownSecond::default(), &mut line);
    String::from_utf8(line).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_record_tells_the_attempts_and_the_waits() {
    let begun = Instant::now();
    let recorder = Recorder::default();
    recorder.attempt(attempt(1, begun, Some("Provider.Call.Http.Unavailable")));
    tokio::time::advance(Duration::from_millis(1520)).await;
    let (delay, source) = (Duration::from_millis(1500), DelaySource::Override);
    let wait = Some(Wait { delay, source, policy: Some(0) });
    recorder.attempt(Attempt { wait, ..attempt(2, Instant::now(), None) });
    recorder.result(&Outcome::Success(crate::language::value::Value::Null));
    recorder.answered(answer(200, begun, 1540));
    let record = finish(&recorder);
    assert!(record.retried() && !record.failed());
    insta::assert_snapshot!(line(&record), @r#"{"time":"2023-11-14T22:13:20.25Z","execution":"r-1","request":"0000000000000007","route":"pay","client":"10.0.0.9","method":"POST","path":"/pay","status":200,"result":"success","code":null,"duration":1.54,"bytesIn":5,"bytesOut":12,"attempts":[{"step":"pay","attempt":1,"upstream":"billing","endpoint":"127.0.0.1:3000","status":503,"code":"Provider.Call.Http.Unavailable","began":0.0,"waited":null,"source":null,"took":0.02},{"step":"pay","attempt":2,"upstream":"billing","endpoint":"127.0.0.1:3000","status":200,"code":null,"began":1.52,"waited":1.5,"source":"override","took":0.02}]}"#);
}

#[tokio::test(start_paused = true)]
async fn a_failure_shows_its_chain_to_operators_alone() {
    let begun = Instant::now();
    let recorder = Recorder::default();
    let stopped = Attempt {
        interrupted: true,
        status: None,
        ..attempt(1, begun, Some("Provider.Middleware.Timeout.Exceeded"))
    };
    recorder.attempt(stopped);
    let lost = Arc::new(Failure::error("A.Lost", "x").with_retryable(true));
    let gone = Failure::superseding(&Arc::new(Failure::error("B.Gone", "secret")), Some(&lost));
    recorder.result(&Outcome::Failure(gone));
    recorder.result(&Outcome::Success(crate::language::value::Value::Null));
    recorder.answered(answer(504, begun, 30));
    let record = finish(&recorder);
    assert!(record.failed());
    let line: serde_json::Value = serde_json::from_str(&line(&record)).unwrap();
    assert_eq!((&line["result"], &line["code"]), (&"error".into(), &"B.Gone".into()));
    assert_eq!(line["attempts"][0]["code"], "Provider.Middleware.Timeout.Exceeded");
    assert_eq!(line["attempts"][0]["interrupted"], true);
    assert_eq!(line.get("failures"), None);
    assert_eq!(
        record.into_owned().to_json()["failures"],
        serde_json::json!([
            { "type": "error", "code": "B.Gone", "message": "secret" },
            { "type": "error", "code": "A.Lost", "message": "x", "retryable": true },
        ])
    );
}

#[tokio::test(start_paused = true)]
async fn an_execution_that_was_dropped_was_cancelled() {
    let recorder = Recorder::default();
    assert!(recorder.finish(|_| request("r")).is_none(), "never answered");
    recorder.answered(answer(CLIENT_CLOSED_REQUEST, Instant::now(), 1));
    let json = finish(&recorder).into_owned().to_json();
    assert_eq!((&json["code"], &json["status"]), (&"System.Cancelled".into(), &499.into()));
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_was_caught_degrades_a_success() {
    let lost = Arc::new(Failure::error("A.Lost", "secret"));
    let caught = Caught { step: "pay", failure: &lost, next: "apologize", cleanup: false };
    for (outcome, wanted) in [
        (Outcome::Success(crate::language::value::Value::Null), Kind::Degraded),
        (Failure::error("B.Gone", "x").into(), Kind::Failure),
    ] {
        let recorder = Recorder::default();
        recorder.caught(CaughtFailure::of(&caught));
        recorder.result(&outcome);
        recorder.answered(answer(200, Instant::now(), 1));
        let record = finish(&recorder);
        assert_eq!(record.kind(), wanted);
        let line: serde_json::Value = serde_json::from_str(&line(&record)).unwrap();
        let told = serde_json::json!([{ "step": "pay", "next": "apologize", "code": "A.Lost" }]);
        assert_eq!(line["caught"], told);
        assert_eq!(record.into_owned().to_json()["caught"][0]["failures"][0]["message"], "secret");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_broke_off_failed_whatever_the_result_was() {
    let lost = Failure::error("A.Lost", "x");
    for (outcome, wanted) in [
        (Outcome::Success(crate::language::value::Value::Null), &["Proxy.Broken"][..]),
        (lost.into(), &["Proxy.Broken", "A.Lost"]),
    ] {
        let recorder = Recorder::default();
        recorder.result(&outcome);
        recorder.broke_off("Proxy.Broken", "after 5 bytes");
        recorder.answered(answer(RESPONSE_TRUNCATED, Instant::now(), 1));
        let record = finish(&recorder);
        let codes: Vec<&str> = record.failures.iter().map(|cause| &*cause.code).collect();
        assert_eq!((record.failed(), codes.as_slice()), (true, wanted));
    }
}

#[tokio::test(start_paused = true)]
async fn a_provisional_record_is_one_where_something_came_of_it() {
    let begun = Instant::now();
    let came = |attempts: &[(u32, bool)], wanted: bool| {
        let recorder = Recorder::provisional();
        for (number, cleanup) in attempts {
            let mut attempt = attempt(*number, begun, None);
            attempt.call.cleanup = *cleanup;
            recorder.attempt(attempt);
        }
        if wanted {
            recorder.want();
        }
        recorder.answered(answer(200, begun, 1));
        recorder.finish(|_| request("r")).is_some()
    };
    assert!(!came(&[(1, false), (1, true)], false), "a call and its cleanup");
    assert!(came(&[(1, false), (2, false)], false), "a call that was made again");
    assert!(came(&[(1, false), (1, true)], true), "wanted");
}

#[tokio::test(start_paused = true)]
async fn a_bound_that_fired_says_when_and_how_long_it_was() {
    let begun = Instant::now();
    let recorder = Recorder::default();
    tokio::time::advance(Duration::from_millis(1250)).await;
    let emitted = timeout::exceeded(Duration::from_secs(1), "late");
    recorder.bound(FiredBound::of("pay/1".to_owned(), &emitted));
    recorder.answered(answer(504, begun, 1250));
    let told = serde_json::json!([{ "entry": "pay/1", "duration": "PT1S", "fired": 1.25 }]);
    let record = finish(&recorder);
    assert!(
        line(&record).contains(r#""bounds":[{"entry":"pay/1","duration":"PT1S","fired":1.25}]"#)
    );
    assert_eq!(record.into_owned().to_json()["bounds"], told);
}

#[tokio::test(start_paused = true)]
async fn records_are_bounded() {
    let begun = Instant::now();
    let recorder = Recorder::default();
    for number in 1..=200 {
        recorder.attempt(attempt(number, begun, Some("A")));
        let lost = Arc::new(Failure::error("A.Lost", "x"));
        let caught = Caught { step: "a", failure: &lost, next: "b", cleanup: false };
        recorder.caught(CaughtFailure::of(&caught));
        recorder.bound(FiredBound::of("a/0".to_owned(), &lost));
    }
    recorder.answered(answer(200, begun, 1));
    let record = finish(&recorder);
    assert_eq!((record.caught.len(), record.bounds.len()), (16, 16));
    let numbers: Vec<u32> = record.attempts.iter().map(|attempt| attempt.call.number).collect();
    let kept: Vec<u32> = (1..=32).chain(169..=200).collect();
    assert_eq!((numbers, record.omitted), (kept, 136));
    assert_eq!(record.into_owned().to_json()["attemptsOmitted"], 136);
    assert_eq!(short(&"é".repeat(2000)).len(), 2048);
    assert_eq!(short(&format!("x{}", "é".repeat(2000))).len(), 2047);
}
