//! Random Flows, compared with a small recursive model of the specification. Both must have the same Result
//! (its value, or the types and codes of its chain), the same dispatches at the same virtual instants, and
//! the same end.
//!
//! The graphs go forwards, and back only a few times, so each ends. What a call does depends only on its attempt. So the dispatches
//! of a `Gather` are independent, and the model runs each on its own clock: once undisturbed, to learn when
//! it would end, and again if something interrupts it before that.

use std::collections::{BTreeMap, BTreeSet};

use mwl_proxy::language::outcome::{MAX_CHAIN, Outcome};
use proptest::prelude::*;
use serde_json::{Value as Json, json};

use crate::support::law::{
    CANCELLED, CLEANUP_LIMIT, EXCEEDED, EXHAUSTED, SCRIPT, cases, duration, ended, in_virtual_time,
    middleware,
};
use crate::support::script::Scripted;

mod engine;
mod model;
mod random;

use self::engine::observed;
use self::model::expected;
use self::random::case;

const DISPATCH_CANCELLED: &str = "System.GatherDispatchCancelled";
const UNMET: &str = "System.GatherCompletionUnmet";
const EMPTY_RAISE: &str = "System.EmptyRaise";
const RAISED: &str = "Script.Raised";
const FAULT: &str = "System.ExpressionEvaluationError";
const INVALID: &str = "System.ParameterValidationFailed";
/// An expression that always faults.
const FAULTY: &str = "{{ vars.absent }}";

#[derive(Clone, Debug)]
struct Flow {
    stack: Vec<Layer>,
    /// After the last come three terminal Steps: see [`Place`].
    steps: Vec<Step>,
}

#[derive(Clone, Debug)]
enum Step {
    /// Emits the number, if one is given.
    Pass(Option<u64>),
    /// If the value is this number, control jumps.
    Match(u64, Jump),
    Sleep(u64),
    /// Control goes back to one of the Steps up to here, this many times as long as nothing restores the variables.
    Back(Jump, u64),
    Call {
        call: Call,
        stack: Vec<Layer>,
        catch: Vec<(&'static str, Jump)>,
    },
    Gather {
        form: Form,
        /// Whether a field of its own faults: `over`, or `successes` in the other form.
        faults: bool,
        concurrency: Option<usize>,
        /// How many must succeed, and whether it waits for the rest.
        completion: Option<(usize, bool)>,
        catch: Vec<(&'static str, Jump)>,
    },
}

/// The number of one of the places after the Step, modulo how many there are.
type Jump = usize;

#[derive(Clone, Debug)]
enum Form {
    Over(Vec<u64>, Call),
    Calls(Vec<Call>),
}

#[derive(Clone, Debug)]
struct Call {
    target: Target,
    arms: Arms,
}

/// The codes of a failure and of those that it superseded.
type Chain = Vec<&'static str>;

/// A Result: a value or a failure.
type Settled = Result<Json, Chain>;

/// What a call's arms do.
#[derive(Clone, Copy, Debug)]
enum Arms {
    Nothing,
    /// The success arm gives this number; the failure arm captures.
    Give(u64),
    /// The arm that runs faults.
    Fault,
}

#[derive(Clone, Debug)]
enum Target {
    /// For each attempt how many milliseconds it takes, and the code with which it fails, if any.
    Script(Vec<(u64, Option<&'static str>)>),
    Flow(Box<Flow>),
}

#[derive(Clone, Debug)]
enum Layer {
    Retry {
        code: &'static str,
        attempts: u32,
        delay: u64,
    },
    Timeout(u64),
    /// Runs this often, each time on the value of the last run.
    Loop(u32),
    /// A cleanup that takes this long, and whether it then fails.
    Finally {
        after: u64,
        fails: bool,
    },
}

#[derive(Clone, Debug)]
struct Case {
    flow: Flow,
    cancel: Option<u64>,
}

/// The outcome of a run.
#[derive(Debug, PartialEq)]
struct Observed {
    /// The value as JSON text, or `type code` for each failure of the chain.
    result: Result<String, Vec<String>>,
    /// When each dispatch began, and its tag. If some run concurrently, those of one instant are sorted by
    /// tag.
    began: Vec<(u64, String)>,
    ended: u64,
}

/// The dispatches of each operation: when each began, and its tag.
type Operations = Vec<Vec<(u64, String)>>;

/// Where control may go: to a Step, or to one of the three terminal Steps of every Flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Step(usize),
    /// A `Return`.
    Done,
    /// A bare `Raise`.
    Again,
    /// A `Raise` of a failure of its own.
    Fail,
}

impl Flow {
    fn next(&self, at: usize) -> Place {
        if at + 1 < self.steps.len() { Place::Step(at + 1) } else { Place::Done }
    }

    fn jump(&self, at: usize, jump: Jump) -> Place {
        let after = self.steps.len() - at - 1;
        match jump % (after + 3) {
            step if step < after => Place::Step(at + 1 + step),
            rest if rest == after => Place::Done,
            rest if rest == after + 1 => Place::Again,
            _ => Place::Fail,
        }
    }

    /// The places that control can reach. The definition has no others.
    fn reachable(&self) -> BTreeSet<Place> {
        let mut reached = BTreeSet::from([Place::Step(0)]);
        let mut ahead = vec![0];
        while let Some(at) = ahead.pop() {
            let mut ways = vec![self.next(at)];
            match &self.steps[at] {
                Step::Match(_, jump) => ways.push(self.jump(at, *jump)),
                Step::Back(jump, _) => ways.push(back(at, *jump)),
                Step::Call { catch, .. } | Step::Gather { catch, .. } => {
                    ways.extend(catch.iter().map(|(_, jump)| self.jump(at, *jump)));
                }
                Step::Pass(_) | Step::Sleep(_) => {}
            }
            for way in ways {
                if reached.insert(way)
                    && let Place::Step(step) = way
                {
                    ahead.push(step);
                }
            }
        }
        reached
    }

    fn gathers(&self) -> bool {
        self.steps.iter().any(|step| match step {
            Step::Gather { .. } => true,
            Step::Call { call, .. } => call.target.flow().is_some_and(Self::gathers),
            _ => false,
        })
    }

    /// Whether something in it is run again without a wait.
    fn hurries(&self) -> bool {
        let hurries =
            |layer: &Layer| matches!(layer, Layer::Retry { delay: 0, .. } | Layer::Loop(_));
        self.stack.iter().any(hurries)
            || self.steps.iter().any(|step| match step {
                Step::Call { call, stack, .. } => {
                    stack.iter().any(hurries) || call.target.hurries()
                }
                Step::Gather { form: Form::Over(_, call), .. } => call.target.hurries(),
                Step::Gather { form: Form::Calls(calls), .. } => {
                    calls.iter().any(|call| call.target.hurries())
                }
                _ => false,
            })
    }
}

impl Target {
    fn flow(&self) -> Option<&Flow> {
        match self {
            Self::Flow(flow) => Some(flow),
            Self::Script(_) => None,
        }
    }

    fn hurries(&self) -> bool {
        self.flow().is_some_and(Flow::hurries)
    }
}

impl Arms {
    /// The call's Result, from that of its target.
    fn finish(self, settled: Settled) -> Settled {
        match (self, settled) {
            (Self::Give(number), Ok(_)) => Ok(json!(number)),
            (Self::Fault, settled) => {
                Err([vec![FAULT], settled.err().unwrap_or_default()].concat())
            }
            (_, settled) => settled,
        }
    }
}

/// Where a [`Step::Back`] leads.
fn back(at: usize, jump: Jump) -> Place {
    Place::Step(jump % (at + 1))
}

fn selects(pattern: &str, code: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => code.starts_with(prefix),
        None => code == pattern,
    }
}

/// A call's tag: its address in memory, which is unique because a case holds each call once.
fn tag_of(call: &Call) -> String {
    format!("{call:p}")
}

fn cleanup_tag(layer: &Layer) -> String {
    format!("{layer:p}")
}

fn in_order(mut began: Vec<(u64, String)>, case: &Case) -> Vec<(u64, String)> {
    if case.flow.gathers() {
        began.sort();
    }
    began
}

/// The dispatches by the key of their operation, in an order that does not depend on the keys.
fn by_operation<K: Ord>(dispatches: impl Iterator<Item = (K, u64, String)>) -> Operations {
    let mut groups = BTreeMap::<K, Vec<_>>::new();
    for (key, began, tag) in dispatches {
        groups.entry(key).or_default().push((began, tag));
    }
    let mut operations: Operations = groups.into_values().collect();
    for dispatches in &mut operations {
        dispatches.sort();
    }
    operations.sort();
    operations
}

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn a_random_flow_agrees_with_the_model(case in case()) {
        let Some(expected) = expected(&case) else {
            return Err(TestCaseError::reject("two events at one instant"));
        };
        let observed = in_virtual_time(observed(&case));
        prop_assert_eq!(observed.0, expected.0);
    }

    /// Dispatches have one key if the model says that they run the same work again, and only then. So an upstream that
    /// honours keys does each operation once, whatever fails, is retried or is interrupted.
    #[test]
    fn an_upstream_that_honours_keys_does_each_operation_once(case in case()) {
        let Some(expected) = expected(&case) else {
            return Err(TestCaseError::reject("two events at one instant"));
        };
        let observed = in_virtual_time(observed(&case));
        prop_assert_eq!(observed.1, expected.1);
    }
}
