//! One phase of one entry: `when`, then `with` and the action, then the shaping key, then `assign` (MWL,
//! "The phase block").
//!
//! This module decides what a failed phase does to the Result in flight, and what a re-entry does to the
//! variables. `stack` decides which phase runs when.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::call::CallOperation;
use super::frame::Frame;
use super::scope::{Interrupted, Rise};
use super::stack::{Crossed, EntryRun, Rerun, Site};
use super::template::{Captured, Evaluated, bindings_of, construct, evaluate, holds};
use super::view::{PhaseView, View};
use crate::language::expr::Bindings;
use crate::language::observe::{EntryPlace, Event, Passed, Retry};
use crate::language::outcome::{Failure, Outcome};
use crate::language::plan::{EntryPlan, FlowId, Shape, StackPlan, With};
use crate::language::provider::{
    Always, Ascent, Feed, Phase, Prepared, Reentry, RerunGate, Role, Wait,
};
use crate::language::schema::Schema;
use crate::language::temporal::Timestamp;
use crate::language::value::Value;

/// Why an `onAlways` failed.
enum Uncleaned {
    /// Its cleanup failed.
    Failed(Arc<Failure>),
    /// A field of the phase itself.
    Fault(Failure),
}

impl From<Failure> for Uncleaned {
    fn from(fault: Failure) -> Self {
        Self::Fault(fault)
    }
}

impl<'e> Frame<'e, '_> {
    /// `onSuccess` or `onFailure`. If the phase fails, the entry emits that failure.
    pub(super) fn cross(
        &mut self,
        site: Site<'_>,
        entry: &EntryPlan,
        run: &mut EntryRun,
        rising: Outcome,
    ) -> Crossed {
        let phase = match &rising {
            Outcome::Success(_) => Phase::Success,
            Outcome::Failure(_) => Phase::Failure,
        };
        let block = entry.phase(phase);
        if block.is_idle() {
            return Crossed::Emit(rising);
        }
        let superseded = rising.failure().cloned();
        let crossed = match rising {
            Outcome::Success(value) => self.cross_success(site, entry, run, value),
            Outcome::Failure(failure) => self.cross_failure(site, entry, run, failure),
        };
        crossed.unwrap_or_else(|fault| {
            let fault = self.blame(self.place(site), fault);
            let failure = Failure::superseding(&Arc::new(fault), superseded.as_ref());
            Crossed::Emit(Outcome::Failure(failure))
        })
    }

    fn cross_success(
        &mut self,
        site: Site<'_>,
        entry: &EntryPlan,
        run: &mut EntryRun,
        value: Value,
    ) -> Evaluated<Crossed> {
        let phase = entry.phase(Phase::Success);
        if let Some(with) = phase.literal() {
            // Nothing is evaluated, so nothing needs to be shown to expressions.
            return Ok(match self.succeeded(entry, run, with, &value)? {
                Ascent::Pass => Crossed::Emit(Outcome::Success(value)),
                Ascent::Fail(failure) => return Err(failure),
                Ascent::Reenter(reentry) => {
                    self.reenter(run, reentry, Captured::new(), value, None)
                }
            });
        }
        let pin = self.execution.stamp();
        let rising = Outcome::Success(value.clone());
        let view = self.phase_view(site, entry, run, Some(&rising), pin);
        let ascent = if holds(phase.when.as_ref(), &view)? {
            let with = prepared(entry, Phase::Success, &view)?;
            self.succeeded(entry, run, &with, &value)?
        } else {
            Ascent::Pass
        };
        let again = match ascent {
            Ascent::Pass => None,
            Ascent::Fail(failure) => return Err(failure),
            Ascent::Reenter(reentry) => Some(reentry),
        };
        let view = self.phase_view(site, entry, run, Some(&rising), pin);
        // If the next run gets the same input as the first, nothing uses the product.
        let unread = again.as_ref().is_some_and(|reentry| reentry.feed == Feed::Same);
        let product = if unread { value } else { shaped(&phase.shape, &view, || value)? };
        let bindings = bindings_of(&phase.assign, &view)?;
        Ok(match again {
            None => {
                self.state.vars.apply(bindings);
                Crossed::Emit(Outcome::Success(product))
            }
            Some(reentry) => self.reenter(run, reentry, bindings, product, None),
        })
    }

    /// Runs the action of an `onSuccess`, unless the entry is gated off.
    fn succeeded(
        &self,
        entry: &EntryPlan,
        run: &mut EntryRun,
        with: &Prepared,
        value: &Value,
    ) -> Evaluated<Ascent> {
        if !run.armed {
            return Ok(Ascent::Pass);
        }
        let EntryRun { state, input, .. } = run;
        entry.middleware.on_success(state, with, value, self.asker(input))
    }

    fn cross_failure(
        &mut self,
        site: Site<'_>,
        entry: &EntryPlan,
        run: &mut EntryRun,
        failure: Arc<Failure>,
    ) -> Evaluated<Crossed> {
        let phase = entry.phase(Phase::Failure);
        let pin = self.execution.stamp();
        let rising = Outcome::Failure(Arc::clone(&failure));
        let view = self.phase_view(site, entry, run, Some(&rising), pin);
        let gated = !holds(phase.when.as_ref(), &view)?;
        // The phase runs even if the entry is gated off, so its `with` is evaluated and validated ("Validation").
        let with = if gated { None } else { Some(prepared(entry, Phase::Failure, &view)?) };
        let ascent = match with.filter(|_| run.armed) {
            Some(with) => {
                let room = || self.scope.room();
                run.state.room = self.execution.gives_up_early.then(room).flatten();
                let gate = self.execution.gate.filter(|_| self.scope.role == Role::Step);
                run.state.closed = gate.and_then(RerunGate::closed);
                let EntryRun { state, input, .. } = &mut *run;
                entry.middleware.on_failure(state, &with, &failure, self.asker(input))?
            }
            None => Ascent::Pass,
        };
        let emitted = match ascent {
            Ascent::Pass => {
                if phase.acts && entry.middleware.reruns() {
                    self.tell(&Event::PassedOver(&Passed {
                        entry: self.entry(site, run),
                        failure: &failure,
                        gated: gated || !run.armed,
                        middleware: &*entry.middleware,
                        state: &run.state,
                    }));
                }
                failure
            }
            Ascent::Fail(next) => {
                let next = next.in_step(self.place(site));
                let next = Failure::superseding(&Arc::new(next), Some(&failure));
                self.tell(&Event::GaveUp { entry: self.entry(site, run), failure: &next });
                next
            }
            Ascent::Reenter(reentry) => {
                let view = self.phase_view(site, entry, run, Some(&rising), pin);
                let bindings = bindings_of(&phase.assign, &view)?;
                self.tell(&Event::RetryScheduled(&Retry {
                    step: self.place(site),
                    failure: &failure,
                    wait: Wait::from(&reentry),
                    range: reentry.range,
                    config: run.state.config.as_ref().map(|config| (&*entry.middleware, config)),
                }));
                failure.discard();
                let same = run.passed().clone();
                return Ok(self.reenter(run, reentry, bindings, same, Some(failure)));
            }
        };
        let rising = Outcome::Failure(Arc::clone(&emitted));
        let view = self.phase_view(site, entry, run, Some(&rising), pin);
        let product = match &phase.shape {
            Shape::Envelope(envelope) => {
                Arc::new(construct(envelope, Some(&emitted), Some(&emitted), &view)?)
            }
            Shape::Through | Shape::Value(_) => emitted,
        };
        let bindings = bindings_of(&phase.assign, &view)?;
        self.state.vars.apply(bindings);
        if phase.shape.writes_previous() {
            self.state.severed = Some(Arc::clone(&product));
        }
        Ok(Crossed::Emit(Outcome::Failure(product)))
    }

    /// Restores the variables before the gap, then binds what is carried. The carried values were computed
    /// from what the attempt left, and take effect on the restored variables.
    fn reenter(
        &mut self,
        run: &EntryRun,
        reentry: Reentry,
        bindings: Captured,
        product: Value,
        consumed: Option<Arc<Failure>>,
    ) -> Crossed {
        if let (true, Some(vars)) = (reentry.restore, &run.restore_to) {
            self.state.vars = vars.clone();
        }
        self.state.vars.apply(bindings);
        let fed = match reentry.feed {
            Feed::Same => run.passed().clone(),
            Feed::Product => product,
        };
        Crossed::Again(Rerun { reentry, fed, consumed })
    }

    /// `onAlways` of the entry at a position. It runs once on every exit, and does not change the value that rises.
    pub(super) async fn always(
        &mut self,
        site: Site<'_>,
        entry: &EntryPlan,
        run: (&EntryRun, usize),
        rising: Rise,
    ) -> Rise {
        let phase = entry.phase(Phase::Always);
        let in_flight = match &rising {
            Ok(outcome) => outcome.clone(),
            Err(interrupted) => Outcome::Failure(Arc::clone(&interrupted.chain)),
        };
        let teardown = rising.is_err();
        let cleaned = self.clean_up(site, entry, run, &in_flight, teardown).await;
        let failed = match cleaned {
            Ok(()) => None,
            Err(Uncleaned::Failed(failure)) => Some(failure),
            Err(Uncleaned::Fault(fault)) => Some(Arc::new(self.blame(self.place(site), fault))),
        };
        let failed = failed.map(|fault| Failure::superseding(&fault, in_flight.failure()));
        match rising {
            Err(mut interrupted) => {
                interrupted.cleaned = true;
                if let Some(failure) = failed {
                    interrupted.chain = failure;
                    interrupted.superseded = true;
                }
                Err(interrupted)
            }
            // An interruption that arrived during the cleanup let it finish, and unwinds now.
            Ok(outcome) => match self.scope.due().filter(|_| phase.cleanup.is_some()) {
                Some(interrupted) => Err(after_cleanup(interrupted, failed.as_ref())),
                None => Ok(failed.map_or(outcome, Outcome::Failure)),
            },
        }
    }

    /// The phase itself. An `Err` is its failure.
    async fn clean_up(
        &mut self,
        site: Site<'_>,
        entry: &EntryPlan,
        (run, position): (&EntryRun, usize),
        in_flight: &Outcome,
        teardown: bool,
    ) -> Result<(), Uncleaned> {
        let phase = entry.phase(Phase::Always);
        let pin = self.execution.stamp();
        let view = self.phase_view(site, entry, run, Some(in_flight), pin);
        if holds(phase.when.as_ref(), &view)? && (run.armed || !phase.acts) {
            let with = prepared(entry, Phase::Always, &view)?;
            let wanted = entry.middleware.on_always(&run.state, &with, in_flight)?;
            if let (Always::Dispatch, Some(cleanup)) = (wanted, &phase.cleanup) {
                let phase = entry_view(entry, run, Some(in_flight), pin);
                let location = site.location.cleanup(position);
                let site = Site { step: site.step, phase: Some(&phase), location: &location };
                let operation = CallOperation { site, call: &cleanup.call };
                let scope = self.scope.for_cleanup(self.execution.cleanup_limit, teardown);
                let outer = std::mem::replace(self.scope, scope);
                let input = run.input.clone();
                let risen = self.nested_stack(site, &cleanup.stack, input, &operation).await;
                let cleanup = std::mem::replace(self.scope, outer);
                let caught = cleanup.caught;
                self.scope.after_cleanup(cleanup);
                let step = self.place(site);
                let placed = |limit: Failure| limit.in_step(step);
                let outcome = risen.unwrap_or_else(|edge| Outcome::Failure(edge.convert(placed)));
                self.tell(&Event::CleanupDone { step, outcome: &outcome, caught });
                if let Outcome::Failure(failure) = outcome {
                    return Err(Uncleaned::Failed(failure));
                }
            }
        }
        let view = self.phase_view(site, entry, run, Some(in_flight), pin);
        let bindings = bindings_of(&phase.assign, &view)?;
        self.state.vars.apply(bindings);
        Ok(())
    }

    /// The stack of a cleanup, which runs within a stack.
    fn nested_stack<'a>(
        &'a mut self,
        site: Site<'a>,
        stack: &'a StackPlan,
        input: Value,
        operation: &'a CallOperation<'a>,
    ) -> Pin<Box<dyn Future<Output = Rise> + Send + 'a>>
    where
        'e: 'a,
    {
        Box::pin(self.stack(site, stack, input, operation))
    }

    pub(super) fn phase_view<'a>(
        &'a self,
        site: Site<'a>,
        entry: &'a EntryPlan,
        run: &'a EntryRun,
        result: Option<&'a Outcome>,
        pin: Timestamp,
    ) -> View<'a>
    where
        'e: 'a,
    {
        self.view(pin, site.step, Some(entry_view(entry, run, result, pin)))
    }

    /// The place of the entry of `run` in events.
    pub(super) fn entry<'a>(&'a self, site: Site<'a>, run: &EntryRun) -> EntryPlace<'a> {
        let root = std::ptr::eq(self.flow, self.execution.plan.flow(FlowId::ROOT));
        let stack = match site.step {
            None if root => "flow",
            _ => self.place(site),
        };
        let cleanup = site.phase.is_some();
        EntryPlace { step: self.place(site), stack, cleanup, position: run.position }
    }

    /// A field of the definition at `place` gave this failure, which then names the place. If it is the author's own
    /// fault, the observer is told.
    pub(super) fn blame(&self, place: &str, fault: Failure) -> Failure {
        self.execution.blame(place, fault)
    }

    /// Tells the observer.
    pub(super) fn tell(&self, event: &Event<'_>) {
        self.execution.observer.on(event);
    }

    /// The name of this site in events and messages: that of the Step, or of the Flow around it.
    pub(super) fn place<'a>(&'a self, site: Site<'a>) -> &'a str {
        site.step.map_or(&self.flow.name, |step| step.name)
    }
}

/// The `middleware` root at one phase of an entry.
fn entry_view<'a>(
    entry: &'a EntryPlan,
    run: &'a EntryRun,
    result: Option<&'a Outcome>,
    entered: Timestamp,
) -> PhaseView<'a> {
    let middleware = entry.middleware.as_ref();
    PhaseView { input: &run.input, result, entered, middleware, state: &run.state }
}

pub(super) fn after_cleanup(
    mut interrupted: Interrupted,
    failed: Option<&Arc<Failure>>,
) -> Interrupted {
    interrupted.cleaned = true;
    if let Some(failure) = failed {
        interrupted.supersede(failure);
    }
    interrupted
}

/// A phase's `with`, in the middleware's own form. It is evaluated and validated if the phase's `when` holds,
/// even if the middleware does not act there ("Validation").
pub(super) fn prepared(
    entry: &EntryPlan,
    phase: Phase,
    bindings: &dyn Bindings,
) -> Evaluated<Prepared> {
    match &entry.phase(phase).with {
        With::Literal { prepared, .. } => {
            prepared.as_ref().map(Arc::clone).map_err(|failure| failure.as_ref().clone())
        }
        With::Dynamic(template) => {
            let with = evaluate(template, bindings)?;
            // If the middleware does not act here, it declares no schema and takes no arguments.
            let Some(contract) = entry.middleware.contract().phase(phase) else {
                Schema::nothing().validate(&with)?;
                return Ok(Arc::new(()));
            };
            contract.parameters.validate(&with)?;
            entry.middleware.prepare(phase, &with)
        }
    }
}

/// The product of a value-shaping key.
pub(super) fn shaped(
    shape: &Shape,
    bindings: &dyn Bindings,
    through: impl FnOnce() -> Value,
) -> Evaluated<Value> {
    match shape {
        Shape::Value(template) => evaluate(template, bindings),
        Shape::Through | Shape::Envelope(_) => Ok(through()),
    }
}
