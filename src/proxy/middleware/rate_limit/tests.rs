use super::*;
use crate::language::clock::Clock;
use crate::language::outcome::Outcome;
use crate::language::provider::{LoadId, Role};
use crate::language::temporal::Timestamp;
use crate::proxy::meaning;
use crate::source::Span as Place;

fn value(json: &serde_json::Value) -> Value {
    Value::from(json.clone())
}

/// An entry with these literal members of its `with`.
fn installed(known: &serde_json::Value) -> Arc<dyn Middleware> {
    let at = Installation {
        load: LoadId::next(),
        host: None,
        entry: "flow/0",
        cleanup: false,
        span: Place::default(),
        written: None,
        known: value(known),
        computed: Vec::new(),
        opaque: false,
    };
    let mut found = Diagnostics::default();
    let entry = make(Draws::of(None)).installed(&at, &mut found);
    assert!(found.0.is_empty(), "{found:?}");
    entry.unwrap()
}

/// What `onEntry` answers to this `with`, with its state.
fn entered(entry: &Arc<dyn Middleware>, with: &serde_json::Value) -> (Entry, EntryState) {
    let with = entry.prepare(Phase::Entry, &value(with)).unwrap();
    let mut state = EntryState::default();
    let clock = Clock::starting_at(Timestamp::from_nanos(0));
    let asker = Asker { host: None, role: Role::Step, clock, input: &Value::Null };
    let wants = entry.on_entry(&mut state, &with, asker).unwrap();
    (wants, state)
}

fn refused(wants: Entry) -> Arc<Failure> {
    let Entry::Substitute(Outcome::Failure(failure)) = wants else { panic!("{wants:?}") };
    failure
}

#[tokio::test(start_paused = true)]
async fn a_limit_lets_its_burst_pass_and_says_when_the_next_is_due() {
    let with = serde_json::json!({ "rate": 2, "per": "PT1S", "burst": 3 });
    let entry = installed(&with);
    for left in [2, 1, 0] {
        let (wants, state) = entered(&entry, &with);
        assert!(matches!(wants, Entry::Proceed), "{wants:?}");
        let remaining = entry.metadata(&state, "remaining");
        assert_eq!(remaining.unwrap(), Value::from(left));
    }
    let (wants, state) = entered(&entry, &with);
    let failure = refused(wants);
    insta::assert_snapshot!(failure.to_string(), @"Provider.Middleware.RateLimit.Limited: the limit of 2 per PT1S, at most 3 at once is used up; one more is due in PT0.5S");
    insta::assert_snapshot!(entry.decision(&state).unwrap(), @"refuses this run, the next is due in PT0.5S (2 per PT1S, at most 3 at once)");
    assert_eq!(failure.retryable, Some(true));
    let meaning = meaning::of(&failure).unwrap();
    assert_eq!(
        (meaning.status.as_u16(), meaning.retry_after),
        (429, Some(Duration::from_millis(500)))
    );
    let fields = meaning::fields(&failure).into_iter();
    let fields: Vec<String> =
        fields.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    assert_eq!(
        fields,
        [r#"ratelimit-policy: "default";q=2;w=1"#, r#"ratelimit: "default";r=0;t=1"#]
    );
    tokio::time::advance(Duration::from_millis(500)).await;
    assert!(matches!(entered(&entry, &with).0, Entry::Proceed));
}

#[tokio::test(start_paused = true)]
async fn keys_have_limits_of_their_own() {
    let with = |key: &str| serde_json::json!({ "rate": 1, "key": key });
    let entry = installed(&with("a"));
    assert!(matches!(entered(&entry, &with("a")).0, Entry::Proceed));
    assert!(matches!(entered(&entry, &with("b")).0, Entry::Proceed));
    refused(entered(&entry, &with("a")).0);
}

#[tokio::test(start_paused = true)]
async fn who_waits_has_a_turn_and_who_leaves_gives_it_back() {
    let with = serde_json::json!({ "rate": 1, "wait": "PT2S" });
    let entry = installed(&with);
    let waits = || match entered(&entry, &with) {
        (Entry::After(wait, _), state) => (wait.as_secs(), Some(state)),
        (Entry::Proceed, _) => (0, None),
        (wants, _) => {
            refused(wants);
            (99, None)
        }
    };
    assert_eq!(waits().0, 0);
    let (first, leaving) = waits();
    let (second, staying) = waits();
    assert_eq!((first, second, waits().0), (1, 2, 99));
    assert_eq!(
        entry.decision(leaving.as_ref().unwrap()).unwrap(),
        "lets this run wait PT1S for its turn (1 per PT1S)"
    );
    // Interrupted before its turn: the next who waits gets it.
    drop(leaving);
    assert_eq!(waits().0, 1, "the turn that was given back");
    tokio::time::advance(Duration::from_secs(2)).await;
    // Its turn has come, so there is nothing to give back.
    drop(staying);
    assert_eq!(waits().0, 1);
}

#[test]
fn what_is_no_limit_is_refused_with_what_is_wanted() {
    let wrong = |json: serde_json::Value| Limit::read(&value(&json)).unwrap_err().message.unwrap();
    assert_eq!(
        &*wrong(serde_json::json!({ "rate": 0 })),
        "`rate` must be an integer from 1 to 4294967295; it is number 0"
    );
    assert_eq!(
        &*wrong(serde_json::json!({ "rate": 1, "burst": 1.5 })),
        "`burst` must be an integer from 1 to 4294967295; it is number 1.5"
    );
    assert_eq!(
        &*wrong(serde_json::json!({ "rate": 1, "per": "PT0S" })),
        "`per` must be an ISO 8601 duration of at least PT0.000000001S; it is string \"PT0S\""
    );
    assert_eq!(
        &*wrong(serde_json::json!({ "rate": 1, "wait": "1s" })),
        "`wait` must be an ISO 8601 duration of at least PT0S; it is string \"1s\""
    );
}

/// A limit that a reload leaves as it is keeps what it counted; another one begins anew.
#[tokio::test(start_paused = true)]
async fn an_entry_keeps_its_counters_from_load_to_load() {
    let middleware = make(Draws::of(None));
    let load = |rate: u32| {
        let at = Installation {
            load: LoadId::next(),
            host: None,
            entry: "flow/0",
            cleanup: false,
            span: Place::default(),
            written: None,
            known: value(&serde_json::json!({ "rate": rate })),
            computed: Vec::new(),
            opaque: false,
        };
        middleware.installed(&at, &mut Diagnostics::default()).unwrap()
    };
    let with = serde_json::json!({ "rate": 1 });
    let first = load(1);
    assert!(matches!(entered(&first, &with).0, Entry::Proceed));
    // One that is compiled and then refused leaves nothing behind.
    drop(load(5));
    refused(entered(&load(1), &with).0);
    assert!(matches!(entered(&load(2), &with).0, Entry::Proceed));
}
