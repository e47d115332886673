//! One execution of a call: its fields, its target, its arms (MWL, "The Call interface and Result").

use std::sync::{Arc, OnceLock};

use super::execution::Execution;
use super::frame::{Frame, run_nested};
use super::scope::{Flowed, Interrupted, Scope};
use super::stack::{Operation, Site};
use super::template::{Evaluated, bindings_of, evaluate, evaluate_or};
use super::view::{CallRecord, CallView, FrameState, View, Window};
use crate::language::code::Code;
use crate::language::observe::Attempt;
use crate::language::outcome::{Failure, Outcome};
use crate::language::plan::{CallPlan, Target, With};
use crate::language::provider::{Answer, CallProvider, Dispatch, Prepared};
use crate::language::value::Value;

/// A call as the operation of a stack.
#[derive(Debug)]
pub(super) struct CallOperation<'a> {
    pub(super) site: Site<'a>,
    pub(super) call: &'a CallPlan,
}

/// A dispatch whose target has settled: what its arm consumes.
#[derive(Debug)]
pub(super) struct Settled {
    /// What arrived at the call.
    arriving: Value,
    index: Option<usize>,
    record: CallRecord,
    /// The target's window, or the call's own fault, for which no arm runs.
    window: Result<Window, Arc<Failure>>,
}

/// Where a dispatch evaluates its fields: a frame's state, read only.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dispatcher<'a> {
    pub(super) execution: &'a Execution<'a>,
    pub(super) state: &'a FrameState,
    pub(super) site: Site<'a>,
    /// What messages call the site.
    pub(super) place: &'a str,
}

/// What a call's target is given.
enum Given<'p> {
    Provider(&'p dyn CallProvider, Prepared),
    Flow(crate::language::plan::FlowId, Value),
}

impl Operation for CallOperation<'_> {
    async fn run(&self, frame: &mut Frame<'_, '_>, input: Value) -> Flowed {
        let place = self.site.step.map_or(&*frame.flow.name, |step| step.name);
        let dispatcher =
            Dispatcher { execution: frame.execution, state: &frame.state, site: self.site, place };
        if let Some((provider, with)) = self.call.bare() {
            // No field to evaluate and no arm to run: nobody sees the window.
            let (attempt, why) = (dispatcher.attempt(frame.scope), OnceLock::new());
            let dispatch = dispatcher.told(frame.scope, with, &input, &why);
            let mut running = provider.call(dispatch);
            let answered = frame.scope.leaf(&mut running).await;
            return Ok(dispatcher.answered(&attempt, answered, &why)?.outcome);
        }
        let settled = dispatcher.dispatch(frame.scope, self.call, input, None);
        let settled = Box::pin(settled).await?;
        Ok(frame.arm(self.site, self.call, settled))
    }
}

impl<'a> Dispatcher<'a> {
    /// Evaluates the call's fields and runs its target until that settles.
    pub(super) async fn dispatch(
        self,
        scope: &mut Scope,
        call: &CallPlan,
        arriving: Value,
        index: Option<usize>,
    ) -> Result<Settled, Interrupted> {
        let entered = self.execution.stamp();
        let mut record = CallRecord { entered, dispatched: None, accepted: None };
        let fields = self.fields(call, &arriving, index, &record);
        record.dispatched = Some(self.execution.stamp());
        let window = match fields {
            Err(fault) => Err(Arc::new(fault)),
            Ok((input, Given::Flow(flow, with))) => {
                let frame = run_nested(self.execution, flow, scope, with, input).await?;
                Ok(Window::Flow(frame))
            }
            Ok((input, Given::Provider(provider, with))) => {
                let (attempt, why) = (self.attempt(scope), OnceLock::new());
                let told = self.told(scope, &with, &input, &why);
                let dispatch = Dispatch { windowed: call.has_arms(), ..told };
                let mut running = provider.call(dispatch);
                let answered = scope.leaf(&mut running).await;
                let answer = self.answered(&attempt, answered, &why)?;
                drop(running);
                let Answer { outcome: result, metadata } = answer;
                Ok(Window::Provider { input, result, metadata })
            }
        };
        record.accepted = Some(self.execution.stamp());
        Ok(Settled { arriving, index, record, window })
    }

    fn fields<'p>(
        &self,
        call: &'p CallPlan,
        arriving: &Value,
        index: Option<usize>,
        record: &CallRecord,
    ) -> Evaluated<(Value, Given<'p>)> {
        let call_view = CallView { input: arriving, index, record, window: None };
        let view = self.view(record, call_view);
        let input = evaluate_or(call.input.as_ref(), &view, || arriving.clone())?;
        let given = match &call.target {
            Target::Provider(provider) => {
                let provider = provider.as_ref();
                Given::Provider(provider, prepared(provider, &call.with, &view)?)
            }
            Target::Flow(flow) => Given::Flow(
                *flow,
                match &call.with {
                    With::Literal { value, .. } => value.clone(),
                    With::Dynamic(template) => evaluate(template, &view)?,
                },
            ),
        };
        Ok((input, given))
    }

    /// An attempt that begins now.
    fn attempt(&self, scope: &Scope) -> Attempt<'a> {
        let attempt = Attempt { step: self.place, number: scope.attempt, role: scope.role };
        self.execution.observer.attempt_started(&attempt);
        attempt
    }

    /// What the provider of a call without arms is told; `why` will say what interrupted it, if anything does.
    fn told<'p>(
        self,
        scope: &Scope,
        with: &'p Prepared,
        input: &'p Value,
        why: &'p OnceLock<Code>,
    ) -> Dispatch<'p>
    where
        'a: 'p,
    {
        Dispatch {
            with,
            input,
            execution_id: self.execution.id,
            step_name: self.place,
            step_id: self.site.step.map_or("", |step| step.id.as_str()),
            attempt: scope.attempt,
            attempts: scope.attempts,
            role: scope.role,
            host: self.execution.host,
            windowed: false,
            interrupted: why,
        }
    }

    /// What came of `attempt`.
    fn answered(
        &self,
        attempt: &Attempt<'_>,
        answered: Result<Answer, Interrupted>,
        why: &OnceLock<Code>,
    ) -> Result<Answer, Interrupted> {
        let observer = self.execution.observer;
        match &answered {
            Ok(answer) => observer.attempt_done(attempt, &answer.outcome),
            Err(interrupted) => {
                let explanation = interrupted.explanation();
                if let Some(failure) = explanation {
                    why.get_or_init(|| failure.code.clone());
                }
                observer.attempt_interrupted(attempt, explanation);
            }
        }
        answered
    }

    fn view(&self, record: &CallRecord, call: CallView<'a>) -> View<'a>
    where
        Self: 'a,
    {
        View {
            execution: self.execution,
            frame: self.state,
            pin: record.entered,
            step: self.site.step,
            phase: self.site.phase.copied(),
            call: Some(call),
            match_input: None,
        }
    }
}

impl Frame<'_, '_> {
    /// Runs the arm that the settled Result selects, and gives the call's Result ("The arms").
    pub(super) fn arm(&mut self, site: Site<'_>, call: &CallPlan, settled: Settled) -> Outcome {
        let Settled { arriving, index, record, window } = settled;
        let window = match window {
            // A failure arm does not run where the call's own fields fault.
            Err(fault) => return Outcome::Failure(fault),
            Ok(window) => window,
        };
        let assign = match window.result() {
            Outcome::Success(_) => &call.on_success,
            Outcome::Failure(_) => &call.on_failure,
        };
        if assign.is_empty() && (call.value.is_none() || !window.result().is_success()) {
            return window.into_result();
        }
        let call_view =
            CallView { input: &arriving, index, record: &record, window: Some(&window) };
        let view = View {
            call: Some(call_view),
            ..self.view(record.entered, site.step, site.phase.copied())
        };
        let evaluated = (|| {
            let value = match window.result() {
                Outcome::Success(value) => {
                    Some(evaluate_or(call.value.as_ref(), &view, || value.clone())?)
                }
                Outcome::Failure(_) => None,
            };
            Ok::<_, Failure>((value, bindings_of(assign, &view)?))
        })();
        match evaluated {
            Err(fault) => {
                let superseded = window.result().failure();
                Outcome::Failure(Failure::superseding(&Arc::new(fault), superseded))
            }
            Ok((value, bindings)) => {
                self.state.vars.apply(bindings);
                value.map_or_else(|| window.into_result(), Outcome::Success)
            }
        }
    }
}

impl Settled {
    /// Whether the target's Result is a success; what an arm makes of it comes later.
    pub(super) fn succeeded(&self) -> bool {
        self.window.as_ref().is_ok_and(|window| window.result().is_success())
    }
}

impl Window {
    fn into_result(self) -> Outcome {
        match self {
            Self::Provider { result, .. } => result,
            Self::Flow(frame) => frame.result,
        }
    }
}

/// A call's `with` in the provider's own terms.
fn prepared(provider: &dyn CallProvider, with: &With, bindings: &View<'_>) -> Evaluated<Prepared> {
    match with {
        With::Literal { prepared, .. } => {
            prepared.as_ref().map(Arc::clone).map_err(|failure| failure.as_ref().clone())
        }
        With::Dynamic(template) => {
            let with = evaluate(template, bindings)?;
            provider.contract().parameters().validate(&with)?;
            provider.prepare(&with)
        }
    }
}
