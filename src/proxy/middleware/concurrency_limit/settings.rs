//! What an entry's author writes of a limit.

use std::time::Duration;

use crate::language::outcome::Failure;
use crate::language::temporal::Span;
use crate::language::value::Value;
use crate::proxy::middleware::written::{count, duration, member, wrong};

/// The most of anything that is counted.
const MOST: u32 = 1_000_000;

/// How long a run waits for a place, where there is a queue.
const WAIT: Duration = Duration::from_secs(1);

/// What an entry's author writes, without the key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Settings {
    pub(super) limit: Limit,
    /// How many runs may wait.
    pub(super) queue: u32,
    /// For how long.
    pub(super) wait: Duration,
    /// Whether there is a limit for each key.
    pub(super) keyed: bool,
}

/// How many runs may go on at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Limit {
    Fixed(u32),
    Adaptive(Range),
}

/// Within which an adaptive limit stays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Range {
    pub(super) initial: u32,
    pub(super) min: u32,
    pub(super) max: u32,
}

impl Settings {
    /// `keyed`: whether a key is written, which may be an expression.
    pub(super) fn read(with: &Value, keyed: bool) -> Result<Self, Failure> {
        let queue = count(with, "queue", (0, MOST))?.unwrap_or(0);
        let wait = duration(with, "wait", Duration::ZERO)?.unwrap_or(WAIT);
        let limit = match (count(with, "max", (1, MOST))?, member(with, "adaptive")) {
            (Some(max), None) => Limit::Fixed(max),
            (None, Some(adaptive)) => Limit::Adaptive(Range::read(&adaptive)?),
            (max, _) => {
                let message = match max {
                    Some(_) => "a limit is a `max` or `adaptive`, not both",
                    None => "a limit needs a `max`, or `adaptive: {}`",
                };
                return Err(Failure::validation(message, "/required", with.clone()));
            }
        };
        Ok(Self { limit, queue, wait, keyed })
    }

    /// In words: `10 at once for each key, 20 more wait up to PT1S`.
    pub(super) fn words(&self) -> String {
        let Self { limit, queue, wait, keyed } = self;
        let limit = match limit {
            Limit::Fixed(max) => format!("{max} at once"),
            Limit::Adaptive(Range { initial: _, min, max }) => {
                format!("as many at once as go well, {min} to {max}")
            }
        };
        let keyed = if *keyed { " for each key" } else { "" };
        let wait = Span::from_duration(*wait);
        match queue {
            0 => format!("{limit}{keyed}"),
            queue => format!("{limit}{keyed}, {queue} more wait up to {wait}"),
        }
    }
}

impl Range {
    fn read(adaptive: &Value) -> Result<Self, Failure> {
        let min = count(adaptive, "min", (1, MOST))?.unwrap_or(1);
        let max = count(adaptive, "max", (1, MOST))?.unwrap_or_else(|| 1_000.max(min));
        let initial =
            count(adaptive, "initial", (1, MOST))?.unwrap_or_else(|| 20.clamp(min, max.max(min)));
        if !(min..=max).contains(&initial) {
            let wanted = format!("from `min` ({min}) to `max` ({max})");
            return Err(wrong("initial", &wanted, &Value::from(initial)));
        }
        Ok(Self { initial, min, max })
    }
}
