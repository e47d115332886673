//! `import`: published policies of other systems and the examples of others' documentation. What is written is a snapshot,
//! passes `check`, and behaves as its source does, in virtual time.

/// The command itself.
mod command;
/// The examples of other documents.
mod examples;
/// Files that are wrong, and arbitrary ones.
mod hostile;
/// Published policies of systems without an importer.
mod others;
/// Published policies.
mod published;

use std::path::Path;

use mwl_proxy::import::{Imported, Kind, import};
use mwl_proxy::language::temporal::Span;
use serde_json::Value;

use crate::support::program::{Directory, run};

/// A source of `tests/import/`.
pub(crate) fn source(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/import").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What a source becomes. It must pass `check`.
pub(crate) fn imported(kind: Kind, name: &str) -> Imported {
    let imported = import(kind, name, &source(name));
    let imported = imported.unwrap_or_else(|refused| panic!("{name}: {refused}"));
    assert_eq!(imported.errors, [""; 0], "{name}: `check` refuses it\n{}", imported.text);
    imported
}

/// What a request met.
#[derive(Debug, PartialEq)]
pub(crate) struct Met {
    pub(crate) attempts: usize,
    /// Seconds of each wait.
    pub(crate) waits: Vec<f64>,
    pub(crate) status: u64,
    /// Seconds until the answer.
    pub(crate) took: f64,
}

/// Sends a request through `text`, to an upstream that answers so.
pub(crate) fn explained(text: &str, request: &str, responses: &[&str]) -> Met {
    let directory = Directory::new();
    let file = directory.write("imported.yaml", text);
    let mut arguments = vec!["explain", "-c", file.to_str().unwrap(), "--request", request];
    arguments.extend(responses.iter().flat_map(|response| ["--respond", response]));
    arguments.extend(["--format", "json"]);
    let output = run(&arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}\n{text}");
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let events = told["events"].as_array().unwrap();
    let of = |name: &str| -> Vec<&Value> {
        events.iter().filter(|event| event["event"] == name).collect()
    };
    let seconds = |value: &Value| {
        let span = Span::parse(value.as_str().unwrap()).unwrap();
        span.to_duration().as_secs_f64()
    };
    Met {
        attempts: of("attempt.started").len(),
        waits: of("retry.scheduled").into_iter().map(|event| seconds(&event["delay"])).collect(),
        status: told["response"]["status"].as_u64().unwrap_or_default(),
        took: seconds(&told["took"]),
    }
}

/// A request, how the upstream answers, and what must come of it: attempts, waits (of a jittered one its ceiling, as a
/// negative number), and the status that the client gets.
pub(crate) type Play = (&'static str, &'static [&'static str], usize, &'static [f64], u64);

pub(crate) fn plays(text: &str, plays: &[Play]) {
    for (request, responses, attempts, waits, status) in plays {
        let met = explained(text, request, responses);
        let told = format!("{request} {responses:?}: {met:?}\n{text}");
        assert_eq!((met.attempts, met.status), (*attempts, *status), "{told}");
        assert_eq!(met.waits.len(), waits.len(), "{told}");
        for (met, wanted) in met.waits.iter().zip(*waits) {
            let holds =
                if *wanted < 0.0 { *met <= -wanted } else { (met - wanted).abs() < 0.000_5 };
            assert!(holds, "{met} for {wanted}: {told}");
        }
    }
}

/// The written file is as it was reviewed, and these things have no equal.
pub(crate) fn written(kind: Kind, name: &str, lost: usize, warnings: &[&str]) -> String {
    let imported = imported(kind, name);
    let Imported { text, lost: found, warnings: warned, .. } = imported;
    let snapshot = name.rsplit_once('.').unwrap().0.replace('.', "-");
    insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!(snapshot, text);
    });
    assert_eq!(found.len(), lost, "{found:#?}\n{text}");
    assert_eq!(warned, warnings, "{text}");
    text
}
