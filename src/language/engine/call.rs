//! One execution of a call: its fields, its target, its arms (MWL, "The Call interface and Result").

use std::sync::Arc;

use super::execution::Execution;
use super::frame::{Frame, run_nested};
use super::location::Location;
use super::scope::{Interrupted, Rise, Scope};
use super::stack::{Operation, Site};
use super::template::{Evaluated, bindings_of, evaluate, evaluate_or};
use super::view::{CallRecord, CallView, FrameState, View, Window};
use crate::language::observe::{End, Ended, Event};
use crate::language::outcome::{Failure, Outcome};
use crate::language::plan::{CallPlan, Target, With};
use crate::language::provider::{Answer, Attempt, CallProvider, Dispatch, Moment, Prepared, Slot};
use crate::language::value::Value;

/// A call as the operation of a stack.
#[derive(Debug)]
pub(super) struct CallOperation<'a> {
    pub(super) site: Site<'a>,
    pub(super) call: &'a CallPlan,
}

/// A dispatch whose target has settled. Its arm consumes this.
#[derive(Debug)]
pub(super) struct Settled {
    /// The value that arrived at the call.
    arriving: Value,
    index: Option<usize>,
    record: CallRecord,
    /// The target's window, or a fault of the call's own fields, for which no arm runs.
    window: Result<Window, Arc<Failure>>,
}

/// What a dispatch needs to evaluate its fields. It only reads the frame's state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dispatcher<'a> {
    pub(super) execution: &'a Execution<'a>,
    pub(super) state: &'a FrameState,
    pub(super) site: Site<'a>,
    /// The name of the site in messages.
    pub(super) place: &'a str,
}

/// An attempt that runs. If it is dropped before its end, the whole execution was dropped: it is told as
/// cancelled.
struct Running<'a> {
    execution: &'a Execution<'a>,
    attempt: &'a Attempt<'a>,
    slot: &'a Slot<'a>,
}

/// A call's target with its arguments.
enum ResolvedTarget<'p> {
    Provider(&'p dyn CallProvider, Prepared),
    Flow(crate::language::plan::FlowId, Value),
}

impl Operation for CallOperation<'_> {
    async fn run(&self, frame: &mut Frame<'_, '_>, at: &Location<'_>, input: Value) -> Rise {
        let place = self.site.step.map_or(&*frame.flow.name, |step| step.name);
        let site = Site { location: at, ..self.site };
        let dispatcher =
            Dispatcher { execution: frame.execution, state: &frame.state, site, place };
        if let Some((provider, with)) = self.call.bare() {
            // There is no field to evaluate and no arm to run, so nothing reads the window.
            let answer = dispatcher.attempt(frame.scope, provider, (with, &input), false).await?;
            return Ok(answer.outcome);
        }
        frame.scope.now = Moment::default();
        let settled = dispatcher.dispatch(frame.scope, self.call, input, None);
        let settled = Box::pin(settled).await?;
        Ok(frame.arm(self.site, self.call, settled))
    }
}

impl<'a> Dispatcher<'a> {
    /// Of a bare call in the Step `place`, which nothing sees.
    pub(super) const fn at(
        execution: &'a Execution<'a>,
        state: &'a FrameState,
        (place, location): (&'a str, &'a Location<'a>),
    ) -> Self {
        Self { execution, state, site: Site { step: None, phase: None, location }, place }
    }

    /// Evaluates the call's fields, and runs its target until that settles.
    pub(super) async fn dispatch(
        self,
        scope: &mut Scope,
        call: &CallPlan,
        arriving: Value,
        index: Option<usize>,
    ) -> Result<Settled, Interrupted> {
        let gathered = index.map(|index| self.site.location.dispatch(index));
        let location = gathered.as_ref().unwrap_or(self.site.location);
        let entered = self.execution.stamp();
        let mut record = CallRecord { entered, dispatched: None, accepted: None };
        let fields = self.fields(call, &arriving, index, &record);
        record.dispatched = Some(self.execution.stamp());
        let window = match fields {
            Err(fault) => Err(Arc::new(self.execution.blame(self.place, fault))),
            Ok((input, ResolvedTarget::Flow(flow, with))) => {
                let at = (scope, location);
                let frame = run_nested(self.execution, flow, at, with, input).await?;
                Ok(Window::Flow(frame))
            }
            Ok((input, ResolvedTarget::Provider(provider, with))) => {
                let dispatcher = Dispatcher { site: Site { location, ..self.site }, ..self };
                let answer = dispatcher.attempt(scope, provider, (&with, &input), call.has_arms());
                let Answer { outcome: result, metadata } = answer.await?;
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
    ) -> Evaluated<(Value, ResolvedTarget<'p>)> {
        let call_view = CallView { input: arriving, index, record, window: None };
        let view = self.view(record, call_view);
        let input = evaluate_or(call.input.as_ref(), &view, || arriving.clone())?;
        let target = match &call.target {
            Target::Provider(provider) => {
                let provider = provider.as_ref();
                let prepared = prepared(provider, &call.with, &view);
                ResolvedTarget::Provider(provider, prepared?)
            }
            Target::Flow(flow) => ResolvedTarget::Flow(
                *flow,
                match &call.with {
                    With::Literal { value, .. } => value.clone(),
                    With::Dynamic(template) => evaluate(template, &view)?,
                },
            ),
        };
        Ok((input, target))
    }

    /// Makes one attempt: runs `provider` on a `with` and an input until its Result is accepted. `windowed`
    /// says whether anything may read the window.
    pub(super) async fn attempt(
        self,
        scope: &mut Scope,
        provider: &dyn CallProvider,
        (with, input): (&Prepared, &Value),
        windowed: bool,
    ) -> Result<Answer, Interrupted> {
        let attempt = Attempt {
            id: self.execution.next_attempt(),
            step: self.place,
            number: scope.attempt,
            role: scope.role,
            dispatch: scope.dispatch,
            wait: scope.wait.take(),
            begun: std::mem::take(&mut scope.now).read(),
        };
        let slot = Slot::default();
        let running = Running { execution: self.execution, attempt: &attempt, slot: &slot };
        self.execution.observer.on(&Event::AttemptStarted(&attempt));
        let mut call = provider.call(Dispatch {
            attempt: &attempt,
            with,
            input,
            identity: self.site.location,
            attempts: scope.attempts,
            host: self.execution.host,
            windowed,
            destination: &slot,
        });
        let answered = scope.call(&mut call, &slot).await;
        drop(call);
        running.ended(answered)
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

impl Running<'_> {
    fn ended(self, answered: Result<Answer, Interrupted>) -> Result<Answer, Interrupted> {
        self.tell(match &answered {
            Ok(answer) => End::Accepted(&answer.outcome),
            Err(interrupted) => End::Interrupted(interrupted.explanation()),
        });
        std::mem::forget(self);
        answered
    }

    fn tell(&self, end: End<'_>) {
        let Self { execution, attempt, slot } = self;
        let destination = slot.take();
        let (took, destination) = (attempt.begun.elapsed(), destination.as_ref());
        let fault = slot.fault();
        let failed = match end {
            End::Accepted(Outcome::Failure(failure)) => Some(&**failure),
            _ => None,
        };
        fault.into_iter().chain(failed).for_each(|fault| execution.told(attempt.step, fault));
        execution.observer.on(&Event::AttemptEnded(&Ended { attempt, end, took, destination }));
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.tell(End::Interrupted(None));
    }
}

impl Frame<'_, '_> {
    /// Runs the arm that the settled Result selects, and returns the call's Result ("The arms").
    pub(super) fn arm(&mut self, site: Site<'_>, call: &CallPlan, settled: Settled) -> Outcome {
        let Settled { arriving, index, record, window } = settled;
        let window = match window {
            // No arm runs if the call's own fields fault.
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
                let fault = self.blame(self.place(site), fault);
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
    /// Whether the target's Result is a success. An arm may still change that.
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

/// A call's `with`, in the provider's own form.
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
