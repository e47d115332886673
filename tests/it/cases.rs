//! The language in files: every case under `tests/cases` states one rule of the specification, with a
//! definition, inputs, and the Result that must come of them.
//!
//! The layout is that of the specification's own corpus, so that the same runner runs both, and a rule
//! that broke is named by a path. Three additions are ours: `section` in `case.json` (where the rule is
//! written), `expected.json` (`took`: the virtual time that the run takes) and `expected-error.json` (the
//! codes with which an ill-formed definition is refused). Time is paused, so an hour of backoff is free.

#![expect(clippy::print_stdout, reason = "a suite says how much of it ran")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mwl_proxy::language::definition::{Strictness, compile};
use mwl_proxy::language::engine::{Start, run};
use mwl_proxy::language::plan::Plan;
use mwl_proxy::language::provider::Catalog;
use mwl_proxy::language::temporal::Span;
use mwl_proxy::source::{Diagnostics, Format, Severity, Sources};
use serde_json::{Value as Json, json};
use tokio::time::Instant;

const OURS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases");
/// A directory in the same layout to run beside ours: the specification's corpus.
const CORPUS: &str = "MWL_CONFORMANCE_DIR";
const CEL: &str = "https://mwl.dev/v0.1/conformance/expressions/cel";
/// Timers round up to whole milliseconds, each on its own.
const ROUNDING: Duration = Duration::from_millis(20);

/// What the scenarios of some cases came to.
#[derive(Default)]
struct Report {
    cases: usize,
    scenarios: usize,
    mismatches: Vec<String>,
}

/// What a scenario came to: the Result and the time that it took, or why there is nothing to run.
type Ran = Result<(Json, Duration), BTreeSet<String>>;

macro_rules! folders {
    ($($test:ident: $folder:literal),* $(,)?) => {
        const FOLDERS: &[&str] = &[$($folder),*];
        $(
            #[test]
            fn $test() {
                judge(&Path::new(OURS).join($folder), true);
            }
        )*
    };
}

folders! {
    arms: "arms",
    call: "call",
    catch: "catch",
    chain: "chain",
    composition: "composition",
    expressions: "expressions",
    failure_context: "failure-context",
    finally: "finally",
    flows: "flows",
    gather: "gather",
    ill_formed: "ill-formed",
    loops: "loop",
    parameters: "parameters",
    steps: "pass-match-sleep-return-raise",
    retry: "retry",
    timeout: "timeout",
    vars: "vars",
}

#[test]
fn every_folder_is_run() {
    let listed: BTreeSet<_> = FOLDERS.iter().map(ToString::to_string).collect();
    assert_eq!(listed, names(Path::new(OURS)));
}

/// Runs the corpus where the environment names it; it is not ours to carry.
#[test]
fn corpus() {
    match std::env::var_os(CORPUS) {
        Some(dir) => judge(Path::new(&dir), false),
        None => println!("0 scenarios ran: {CORPUS} names no directory"),
    }
}

/// Runs every case below `dir` and reports all mismatches at once.
fn judge(dir: &Path, ours: bool) {
    let mut report = Report::default();
    for case in cases(dir) {
        report.case(&case, ours);
    }
    let Report {
        cases,
        scenarios,
        mismatches,
    } = report;
    let ran = format!(
        "{scenarios} scenarios of {cases} cases in {} ran",
        dir.display()
    );
    println!("{ran}");
    assert!(scenarios > 0, "{ran}");
    assert!(
        mismatches.is_empty(),
        "{ran}, {} differ:\n\n{}",
        mismatches.len(),
        mismatches.join("\n")
    );
}

impl Report {
    fn case(&mut self, case: &Path, ours: bool) {
        self.cases += 1;
        let meta = json_of(&case.join("case.json"));
        let listed: BTreeSet<_> = meta["scenarios"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect();
        if listed != names(&case.join("scenarios")) {
            self.differs(case, "case.json lists other scenarios than there are");
        }
        let text = fs::read_to_string(case.join("definition.json")).unwrap();
        if ours {
            self.metadata(case, &meta, &text);
        }
        let plan = plan(&text);
        for name in listed {
            self.scenarios += 1;
            let scenario = case.join("scenarios").join(name);
            let ran = match &plan {
                Ok(plan) => Ok(execute(plan, &scenario)),
                Err(codes) => Err(codes.clone()),
            };
            if let Err(difference) = compare(&scenario, &ran) {
                self.differs(&scenario, &difference);
            }
        }
    }

    /// What our own cases promise beside the corpus's schema.
    fn metadata(&mut self, case: &Path, meta: &Json, definition: &str) {
        for field in ["description", "section"] {
            if meta[field].as_str().is_none_or(str::is_empty) {
                self.differs(case, &format!("case.json has no {field}"));
            }
        }
        let claimed = meta["profiles"].as_array().unwrap().contains(&json!(CEL));
        if claimed != definition.contains("{{") {
            self.differs(
                case,
                "the CEL profile is claimed where expressions are embedded",
            );
        }
        let scenarios = case.join("scenarios");
        let timed = names(&scenarios)
            .iter()
            .any(|name| scenarios.join(name).join("expected.json").exists());
        if timed && meta["marks"] != json!(["temporal"]) {
            self.differs(case, "a case that asserts time is marked temporal");
        }
    }

    fn differs(&mut self, at: &Path, difference: &str) {
        let at = at.strip_prefix(OURS).unwrap_or(at);
        self.mismatches
            .push(format!("{}\n{difference}\n", at.display()));
    }
}

/// Compiles `text` as an engine would that is handed a definition: a literal that fails its schema is a
/// failure of the run.
fn plan(text: &str) -> Result<std::sync::Arc<Plan>, BTreeSet<String>> {
    let mut sources = Sources::default();
    sources
        .parse("definition.json", text, Format::Json)
        .and_then(|node| compile(&node, &Catalog::spec_defined(), Strictness::Runtime))
        .map(|(plan, _)| plan)
        .map_err(|diagnostics| errors(&diagnostics))
}

fn errors(Diagnostics(all): &Diagnostics) -> BTreeSet<String> {
    let errors = all
        .iter()
        .filter(|diagnostic| diagnostic.severity == Severity::Error);
    errors
        .map(|diagnostic| diagnostic.code.to_owned())
        .collect()
}

/// Runs a scenario with the clock stopped between its timers.
fn execute(plan: &Plan, scenario: &Path) -> (Json, Duration) {
    let input = json_of(&scenario.join("input.json"));
    let arguments = scenario.join("arguments.json");
    let with = if arguments.exists() {
        json_of(&arguments)
    } else {
        json!({})
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let begun = Instant::now();
        let outcome = run(plan, Start::new("case"), with.into(), input.into()).await;
        (outcome.to_value().to_json(), begun.elapsed())
    })
}

/// Judges what a scenario came to by the files beside it.
fn compare(scenario: &Path, ran: &Ran) -> Result<(), String> {
    let refused = scenario.join("expected-error.json");
    if refused.exists() {
        let expected: BTreeSet<_> = strings(&json_of(&refused)["codes"]);
        return match ran {
            Err(codes) if *codes == expected => Ok(()),
            Err(codes) => Err(format!(
                "  expected to be refused with {expected:?}\n  refused with {codes:?}"
            )),
            Ok((got, _)) => Err(format!(
                "  expected to be refused with {expected:?}\n  compiled, and came to {got}"
            )),
        };
    }
    let (got, took) = match ran {
        Ok((got, took)) => (got, *took),
        Err(codes) => return Err(format!("  expected to run, refused with {codes:?}")),
    };
    let expected = json_of(&scenario.join("expected-result.json"));
    result(&expected, got, "").map_err(|at| {
        let at = if at.is_empty() { "/" } else { &at };
        format!("  differs at {at}\n  expected {expected}\n  got      {got}")
    })?;
    time(scenario, took)
}

fn time(scenario: &Path, took: Duration) -> Result<(), String> {
    let file = scenario.join("expected.json");
    if !file.exists() {
        return Ok(());
    }
    let expected = json_of(&file);
    let text = expected["took"].as_str().unwrap();
    let expected = Span::parse(text).unwrap().to_duration();
    if expected.abs_diff(took) < ROUNDING {
        return Ok(());
    }
    Err(format!("  expected to take {text}\n  took {took:?}"))
}

/// Whether a Result is as expected; else where it is not. A success: deeply equal, numbers by value. A
/// failure: every expected member equal, an expected null also absent, `previous` and the Results in
/// a Gather's evidence by this same rule.
fn result(expected: &Json, got: &Json, at: &str) -> Result<(), String> {
    for (name, expected) in expected.as_object().ok_or(at)? {
        let at = format!("{at}/{name}");
        let Some(got) = got.get(name) else {
            if expected.is_null() {
                continue;
            }
            return Err(at);
        };
        match name.as_str() {
            "previous" if !expected.is_null() => result(expected, got, &at)?,
            "details" => details(expected, got, &at)?,
            _ if same(expected, got) => {}
            _ => return Err(at),
        }
    }
    if same(&expected["type"], &got["type"]) {
        Ok(())
    } else {
        Err(format!("{at}/type"))
    }
}

fn details(expected: &Json, got: &Json, at: &str) -> Result<(), String> {
    let (Some(ours), Some(theirs)) = (expected["failures"].as_array(), got["failures"].as_array())
    else {
        return if same(expected, got) {
            Ok(())
        } else {
            Err(at.to_owned())
        };
    };
    if ours.len() != theirs.len() || !same(&expected["failureCount"], &got["failureCount"]) {
        return Err(at.to_owned());
    }
    for (at, (ours, theirs)) in ours
        .iter()
        .zip(theirs)
        .enumerate()
        .map(|(n, pair)| (format!("{at}/failures/{n}"), pair))
    {
        if !same(&ours["index"], &theirs["index"]) {
            return Err(format!("{at}/index"));
        }
        result(&ours["result"], &theirs["result"], &format!("{at}/result"))?;
    }
    Ok(())
}

/// Deep equality in the data model: numbers by value, members in any order.
fn same(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Number(a), Json::Number(b)) => a.as_f64() == b.as_f64(),
        (Json::Array(a), Json::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Json::Object(a), Json::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}

/// The directories below `dir` that hold a case, in order.
fn cases(dir: &Path) -> Vec<PathBuf> {
    if dir.join("case.json").exists() {
        return vec![dir.to_owned()];
    }
    names(dir)
        .iter()
        .flat_map(|name| cases(&dir.join(name)))
        .collect()
}

/// The names of the directories in `dir`.
fn names(dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let directories = entries
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().is_dir());
    directories
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect()
}

fn json_of(file: &Path) -> Json {
    let text =
        fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn strings(list: &Json) -> BTreeSet<String> {
    let texts = list.as_array().unwrap().iter();
    texts
        .map(|text| text.as_str().unwrap().to_owned())
        .collect()
}
