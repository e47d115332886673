//! Laws of the middlewares: properties that hold for every script, whatever happens.

use std::collections::BTreeMap;
use std::time::Duration;

use mwl_proxy::language::outcome::Outcome;
use mwl_proxy::language::value::Value;
use proptest::prelude::*;
use serde_json::{Value as Json, json};

use crate::support::law::{SCRIPT, cases, ended, in_virtual_time};
use crate::support::script::{Scripted, Seen, Turn};

const RETRY: &str = "mwl:provider.middleware/mwl/retry/v1";
const TIMEOUT: &str = "mwl:provider.middleware/mwl/timeout/v1";
const LOOP: &str = "mwl:provider.middleware/mwl/loop/v1";
const FINALLY: &str = "mwl:provider.middleware/mwl/finally/v1";

/// The runs of the scripted target: how long each takes, in milliseconds, and the code with which it fails,
/// if any.
type Script = Vec<(u64, Option<&'static str>)>;

/// The outcome of a run, what the target saw, and how many milliseconds it took.
#[derive(Debug)]
struct Ran {
    outcome: Outcome,
    seen: Vec<Seen>,
    took: u64,
}

/// Runs a Flow of one Call Step, `call`, within `stack`.
fn run_call(call: &Json, stack: &[Json], script: &Script, cancel: Option<u64>) -> Ran {
    let definition = json!({
        "parameters": { "type": "object", "properties": {
            "a": { "default": 10 }, "b": { "default": 20 }, "c": { "default": 30 },
        } },
        "entrypoint": "work",
        "steps": {
            "work": { "action": "Call", "call": call, "middleware": stack, "next": "done" },
            "done": { "action": "Return" },
        },
    });
    in_virtual_time(async {
        let turns = script
            .iter()
            .map(|(after, code)| Turn { after: Duration::from_millis(*after), code: *code });
        let scripted = Scripted::new(turns.collect());
        let (outcome, took) = ended(&scripted, definition, cancel).await;
        let seen = std::mem::take(&mut *scripted.seen.lock().unwrap());
        Ran { outcome, seen, took }
    })
}

fn script(most: usize) -> impl Strategy<Value = Script> {
    let code = prop_oneof![Just("Script.A"), Just("Script.B"), Just("Script.C")];
    let turn = ((0..20_u64).prop_map(|half| 2 * half), proptest::option::weighted(0.7, code));
    proptest::collection::vec(turn, 1..=most)
}

// --- retries restore -----------------------------------------------------------------------------

/// An `assign`. It binds each name to a number, or to the value of another name plus one.
type Assign = BTreeMap<&'static str, Result<u32, &'static str>>;

fn assign() -> impl Strategy<Value = Assign> {
    let name = || prop_oneof![Just("a"), Just("b"), Just("c")];
    let value = prop_oneof![(0..9_u32).prop_map(Ok), name().prop_map(Err)];
    proptest::collection::btree_map(name(), value, 0..3)
}

fn written(assign: &Assign) -> Json {
    let value = |value: &Result<u32, &str>| match value {
        Ok(number) => json!(number),
        Err(other) => json!(format!("{{{{ vars.{other} + 1.0 }}}}")),
    };
    assign
        .iter()
        .map(|(name, made)| ((*name).to_owned(), value(made)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// The bindings that `assign` makes if these are the variables.
fn bound(assign: &Assign, vars: &BTreeMap<&'static str, u32>) -> BTreeMap<&'static str, u32> {
    let value = |made: &Result<u32, &str>| made.unwrap_or_else(|other| vars[other] + 1);
    assign.iter().map(|(name, made)| (*name, value(made))).collect()
}

proptest! {
    #![proptest_config(cases(300))]

    /// Each attempt begins with the variables at the entry, and with what the gap before it carried. The
    /// carried values are computed from what the failed attempt left.
    #[test]
    fn an_attempt_sees_the_entry_and_the_carry(
        entry in assign(), inside in assign(), arm in assign(), always in assign(), carry in assign(),
        failures in 0..6_usize, attempts in 1..6_u32,
    ) {
        let call = json!({
            "provider": SCRIPT,
            "input": "{{ vars }}",
            "onSuccess": {},
            "onFailure": { "assign": written(&arm) },
        });
        let retry = json!({
            "provider": RETRY,
            "onEntry": {
                "assign": written(&entry),
                "with": { "policies": [{ "match": { "codes": ["*"] }, "attempts": attempts }] },
            },
            "onFailure": { "assign": written(&carry) },
        });
        let inner = json!({
            "provider": TIMEOUT,
            "onEntry": { "assign": written(&inside), "with": { "duration": "PT1H" } },
            "onAlways": { "assign": written(&always) },
        });
        let mut turns = vec![(0, Some("Script.A")); failures];
        turns.push((0, None));
        let ran = run_call(&call, &[retry, inner], &turns, None);

        let mut vars = BTreeMap::from([("a", 10), ("b", 20), ("c", 30)]);
        vars.extend(bound(&entry, &vars));
        let restored = vars.clone();
        let runs = (failures + 1).min(usize::try_from(attempts).unwrap());
        prop_assert_eq!(ran.seen.len(), runs);
        for seen in &ran.seen {
            vars.extend(bound(&inside, &vars));
            prop_assert_eq!(seen.input.to_json(), Value::from(json!(vars)).to_json());
            vars.extend(bound(&arm, &vars));
            vars.extend(bound(&always, &vars));
            let carried = bound(&carry, &vars);
            vars.clone_from(&restored);
            vars.extend(carried);
        }
    }
}

// --- idle entries change nothing -----------------------------------------------------------------

/// Entries that never act, and entries that are gated off.
fn idle() -> impl Strategy<Value = Json> {
    let never = "{{ false }}";
    let policies = json!([{ "match": { "codes": ["Never.Raised"] }, "attempts": 3 }]);
    let cleanup = json!({ "call": { "provider": SCRIPT, "with": { "tag": "never" } } });
    proptest::sample::select(vec![
        json!({ "provider": RETRY, "onEntry": { "with": { "policies": policies } } }),
        json!({
            "provider": RETRY,
            "onEntry": { "when": never, "with": { "policies": [{ "match": { "codes": ["*"] }, "attempts": 3 }] } },
        }),
        json!({
            "provider": RETRY,
            "onEntry": { "with": { "policies": [{ "match": { "codes": ["*"] }, "attempts": 3 }] } },
            "onFailure": { "when": never },
        }),
        json!({ "provider": TIMEOUT, "onEntry": { "with": { "duration": "PT1H" } } }),
        json!({ "provider": TIMEOUT, "onEntry": { "when": never, "with": { "duration": "PT0S" } } }),
        json!({ "provider": LOOP, "onSuccess": { "when": never } }),
        json!({ "provider": FINALLY, "onAlways": { "when": never, "with": cleanup } }),
    ])
}

proptest! {
    #![proptest_config(cases(500))]

    #[test]
    fn a_stack_that_does_nothing_is_not_there(
        stack in proptest::collection::vec(idle(), 0..6),
        turns in script(1),
        cancel in proptest::option::weighted(0.3, (0..30_u64).prop_map(|half| 2 * half + 1)),
    ) {
        let call = json!({ "provider": SCRIPT });
        let bare = run_call(&call, &[], &turns, cancel);
        let within = run_call(&call, &stack, &turns, cancel);
        prop_assert_eq!(within.outcome, bare.outcome);
        prop_assert_eq!(within.seen, bare.seen);
        prop_assert_eq!(within.took, bare.took);
    }
}

// --- every cleanup once --------------------------------------------------------------------------

#[derive(Clone, Debug)]
enum Layer {
    Retry(u32),
    Timeout(u64),
    /// A cleanup that takes this long, and whether it fails.
    Finally(u64, bool),
}

fn layer() -> impl Strategy<Value = Layer> {
    prop_oneof![
        (1..4_u32).prop_map(Layer::Retry),
        (0..40_u64).prop_map(|half| Layer::Timeout(2 * half)),
        (0..30_u64, any::<bool>()).prop_map(|(half, fails)| Layer::Finally(2 * half, fails)),
    ]
}

fn entry((position, layer): (usize, &Layer)) -> Json {
    match layer {
        Layer::Retry(attempts) => json!({
            "provider": RETRY,
            "onEntry": { "with": { "policies": [{
                "match": { "codes": ["*"] }, "attempts": attempts, "backoff": { "initial": "PT0.004S" },
            }] } },
        }),
        Layer::Timeout(bound) => json!({
            "provider": TIMEOUT,
            "onEntry": { "with": { "duration": format!("PT0.{bound:03}S") } },
        }),
        Layer::Finally(after, fails) => {
            let mut with = json!({ "tag": position.to_string(), "after": after });
            if *fails {
                with["code"] = json!("Script.Cleanup");
            }
            let call = json!({ "provider": SCRIPT, "with": with });
            json!({ "provider": FINALLY, "onAlways": { "with": { "call": call } } })
        }
    }
}

proptest! {
    #![proptest_config(cases(1000))]

    /// A descent establishes all entries below the one that begins it, and none of them waits. So the entries
    /// between two retries are established together, each time the retry above them runs. Without a retry
    /// above that is once; without a retry below it is as often as the target runs.
    #[test]
    fn every_established_entry_cleans_up_once(
        layers in proptest::collection::vec(layer(), 1..7),
        turns in script(8),
        cancel in proptest::option::weighted(0.5, (0..100_u64).prop_map(|half| 2 * half + 1)),
    ) {
        let stack: Vec<Json> = layers.iter().enumerate().map(entry).collect();
        let ran = run_call(&json!({ "provider": SCRIPT }), &stack, &turns, cancel);
        let count = |tag: &str| ran.seen.iter().filter(|seen| seen.tag == tag).count();
        let mut segments: Vec<Vec<usize>> = vec![Vec::new()];
        for (position, layer) in layers.iter().enumerate() {
            match layer {
                Layer::Retry(_) => segments.push(Vec::new()),
                Layer::Finally(..) => segments.last_mut().unwrap().push(count(&position.to_string())),
                Layer::Timeout(_) => {}
            }
        }
        let mut outer = 1;
        for (number, segment) in segments.iter().enumerate() {
            let Some(first) = segment.first() else { continue };
            prop_assert!(segment.iter().all(|count| count == first), "{:?}", segments);
            prop_assert!(*first >= outer, "{:?}", segments);
            if number == 0 {
                prop_assert_eq!(*first, 1);
            }
            if number + 1 == segments.len() {
                prop_assert_eq!(*first, count(""));
            }
            outer = *first;
        }
    }

    /// A policy counts the failures that it handles, including that of the first run. After the last one it
    /// gives up.
    #[test]
    fn a_policy_handles_no_more_than_its_attempts(
        budgets in proptest::collection::vec((prop_oneof![
            Just("Script.A"), Just("Script.B"), Just("Script.*"), Just("*"),
        ], 1..4_usize), 1..4),
        turns in script(12),
    ) {
        let policies: Vec<_> = budgets
            .iter()
            .map(|(code, attempts)| json!({ "match": { "codes": [code] }, "attempts": attempts }))
            .collect();
        let retry = json!({ "provider": RETRY, "onEntry": { "with": { "policies": policies } } });
        let ran = run_call(&json!({ "provider": SCRIPT }), &[retry], &turns, None);
        let runs = ran.seen.len();
        let mut handled = vec![0; budgets.len()];
        for run in 0..runs {
            let (_, code) = turns[run.min(turns.len() - 1)];
            let Some(code) = code else {
                prop_assert_eq!(run + 1, runs, "a success ends it");
                prop_assert!(ran.outcome.is_success());
                continue;
            };
            let policy = budgets.iter().position(|(pattern, _)| match pattern.strip_suffix('*') {
                Some(prefix) => code.starts_with(prefix),
                None => code == *pattern,
            });
            let failure = ran.outcome.failure().map(|failure| failure.code.to_string());
            let Some(policy) = policy else {
                prop_assert_eq!(run + 1, runs, "no policy matches");
                prop_assert_eq!(failure.as_deref(), Some(code));
                continue;
            };
            handled[policy] += 1;
            prop_assert!(handled[policy] <= budgets[policy].1);
            if handled[policy] == budgets[policy].1 {
                prop_assert_eq!(run + 1, runs, "the budget is spent");
                prop_assert_eq!(failure.as_deref(), Some("Provider.Middleware.Retry.Exhausted"));
            } else {
                prop_assert!(run + 1 < runs, "the budget lasts");
            }
        }
    }
}
