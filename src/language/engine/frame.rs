//! The life of a frame: creation, variables, descent, graph, ascent, completion (MWL, "The frame
//! lifecycle").

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::execution::Execution;
use super::scope::{Flowed, Interrupted, Scope};
use super::stack::{Operation, Site};
use super::vars::Vars;
use super::view::{CompletedFrame, FrameState, PhaseView, StepState, View};
use crate::language::outcome::{Failure, Outcome};
use crate::language::plan::{FlowId, FlowPlan};
use crate::language::temporal::Timestamp;
use crate::language::value::{Map, Value};

/// A frame that executes. Everything in it changes only on the one future that runs it.
#[derive(Debug)]
pub(super) struct Frame<'e, 's> {
    pub(super) execution: &'e Execution<'e>,
    pub(super) flow: &'e FlowPlan,
    pub(super) state: FrameState,
    /// What may interrupt it; the parent's, lent.
    pub(super) scope: &'s mut Scope,
}

/// The operation that a Flow-level stack wraps.
struct Graph;

impl Operation for Graph {
    async fn run(&self, frame: &mut Frame<'_, '_>, input: Value) -> Flowed {
        frame.graph(input).await
    }
}

/// Runs a Flow in a frame of its own.
pub(super) async fn run<'e>(
    execution: &'e Execution<'e>,
    flow: FlowId,
    scope: &mut Scope,
    with: Value,
    input: Value,
) -> Result<CompletedFrame, Interrupted> {
    // The execution begins with its root frame, at the same instant ("execution").
    let entered = if flow == FlowId::ROOT { execution.entered } else { execution.stamp() };
    let flow = execution.plan.flow(flow);
    let state = |vars| FrameState { input: input.clone(), entered, vars, failure: None };
    let (state, result) = match variables(flow, with) {
        // No entry is established and the graph does not run.
        Err(failure) => (state(Vars::default()), Outcome::from(failure)),
        Ok(vars) => {
            let mut frame = Frame { execution, flow, state: state(vars), scope };
            let result = frame.stack(Site::FLOW, &flow.stack, input.clone(), &Graph).await?;
            (frame.state, result)
        }
    };
    let exited = execution.stamp();
    let FrameState { input, vars, .. } = state;
    Ok(CompletedFrame { input, vars: vars.to_value(), result, entered, exited })
}

/// [`run`] for a frame within a frame: where the recursion is boxed.
pub(super) fn run_nested<'a, 'e: 'a>(
    execution: &'e Execution<'e>,
    flow: FlowId,
    scope: &'a mut Scope,
    with: Value,
    input: Value,
) -> Pin<Box<dyn Future<Output = Result<CompletedFrame, Interrupted>> + Send + 'a>> {
    Box::pin(run(execution, flow, scope, with, input))
}

/// The frame's first variables: the schema's defaults, overlaid by the validated arguments.
fn variables(flow: &FlowPlan, with: Value) -> Result<Vars, Failure> {
    flow.parameters.validate(&with).map_err(Failure::from)?;
    let defaults = flow.parameters.defaults();
    let arguments = match with {
        Value::Null => Arc::default(),
        with => with.as_object().unwrap_or_default(),
    };
    if defaults.is_empty() && arguments.is_empty() {
        return Ok(Vars::default());
    }
    let mut vars: Map = defaults.clone();
    vars.extend(arguments.iter().map(|(name, value)| (Arc::clone(name), value.clone())));
    Ok(Vars::new(vars))
}

impl<'e> Frame<'e, '_> {
    /// The bindings of a construct that was entered at `pin`.
    pub(super) fn view<'a>(
        &'a self,
        pin: Timestamp,
        step: Option<&'a StepState<'a>>,
        phase: Option<PhaseView<'a>>,
    ) -> View<'a>
    where
        'e: 'a,
    {
        View {
            execution: self.execution,
            frame: &self.state,
            pin,
            step,
            phase,
            call: None,
            match_input: None,
        }
    }
}
