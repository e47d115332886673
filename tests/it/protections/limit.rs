//! `concurrency-limit`.

use super::*;

const FULL: &str = "ConcurrencyLimit.Full";

fn limit(with: &Json) -> Json {
    own("concurrency-limit", with)
}

fn one() -> Json {
    limit(&json!({ "max": 1 }))
}

#[test]
fn further_runs_are_refused_or_wait_in_turn() {
    in_virtual_time(async {
        let played = Played::around(&json!([one()]), &[None]);
        let all = tokio::join!(played.run(), played.run(), played.run());
        assert_eq!(all, ("ok".to_owned(), FULL.to_owned(), FULL.to_owned()));
        assert_eq!(played.run().await, "ok");
        let queue = limit(&json!({ "max": 1, "queue": 1, "wait": "PT0.01S" }));
        let played = Played::around(&json!([queue]), &[None]);
        let all = tokio::join!(played.run(), played.run(), played.run());
        assert_eq!(all, ("ok".to_owned(), "ok".to_owned(), FULL.to_owned()));
        assert_eq!(played.calls(), 2);
    });
}

#[test]
fn who_waits_too_long_or_is_interrupted_leaves_the_queue() {
    in_virtual_time(async {
        let slow = |stack: &Json| {
            let call = json!({ "provider": SCRIPT, "with": { "tag": "a", "after": 100 } });
            let work =
                json!({ "action": "Call", "call": call, "middleware": stack, "next": "done" });
            let steps = json!({ "work": work, "done": { "action": "Return" } });
            Played::of(json!({ "entrypoint": "work", "steps": steps }), &[])
        };
        let queue = |wait| limit(&json!({ "max": 1, "queue": 1, "wait": wait }));
        let late = slow(&json!([queue("PT0.05S")]));
        assert_eq!(tokio::join!(late.run(), late.run()), ("ok".to_owned(), FULL.to_owned()));
        // The Timeout fires for both. Neither leaves anything behind.
        let cut = slow(&json!([timeout(50), queue("PT1M")]));
        let exceeded = short(EXCEEDED);
        assert_eq!(tokio::join!(cut.run(), cut.run()), (exceeded.clone(), exceeded));
        let again = slow(&json!([queue("PT1M")]));
        let begun = Instant::now();
        assert_eq!(tokio::join!(again.run(), again.run()), ("ok".to_owned(), "ok".to_owned()));
        assert_eq!(begun.elapsed().as_millis(), 200);
        // Whoever leaves while it runs gives its place to the next.
        let mut left = Box::pin(again.run());
        assert!(futures_util::poll!(&mut left).is_pending());
        let mut next = Box::pin(again.run());
        assert!(futures_util::poll!(&mut next).is_pending());
        let begun = Instant::now();
        drop(left);
        assert_eq!((next.await, begun.elapsed().as_millis()), ("ok".to_owned(), 100));
    });
}

/// Outside a Retry an operation holds one place, also while it waits for its next attempt; inside, each attempt takes one.
#[test]
fn its_place_decides_for_how_long_a_place_is_held() {
    in_virtual_time(async {
        let outside = Played::around(&json!([one(), retry(2, 100)]), &[Some(LOST), None]);
        let mut first = Box::pin(outside.run());
        assert!(futures_util::poll!(&mut first).is_pending());
        sleep(Duration::from_millis(50)).await;
        assert!(futures_util::poll!(&mut first).is_pending());
        assert_eq!(outside.run().await, FULL);
        assert_eq!(first.await, "ok");
        let inside = Played::around(&json!([retry(2, 100), one()]), &[Some(LOST), None]);
        let mut first = Box::pin(inside.run());
        assert!(futures_util::poll!(&mut first).is_pending());
        sleep(Duration::from_millis(50)).await;
        assert!(futures_util::poll!(&mut first).is_pending());
        assert_eq!(inside.run().await, "ok");
        assert_eq!(first.await, "ok");
    });
}

#[test]
fn each_key_has_places_of_its_own() {
    in_virtual_time(async {
        let keyed = limit(&json!({ "max": 1, "key": "{{ string(middleware.input) }}" }));
        let played = Played::around(&json!([keyed]), &[None]);
        assert_eq!(tokio::join!(played.run(), played.run()), ("ok".to_owned(), FULL.to_owned()));
        let absent = limit(&json!({ "max": 1, "key": "{{ null }}" }));
        let played = Played::around(&json!([absent]), &[None]);
        assert_eq!(tokio::join!(played.run(), played.run()), ("ok".to_owned(), FULL.to_owned()));
        let each = limit(&json!({ "max": 1, "key": "{{ execution.id }}" }));
        let played = Played::around(&json!([each]), &[None]);
        let other = async {
            let mut start = Start::new("another");
            let plan = played.plan.as_ref().unwrap();
            said(&run(plan, &mut start, Value::empty_object(), Value::from(7)).await)
        };
        assert_eq!(tokio::join!(played.run(), other), ("ok".to_owned(), "ok".to_owned()));
    });
}

#[test]
fn a_cleanup_takes_no_place_unless_it_is_meant() {
    in_virtual_time(async {
        let work = || json!({ "provider": SCRIPT, "with": { "tag": "a" } });
        let rate = own("rate-limit", &json!({ "rate": 1, "per": "PT1H" }));
        for (entry, refused) in [(one(), FULL), (rate, "RateLimit.Limited")] {
            let both = |cleanup| {
                let played = Played::cleaning(&entry, &work(), &cleanup, &[None]);
                async move { tokio::join!(played.run(), played.run()) }
            };
            let accident = json!({ "call": { "flow": "shared" } });
            assert_eq!(both(accident).await, ("ok".to_owned(), "ok".to_owned()));
            let meant = json!({ "call": { "provider": SCRIPT }, "middleware": [entry] });
            assert_eq!(both(meant).await, ("ok".to_owned(), refused.to_owned()));
        }
    });
}

#[test]
fn gated_off_it_is_transparent_and_phases_read_what_it_found() {
    in_virtual_time(async {
        let mut gated = one();
        gated["onEntry"]["when"] = json!(false);
        let played = Played::around(&json!([gated]), &[None]);
        assert_eq!(tokio::join!(played.run(), played.run()), ("ok".to_owned(), "ok".to_owned()));
        let mut queue = limit(&json!({ "max": 1, "queue": 1, "wait": "PT1S" }));
        let waited =
            "{{ has(middleware.metadata.waited) ? middleware.metadata.waited : 'at once' }}";
        queue["onSuccess"] = json!({ "value": waited });
        let played = Played::around(&json!([queue]), &[None]);
        let (first, second) = tokio::join!(played.outcome(), played.outcome());
        let value = |outcome: Outcome| match outcome {
            Outcome::Success(value) => value.to_string(),
            Outcome::Failure(failure) => panic!("{failure}"),
        };
        assert_eq!((value(first), value(second)), ("\"at once\"".into(), "\"PT0.001S\"".into()));
    });
}

#[test]
fn only_a_key_may_be_computed() {
    let computed = limit(&json!({ "max": "{{ 5 }}" }));
    assert_eq!(Played::around(&json!([computed]), &[]).plan.unwrap_err(), ["computed-state"]);
    let wrong = limit(&json!({ "key": "{{ execution.id }}" }));
    assert_eq!(Played::around(&json!([wrong]), &[]).plan.unwrap_err(), ["invalid-with"]);
    let wrong = limit(&json!({ "max": 5, "adaptive": {} }));
    assert_eq!(Played::around(&json!([wrong]), &[]).plan.unwrap_err(), ["invalid-with"]);
}
