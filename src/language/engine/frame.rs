//! The life of a frame: creation, variables, descent, graph, ascent, completion (MWL, "The frame
//! lifecycle").

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::call::{CallOperation, Dispatcher};
use super::descent::Descent;
use super::execution::Execution;
use super::location::Location;
use super::scope::{Interrupted, Rise, Scope};
use super::stack::{Crossing, Operation, Site};
use super::vars::Vars;
use super::view::{CompletedFrame, FrameState, PhaseView, StepState, View};
use crate::language::outcome::Failure;
use crate::language::plan::{FlowId, FlowPlan};
use crate::language::provider::Moment;
use crate::language::temporal::Timestamp;
use crate::language::value::{Map, Value};

/// A frame that runs. Only the one future that runs it changes it.
#[derive(Debug)]
pub(super) struct Frame<'e, 's> {
    pub(super) execution: &'e Execution<'e>,
    pub(super) flow: &'e FlowPlan,
    pub(super) state: FrameState,
    /// What may interrupt it. The parent lends it.
    pub(super) scope: &'s mut Scope,
    /// Where it is.
    pub(super) location: &'s Location<'s>,
}

/// The operation that a Flow-level stack wraps.
struct GraphOperation;

impl Operation for GraphOperation {
    async fn run(&self, frame: &mut Frame<'_, '_>, at: &Location<'_>, input: Value) -> Rise {
        frame.scope.now = Moment::default();
        frame.graph(at, input).await
    }
}

/// Runs a Flow in a frame within a frame. The recursion is boxed here.
pub(super) fn run_nested<'a, 'e: 'a>(
    execution: &'e Execution<'e>,
    flow: FlowId,
    (scope, location): (&'a mut Scope, &'a Location<'a>),
    with: Value,
    input: Value,
) -> Pin<Box<dyn Future<Output = Result<CompletedFrame, Interrupted>> + Send + 'a>> {
    Box::pin(async move {
        let location = location.frame();
        let mut frame = Frame::new(execution, flow, (scope, &location), input.clone());
        let result = frame.run(with, input).await?;
        let exited = execution.stamp();
        let FrameState { input, entered, vars, failure: _, severed: _ } = frame.state;
        Ok(CompletedFrame { input, vars: vars.to_value(), result, entered, exited })
    })
}

/// The frame's first variables: the validated arguments, and the schema's defaults for those not given.
fn variables(flow: &FlowPlan, with: Value) -> Result<Vars, Failure> {
    if let Value::Object(arguments) = &with
        && arguments.is_empty()
        && flow.parameters.takes_nothing()
    {
        return Ok(Vars::default());
    }
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

impl<'e, 's> Frame<'e, 's> {
    /// A frame that begins now, without variables.
    pub(super) fn new(
        execution: &'e Execution<'e>,
        flow: FlowId,
        (scope, location): (&'s mut Scope, &'s Location<'s>),
        input: Value,
    ) -> Self {
        // The execution begins with its root frame, at the same instant ("execution").
        let entered = if flow == FlowId::ROOT { execution.entered } else { execution.stamp() };
        let state =
            FrameState { input, entered, vars: Vars::default(), failure: None, severed: None };
        Self { execution, flow: execution.plan.flow(flow), state, scope, location }
    }

    /// Runs the frame, from the arguments to the Result.
    pub(super) async fn run(&mut self, with: Value, input: Value) -> Rise {
        match variables(self.flow, with) {
            Ok(vars) => self.state.vars = vars,
            // No entry is established, and the graph does not run.
            Err(failure) => return Ok(self.blame(&self.flow.name, failure).into()),
        }
        let Some((plan, call)) = self.flow.only_call() else {
            // Boxed, so that Flows of one call, which are the most, do not carry its size.
            let site = Site { step: None, phase: None, location: self.location };
            return Box::pin(self.stack(site, &self.flow.stack, input, &GraphOperation)).await;
        };
        // The same as the graph would do, without the transitions, which nothing in this Flow can see.
        let (stack, bare) = (&call.stack, call.call.bare());
        let location = self.location.step(&plan.name, 1);
        if let Some((provider, with)) = bare.filter(|_| stack.is_empty()) {
            let dispatcher = Dispatcher::at(self.execution, &self.state, (&*plan.name, &location));
            let answer = dispatcher.attempt(self.scope, provider, (with, &input), false).await?;
            return Ok(answer.outcome);
        }
        let Some((bare, descent)) = bare.and_then(|bare| Some((bare, self.known(stack)?))) else {
            let step = self.begin_step(plan, input.clone());
            let site = Site { step: Some(&step), phase: None, location: &location };
            let operation = CallOperation { site, call: &call.call };
            return self.stack(site, stack, input, &operation).await;
        };
        // As `stack` does it, but without a future of its own, for which each request would pay. Nothing sees the Step before
        // one of the entries is established.
        let (entered, (provider, with)) = (self.execution.stamp(), bare);
        let mut pending = self.pending(descent);
        let opened = if let Err(asked) = self.open(&mut pending, &input) {
            Err(asked)
        } else {
            let at = (&*plan.name, &location);
            let dispatcher = Dispatcher::at(self.execution, &self.state, at);
            let attempt = dispatcher.attempt(self.scope, provider, (with, &input), false);
            let rising = attempt.await.map(|answer| answer.outcome);
            match self.close(stack, &mut pending, &input, &rising) {
                None => return rising,
                Some(runs) => Ok(Crossing { runs, descent: Descent::Rises(rising) }),
            }
        };
        let step = StepState { entered, ..self.begin_step(plan, input.clone()) };
        let site = Site { step: Some(&step), phase: None, location: &location };
        let operation = CallOperation { site, call: &call.call };
        let crossing = opened.unwrap_or_else(|asked| {
            self.answered_in_place(site, stack, &mut pending, asked, &input)
        });
        self.crossed(site, stack, crossing, &operation).await
    }

    /// The bindings for a construct that was entered at `pin`.
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
