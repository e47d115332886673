//! Warns of circuit breakers that do not notice an upstream that hangs.
//!
//! A Timeout around a breaker interrupts what is inside it, and an interruption says nothing of an upstream. So if neither a
//! Timeout inside the breaker nor the upstream's own `responseTimeout` fires before, no attempt that hangs ever counts.
//!
//! A stack may be used by many routes, whose upstreams differ. Other than an entry that is useless on one of them, a breaker that
//! is deaf on one does harm there. So it is reported if it is deaf on any, once, with the names of those routes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::language::plan::{Action, CallPlan, CallStep, EntryPlan, FlowId, Plan, Target, With};
use crate::language::provider::Entry;
use crate::language::temporal::Span;
use crate::language::uri::ProviderUri;
use crate::language::value::Value;
use crate::source::{self, Diagnostic};

/// How many routes a warning names.
const NAMED: usize = 3;

const BREAKER: &str = "mwl:provider.middleware/mwl-proxy/circuit-breaker/v1";

/// The deaf breakers of a configuration.
#[derive(Debug, Default)]
pub(super) struct DeafBreakers {
    found: Vec<DeafBreaker>,
    /// Where in `found` an entry is.
    places: HashMap<source::Span, usize>,
}

#[derive(Debug)]
struct DeafBreaker {
    entry: source::Span,
    /// After which time a bound around it fires.
    outer: Duration,
    routes: Vec<Arc<str>>,
}

impl DeafBreakers {
    fn add(&mut self, entry: source::Span, outer: Duration, route: &Arc<str>) {
        let next = self.found.len();
        let place = *self.places.entry(entry).or_insert(next);
        match self.found.get_mut(place) {
            Some(deaf) if deaf.routes.last() == Some(route) => {}
            Some(deaf) => deaf.routes.push(Arc::clone(route)),
            None => {
                let routes = vec![Arc::clone(route)];
                self.found.push(DeafBreaker { entry, outer, routes });
            }
        }
    }

    /// The warnings.
    pub(super) fn told(self) -> impl Iterator<Item = Diagnostic> {
        self.found.into_iter().map(|DeafBreaker { entry, outer, routes }| {
            let outer = Span::from_duration(outer);
            let several = if routes.len() == 1 { "route" } else { "routes" };
            let (named, more) = routes.split_at(routes.len().min(NAMED));
            let mut named = named.join(", ");
            if !more.is_empty() {
                named = format!("{named} and {} more", more.len());
            }
            let message = format!(
                "on {several} {named}, this breaker never counts an upstream that hangs: a bound around it fires after {outer}, which says nothing of the upstream"
            );
            let help = "put a Timeout inside the breaker, or lower the upstream's `responseTimeout`";
            Diagnostic::warning("deaf-breaker", entry, message).with_help(help)
        })
    }
}

/// Notes the deaf breakers of `plan`, the plan of `route`, around calls of the provider `http`. `responds` is within which time the
/// upstream of this name, or the route's own, begins a response; `None` if it is not known.
pub(super) fn advise(
    (route, plan): (&Arc<str>, &Plan),
    http: &ProviderUri,
    responds: impl Fn(Option<&str>) -> Option<Duration>,
    found: &mut DeafBreakers,
) {
    let mut found = |entry: &EntryPlan, outer| found.add(entry.span, outer, route);
    for (index, flow) in plan.flows().iter().enumerate() {
        // What is around another Flow depends on who calls it.
        let around = if FlowId(index) == FlowId::ROOT { &flow.stack[..] } else { &[] };
        let around = around.iter().filter_map(bound).min();
        for step in &flow.steps {
            if let Action::Call(step) = &step.action {
                of_step(step, http, around, &responds, &mut found);
            }
        }
    }
}

fn of_step(
    CallStep { stack, call, .. }: &CallStep,
    http: &ProviderUri,
    around: Option<Duration>,
    responds: impl Fn(Option<&str>) -> Option<Duration>,
    found: &mut impl FnMut(&EntryPlan, Duration),
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
        found(entry, outer);
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
