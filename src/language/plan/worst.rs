//! How many provider calls one execution may make, with its retries, fan-outs and cleanups.
//!
//! This is an upper bound, from literals alone. Predicates count as true, each Step takes its costliest way,
//! and bounds on time do not count.

use super::{Action, CallPlan, EntryPlan, FlowId, Plan, StepId, StepPlan, Target, Template, With};
use crate::language::provider::Phase;
use crate::language::value::Value;

/// A number of calls. `None` if the definition sets no limit: a `Loop`, a graph that leads back, a fan-out or
/// a budget that an expression decides.
pub type Calls = Option<u64>;

impl Plan {
    /// The most provider calls that one execution may make, including those of its cleanups.
    pub fn most_calls(&self) -> Calls {
        let mut known = vec![None; self.flows().len()];
        self.flow_calls(FlowId::ROOT, &mut known)
    }

    /// The call graph has no cycles, so this ends. Each Flow is counted once.
    fn flow_calls(&self, id: FlowId, known: &mut [Option<Calls>]) -> Calls {
        if let Some(calls) = known.get(id.0).copied().flatten() {
            return calls;
        }
        let flow = self.flow(id);
        let own: Vec<Calls> =
            flow.steps.iter().map(|step| self.step_calls(&step.action, known)).collect();
        let graph = costliest_way(&flow.steps, flow.entrypoint, &own);
        let calls = self.stack_calls(&flow.stack, graph, known);
        if let Some(place) = known.get_mut(id.0) {
            *place = Some(calls);
        }
        calls
    }

    fn step_calls(&self, action: &Action, known: &mut [Option<Calls>]) -> Calls {
        match action {
            Action::Call(step) => {
                let calls = self.call_calls(&step.call, known);
                self.stack_calls(&step.stack, calls, known)
            }
            Action::Gather(step) => {
                let mut sum = Some(0);
                for call in &step.calls {
                    sum = plus(sum, self.call_calls(call, known));
                }
                match &step.over {
                    None => sum,
                    Some(Template::Constant(Value::Array(elements))) => {
                        times(sum, u64::try_from(elements.len()).ok())
                    }
                    Some(_) => times(sum, None),
                }
            }
            _ => Some(0),
        }
    }

    fn call_calls(&self, call: &CallPlan, known: &mut [Option<Calls>]) -> Calls {
        match call.target {
            Target::Provider(_) => Some(1),
            Target::Flow(id) => self.flow_calls(id, known),
        }
    }

    /// The calls of an operation within `stack`. An entry re-runs what is inside it, and runs its cleanup
    /// once, after the last run.
    fn stack_calls(&self, stack: &[EntryPlan], inner: Calls, known: &mut [Option<Calls>]) -> Calls {
        stack.iter().rev().fold(inner, |inner, entry| {
            let mut calls = times(inner, entry.most_runs());
            for cleanup in entry.phases.iter().filter_map(|phase| phase.cleanup.as_deref()) {
                let own = self.call_calls(&cleanup.call, known);
                calls = plus(calls, self.stack_calls(&cleanup.stack, own, known));
            }
            calls
        })
    }
}

impl EntryPlan {
    /// How often it may run its inner scope.
    fn most_runs(&self) -> Calls {
        if !self.middleware.reruns() {
            return Some(1);
        }
        match &self.phase(Phase::Entry).with {
            With::Literal { prepared: Ok(config), .. } => self.middleware.most_runs(config),
            _ => None,
        }
    }
}

/// Whether the graph of `steps` may come to a Step more than once.
pub(in crate::language) fn leads_back(steps: &[StepPlan], entrypoint: StepId) -> bool {
    costliest_way(steps, entrypoint, &vec![Some(1); steps.len()]).is_none()
}

/// The sum of the Steps' costs along the costliest way through a graph. It is relaxed until it no longer changes. If a
/// way that costs something leads back, that never happens, and there is no limit.
fn costliest_way(steps: &[StepPlan], entrypoint: StepId, own: &[Calls]) -> Calls {
    let mut from = vec![Some(0); steps.len()];
    for _ in 0..=steps.len() {
        let cost = |id: StepId| from.get(id.0).copied().flatten();
        let next: Vec<Calls> = steps
            .iter()
            .zip(own)
            .map(|(step, own)| {
                let ways = step.action.successors().into_iter().map(cost);
                plus(*own, ways.fold(Some(0), most))
            })
            .collect();
        if next == from {
            return cost(entrypoint);
        }
        from = next;
    }
    None
}

fn plus(a: Calls, b: Calls) -> Calls {
    Some(a?.saturating_add(b?))
}

fn most(a: Calls, b: Calls) -> Calls {
    Some(a?.max(b?))
}

/// The product. Zero stays zero, even without a limit on the other side.
fn times(a: Calls, b: Calls) -> Calls {
    if a == Some(0) {
        return a;
    }
    Some(a?.saturating_mul(b?))
}
