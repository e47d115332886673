//! An attempt keeps its identity from its beginning to its end, whatever runs beside it under the same name.
//!
//! Every Step that calls is named `one`, in Gathers of such Steps, in Gathers of those, each with a Retry of its own and
//! under Retries around all of it. How long an attempt took and what it had waited for is known from the script, by
//! which no two attempts are alike.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mwl_proxy::language::engine::{Start, run};
use mwl_proxy::language::observe::{End, Event, Observer};
use mwl_proxy::language::provider::AttemptId;
use mwl_proxy::language::value::Value;
use mwl_proxy::telemetry::events::{Events, Listener, TapMessage, listen};
use proptest::prelude::*;
use serde_json::{Value as Json, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::support::law::{SCRIPT, cases, duration, in_virtual_time, middleware, planned, subject};
use crate::support::script::Scripted;

/// What is run.
#[derive(Clone, Debug)]
enum Tree {
    /// A Flow whose Step `one` calls, with a Retry around the call: how many milliseconds each run takes and whether it
    /// fails, the last for ever; and the bound of a run, where it has one.
    One { runs: Vec<(u64, bool)>, bound: Option<u64> },
    /// These side by side.
    All(Vec<Self>),
    /// This, once more where it fails.
    Again(Box<Self>),
}

/// What is written for a tree: each wait is another one.
#[derive(Default)]
struct Writer {
    waits: u64,
    /// By its tag: how long each run takes, and the place in the innermost Gather.
    leaves: BTreeMap<String, (Vec<u64>, Option<usize>)>,
}

/// What was told of attempts and of waits.
#[derive(Debug, Default)]
struct Told {
    started: Vec<AttemptId>,
    ended: Vec<One>,
    /// When a wait was over, and how long it was.
    waited: BTreeSet<(Instant, Duration)>,
}

/// An attempt that ended.
#[derive(Debug)]
struct One {
    id: AttemptId,
    number: u32,
    dispatch: Option<usize>,
    wait: Option<Duration>,
    begun: Instant,
    took: Duration,
    interrupted: bool,
}

impl Writer {
    fn retry(&mut self, attempts: usize) -> Json {
        self.waits += 1;
        let backoff = json!({ "initial": duration(100 + 7 * self.waits) });
        let policy =
            json!({ "match": { "codes": ["*"] }, "attempts": attempts, "backoff": backoff });
        json!({ "provider": middleware("retry"), "onEntry": { "with": { "policies": [policy] } } })
    }

    fn flow(&mut self, tree: &Tree, dispatch: Option<usize>) -> Json {
        match tree {
            Tree::One { runs, bound } => {
                let tag = self.leaves.len().to_string();
                let offset = 1000 * (self.leaves.len() as u64 + 1);
                let turns = runs.iter().enumerate().map(|(place, (after, fails))| {
                    let after = offset + 100 * place as u64 + after;
                    json!({ "after": after, "code": fails.then_some("T.Fails") })
                });
                let turns: Vec<Json> = turns.collect();
                let bound = bound.map(|bound| offset + bound);
                let took = |turn: &Json| {
                    let after = turn["after"].as_u64().unwrap();
                    bound.map_or(after, |bound| after.min(bound))
                };
                let took = turns.iter().map(took).collect();
                self.leaves.insert(tag.clone(), (took, dispatch));
                let mut stack = vec![self.retry(runs.len())];
                stack.extend(bound.map(|bound| {
                    let with = json!({ "duration": duration(bound) });
                    json!({ "provider": middleware("timeout"), "onEntry": { "with": with } })
                }));
                let call = json!({ "provider": SCRIPT, "with": { "tag": tag, "turns": turns } });
                let one =
                    json!({ "action": "Call", "call": call, "middleware": stack, "next": "done" });
                json!({ "entrypoint": "one", "steps": { "one": one, "done": { "action": "Return" } } })
            }
            Tree::All(trees) => {
                let calls = trees.iter().enumerate();
                let calls: Vec<Json> = calls
                    .map(|(place, tree)| json!({ "flow": self.flow(tree, Some(place)) }))
                    .collect();
                let all = json!({ "action": "Gather", "calls": calls, "next": "done" });
                json!({ "entrypoint": "all", "steps": { "all": all, "done": { "action": "Return" } } })
            }
            Tree::Again(tree) => {
                let retry = self.retry(2);
                let mut flow = self.flow(tree, dispatch);
                flow["middleware"] = json!([retry]);
                flow
            }
        }
    }
}

/// Writes down what it is told.
struct Listening(Mutex<Told>);

impl Observer for Listening {
    fn on(&self, event: &Event<'_>) {
        let mut told = self.0.lock().unwrap();
        match *event {
            Event::AttemptStarted(attempt) => told.started.push(attempt.id),
            Event::AttemptEnded(ended) => {
                let attempt = ended.attempt;
                assert_eq!(attempt.step, "one");
                told.ended.push(One {
                    id: attempt.id,
                    number: attempt.number,
                    dispatch: attempt.dispatch,
                    wait: attempt.wait.map(|wait| wait.delay),
                    begun: attempt.begun,
                    took: ended.took,
                    interrupted: matches!(ended.end, End::Interrupted(_)),
                });
            }
            Event::RetryScheduled(retry) => {
                let delay = retry.wait.delay;
                assert!(told.waited.insert((Instant::now() + delay, delay)));
            }
            _ => {}
        }
    }
}

/// The attempts' events of an execution that has ended.
async fn attempts_of(execution: &str, heard: &mut Listener) -> Vec<Json> {
    let mut events = Vec::new();
    loop {
        let TapMessage::Event(event) = heard.next().await else { panic!("too slow") };
        if event["execution"] != execution {
            continue;
        }
        if event["event"] == "execution.done" {
            return events;
        }
        if event["event"].as_str().unwrap().starts_with("attempt.") {
            events.push(Json::clone(&event));
        }
    }
}

/// Holds what was told of a run of `tree` against its script.
async fn check(tree: Tree) {
    let mut writer = Writer::default();
    let definition = writer.flow(&tree, None);
    let scripted = Scripted::new(Vec::new());
    let plan = planned(&scripted, definition);
    let told = Listening(Mutex::default());
    let mut heard = listen();
    let id = format!("attempts-{tree:?}");
    let events = Events::begin(|| (subject(&id), "GET", "/"), &"route".into()).unwrap();
    let observer = (&told, Some(&*events));
    let mut start = Start { observer: &observer, ..Start::new(&id) };
    let outcome = run(&plan, &mut start, Value::empty_object(), Value::from(1)).await;
    events.done(&outcome);
    let told = told.0.into_inner().unwrap();
    each_ends_once(&told);
    each_waited_for_its_own(&told);
    each_took_what_its_script_says(&told, &scripted, &writer);
    the_events_say_the_same(&told, &attempts_of(&id, &mut heard).await);
}

fn each_ends_once(told: &Told) {
    let all: BTreeSet<AttemptId> = told.started.iter().copied().collect();
    assert_eq!(all.len(), told.started.len(), "an identity is of one attempt");
    let ends: BTreeSet<AttemptId> = told.ended.iter().map(|one| one.id).collect();
    assert_eq!((ends.len(), ends), (told.ended.len(), all));
}

fn each_waited_for_its_own(told: &Told) {
    let waits = told.ended.iter().filter_map(|one| Some((one.begun, one.wait?)));
    let waits: Vec<_> = waits.collect();
    assert_eq!(waits.len(), told.waited.len());
    assert_eq!(BTreeSet::from_iter(waits), told.waited, "each wait is of one attempt, behind it");
}

fn each_took_what_its_script_says(told: &Told, scripted: &Scripted, writer: &Writer) {
    let seen = scripted.seen.lock().unwrap();
    for one in &told.ended {
        let tag = &seen.iter().find(|seen| seen.id == one.id).unwrap().tag;
        let (runs, dispatch) = &writer.leaves[tag];
        let run = runs.get(one.number as usize - 1).or_else(|| runs.last()).unwrap();
        assert_eq!(one.took, Duration::from_millis(*run), "{one:?} is of {tag}");
        assert_eq!(one.dispatch, *dispatch, "{one:?} is of {tag}");
    }
}

fn the_events_say_the_same(told: &Told, events: &[Json]) {
    let (begins, ends): (Vec<_>, Vec<_>) =
        events.iter().partition(|event| event["event"] == "attempt.started");
    assert_eq!((begins.len(), ends.len()), (told.started.len(), told.ended.len()));
    assert!(begins.iter().all(|event| event.get("duration").is_none()));
    for (event, one) in ends.iter().zip(&told.ended) {
        assert_eq!(event["duration"], one.took.as_secs_f64(), "{event} is {one:?}");
        assert_eq!(event["attempt"], one.number);
        assert_eq!(event.get("dispatch"), one.dispatch.map(Json::from).as_ref());
        assert_eq!(event["interrupted"] == true, one.interrupted);
    }
}

fn tree() -> impl Strategy<Value = Tree> {
    let runs = prop::collection::vec((0..100_u64, any::<bool>()), 1..4);
    let one = (runs, prop::option::weighted(0.3, 0..300_u64))
        .prop_map(|(runs, bound)| Tree::One { runs, bound });
    one.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            3 => prop::collection::vec(inner.clone(), 1..4).prop_map(Tree::All),
            1 => inner.prop_map(|inner| Tree::Again(Box::new(inner))),
        ]
    })
}

/// Holds that each attempt of `tree` that begins ends once, although its client leaves: then the execution is dropped, or
/// is cancelled and `unwinds`.
async fn check_left(tree: Tree, after: u64, unwinds: bool) {
    let definition = Writer::default().flow(&tree, None);
    let scripted = Scripted::new(Vec::new());
    let plan = planned(&scripted, definition);
    let told = Listening(Mutex::default());
    let mut heard = listen();
    let id = format!("left-{after}-{unwinds}-{tree:?}");
    let events = Events::begin(|| (subject(&id), "GET", "/"), &"route".into()).unwrap();
    let observer = (&told, Some(&*events));
    let cancel = CancellationToken::new();
    let mut start = Start { observer: &observer, cancel: Some(cancel.clone()), ..Start::new(&id) };
    let mut running = Box::pin(run(&plan, &mut start, Value::empty_object(), Value::from(1)));
    let outcome = tokio::select! {
        biased;
        outcome = &mut running => Some(outcome),
        () = tokio::time::sleep(Duration::from_millis(after)) => None,
    };
    let outcome = match outcome {
        None if unwinds => {
            cancel.cancel();
            Some(running.await)
        }
        outcome => {
            drop(running);
            outcome
        }
    };
    if let Some(outcome) = &outcome {
        events.done(outcome);
    }
    drop(events);
    let told = told.0.into_inner().unwrap();
    each_ends_once(&told);
    the_events_say_the_same(&told, &attempts_of(&id, &mut heard).await);
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn an_attempt_ends_once_whenever_its_client_leaves(
        (tree, after, unwinds) in (tree(), 0..6_000_u64, any::<bool>()),
    ) {
        in_virtual_time(check_left(tree, after, unwinds));
    }

    #[test]
    fn an_attempt_keeps_its_identity_whatever_runs_beside_it(tree in tree()) {
        in_virtual_time(check(tree));
    }
}

#[test]
fn equal_steps_side_by_side_nested_and_retried() {
    let one =
        |after, fails| Tree::One { runs: vec![(after, fails), (after / 2, false)], bound: None };
    let three = || Tree::All(vec![one(90, true), one(10, true), one(50, false)]);
    for tree in [
        three(),
        Tree::All(vec![three(), one(5, true), three()]),
        Tree::Again(Box::new(Tree::All(vec![
            Tree::One { runs: vec![(7, true)], bound: None },
            Tree::One { runs: vec![(3, false)], bound: Some(1) },
            three(),
        ]))),
    ] {
        in_virtual_time(check(tree));
    }
}

#[test]
fn an_execution_that_is_dropped_ends_its_attempts() {
    in_virtual_time(async {
        let one = Tree::One { runs: vec![(0, false)], bound: None };
        let definition = Writer::default().flow(&Tree::All(vec![one.clone(), one]), None);
        let scripted = Scripted::new(Vec::new());
        let plan = planned(&scripted, definition);
        let told = Listening(Mutex::default());
        let mut heard = listen();
        let events =
            Events::begin(|| (subject("dropped"), "GET", "/"), &Arc::from("route")).unwrap();
        let observer = (&told, Some(&*events));
        let mut start = Start { observer: &observer, ..Start::new("dropped") };
        let running = run(&plan, &mut start, Value::empty_object(), Value::from(1));
        let left = tokio::time::sleep(Duration::from_millis(400));
        tokio::select! {
            outcome = running => panic!("{outcome:?}"),
            () = left => {}
        }
        drop(events);
        let told = told.0.into_inner().unwrap();
        assert_eq!((told.started.len(), told.ended.len()), (2, 2));
        assert!(told.ended.iter().all(|one| one.interrupted && one.took.as_millis() == 400));
        let events = attempts_of("dropped", &mut heard).await;
        let ends: Vec<_> = events.iter().filter(|event| event["interrupted"] == true).collect();
        assert_eq!(ends.len(), 2);
        assert!(ends.iter().all(|event| event["code"] == "System.Cancelled"));
    });
}
