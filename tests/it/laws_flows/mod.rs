//! Random Flows against a small recursive model of the specification: the same Result (its value, or the
//! types and codes down the chain), the same dispatches at the same virtual instants, the same end.
//!
//! The graphs run forwards, so each ends; what a call does depends on its attempt alone, so the dispatches
//! of a `Gather` are independent and the model runs each on a clock of its own: once undisturbed, to learn
//! when it would end, and again where something interrupts it before that.

use std::collections::BTreeSet;

use proptest::prelude::*;

use crate::support::law::{cases as config, in_virtual_time};

/// Random Flows.
mod cases;
/// What should come of them.
mod model;
/// What comes of them.
mod run;

const FAULT: &str = "System.ExpressionEvaluationError";
const RAISED: &str = "Script.Raised";
/// An expression that always faults.
const FAULTY: &str = "{{ vars.absent }}";

#[derive(Clone, Debug)]
struct Flow {
    stack: Vec<Layer>,
    /// Three terminals follow the last: see [`Place`].
    steps: Vec<Step>,
}

#[derive(Clone, Debug)]
enum Step {
    /// Emits the number, if one is given.
    Pass(Option<u64>),
    /// Where the value is this number, control goes elsewhere.
    Match(u64, Jump),
    Sleep(u64),
    Call {
        call: Call,
        stack: Vec<Layer>,
        catch: Vec<(&'static str, Jump)>,
    },
    Gather {
        form: Form,
        /// Whether a field of its own faults: `over`, or `successes` where that is all there is.
        faults: bool,
        concurrency: Option<usize>,
        /// How many must succeed, and whether the rest is waited for.
        completion: Option<(usize, bool)>,
        catch: Vec<(&'static str, Jump)>,
    },
}

/// One of the places after the Step, by its number, taken round.
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

/// What a call's arms do.
#[derive(Clone, Copy, Debug)]
enum Arms {
    Nothing,
    /// The success arm gives this number; the failure arm captures.
    Give(u64),
    /// The one that runs faults.
    Fault,
}

#[derive(Clone, Debug)]
enum Target {
    /// What each attempt does: so many milliseconds, then success or the code.
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
    /// Runs so often, each run on the value of the last.
    Loop(u32),
    /// A cleanup that takes so long and then fails, if so.
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

/// What a run came to.
#[derive(Debug, PartialEq)]
struct Observed {
    /// The value as JSON text, or `type code` down the chain.
    result: Result<String, Vec<String>>,
    /// When each dispatch began, and its tag; where some run side by side, those of an instant by tag.
    began: Vec<(u64, String)>,
    ended: u64,
}

/// Where control may go: a Step, or one of the three terminals of every Flow.
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

    /// The places that control can reach: a definition holds no others.
    fn reachable(&self) -> BTreeSet<Place> {
        let mut reached = BTreeSet::from([Place::Step(0)]);
        for (at, step) in self.steps.iter().enumerate() {
            if !reached.contains(&Place::Step(at)) {
                continue;
            }
            reached.insert(self.next(at));
            match step {
                Step::Match(_, jump) => {
                    reached.insert(self.jump(at, *jump));
                }
                Step::Call { catch, .. } | Step::Gather { catch, .. } => {
                    reached.extend(catch.iter().map(|(_, jump)| self.jump(at, *jump)));
                }
                Step::Pass(_) | Step::Sleep(_) => {}
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

    /// Whether something in it runs again without a wait.
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

/// A call's tag: where it stands in memory, for a case holds each once.
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

proptest! {
    #![proptest_config(config(1000))]

    #[test]
    fn a_random_flow_agrees_with_the_model(case in cases::case()) {
        let Some(expected) = model::expected(&case) else {
            return Err(TestCaseError::reject("two events at one instant"));
        };
        let observed = in_virtual_time(run::observed(&case));
        prop_assert_eq!(observed, expected);
    }
}
