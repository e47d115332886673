//! What a plan's shape decides about a route's requests: whether bodies are kept or read into memory,
//! and whether a request must be unwound. Found once, when a configuration is loaded.
//!
//! Each answer errs on the side that keeps a policy's meaning: a body that might be read is buffered, a
//! request that might be sent again is kept.

use crate::language::expr::{Path, Program, Root};
use crate::language::plan::{
    Action, Assign, CallPlan, EntryPlan, Envelope, FlowPlan, Pause, Plan, Shape, StackPlan, StepId,
    StepPlan, Tail, Target, Template, When, With,
};
use crate::language::provider::Phase;

/// What is true of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "four independent answers, each asked by its own name"
)]
pub(crate) struct Facts {
    /// An expression may read the body of the request.
    pub(crate) reads_request: bool,
    /// An expression may read the body of a response.
    pub(crate) reads_response: bool,
    /// The request may be sent more than once.
    pub(crate) resends: bool,
    /// Something must run when the request is cut off: a cleanup.
    pub(crate) unwinds: bool,
}

impl Facts {
    /// Reads `plan`.
    pub(crate) fn of(plan: &Plan) -> Self {
        let mut survey = Survey::default();
        for flow in plan.flows() {
            survey.flow(flow);
        }
        survey.facts.resends |= survey.calls > 1;
        survey.facts
    }

    /// An expression of a `classify` rule.
    pub(crate) fn read_by(&mut self, program: &Program) {
        for path in program.reads() {
            self.path(path);
        }
    }

    /// A path that reaches a member `body`: of the response where it goes through a result or a
    /// failure; of the request where it starts at the frame's input; of either where it may be both.
    fn path(&mut self, path: &Path) {
        let Some(end) = path.members.iter().position(|name| &**name == "body") else {
            return;
        };
        let way = path.members.get(..end).unwrap_or_default();
        let through = |names: &[&str]| way.iter().any(|name| names.contains(&&**name));
        let response = matches!(path.root, Root::Response | Root::Failure)
            || through(&["result", "details", "failure"]);
        self.reads_response |= response || !(path.root == Root::Frame && through(&["input"]));
        self.reads_request |= !response;
    }
}

/// A walk through all of a plan.
#[derive(Debug, Default)]
struct Survey {
    facts: Facts,
    /// Calls of providers, wherever they stand.
    calls: usize,
}

impl Survey {
    fn flow(&mut self, flow: &FlowPlan) {
        self.stack(&flow.stack);
        for (position, step) in flow.steps.iter().enumerate() {
            self.step(step);
            self.facts.resends |= is_call(step) && entered_again(flow, StepId(position));
        }
    }

    fn step(&mut self, step: &StepPlan) {
        match &step.action {
            Action::Call(step) => {
                self.template(step.input.as_ref());
                self.stack(&step.stack);
                self.call(&step.call);
                self.tail(&step.tail);
                self.catch(&step.catch);
            }
            Action::Gather(step) => {
                self.facts.resends = true;
                self.template(step.over.as_ref());
                self.template(step.successes.as_ref());
                step.calls.iter().for_each(|call| self.call(call));
                self.tail(&step.tail);
                self.catch(&step.catch);
            }
            Action::Match(step) => {
                self.template(step.input.as_ref());
                for (when, tail) in &step.cases {
                    self.when(Some(when));
                    self.tail(tail);
                }
                self.tail(&step.default);
            }
            Action::Pass(tail) => self.tail(tail),
            Action::Sleep(step) => match &step.pause {
                Pause::For(template) | Pause::Until(template) => self.template(Some(template)),
            },
            Action::Return(value) => self.template(value.as_ref()),
            Action::Raise(envelope) => {
                if let Some(envelope) = envelope {
                    self.envelope(envelope);
                }
            }
        }
    }

    fn catch(&mut self, clauses: &[crate::language::plan::CatchClause]) {
        for clause in clauses {
            self.template(clause.output.as_ref());
            self.assign(&clause.assign);
        }
    }

    fn tail(&mut self, tail: &Tail) {
        self.template(tail.output.as_ref());
        self.assign(&tail.assign);
    }

    fn stack(&mut self, stack: &StackPlan) {
        stack.iter().for_each(|entry| self.entry(entry));
    }

    fn entry(&mut self, entry: &EntryPlan) {
        self.facts.resends |= entry.middleware.reruns();
        self.facts.unwinds |= entry.phase(Phase::Always).acts;
        for phase in Phase::ALL {
            let phase = entry.phase(phase);
            self.when(phase.when.as_ref());
            self.with(&phase.with);
            match &phase.shape {
                Shape::Through => {}
                Shape::Value(value) => self.template(Some(value)),
                Shape::Envelope(envelope) => self.envelope(envelope),
            }
            self.assign(&phase.assign);
            if let Some(cleanup) = &phase.cleanup {
                self.stack(&cleanup.stack);
                self.call(&cleanup.call);
            }
        }
    }

    fn call(&mut self, call: &CallPlan) {
        self.calls += usize::from(matches!(call.target, Target::Provider(_)));
        self.template(call.input.as_ref());
        self.with(&call.with);
        self.template(call.value.as_ref());
        self.assign(&call.on_success);
        self.assign(&call.on_failure);
    }

    fn with(&mut self, with: &With) {
        if let With::Dynamic(template) = with {
            self.template(Some(template));
        }
    }

    fn when(&mut self, when: Option<&When>) {
        if let Some(When::Expression(program)) = when {
            self.facts.read_by(program);
        }
    }

    fn envelope(&mut self, envelope: &Envelope) {
        let Envelope {
            ty,
            code,
            message,
            details,
            retryable,
            previous,
        } = envelope;
        for template in [ty, code, message, details, retryable, previous] {
            self.template(template.as_ref());
        }
    }

    fn assign(&mut self, assign: &Assign) {
        for (_, template) in assign {
            self.template(Some(template));
        }
    }

    fn template(&mut self, template: Option<&Template>) {
        match template {
            None | Some(Template::Constant(_)) => {}
            Some(Template::Expression(program)) => self.facts.read_by(program),
            Some(Template::Array(items)) => {
                items.iter().for_each(|item| self.template(Some(item)));
            }
            Some(Template::Object(members)) => {
                members
                    .iter()
                    .for_each(|(_, item)| self.template(Some(item)));
            }
        }
    }
}

fn is_call(step: &StepPlan) -> bool {
    matches!(step.action, Action::Call(_))
}

/// Whether some Step leads to `step`: a graph that enters a call anew may send the request anew.
fn entered_again(flow: &FlowPlan, step: StepId) -> bool {
    flow.steps.iter().any(|other| match &other.action {
        Action::Call(other) => leads(&other.tail, &other.catch, step),
        Action::Gather(other) => leads(&other.tail, &other.catch, step),
        Action::Match(other) => {
            let mut tails = other.cases.iter().map(|(_, tail)| tail);
            tails.any(|tail| tail.next == step) || other.default.next == step
        }
        Action::Pass(tail) => tail.next == step,
        Action::Sleep(other) => other.next == step,
        Action::Return(_) | Action::Raise(_) => false,
    })
}

fn leads(tail: &Tail, catch: &[crate::language::plan::CatchClause], step: StepId) -> bool {
    tail.next == step || catch.iter().any(|clause| clause.next == step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::expr::PathEnd;

    fn facts(root: Root, members: &[&str]) -> (bool, bool) {
        let mut facts = Facts::default();
        facts.path(&Path {
            root,
            members: members.iter().map(|name| (*name).into()).collect(),
            end: PathEnd::Value,
        });
        (facts.reads_request, facts.reads_response)
    }

    #[test]
    fn a_path_says_which_body_it_reads() {
        assert_eq!(facts(Root::Frame, &["input", "body", "id"]), (true, false));
        assert_eq!(facts(Root::Step, &["input", "body"]), (true, true));
        assert_eq!(facts(Root::Vars, &["kept", "body"]), (true, true));
        let details = ["result", "details", "body"];
        assert_eq!(facts(Root::Middleware, &details), (false, true));
        assert_eq!(facts(Root::Response, &["body"]), (false, true));
        assert_eq!(facts(Root::Step, &["input", "headers"]), (false, false));
    }
}
