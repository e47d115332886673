//! `fault`: injects delays and failures, to try what a policy makes of them.
//!
//! Whether a fault happens is a draw, or a hash of the key: the same key then always gets the same decision, and a larger
//! share adds keys to those that had it. Nothing was sent when it fails, so `retryable` says what the status alone says:
//! 429 and 5xx may be tried again, and so may a reset.

use std::any::Any;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use http::StatusCode;

use super::Own;
use crate::language::outcome::Failure;
use crate::language::provider::{
    Arguments, Asked, Asker, Contract, Draws, Entry, EntryState, Middleware, Moment, Pass, Passage,
    Phase, Prepared, WrittenEntry,
};
use crate::language::temporal::Span;
use crate::language::value::Value;
use crate::proxy::meaning::fault::INJECTED;
use crate::source::{Diagnostic, Diagnostics};

pub(super) const OWN: Own = Own { make };

static CONTRACT: LazyLock<Contract> =
    LazyLock::new(|| Contract::embedded(include_str!("fault.v1.json")));

/// The `fault` middleware.
#[derive(Debug)]
struct Fault {
    draws: Draws,
}

/// What an entry injects.
#[derive(Debug)]
struct Injection {
    share: f64,
    delay: Option<Duration>,
    failing: Option<Failing>,
    key: Option<Arc<str>>,
}

/// How it fails.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Failing {
    /// With this status.
    Status(StatusCode),
    /// Without an answer.
    Reset,
}

/// What was decided for one run, and of what.
#[derive(Debug)]
struct Decision {
    happens: bool,
    injection: Prepared,
}

fn make(draws: Draws) -> Arc<dyn Middleware> {
    Arc::new(Fault { draws })
}

impl Injection {
    fn read(with: &Value) -> Result<Self, Failure> {
        let written = |name: &str| with.get(name).filter(|value| !value.is_null());
        let share = written("share").unwrap_or_default();
        let within = share.as_number().filter(|share| (0.0..=1.0).contains(share));
        let share = within.ok_or_else(|| wrong("share", "a number from 0 to 1", share))?;
        let delay = written("delay").map(|delay| {
            let span = delay.as_str().and_then(Span::parse).filter(|span| *span >= Span::ZERO);
            span.ok_or_else(|| wrong("delay", "an ISO 8601 duration such as PT0.5S", delay))
        });
        let status = written("status").map(|status| {
            let number = status.as_u64().filter(|status| (400..600).contains(status));
            let status_code = number.and_then(|number| u16::try_from(number).ok());
            let status_code = status_code.and_then(|number| StatusCode::from_u16(number).ok());
            status_code.ok_or_else(|| wrong("status", "a status from 400 to 599", status))
        });
        let reset = written("reset").and_then(|reset| reset.as_bool()).unwrap_or(false);
        let failing = match (status.transpose()?, reset) {
            (Some(_), true) => {
                let message = "a fault has a `status` or a `reset`, not both";
                return Err(Failure::validation(message, "/reset", with.clone()));
            }
            (Some(status), false) => Some(Failing::Status(status)),
            (None, true) => Some(Failing::Reset),
            (None, false) => None,
        };
        let delay = delay.transpose()?.map(Span::to_duration);
        if failing.is_none() && delay.is_none() {
            let message = "a fault does nothing without a `delay`, a `status` or a `reset`";
            return Err(Failure::validation(message, "/required", with.clone()));
        }
        let key = written("key").map(|key| match key {
            Value::String(key) => Ok(key),
            other => Err(wrong("key", "a string", other)),
        });
        Ok(Self { share, delay, failing, key: key.transpose()? })
    }

    /// Whether it happens to a run.
    fn happens(&self, draws: &Draws) -> bool {
        let chance = self.key.as_ref().map_or_else(|| draws.uniform(), |key| hashed(key));
        chance < self.share
    }

    /// In words: `503 after PT1S, in 10% of the runs`.
    fn words(&self) -> String {
        let what = match self.failing {
            Some(Failing::Status(status)) => status.as_u16().to_string(),
            Some(Failing::Reset) => "a reset".to_owned(),
            None => String::new(),
        };
        let delay = self.delay.map(|delay| Span::from_duration(delay).to_string());
        match (what.as_str(), delay) {
            ("", Some(delay)) => format!("a wait of {delay}"),
            (what, Some(delay)) => format!("{what} after {delay}"),
            (what, None) => what.to_owned(),
        }
    }

    /// How often, in words.
    fn share_in_words(&self) -> String {
        let of = if self.key.is_some() { "keys" } else { "runs" };
        format!("{}% of the {of}", self.share * 100.0)
    }
}

impl Decision {
    fn state(happens: bool, injection: &Prepared) -> Box<dyn Any + Send + Sync> {
        Box::new(Self { happens, injection: Arc::clone(injection) })
    }
}

impl Failing {
    fn failure(self) -> Failure {
        let (detail, message, retryable) = match self {
            Self::Status(status) => (
                ("status", Value::from(u32::from(status.as_u16()))),
                format!("a fault was injected: status {}", status.as_u16()),
                status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS,
            ),
            Self::Reset => {
                (("reset", Value::Bool(true)), "a fault was injected: a reset".to_owned(), true)
            }
        };
        let failure = Failure::error(INJECTED, message).with_retryable(retryable);
        failure.with_details(Value::object([detail]))
    }
}

impl Middleware for Fault {
    fn contract(&self) -> &Contract {
        &CONTRACT
    }

    fn prepare(&self, _phase: Phase, with: &Value) -> Result<Prepared, Failure> {
        Ok(Arc::new(Injection::read(with)?))
    }

    fn check(&self, entry: WrittenEntry<'_>, found: &mut Diagnostics) {
        let argument = |name| entry.argument(Phase::Entry, name);
        let fails = argument("status").is_some() || argument("reset").is_some();
        let always = argument("share").filter(|share| share.as_number() == Some(1.0));
        if let Some(share) = always.filter(|_| fails && entry.key(Phase::Entry, "when").is_none()) {
            let message = "this fault always happens: nothing inside it ever runs";
            let help = "lower its `share`, or gate it with `when`";
            found.push(Diagnostic::warning("constant-fault", share.span, message).with_help(help));
        }
    }

    fn computed_wait(&self) -> Option<(Phase, &'static str)> {
        Some((Phase::Entry, "delay"))
    }

    fn describe(&self, phase: Phase, arguments: Arguments<'_>) -> Option<String> {
        let Arguments::Prepared(with) = arguments else {
            return None;
        };
        if phase != Phase::Entry {
            return None;
        }
        let injection = with.downcast_ref::<Injection>()?;
        Some(format!("{}, in {}", injection.words(), injection.share_in_words()))
    }

    fn decides_in_place(&self) -> bool {
        true
    }

    fn forgets(&self) -> bool {
        true
    }

    fn admit(&self, with: &Prepared, _asker: &Asker<'_>, _now: &mut Moment) -> Passage {
        let Some(injection) = with.downcast_ref::<Injection>() else {
            return Passage::Passes(Pass::default());
        };
        if !injection.happens(&self.draws) {
            return Passage::Passes(Pass::default());
        }
        let then = injection
            .failing
            .map_or(Entry::Proceed, |failing| Entry::Substitute(failing.failure().into()));
        let wants = match injection.delay {
            Some(delay) => Entry::After(delay, Box::new(then)),
            None => then,
        };
        Passage::Otherwise(Asked { wants, own: Some(Decision::state(true, with)) })
    }

    fn held(&self, with: &Prepared, _pass: Pass) -> Option<Box<dyn Any + Send + Sync>> {
        Some(Decision::state(false, with))
    }

    fn decision(&self, state: &EntryState) -> Option<String> {
        let Decision { happens, injection } = state.own.as_ref()?.downcast_ref()?;
        let injection = injection.downcast_ref::<Injection>()?;
        let share = injection.share_in_words();
        Some(match happens {
            true => format!("injects {} ({share})", injection.words()),
            false => format!("lets this run pass ({share} get {})", injection.words()),
        })
    }

    fn metadata(&self, state: &EntryState, member: &str) -> Option<Value> {
        let Decision { happens, .. } = state.own.as_ref()?.downcast_ref()?;
        (member == "injected").then_some(Value::Bool(*happens))
    }
}

/// A number in [0, 1) that is the key's, the same in every process and release (FNV-1a, then mixed, for neighbouring keys
/// must not share a decision).
fn hashed(key: &str) -> f64 {
    let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let mut hash = key.bytes().fold(0xcbf2_9ce4_8422_2325, fnv);
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53_u64] {
        hash = (hash ^ (hash >> 33)).wrapping_mul(factor);
    }
    hash ^= hash >> 33;
    #[expect(clippy::cast_precision_loss, reason = "53 bits are what a double holds")]
    let share = (hash >> 11) as f64 / (1_u64 << 53) as f64;
    share
}

fn wrong(name: &str, wanted: &str, observed: Value) -> Failure {
    let message = format!("`{name}` must be {wanted}; it is {} {observed}", observed.type_name());
    Failure::validation(message, format!("/properties/{name}"), observed)
}

#[cfg(test)]
mod tests;
