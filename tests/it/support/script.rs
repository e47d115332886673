//! A call provider that plays a script and remembers its runs, and a middleware that waits and answers in place of
//! its scope, under paused time.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mwl_proxy::language::outcome::{Failure, Outcome};
use mwl_proxy::language::provider::{
    Answer, Ascent, Asked, Asker, AttemptId, CallProvider, Catalog, Contract, Dispatch, Entry,
    EntryState, Middleware, Moment, OperationKey, Pass, Passage, Phase, Prepared, Role,
};
use mwl_proxy::language::value::{Array, Value};
use tokio::time::Instant;

/// What one run of the scripted target does.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    pub(crate) after: Duration,
    /// `None`: a success with the turn's number.
    pub(crate) code: Option<&'static str>,
}

/// What happened to a dispatch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) tag: String,
    pub id: AttemptId,
    pub role: Role,
    /// The key of its operation.
    pub key: OperationKey,
    pub attempt: u32,
    pub began: Duration,
    /// The call's input.
    pub input: Value,
}

/// Plays `turns` in order for calls without a `tag`, repeating the last one. A call with `{tag, after, code}`
/// does what it says. One with `{tag, turns: [{after, code}]}` does what the turn of its attempt says,
/// repeating the last one.
#[derive(Debug)]
pub(crate) struct Scripted {
    contract: Contract,
    turns: Vec<Turn>,
    next: Mutex<usize>,
    start: Instant,
    pub(crate) seen: Mutex<Vec<Seen>>,
    pub(crate) passages: Arc<Passages>,
    /// How many runs were inside gates at each call without a `tag`.
    pub(crate) inside: Mutex<Vec<usize>>,
}

const CONTRACT: &str = r#"{
    "$schema": "https://mwl.dev/v0.1/provider/schema.json",
    "uri": "mwl:provider.call/test/script/v1",
    "codePrefix": "Script",
    "description": "Plays a script.",
    "parameters": { "type": "object", "additionalProperties": true },
    "failureCatalog": { "closed": [], "open": ["*"] }
}"#;

/// At `onEntry` waits `wait` milliseconds, where that is there, and then, where there is `emit`, puts a failure of that
/// code in the place of its scope's Result: a success, where it is null. There are two, of which one decides in place.
#[derive(Debug)]
struct Gate {
    contract: Contract,
    in_place: bool,
    passages: Arc<Passages>,
}

/// What passed the gates.
#[derive(Debug, Default)]
pub(crate) struct Passages {
    /// How many runs are inside a gate now.
    pub(crate) inside: AtomicUsize,
    /// How many successes have risen past one.
    pub(crate) successes: AtomicUsize,
}

/// A run inside a gate.
#[derive(Debug)]
struct Inside(Arc<Passages>);

const GATE: &str = r#"{
    "$schema": "https://mwl.dev/v0.1/provider/schema.json",
    "uri": "mwl:provider.middleware/test/NAME/v1",
    "codePrefix": "PREFIX",
    "description": "Waits, and answers.",
    "attachment": ["step", "flow"],
    "phases": {
        "onEntry": {
            "action": { "kind": "control", "description": "Waits, and answers." },
            "parameters": { "type": "object", "properties": { "wait": {}, "emit": {} } }
        },
        "onSuccess": { "action": { "kind": "control", "description": "Counts." } }
    },
    "failureCatalog": { "closed": [], "open": ["*"] }
}"#;

impl Gate {
    fn new(in_place: bool, passages: &Arc<Passages>) -> Self {
        let (name, prefix) = if in_place { ("door", "Door") } else { ("gate", "Gate") };
        let document = GATE.replace("NAME", name).replace("PREFIX", prefix);
        let contract = Contract::parse(&document).unwrap();
        Self { contract, in_place, passages: Arc::clone(passages) }
    }

    fn enter(&self) {
        self.passages.inside.fetch_add(1, Ordering::Relaxed);
    }

    fn inside(&self) -> Box<dyn Any + Send + Sync> {
        Box::new(Inside(Arc::clone(&self.passages)))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Middleware for Gate {
    fn contract(&self) -> &Contract {
        &self.contract
    }

    fn prepare(&self, _phase: Phase, with: &Value) -> Result<Prepared, Failure> {
        Ok(Arc::new(with.clone()))
    }

    fn decides_in_place(&self) -> bool {
        self.in_place
    }

    fn admit(&self, with: &Prepared, _asker: &Asker<'_>, _now: &mut Moment) -> Passage {
        let with = with.downcast_ref::<Value>().unwrap();
        let emitted = with.get("emit").map(|code| match code.as_str() {
            None => Outcome::Success(Value::Null),
            Some(code) => Failure::error(code.to_owned(), "the gate is shut").into(),
        });
        let wait = with.get("wait").and_then(|wait| wait.as_u64());
        if emitted.is_none() {
            self.enter();
            if wait.is_none() {
                return Passage::Passes(Pass(1));
            }
        }
        let own = emitted.is_none().then(|| self.inside());
        let then = emitted.map_or(Entry::Proceed, Entry::Substitute);
        let wants = match wait {
            Some(wait) => Entry::After(Duration::from_millis(wait), Box::new(then)),
            None => then,
        };
        Passage::Otherwise(Asked { wants, own })
    }

    fn held(&self, _with: &Prepared, pass: Pass) -> Option<Box<dyn Any + Send + Sync>> {
        assert_eq!(pass, Pass(1));
        Some(self.inside())
    }

    fn settle(&self, pass: Pass) {
        assert_eq!(pass, Pass(1));
        self.passages.successes.fetch_add(1, Ordering::Relaxed);
        drop(self.inside());
    }

    fn on_success(
        &self,
        _state: &mut EntryState,
        _with: &Prepared,
        _value: &Value,
        _asker: Asker<'_>,
    ) -> Result<Ascent, Failure> {
        self.passages.successes.fetch_add(1, Ordering::Relaxed);
        Ok(Ascent::Pass)
    }
}

impl Scripted {
    pub(crate) fn new(turns: Vec<Turn>) -> Arc<Self> {
        Arc::new(Self {
            contract: Contract::parse(CONTRACT).unwrap(),
            turns,
            next: Mutex::new(0),
            start: Instant::now(),
            seen: Mutex::default(),
            passages: Arc::default(),
            inside: Mutex::default(),
        })
    }

    pub(crate) fn catalog(self: &Arc<Self>) -> Catalog {
        let mut catalog = Catalog::spec_defined(None);
        catalog.add_call(Arc::clone(self) as Arc<dyn CallProvider>).unwrap();
        for in_place in [false, true] {
            catalog.add_middleware(Arc::new(Gate::new(in_place, &self.passages))).unwrap();
        }
        catalog
    }

    pub(crate) fn tags(&self) -> Vec<String> {
        self.seen.lock().unwrap().iter().map(|seen| seen.tag.clone()).collect()
    }
}

impl CallProvider for Scripted {
    fn contract(&self) -> &Contract {
        &self.contract
    }

    fn prepare(&self, with: &Value) -> Result<Prepared, Failure> {
        Ok(Arc::new(with.clone()))
    }

    fn call<'a>(
        &'a self,
        dispatch: Dispatch<'a>,
    ) -> Pin<Box<dyn Future<Output = Answer> + Send + 'a>> {
        Box::pin(async move {
            let with = dispatch.with.downcast_ref::<Value>().unwrap();
            let text = |name: &str| with.get(name)?.as_str().map(str::to_owned);
            let tag = text("tag");
            let turn = if tag.is_some() {
                turn_of(with, dispatch.attempt.number)
            } else {
                let inside = self.passages.inside.load(Ordering::Relaxed);
                self.inside.lock().unwrap().push(inside);
                let mut next = self.next.lock().unwrap();
                let turn = self.turns[(*next).min(self.turns.len() - 1)].clone();
                *next += 1;
                turn
            };
            self.seen.lock().unwrap().push(Seen {
                tag: tag.unwrap_or_default(),
                id: dispatch.attempt.id,
                role: dispatch.attempt.role,
                key: dispatch.identity.key([0; 16]),
                attempt: dispatch.attempt.number,
                began: self.start.elapsed(),
                input: dispatch.input.clone(),
            });
            if !turn.after.is_zero() {
                tokio::time::sleep(turn.after).await;
            }
            let outcome = match turn.code {
                None => Outcome::Success(dispatch.input.clone()),
                Some(code) => Failure::error(code, "scripted").into(),
            };
            Answer { outcome, metadata: Value::Null }
        })
    }
}

/// What a call with a `tag` does in its attempt with this number, from 1.
fn turn_of(with: &Value, attempt: u32) -> Turn {
    let turns = with.get("turns");
    let turns: Vec<Value> =
        turns.as_ref().and_then(Value::as_array).into_iter().flat_map(Array::iter).collect();
    let number = usize::try_from(attempt).unwrap() - 1;
    let turn = turns.get(number).or_else(|| turns.last()).unwrap_or(with);
    let after = turn.get("after").and_then(|after| after.as_u64());
    let code = turn.get("code");
    Turn {
        after: Duration::from_millis(after.unwrap_or(0)),
        code: code.and_then(|code| code.as_str().map(|code| &*code.to_owned().leak())),
    }
}
