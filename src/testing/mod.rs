//! Cases: definitions in files, with the Results that must come of them.
//!
//! The layout is that of the specification's conformance corpus, so that one runner judges the corpus, this
//! project's own cases and a user's. Everything is read and held to its shape before anything runs: a slip
//! in a file must not look like a Flow that misbehaves. Runs are in virtual time, so that an hour of backoff
//! is free and its length can be asserted.
//!
//! ```text
//! CASE/case.json                  description, profiles, marks, scenarios; also `section`
//! CASE/definition.json
//! CASE/scenarios/NAME/input.json
//! CASE/scenarios/NAME/arguments.json         where the Flow has parameters
//! CASE/scenarios/NAME/expected-result.json   the Result, or
//! CASE/scenarios/NAME/expected-error.json    `codes`: why the definition is refused
//! CASE/scenarios/NAME/expected.json          `took`: how long the run takes, within 20 ms
//! ```
//!
//! `section`, `expected-error.json` and `expected.json` are additions to the corpus's layout.

mod files;
mod judge;
mod read;
mod run;
mod shape;

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value as Json;

pub use self::files::find;
pub use self::judge::{Difference, differences};

/// How far from `took` a run may end: timers round up to whole milliseconds, each on its own.
pub const ROUNDING: Duration = Duration::from_millis(20);

/// A definition and its runs.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its directory.
    pub path: PathBuf,
    /// What it shows.
    pub description: String,
    /// Where the rule is written that it shows, if it says so.
    pub section: Option<String>,
    /// The conformance profiles that it asks for: all of them claimed.
    pub profiles: BTreeSet<String>,
    /// Whether its outcome depends on time that passes.
    pub temporal: bool,
    /// The definition's text. Whether it is well-formed is for its scenarios to say.
    pub definition: String,
    /// In the order of their names.
    pub scenarios: Vec<Scenario>,
}

/// One run of a definition.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its directory.
    pub path: PathBuf,
    /// The execution input.
    pub input: Json,
    /// The arguments for the Flow's parameters: an object.
    pub arguments: Json,
    /// What must come of it.
    pub expected: Expected,
}

/// What must come of a scenario.
#[derive(Clone, Debug)]
pub enum Expected {
    /// The definition runs to a Result.
    Result {
        /// The Result, as far as it matters.
        result: Json,
        /// How long the run takes, where that matters.
        took: Option<Duration>,
    },
    /// The definition is refused, with diagnostics of these codes and no others.
    Refused(BTreeSet<String>),
}

/// Files that are no cases: what is wrong with each, and what is wanted.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct Malformed(pub Vec<String>);

/// A scenario that came to something else than it had to.
#[derive(Clone, Debug)]
pub struct Failed {
    /// Its directory.
    pub scenario: PathBuf,
    /// Where and how; at least one.
    pub differences: Vec<Difference>,
}

/// What some cases came to.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How many scenarios came to what they had to.
    pub passed: usize,
    /// The others.
    pub failed: Vec<Failed>,
}

impl Report {
    /// Runs every scenario of `cases`, in order.
    pub fn of(cases: &[Case]) -> Self {
        let mut report = Self::default();
        for (scenario, differences) in cases.iter().flat_map(Case::run) {
            if differences.is_empty() {
                report.passed += 1;
                continue;
            }
            report.failed.push(Failed { scenario: scenario.path.clone(), differences });
        }
        report
    }
}

/// For people: each scenario that failed with its differences, then a line that counts.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for failed in &self.failed {
            writeln!(f, "{failed}")?;
        }
        write!(f, "{} passed, {} failed", self.passed, self.failed.len())
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.scenario.display())?;
        self.differences.iter().try_for_each(|difference| writeln!(f, "{difference}"))
    }
}
