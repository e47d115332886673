//! Runs every scenario with `flow run`, in real time, and checks its Result on stdout and its exit code.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::thread;

use mwl_proxy::testing::{Case, Expected, Scenario, differences, find};
use serde_json::Value;

use crate::support::program::run;

/// The project's own cases that do not wait, used if the environment names no corpus.
const OURS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases");

fn cases() -> Vec<Case> {
    let read = |dir: &Path| find(dir).unwrap_or_else(|malformed| panic!("{malformed}"));
    if let Some(dir) = std::env::var_os("MWL_CONFORMANCE_DIR") {
        return read(Path::new(&dir));
    }
    let ours = read(Path::new(OURS)).into_iter();
    ours.filter(|case| !case.temporal).collect()
}

#[test]
fn every_scenario_comes_to_its_result_through_flow_run() {
    let cases = cases();
    let work: VecDeque<_> =
        cases.iter().flat_map(|case| case.scenarios.iter().map(move |one| (case, one))).collect();
    assert!(!work.is_empty());
    let work = Mutex::new(work);
    let failed = Mutex::new(String::new());
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, Into::into) {
            scope.spawn(|| {
                loop {
                    let next = work.lock().unwrap().pop_front();
                    let Some((case, scenario)) = next else { break };
                    if let Err(problem) = judge(case, scenario) {
                        let at = scenario.path.display();
                        writeln!(failed.lock().unwrap(), "{at}: {problem}").unwrap();
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{failed}");
}

fn judge(case: &Case, scenario: &Scenario) -> Result<(), String> {
    let file = |path: &Path| path.to_str().unwrap().to_owned();
    let arguments = scenario.path.join("arguments.json");
    let mut line = vec![
        "flow".to_owned(),
        "run".to_owned(),
        file(&case.path.join("definition.json")),
        "--input".to_owned(),
        file(&scenario.path.join("input.json")),
    ];
    if arguments.exists() {
        line.extend(["--arguments".to_owned(), file(&arguments)]);
    }
    let output = run(&line.iter().map(String::as_str).collect::<Vec<_>>());
    let told = String::from_utf8_lossy(&output.stderr);
    let code = output.status.code();
    match &scenario.expected {
        Expected::Refused(codes) => {
            let named = codes.iter().all(|code| told.contains(&format!("[{code}]")));
            let as_wanted = code == Some(2) && output.stdout.is_empty() && named;
            as_wanted
                .then_some(())
                .ok_or_else(|| format!("exit {code:?}, wanted {codes:?}: {told}"))
        }
        Expected::Result { result, .. } => {
            let got: Value = serde_json::from_slice(&output.stdout)
                .map_err(|error| format!("exit {code:?}, no JSON ({error}): {told}"))?;
            let wanted = i32::from(result["type"] != "success");
            if code != Some(wanted) {
                return Err(format!("exit {code:?}, wanted {wanted}: {got}"));
            }
            match differences(result, &got).first() {
                None => Ok(()),
                Some(difference) => Err(format!("\n{difference}")),
            }
        }
    }
}
