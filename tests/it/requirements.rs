//! Checks `docs/requirements.md`: what the tables name exists, and no row is missing.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use mwl_proxy::language::code::system;

use crate::layering::{code, sources};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// The number of rows of the specification's index.
const INDEX: usize = 93;
/// The number of rules of "Observable behavior".
const OBSERVABLE: usize = 6;
/// How the last cell of a row without a test begins.
pub(crate) const UNTESTED: &str = "No test: ";

/// A row of a table, with the heading above it.
pub(crate) struct Row {
    pub(crate) heading: String,
    pub(crate) cells: Vec<String>,
}

fn rows() -> Vec<Row> {
    rows_of("docs/requirements.md", "Level")
}

/// The rows of all tables of `page`, whose first column has this `title`.
pub(crate) fn rows_of(page: &str, title: &str) -> Vec<Row> {
    let text = fs::read_to_string(Path::new(ROOT).join(page)).unwrap();
    let mut heading = String::new();
    let mut rows = Vec::new();
    for line in text.lines() {
        if let Some(above) = line.strip_prefix("## ") {
            above.clone_into(&mut heading);
        }
        let Some(row) = line.strip_prefix('|') else {
            continue;
        };
        let row = row.strip_suffix('|').unwrap_or(row);
        let cells: Vec<String> = row.split('|').map(|cell| cell.trim().to_owned()).collect();
        if cells[0] != title && cells[0] != "---" {
            let heading = heading.clone();
            rows.push(Row { heading, cells });
        }
    }
    rows
}

#[test]
fn no_row_is_lost() {
    let rows = rows();
    let observable = rows.iter().filter(|row| row.heading == "Observable behavior");
    let observable = observable.count();
    assert_eq!((rows.len() - observable, observable), (INDEX, OBSERVABLE));
}

#[test]
fn every_row_is_whole_and_differs_from_the_others() {
    let levels = ["MUST", "MUST NOT", "SHOULD", "SHOULD NOT", "RECOMMENDED", "MAY"];
    let subjects = ["implementation", "definition", "provider", "tooling"];
    let mut seen = BTreeSet::new();
    for Row { cells, .. } in rows() {
        assert_eq!(cells.len(), 5, "level, binds, requirement, section, tests: {cells:?}");
        assert!(cells.iter().all(|cell| !cell.is_empty()), "empty: {cells:?}");
        assert!(levels.contains(&cells[0].as_str()), "no level: {cells:?}");
        let mut binds = cells[1].split(", ");
        assert!(binds.all(|one| subjects.contains(&one)), "binds: {cells:?}");
        let section = cells[3].split_once(": ");
        assert!(section.is_some(), "`page: section` is wanted: {cells:?}");
        assert!(seen.insert(cells[2].clone()), "twice: {cells:?}");
    }
}

/// What may be left undone, and is, has a test of what is done instead.
#[test]
fn no_row_is_without_a_test() {
    let untested = rows().into_iter().filter(|row| row.cells[4].starts_with(UNTESTED));
    assert_eq!(untested.map(|row| row.cells[2].clone()).collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn what_the_table_names_exists() {
    let rows = rows();
    let missing: Vec<String> = rows.iter().flat_map(|row| missing(&row.cells[4])).collect();
    assert!(missing.is_empty(), "no such tests: {missing:#?}");
}

/// The tests that the last cell of a row names and that do not exist.
pub(crate) fn missing(held: &str) -> Vec<String> {
    if let Some(reason) = held.strip_prefix(UNTESTED) {
        assert!(!reason.is_empty(), "no reason: {held}");
        let spans = reason.split('`').skip(1).step_by(2);
        let tests = spans.filter(|span| span.starts_with("tests/") || span.contains("::"));
        return tests.filter(|test| !exists(test)).map(str::to_owned).collect();
    }
    let bare = |name: &str| name.strip_prefix('`')?.strip_suffix('`').map(str::to_owned);
    let wrong = |name: &&str| !bare(name).is_some_and(|test| exists(&test));
    held.split(", ").filter(wrong).map(str::to_owned).collect()
}

/// Whether `test` is a case's directory or the path of a test function.
fn exists(test: &str) -> bool {
    if test.starts_with("tests/cases/") {
        return Path::new(ROOT).join(test).join("case.json").is_file();
    }
    let Some((module, function)) = test.rsplit_once("::") else {
        return false;
    };
    file_of(module)
        .and_then(|file| fs::read_to_string(file).ok())
        .is_some_and(|text| is_test(&text, function))
}

/// The file of a module: that of the longest part of its path that has one. The rest is inline.
pub(crate) fn file_of(module: &str) -> Option<PathBuf> {
    let root = if module.starts_with("it::") { "tests" } else { "src" };
    let segments: Vec<&str> = module.split("::").collect();
    (1..=segments.len()).rev().find_map(|length| {
        let path = Path::new(ROOT).join(root).join(segments[..length].join("/"));
        let files = [path.with_extension("rs"), path.join("mod.rs")];
        files.into_iter().find(|file| file.is_file())
    })
}

/// Whether `text` has a function of that name with an attribute that makes it a test.
fn is_test(text: &str, function: &str) -> bool {
    let head = format!("fn {function}(");
    let Some((before, _)) = text.split_once(&head) else {
        return false;
    };
    // The last line is what is before `fn`, such as `async`.
    let above = before.rsplit('\n').skip(1);
    let mut attributes = above.map(str::trim).take_while(|line| line.starts_with(['#', '/']));
    attributes.any(|line| line.starts_with("#[") && line.contains("test"))
}

/// A table that names something that does not exist would not pass.
#[test]
fn what_does_not_exist_is_not_found() {
    assert!(exists("it::requirements::what_does_not_exist_is_not_found"));
    assert!(exists("language::code::tests::patterns_match_whole_segments"));
    for wrong in [
        "tests/cases/call/no-such-case",
        "tests/cases/call",
        "it::requirements::rows",
        "it::requirements::no_such_test",
        "language::nowhere::tests::patterns_match_whole_segments",
        "patterns_match_whole_segments",
    ] {
        assert!(!exists(wrong), "{wrong}");
    }
}

/// The lines of `src` that are code, without tests, each with its file.
fn program() -> Vec<(PathBuf, String)> {
    let mut all = Vec::new();
    for file in sources(&Path::new(ROOT).join("src")) {
        if file.ends_with("tests.rs") || file.iter().any(|part| part == "tests") {
            continue;
        }
        let lines = code(&file).into_iter().map(|(_, line)| line);
        let lines = lines.take_while(|line| line.trim() != "#[cfg(test)]");
        all.extend(lines.map(|line| (file.clone(), line)));
    }
    all
}

/// The program writes the `System.` codes of the specification, and no others.
#[test]
fn no_other_system_code_is_written() {
    let mut written = BTreeSet::new();
    for (_, line) in program() {
        let codes = line.match_indices("\"System.").map(|(at, _)| &line[at + 1..]);
        let codes = codes.filter_map(|rest| rest.split('"').next());
        written.extend(codes.map(str::to_owned));
    }
    // A check for the codes of others uses the bare prefix.
    written.remove("System.");
    let listed: BTreeSet<String> = system::ALL.iter().map(ToString::to_string).collect();
    assert_eq!(written, listed);
}

/// A type that the specification does not define is only ever one that a definition wrote: nothing but the reader of
/// types makes one.
#[test]
fn no_failure_type_of_our_own_is_made() {
    let types = Path::new(ROOT).join("src/language/outcome.rs");
    let made = program().into_iter().filter(|(file, line)| {
        *file != types && (line.contains("FailureType::Extension") || line.contains("::Extension("))
    });
    assert_eq!(made.map(|(file, _)| file).collect::<Vec<_>>(), Vec::<PathBuf>::new());
    let reader = program().into_iter().filter(|(file, line)| {
        *file == types && line.contains("Self::Extension(") && line.contains("other =>")
    });
    assert_eq!(reader.count(), 1, "`FailureType::parse` makes them");
}
