use std::time::Duration;

use super::*;
use crate::language::observe::{EntryPlace, Passed};
use crate::language::provider::middleware::retry::Retry;
use crate::language::provider::{AttemptId, DelaySource, EntryState};
use crate::language::value::Value;
use crate::telemetry::aside::aside;

fn subject(execution: &str) -> Subject<'_> {
    Subject { execution, request: RequestId([0, 0, 0, 0, 0, 0, 0, 7]), route: "pay" }
}

const ENTRY: EntryPlace<'_> = EntryPlace { step: "pay", stack: "pay", cleanup: false, position: 1 };

fn failure() -> Arc<Failure> {
    let details = Value::object([
        ("status", Value::from(503_u32)),
        ("policy", Value::from(1_u32)),
        ("attempts", Value::from(2_u32)),
    ]);
    Arc::new(Failure::error("A.B", "secret").with_details(details))
}

/// What happens to a failure that no policy takes, that a `catch` takes, and to a slip of the author.
fn rare(both: &dyn Observer) {
    let (middleware, state) = (&Retry::default(), &EntryState::default());
    let lost = &failure();
    let passed = Passed { entry: ENTRY, failure: lost, gated: false, middleware, state };
    both.on(&Event::PassedOver(&passed));
    let once = &Arc::new(Failure::error("A.B", "x").with_retryable(false));
    both.on(&Event::PassedOver(&Passed { failure: once, ..passed }));
    let caught = Caught { step: "pay", failure: lost, next: "apologize", cleanup: true };
    both.on(&Event::Caught(&caught));
    both.on(&Event::Faulted { step: "pay", failure: lost });
}

/// One test for everything, because the listeners belong to the process.
#[tokio::test(start_paused = true)]
async fn events_tell_what_happened_and_only_when_asked() {
    let route = Arc::from("pay");
    let begins = || Events::begin(|| (subject("0"), "GET", "/"), &route).is_some();
    assert!(!begins(), "nobody asks");
    let mut heard = listen();
    assert!(!aside(begins), "a rehearsal beside it");
    let events = Events::begin(|| (subject("1"), "POST", "/pay"), &route).unwrap();
    let attempt = Attempt {
        id: AttemptId(1),
        step: "pay",
        number: 1,
        role: Role::Step,
        dispatch: None,
        wait: None,
        begun: Instant::now(),
    };
    let failed = Outcome::Failure(failure());
    let both = ((), Some(&*events));
    let ended = |attempt: &Attempt<'_>, end| {
        let took = attempt.begun.elapsed();
        both.on(&Event::AttemptEnded(&Ended { attempt, end, took, destination: None }));
    };
    both.on(&Event::AttemptStarted(&attempt));
    tokio::time::advance(Duration::from_millis(250)).await;
    ended(&attempt, End::Accepted(&failed));
    both.on(&Event::RetryScheduled(&crate::language::observe::Retry {
        step: "pay",
        failure: &failure(),
        wait: Wait {
            delay: Duration::from_millis(1500),
            source: DelaySource::Override,
            policy: Some(1),
        },
        range: None,
        config: None,
    }));
    let second = Attempt { number: 2, begun: Instant::now(), ..attempt };
    both.on(&Event::AttemptStarted(&second));
    ended(&second, End::Interrupted(None));
    both.on(&Event::TimeoutExceeded { entry: ENTRY, emitted: &failure() });
    both.on(&Event::GaveUp { entry: ENTRY, failure: &failure() });
    let cleanup = Attempt { role: Role::Cleanup, number: 1, dispatch: Some(3), ..second };
    both.on(&Event::AttemptStarted(&cleanup));
    let answered = Outcome::Success(Value::object([("status", Value::from(204_u32))]));
    ended(&cleanup, End::Accepted(&answered));
    let outcome = Outcome::Success(Value::Null);
    both.on(&Event::CleanupDone { step: "pay", outcome: &outcome, caught: false });
    both.on(&Event::CleanupDone { step: "pay", outcome: &outcome, caught: true });
    rare(&both);
    events.done(&failed);
    drop(events);
    drop(Events::begin(|| (subject("1"), "POST", "/pay"), &route));
    let mut lines = Vec::new();
    while let Ok(event) = heard.0.try_recv() {
        assert_eq!((&event["execution"], &event["route"]), (&json!("1"), &json!("pay")));
        assert_eq!(event["request"], "0000000000000007");
        let mut event = event.as_object().unwrap().clone();
        event.retain(|key, _| !["execution", "request", "route", "time"].contains(&key.as_str()));
        lines.push(Json::Object(event).to_string());
    }
    insta::assert_snapshot!(lines.join("\n"), @r#"
    {"event":"execution.started","method":"POST","path":"/pay"}
    {"attempt":1,"event":"attempt.started","step":"pay"}
    {"attempt":1,"code":"A.B","duration":0.25,"event":"attempt.failed","status":503,"step":"pay","type":"error"}
    {"code":"A.B","delay":"PT1.5S","event":"retry.scheduled","policy":1,"source":"override","step":"pay"}
    {"attempt":2,"event":"attempt.started","step":"pay"}
    {"attempt":2,"code":"System.Cancelled","duration":0.0,"event":"attempt.failed","interrupted":true,"step":"pay"}
    {"code":"A.B","entry":"pay/1","event":"timeout.exceeded","step":"pay"}
    {"attempts":2,"code":"A.B","entry":"pay/1","event":"retry.exhausted","policy":1,"step":"pay"}
    {"attempt":1,"cleanup":true,"dispatch":3,"event":"attempt.started","step":"pay"}
    {"attempt":1,"cleanup":true,"dispatch":3,"duration":0.0,"event":"attempt.done","status":204,"step":"pay","type":"success"}
    {"event":"finally.done","step":"pay","type":"success"}
    {"degraded":true,"event":"finally.done","step":"pay","type":"success"}
    {"code":"A.B","entry":"pay/1","event":"retry.passed","reason":"noPolicy","step":"pay"}
    {"code":"A.B","entry":"pay/1","event":"retry.passed","reason":"noPolicy","retryable":false,"step":"pay"}
    {"cleanup":true,"code":"A.B","event":"failure.caught","next":"apologize","step":"pay"}
    {"code":"A.B","event":"definition.faulted","step":"pay"}
    {"attempts":2,"caught":1,"code":"A.B","duration":0.25,"event":"execution.done","type":"error"}
    {"event":"execution.started","method":"POST","path":"/pay"}
    {"attempts":0,"code":"System.Cancelled","duration":0.0,"event":"execution.done","type":"cancellation"}
    "#);
}
