//! What an entry's author writes of a breaker.

use std::sync::Arc;
use std::time::Duration;

use crate::language::matcher::Matcher;
use crate::language::outcome::Failure;
use crate::language::temporal::Span;
use crate::language::value::Value;
use crate::proxy::middleware::written::{count, duration, member, text, wrong};

/// After how many failures in a row a breaker opens, unless it says otherwise.
const IN_A_ROW: u32 = 5;
/// How many runs a share is one of, at least.
const MINIMUM: u32 = 20;
/// Within how long.
const WINDOW: Duration = Duration::from_secs(10);
/// For how long a breaker opens.
const OPEN_FOR: Duration = Duration::from_secs(30);
/// The shortest times: below them is nothing that a proxy's clock could tell.
const SHORTEST: Duration = Duration::from_millis(1);
/// A window's slice is a tenth of it.
const SHORTEST_WINDOW: Duration = Duration::from_millis(100);
/// The most of anything that is counted.
const MOST: u32 = 1_000_000;

/// What an entry's author writes. Entries of one name have one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Settings {
    /// Which failures count; `None` for the usual ones.
    pub(super) failures: Option<Matcher>,
    pub(super) trips: Trips,
    /// For how long it opens at first.
    pub(super) open_for: Duration,
    /// For how long at most: each time that it opens again without having closed, it opens for twice as long.
    pub(super) open_for_max: Duration,
    /// How many runs it lets through, half-open, all of which must succeed.
    pub(super) probes: u32,
    /// The name by which entries share a state.
    pub(super) name: Option<Arc<str>>,
}

/// When it opens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Trips {
    /// After so many failures in a row.
    Consecutive(u32),
    /// When at least this share of the runs within the window failed, of which there were at least `minimum`.
    Share { share: f64, minimum: u32, window: Duration },
}

impl Settings {
    pub(super) fn read(with: &Value) -> Result<Self, Failure> {
        let failures = member(with, "failures").map(|failures| Matcher::read(&failures));
        let open_for = duration(with, "openFor", SHORTEST)?.unwrap_or(OPEN_FOR);
        let open_for_max = duration(with, "openForMax", open_for)?.unwrap_or(open_for);
        Ok(Self {
            failures: failures.transpose()?,
            trips: Trips::read(with)?,
            open_for,
            open_for_max,
            probes: count(with, "probes", (1, MOST))?.unwrap_or(1),
            name: text(with, "name")?,
        })
    }

    /// For how long it opens the `nth` time in a row, from 1.
    pub(super) fn open_for(&self, nth: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(nth.saturating_sub(1));
        self.open_for.saturating_mul(doubled).min(self.open_for_max)
    }

    /// In words: `opens for PT30S after 5 failures in a row, then 1 probe`.
    pub(super) fn words(&self) -> String {
        let Self { failures, trips, open_for, open_for_max, probes, name } = self;
        let name = name.as_ref().map(|name| format!("`{name}` ")).unwrap_or_default();
        let trips = match trips {
            Trips::Consecutive(failures) => format!("{failures} failures in a row"),
            Trips::Share { share, minimum, window } => format!(
                "{}% failures of at least {minimum} runs within {}",
                share * 100.0,
                Span::from_duration(*window)
            ),
        };
        let longest = (open_for_max > open_for)
            .then(|| format!(", doubling up to {}", Span::from_duration(*open_for_max)));
        let of = failures.as_ref().map(|matcher| format!(" ({matcher})")).unwrap_or_default();
        let plural = if *probes == 1 { "" } else { "s" };
        format!(
            "{name}opens for {}{} after {trips}{of}, then {probes} probe{plural}",
            Span::from_duration(*open_for),
            longest.unwrap_or_default()
        )
    }
}

impl Trips {
    fn read(with: &Value) -> Result<Self, Failure> {
        let consecutive = count(with, "consecutive", (1, MOST))?;
        let Some(written) = member(with, "share") else {
            for of_share in ["minimum", "window"] {
                if member(with, of_share).is_some() {
                    let message = format!("`{of_share}` belongs to `share`, which is not there");
                    let place = format!("/properties/{of_share}");
                    return Err(Failure::validation(message, place, with.clone()));
                }
            }
            return Ok(Self::Consecutive(consecutive.unwrap_or(IN_A_ROW)));
        };
        if consecutive.is_some() {
            let message = "a breaker opens by `consecutive` or by `share`, not by both";
            return Err(Failure::validation(message, "/properties/share", with.clone()));
        }
        let share = written.as_number().filter(|share| *share > 0.0 && *share <= 1.0);
        Ok(Self::Share {
            share: share
                .ok_or_else(|| wrong("share", "a number above 0 and at most 1", &written))?,
            minimum: count(with, "minimum", (1, MOST))?.unwrap_or(MINIMUM),
            window: duration(with, "window", SHORTEST_WINDOW)?.unwrap_or(WINDOW),
        })
    }
}
