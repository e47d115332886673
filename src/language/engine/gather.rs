//! `Gather`: fan out, collect, determine (MWL, "`Gather`").
//!
//! Dispatches run concurrently on the frame's own future, each in its own scope, and only read the frame. The
//! arms write to it: so they wait until every dispatch has resolved, and then run in dispatch order.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::call::{Dispatcher, Settled};
use super::frame::Frame;
use super::graph::Transition;
use super::location::Location;
use super::part::count_value;
use super::scope::{Canceller, Interrupted, cancellation};
use super::stack::Site;
use super::template::{Evaluated, evaluate, wrong};
use super::view::StepState;
use crate::language::code::system;
use crate::language::outcome::{Failure, FailureType, Outcome};
use crate::language::plan::{CallPlan, GatherStep};
use crate::language::value::{Array, Value};

/// How many dispatches one fan-out may have. A `Gather` over more fails with [`FAN_OUT_LIMIT`], before it
/// starts any.
pub const MAX_DISPATCHES: usize = 10_000;

/// The code of a fan-out over [`MAX_DISPATCHES`]. It is a limit of the platform, so it is no `System.` code.
pub const FAN_OUT_LIMIT: &str = "Platform.GatherFanOutLimitExceeded";

/// How a dispatch resolved, before its arm.
enum Slot {
    Settled(Box<Settled>),
    /// Interrupted, or never started.
    Imposed(Arc<Failure>),
}

/// A fan-out whose dispatches are known.
struct FanOut<'p> {
    calls: &'p [CallPlan],
    /// The input of each dispatch of the iterate form. `None`: all receive the Step's input.
    elements: Option<Array>,
    count: usize,
    wanted: usize,
    concurrency: usize,
    wait: bool,
}

impl<'e> Frame<'e, '_> {
    pub(super) async fn gather_step(
        &mut self,
        plan: &'e GatherStep,
        location: &Location<'_>,
        mut step: StepState<'_>,
    ) -> Result<Transition, Interrupted> {
        let mut own_fault = None;
        let slots = match self.enumerate(plan, &mut step) {
            Ok(fan_out) => {
                let site = Site { step: Some(&step), phase: None, location };
                let slots = self.fan_out(&fan_out, site, &step).await?;
                self.collect(fan_out.calls, slots, site, Some(fan_out.wanted)).await?
            }
            Err(fault) => {
                own_fault = Some(Arc::new(self.blame(step.name, fault)));
                let skipped = (0..step.dispatch_count.unwrap_or_default()).map(|_| skipped());
                let site = Site { step: Some(&step), phase: None, location };
                self.collect(&plan.calls, skipped.collect(), site, None).await?
            }
        };
        let (results, unmet) = slots;
        step.exited = Some(self.execution.stamp());
        let successes = results.iter().filter_map(|result| match result {
            Outcome::Success(value) => Some(value.clone()),
            Outcome::Failure(_) => None,
        });
        let projection = Value::array(successes.collect());
        step.results = Some(Value::array(results.iter().map(Outcome::to_value).collect()));
        let failure = own_fault.or(unmet);
        Ok(self.settle(&plan.tail, &plan.catch, &mut step, failure, |_| projection))
    }

    /// Evaluates `over`, counts the dispatches, then evaluates `successes`.
    fn enumerate(&self, plan: &'e GatherStep, step: &mut StepState<'_>) -> Evaluated<FanOut<'e>> {
        let elements = match &plan.over {
            None => None,
            Some(over) => match evaluate(over, &self.view(step.entered, Some(step), None))? {
                Value::Array(elements) => Some(elements),
                other => return Err(wrong("over", "an array", other)),
            },
        };
        let count = elements.as_ref().map_or(plan.calls.len(), Array::len);
        if count > MAX_DISPATCHES {
            let message = format!("{count} dispatches are more than the {MAX_DISPATCHES} allowed");
            return Err(Failure::error(FAN_OUT_LIMIT, message));
        }
        step.dispatch_count = Some(count);
        let wanted = match &plan.successes {
            None => count,
            Some(successes) => {
                let value = evaluate(successes, &self.view(step.entered, Some(step), None))?;
                let whole = value.as_number().filter(|number| number.fract() == 0.0);
                let whole = whole.ok_or_else(|| wrong("successes", "an integer", value))?;
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "saturates: less than none is none"
                )]
                let wanted = whole as usize;
                wanted
            }
        };
        Ok(FanOut {
            calls: &plan.calls,
            elements,
            count,
            wanted,
            concurrency: plan.concurrency.unwrap_or(usize::MAX),
            wait: plan.wait,
        })
    }

    /// Runs the dispatches until each has resolved. An interruption is passed on to those in flight, and they
    /// unwind before it rises further.
    async fn fan_out(
        &mut self,
        fan_out: &FanOut<'_>,
        site: Site<'_>,
        step: &StepState<'_>,
    ) -> Result<Vec<Slot>, Interrupted> {
        let Frame { execution, state, scope, .. } = self;
        let dispatcher = Dispatcher { execution, state, site, place: step.name };
        let canceller = Canceller::new();
        let mut slots: Vec<Option<Slot>> = (0..fan_out.count).map(|_| None).collect();
        let mut tally = Tally::new(fan_out);
        let mut active = FuturesUnordered::new();
        let mut pending = 0..fan_out.count;
        loop {
            while active.len() < fan_out.concurrency && (fan_out.wait || !tally.determined()) {
                let Some(index) = pending.next() else { break };
                let Some((call, arriving)) = fan_out.dispatch(index, &step.input) else {
                    break;
                };
                let mut scope = scope.for_dispatch(canceller.clone(), index);
                active.push(async move {
                    if let Err(interrupted) = scope.rest().await {
                        return (index, scope.caught, Err(interrupted));
                    }
                    let settled =
                        dispatcher.dispatch(&mut scope, call, arriving, Some(index)).await;
                    (index, scope.caught, settled)
                });
            }
            let resolved = match scope.leaf(active.next()).await {
                Ok(resolved) => resolved,
                Err(interrupted) => {
                    canceller.cancel(Arc::clone(&interrupted.chain));
                    while active.next().await.is_some() {}
                    return Err(Interrupted { cleaned: true, ..interrupted });
                }
            };
            let Some((index, caught, resolved)) = resolved else {
                break;
            };
            scope.caught |= caught;
            let slot = match resolved {
                Ok(settled) => {
                    tally.count(settled.succeeded());
                    Slot::Settled(Box::new(settled))
                }
                Err(interrupted) => Slot::Imposed(interrupted.chain),
            };
            if let Some(place) = slots.get_mut(index) {
                *place = Some(slot);
            }
            if tally.determined() && !fan_out.wait {
                canceller.cancel(cancellation(system::GATHER_DISPATCH_CANCELLED, None));
            }
        }
        Ok(slots.into_iter().map(|slot| slot.unwrap_or_else(skipped)).collect())
    }

    /// Runs the arms in dispatch order, and determines the Step's own outcome from their results.
    async fn collect(
        &mut self,
        calls: &[CallPlan],
        slots: Vec<Slot>,
        site: Site<'_>,
        wanted: Option<usize>,
    ) -> Result<(Vec<Outcome>, Option<Arc<Failure>>), Interrupted> {
        let mut results = Vec::with_capacity(slots.len());
        for (index, slot) in slots.into_iter().enumerate() {
            self.scope.rest().await?;
            results.push(match slot {
                Slot::Imposed(failure) => Outcome::Failure(failure),
                Slot::Settled(settled) => match call_of(calls, index) {
                    Some(call) => self.arm(site, call, *settled),
                    None => Outcome::Failure(skipped_failure()),
                },
            });
        }
        let successes = results.iter().filter(|result| result.is_success()).count();
        let unmet = wanted.filter(|wanted| successes < *wanted);
        let unmet = unmet.map(|wanted| {
            Arc::new(completion_unmet(&results, successes, wanted).in_step(self.place(site)))
        });
        Ok((results, unmet))
    }
}

impl FanOut<'_> {
    fn dispatch(&self, index: usize, received: &Value) -> Option<(&CallPlan, Value)> {
        let arriving = match &self.elements {
            Some(elements) => elements.get(index)?,
            None => received.clone(),
        };
        Some((call_of(self.calls, index)?, arriving))
    }
}

/// The call of a dispatch: the only one of the iterate form, or its own of the scatter form.
fn call_of(calls: &[CallPlan], index: usize) -> Option<&CallPlan> {
    match calls {
        [template] => Some(template),
        calls => calls.get(index),
    }
}

/// How many dispatches have settled, and how many must succeed.
struct Tally {
    successes: usize,
    failures: usize,
    count: usize,
    wanted: usize,
}

impl Tally {
    fn new(fan_out: &FanOut<'_>) -> Self {
        Self { successes: 0, failures: 0, count: fan_out.count, wanted: fan_out.wanted }
    }

    fn count(&mut self, succeeded: bool) {
        if succeeded {
            self.successes += 1;
        } else {
            self.failures += 1;
        }
    }

    /// Whether `wanted` has been reached, or cannot be reached any more.
    fn determined(&self) -> bool {
        self.successes >= self.wanted || self.count.saturating_sub(self.failures) < self.wanted
    }
}

fn skipped() -> Slot {
    Slot::Imposed(skipped_failure())
}

fn skipped_failure() -> Arc<Failure> {
    Arc::new(Failure {
        ty: FailureType::Skipped,
        ..Failure::error(system::GATHER_DISPATCH_SKIPPED, "the Gather completed before it started")
    })
}

/// The first dispatch that failed by itself, or else the first that did not succeed.
fn cause(results: &[Outcome]) -> Option<(usize, &Failure)> {
    let failures = || {
        let results = results.iter().enumerate();
        results.filter_map(|(index, result)| Some((index, &**result.failure()?)))
    };
    let own = |(_, failure): &(usize, &Failure)| {
        let imposed = [system::GATHER_DISPATCH_CANCELLED, system::GATHER_DISPATCH_SKIPPED];
        !imposed.contains(&failure.code.as_str())
    };
    failures().find(own).or_else(|| failures().next())
}

fn completion_unmet(results: &[Outcome], successes: usize, wanted: usize) -> Failure {
    let failures = results.iter().enumerate().filter(|(_, result)| !result.is_success());
    let failures: Vec<_> = failures
        .map(|(index, result)| {
            Value::object([("index", count_value(index)), ("result", result.to_value())])
        })
        .collect();
    let count = count_value(failures.len());
    let cause = cause(results).map(|(index, failure)| format!("; dispatch {index}: {failure}"));
    let message = format!(
        "{successes} of {} dispatches succeeded; {wanted} must{}",
        results.len(),
        cause.unwrap_or_default()
    );
    let details = [("failures", Value::array(failures)), ("failureCount", count)];
    Failure::error(system::GATHER_COMPLETION_UNMET, message).with_details(Value::object(details))
}
