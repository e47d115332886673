//! Reads the files of a case.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::check::{Checker, Meta};
use super::{Case, Expected, Scenario, files};
use crate::source::{Format, MAX_BYTES, Node, Sources};
use crate::system::file;

/// Reads cases, and collects everything that is wrong with their files.
#[derive(Default)]
pub(super) struct Reader {
    pub(super) problems: Vec<String>,
}

impl Reader {
    /// The case in `dir`, as far as it can be read. It counts only if there are no problems.
    pub(super) fn case(&mut self, dir: &Path) -> Option<Case> {
        let wanted = "the case's `description`, `profiles`, `marks` and `scenarios`";
        let meta = self.checked(&dir.join("case.json"), wanted, Checker::meta);
        let definition = self.text(&dir.join("definition.json"), "the MWL definition");
        let meta = meta?;
        let scenarios = self.scenarios(dir, &meta.scenarios);
        let Meta { description, section, profiles, temporal, scenarios: _ } = meta;
        Some(Case {
            path: dir.to_owned(),
            description,
            section,
            profiles,
            temporal,
            definition: definition?,
            scenarios,
        })
    }

    /// The scenarios that `case.json` lists. They must be the same as the folders.
    fn scenarios(&mut self, dir: &Path, listed: &BTreeSet<String>) -> Vec<Scenario> {
        let dir = dir.join("scenarios");
        let there = match files::folders(&dir) {
            Ok(there) => there,
            Err(error) => {
                self.refuse(
                    &dir,
                    &format!("cannot be read: {error}; wanted: a folder for each scenario"),
                );
                return Vec::new();
            }
        };
        let there: BTreeSet<_> = there.iter().filter_map(|name| name.to_str()).collect();
        for name in there.iter().filter(|name| !listed.contains(**name)) {
            let problem =
                "is not listed; wanted: a member of that name in `scenarios` of case.json";
            self.refuse(&dir.join(name), problem);
        }
        for name in listed.iter().filter(|name| !there.contains(name.as_str())) {
            let problem = "is listed in `scenarios` of case.json; wanted: a folder of that name";
            self.refuse(&dir.join(name), problem);
        }
        let both = listed.iter().filter(|name| there.contains(name.as_str()));
        let paths = both.map(|name| dir.join(name));
        paths.filter_map(|path| self.scenario(path)).collect()
    }

    fn scenario(&mut self, path: PathBuf) -> Option<Scenario> {
        let input = path.join("input.json");
        let input = self.checked(&input, "the execution input", |_, node| node.to_json());
        let arguments = path.join("arguments.json");
        let arguments = if arguments.exists() {
            let wanted = "the Flow's arguments";
            self.checked(&arguments, wanted, |checker, node| {
                checker.arguments(node);
                node.to_json()
            })
        } else {
            Some(json!({}))
        };
        let expected = self.expected(&path);
        Some(Scenario { input: input?, arguments: arguments?, expected: expected?, path })
    }

    fn expected(&mut self, scenario: &Path) -> Option<Expected> {
        let [result, refused, timed] =
            ["expected-result.json", "expected-error.json", "expected.json"]
                .map(|name| scenario.join(name));
        if refused.exists() {
            for other in [&result, &timed].into_iter().filter(|other| other.exists()) {
                self.refuse(
                    other,
                    "contradicts expected-error.json, by which the definition is refused; remove one of them",
                );
            }
            let wanted = "the `codes` with which the definition is refused";
            return self.checked(&refused, wanted, Checker::refused).map(Expected::Refused);
        }
        let took = if timed.exists() {
            self.checked(&timed, "`took`, a duration", Checker::took)?
        } else {
            None
        };
        let result = self.checked(&result, "the Result that must come", |checker, node| {
            checker.result(node);
            node.to_json()
        })?;
        Some(Expected::Result { result, took })
    }

    /// The file at `path`, read and checked by `read`.
    fn checked<T>(
        &mut self,
        path: &Path,
        wanted: &str,
        read: impl FnOnce(&mut Checker, &Node) -> T,
    ) -> Option<T> {
        let mut sources = Sources::default();
        let node = self.parse(&mut sources, path, wanted)?;
        let mut checker = Checker::default();
        let value = read(&mut checker, &node);
        let found = checker.found();
        if found.has_errors() {
            self.problems.push(sources.render(&found));
            return None;
        }
        Some(value)
    }

    fn parse(&mut self, sources: &mut Sources, path: &Path, wanted: &str) -> Option<Node> {
        let text = self.text(path, wanted)?;
        let parsed = sources.parse(&path.display().to_string(), &text, Format::Json);
        let refused = parsed.map_err(|found| self.problems.push(sources.render(&found)));
        refused.ok()
    }

    fn text(&mut self, path: &Path, wanted: &str) -> Option<String> {
        let read = file::read_text(path, MAX_BYTES);
        let refused = read.map_err(|error| {
            self.refuse(path, &format!("cannot be read: {error}; wanted: {wanted}"));
        });
        refused.ok()
    }

    /// Notes a problem with a file or a directory.
    pub(super) fn refuse(&mut self, path: &Path, problem: &str) {
        self.problems.push(format!("{} {problem}", path.display()));
    }
}
