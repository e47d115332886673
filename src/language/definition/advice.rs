//! Warnings for definitions that run, but may not do what their authors meant.
//!
//! The specification permits everything here, so nothing here is an error ("Validators MAY warn").

use std::collections::BTreeSet;

use super::template::is_expression;
use super::{CodeUse, Compiler};
use crate::language::code::{CodePattern, system};
use crate::language::plan::{
    Action, CallPlan, Cleanup, EntryPlan, FlowId, Plan, StepId, StepPlan, Target, Template, With,
};
use crate::language::provider::Phase;
use crate::source::{Diagnostic, Diagnostics, Member, Node, Span, did_you_mean};

impl Compiler<'_> {
    /// Warns of a code in a namespace that is not the author's ("Code namespaces").
    pub(super) fn advise_minted(&mut self, code: Option<&Node>) {
        let Some(code) = code.filter(|code| !is_expression(code)) else {
            return;
        };
        let owner = match code.as_str().map(|text| text.split('.').next().unwrap_or_default()) {
            Some("System") => "`System.` is the engine's",
            Some("Provider") => "`Provider.` is the providers'",
            _ => return,
        };
        let message = format!("{owner}: a reader takes this failure for one of theirs");
        let help = "raise a code of your own, such as `Payments.Rejected`";
        self.warn("minted-code", code.span, message, help);
    }

    /// Warns of a `completion` that needs more successes than there are calls.
    pub(super) fn advise_successes(&mut self, successes: &Node, calls: Option<&Node>) {
        let Some(calls) = calls.and_then(Node::as_array) else {
            return;
        };
        let wanted = successes.as_number().unwrap_or_default();
        let count = u32::try_from(calls.len()).map_or(f64::INFINITY, f64::from);
        if wanted > count {
            let message = format!(
                "`successes` is {wanted}, more than the {count} in `calls`: the Gather always fails"
            );
            self.found.push(Diagnostic::warning("unmeetable-completion", successes.span, message));
        }
    }

    /// Warns of Steps that cannot be reached. Returns those that can.
    pub(super) fn advise_unreached(
        &mut self,
        steps: &[StepPlan],
        entry: StepId,
        members: &[Member],
    ) -> BTreeSet<usize> {
        let mut reached = BTreeSet::from([entry.0]);
        let mut open = vec![entry];
        while let Some(at) = open.pop() {
            for next in steps.get(at.0).map(|step| step.action.successors()).unwrap_or_default() {
                if reached.insert(next.0) {
                    open.push(next);
                }
            }
        }
        for (index, member) in members.iter().enumerate() {
            if !reached.contains(&index) {
                let message = format!("no way leads to the Step `{}`", member.key);
                let help = "name it in a `next`, or remove it";
                self.warn("unreached-step", member.key_span, message, help);
            }
        }
        reached
    }

    /// Warns of Steps from which no way leads to an end. A call may fail, and so is an end.
    pub(super) fn advise_endless(
        &mut self,
        steps: &[StepPlan],
        reached: &BTreeSet<usize>,
        members: &[Member],
    ) {
        let successors: Vec<_> = steps.iter().map(|step| step.action.successors()).collect();
        let mut before = vec![Vec::new(); steps.len()];
        for (at, next) in successors.iter().enumerate() {
            for next in next {
                before.get_mut(next.0).into_iter().for_each(|before| before.push(at));
            }
        }
        let ends = |step: &StepPlan| matches!(step.action, Action::Call(_) | Action::Gather(_));
        let end = |at: &usize| {
            let terminal = successors.get(*at).is_none_or(Vec::is_empty);
            terminal || steps.get(*at).is_some_and(ends)
        };
        let mut open: Vec<usize> = (0..steps.len()).filter(end).collect();
        let mut ending: BTreeSet<usize> = open.iter().copied().collect();
        while let Some(at) = open.pop() {
            for before in before.get(at).into_iter().flatten() {
                if ending.insert(*before) {
                    open.push(*before);
                }
            }
        }
        let first = reached.iter().find(|at| !ending.contains(at));
        if let Some(member) = first.and_then(|at| members.get(*at)) {
            let message = format!("no way leads from the Step `{}` to an end", member.key);
            let help = "let one of the Steps on its way lead to a `Return` or a `Raise`";
            self.warn("endless-steps", member.key_span, message, help);
        }
    }

    /// Warns of what can be seen only in the whole plan.
    pub(super) fn advise(&mut self, plan: &Plan) {
        self.advise_codes(plan);
        let (reported, walked) = (BTreeSet::new(), BTreeSet::new());
        let mut walk = Walk { plan, found: Diagnostics::default(), reported, walked };
        walk.flow(FlowId::ROOT, &Around::default());
        self.found.append(walk.found);
    }

    /// Warns of matchers for codes that nothing declares ("Failure matching").
    fn advise_codes(&mut self, plan: &Plan) {
        let uses = std::mem::take(&mut self.codes);
        let raised: BTreeSet<&str> = uses
            .iter()
            .filter_map(|code| match code {
                CodeUse::Raised(code) => code.as_deref(),
                CodeUse::Matched(..) => None,
            })
            .collect();
        let dynamic = uses.iter().any(|code| matches!(code, CodeUse::Raised(None)));
        let targets = plan.calls().filter_map(|call| match &call.target {
            Target::Provider(provider) => Some(provider.contract()),
            Target::Flow(_) => None,
        });
        if targets.into_iter().any(|contract| self.catalog.may_emit_any(contract)) {
            return;
        }
        let declared: Vec<&str> =
            self.catalog.codes().chain(system::ALL).chain(raised.iter().copied()).collect();
        for code in &uses {
            let CodeUse::Matched(pattern, span) = code else {
                continue;
            };
            let text = pattern.to_string();
            let owned = text.starts_with("System.") || text.starts_with("Provider.");
            if (dynamic && !owned) || self.may_be(pattern, &declared) {
                continue;
            }
            let message = format!("nothing declares a failure code that `{pattern}` matches");
            let mut diagnostic = Diagnostic::warning("undeclared-code", *span, message);
            diagnostic.help = did_you_mean(&text, declared.iter().copied());
            self.found.push(diagnostic);
        }
    }

    fn may_be(&self, pattern: &CodePattern, declared: &[&str]) -> bool {
        let open = self.catalog.open_codes().any(|open| match pattern {
            CodePattern::Any => true,
            CodePattern::Exact(code) => open.matches(code),
            CodePattern::Prefix(prefix) => {
                let open = open.to_string();
                let open = open.trim_end_matches('*');
                open.starts_with(prefix.as_ref()) || prefix.starts_with(open)
            }
        });
        open || matches!(pattern, CodePattern::Any)
            || declared.iter().any(|code| pattern.matches(code))
    }
}

/// The entries around a place, on the way there from the root.
#[derive(Clone, Copy, Default)]
struct Around {
    /// The nearest entry that re-runs on failure.
    retry: Option<Span>,
    /// How often all such entries together may run what is here, if literals say so.
    runs: Option<u32>,
    /// Whether any entry bounds the time.
    bounded: bool,
}

/// Follows every call from the root.
struct Walk<'p> {
    plan: &'p Plan,
    found: Diagnostics,
    /// What was reported already: a Flow may be called from many places.
    reported: BTreeSet<(&'static str, Span, Option<Span>)>,
    walked: BTreeSet<(FlowId, Option<Span>, bool)>,
}

impl Walk<'_> {
    /// The call graph has no cycles, so this ends.
    fn flow(&mut self, id: FlowId, around: &Around) {
        // In the same surroundings the warnings are the same, so a Flow is walked once for each.
        if !self.walked.insert((id, around.retry, around.bounded)) {
            return;
        }
        let flow = self.plan.flow(id);
        let around = self.stack(&flow.stack, around);
        for step in &flow.steps {
            match &step.action {
                Action::Call(step) => {
                    let around = self.stack(&step.stack, &around);
                    self.call(&step.call, &around);
                }
                Action::Gather(step) => step.calls.iter().for_each(|call| self.call(call, &around)),
                _ => {}
            }
        }
    }

    fn call(&mut self, call: &CallPlan, around: &Around) {
        if let Target::Flow(id) = call.target {
            self.flow(id, around);
        }
    }

    /// Warns about the entries of `stack`. Returns what is around the operation that it wraps.
    fn stack(&mut self, stack: &[EntryPlan], around: &Around) -> Around {
        let mut around = *around;
        for entry in stack {
            let contract = entry.middleware.contract();
            for phase in &entry.phases {
                if let Some(cleanup) = &phase.cleanup {
                    self.cleanup(entry, cleanup);
                }
            }
            self.computed_wait(entry, &around);
            if entry.middleware.reruns() && contract.phase(Phase::Failure).is_some() {
                around = self.amplification(entry, &around);
            }
            around.bounded |= contract.bounds();
        }
        around
    }

    fn amplification(&mut self, entry: &EntryPlan, around: &Around) -> Around {
        let budget = match &entry.phase(Phase::Entry).with {
            With::Literal { prepared: Ok(config), .. } => entry.middleware.budget(config),
            _ => None,
        };
        let Some(outer) = around.retry else {
            return Around { retry: Some(entry.span), runs: budget, ..*around };
        };
        let runs = around.runs.zip(budget).map(|(outer, inner)| outer.saturating_mul(inner));
        if self.reported.insert(("amplification", entry.span, Some(outer))) {
            let message = "a retry within a retry: each multiplies the attempts of the other";
            let mut diagnostic = Diagnostic::warning("amplified-retry", entry.span, message)
                .with_related(outer, "the outer one");
            diagnostic.help = Some(match runs {
                Some(runs) => {
                    format!("one execution may make up to {runs} requests here; keep one of them")
                }
                None => "keep one of them".to_owned(),
            });
            self.found.push(diagnostic);
        }
        Around { retry: Some(entry.span), runs, ..*around }
    }

    /// Warns of a wait that an expression decides and nothing bounds.
    fn computed_wait(&mut self, entry: &EntryPlan, around: &Around) {
        let Some((phase, argument)) = entry.middleware.computed_wait() else {
            return;
        };
        let With::Dynamic(Template::Object(members)) = &entry.phase(phase).with else {
            return;
        };
        let computed = |value: &Template| !matches!(value, Template::Constant(_));
        let computed = members.iter().any(|(name, value)| **name == *argument && computed(value));
        if computed && !around.bounded && self.reported.insert(("wait", entry.span, None)) {
            let name = entry.middleware.contract().uri.bare_name();
            let message = format!(
                "`{argument}` decides how long a {name} waits, and no Timeout around it bounds that"
            );
            let help = "put a Timeout entry before this one";
            self.found
                .push(Diagnostic::warning("unbounded-delay", entry.span, message).with_help(help));
        }
    }

    fn cleanup(&mut self, entry: &EntryPlan, cleanup: &Cleanup) {
        let bounded = cleanup.stack.iter().any(|entry| entry.middleware.contract().bounds());
        let around = Around { bounded: true, ..Around::default() };
        let around = self.stack(&cleanup.stack, &around);
        self.call(&cleanup.call, &around);
        if bounded
            || self.is_best_effort(&cleanup.call)
            || !self.reported.insert(("cleanup", entry.span, None))
        {
            return;
        }
        let message =
            "this cleanup is neither bounded nor best-effort: if it fails, it supersedes a success";
        let help = "bound it with a Timeout in `with.middleware`, or call an inline Flow whose Call Step \
                    catches `*` and returns";
        self.found
            .push(Diagnostic::warning("fragile-cleanup", entry.span, message).with_help(help));
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
