//! Warns of circuit breakers that do not notice an upstream that hangs.
//!
//! A Timeout around a breaker interrupts what is inside it, and an interruption says nothing of an upstream. So if neither a
//! Timeout inside the breaker nor the upstream's own `responseTimeout` fires before, no attempt that hangs ever counts.

use std::time::Duration;

use crate::language::plan::{Action, CallPlan, CallStep, EntryPlan, FlowId, Plan, Target, With};
use crate::language::provider::Entry;
use crate::language::temporal::Span;
use crate::language::uri::ProviderUri;
use crate::language::value::Value;
use crate::source::{Diagnostic, Diagnostics};

const BREAKER: &str = "mwl:provider.middleware/mwl-proxy/circuit-breaker/v1";

/// Warns of the breakers of `plan` around calls of the provider `http`. `responds` is within which time the upstream of this
/// name, or the route's own, begins a response; `None` if it is not known.
pub(super) fn advise(
    plan: &Plan,
    http: &ProviderUri,
    responds: impl Fn(Option<&str>) -> Option<Duration>,
    found: &mut Diagnostics,
) {
    for (index, flow) in plan.flows().iter().enumerate() {
        // What is around another Flow depends on who calls it.
        let around = if FlowId(index) == FlowId::ROOT { &flow.stack[..] } else { &[] };
        let around = around.iter().filter_map(bound).min();
        for step in &flow.steps {
            if let Action::Call(step) = &step.action {
                of_step(step, http, around, &responds, found);
            }
        }
    }
}

fn of_step(
    CallStep { stack, call, .. }: &CallStep,
    http: &ProviderUri,
    around: Option<Duration>,
    responds: impl Fn(Option<&str>) -> Option<Duration>,
    found: &mut Diagnostics,
) {
    // Most stacks have none, and to look for bounds around each entry takes the square of their number.
    if !stack.iter().any(is_breaker) {
        return;
    }
    let Some(response) = response_timeout(call, http, responds) else {
        return;
    };
    for (position, entry) in stack.iter().enumerate() {
        if !is_breaker(entry) {
            continue;
        }
        let (outside, inside) = stack.split_at(position);
        let outer = outside.iter().filter_map(bound).chain(around).min();
        let bounded = inside.iter().any(|entry| entry.middleware.contract().bounds());
        let Some(outer) = outer.filter(|outer| !bounded && *outer <= response) else {
            continue;
        };
        let outer = Span::from_duration(outer);
        let message = format!(
            "this breaker never counts an upstream that hangs: a bound around it fires after {outer}, which says nothing of the upstream"
        );
        let help = "put a Timeout inside the breaker, or lower the upstream's `responseTimeout`";
        let warning = Diagnostic::warning("deaf-breaker", entry.span, message);
        found.push(warning.with_help(help));
    }
}

fn is_breaker(entry: &EntryPlan) -> bool {
    entry.middleware.contract().uri.as_str() == BREAKER
}

/// The bound that an entry certainly imposes.
fn bound(entry: &EntryPlan) -> Option<Duration> {
    match entry.middleware.opening(entry.captures()?)? {
        Entry::Race { bound, .. } => Some(bound),
        _ => None,
    }
}

/// Within which time the response of `call` begins; `None` if only a request knows.
fn response_timeout(
    call: &CallPlan,
    http: &ProviderUri,
    responds: impl Fn(Option<&str>) -> Option<Duration>,
) -> Option<Duration> {
    let (Target::Provider(provider), With::Literal { value, .. }) = (&call.target, &call.with)
    else {
        return None;
    };
    if provider.contract().uri != *http {
        return None;
    }
    let own = value.get("responseTimeout").filter(|own| !own.is_null());
    let within = match own {
        Some(own) => own.as_str().and_then(Span::parse).map(Span::to_duration)?,
        None => responds(value.get("upstream").as_ref().and_then(Value::as_str))?,
    };
    Some(if within.is_zero() { Duration::MAX } else { within })
}
