//! `Timeout`: bounds its inner scope's execution time (MWL, "The `Timeout` middleware").
//!
//! The action only says which bound it wants. The engine does the rest: it races, interrupts, unwinds and
//! converts.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use crate::language::outcome::{Failure, FailureType};
use crate::language::provider::action::{Asker, Entry, EntryState};
use crate::language::provider::behaviour::Middleware;
use crate::language::provider::contract::{Contract, Phase, Prepared};
use crate::language::provider::rising::{Kind, Rising};
use crate::language::provider::written::{Arguments, words};
use crate::language::temporal::Span;
use crate::language::value::Value;

/// Emitted when no Result of the inner scope was accepted within the bound.
pub const EXCEEDED: &str = "Provider.Middleware.Timeout.Exceeded";

static CONTRACT: LazyLock<Contract> =
    LazyLock::new(|| Contract::embedded(include_str!("timeout.v1.json")));

/// The `Timeout` middleware.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timeout;

/// The captured bound, and the failure that explains it, which is made only once.
#[derive(Debug)]
struct CapturedBound {
    duration: Duration,
    explanation: Arc<Failure>,
}

/// The bound that `with` asks for.
fn race(with: &Prepared) -> Entry {
    with.downcast_ref::<CapturedBound>().map_or(Entry::Proceed, |bound| Entry::Race {
        bound: bound.duration,
        explanation: Arc::clone(&bound.explanation),
    })
}

/// The failure of a bound of `duration`. `what` is the beginning of its message.
pub fn exceeded(duration: Duration, what: &str) -> Failure {
    let bound = Span::from_duration(duration).to_string();
    Failure {
        ty: FailureType::Timeout,
        details: Some(Value::object([("duration", Value::string(bound.as_str()))])),
        ..Failure::error(EXCEEDED, format!("{what}: the bound is {bound}"))
    }
}

impl Middleware for Timeout {
    fn contract(&self) -> &Contract {
        &CONTRACT
    }

    fn prepare(&self, _phase: Phase, with: &Value) -> Result<Prepared, Failure> {
        let written = with.get("duration").unwrap_or_default();
        let duration = written.as_str().and_then(Span::parse).ok_or_else(|| {
            let message = "`duration` must be an ISO 8601 duration such as PT30S";
            Failure::validation(message, "/properties/duration/format", written)
        })?;
        let duration = duration.to_duration();
        let explanation = Arc::new(exceeded(duration, "no Result was accepted in time"));
        Ok(Arc::new(CapturedBound { duration, explanation }))
    }

    /// What its bound interrupts may have been done, and the failure says nothing of `retryable`.
    fn leaves<'k>(&'k self, _config: Option<&Prepared>, rising: &mut Rising<'k>) {
        let repeats = rising.repeats();
        rising.add(Kind { code: EXCEEDED, says_retryable: false, repeats });
    }

    fn describe(&self, _phase: Phase, arguments: Arguments<'_>) -> Option<String> {
        Some(match arguments {
            Arguments::Prepared(with) => {
                Span::from_duration(with.downcast_ref::<CapturedBound>()?.duration).to_string()
            }
            Arguments::Written(with) => words(&with.get("duration")?),
        })
    }

    fn on_entry(
        &self,
        _entry: &mut EntryState,
        with: &Prepared,
        _asker: Asker<'_>,
    ) -> Result<Entry, Failure> {
        Ok(race(with))
    }

    fn opening(&self, with: &Prepared) -> Option<Entry> {
        Some(race(with))
    }

    fn metadata(&self, entry: &EntryState, member: &str) -> Option<Value> {
        (member == "deadline").then_some(entry.deadline?).map(|at| Value::string(at.to_string()))
    }
}
