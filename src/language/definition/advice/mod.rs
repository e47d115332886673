//! Warnings for definitions that run, but may not do what their authors meant.
//!
//! The specification permits everything here, so nothing here is an error ("Validators MAY warn").

mod members;
mod reach;
mod walk;

use std::collections::BTreeSet;

use self::walk::Walk;
use super::template::is_expression;
use super::{CodeUse, Compiler};
use crate::language::code::{CodePattern, system};
use crate::language::plan::{Action, CallPlan, Plan, StepId, StepPlan, Target};
use crate::language::provider::WrittenCall;
use crate::source::{Diagnostic, Member, Node, did_you_mean};

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

    /// Warns of a bare `Raise` to which a Step leads that has succeeded: no failure is being handled any more.
    pub(super) fn advise_empty_raises(&mut self, steps: &[StepPlan], reached: &BTreeSet<usize>) {
        for step in reached.iter().filter_map(|at| steps.get(*at)) {
            let onwards = step.action.onwards();
            for raise in onwards.iter().filter_map(|next| steps.get(next.0)) {
                if !matches!(raise.action, Action::Raise(None)) {
                    continue;
                }
                let message = format!(
                    "`{}` raises the failure that is being handled, but after `{}` there is none: it fails with `{}`",
                    raise.name,
                    step.name,
                    system::EMPTY_RAISE
                );
                let help = "let the `catch` lead here, or let it keep the failure (`assign: { failure: \"{{ step.result }}\" }`) \
                            and write a `result` with `code: \"{{ vars.failure.code }}\"` and `previous: \"{{ vars.failure }}\"`";
                let diagnostic = Diagnostic::warning("empty-raise", raise.span, message);
                let diagnostic = diagnostic.with_related(step.span, "leads there after a success");
                self.found.push(diagnostic.with_help(help));
            }
        }
    }

    /// Lets the provider of a call say what is wrong with it.
    pub(super) fn advise_call(&mut self, call: &CallPlan, node: &Node, step_input: Option<&Node>) {
        if let Target::Provider(provider) = &call.target {
            provider.check(WrittenCall { node, step_input }, &mut self.found);
        }
    }

    /// Warns of what can be seen only in the whole plan.
    pub(super) fn advise(&mut self, plan: &Plan) {
        self.advise_codes(plan);
        self.advise_members(plan);
        let mut walk = Walk::new(plan, self.catalog, &self.written);
        walk.root();
        let Walk { found, fine, .. } = walk;
        self.found.append(found);
        self.cache.note_fine(fine);
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
            diagnostic.help = did_you_mean(&text, declared.iter().copied())
                .or_else(|| ending_alike(&text, &declared));
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

/// The declared code that ends as `text` does: `Throttled` is meant to be `Provider.Call.Http.Throttled`.
fn ending_alike(text: &str, declared: &[&str]) -> Option<String> {
    let last = |code: &str| code.rsplit('.').next().map(str::to_ascii_lowercase);
    let meant = declared.iter().find(|code| last(code) == last(text))?;
    Some(format!("did you mean `{meant}`?"))
}
