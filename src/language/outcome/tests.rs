//! Chains of failures, paths into Results, and round trips.

use super::*;

fn failure(code: &'static str) -> Arc<Failure> {
    Arc::new(Failure::error(code, code))
}

fn codes(failure: &Failure) -> Vec<String> {
    failure.chain().map(|link| link.code.to_string()).collect()
}

#[test]
fn superseding_links_at_the_end_of_the_chain() {
    let inner = Failure::superseding(&failure("B"), Some(&failure("A")));
    let outer = Failure::superseding(&inner, Some(&failure("Z")));
    assert_eq!(codes(&outer), ["B", "A", "Z"]);
}

#[test]
fn a_chain_is_cut_and_says_so() {
    let mut chain = failure("first");
    for _ in 0..200 {
        chain = Failure::superseding(&failure("next"), Some(&chain));
    }
    assert_eq!(chain.chain().count(), MAX_CHAIN);
    let last = chain.chain().last().unwrap();
    assert_eq!(last.code, system::FAILURE_CHAIN_TRUNCATED);
}

#[test]
fn an_envelope_survives_the_round_trip_through_a_value() {
    let made = Failure::superseding(&failure("B"), Some(&failure("A")));
    let read = Failure::from_value(&made.to_value()).unwrap();
    assert_eq!(read, *made);
}

#[test]
fn a_path_reads_what_the_whole_value_holds() {
    let details = Value::object([("retryAfter", Value::from("PT2S"))]);
    let inner = Failure::error("A", "first").with_details(details).with_retryable(true);
    let chained = Failure::superseding(&failure("B"), Some(&Arc::new(inner)));
    let success = Outcome::Success(Value::object([("a", Value::from(1))]));
    for outcome in [Outcome::Failure(chained), success] {
        let whole = outcome.to_value();
        for path in [
            "",
            "type",
            "code",
            "value",
            "value a",
            "value b",
            "value a c",
            "type x",
            "details",
            "previous",
            "previous code",
            "previous details retryAfter",
            "previous retryable",
            "previous details other",
            "previous previous",
            "previous message x",
            "other",
        ] {
            let path: Vec<Arc<str>> = path.split_whitespace().map(Arc::from).collect();
            assert_eq!(outcome.at(&path), whole.at(&path), "{path:?}");
        }
    }
}

#[test]
fn a_success_is_not_a_failure() {
    let success = Outcome::Success(Value::Null).to_value();
    assert_eq!(Failure::from_value(&success), None);
}
