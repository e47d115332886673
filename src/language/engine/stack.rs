//! Crossing a stack: down through every entry's `onEntry`, up through `onSuccess` or `onFailure` and
//! then `onAlways` (MWL, "Middleware mechanics").
//!
//! The stack is a loop over positions. Each established entry is one [`EntryRun`]; what rises is one
//! [`Flowed`]. An interruption rises as `Err` and meets nothing but `onAlways`, until it reaches the
//! entry whose bound it is.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::time::Instant;

use super::call::CallOperation;
use super::frame::Frame;
use super::scope::{Flowed, Interrupted, Owner};
use super::template::{Captured, Evaluated, bindings_of, construct, evaluate, holds};
use super::vars::Vars;
use super::view::{PhaseView, StepState, View};
use crate::language::expr::Bindings;
use crate::language::observe::Retry;
use crate::language::outcome::{Failure, Outcome};
use crate::language::plan::{EntryPlan, PhasePlan, Shape, With};
use crate::language::provider::{
    Always, Ascent, Entry, EntryState, Feed, GatedOff, Phase, Prepared, Reentry,
};
use crate::language::schema::Schema;
use crate::language::temporal::Timestamp;
use crate::language::value::Value;

/// What a stack wraps: a call or a graph.
pub(super) trait Operation: Sync {
    /// Runs it once on what the innermost entry passed down.
    fn run(&self, frame: &mut Frame<'_, '_>, input: Value) -> impl Future<Output = Flowed> + Send;
}

/// Where a stack or a call stands: in which Step, and, for a cleanup, in which phase.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site<'a> {
    pub(super) step: Option<&'a StepState<'a>>,
    pub(super) phase: Option<PhaseView<'a>>,
}

impl Site<'_> {
    /// Around a graph: no Step executes.
    pub(super) const FLOW: Self = Self {
        step: None,
        phase: None,
    };
}

/// An established entry.
#[derive(Debug)]
struct EntryRun {
    state: EntryState,
    /// `middleware.input`.
    input: Value,
    /// What it passed down at first: what a re-run with the same feed receives.
    passed: Value,
    /// The variables after its `onEntry`; kept where it can re-run.
    restore_to: Option<Vars>,
    /// The bound that it imposed.
    bound: Option<usize>,
    /// Whether its actions take part: false while gated off at `onEntry`.
    armed: bool,
    /// Whether what rises is its own emission, past its `onSuccess` and `onFailure` already.
    emitted: bool,
    /// The attempt that the scope showed outside this entry.
    outer: (u32, Option<u32>),
}

/// What a descent past one entry, now established, came to.
enum Descent {
    /// The value passed down.
    Down(Value),
    /// It emits this without a run.
    NoRun(Value),
}

/// What a crossing of `onSuccess` or `onFailure` came to.
enum Crossed {
    Emit(Outcome),
    Again(Reentry, Value),
}

/// What an ascent past one entry came to.
enum Ascended {
    Up(Flowed),
    Again(Value),
}

impl<'e> Frame<'e, '_> {
    /// Runs `operation` within `stack`, and gives what the outermost entry emits.
    pub(super) async fn stack<O: Operation>(
        &mut self,
        site: Site<'_>,
        stack: &[EntryPlan],
        input: Value,
        operation: &O,
    ) -> Flowed {
        if stack.is_empty() {
            return operation.run(self, input).await;
        }
        let mut runs = Vec::with_capacity(stack.len());
        let mut value = input;
        loop {
            let mut rising = loop {
                let Some(entry) = stack.get(runs.len()) else {
                    break operation.run(self, value).await;
                };
                match self.descend(site, entry, value, &mut runs) {
                    Ok(Descent::Down(passed)) => value = passed,
                    Ok(Descent::NoRun(emitted)) => break Ok(Outcome::Success(emitted)),
                    // Not established: its own phases do not run.
                    Err(fault) => break Ok(fault.into()),
                }
            };
            loop {
                let position = runs.len().wrapping_sub(1);
                let (Some(entry), Some(run)) = (stack.get(position), runs.last_mut()) else {
                    return rising;
                };
                match self.ascend(site, entry, run, rising).await {
                    Ascended::Up(flowed) => {
                        runs.pop();
                        rising = flowed;
                    }
                    Ascended::Again(fed) => {
                        value = fed;
                        break;
                    }
                }
            }
        }
    }

    /// `onEntry`. An `Err` is the phase's failure: the entry is not established, and not among `runs`.
    fn descend(
        &mut self,
        site: Site<'_>,
        entry: &EntryPlan,
        input: Value,
        runs: &mut Vec<EntryRun>,
    ) -> Evaluated<Descent> {
        let phase = entry.phase(Phase::Entry);
        let pin = self.execution.stamp();
        let mut run = EntryRun {
            state: EntryState::default(),
            input,
            passed: Value::Null,
            restore_to: None,
            bound: None,
            armed: true,
            emitted: false,
            outer: (self.scope.attempt, self.scope.attempts),
        };
        let mut race = None;
        if phase.is_idle() {
            run.passed = run.input.clone();
        } else {
            let gate = holds(
                phase.when.as_ref(),
                &self.phase_view(site, entry, &run, None, pin),
            )?;
            if gate && !phase.acts {
                let view = self.phase_view(site, entry, &run, None, pin);
                prepared(entry, Phase::Entry, &view)?;
            } else if gate {
                let view = self.phase_view(site, entry, &run, None, pin);
                let with = prepared(entry, Phase::Entry, &view)?;
                if let Entry::Race { bound, explanation } =
                    entry.middleware.on_entry(&mut run.state, &with)?
                {
                    let now = Instant::now();
                    let deadline = now.checked_add(bound);
                    // For expressions alone.
                    let read = deadline.filter(|_| self.execution.plan.reads());
                    run.state.deadline = read.map(|deadline| self.execution.clock.at(deadline));
                    race = Some((deadline, explanation));
                }
                run.state.config = Some(with);
            }
            run.armed = gate || !phase.acts;
            let view = self.phase_view(site, entry, &run, None, pin);
            let passed = shaped(&phase.shape, &view, || run.input.clone())?;
            let bindings = bindings_of(&phase.assign, &view)?;
            run.passed = passed;
            self.state.vars.apply(bindings);
        }
        if !run.armed && entry.middleware.gated_off() == GatedOff::NoRun {
            run.emitted = true;
            let emitted = run.passed.clone();
            runs.push(run);
            return Ok(Descent::NoRun(emitted));
        }
        // Established from here on.
        run.bound = race.map(|(deadline, explanation)| self.scope.impose(deadline, explanation));
        if run.armed && entry.middleware.reruns() {
            run.restore_to = Some(self.state.vars.clone());
            self.begin_run(entry, &mut run);
        }
        let passed = run.passed.clone();
        runs.push(run);
        Ok(Descent::Down(passed))
    }

    /// Counts a run of the inner scope.
    fn begin_run(&mut self, entry: &EntryPlan, run: &mut EntryRun) {
        run.state.runs = run.state.runs.saturating_add(1);
        self.scope.attempt = run.state.runs;
        let config = run.state.config.as_ref();
        self.scope.attempts = config.and_then(|config| entry.middleware.budget(config));
    }

    /// Everything that happens at one position on the way up.
    async fn ascend(
        &mut self,
        site: Site<'_>,
        entry: &EntryPlan,
        run: &mut EntryRun,
        rising: Flowed,
    ) -> Ascended {
        let rising = self.accept(site, run, rising);
        let rising = match rising {
            Ok(outcome) if !run.emitted => match self.cross(site, entry, run, outcome) {
                Crossed::Emit(outcome) => Ok(outcome),
                Crossed::Again(reentry, fed) => {
                    // The gap. What has been consumed is gone; what interrupts it finds this entry
                    // established and the inner ones not. Boxed: most ascents have none.
                    match Box::pin(self.scope.leaf(gap(&reentry))).await {
                        Ok(()) => {
                            self.begin_run(entry, run);
                            return Ascended::Again(fed);
                        }
                        Err(interrupted) => Err(interrupted),
                    }
                }
            },
            rising => rising,
        };
        (self.scope.attempt, self.scope.attempts) = run.outer;
        let phase = entry.phase(Phase::Always);
        if phase.is_idle() {
            return Ascended::Up(rising);
        }
        Ascended::Up(Box::pin(self.always(site, entry, run, rising)).await)
    }

    /// The seam: lifts the entry's bound, for what has risen to here is accepted, and converts the
    /// interruption that was its own ("The conversion seam").
    fn accept(&mut self, site: Site<'_>, run: &mut EntryRun, rising: Flowed) -> Flowed {
        let Some(position) = run.bound else {
            return rising;
        };
        self.scope.lift(position);
        match rising {
            Err(interrupted) if interrupted.owner == Owner::Bound(position) => {
                run.emitted = true;
                let Interrupted {
                    cleaned,
                    superseded,
                    ..
                } = interrupted;
                let emitted = interrupted.convert();
                self.execution
                    .observer
                    .timeout_exceeded(self.place(site), &emitted);
                // Cleanups took time: an outer bound may have fallen due meanwhile. It displaces what was
                // to be emitted here, but no failed cleanup.
                match self.scope.due().filter(|_| cleaned) {
                    Some(outer) => Err(after_cleanup(outer, superseded.then_some(&emitted))),
                    None => Ok(Outcome::Failure(emitted)),
                }
            }
            rising => rising,
        }
    }

    /// `onSuccess` or `onFailure`. A phase that fails emits its failure from here.
    fn cross(
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
        let pin = self.execution.stamp();
        let rising = Outcome::Success(value.clone());
        let view = self.phase_view(site, entry, run, Some(&rising), pin);
        let ascent = if holds(phase.when.as_ref(), &view)? && (run.armed || !phase.acts) {
            let with = prepared(entry, Phase::Success, &view)?;
            entry.middleware.on_success(&mut run.state, &with, &value)?
        } else {
            Ascent::Pass
        };
        let again = match ascent {
            Ascent::Pass => None,
            Ascent::Fail(failure) => return Err(failure),
            Ascent::Reenter(reentry) => Some(reentry),
        };
        let view = self.phase_view(site, entry, run, Some(&rising), pin);
        // The product has no destination where the next run is fed what the first was.
        let unread = again
            .as_ref()
            .is_some_and(|reentry| reentry.feed == Feed::Same);
        let product = if unread {
            value
        } else {
            shaped(&phase.shape, &view, || value)?
        };
        let bindings = bindings_of(&phase.assign, &view)?;
        Ok(match again {
            None => {
                self.state.vars.apply(bindings);
                Crossed::Emit(Outcome::Success(product))
            }
            Some(reentry) => self.reenter(run, reentry, bindings, product),
        })
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
        let ascent = if holds(phase.when.as_ref(), &view)? && (run.armed || !phase.acts) {
            let with = prepared(entry, Phase::Failure, &view)?;
            entry
                .middleware
                .on_failure(&mut run.state, &with, &failure)?
        } else {
            Ascent::Pass
        };
        let emitted = match ascent {
            Ascent::Pass => failure,
            Ascent::Fail(next) => {
                let next = Failure::superseding(&Arc::new(next), Some(&failure));
                self.execution.observer.gave_up(self.place(site), &next);
                next
            }
            Ascent::Reenter(reentry) => {
                let view = self.phase_view(site, entry, run, Some(&rising), pin);
                let bindings = bindings_of(&phase.assign, &view)?;
                self.execution.observer.retry_scheduled(&Retry {
                    step: self.place(site),
                    failure: &failure,
                    policy: reentry.policy,
                    delay: reentry.after,
                    source: reentry.source,
                });
                let same = run.passed.clone();
                let crossed = self.reenter(run, reentry, bindings, same);
                failure.discard();
                return Ok(crossed);
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
        Ok(Crossed::Emit(Outcome::Failure(product)))
    }

    /// Restores and carries before the gap: the block's values were computed against the attempt's
    /// aftermath and take effect on the restored variables.
    fn reenter(
        &mut self,
        run: &EntryRun,
        reentry: Reentry,
        bindings: Captured,
        product: Value,
    ) -> Crossed {
        if let (true, Some(vars)) = (reentry.restore, &run.restore_to) {
            self.state.vars = vars.clone();
        }
        self.state.vars.apply(bindings);
        let fed = match reentry.feed {
            Feed::Same => run.passed.clone(),
            Feed::Product => product,
        };
        Crossed::Again(reentry, fed)
    }

    /// `onAlways`: outside the data plane, on every exit, once.
    async fn always(
        &mut self,
        site: Site<'_>,
        entry: &EntryPlan,
        run: &EntryRun,
        rising: Flowed,
    ) -> Flowed {
        let phase = entry.phase(Phase::Always);
        let in_flight = match &rising {
            Ok(outcome) => outcome.clone(),
            Err(interrupted) => Outcome::Failure(Arc::clone(&interrupted.chain)),
        };
        let teardown = rising.is_err();
        let failed = self
            .clean_up(site, entry, run, &in_flight, teardown)
            .await
            .err();
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
            // An interruption that arrived during the cleanup has let it finish, and unwinds now.
            Ok(outcome) => match self.scope.due().filter(|_| phase.cleanup.is_some()) {
                Some(interrupted) => Err(after_cleanup(interrupted, failed.as_ref())),
                None => Ok(failed.map_or(outcome, Outcome::Failure)),
            },
        }
    }

    /// The phase itself; an `Err` is its failure.
    async fn clean_up(
        &mut self,
        site: Site<'_>,
        entry: &EntryPlan,
        run: &EntryRun,
        in_flight: &Outcome,
        teardown: bool,
    ) -> Result<(), Arc<Failure>> {
        let phase = entry.phase(Phase::Always);
        let pin = self.execution.stamp();
        let view = self.phase_view(site, entry, run, Some(in_flight), pin);
        if holds(phase.when.as_ref(), &view)? && (run.armed || !phase.acts) {
            let with = prepared(entry, Phase::Always, &view)?;
            let wanted = entry.middleware.on_always(&run.state, &with, in_flight)?;
            if let (Always::Dispatch, Some(cleanup)) = (wanted, &phase.cleanup) {
                let phase = entry_view(entry, run, Some(in_flight), pin);
                let site = Site {
                    step: site.step,
                    phase: Some(phase),
                };
                let operation = CallOperation {
                    site,
                    call: &cleanup.call,
                };
                let scope = self
                    .scope
                    .for_cleanup(self.execution.cleanup_limit, teardown);
                let outer = std::mem::replace(self.scope, scope);
                let input = run.input.clone();
                let flowed = self
                    .nested_stack(site, &cleanup.stack, input, &operation)
                    .await;
                *self.scope = outer;
                let outcome = flowed.unwrap_or_else(|edge| Outcome::Failure(edge.convert()));
                self.execution
                    .observer
                    .cleanup_done(self.place(site), &outcome);
                if let Outcome::Failure(failure) = outcome {
                    return Err(failure);
                }
            }
        }
        let view = self.phase_view(site, entry, run, Some(in_flight), pin);
        let bindings = bindings_of(&phase.assign, &view)?;
        self.state.vars.apply(bindings);
        Ok(())
    }

    /// A stack within a stack: a cleanup's.
    fn nested_stack<'a>(
        &'a mut self,
        site: Site<'a>,
        stack: &'a [EntryPlan],
        input: Value,
        operation: &'a CallOperation<'a>,
    ) -> Pin<Box<dyn Future<Output = Flowed> + Send + 'a>>
    where
        'e: 'a,
    {
        Box::pin(self.stack(site, stack, input, operation))
    }

    fn phase_view<'a>(
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

    /// What events and messages call this site: the Step, or the Flow around it.
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
    PhaseView {
        input: &run.input,
        result,
        entered,
        middleware,
        state: &run.state,
    }
}

/// The wait before a re-run. A gap of nothing still yields, so that a scope which re-runs without ever
/// waiting can be interrupted and shares its thread.
async fn gap(reentry: &Reentry) {
    if reentry.after.is_zero() {
        tokio::task::yield_now().await;
    } else {
        tokio::time::sleep(reentry.after).await;
    }
}

fn after_cleanup(mut interrupted: Interrupted, failed: Option<&Arc<Failure>>) -> Interrupted {
    interrupted.cleaned = true;
    if let Some(failure) = failed {
        interrupted.supersede(failure);
    }
    interrupted
}

/// A phase's `with` in the middleware's own terms. Evaluated and validated wherever the phase's `when`
/// holds, action or none ("Validation").
fn prepared(entry: &EntryPlan, phase: Phase, bindings: &dyn Bindings) -> Evaluated<Prepared> {
    match &entry.phase(phase).with {
        With::Literal { prepared, .. } => prepared
            .as_ref()
            .map(Arc::clone)
            .map_err(|failure| failure.as_ref().clone()),
        With::Dynamic(template) => {
            let with = evaluate(template, bindings)?;
            // Where the middleware does not act it declares no schema, and no arguments are taken.
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
fn shaped(
    shape: &Shape,
    bindings: &dyn Bindings,
    through: impl FnOnce() -> Value,
) -> Evaluated<Value> {
    match shape {
        Shape::Value(template) => evaluate(template, bindings),
        Shape::Through | Shape::Envelope(_) => Ok(through()),
    }
}

impl PhasePlan {
    /// Whether the block holds nothing to evaluate and the middleware nothing to do: then the phase is
    /// not entered at all.
    fn is_idle(&self) -> bool {
        let Self {
            acts,
            when,
            with,
            cleanup: _,
            shape,
            assign,
        } = self;
        let closed = matches!(
            with,
            With::Literal {
                prepared: Ok(_),
                ..
            }
        );
        !acts && closed && when.is_none() && matches!(shape, Shape::Through) && assign.is_empty()
    }
}
