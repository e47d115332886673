//! Questions about the parts of a plan. The host decides from the answers which bodies to keep, and whether
//! an unwind would run anything.

use super::{
    Action, Assign, CallPlan, CatchClause, Cleanup, EntryPlan, Envelope, FlowId, FlowPlan, Pause,
    PhasePlan, Plan, Shape, StackPlan, StepId, StepPlan, Tail, Target, Template, When, With,
};
use crate::language::expr::Program;
use crate::language::observe::EntryPlace;
use crate::language::provider::Phase;

/// The place of a [`Program`] in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramSite {
    /// The Flow.
    pub flow: FlowId,
    /// The Step; `None` in the Flow's own stack.
    pub step: Option<StepId>,
    /// The construct.
    pub construct: Construct,
    /// Whether it belongs to a cleanup.
    pub cleanup: bool,
}

/// The construct to which an expression belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Construct {
    /// A Step: its own fields and its clauses.
    Step,
    /// A call's `input` and `with`.
    Call,
    /// A call's arms.
    Arm,
    /// A phase block of an entry.
    Phase(Phase),
}

impl Plan {
    /// Every compiled expression, with its place.
    pub fn programs(&self) -> Vec<(ProgramSite, &Program)> {
        let mut collector = Collector::default();
        for (index, flow) in self.flows().iter().enumerate() {
            collector.flow(FlowId(index), flow);
        }
        collector.found
    }

    /// Every middleware entry: of Flows, of Steps and of cleanups.
    pub fn entries(&self) -> impl Iterator<Item = &EntryPlan> {
        self.stacks().flat_map(|stack| stack.iter().flat_map(EntryPlan::with_cleanups))
    }

    /// Calls `found` with each of these entries and its place.
    pub fn each_entry(&self, found: &mut impl FnMut(EntryPlace<'_>, &EntryPlan)) {
        for (index, flow) in self.flows().iter().enumerate() {
            let stack = if FlowId(index) == FlowId::ROOT { "flow" } else { &*flow.name };
            let place = EntryPlace { step: &flow.name, stack, cleanup: false, position: 0 };
            each_entry(place, &flow.stack, found);
            for step in &flow.steps {
                if let Action::Call(call) = &step.action {
                    let place = EntryPlace { step: &step.name, stack: &step.name, ..place };
                    each_entry(place, &call.stack, found);
                }
            }
        }
    }

    fn stacks(&self) -> impl Iterator<Item = &[EntryPlan]> {
        self.flows().iter().flat_map(|flow| {
            let steps = flow.steps.iter().filter_map(|step| match &step.action {
                Action::Call(call) => Some(&*call.stack),
                _ => None,
            });
            steps.chain(std::iter::once(&*flow.stack))
        })
    }

    /// Whether an unwind would run anything: an `onAlways` that acts, captures or can fault. If not, an
    /// execution can simply be dropped.
    pub fn needs_unwind(&self) -> bool {
        self.entries().any(|entry| !entry.phase(Phase::Always).is_empty())
    }

    /// Whether any entry may run its inner scope more than once.
    pub fn reruns(&self) -> bool {
        self.entries().any(|entry| entry.middleware.reruns())
    }

    /// Whether a Step may run several dispatches concurrently.
    pub fn fans_out(&self) -> bool {
        let steps = self.flows().iter().flat_map(|flow| &flow.steps);
        steps.map(|step| &step.action).any(|action| match action {
            Action::Gather(step) => {
                step.concurrency != Some(1) && (step.over.is_some() || step.calls.len() > 1)
            }
            _ => false,
        })
    }

    /// Every call of a Step or a cleanup.
    pub fn calls(&self) -> impl Iterator<Item = &CallPlan> {
        let cleanups = self.entries().flat_map(EntryPlan::cleanups);
        let cleanups = cleanups.map(|cleanup| &cleanup.call);
        let steps = self.flows().iter().flat_map(|flow| &flow.steps);
        steps.flat_map(StepPlan::calls).chain(cleanups)
    }

    /// Whether one execution may dispatch to providers more than once: a re-run, a fan-out, two calls, or
    /// a graph that leads back to a call.
    pub fn redispatches(&self) -> bool {
        self.reruns() || self.calls_several()
    }

    /// The same, without re-runs: a fan-out, two calls, or a graph that leads back to a call.
    pub fn calls_several(&self) -> bool {
        let provider = |call: &&CallPlan| matches!(call.target, Target::Provider(_));
        self.calls().filter(provider).count() > 1 || self.flows().iter().any(FlowPlan::calls_again)
    }
}

/// Lets `change` replace what each middleware entry of `flows` is made of, given its place.
pub(in crate::language) fn change_entries(
    flows: &mut [FlowPlan],
    change: &mut impl FnMut(EntryPlace<'_>, &mut EntryPlan),
) {
    for (index, FlowPlan { name, stack, steps, .. }) in flows.iter_mut().enumerate() {
        let known = if FlowId(index) == FlowId::ROOT { "flow" } else { &**name };
        let place = EntryPlace { step: name, stack: known, cleanup: false, position: 0 };
        change_stack(place, stack, change);
        for step in steps {
            if let Action::Call(call) = &mut step.action {
                let place = EntryPlace { step: &step.name, stack: &step.name, ..place };
                change_stack(place, &mut call.stack, change);
            }
        }
    }
}

fn change_stack(
    place: EntryPlace<'_>,
    stack: &mut StackPlan,
    change: &mut impl FnMut(EntryPlace<'_>, &mut EntryPlan),
) {
    stack.change_each(&mut |position, entry| {
        change(EntryPlace { position, ..place }, entry);
        for cleanup in entry.phases.iter_mut().filter_map(|phase| phase.cleanup.as_deref_mut()) {
            let place = EntryPlace { cleanup: true, ..place };
            change_stack(place, &mut cleanup.stack, change);
        }
    });
}

/// Calls `found` with the entries of a stack, and with those around their cleanups.
fn each_entry(
    place: EntryPlace<'_>,
    stack: &[EntryPlan],
    found: &mut impl FnMut(EntryPlace<'_>, &EntryPlan),
) {
    for (position, entry) in stack.iter().enumerate() {
        found(EntryPlace { position, ..place }, entry);
        for cleanup in entry.cleanups() {
            each_entry(EntryPlace { cleanup: true, ..place }, &cleanup.stack, found);
        }
    }
}

impl FlowPlan {
    /// Whether a Step fans out, or a Step leads to one that calls: then the graph may enter that one again
    /// and dispatch its call again.
    fn calls_again(&self) -> bool {
        self.steps.iter().enumerate().any(|(position, step)| match &step.action {
            Action::Gather(_) => true,
            Action::Call(_) => {
                let step = StepId(position);
                self.steps.iter().any(|other| other.action.successors().contains(&step))
            }
            _ => false,
        })
    }
}

impl StepPlan {
    /// The calls of its action.
    fn calls(&self) -> &[CallPlan] {
        match &self.action {
            Action::Call(step) => std::slice::from_ref(&step.call),
            Action::Gather(step) => &step.calls,
            _ => &[],
        }
    }
}

impl Action {
    /// The Steps to which control may go after this action.
    pub fn successors(&self) -> Vec<StepId> {
        let catch: &[CatchClause] = match self {
            Self::Call(step) => &step.catch,
            Self::Gather(step) => &step.catch,
            _ => &[],
        };
        catch.iter().map(|clause| clause.tail.next).chain(self.onwards()).collect()
    }

    /// The Steps to which control may go after this action has succeeded.
    pub fn onwards(&self) -> Vec<StepId> {
        match self {
            Self::Call(step) => vec![step.tail.next],
            Self::Gather(step) => vec![step.tail.next],
            Self::Match(step) => {
                let cases = step.cases.iter().map(|(_, tail)| tail.next);
                cases.chain([step.default.next]).collect()
            }
            Self::Pass(tail) => vec![tail.next],
            Self::Sleep(step) => vec![step.next],
            Self::Return(_) | Self::Raise(_) => Vec::new(),
        }
    }
}

impl EntryPlan {
    /// This entry, and those of the stacks around its cleanups.
    fn with_cleanups(&self) -> Box<dyn Iterator<Item = &Self> + '_> {
        let stacks = self.cleanups().flat_map(|cleanup| cleanup.stack.iter());
        let inner = stacks.flat_map(Self::with_cleanups);
        Box::new(std::iter::once(self).chain(inner))
    }

    /// The cleanups of its phases.
    pub fn cleanups(&self) -> impl Iterator<Item = &Cleanup> {
        self.phases.iter().filter_map(|phase| phase.cleanup.as_deref())
    }
}

impl PhasePlan {
    /// Whether nothing ever happens at the phase: the middleware does not act, no expression could fault, and
    /// nothing is captured.
    pub fn is_empty(&self) -> bool {
        let Self { acts, when, with, cleanup, shape, assign } = self;
        let given = match with {
            With::Literal { prepared, .. } => prepared.is_err(),
            With::Dynamic(_) => true,
        };
        !acts
            && !given
            && cleanup.is_none()
            && assign.is_empty()
            && matches!(shape, Shape::Through)
            && !matches!(when, Some(When::Expression(_)))
    }
}

impl Template {
    /// Calls `found` with every expression of the template.
    pub fn for_each_program<'p>(&'p self, found: &mut impl FnMut(&'p Program)) {
        match self {
            Self::Constant(_) => {}
            Self::Expression(program) => found(program),
            Self::Array(items) => items.iter().for_each(|item| item.for_each_program(found)),
            Self::Object(members) => {
                members.iter().for_each(|(_, value)| value.for_each_program(found));
            }
        }
    }
}

/// Collects the programs of a plan.
#[derive(Default)]
struct Collector<'p> {
    found: Vec<(ProgramSite, &'p Program)>,
}

impl<'p> Collector<'p> {
    fn flow(&mut self, flow: FlowId, plan: &'p FlowPlan) {
        let site = ProgramSite { flow, step: None, construct: Construct::Step, cleanup: false };
        self.stack(&plan.stack, site);
        for (index, step) in plan.steps.iter().enumerate() {
            self.step(step, ProgramSite { step: Some(StepId(index)), ..site });
        }
    }

    fn step(&mut self, step: &'p StepPlan, site: ProgramSite) {
        match &step.action {
            Action::Call(step) => {
                self.optional(step.input.as_ref(), site);
                self.stack(&step.stack, site);
                self.call(&step.call, site);
                self.tail(&step.tail, site);
                step.catch.iter().for_each(|clause| self.tail(&clause.tail, site));
            }
            Action::Gather(step) => {
                self.optional(step.over.as_ref(), site);
                self.optional(step.successes.as_ref(), site);
                step.calls.iter().for_each(|call| self.call(call, site));
                self.tail(&step.tail, site);
                step.catch.iter().for_each(|clause| self.tail(&clause.tail, site));
            }
            Action::Match(step) => {
                self.optional(step.input.as_ref(), site);
                for (when, tail) in &step.cases {
                    self.when(Some(when), site);
                    self.tail(tail, site);
                }
                self.tail(&step.default, site);
            }
            Action::Pass(tail) => self.tail(tail, site),
            Action::Sleep(sleep) => match &sleep.pause {
                Pause::For(template) | Pause::Until(template) => {
                    self.optional(Some(template), site);
                }
            },
            Action::Return(value) => self.optional(value.as_ref(), site),
            Action::Raise(envelope) => {
                if let Some(envelope) = envelope {
                    self.envelope(envelope, site);
                }
            }
        }
    }

    fn stack(&mut self, stack: &'p [EntryPlan], site: ProgramSite) {
        for entry in stack {
            for phase in Phase::ALL {
                self.phase(
                    entry.phase(phase),
                    ProgramSite { construct: Construct::Phase(phase), ..site },
                );
            }
        }
    }

    fn phase(&mut self, plan: &'p PhasePlan, site: ProgramSite) {
        let PhasePlan { acts: _, when, with, cleanup, shape, assign } = plan;
        self.when(when.as_ref(), site);
        self.with(with, site);
        match shape {
            Shape::Through => {}
            Shape::Value(template) => self.optional(Some(template), site),
            Shape::Envelope(envelope) => self.envelope(envelope, site),
        }
        self.assign(assign, site);
        if let Some(cleanup) = cleanup {
            let site = ProgramSite { cleanup: true, ..site };
            self.call(&cleanup.call, site);
            self.stack(&cleanup.stack, site);
        }
    }

    fn call(&mut self, call: &'p CallPlan, site: ProgramSite) {
        let CallPlan { target: _, input, with, value, on_success, on_failure } = call;
        let fields = ProgramSite { construct: Construct::Call, ..site };
        self.optional(input.as_ref(), fields);
        self.with(with, fields);
        let arms = ProgramSite { construct: Construct::Arm, ..site };
        self.optional(value.as_ref(), arms);
        self.assign(on_success, arms);
        self.assign(on_failure, arms);
    }

    fn tail(&mut self, tail: &'p Tail, site: ProgramSite) {
        self.optional(tail.output.as_ref(), site);
        self.assign(&tail.assign, site);
    }

    fn envelope(&mut self, envelope: &'p Envelope, site: ProgramSite) {
        let Envelope { ty, code, message, details, retryable, previous } = envelope;
        for field in [ty, code, message, details, retryable, previous] {
            self.optional(field.as_ref(), site);
        }
    }

    fn with(&mut self, with: &'p With, site: ProgramSite) {
        if let With::Dynamic(template) = with {
            self.optional(Some(template), site);
        }
    }

    fn when(&mut self, when: Option<&'p When>, site: ProgramSite) {
        if let Some(When::Expression(program)) = when {
            self.found.push((site, program));
        }
    }

    fn assign(&mut self, assign: &'p Assign, site: ProgramSite) {
        assign.iter().for_each(|(_, template)| self.optional(Some(template), site));
    }

    fn optional(&mut self, template: Option<&'p Template>, site: ProgramSite) {
        if let Some(template) = template {
            template.for_each_program(&mut |program| self.found.push((site, program)));
        }
    }
}
