//! Random stacks of the four middlewares, and of one that acts at its entry, around a scripted target, compared with
//! a small recursive model of the specification. Both must have the same Result, the same runs, the same cleanups in
//! the same order, and the same virtual instants. The `onAlways` of every established entry runs exactly once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mwl_proxy::language::outcome::Outcome;
use proptest::prelude::*;
use serde_json::json;

use crate::support::law::{
    CANCELLED, CLEANUP_LIMIT, EXCEEDED, EXHAUSTED, SCRIPT, cases, duration, ended, in_virtual_time,
    middleware,
};
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

// --- the model -----------------------------------------------------------------------------------

type Chain = Vec<&'static str>;

/// What rises: a Result (with an empty chain if it is a success), or an unwind towards its owner.
enum Rise {
    Settled(Chain),
    Unwind { owner: usize, chain: Chain, superseded: bool },
}

impl Rise {
    /// The same unwind, with failed cleanups at the head of its chain.
    fn after(self, failed: &[&'static str]) -> Self {
        match self {
            Self::Unwind { owner, chain, superseded } => Self::Unwind {
                owner,
                superseded: superseded || !failed.is_empty(),
                chain: [failed, &chain].concat(),
            },
            Self::Settled(_) => self,
        }
    }
}

const OUTSIDE: usize = usize::MAX;

struct Model<'a> {
    case: &'a Case,
    now: u64,
    /// The established bounds, with layer and deadline, outermost first.
    bounds: Vec<(usize, u64)>,
    runs: usize,
    /// In how many gates it is now, and was at each run of the target.
    in_gates: usize,
    inside: Vec<usize>,
    successes: usize,
    cleanups: Vec<usize>,
}

impl Model<'_> {
    /// The first interruption: its instant and its owner.
    fn interruption(&self) -> Option<(u64, usize)> {
        let outside = self.case.cancel.map(|at| (at, OUTSIDE));
        let bound = self.bounds.iter().map(|(layer, at)| (*at, *layer)).min_by_key(|(at, _)| *at);
        match (outside, bound) {
            (Some(outside), Some(bound)) if bound.0 < outside.0 => Some(bound),
            (Some(outside), _) => Some(outside),
            (None, bound) => bound,
        }
    }

    /// The owner of the interruption that is due after shielded work. A cancellation from outside takes
    /// precedence.
    fn due(&self) -> Option<usize> {
        if self.case.cancel.is_some_and(|at| at <= self.now) {
            return Some(OUTSIDE);
        }
        self.interruption().filter(|(at, _)| *at <= self.now).map(|(_, owner)| owner)
    }

    fn unwind(owner: usize) -> Rise {
        let chain = if owner == OUTSIDE { vec![CANCELLED] } else { vec![CANCELLED, EXCEEDED] };
        Rise::Unwind { owner, chain, superseded: false }
    }

    /// Work that waits. It is accepted if it is done at the instant of the interruption.
    fn wait(&mut self, millis: u64, always_pending: bool) -> Result<(), Rise> {
        let done = self.now + millis;
        match self.interruption() {
            Some((at, owner)) if at < done || (always_pending && at <= self.now) => {
                if millis == 0 && !always_pending {
                    return Ok(());
                }
                self.now = self.now.max(at);
                Err(Self::unwind(owner))
            }
            _ => {
                self.now = done;
                Ok(())
            }
        }
    }

    fn target(&mut self) -> Rise {
        let (after, code) = self.case.turns[self.runs.min(self.case.turns.len() - 1)];
        self.runs += 1;
        self.inside.push(self.in_gates);
        match self.wait(after, false) {
            Ok(()) => Rise::Settled(code.into_iter().collect()),
            Err(unwind) => unwind,
        }
    }

    fn layer(&mut self, at: usize) -> Rise {
        let Some(layer) = self.case.layers.get(at) else {
            return self.target();
        };
        match layer {
            Layer::Retry { code, attempts, delay } => {
                let mut runs = 0;
                loop {
                    let rise = self.layer(at + 1);
                    runs += 1;
                    let Rise::Settled(chain) = &rise else {
                        return rise;
                    };
                    let matches =
                        chain.first().is_some_and(|head| code.is_none_or(|code| code == *head));
                    if !matches {
                        return rise;
                    }
                    if runs >= *attempts {
                        return Rise::Settled([vec![EXHAUSTED], chain.clone()].concat());
                    }
                    if let Err(unwind) = self.wait(*delay, *delay == 0) {
                        return unwind;
                    }
                }
            }
            Layer::Loop { times } => {
                let mut runs = 0;
                loop {
                    let rise = self.layer(at + 1);
                    runs += 1;
                    let again = matches!(&rise, Rise::Settled(chain) if chain.is_empty());
                    if !again || runs >= *times {
                        return rise;
                    }
                    if let Err(unwind) = self.wait(0, true) {
                        return unwind;
                    }
                }
            }
            Layer::Timeout { bound } => {
                self.bounds.push((at, self.now + bound));
                let cleanups = self.cleanups.len();
                let rise = self.layer(at + 1);
                self.bounds.pop();
                match rise {
                    Rise::Unwind { owner, chain, superseded } if owner == at => {
                        // Cleanups took time, so an outer interruption may be due.
                        if self.cleanups.len() > cleanups
                            && let Some(owner) = self.due()
                        {
                            return Self::unwind(owner).after(&if superseded {
                                chain
                            } else {
                                vec![]
                            });
                        }
                        let chain = if superseded { chain } else { chain[1..].to_vec() };
                        Rise::Settled(chain)
                    }
                    rise => rise,
                }
            }
            Layer::Gate { wait, emit, .. } => self.gate(at, *wait, emit.as_ref()),
            Layer::Finally { after, code } => {
                let rise = self.layer(at + 1);
                self.cleanups.push(at);
                self.finally(rise, *after, *code)
            }
        }
    }

    fn gate(&mut self, at: usize, wait: Option<u64>, emit: Option<&Vec<&'static str>>) -> Rise {
        if let Some(Err(unwind)) = wait.map(|wait| self.wait(wait, wait == 0)) {
            return unwind;
        }
        if let Some(chain) = emit {
            return Rise::Settled(chain.clone());
        }
        self.in_gates += 1;
        let rise = self.layer(at + 1);
        self.in_gates -= 1;
        let succeeds = matches!(&rise, Rise::Settled(chain) if chain.is_empty());
        self.successes += usize::from(succeeds);
        rise
    }

    fn finally(&mut self, rise: Rise, after: u64, code: Option<&'static str>) -> Rise {
        let edge = match (&rise, self.interruption()) {
            (Rise::Unwind { .. }, _) => Some(self.now + CLEANUP_LIMIT),
            (Rise::Settled(_), first) => first.map(|(at, _)| at.max(self.now) + CLEANUP_LIMIT),
        };
        let done = self.now + after;
        let cut = edge.filter(|edge| *edge < done);
        self.now = cut.unwrap_or(done);
        let failed = if cut.is_some() { Some(EXCEEDED) } else { code };
        match rise {
            Rise::Unwind { owner, mut chain, mut superseded } => {
                if let Some(code) = failed {
                    chain.insert(0, code);
                    superseded = true;
                }
                Rise::Unwind { owner, chain, superseded }
            }
            Rise::Settled(mut chain) => {
                if let Some(code) = failed {
                    chain.insert(0, code);
                }
                match self.due() {
                    None => Rise::Settled(chain),
                    Some(owner) => {
                        Self::unwind(owner).after(&if failed.is_some() { chain } else { vec![] })
                    }
                }
            }
        }
    }
}

fn expected(case: &Case, form: Form) -> Observed {
    let mut model = Model {
        case,
        now: 0,
        bounds: Vec::new(),
        runs: 0,
        in_gates: 0,
        inside: Vec::new(),
        successes: 0,
        cleanups: Vec::new(),
    };
    let chain = match model.layer(0) {
        Rise::Settled(chain) | Rise::Unwind { chain, .. } => chain,
    };
    let chain: Vec<_> = chain.into_iter().map(str::to_owned).collect();
    let Model { runs, mut inside, in_gates, mut successes, cleanups, now, .. } = model;
    if matches!(form, Form::Wrapped) {
        // All of it is in one more gate.
        for inside in &mut inside {
            *inside += 1;
        }
        successes += usize::from(chain.is_empty());
    }
    Observed { chain, runs, inside, left_inside: in_gates, successes, cleanups, ended: now }
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
