//! Runs a case.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value as Json, json};
use tokio::time::Instant;

use super::judge::differences;
use super::{Case, Difference, Expected, ROUNDING, Scenario};
use crate::language::clock::unless_busy;
use crate::language::definition::{Strictness, compile};
use crate::language::engine::{Start, run};
use crate::language::plan::Plan;
use crate::language::provider::Catalog;
use crate::source::{Diagnostics, Format, Severity, Sources};

/// Why the definition does not compile.
struct CompileErrors {
    codes: BTreeSet<String>,
    /// The diagnostics, for people.
    text: String,
}

impl Case {
    /// Runs every scenario. Each comes with its differences from what was expected; without any, it passed.
    pub fn run(&self) -> impl Iterator<Item = (&Scenario, Vec<Difference>)> {
        let plan = plan(&self.definition);
        let judged = move |scenario| (scenario, judge(&plan, scenario));
        self.scenarios.iter().map(judged)
    }
}

/// Compiles `text` as an engine must: a literal that fails its schema is a failure of the run, not an error
/// here.
fn plan(text: &str) -> Result<Arc<Plan>, CompileErrors> {
    let mut sources = Sources::default();
    let parsed = sources.parse("definition.json", text, Format::Json);
    parsed
        .and_then(|node| compile(&node, &Catalog::spec_defined(None), Strictness::Runtime))
        .map(|(plan, _)| plan)
        .map_err(|found| CompileErrors { codes: errors(&found), text: sources.render(&found) })
}

fn errors(Diagnostics(all): &Diagnostics) -> BTreeSet<String> {
    let errors = all.iter().filter(|found| found.severity == Severity::Error);
    errors.map(|found| found.code.to_owned()).collect()
}

fn judge(plan: &Result<Arc<Plan>, CompileErrors>, scenario: &Scenario) -> Vec<Difference> {
    match (&scenario.expected, plan) {
        (Expected::Refused(codes), Err(errors)) if *codes == errors.codes => Vec::new(),
        (Expected::Refused(codes), Err(errors)) => {
            differ("/codes", &json!(codes), json!(errors.codes).to_string())
        }
        (Expected::Refused(codes), Ok(_)) => {
            differ("/codes", &json!(codes), "a definition that compiles".into())
        }
        (Expected::Result { result, .. }, Err(errors)) => {
            let text = errors.text.trim_end();
            differ("", result, format!("a definition that is refused:\n{text}"))
        }
        (Expected::Result { result, took }, Ok(plan)) => match execute(plan, scenario) {
            Ok((None, _)) => {
                differ("", result, "nothing: it goes round and round without a wait".into())
            }
            Ok((Some(got), elapsed)) => {
                let mut found = differences(result, &got);
                found.extend(took.and_then(|took| time(took, elapsed)));
                found
            }
            Err(error) => differ("", result, format!("cannot make a runtime: {error}")),
        },
    }
}

/// Runs a scenario in virtual time. No Result if it never ends.
fn execute(plan: &Plan, scenario: &Scenario) -> io::Result<(Option<Json>, Duration)> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    let (with, input) = (scenario.arguments.clone(), scenario.input.clone());
    Ok(runtime.block_on(async {
        let begun = Instant::now();
        let mut start = Start::new("case");
        let running = run(plan, &mut start, with.into(), input.into());
        let outcome = unless_busy(running).await;
        (outcome.map(|outcome| outcome.to_value().to_json()), begun.elapsed())
    }))
}

fn time(expected: Duration, took: Duration) -> Option<Difference> {
    let seconds = |duration: Duration| format!("{} s", duration.as_secs_f64());
    (expected.abs_diff(took) >= ROUNDING).then(|| Difference {
        pointer: "/took".into(),
        expected: seconds(expected),
        got: seconds(took),
    })
}

fn differ(pointer: &str, expected: &Json, got: String) -> Vec<Difference> {
    vec![Difference { pointer: pointer.into(), expected: expected.to_string(), got }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    const SLEEPS: &str = r#"{
  "$schema": "https://mwl.dev/v0.1/flow/schema.json",
  "entrypoint": "wait",
  "steps": {
    "wait": { "action": "Sleep", "for": "PT1H", "next": "done" },
    "done": { "action": "Return" }
  }
}"#;

    fn differences_of(definition: &str, expected: Expected) -> String {
        let path = PathBuf::from("case");
        let scenario = Scenario {
            path: path.join("scenarios/base"),
            input: json!(1),
            arguments: json!({}),
            expected,
        };
        let case = Case {
            path,
            description: "It sleeps.".into(),
            section: None,
            profiles: BTreeSet::new(),
            temporal: true,
            definition: definition.into(),
            scenarios: vec![scenario],
        };
        super::super::Report::of(&[case]).to_string()
    }

    fn result(value: u8, took: Option<u64>) -> Expected {
        Expected::Result {
            result: json!({ "type": "success", "value": value }),
            took: took.map(Duration::from_secs),
        }
    }

    fn refused(code: &str) -> Expected {
        Expected::Refused(BTreeSet::from([code.to_owned()]))
    }

    #[test]
    fn an_hour_is_waited_for_in_virtual_time() {
        let passed = "1 passed, 0 failed";
        assert_eq!(differences_of(SLEEPS, result(1, Some(3600))), passed);
        assert_eq!(differences_of(SLEEPS, result(1, None)), passed);
        insta::assert_snapshot!(differences_of(SLEEPS, result(2, Some(60))), @r##"
        case/scenarios/base
          at /value
          expected 2
          got      1
          at /took
          expected 60 s
          got      3600 s

        0 passed, 1 failed
        "##);
    }

    #[test]
    fn what_never_ends_is_told() {
        let round = SLEEPS.replace(
            r#""done": { "action": "Return" }"#,
            r#""done": { "action": "Pass", "next": "done" }"#,
        );
        insta::assert_snapshot!(differences_of(&round, result(1, None)), @r#"
        case/scenarios/base
          expected {"type":"success","value":1}
          got      nothing: it goes round and round without a wait

        0 passed, 1 failed
        "#);
    }

    #[test]
    fn a_definition_is_refused_as_it_must_be() {
        let bad = SLEEPS.replace("\"done\" }", "\"nowhere\" }");
        assert_eq!(differences_of(&bad, refused("unknown-step")), "1 passed, 0 failed");
        insta::assert_snapshot!(differences_of(&bad, refused("flow-cycle")), @r##"
        case/scenarios/base
          at /codes
          expected ["flow-cycle"]
          got      ["unknown-step"]

        0 passed, 1 failed
        "##);
        insta::assert_snapshot!(differences_of(SLEEPS, refused("unknown-step")), @r##"
        case/scenarios/base
          at /codes
          expected ["unknown-step"]
          got      a definition that compiles

        0 passed, 1 failed
        "##);
        insta::assert_snapshot!(differences_of(&bad, result(1, None)), @r##"
        case/scenarios/base
          expected {"type":"success","value":1}
          got      a definition that is refused:
        error[unknown-step]: `next` names no Step of this Flow: `nowhere`
         --> definition.json:5:57
          |
        5 |     "wait": { "action": "Sleep", "for": "PT1H", "next": "nowhere" },
          |                                                         ^^^^^^^^^
          = help: there is `done`, `wait`

        0 passed, 1 failed
        "##);
    }
}
