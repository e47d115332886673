//! `circuit-breaker`.

use super::*;

const OPEN: &str = "CircuitBreaker.Open";

fn breaker() -> Json {
    own("circuit-breaker", &json!({ "consecutive": 3, "openFor": "PT10S" }))
}

#[test]
fn it_opens_and_a_probe_closes_it() {
    in_virtual_time(async {
        let turns = [Some(LOST), Some(LOST), Some(LOST), Some(LOST), None];
        let played = Played::around(&json!([breaker()]), &turns);
        let lost = "Http.ConnectionClosed";
        assert_eq!(played.runs(5).await, [lost, lost, lost, OPEN, OPEN]);
        assert_eq!(played.calls(), 3);
        sleep(Duration::from_secs(10)).await;
        // The probe fails, and the next one succeeds.
        assert_eq!(played.runs(2).await, [lost, OPEN]);
        sleep(Duration::from_secs(10)).await;
        assert_eq!(played.runs(3).await, ["ok", "ok", "ok"]);
        assert_eq!(played.calls(), 7);
    });
}

#[test]
fn a_failure_says_when_to_ask_again_and_a_retry_outside_can_wait_for_it() {
    in_virtual_time(async {
        let turns = [Some(LOST), Some(LOST), Some(LOST), None];
        let mut retry = retry(5, 100);
        let delay =
            "{{ has(middleware.result.details) ? middleware.result.details.retryAfter : null }}";
        retry["onFailure"] = json!({ "with": { "delay": delay } });
        let played = Played::around(&json!([retry, breaker()]), &turns);
        let begun = Instant::now();
        assert_eq!(played.run().await, "ok");
        // Three attempts with their waits; the fourth is refused; the fifth is the probe.
        assert_eq!((played.calls(), begun.elapsed().as_millis()), (4, 10_000 + 203 + 1));
    });
}

/// Inside a Retry it sees each attempt; outside, each operation, by what the Retry gave up on.
#[test]
fn its_place_decides_what_it_counts() {
    in_virtual_time(async {
        let inside = Played::around(&json!([retry(5, 1), breaker()]), &[Some(LOST)]);
        let outcome = inside.outcome().await;
        assert_eq!(chain(&outcome)[..2], ["Retry.Exhausted", OPEN]);
        assert_eq!(inside.calls(), 3);
        let outside = Played::around(&json!([breaker(), retry(5, 1)]), &[Some(LOST)]);
        assert_eq!(outside.runs(4).await[2..], ["Retry.Exhausted", OPEN]);
        assert_eq!(outside.calls(), 15);
    });
}

/// A Timeout inside it is a failure that counts. One outside interrupts, and what is interrupted says nothing.
#[test]
fn it_counts_the_timeouts_inside_it() {
    in_virtual_time(async {
        let slow = |stack: &Json| {
            let call = json!({ "provider": SCRIPT, "with": { "tag": "a", "after": 100 } });
            let work =
                json!({ "action": "Call", "call": call, "middleware": stack, "next": "done" });
            let steps = json!({ "work": work, "done": { "action": "Return" } });
            Played::of(json!({ "entrypoint": "work", "steps": steps }), &[])
        };
        let exceeded = short(EXCEEDED);
        let inside = slow(&json!([breaker(), timeout(10)]));
        assert_eq!(inside.runs(4).await, [&*exceeded, &exceeded, &exceeded, OPEN]);
        let outside = slow(&json!([timeout(10), breaker()]));
        assert_eq!(outside.runs(6).await, [&*exceeded; 6]);
    });
}

#[test]
fn a_probe_that_is_interrupted_gives_its_place_to_another() {
    in_virtual_time(async {
        let script: Vec<_> = [Some(LOST); 3].into_iter().chain([None]).collect();
        let played = Played::around(&json!([breaker()]), &script);
        played.runs(3).await;
        sleep(Duration::from_secs(10)).await;
        let mut probe = Box::pin(played.run());
        assert!(futures_util::poll!(&mut probe).is_pending());
        assert_eq!(played.run().await, OPEN);
        // Its client has left.
        drop(probe);
        assert_eq!(played.runs(2).await, ["ok", "ok"]);
    });
}

#[test]
fn gated_off_it_is_transparent_and_counts_nothing() {
    in_virtual_time(async {
        let mut gated = breaker();
        gated["onEntry"]["when"] = json!("{{ frame.input != 7.0 }}");
        let played = Played::around(&json!([gated]), &[Some(LOST)]);
        assert_eq!(played.runs(6).await, ["Http.ConnectionClosed"; 6]);
        // So is a phase that counts.
        let mut deaf = breaker();
        deaf["onFailure"] = json!({ "when": false });
        let played = Played::around(&json!([deaf]), &[Some(LOST)]);
        assert_eq!(played.runs(6).await, ["Http.ConnectionClosed"; 6]);
    });
}

#[test]
fn a_catch_takes_its_failure_and_phases_read_its_state() {
    in_virtual_time(async {
        let mut breaker = breaker();
        breaker["onAlways"] = json!({ "assign": { "state": "{{ middleware.metadata.state }}" } });
        let work = json!({
            "action": "Call", "call": { "provider": SCRIPT }, "middleware": [breaker], "next": "done",
            "catch": [{ "match": { "codes": ["Provider.Middleware.CircuitBreaker.Open"] }, "next": "kept" }],
        });
        let steps = json!({
            "work": work,
            "done": { "action": "Return", "value": "{{ vars.state }}" },
            "kept": { "action": "Return", "value": "{{ vars.state + ', ' + failure.details.state }}" },
        });
        let script: Vec<_> = [Some(LOST); 3].into_iter().chain([None]).collect();
        let played = Played::of(json!({ "entrypoint": "work", "steps": steps }), &script);
        played.runs(3).await;
        let value = async || match played.outcome().await {
            Outcome::Success(value) => value.to_string(),
            Outcome::Failure(failure) => panic!("{failure}"),
        };
        assert_eq!(value().await, r#""open, open""#);
        sleep(Duration::from_secs(10)).await;
        assert_eq!([value().await, value().await], [r#""halfOpen""#, r#""closed""#]);
    });
}

/// A cleanup that calls the same Flow as a Step is let through, and counts nothing. In the cleanup's own stack a breaker
/// is meant for it.
#[test]
fn a_cleanup_is_never_refused_by_accident() {
    in_virtual_time(async {
        let work = json!({ "flow": "shared" });
        let of = |cleanup| Played::cleaning(&breaker(), &work, &cleanup, &[Some(LOST)]);
        let played = of(json!({ "call": { "flow": "shared" } }));
        // Steps 3, cleanups 8.
        played.runs(8).await;
        assert_eq!(played.calls(), 11);
        let played = of(json!({ "call": { "provider": SCRIPT }, "middleware": [breaker()] }));
        played.runs(8).await;
        assert_eq!(played.calls(), 6);
    });
}

#[test]
fn entries_of_one_name_share_a_state_and_must_agree() {
    in_virtual_time(async {
        let named = |consecutive| {
            own("circuit-breaker", &json!({ "name": "shop", "consecutive": consecutive }))
        };
        let of = |first: Json, second: Json| {
            let step = |stack: Json, next| {
                json!({ "action": "Call", "call": { "provider": SCRIPT }, "middleware": [stack], "next": next,
                        "catch": [{ "match": { "codes": ["*"] }, "next": next }] })
            };
            let second = json!({ "action": "Call", "call": { "provider": SCRIPT }, "middleware": [second], "next": "done" });
            let steps =
                json!({ "one": step(first, "two"), "two": second, "done": { "action": "Return" } });
            Played::of(json!({ "entrypoint": "one", "steps": steps }), &[Some(LOST)])
        };
        let shared = of(named(3), named(3));
        assert_eq!(shared.runs(2).await, ["Http.ConnectionClosed", OPEN]);
        assert_eq!(shared.calls(), 3);
        let apart = of(breaker(), breaker());
        assert_eq!(apart.runs(2).await, ["Http.ConnectionClosed"; 2]);
        assert_eq!(of(named(3), named(4)).plan.unwrap_err(), ["conflicting-state"]);
    });
}

#[test]
fn what_it_keeps_is_made_at_load() {
    let computed = own("circuit-breaker", &json!({ "consecutive": "{{ 3 }}" }));
    assert_eq!(Played::around(&json!([computed]), &[]).plan.unwrap_err(), ["computed-state"]);
    let wrong = own("circuit-breaker", &json!({ "share": 0.5, "consecutive": 3 }));
    assert_eq!(Played::around(&json!([wrong]), &[]).plan.unwrap_err(), ["invalid-with"]);
    let wrong = own("circuit-breaker", &json!({ "failures": {} }));
    assert_eq!(Played::around(&json!([wrong]), &[]).plan.unwrap_err(), ["invalid-with"]);
}
