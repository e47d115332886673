//! The step loop: one Step at a time, from the entrypoint to a terminal one (MWL, "The Step lifecycle",
//! "Steps and step mechanics", "Step actions").

use std::sync::Arc;

use super::call::CallOperation;
use super::frame::Frame;
use super::location::{Location, Visits};
use super::scope::{Interrupted, Rise};
use super::stack::Site;
use super::template::{Evaluated, bindings_of, construct, evaluate, evaluate_or, holds, wrong};
use super::view::{StepState, View};
use crate::language::code::system;
use crate::language::observe::{Caught, Event};
use crate::language::outcome::{Failure, Outcome};
use crate::language::plan::{
    Action, CallStep, CatchClause, Envelope, MatchStep, Pause, SleepStep, StepId, StepPlan, Tail,
    Template,
};
use crate::language::provider::Role;
use crate::language::temporal::{Span, Timestamp};
use crate::language::value::Value;

/// A frame yields after this many Steps in a row, and earlier if its expressions do much work. So a graph that loops
/// without waiting can be interrupted, and shares its thread.
const STEPS_BETWEEN_YIELDS: u32 = 64;

/// How a Step ended.
pub(super) enum Transition {
    /// The graph goes on to this Step with this value.
    To(StepId, Value),
    /// The graph is complete.
    Complete(Outcome),
}

impl<'e> Frame<'e, '_> {
    /// Runs the graph to its Result.
    pub(super) async fn graph(&mut self, location: &Location<'_>, input: Value) -> Rise {
        let mut at = self.flow.entrypoint;
        let mut visits = Visits::begin(self.flow);
        let mut value = input;
        let mut steps = 0_u32;
        loop {
            let plan = self.flow.step(at);
            let location = location.step(&plan.name, visits.next(at));
            match self.step(plan, &location, value).await? {
                Transition::Complete(outcome) => return Ok(outcome),
                Transition::To(next, emitted) => {
                    at = next;
                    value = emitted;
                }
            }
            steps = steps.wrapping_add(1);
            if steps.is_multiple_of(STEPS_BETWEEN_YIELDS) {
                self.scope.leaf(Box::pin(tokio::task::yield_now())).await?;
            }
            self.scope.rest().await?;
        }
    }

    /// A Step execution that begins now.
    pub(super) fn begin_step(&self, plan: &'e StepPlan, input: Value) -> StepState<'e> {
        StepState {
            name: &plan.name,
            id: self.execution.next_step(),
            action: plan.action.name(),
            input,
            entered: self.execution.stamp(),
            exited: None,
            result: None,
            results: None,
            dispatch_count: None,
        }
    }

    async fn step(
        &mut self,
        plan: &'e StepPlan,
        location: &Location<'_>,
        input: Value,
    ) -> Result<Transition, Interrupted> {
        let mut step = self.begin_step(plan, input);
        let ended = match &plan.action {
            Action::Call(call) => return self.call_step(call, location, step).await,
            Action::Gather(gather) => {
                return Box::pin(self.gather_step(gather, location, step)).await;
            }
            Action::Sleep(sleep) => match self.sleep_until(sleep, &step) {
                Err(fault) => Err(fault),
                Ok(until) => {
                    if let Some(until) = until {
                        self.scope.leaf(Box::pin(tokio::time::sleep_until(until))).await?;
                    }
                    Ok(self.success(sleep.next, step.input))
                }
            },
            Action::Match(plan) => self.match_step(plan, &mut step),
            Action::Pass(tail) => {
                step.exited = Some(self.execution.stamp());
                self.tail(tail, &step, |step| step.input.clone())
            }
            Action::Return(value) => self.return_step(value.as_ref(), &step),
            Action::Raise(envelope) => self.raise_step(envelope.as_ref(), &step),
        };
        Ok(ended.unwrap_or_else(|fault| Transition::Complete(self.fail(&plan.name, fault))))
    }

    async fn call_step(
        &mut self,
        plan: &'e CallStep,
        location: &Location<'_>,
        mut step: StepState<'_>,
    ) -> Result<Transition, Interrupted> {
        let shaped = {
            let view = self.view(step.entered, Some(&step), None);
            evaluate_or(plan.input.as_ref(), &view, || step.input.clone())
        };
        let result = match shaped {
            Err(fault) => Outcome::from(self.blame(step.name, fault)),
            Ok(input) => {
                let site = Site { step: Some(&step), phase: None, location };
                let operation = CallOperation { site, call: &plan.call };
                self.stack(site, &plan.stack, input, &operation).await?
            }
        };
        step.exited = Some(self.execution.stamp());
        let failure = result.failure().cloned();
        step.result = Some(result);
        Ok(self.settle(&plan.tail, &plan.catch, &mut step, failure, |step| match &step.result {
            Some(Outcome::Success(value)) => value.clone(),
            _ => Value::Null,
        }))
    }

    /// Goes on from a Step's Result: by its tail on a success, by `catch` on a failure. A fault in the tail
    /// is a failure of the Step, too.
    pub(super) fn settle(
        &mut self,
        tail: &Tail,
        catch: &[CatchClause],
        step: &mut StepState<'_>,
        failure: Option<Arc<Failure>>,
        default: impl FnOnce(&StepState<'_>) -> Value,
    ) -> Transition {
        let failure = match failure {
            Some(failure) => failure,
            None => match self.tail(tail, step, default) {
                Ok(transition) => return transition,
                Err(fault) => Arc::new(self.blame(step.name, fault)),
            },
        };
        let failure = self.handling(&failure);
        if matches!(step.result, Some(Outcome::Failure(_))) {
            step.result = Some(Outcome::Failure(Arc::clone(&failure)));
        }
        self.catch(catch, step, &failure)
    }

    /// The exit of a successful Step: output, then capture, then transition.
    fn tail(
        &mut self,
        tail: &Tail,
        step: &StepState<'_>,
        default: impl FnOnce(&StepState<'_>) -> Value,
    ) -> Evaluated<Transition> {
        let output = self.emit(tail, step, default)?;
        Ok(self.success(tail.next, output))
    }

    /// The output of `tail`, whose captures are bound.
    fn emit(
        &mut self,
        tail: &Tail,
        step: &StepState<'_>,
        default: impl FnOnce(&StepState<'_>) -> Value,
    ) -> Evaluated<Value> {
        let view = self.view(step.entered, Some(step), None);
        let output = evaluate_or(tail.output.as_ref(), &view, || default(step))?;
        let bindings = bindings_of(&tail.assign, &view)?;
        self.state.vars.apply(bindings);
        Ok(output)
    }

    /// A Step succeeded: no failure is being handled any more ("Lifecycle").
    fn success(&mut self, next: StepId, output: Value) -> Transition {
        self.state.failure = None;
        Transition::To(next, output)
    }

    /// A Step failed with `failure`. It becomes the failure context, linked to the failure that was being
    /// handled ("A failed recovery").
    fn handling(&mut self, failure: &Arc<Failure>) -> Arc<Failure> {
        let severed = self.state.severed.take();
        let is_severed = severed.is_some_and(|severed| {
            failure.chain().any(|link| std::ptr::eq(link, severed.as_ref()))
        });
        let handled = self.state.failure.as_ref().filter(|_| !is_severed);
        let failure = Failure::superseding(failure, handled);
        self.state.failure = Some(Arc::clone(&failure));
        failure
    }

    /// The failure of the Step `name`, which has no `catch`.
    fn fail(&mut self, name: &str, fault: Failure) -> Outcome {
        let fault = self.blame(name, fault);
        Outcome::Failure(self.handling(&Arc::new(fault)))
    }

    /// Goes on where the first matching clause says. A failure that none matches completes the graph.
    fn catch(
        &mut self,
        clauses: &[CatchClause],
        step: &StepState<'_>,
        failure: &Arc<Failure>,
    ) -> Transition {
        let matching = clauses.iter().find(|clause| clause.matcher.matches(failure));
        let Some(clause) = matching else {
            return Transition::Complete(Outcome::Failure(Arc::clone(failure)));
        };
        match self.emit(&clause.tail, step, |step| step.input.clone()) {
            Ok(output) => {
                self.scope.caught = true;
                let next = &self.flow.step(clause.tail.next).name;
                let cleanup = self.scope.role == Role::Cleanup;
                self.tell(&Event::Caught(&Caught { step: step.name, failure, next, cleanup }));
                Transition::To(clause.tail.next, output)
            }
            Err(fault) => Transition::Complete(self.fail(step.name, fault)),
        }
    }

    fn match_step(&mut self, plan: &MatchStep, step: &mut StepState<'_>) -> Evaluated<Transition> {
        let view = self.view(step.entered, Some(step), None);
        let input = evaluate_or(plan.input.as_ref(), &view, || step.input.clone())?;
        let view = View { match_input: Some(&input), ..view };
        let mut selected = &plan.default;
        for (when, clause) in &plan.cases {
            if holds(Some(when), &view)? {
                selected = clause;
                break;
            }
        }
        step.exited = Some(self.execution.stamp());
        let view = View { match_input: Some(&input), ..self.view(step.entered, Some(step), None) };
        let output = evaluate_or(selected.output.as_ref(), &view, || input.clone())?;
        let bindings = bindings_of(&selected.assign, &view)?;
        self.state.vars.apply(bindings);
        Ok(self.success(selected.next, output))
    }

    /// When the pause ends; `None` if that moment has passed.
    fn sleep_until(
        &self,
        plan: &SleepStep,
        step: &StepState<'_>,
    ) -> Evaluated<Option<tokio::time::Instant>> {
        let view = self.view(step.entered, Some(step), None);
        let now = tokio::time::Instant::now();
        let until = match &plan.pause {
            Pause::For(template) => {
                let value = evaluate(template, &view)?;
                let span = value.as_str().and_then(Span::parse);
                let span =
                    span.ok_or_else(|| wrong("for", "an ISO 8601 duration such as PT30S", value))?;
                now.checked_add(span.to_duration())
            }
            Pause::Until(template) => {
                let value = evaluate(template, &view)?;
                let until = value.as_str().and_then(Timestamp::parse);
                let until = until.ok_or_else(|| {
                    wrong("until", "an RFC 3339 timestamp such as 2026-01-15T09:30:00Z", value)
                })?;
                self.execution.clock.instant_of(until)
            }
        };
        // Too far for the clock: as far as a timer goes.
        let until = until.unwrap_or_else(|| now + FOREVER);
        Ok((until > now).then_some(until))
    }

    fn return_step(
        &mut self,
        value: Option<&Template>,
        step: &StepState<'_>,
    ) -> Evaluated<Transition> {
        let view = self.view(step.entered, Some(step), None);
        let value = evaluate_or(value, &view, || step.input.clone())?;
        self.state.failure = None;
        Ok(Transition::Complete(Outcome::Success(value)))
    }

    /// Constructs a failure, or raises the one being handled again, unchanged.
    fn raise_step(
        &mut self,
        envelope: Option<&Envelope>,
        step: &StepState<'_>,
    ) -> Evaluated<Transition> {
        let active = self.state.failure.clone();
        let raised = match (envelope, active) {
            (None, Some(active)) => active,
            (None, None) => {
                let message = "the Step re-raises, and no failure is being handled";
                Arc::new(self.blame(step.name, Failure::error(system::EMPTY_RAISE, message)))
            }
            (Some(envelope), active) => {
                let view = self.view(step.entered, Some(step), None);
                Arc::new(construct(envelope, None, active.as_ref(), &view)?)
            }
        };
        // Not `handling`, which would link it: an envelope may cut off its history on purpose.
        self.state.failure = Some(Arc::clone(&raised));
        Ok(Transition::Complete(Outcome::Failure(raised)))
    }
}

/// About thirty years, as far as a timer goes.
const FOREVER: std::time::Duration = std::time::Duration::from_hours(24 * 365 * 30);
