//! Cases: definitions in files, with the Results that are expected of them.
//!
//! The layout is that of the specification's conformance corpus, so that one runner runs the corpus, this
//! project's own cases and a user's. All files are read and checked before anything runs: a mistake in a file
//! must not look like a Flow that misbehaves. Runs are in virtual time, so an hour of backoff costs nothing
//! and its length can be asserted.
//!
//! ```text
//! CASE/case.json                  description, profiles, marks, scenarios; also `section`
//! CASE/definition.json
//! CASE/scenarios/NAME/input.json
//! CASE/scenarios/NAME/arguments.json         if the Flow has parameters
//! CASE/scenarios/NAME/expected-result.json   the Result, or
//! CASE/scenarios/NAME/expected-error.json    `codes`: why the definition is refused
//! CASE/scenarios/NAME/expected.json          `took`: how long the run takes, within 20 ms
//! ```
//!
//! `section`, `expected-error.json` and `expected.json` are additions to the corpus's layout.

mod check;
mod files;
mod judge;
mod read;
mod run;

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value as Json;

pub use self::files::find;
pub use self::judge::{Difference, differences};

/// By how much a run may differ from `took`: each timer rounds up to whole milliseconds.
pub const ROUNDING: Duration = Duration::from_millis(20);

/// A definition and its runs.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its directory.
    pub path: PathBuf,
    /// What it shows.
    pub description: String,
    /// The section of the specification whose rule it shows, if it names one.
    pub section: Option<String>,
    /// The conformance profiles that it needs. We claim all of them.
    pub profiles: BTreeSet<String>,
    /// Whether its outcome depends on time that passes.
    pub temporal: bool,
    /// The text of the definition. Its scenarios say whether it must be well-formed.
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
    /// The expected outcome.
    pub expected: Expected,
}

/// The expected outcome of a scenario.
#[derive(Clone, Debug)]
pub enum Expected {
    /// The definition runs to a Result.
    Result {
        /// The expected members of the Result.
        result: Json,
        /// How long the run takes, if that matters.
        took: Option<Duration>,
    },
    /// The definition is refused, with diagnostics of exactly these codes.
    Refused(BTreeSet<String>),
}

/// What is wrong with the files of some cases, and what is wanted.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct MalformedCases(pub Vec<String>);

/// A scenario whose outcome was not the expected one.
#[derive(Clone, Debug)]
pub struct FailedScenario {
    /// Its directory.
    pub scenario: PathBuf,
    /// At least one.
    pub differences: Vec<Difference>,
}

/// The outcome of running some cases.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How many scenarios passed.
    pub passed: usize,
    /// The others.
    pub failed: Vec<FailedScenario>,
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
            report.failed.push(FailedScenario { scenario: scenario.path.clone(), differences });
        }
        report
    }
}

/// For people: each failed scenario with its differences, then a line with the numbers.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for failed in &self.failed {
            writeln!(f, "{failed}")?;
        }
        write!(f, "{} passed, {} failed", self.passed, self.failed.len())
    }
}

impl fmt::Display for FailedScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.scenario.display())?;
        self.differences.iter().try_for_each(|difference| writeln!(f, "{difference}"))
    }
}
