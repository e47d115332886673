//! `docs/language.md`: its list of functions is run, and its list of providers comes from the catalog.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::program::run;

const BEGINS: &str =
    "<!-- From the catalog: `MWL_WRITE_DOCS=1 cargo test --test it language` writes it anew. -->\n";
const ENDS: &str = "<!-- end -->";

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/language.md")
}

fn page() -> String {
    std::fs::read_to_string(path()).unwrap()
}

/// Each of these phases with what the table calls it.
const PHASES: [&str; 4] = ["onEntry", "onSuccess", "onFailure", "onAlways"];

/// The providers of the catalog, each with its parameters and codes.
fn providers() -> String {
    let output = run(&["catalog"]);
    let documents: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let mut text = String::new();
    for document in &documents {
        let uri = document["uri"].as_str().unwrap();
        let name = uri.rsplit('/').nth(1).unwrap();
        let description = document["description"].as_str().unwrap_or_default();
        let says = description.split("\n- ").next().unwrap();
        write!(text, "\n### {name}\n\n`{uri}`\n\n{says}\n").unwrap();
        let mut rows = rows("", &document["parameters"]);
        for phase in PHASES {
            rows += &self::rows(phase, &document["phases"][phase]["parameters"]);
        }
        if !rows.is_empty() {
            write!(text, "\n| parameter | type | | |\n|---|---|---|---|\n{rows}").unwrap();
        }
        let members = document["metadata"]["properties"].as_object();
        let members: Vec<String> =
            members.into_iter().flatten().map(|(name, _)| format!("`{name}`")).collect();
        if !members.is_empty() {
            let root = if uri.contains(".middleware/") { "middleware" } else { "provider" };
            writeln!(text, "\n`{root}.metadata` has {}.", members.join(", ")).unwrap();
        }
        let codes = document["failureCatalog"]["closed"].as_array();
        let codes: Vec<String> = codes
            .into_iter()
            .flatten()
            .map(|code| format!("`{}`", code.as_str().unwrap()))
            .collect();
        if !codes.is_empty() {
            writeln!(text, "\nIt may fail with {}.", codes.join(", ")).unwrap();
        }
    }
    text.push('\n');
    text
}

/// A row for each parameter, with its phase.
fn rows(phase: &str, schema: &Value) -> String {
    let mut rows = String::new();
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let kind = match &property["type"] {
            Value::String(one) => one.clone(),
            Value::Array(several) => {
                several.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or ")
            }
            _ => "any".to_owned(),
        };
        let kind = match property["format"].as_str() {
            Some(format) => format!("{kind} ({format})"),
            None => kind,
        };
        let when = match (&property["default"], required.contains(&&**name)) {
            (Value::Null, true) => "required".to_owned(),
            (Value::Null, false) => String::new(),
            (default, _) => format!("default `{default}`"),
        };
        let says = property["description"].as_str().unwrap_or_default().replace('|', "\\|");
        let name = if phase.is_empty() { name.clone() } else { format!("{phase}: {name}") };
        writeln!(rows, "| `{name}` | {kind} | {when} | {says} |").unwrap();
    }
    rows
}

#[test]
fn the_providers_are_those_of_the_catalog() {
    let page = page();
    let (before, rest) = page.split_once(BEGINS).expect("the section of the providers");
    let (written, after) = rest.split_once(ENDS).expect("its end");
    let wanted = providers();
    if std::env::var_os("MWL_WRITE_DOCS").is_some() {
        std::fs::write(path(), format!("{before}{BEGINS}{wanted}{ENDS}{after}")).unwrap();
        return;
    }
    assert!(written == wanted, "docs/language.md is stale: {BEGINS}");
}

#[test]
fn each_line_of_the_functions_gives_what_the_page_says() {
    let page = page();
    let (_, table) = page.split_once("| write | gives |").expect("the table of functions");
    let mut lines = 0;
    for line in table.lines().skip(2).take_while(|line| line.starts_with("| `")) {
        let cells = line.strip_prefix("| `").and_then(|line| line.strip_suffix("` |"));
        let (expression, wanted) = cells.and_then(|line| line.split_once("` | `")).unwrap();
        let output = run(&["eval", expression]);
        let given: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            panic!("{expression}: {error}: {}", String::from_utf8_lossy(&output.stderr))
        });
        assert_eq!(given, serde_json::from_str::<Value>(wanted).unwrap(), "{expression}");
        lines += 1;
    }
    assert!(lines > 50, "{lines}");
}
