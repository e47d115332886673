use super::*;
use crate::language::clock::Clock;
use crate::language::definition::{SCHEMA_URI, Strictness, compile};
use crate::language::outcome::Outcome;
use crate::language::provider::Role;
use crate::language::temporal::Timestamp;
use crate::proxy::meaning;
use crate::source::{Format, Sources};

fn value(json: &serde_json::Value) -> Value {
    Value::from(json.clone())
}

fn read(json: &serde_json::Value) -> Result<Injection, String> {
    Injection::read(&value(json)).map_err(|failure| failure.message.unwrap().to_string())
}

/// Nobody in particular.
fn asker() -> Asker<'static> {
    let clock = Clock::starting_at(Timestamp::from_nanos(0));
    Asker { host: None, role: Role::Step, clock, input: &Value::Null }
}

/// What `onEntry` answers, and what it says of that.
fn entered(json: &serde_json::Value) -> (Entry, String) {
    let fault = Fault { draws: Draws::of(Some(0)) };
    let with = fault.prepare(Phase::Entry, &value(json)).unwrap();
    let mut state = EntryState::default();
    let entry = fault.on_entry(&mut state, &with, asker()).unwrap();
    (entry, fault.decision(&state).unwrap())
}

#[test]
fn a_fault_waits_and_fails() {
    let (entry, said) = entered(&serde_json::json!({ "share": 1, "delay": "PT2S", "status": 503 }));
    let Entry::After(wait, then) = entry else { panic!("{entry:?}") };
    let Entry::Substitute(Outcome::Failure(failure)) = *then else { panic!("{then:?}") };
    assert_eq!(wait, Duration::from_secs(2));
    assert_eq!(failure.code, INJECTED);
    assert_eq!(failure.retryable, Some(true));
    assert_eq!(said, "injects 503 after PT2S (100% of the runs)");
    let meaning = meaning::of(&failure).unwrap();
    assert_eq!((meaning.status.as_u16(), meaning.withheld), (503, false));
}

#[test]
fn a_fault_of_no_share_never_happens_and_a_delay_alone_goes_on() {
    let (entry, said) = entered(&serde_json::json!({ "share": 0, "reset": true }));
    assert!(matches!(entry, Entry::Proceed), "{entry:?}");
    assert_eq!(said, "lets this run pass (0% of the runs get a reset)");
    let (entry, said) = entered(&serde_json::json!({ "share": 1, "delay": "PT1S", "key": "k" }));
    assert!(matches!(&entry, Entry::After(_, then) if matches!(**then, Entry::Proceed)));
    assert_eq!(said, "injects a wait of PT1S (100% of the keys)");
}

#[test]
fn a_reset_is_answered_by_nothing() {
    let (entry, _) = entered(&serde_json::json!({ "share": 1, "reset": true }));
    let Entry::Substitute(Outcome::Failure(failure)) = entry else { panic!("{entry:?}") };
    assert!(meaning::of(&failure).unwrap().withheld);
    assert_eq!(meaning::of(&Failure::error("A.B", "x")), None);
}

#[test]
fn a_draw_has_its_share() {
    let fault = Fault { draws: Draws::of(Some(7)) };
    let with = value(&serde_json::json!({ "share": 0.2, "status": 500 }));
    let with = fault.prepare(Phase::Entry, &with).unwrap();
    let happens = |_: &u32| {
        let mut state = EntryState::default();
        fault.on_entry(&mut state, &with, asker()).unwrap();
        fault.metadata(&state, "injected") == Some(Value::Bool(true))
    };
    let share = (0..10_000).filter(happens).count();
    assert!((1_900..2_100).contains(&share), "{share}");
}

#[test]
fn a_key_decides_the_same_each_time_and_a_larger_share_adds_keys() {
    let keys: Vec<f64> = (0..10_000).map(|number| hashed(&format!("user-{number}"))).collect();
    for share in [0.01, 0.1, 0.5, 0.9] {
        let within = keys.iter().filter(|drawn| **drawn < share).count();
        #[expect(clippy::cast_precision_loss, reason = "at most ten thousand")]
        let seen = within as f64 / 10_000.0;
        assert!((seen - share).abs() < 0.015, "{share}: {seen}");
    }
    // The same number in every process and release: a key that was spared stays so.
    assert_eq!(format!("{:.6} {:.6}", hashed("user-1"), hashed("")), "0.256393 0.936769");
    assert!(keys.iter().all(|drawn| (0.0..1.0).contains(drawn)));
}

#[test]
fn what_is_no_fault_is_refused_with_what_is_wanted() {
    for (with, wanted) in [
        (
            serde_json::json!({ "share": 1 }),
            "a fault does nothing without a `delay`, a `status` or a `reset`",
        ),
        (
            serde_json::json!({ "share": 1, "reset": false }),
            "a fault does nothing without a `delay`, a `status` or a `reset`",
        ),
        (
            serde_json::json!({ "share": 1, "status": 500, "reset": true }),
            "a fault has a `status` or a `reset`, not both",
        ),
        (
            serde_json::json!({ "share": 2, "reset": true }),
            "`share` must be a number from 0 to 1; it is number 2",
        ),
        (
            serde_json::json!({ "share": 1, "status": 200 }),
            "`status` must be a status from 400 to 599; it is number 200",
        ),
        (
            serde_json::json!({ "share": 1, "delay": "5s" }),
            "`delay` must be an ISO 8601 duration such as PT0.5S; it is string \"5s\"",
        ),
        (
            serde_json::json!({ "share": 1, "delay": "-PT5S" }),
            "`delay` must be an ISO 8601 duration such as PT0.5S; it is string \"-PT5S\"",
        ),
        (
            serde_json::json!({ "share": 1, "reset": true, "key": 5 }),
            "`key` must be a string; it is number 5",
        ),
    ] {
        assert_eq!(read(&with).unwrap_err(), wanted, "{with}");
    }
}

#[test]
fn a_fault_in_words() {
    let fault = Fault { draws: Draws::of(None) };
    let said = |json: &serde_json::Value| {
        let with = fault.prepare(Phase::Entry, &value(json)).unwrap();
        fault.describe(Phase::Entry, Arguments::Prepared(&with)).unwrap()
    };
    assert_eq!(
        said(&serde_json::json!({ "share": 0.25, "status": 429 })),
        "429, in 25% of the runs"
    );
    let keyed = serde_json::json!({ "share": 0.5, "delay": "PT1S", "reset": true, "key": "k" });
    assert_eq!(said(&keyed), "a reset after PT1S, in 50% of the keys");
}

/// The codes of what `check` says of a stack with a fault that has these arguments, and of its block's other keys.
fn checked(with: &str, more: &str) -> Vec<&'static str> {
    let text = format!(
        "$schema: {SCHEMA_URI}
middleware:
  - provider: mwl:provider.middleware/mwl-proxy/fault/v1
    onEntry: {{ with: {{ {with} }}{more} }}
entrypoint: a
steps: {{ a: {{ action: Return }} }}
"
    );
    let node = Sources::default().parse("f.yaml", &text, Format::Yaml).unwrap();
    let catalog = crate::proxy::middleware::catalog(None);
    let found = match compile(&node, &catalog, Strictness::Load) {
        Ok((_, warnings)) => warnings,
        Err(errors) => errors,
    };
    found.0.iter().map(|diagnostic| diagnostic.code).collect()
}

#[test]
fn check_warns_of_a_fault_that_always_happens_and_of_a_wait_without_a_bound() {
    assert_eq!(checked("share: 1, status: 503", ""), ["constant-fault"]);
    let gated = ", when: \"{{ has(execution.platform) }}\"";
    assert_eq!(checked("share: 1, status: 503", gated), [""; 0]);
    assert_eq!(checked("share: 1, delay: PT1S", ""), [""; 0]);
    let computed = r#"share: 0.5, delay: "{{ middleware.input.wait }}""#;
    assert_eq!(checked(computed, ""), ["unbounded-delay"]);
    let keyed = r#"share: 0.5, delay: PT1S, key: "{{ execution.id }}""#;
    assert_eq!(checked(keyed, ""), [""; 0]);
    assert_eq!(checked("share: 1.5, reset: true", ""), ["invalid-with"]);
    assert_eq!(checked("delay: PT1S", ""), ["invalid-with"]);
}
