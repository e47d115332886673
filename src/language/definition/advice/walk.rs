//! Follows every call from the root, to warn of what concerns several constructs: re-runs within re-runs, bounds within
//! bounds, matchers that nothing reaches.
//!
//! On the way down it is known what is around a place, on the way up which failures may rise there (`reach`). A stack may
//! be used at many places. What only its place makes useless (a code that cannot come, a bound that cannot fire) is
//! reported if it is useless wherever it stands; [`Walk::fine`] notes where it is not.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use crate::language::code::CodePattern;
use crate::language::plan::{
    Action, CallPlan, Cleanup, EntryPlan, FlowId, FlowPlan, Plan, StepId, Target, Template, With,
};
use crate::language::provider::{Argument, Catalog, Entry, Foreseen, Rising};
use crate::source::{Diagnostic, Diagnostics, Node, Span};

/// What is around a place, on the way there from the root.
#[derive(Clone, Copy, Default)]
pub(super) struct Around<'p> {
    /// The nearest entry that runs its inner scope again.
    rerun: Option<&'p EntryPlan>,
    /// How often all such entries together may run what is here, if literals say so.
    runs: Option<u32>,
    /// Whether any entry bounds the time.
    bounded: bool,
    /// The shortest bound that is certain, and its place.
    pub(super) bound: Option<(Duration, Span)>,
}

/// What makes two surroundings alike to everything that is reported.
type Place = (FlowId, Option<Span>, bool, Option<(Duration, Span)>);

/// What the operation within a stack is walked with.
type Operation<'a, 'p> = &'a mut dyn FnMut(&mut Walk<'p>, &Around<'p>) -> Rising<'p>;

/// The walk.
pub(super) struct Walk<'p> {
    pub(super) plan: &'p Plan,
    pub(super) catalog: &'p Catalog,
    /// Entries, by the places of their providers' names, and Steps, by the places of their names.
    pub(super) written: &'p HashMap<Span, Node>,
    pub(super) found: Diagnostics,
    /// What depends on its place alone, and is right at one of them.
    pub(super) fine: HashSet<(&'static str, Span)>,
    /// The entries around the present place, outermost first.
    pub(super) open: Vec<&'p EntryPlan>,
    /// What was reported already: a Flow may be called from many places.
    pub(super) reported: BTreeSet<(&'static str, Span, Option<Span>)>,
    walked: BTreeSet<Place>,
    /// What rises from the Flows that were walked.
    risen: BTreeMap<FlowId, Rising<'p>>,
}

impl<'p> Walk<'p> {
    pub(super) fn new(
        plan: &'p Plan,
        catalog: &'p Catalog,
        written: &'p HashMap<Span, Node>,
    ) -> Self {
        Self {
            plan,
            catalog,
            written,
            found: Diagnostics::default(),
            fine: HashSet::new(),
            open: Vec::new(),
            reported: BTreeSet::new(),
            walked: BTreeSet::new(),
            risen: BTreeMap::new(),
        }
    }

    /// Walks the whole plan.
    pub(super) fn root(&mut self) {
        self.flow(FlowId::ROOT, &Around::default());
    }

    /// The call graph has no cycles, so this ends. In the same surroundings the warnings are the same, so a Flow is walked
    /// once for each.
    fn flow(&mut self, id: FlowId, around: &Around<'p>) -> Rising<'p> {
        let place = (id, around.rerun.map(|entry| entry.span), around.bounded, around.bound);
        if self.walked.insert(place) {
            let flow = self.plan.flow(id);
            let rising =
                self.scope(&flow.stack, around, &mut |walk, around| walk.graph(id, flow, around));
            self.risen.insert(id, rising);
        }
        self.risen.get(&id).cloned().unwrap_or_default()
    }

    /// The Steps of a Flow. What rises is what no `catch` surely takes.
    fn graph(&mut self, id: FlowId, flow: &'p FlowPlan, around: &Around<'p>) -> Rising<'p> {
        let (mut rising, mut handled) = (Rising::default(), Rising::default());
        let mut raised_again = false;
        for (position, step) in flow.steps.iter().enumerate() {
            let (mut came, catch) = match &step.action {
                Action::Call(call) => {
                    let first = id == FlowId::ROOT && flow.entrypoint == StepId(position);
                    let own = first && call.input.is_none();
                    let operation: Operation<'_, 'p> =
                        &mut |walk, around| walk.call(&call.call, step.span, own, around);
                    (self.scope(&call.stack, around, operation), &call.catch)
                }
                Action::Gather(gather) => {
                    let mut came = Rising::default();
                    for call in &gather.calls {
                        came.merge(&self.call(call, step.span, false, around));
                    }
                    (came, &gather.catch)
                }
                Action::Raise(envelope) => {
                    match envelope {
                        Some(envelope) => Self::raised(envelope, &mut rising),
                        None => raised_again = true,
                    }
                    continue;
                }
                _ => continue,
            };
            self.catches(step.span, &came);
            handled.merge(&came);
            Self::caught(catch, &mut came);
            rising.merge(&came);
        }
        if raised_again {
            rising.merge(&handled);
        }
        rising
    }

    /// A call of the Step, or of the entry, at `place`.
    fn call(
        &mut self,
        call: &'p CallPlan,
        place: Span,
        own_input: bool,
        around: &Around<'p>,
    ) -> Rising<'p> {
        let provider = match &call.target {
            Target::Flow(id) => return self.flow(*id, around),
            Target::Provider(provider) => provider,
        };
        let arguments = arguments(&call.with);
        let with = match &call.with {
            With::Literal { prepared, .. } => prepared.as_ref().ok(),
            With::Dynamic(_) => None,
        };
        let own_input = own_input && call.input.is_none();
        let rising = provider.rising(Foreseen { with, arguments: arguments.as_deref(), own_input });
        if rising.endless
            && !around.bounded
            && self.reported.insert(("unbounded-call", place, None))
        {
            let message = "this call may wait for ever: its `responseTimeout` is PT0S, and no Timeout is around it";
            let help = "put a Timeout entry around it, or give it a `responseTimeout`";
            self.found.push(Diagnostic::warning("unbounded-call", place, message).with_help(help));
        }
        rising
    }

    /// Walks an operation within `stack`: down to it, and up again.
    fn scope(
        &mut self,
        stack: &'p [EntryPlan],
        around: &Around<'p>,
        operation: Operation<'_, 'p>,
    ) -> Rising<'p> {
        let mut inner = *around;
        let mut places = Vec::with_capacity(stack.len());
        for entry in stack {
            let cleanup = self.descend(entry, &inner);
            places.push((entry, inner, cleanup));
            inner = self.within(entry, &inner);
            self.open.push(entry);
        }
        let mut rising = operation(self, &inner);
        for (entry, around, cleanup) in places.into_iter().rev() {
            self.open.pop();
            self.ascend(entry, &around, &mut rising);
            rising.merge(&cleanup);
        }
        rising
    }

    /// What concerns an entry and what is around it. Returns what may rise from its cleanups.
    fn descend(&mut self, entry: &'p EntryPlan, around: &Around<'p>) -> Rising<'p> {
        let mut rising = Rising::default();
        for phase in &entry.phases {
            if let Some(cleanup) = &phase.cleanup {
                rising.merge(&self.cleanup(entry, cleanup, around));
            }
        }
        self.computed_wait(entry, around);
        self.bound(entry, around);
        rising
    }

    /// What is around the inner scope of `entry`.
    fn within(&mut self, entry: &'p EntryPlan, around: &Around<'p>) -> Around<'p> {
        let mut inner = *around;
        if entry.middleware.reruns() {
            inner = self.amplification(entry, around);
        }
        inner.bounded |= entry.middleware.contract().bounds();
        if let Some(bound) = bound(entry)
            && inner.bound.is_none_or(|(outer, _)| bound < outer)
        {
            inner.bound = Some((bound, entry.span));
        }
        inner
    }

    fn amplification(&mut self, entry: &'p EntryPlan, around: &Around<'p>) -> Around<'p> {
        let budget = entry.budget().flatten();
        let Some(outer) = around.rerun else {
            return Around { rerun: Some(entry), runs: budget, ..*around };
        };
        let runs = around.runs.zip(budget).map(|(outer, inner)| outer.saturating_mul(inner));
        if self.reported.insert(("amplified-runs", entry.span, Some(outer.span))) {
            let name = |entry: &'p EntryPlan| entry.middleware.contract().uri.bare_name();
            let message = format!(
                "a {} within a {}: each multiplies the runs of the other",
                name(entry),
                name(outer)
            );
            let help = match runs {
                Some(runs) => {
                    format!("one execution may make up to {runs} requests here; keep one of them")
                }
                None => "keep one of them".to_owned(),
            };
            let diagnostic = Diagnostic::warning("amplified-runs", entry.span, message);
            self.found.push(diagnostic.with_related(outer.span, "the outer one").with_help(help));
        }
        Around { rerun: Some(entry), runs, ..*around }
    }

    /// Warns of a wait that an expression decides and nothing bounds.
    fn computed_wait(&mut self, entry: &EntryPlan, around: &Around<'p>) {
        let Some((phase, argument)) = entry.middleware.computed_wait() else {
            return;
        };
        let With::Dynamic(Template::Object(members)) = &entry.phase(phase).with else {
            return;
        };
        let computed = |value: &Template| !matches!(value, Template::Constant(_));
        let computed = members.iter().any(|(name, value)| **name == *argument && computed(value));
        if computed
            && !around.bounded
            && self.reported.insert(("unbounded-delay", entry.span, None))
        {
            let name = entry.middleware.contract().uri.bare_name();
            let message = format!(
                "`{argument}` decides how long a {name} waits, and no Timeout around it bounds that"
            );
            let help = "put a Timeout entry before this one";
            self.found
                .push(Diagnostic::warning("unbounded-delay", entry.span, message).with_help(help));
        }
    }

    /// Warns of a bound that can never fire, because one around it is shorter.
    fn bound(&mut self, entry: &EntryPlan, around: &Around<'p>) {
        const CODE: &str = "idle-bound";
        let Some(inner) = bound(entry) else {
            return;
        };
        let Some((outer, place)) = around.bound.filter(|(outer, _)| *outer < inner) else {
            self.fine.insert((CODE, entry.span));
            return;
        };
        if self.reported.insert((CODE, entry.span, Some(place))) {
            let message = format!(
                "this bound of {} never fires: one around it fires after {}",
                shown(inner),
                shown(outer)
            );
            let diagnostic = Diagnostic::warning(CODE, entry.span, message);
            let help = "make it shorter than the bound around it, or remove it";
            self.found.push(diagnostic.with_related(place, "the bound around it").with_help(help));
        }
    }

    /// Warns of a cleanup whose failure may harm. Returns what may rise from it.
    fn cleanup(
        &mut self,
        entry: &EntryPlan,
        cleanup: &'p Cleanup,
        around: &Around<'p>,
    ) -> Rising<'p> {
        let bounded = cleanup.stack.iter().any(|entry| entry.middleware.contract().bounds());
        // No bound of the inner scope holds for a cleanup, but each run of what is around may run it again.
        let around = Around { bounded: true, bound: None, ..*around };
        let operation: Operation<'_, 'p> =
            &mut |walk, around| walk.call(&cleanup.call, entry.span, false, around);
        let rising = self.scope(&cleanup.stack, &around, operation);
        let best_effort = self.is_best_effort(&cleanup.call);
        if !bounded && !best_effort && self.reported.insert(("fragile-cleanup", entry.span, None)) {
            let message = "this cleanup is neither bounded nor best-effort: if it fails, it supersedes a success";
            let help = "bound it with a Timeout in `with.middleware`, or call an inline Flow whose Call Step \
                        catches `*` and returns";
            self.found
                .push(Diagnostic::warning("fragile-cleanup", entry.span, message).with_help(help));
        }
        if best_effort { Rising::default() } else { rising }
    }

    /// Whether the call's target is a Flow that turns every failure of its one call into a return.
    fn is_best_effort(&self, call: &CallPlan) -> bool {
        let Target::Flow(id) = call.target else {
            return false;
        };
        let flow = self.plan.flow(id);
        let Action::Call(step) = &flow.step(flow.entrypoint).action else {
            return false;
        };
        let returns = |id: StepId| matches!(flow.step(id).action, Action::Return(_));
        let caught = step.catch.iter().any(|clause| {
            let codes = clause.matcher.codes.as_deref().unwrap_or_default();
            let all = codes.contains(&CodePattern::Any);
            all && clause.matcher.types.is_none() && clause.matcher.retryable.is_none()
        });
        caught
            && step.catch.iter().all(|clause| returns(clause.tail.next))
            && returns(step.tail.next)
    }
}

/// The arguments of a `with` that holds expressions, unless it is one.
fn arguments(with: &With) -> Option<Vec<(Arc<str>, Argument)>> {
    let With::Dynamic(Template::Object(members)) = with else {
        return None;
    };
    let argument = |value: &Template| match value {
        Template::Constant(value) => Argument::Known(value.clone()),
        Template::Object(members) => {
            Argument::Computed(Some(members.iter().map(|(name, _)| Arc::clone(name)).collect()))
        }
        Template::Expression(_) | Template::Array(_) => Argument::Computed(None),
    };
    Some(members.iter().map(|(name, value)| (Arc::clone(name), argument(value))).collect())
}

/// The bound that an entry certainly imposes.
fn bound(entry: &EntryPlan) -> Option<Duration> {
    match entry.middleware.opening(entry.captures()?)? {
        Entry::Race { bound, .. } => Some(bound),
        _ => None,
    }
}

/// A duration as an author writes it.
pub(super) fn shown(duration: Duration) -> String {
    crate::language::temporal::Span::from_duration(duration).to_string()
}
