//! Random stacks of the four middlewares, and of one that acts at its entry, around a scripted target, compared with
//! a small recursive model of the specification. Both must have the same Result, the same runs, the same cleanups in
//! the same order, and the same virtual instants. The `onAlways` of every established entry runs exactly once.

mod model;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mwl_proxy::language::outcome::Outcome;
use proptest::prelude::*;
use serde_json::json;

use self::model::expected;
use crate::support::law::{SCRIPT, cases, duration, ended, in_virtual_time, middleware};
use crate::support::script::{Scripted, Turn};

#[derive(Clone, Debug)]
enum Layer {
    /// Retries `code` (`None`: any), with this many attempts and this delay in milliseconds.
    Retry {
        code: Option<&'static str>,
        attempts: u64,
        delay: u64,
    },
    Timeout {
        bound: u64,
    },
    Loop {
        times: u64,
    },
    /// A cleanup that takes this long and then fails with the code, if there is one.
    Finally {
        after: u64,
        code: Option<&'static str>,
    },
    /// Waits at entry, if so, and lets nobody in, if so: a failure with the code, or a success. `computed`: its block
    /// evaluates something. `in_place`: it decides in place.
    Gate {
        wait: Option<u64>,
        emit: Option<Vec<&'static str>>,
        computed: bool,
        in_place: bool,
    },
}

#[derive(Clone, Debug)]
struct Case {
    layers: Vec<Layer>,
    turns: Vec<(u64, Option<&'static str>)>,
    cancel: Option<u64>,
}

/// The outcome of a run: the codes of the failure's chain (empty for a success), the number of runs of the
/// target, in how many gates each of them was, how many are still in one, how many successes rose past gates, the
/// cleanups by layer, and when it ended.
#[derive(Debug, PartialEq)]
struct Observed {
    chain: Vec<String>,
    runs: usize,
    inside: Vec<usize>,
    left_inside: usize,
    successes: usize,
    cleanups: Vec<usize>,
    ended: u64,
}

// --- the engine ----------------------------------------------------------------------------------

/// Different ways to write the same work, so that the engine takes different paths through it: one call and
/// nothing else; or with a clause, an arm or a stack that never does anything.
#[derive(Clone, Copy, Debug)]
enum Form {
    Bare,
    Caught,
    Armed,
    Wrapped,
}

fn definition(case: &Case, form: Form) -> serde_json::Value {
    let mut definition = bare(case);
    let step = &mut definition["steps"]["work"];
    match form {
        Form::Bare => {}
        Form::Caught => {
            let never = json!({ "match": { "codes": ["Script.Never"] }, "next": "done" });
            step["catch"] = json!([never]);
        }
        Form::Armed => {
            step["call"]["onSuccess"] = json!({ "assign": { "ran": true } });
        }
        Form::Wrapped => {
            let provider = "mwl:provider.middleware/mwl/timeout/v1";
            let hour = json!({ "with": { "duration": "PT1H" } });
            let door = json!({ "provider": "mwl:provider.middleware/test/door/v1" });
            definition["middleware"] = json!([{ "provider": provider, "onEntry": hour }, door]);
        }
    }
    definition
}

fn bare(case: &Case) -> serde_json::Value {
    let entry = |(position, layer): (usize, &Layer)| match layer {
        Layer::Retry { code, attempts, delay } => {
            let mut policy = json!({
                "match": { "codes": [code.unwrap_or("*")] },
                "attempts": attempts,
            });
            if *delay > 0 {
                policy["backoff"] = json!({ "initial": duration(*delay) });
            }
            json!({
                "provider": middleware("retry"),
                "onEntry": { "with": { "policies": [policy] } },
            })
        }
        Layer::Timeout { bound } => json!({
            "provider": middleware("timeout"),
            "onEntry": { "with": { "duration": duration(*bound) } },
        }),
        Layer::Loop { times } => json!({
            "provider": middleware("loop"),
            "onSuccess": { "when": format!("{{{{ middleware.metadata.iteration < {times} }}}}") },
        }),
        Layer::Gate { wait, emit, computed, in_place } => {
            let name = if *in_place { "door" } else { "gate" };
            let mut with = json!({});
            if let Some(wait) = wait {
                with["wait"] = json!(wait);
            }
            if let Some(emit) = emit {
                with["emit"] = json!(emit.first());
            }
            let mut block = json!({ "with": with });
            if *computed {
                block["when"] = json!("{{ middleware.input == middleware.input }}");
                block["assign"] = json!({ "entered": true });
            }
            let provider = format!("mwl:provider.middleware/test/{name}/v1");
            json!({ "provider": provider, "onEntry": block })
        }
        Layer::Finally { after, code } => {
            let mut with = json!({ "tag": position.to_string(), "after": after });
            if let Some(code) = code {
                with["code"] = json!(code);
            }
            json!({
                "provider": middleware("finally"),
                "onAlways": { "with": { "call": {
                    "provider": SCRIPT,
                    "with": with,
                } } },
            })
        }
    };
    let stack: Vec<_> = case.layers.iter().enumerate().map(entry).collect();
    json!({
        "entrypoint": "work",
        "steps": {
            "work": {
                "action": "Call",
                "call": { "provider": SCRIPT },
                "middleware": stack,
                "next": "done",
            },
            "done": { "action": "Return" },
        },
    })
}

async fn observed(case: &Case, form: Form) -> Observed {
    let turns = case
        .turns
        .iter()
        .map(|(after, code)| Turn { after: Duration::from_millis(*after), code: *code });
    let scripted = Scripted::new(turns.collect());
    let (outcome, ended) = ended(&scripted, definition(case, form), case.cancel).await;
    let chain = match &outcome {
        Outcome::Success(_) => Vec::new(),
        Outcome::Failure(failure) => failure.chain().map(|link| link.code.to_string()).collect(),
    };
    let tags = scripted.tags();
    let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
    Observed {
        chain,
        inside: std::mem::take(&mut *scripted.inside.lock().unwrap()),
        left_inside: count(&scripted.passages.inside),
        successes: count(&scripted.passages.successes),
        runs: tags.iter().filter(|tag| tag.is_empty()).count(),
        cleanups: tags.iter().filter_map(|tag| tag.parse().ok()).collect(),
        ended,
    }
}

// --- the cases -----------------------------------------------------------------------------------

fn code() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("Script.A"), Just("Script.B")]
}

/// All waits are even and the instant of the cancellation is odd, so that they never coincide: which of them
/// a task sees first would depend on the test's scheduling, not on the engine.
fn even(most: u64) -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), (1..=most).prop_map(|half| 2 * half)]
}

fn gate() -> impl Strategy<Value = Option<Vec<&'static str>>> {
    let failure = proptest::option::weighted(0.7, code());
    proptest::option::weighted(0.4, failure.prop_map(|code| code.into_iter().collect()))
}

fn layer() -> impl Strategy<Value = Layer> {
    prop_oneof![
        3 => (proptest::option::of(code()), 1..4_u64, even(15))
            .prop_map(|(code, attempts, delay)| Layer::Retry { code, attempts, delay }),
        3 => even(60).prop_map(|bound| Layer::Timeout { bound }),
        1 => (1..4_u64).prop_map(|times| Layer::Loop { times }),
        3 => (even(30), proptest::option::weighted(0.3, Just("Script.Cleanup")))
            .prop_map(|(after, code)| Layer::Finally { after, code }),
        4 => (proptest::option::weighted(0.3, even(15)), gate(), (0..4_u8))
            .prop_map(|(wait, emit, form)| Layer::Gate {
                wait,
                emit,
                computed: form == 0,
                in_place: form > 1,
            }),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let turn = (even(25), proptest::option::weighted(0.6, code()));
    (
        proptest::collection::vec(layer(), 0..6),
        proptest::collection::vec(turn, 1..8),
        proptest::option::weighted(0.4, (0..100_u64).prop_map(|half| 2 * half + 1)),
    )
        .prop_map(|(layers, turns, cancel)| Case { layers, turns, cancel })
}

proptest! {
    #![proptest_config(cases(3000))]

    #[test]
    fn a_random_stack_agrees_with_the_model(case in case()) {
        for form in [Form::Bare, Form::Caught, Form::Armed, Form::Wrapped] {
            let observed = in_virtual_time(observed(&case, form));
            prop_assert_eq!(observed, expected(&case, form), "{:?}", form);
        }
    }
}
