//! `Retry`: re-runs its inner scope on matching failures (MWL, "The `Retry` middleware").
//!
//! It is a function of what it captured and what it has counted: it has no timer and touches no variable. It
//! answers whether to run again, and after which wait; the engine waits, restores and re-enters.
//!
//! The specification is silent on this: a policy's `attempts` is the number of failures that it may handle.
//! Its `attempts`-th matching failure exhausts it, whatever other policies handled in between.

mod backoff;
mod review;

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use self::backoff::Backoff;
use crate::language::matcher::Matcher;
use crate::language::outcome::Failure;
use crate::language::provider::action::{
    Ascent, Asker, DelaySource, Entry, EntryState, Feed, Reentry,
};
use crate::language::provider::behaviour::{Middleware, Surroundings};
use crate::language::provider::contract::{Contract, Phase, Prepared};
use crate::language::provider::draws::Draws;
use crate::language::provider::rising::{Kind, Rising};
use crate::language::provider::written::{Arguments, WrittenEntry, words};
use crate::language::temporal::Span;
use crate::language::value::{Array, RerunGrant, Value};
use crate::source::{Diagnostics, Node};

/// Emitted when the budget of the matching policy has run out, or the work cannot be run again.
pub const EXHAUSTED: &str = "Provider.Middleware.Retry.Exhausted";

/// `details.reason` of a failure whose re-run could only begin when a bound has fired.
pub const BEYOND_BOUND: &str = "beyondBound";

/// `details.reason` of a failure whose re-run its upstream's budget does not allow.
pub const BUDGET_SPENT: &str = "retryBudgetSpent";

/// `details.reason` of a failure whose re-run an operator has switched off.
pub const SWITCHED_OFF: &str = "switchedOff";

static CONTRACT: LazyLock<Contract> =
    LazyLock::new(|| Contract::embedded(include_str!("retry.v1.json")));

/// The `Retry` middleware.
#[derive(Debug, Default)]
pub struct Retry {
    /// The source of jitter.
    draws: Draws,
}

/// What `onEntry` captures.
#[derive(Debug)]
struct Policies(Box<[Policy]>);

/// One policy: which failures, how many of them, and the waits between.
#[derive(Debug)]
struct Policy {
    matcher: Matcher,
    attempts: u32,
    backoff: Option<Backoff>,
}

/// The `with` of `onFailure`.
#[derive(Debug)]
struct Override(Option<Span>);

/// What an entry has counted, for each policy.
#[derive(Debug, Default)]
struct Counts(Vec<PolicyCount>);

/// What was counted for one policy.
#[derive(Clone, Copy, Debug, Default)]
struct PolicyCount {
    /// The number of failures that it handled.
    handled: u32,
    /// The last draw of decorrelated jitter, in nanoseconds.
    drawn: Option<f64>,
}

impl Retry {
    /// The middleware, with jitter from `draws`.
    pub fn new(draws: Draws) -> Self {
        Self { draws }
    }
}

impl Middleware for Retry {
    fn contract(&self) -> &Contract {
        &CONTRACT
    }

    fn prepare(&self, phase: Phase, with: &Value) -> Result<Prepared, Failure> {
        if phase == Phase::Failure {
            let delay = with.get("delay").filter(|delay| !delay.is_null());
            let delay = delay.map(|delay| span("delay", &delay)).transpose()?;
            return Ok(Arc::new(Override(delay)));
        }
        let written = with.get("policies").unwrap_or_default();
        let policies = written.as_array().into_iter().flat_map(Array::iter);
        let policies = policies.map(|policy| Policy::read(&policy));
        Ok(Arc::new(Policies(policies.collect::<Result<_, _>>()?)))
    }

    fn check(&self, entry: WrittenEntry<'_>, found: &mut Diagnostics) {
        review::check(entry, found);
    }

    fn review(
        &self,
        entry: WrittenEntry<'_>,
        config: &Prepared,
        around: Surroundings<'_>,
        found: &mut Diagnostics,
    ) {
        if let Some(Policies(policies)) = config.downcast_ref() {
            review::review(entry, policies, around, found);
        }
    }

    /// What a policy certainly takes leaves as [`EXHAUSTED`].
    fn leaves<'k>(&'k self, config: Option<&Prepared>, rising: &mut Rising<'k>) {
        let repeats = rising.repeats();
        let policies = config.and_then(|config| config.downcast_ref::<Policies>());
        let policies = policies.map_or(&[][..], |Policies(policies)| policies);
        rising.take(
            |code| policies.iter().any(|policy| policy.matcher.takes_code(code)),
            "a Retry inside takes it, and gives up with `Provider.Middleware.Retry.Exhausted`",
            "match `Provider.Middleware.Retry.Exhausted`: the failure is its `previous`",
        );
        rising.add(Kind { repeats, ..Kind::of(EXHAUSTED) });
    }

    fn patterns<'n>(&self, _phase: Phase, with: &'n Node) -> Vec<&'n Node> {
        let policies = with.get("policies").and_then(Node::as_array).unwrap_or_default();
        let codes =
            policies.iter().filter_map(|policy| policy.get("match")?.get("codes")?.as_array());
        codes.flatten().collect()
    }

    fn computed_wait(&self) -> Option<(Phase, &'static str)> {
        Some((Phase::Failure, "delay"))
    }

    fn describe(&self, phase: Phase, arguments: Arguments<'_>) -> Option<String> {
        let delayed = |delay: &dyn fmt::Display| format!("waits {delay} where that says so");
        match (phase, arguments) {
            (Phase::Failure, Arguments::Prepared(with)) => {
                let Override(delay) = with.downcast_ref()?;
                Some(delay.map(|delay| delayed(&delay)).unwrap_or_default())
            }
            (_, Arguments::Prepared(config)) => {
                let Policies(policies) = config.downcast_ref()?;
                Some(policies.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
            }
            (Phase::Failure, Arguments::Written(with)) => {
                Some(delayed(&words(&with.get("delay")?)))
            }
            (_, Arguments::Written(with)) => {
                let policies = with.get("policies")?;
                let said = policies.as_array()?.iter().map(|policy| match Policy::read(&policy) {
                    Ok(policy) => policy.to_string(),
                    Err(_computed) => words(&policy),
                });
                Some(said.collect::<Vec<_>>().join("; "))
            }
        }
    }

    fn describe_policy(&self, config: &Prepared, position: usize) -> Option<String> {
        let Policies(policies) = config.downcast_ref()?;
        Some(policies.get(position)?.to_string())
    }

    fn reruns(&self) -> bool {
        true
    }

    fn budget(&self, config: &Prepared) -> Option<u32> {
        self.most_runs(config).map(|runs| u32::try_from(runs).unwrap_or(u32::MAX))
    }

    /// Each policy handles all but the last of its `attempts` with another run.
    fn most_runs(&self, config: &Prepared) -> Option<u64> {
        let policies = &config.downcast_ref::<Policies>()?.0;
        let reruns = policies.iter().map(|policy| u64::from(policy.attempts).saturating_sub(1));
        Some(reruns.fold(1, u64::saturating_add))
    }

    fn opening(&self, _with: &Prepared) -> Option<Entry> {
        Some(Entry::Proceed)
    }

    fn on_failure(
        &self,
        entry: &mut EntryState,
        with: &Prepared,
        failure: &Arc<Failure>,
        _asker: Asker<'_>,
    ) -> Result<Ascent, Failure> {
        let Some(config) = entry.config.clone() else {
            return Ok(Ascent::Pass);
        };
        let Some(Policies(policies)) = config.downcast_ref() else {
            return Ok(Ascent::Pass);
        };
        let matching =
            policies.iter().enumerate().find(|(_, policy)| policy.matcher.matches(failure));
        let Some((position, policy)) = matching else {
            return Ok(Ascent::Pass);
        };
        let EntryState { runs, room, closed, .. } = *entry;
        let count = count(entry, policies.len(), position);
        count.handled = count.handled.saturating_add(1);
        if count.handled >= policy.attempts {
            return Ok(Ascent::Fail(exhausted(runs, position, Ending::Spent)));
        }
        if let Some(reason) = closed {
            return Ok(Ascent::Fail(exhausted(runs, position, Ending::Withheld(reason))));
        }
        if let Some(reason) = failure.rerun_refusal() {
            return Ok(Ascent::Fail(exhausted(runs, position, Ending::Refused(reason))));
        }
        let overridden = with.downcast_ref::<Override>().and_then(|delay| delay.0);
        let (after, source, range) = match (overridden, &policy.backoff) {
            (Some(delay), _) => (delay.to_duration(), DelaySource::Override, None),
            (None, None) => (Duration::ZERO, DelaySource::Schedule, None),
            (None, Some(backoff)) => {
                let gap = backoff.gap(count.handled, count.drawn, self.draws.uniform());
                count.drawn = gap.drawn;
                (gap.wait, DelaySource::Schedule, gap.range)
            }
        };
        if let Some(room) = room.filter(|room| after > *room) {
            let ending = Ending::Beyond { wait: after, room };
            return Ok(Ascent::Fail(exhausted(runs, position, ending)));
        }
        // Last, so that nothing is taken for a re-run that is not made.
        if let RerunGrant::Refused(reason) = failure.take_rerun() {
            return Ok(Ascent::Fail(exhausted(runs, position, Ending::Withheld(reason))));
        }
        Ok(Ascent::Reenter(Reentry {
            after,
            source,
            range,
            policy: Some(position),
            feed: Feed::Same,
            restore: true,
        }))
    }

    fn passes(&self, state: &EntryState, failure: &Failure) -> Option<&'static str> {
        let Policies(policies) = state.config.as_ref()?.downcast_ref()?;
        let named = policies.iter().any(|policy| policy.matcher.misses_retryable(failure));
        named.then_some("notRetryable")
    }

    fn metadata(&self, entry: &EntryState, member: &str) -> Option<Value> {
        (member == "attempt").then(|| Value::from(entry.runs))
    }
}

impl Policy {
    fn read(written: &Value) -> Result<Self, Failure> {
        let matcher = Matcher::read(&written.get("match").unwrap_or_default())?;
        let attempts = written.get("attempts").unwrap_or_default();
        let attempts = attempts
            .as_u64()
            .filter(|attempts| *attempts >= 1)
            .ok_or_else(|| wrong("attempts", "an integer of at least 1", attempts))?;
        let attempts = u32::try_from(attempts).unwrap_or(u32::MAX);
        let backoff = written.get("backoff").map(|backoff| Backoff::read(&backoff)).transpose()?;
        Ok(Self { matcher, attempts, backoff })
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { matcher, attempts, backoff } = self;
        write!(f, "{matcher}, {attempts} attempts, ")?;
        match backoff {
            Some(backoff) => backoff.fmt(f),
            None => f.write_str("no wait"),
        }
    }
}

/// The count of a policy. It is made at the first failure that is handled, so that a success costs nothing.
fn count(entry: &mut EntryState, policies: usize, position: usize) -> &mut PolicyCount {
    let own = entry.own.get_or_insert_with(|| Box::new(Counts::default()));
    if !own.is::<Counts>() {
        *own = Box::new(Counts::default());
    }
    let counts = own.downcast_mut::<Counts>();
    #[expect(clippy::expect_used, reason = "made just above")]
    let Counts(counts) = counts.expect("counts");
    if counts.len() < policies {
        counts.resize(policies, PolicyCount::default());
    }
    #[expect(clippy::indexing_slicing, reason = "as long as the policies, of which this is one")]
    &mut counts[position]
}

/// Why a policy that takes a failure does not run the work again.
#[derive(Clone, Copy)]
enum Ending {
    /// Its attempts are spent.
    Spent,
    /// The failure says why the work cannot run again.
    Refused(&'static str),
    /// The host does not want it now.
    Withheld(&'static str),
    /// A bound fires before the wait is over.
    Beyond { wait: Duration, room: Duration },
}

/// `Provider.Middleware.Retry.Exhausted`. The engine links the last failure to it.
fn exhausted(runs: u32, policy: usize, ending: Ending) -> Failure {
    let policy = u32::try_from(policy).unwrap_or(u32::MAX);
    let mut details = vec![("attempts", Value::from(runs)), ("policy", Value::from(policy))];
    let plural = if runs == 1 { "" } else { "s" };
    let message = match ending {
        Ending::Spent => format!("policy {policy} is exhausted after {runs} run{plural}"),
        Ending::Refused(reason) => {
            details.push(("reason", Value::from(reason)));
            format!("gave up after {runs} run{plural}: the work cannot run again ({reason})")
        }
        Ending::Withheld(reason) => {
            details.push(("reason", Value::from(reason)));
            format!("gave up after {runs} run{plural}: no retry is allowed now ({reason})")
        }
        Ending::Beyond { wait, room } => {
            details.push(("reason", Value::from(BEYOND_BOUND)));
            let (wait, room) = (shown(wait), shown(room));
            format!(
                "gave up after {runs} run{plural}: the wait is {wait}, and a bound fires in {room}"
            )
        }
    };
    Failure::error(EXHAUSTED, message).with_details(Value::object(details))
}

/// In whole milliseconds.
fn shown(length: Duration) -> Span {
    let millis = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
    Span::from_duration(Duration::from_millis(millis))
}

fn span(name: &str, written: &Value) -> Result<Span, Failure> {
    let span = written.as_str().and_then(Span::parse);
    span.ok_or_else(|| wrong(name, "an ISO 8601 duration such as PT2S", written.clone()))
}

fn wrong(name: &str, wanted: &str, observed: Value) -> Failure {
    let message = format!("`{name}` must be {wanted}; it is {} {observed}", observed.type_name());
    Failure::validation(message, format!("/{name}"), observed)
}
