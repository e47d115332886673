//! What the engine runs: a checked definition. Its names are turned into indices, its expressions compiled,
//! its providers resolved and its literal `with`s prepared. It is immutable, and all executions share it.
//!
//! An absent field is `None` everywhere: the engine itself knows what its default is.

mod codes;
mod inspect;
mod needs;
mod stack;
mod words;
mod worst;

pub(in crate::language) use inspect::change_entries;
pub use inspect::{Construct, ProgramSite};
pub use needs::Needs;
pub use stack::{Decision, EntryBound, MOST_DECISIONS, StackPlan, StaticDescent};
pub use worst::Calls;
pub(in crate::language) use worst::leads_back;

use std::sync::Arc;

use super::expr::Program;
use super::matcher::Matcher;
use super::outcome::Failure;
use super::provider::{CallProvider, Middleware, Phase, Prepared};
use super::schema::Schema;
use super::value::Value;
use crate::source::Span;

/// A definition, ready to run.
#[derive(Debug)]
pub struct Plan {
    flows: Box<[FlowPlan]>,
    needs: Needs,
}

/// A Flow's position in [`Plan::flows`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub usize);

/// A Step's position in [`FlowPlan::steps`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StepId(pub usize);

/// One Flow object.
#[derive(Debug)]
pub struct FlowPlan {
    /// The name under `flows`. An inline Flow has the name of the Step that calls it; the root's is empty.
    pub name: Arc<str>,
    /// Whether it is written where it is called, so that no other call can name it.
    pub inline: bool,
    /// The parameter schema.
    pub parameters: Schema,
    /// The stack around the graph.
    pub stack: StackPlan,
    /// The Steps.
    pub steps: Box<[StepPlan]>,
    /// The Step with which an execution begins.
    pub entrypoint: StepId,
    /// Whether the graph may come to a Step more than once.
    pub leads_back: bool,
}

/// One Step.
#[derive(Debug)]
pub struct StepPlan {
    /// Its key under `steps`.
    pub name: Arc<str>,
    /// The place of its key.
    pub span: Span,
    /// What it does.
    pub action: Action,
}

/// The seven actions ("Step actions").
#[derive(Debug)]
pub enum Action {
    /// Dispatch one call within a stack.
    Call(Box<CallStep>),
    /// Fan calls out and gather their Results.
    Gather(Box<GatherStep>),
    /// Route on predicates.
    Match(Box<MatchStep>),
    /// Shape and capture.
    Pass(Tail),
    /// Wait.
    Sleep(SleepStep),
    /// Complete the frame with a success: the `value`.
    Return(Option<Template>),
    /// Complete the frame with a failure. `None`: with the one that is being handled.
    Raise(Option<Envelope>),
}

/// Output, capture and transition.
#[derive(Debug)]
pub struct Tail {
    /// The value emitted.
    pub output: Option<Template>,
    /// What is captured.
    pub assign: Assign,
    /// The successor.
    pub next: StepId,
}

/// A `Call` Step.
#[derive(Debug)]
pub struct CallStep {
    /// What enters the stack.
    pub input: Option<Template>,
    /// The stack.
    pub stack: StackPlan,
    /// The dispatch.
    pub call: CallPlan,
    /// On success.
    pub tail: Tail,
    /// On failure.
    pub catch: Box<[CatchClause]>,
}

/// A `Gather` Step.
#[derive(Debug)]
pub struct GatherStep {
    /// The collection of the iterate form; `None` for the scatter form.
    pub over: Option<Template>,
    /// The only call of the iterate form, or the calls of the scatter form.
    pub calls: Box<[CallPlan]>,
    /// How many may be active at once.
    pub concurrency: Option<usize>,
    /// How many must succeed. `None`: all.
    pub successes: Option<Template>,
    /// Whether pending dispatches still run when the outcome is determined.
    pub wait: bool,
    /// On success.
    pub tail: Tail,
    /// On failure.
    pub catch: Box<[CatchClause]>,
}

/// A `Match` Step.
#[derive(Debug)]
pub struct MatchStep {
    /// The value that the predicates test.
    pub input: Option<Template>,
    /// The predicates in order, each with what it selects.
    pub cases: Box<[(When, Tail)]>,
    /// What is selected if no predicate holds.
    pub default: Tail,
}

/// A `Sleep` Step.
#[derive(Debug)]
pub struct SleepStep {
    /// For how long or until when.
    pub pause: Pause,
    /// The successor.
    pub next: StepId,
}

/// How long a `Sleep` waits.
#[derive(Debug)]
pub enum Pause {
    /// A duration, from the Step's entry.
    For(Template),
    /// A timestamp.
    Until(Template),
}

/// One `catch` clause.
#[derive(Debug)]
pub struct CatchClause {
    /// Which failures.
    pub matcher: Matcher,
    /// What the handler receives, what is captured, and the handler.
    pub tail: Tail,
}

/// A `call` object.
#[derive(Debug)]
pub struct CallPlan {
    /// What it runs.
    pub target: Target,
    /// What the target receives.
    pub input: Option<Template>,
    /// The arguments.
    pub with: With,
    /// `onSuccess.value`.
    pub value: Option<Template>,
    /// `onSuccess.assign`.
    pub on_success: Assign,
    /// `onFailure.assign`.
    pub on_failure: Assign,
}

/// A call's target.
#[derive(Clone, Debug)]
pub enum Target {
    /// A provider.
    Provider(Arc<dyn CallProvider>),
    /// A Flow of the document.
    Flow(FlowId),
}

/// Arguments: a call's or a phase's `with`.
#[derive(Debug)]
pub enum With {
    /// It holds no expression, so it is validated and prepared once. If that fails, the construct fails with
    /// this failure each time it runs; `check` reports it at its place.
    Literal {
        /// As written; `{}` if absent.
        value: Value,
        /// What the provider made of it. Not used for a call to a Flow, whose frame validates `value` itself.
        prepared: Result<Prepared, Arc<Failure>>,
    },
    /// Evaluated, validated and prepared on each run.
    Dynamic(Template),
}

/// One middleware entry.
#[derive(Debug)]
pub struct EntryPlan {
    /// The place of its provider's name.
    pub span: Span,
    /// The middleware.
    pub middleware: Arc<dyn Middleware>,
    /// The phase blocks, by [`Phase`].
    pub phases: [PhasePlan; 4],
}

/// One phase block, and whether the middleware acts there.
#[derive(Debug)]
pub struct PhasePlan {
    /// Whether the contract declares an action at this phase.
    pub acts: bool,
    /// The gate. It is evaluated even if the middleware does not act here, because it may fail.
    pub when: Option<When>,
    /// The action's configuration.
    pub with: With,
    /// The definitions in `with`, if the contract declares structural parameters.
    pub cleanup: Option<Box<Cleanup>>,
    /// What the phase emits.
    pub shape: Shape,
    /// What is captured.
    pub assign: Assign,
}

/// A structural `call` within a structural `middleware`.
#[derive(Debug)]
pub struct Cleanup {
    /// The dispatch.
    pub call: CallPlan,
    /// The stack around it.
    pub stack: StackPlan,
}

/// A phase's shaping key.
#[derive(Debug)]
pub enum Shape {
    /// Nothing is written: the value or failure passes through unchanged.
    Through,
    /// `output` of `onEntry` or `value` of `onSuccess`.
    Value(Template),
    /// The envelope fields of `onFailure`. Boxed: few phases have one, and a table of routes has many phases.
    Envelope(Box<Envelope>),
}

/// The fields of a failure that an author may write.
#[derive(Debug, Default)]
pub struct Envelope {
    /// `type`.
    pub ty: Option<Template>,
    /// `code`.
    pub code: Option<Template>,
    /// `message`.
    pub message: Option<Template>,
    /// `details`.
    pub details: Option<Template>,
    /// `retryable`.
    pub retryable: Option<Template>,
    /// `previous`. If it is written, it replaces the engine's link.
    pub previous: Option<Template>,
}

/// A predicate.
#[derive(Debug)]
pub enum When {
    /// Written as a boolean.
    Literal(bool),
    /// An expression.
    Expression(Program),
}

/// Names with the values to bind to them. All are evaluated against the state before the block.
pub type Assign = Box<[(Arc<str>, Template)]>;

/// A value, an expression, or a tree of them ("Expressions in object and array fields").
#[derive(Clone, Debug)]
pub enum Template {
    /// A value without expressions.
    Constant(Value),
    /// An expression that is the whole value.
    Expression(Program),
    /// An array with an expression somewhere in it.
    Array(Box<[Self]>),
    /// An object with an expression somewhere in it.
    Object(Box<[(Arc<str>, Self)]>),
}

impl Plan {
    /// A plan of these Flows, the root first.
    pub fn new(flows: Vec<FlowPlan>) -> Self {
        let mut plan = Self { flows: flows.into(), needs: Needs::default() };
        plan.needs = Needs::of(&plan);
        plan
    }

    /// All Flow objects of the document; the root is the first.
    pub fn flows(&self) -> &[FlowPlan] {
        &self.flows
    }

    /// The Flow at `id`.
    ///
    /// # Panics
    ///
    /// Never for an id of this plan: an id is the position of one of its Flows.
    #[expect(clippy::indexing_slicing, reason = "ids are positions in the same plan")]
    pub fn flow(&self, id: FlowId) -> &FlowPlan {
        &self.flows[id.0]
    }

    /// What its expressions may read.
    pub const fn needs(&self) -> Needs {
        self.needs
    }
}

impl FlowId {
    /// The root Flow.
    pub const ROOT: Self = Self(0);
}

impl FlowPlan {
    /// The Step at `id`.
    ///
    /// # Panics
    ///
    /// Never for an id of this Flow: an id is the position of one of its Steps.
    #[expect(clippy::indexing_slicing, reason = "ids are positions in the same Flow")]
    pub fn step(&self, id: StepId) -> &StepPlan {
        &self.steps[id.0]
    }

    /// The Call Step, if this Flow is nothing more: it has no stack around the graph, the Step's success is
    /// returned unchanged, and nothing catches its failure.
    pub fn only_call(&self) -> Option<(&StepPlan, &CallStep)> {
        let step = self.step(self.entrypoint);
        let Action::Call(call) = &step.action else {
            return None;
        };
        let CallStep { input: None, stack: _, call: _, tail, catch } = call.as_ref() else {
            return None;
        };
        let Tail { output: None, assign, next } = tail else {
            return None;
        };
        let returns = matches!(self.step(*next).action, Action::Return(None));
        let only = returns && self.stack.is_empty() && assign.is_empty() && catch.is_empty();
        only.then_some((step, call))
    }
}

impl Action {
    /// The name, as `action` writes it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Call(_) => "Call",
            Self::Gather(_) => "Gather",
            Self::Match(_) => "Match",
            Self::Pass(_) => "Pass",
            Self::Sleep(_) => "Sleep",
            Self::Return(_) => "Return",
            Self::Raise(_) => "Raise",
        }
    }
}

impl Shape {
    /// Whether it writes a failure's `previous`, so that the engine does not link it.
    pub const fn writes_previous(&self) -> bool {
        matches!(self, Self::Envelope(envelope) if envelope.previous.is_some())
    }
}

impl CallPlan {
    /// Whether something is evaluated after the target has settled.
    pub fn has_arms(&self) -> bool {
        self.value.is_some() || !self.on_success.is_empty() || !self.on_failure.is_empty()
    }

    /// The provider and its arguments, if the call has nothing else: the target receives the call's input
    /// unchanged, and the target's Result is the call's.
    pub fn bare(&self) -> Option<(&dyn CallProvider, &Prepared)> {
        match (&self.target, &self.with) {
            (Target::Provider(provider), With::Literal { prepared: Ok(prepared), .. })
                if self.input.is_none() && !self.has_arms() =>
            {
                Some((provider.as_ref(), prepared))
            }
            _ => None,
        }
    }
}

impl EntryPlan {
    /// The block of `phase`.
    pub fn phase(&self, phase: Phase) -> &PhasePlan {
        phase.of(&self.phases)
    }
}
