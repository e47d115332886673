//! A cancellation from outside, in each place where an execution can be: what it interrupts, what still runs,
//! what the Result says, and when it comes. The random laws test the same in general; these are named cases.

use mwl_proxy::language::outcome::Outcome;
use serde_json::{Value as Json, json};

use crate::support::law::{
    CANCELLED, CLEANUP_LIMIT, EXCEEDED, SCRIPT, duration, ended, in_virtual_time, middleware,
};
use crate::support::script::Scripted;

/// The instant of the cancellation, in milliseconds.
const AT: u64 = 50;

/// A call of the scripted provider that takes this long and then fails with `code`, if there is one.
fn call(tag: &str, after: u64, code: Option<&str>) -> Json {
    let mut with = json!({ "tag": tag, "after": after });
    if let Some(code) = code {
        with["code"] = json!(code);
    }
    json!({ "provider": SCRIPT, "with": with })
}

fn finally(call: &Json) -> Json {
    json!({ "provider": middleware("finally"), "onAlways": { "with": { "call": call } } })
}

fn timeout(bound: u64) -> Json {
    json!({
        "provider": middleware("timeout"),
        "onEntry": { "with": { "duration": duration(bound) } },
    })
}

fn retry(attempts: u32, wait: u64) -> Json {
    json!({
        "provider": middleware("retry"),
        "onEntry": { "with": { "policies": [{
            "match": { "codes": ["*"] },
            "attempts": attempts,
            "backoff": { "initial": duration(wait) },
        }] } },
    })
}

/// A Flow with `step` and a Step after it, which also handles every failure.
fn flow(mut step: Json, stack: &[Json]) -> Json {
    step["next"] = json!("after");
    if step["action"] != "Sleep" {
        step["catch"] = json!([{ "match": { "codes": ["*"] }, "next": "after" }]);
    }
    json!({
        "entrypoint": "work",
        "middleware": stack,
        "steps": {
            "work": step,
            "after": { "action": "Call", "call": call("after", 0, None), "next": "done" },
            "done": { "action": "Return" },
        },
    })
}

/// A run that is cancelled at [`AT`]: the codes of the failure's chain (or `success`), the tags of the
/// dispatches, and when it ended.
fn cancelled(definition: Json) -> (Vec<String>, Vec<String>, u64) {
    in_virtual_time(async {
        let scripted = Scripted::new(Vec::new());
        let (outcome, ended) = ended(&scripted, definition, Some(AT)).await;
        let codes = match &outcome {
            Outcome::Success(_) => vec!["success".to_owned()],
            Outcome::Failure(failure) => {
                failure.chain().map(|link| link.code.to_string()).collect()
            }
        };
        (codes, scripted.tags(), ended)
    })
}

fn check(definition: Json, codes: &[&str], tags: &[&str], ended: u64) {
    let (seen_codes, seen_tags, seen_end) = cancelled(definition);
    assert_eq!((seen_codes, seen_tags, seen_end), (strings(codes), strings(tags), ended));
}

fn strings(all: &[&str]) -> Vec<String> {
    all.iter().map(|&one| one.to_owned()).collect()
}

#[test]
fn in_a_step() {
    let step = json!({ "action": "Call", "call": call("work", 100, None) });
    check(flow(step, &[]), &[CANCELLED], &["work"], AT);
}

/// The Result says that the work was cancelled, and not by whom or why.
#[test]
fn the_result_gives_no_reason() {
    let step = json!({ "action": "Call", "call": call("work", 100, None) });
    let outcome = in_virtual_time(async {
        ended(&Scripted::new(Vec::new()), flow(step, &[]), Some(AT)).await.0
    });
    let failure = outcome.to_value().to_json();
    let message = "the work was cancelled";
    assert_eq!(failure, json!({ "type": "cancellation", "code": CANCELLED, "message": message }));
}

#[test]
fn in_a_gap() {
    let step = json!({
        "action": "Call",
        "call": call("work", 10, Some("Script.A")),
        "middleware": [retry(3, 100)],
    });
    check(flow(step, &[]), &[CANCELLED], &["work"], AT);
}

#[test]
fn in_a_sleep() {
    let step = json!({ "action": "Sleep", "for": duration(100) });
    check(flow(step, &[]), &[CANCELLED], &[], AT);
}

#[test]
fn in_a_subflow() {
    let inner = flow(
        json!({ "action": "Call", "call": call("inner", 100, None) }),
        &[finally(&call("inner-cleanup", 4, None))],
    );
    let step = json!({
        "action": "Call",
        "call": { "flow": inner },
        "middleware": [finally(&call("cleanup", 6, None))],
    });
    check(flow(step, &[]), &[CANCELLED], &["inner", "inner-cleanup", "cleanup"], AT + 10);
}

#[test]
fn in_a_gather_in_flight() {
    let held = flow(
        json!({ "action": "Call", "call": call("held", 100, None) }),
        &[finally(&call("held-cleanup", 8, None))],
    );
    let step = json!({
        "action": "Gather",
        "calls": [call("quick", 10, None), call("slow", 100, None), { "flow": held }, call("never", 5, None)],
        "concurrency": 3,
    });
    let tags = ["quick", "slow", "held", "never", "held-cleanup"];
    check(flow(step, &[]), &[CANCELLED], &tags, AT + 8);
}

#[test]
fn in_a_gather_before_all_have_begun() {
    let step = json!({
        "action": "Gather",
        "calls": [call("first", 100, None), call("second", 100, None)],
        "concurrency": 1,
    });
    check(flow(step, &[]), &[CANCELLED], &["first"], AT);
}

#[test]
fn in_a_cleanup_which_may_finish() {
    let step = json!({ "action": "Call", "call": call("work", 40, None) });
    let step = flow(step, &[finally(&call("cleanup", 30, None))]);
    // By then the rest of the Flow is done: only the cleanup of the Flow's own stack is left.
    check(step, &[CANCELLED], &["work", "after", "cleanup"], 70);
}

#[test]
fn in_a_cleanup_which_fails() {
    let step = json!({ "action": "Call", "call": call("work", 40, None) });
    let step = flow(step, &[finally(&call("cleanup", 30, Some("Script.A")))]);
    check(step, &["Script.A", CANCELLED], &["work", "after", "cleanup"], 70);
}

#[test]
fn in_a_cleanup_beyond_its_limit() {
    let step = json!({ "action": "Call", "call": call("work", 40, None) });
    let step = flow(step, &[finally(&call("cleanup", 500, None))]);
    let tags = ["work", "after", "cleanup"];
    check(step, &[EXCEEDED, CANCELLED], &tags, AT + CLEANUP_LIMIT);
}

#[test]
fn while_a_bound_unwinds() {
    let step = json!({
        "action": "Call",
        "call": call("work", 100, None),
        "middleware": [timeout(40), finally(&call("cleanup", 20, None))],
    });
    // The bound fires at 40 and the cleanup runs until 60. The cancellation from outside takes precedence.
    check(flow(step, &[]), &[CANCELLED], &["work", "cleanup"], 60);
}

#[test]
fn while_a_bounded_cleanup_runs() {
    let cleanup = json!({
        "provider": middleware("finally"),
        "onAlways": { "with": {
            "call": call("cleanup", 500, None),
            "middleware": [timeout(10)],
        } },
    });
    let step =
        json!({ "action": "Call", "call": call("work", 100, None), "middleware": [cleanup] });
    check(flow(step, &[]), &[EXCEEDED, CANCELLED], &["work", "cleanup"], AT + 10);
}
