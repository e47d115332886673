//! `Loop`: re-runs its inner scope while its continuation holds (MWL, "The `Loop` middleware").
//!
//! It has no parameters. Its `when`s are the loop: the engine evaluates them, and calls an action only if the
//! loop goes on.

use std::sync::LazyLock;
use std::time::Duration;

use crate::language::outcome::Failure;
use crate::language::provider::action::{
    Ascent, Asker, DelaySource, EntryState, Feed, GatedOff, Reentry,
};
use crate::language::provider::behaviour::Middleware;
use crate::language::provider::contract::{Contract, Phase, Prepared};
use crate::language::provider::written::WrittenEntry;
use crate::language::value::Value;
use crate::source::{Diagnostic, Diagnostics};

static CONTRACT: LazyLock<Contract> =
    LazyLock::new(|| Contract::embedded(include_str!("loop.v1.json")));

/// The `Loop` middleware.
#[derive(Clone, Copy, Debug, Default)]
pub struct Loop;

impl Middleware for Loop {
    fn contract(&self) -> &Contract {
        &CONTRACT
    }

    /// "A `Loop` entry MUST write `onSuccess.when`": nothing else ends it, except an interruption from
    /// outside. An author who writes a literal `true` may rely on that.
    fn check(&self, entry: WrittenEntry<'_>, found: &mut Diagnostics) {
        let help = r#"write onSuccess: { "when": "{{ … }}" }: the loop goes on while it is true"#;
        let diagnostic = match entry.key(Phase::Success, "when") {
            None => {
                let message = "a Loop without `onSuccess.when` never ends";
                Diagnostic::error("endless-loop", entry.0.span, message)
            }
            Some(when) if when.as_bool() == Some(true) => {
                let message = "a Loop whose `onSuccess.when` is always true ends only by a failure or a bound";
                Diagnostic::warning("endless-loop", when.span, message)
            }
            Some(_) => return,
        };
        found.push(diagnostic.with_help(help));
    }

    fn reruns(&self) -> bool {
        true
    }

    fn gated_off(&self) -> GatedOff {
        GatedOff::NoRun
    }

    fn on_success(
        &self,
        _entry: &mut EntryState,
        _with: &Prepared,
        _value: &Value,
        _asker: Asker<'_>,
    ) -> Result<Ascent, Failure> {
        Ok(Ascent::Reenter(Reentry {
            after: Duration::ZERO,
            source: DelaySource::Schedule,
            range: None,
            policy: None,
            feed: Feed::Product,
            restore: false,
        }))
    }

    fn metadata(&self, entry: &EntryState, member: &str) -> Option<Value> {
        (member == "iteration").then(|| Value::from(entry.runs))
    }
}
