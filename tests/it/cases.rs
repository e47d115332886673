//! Runs the cases under `tests/cases`. Each shows one rule of the specification, with a definition, inputs,
//! and the expected Result. `mwl-proxy flow test` runs the same files with the same code
//! (`mwl_proxy::testing`, which describes the layout).

#![expect(clippy::print_stdout, reason = "a suite says how much of it ran")]

use std::collections::BTreeSet;
use std::path::Path;

use mwl_proxy::language::conformance::CEL;
use mwl_proxy::testing::{Case, Expected, Report, find};

const OURS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases");
/// A directory in the same layout to run beside ours: the specification's corpus.
const CORPUS: &str = "MWL_CONFORMANCE_DIR";

macro_rules! folders {
    ($($test:ident: $folder:literal),* $(,)?) => {
        const FOLDERS: &[&str] = &[$($folder),*];
        $(
            #[test]
            fn $test() {
                run(&Path::new(OURS).join($folder), true);
            }
        )*
    };
}

folders! {
    arms: "arms",
    call: "call",
    catch: "catch",
    chain: "chain",
    coming_from: "coming-from",
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
    let folders = std::fs::read_dir(OURS).unwrap();
    let there: BTreeSet<_> =
        folders.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let listed: BTreeSet<_> = FOLDERS.iter().map(ToString::to_string).collect();
    assert_eq!(listed, there);
}

/// `docs/coming-from.md` says with each case what it shows.
#[test]
fn the_page_on_other_systems_names_its_cases() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/coming-from.md");
    let page = std::fs::read_to_string(page).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let last = rows.filter_map(|row| row.rsplit('|').next());
    let named: BTreeSet<String> = last
        .filter_map(|cell| cell.trim().strip_prefix('`')?.strip_suffix('`'))
        .map(str::to_owned)
        .collect();
    let there = std::fs::read_dir(Path::new(OURS).join("coming-from")).unwrap();
    let there: BTreeSet<String> =
        there.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(named, there);
}

/// Runs the specification's corpus if the environment names it: it is not part of this repository.
#[test]
fn corpus() {
    match std::env::var_os(CORPUS) {
        Some(dir) => run(Path::new(&dir), false),
        None => println!("0 scenarios ran: {CORPUS} names no directory"),
    }
}

/// Runs every case below `dir`, and reports all that failed.
fn run(dir: &Path, ours: bool) {
    let cases = find(dir).unwrap_or_else(|malformed| panic!("{malformed}"));
    if ours {
        cases.iter().for_each(check_ours);
    }
    let report = Report::of(&cases);
    println!("{}: {} cases, {report}", dir.display(), cases.len());
    assert!(report.passed > 0, "no scenario ran");
    assert!(report.failed.is_empty(), "{report}");
}

/// Checks what our own cases must have beside the layout.
fn check_ours(case: &Case) {
    let at = case.path.display();
    assert!(case.section.is_some(), "{at}: case.json has no section");
    assert_eq!(
        case.profiles.contains(CEL),
        case.definition.contains("{{"),
        "{at}: the CEL profile is claimed where expressions are embedded"
    );
    let timed = |expected: &Expected| matches!(expected, Expected::Result { took: Some(_), .. });
    let timed = case.scenarios.iter().any(|one| timed(&one.expected));
    assert!(!timed || case.temporal, "{at}: a case that asserts time is marked temporal");
}
