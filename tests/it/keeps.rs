//! The contract of a middleware that keeps state: each entry has its own instance, an action may wait for an answer, and
//! what an entry has taken is given back however it ends.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use mwl_proxy::language::definition::{Strictness, compile};
use mwl_proxy::language::engine::{Start, run};
use mwl_proxy::language::outcome::{Failure, Outcome};
use mwl_proxy::language::plan::Plan;
use mwl_proxy::language::provider::{
    Ascent, Asked, Asker, Asking, Contract, Entry, EntryState, Installation, Middleware, Prepared,
    Role,
};
use mwl_proxy::language::value::Value;
use mwl_proxy::source::{Diagnostic, Diagnostics, Format, Sources};
use serde_json::{Value as Json, json};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::support::law::{EXCEEDED, SCRIPT, duration, in_virtual_time, middleware};
use crate::support::script::Scripted;

const DESK: &str = "mwl:provider.middleware/test/desk/v1";

const DOCUMENT: &str = r#"{
    "$schema": "https://mwl.dev/v0.1/provider/schema.json",
    "uri": "mwl:provider.middleware/test/desk/v1",
    "codePrefix": "Desk",
    "description": "Serves one at a time.",
    "attachment": ["step", "flow"],
    "phases": {
        "onEntry": {
            "action": { "kind": "control", "description": "Waits for the desk." },
            "parameters": { "type": "object", "properties": { "who": {}, "more": {} } }
        },
        "onSuccess": {
            "action": { "kind": "side-effect", "description": "Notes it." },
            "parameters": { "type": "object" }
        },
        "onFailure": {
            "action": { "kind": "side-effect", "description": "Notes it." },
            "parameters": { "type": "object" }
        }
    },
    "failureCatalog": { "closed": [], "open": ["*"] }
}"#;

/// Lets one execution at a time into its inner scope.
#[derive(Debug)]
struct Desk {
    contract: Arc<Contract>,
    notes: Arc<Mutex<Vec<String>>>,
    free: Arc<Semaphore>,
}

impl Desk {
    fn note(&self, what: String) {
        self.notes.lock().unwrap().push(what);
    }
}

impl Middleware for Desk {
    fn contract(&self) -> &Contract {
        &self.contract
    }

    fn keeps_state(&self) -> bool {
        true
    }

    fn installed(
        &self,
        at: &Installation<'_>,
        found: &mut Diagnostics,
    ) -> Option<Arc<dyn Middleware>> {
        let known = at.literals(&["who"]).map_err(|wrong| found.push(wrong)).ok()?;
        if known.get("more").is_some_and(|more| more.as_bool() == Some(false)) {
            found.push(Diagnostic::error("no-more", at.place("more"), "more"));
        }
        self.note(format!("{}:{} {}", at.route(), at.entry, at.cleanup));
        let (contract, notes) = (Arc::clone(&self.contract), Arc::clone(&self.notes));
        Some(Arc::new(Self { contract, notes, free: Arc::new(Semaphore::new(1)) }))
    }

    fn on_entry(
        &self,
        _state: &mut EntryState,
        _with: &Prepared,
        asker: Asker<'_>,
    ) -> Result<Entry, Failure> {
        if asker.role == Role::Cleanup {
            self.note("cleanup".to_owned());
            return Ok(Entry::Proceed);
        }
        let free = Arc::clone(&self.free);
        Ok(Entry::Ask(Asking::new(async move {
            let place = free.acquire_owned().await.unwrap();
            let wants = Entry::After(Duration::from_millis(1), Box::new(Entry::Proceed));
            Asked { wants, own: Some(Box::new(place)) }
        })))
    }

    fn on_success(
        &self,
        state: &mut EntryState,
        _with: &Prepared,
        _value: &Value,
        asker: Asker<'_>,
    ) -> Result<Ascent, Failure> {
        self.note(format!("success of {}, held: {}", asker.input, state.own.is_some()));
        Ok(Ascent::Pass)
    }

    fn on_failure(
        &self,
        state: &mut EntryState,
        _with: &Prepared,
        failure: &Arc<Failure>,
        _asker: Asker<'_>,
    ) -> Result<Ascent, Failure> {
        self.note(format!("{}, held: {}", failure.code, state.own.is_some()));
        Ok(Ascent::Pass)
    }
}

/// A definition with desks, and what they note.
struct Desks {
    plan: Result<Arc<Plan>, Vec<&'static str>>,
    notes: Arc<Mutex<Vec<String>>>,
}

impl Desks {
    fn of(mut definition: Json) -> Self {
        definition["$schema"] = "https://mwl.dev/v0.1/flow/schema.json".into();
        let text = definition.to_string();
        let node = Sources::default().parse("case.json", &text, Format::Json).unwrap();
        let notes = Arc::<Mutex<Vec<String>>>::default();
        let mut catalog = Scripted::new(Vec::new()).catalog();
        let contract = Arc::new(Contract::parse(DOCUMENT).unwrap());
        let free = Arc::new(Semaphore::new(0));
        let desk = Desk { contract, notes: Arc::clone(&notes), free };
        catalog.add_middleware(Arc::new(desk)).unwrap();
        let catalog = catalog.for_route("r".into(), Arc::new(()));
        let codes = |found: Diagnostics| found.0.iter().map(|found| found.code).collect();
        let plan = compile(&node, &catalog, Strictness::Load);
        Self { plan: plan.map(|(plan, _)| plan).map_err(codes), notes }
    }

    /// Of one call with this stack, which takes ten milliseconds.
    fn around(stack: &Json, code: Option<&str>) -> Self {
        let mut with = json!({ "tag": "a", "after": 10 });
        if let Some(code) = code {
            with["code"] = json!(code);
        }
        let call = json!({ "provider": SCRIPT, "with": with });
        let work = json!({ "action": "Call", "call": call, "middleware": stack, "next": "done" });
        let steps = json!({ "work": work, "done": { "action": "Return" } });
        Self::of(json!({ "entrypoint": "work", "steps": steps }))
    }

    /// One execution: its code or `success`, and when it ended, in milliseconds.
    async fn run(&self) -> (String, u128) {
        let mut start = Start::new("x");
        let plan = self.plan.as_ref().unwrap();
        let begun = Instant::now();
        let outcome = run(plan, &mut start, Value::empty_object(), Value::from(7)).await;
        let said = match &outcome {
            Outcome::Success(_) => "success".to_owned(),
            Outcome::Failure(failure) => failure.code.to_string(),
        };
        (said, begun.elapsed().as_millis())
    }

    fn noted(&self) -> Vec<String> {
        std::mem::take(&mut *self.notes.lock().unwrap())
    }
}

fn desk() -> Json {
    json!({ "provider": DESK })
}

fn timeout(bound: u64) -> Json {
    json!({
        "provider": middleware("timeout"),
        "onEntry": { "with": { "duration": duration(bound) } },
    })
}

#[test]
fn an_action_waits_for_an_answer_and_its_phases_run_without_a_block() {
    let desks = Desks::around(&json!([desk()]), None);
    assert_eq!(desks.noted(), ["r:work/0 false"]);
    let ends = in_virtual_time(async { tokio::join!(desks.run(), desks.run(), desks.run()) });
    let success = |at| ("success".to_owned(), at);
    assert_eq!(ends, (success(11), success(22), success(33)));
    assert_eq!(desks.noted(), ["success of 7, held: true"; 3]);
    let desks = Desks::around(&json!([desk()]), Some("A.B"));
    desks.noted();
    assert_eq!(in_virtual_time(desks.run()), ("A.B".to_owned(), 11));
    assert_eq!(desks.noted(), ["A.B, held: true"]);
}

#[test]
fn who_is_interrupted_gives_back_what_it_took_or_leaves_the_queue() {
    in_virtual_time(async {
        let desks = Desks::around(&json!([timeout(15), desk()]), None);
        // The second waits for eleven milliseconds, and is cut in its call; the third is cut while it waits.
        let ends = tokio::join!(desks.run(), desks.run(), desks.run());
        let cut = || (EXCEEDED.to_owned(), 15);
        assert_eq!(ends, (("success".to_owned(), 11), cut(), cut()));
        assert_eq!(desks.run().await, ("success".to_owned(), 11));
    });
}

#[test]
fn an_execution_that_is_dropped_gives_back_what_it_took() {
    in_virtual_time(async {
        let desks = Desks::around(&json!([desk()]), None);
        let mut dropped = Box::pin(desks.run());
        assert!(futures_util::poll!(&mut dropped).is_pending());
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(futures_util::poll!(&mut dropped).is_pending());
        drop(dropped);
        assert_eq!(desks.run().await, ("success".to_owned(), 11));
    });
}

#[test]
fn each_entry_has_its_own_instance_and_a_cleanup_is_known_as_one() {
    let audit = json!({ "flow": { "entrypoint": "tell", "middleware": [desk()], "steps": {
        "tell": { "action": "Call", "call": { "provider": SCRIPT, "with": { "tag": "b" } },
                  "next": "done" },
        "done": { "action": "Return" },
    } } });
    let with = json!({ "call": audit, "middleware": [timeout(100), desk()] });
    let finally = json!({ "provider": middleware("finally"), "onAlways": { "with": with } });
    let desks = Desks::around(&json!([desk(), finally, desk()]), None);
    let installed = ["r:work/0 false", "r:work/cleanup/1 true", "r:work/2 false", "r:work/0 false"];
    assert_eq!(desks.noted(), installed);
    // Two desks of one execution do not wait for each other.
    assert_eq!(in_virtual_time(desks.run()).0, "success");
    let noted = desks.noted();
    assert_eq!(noted.iter().filter(|note| *note == "cleanup").count(), 2, "{noted:?}");
}

#[test]
fn what_an_installation_finds_wrong_refuses_the_definition() {
    let with = |with: Json| {
        let desk = json!({ "provider": DESK, "onEntry": { "with": with } });
        Desks::around(&json!([desk]), None).plan.err().unwrap_or_default()
    };
    assert_eq!(with(json!({ "more": false })), ["no-more"]);
    assert_eq!(with(json!({ "more": true, "who": "{{ execution.id }}" })), [""; 0]);
    assert_eq!(with(json!({ "more": "{{ execution.id }}" })), ["computed-state"]);
    assert_eq!(with(json!("{{ {'more': true} }}")), ["computed-state"]);
}
