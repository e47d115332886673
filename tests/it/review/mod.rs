//! `check` as a reviewer: configurations with one mistake each, and sound ones, for which it says nothing.
//!
//! All tables have the same form. A case begins with `=== ` and its title. It is a whole configuration without `listeners`
//! and `upstreams`, or the keys of its one route `r`. `RETRY`, `TIMEOUT`, `LOOP`, `FINALLY` and `HTTP` stand for
//! `provider:` and the URI. `#< name` at the end of a line says what is reported there. A case whose title ends with
//! `[whole]` is a file as it stands.
//!
//! `broken.txt` has mistakes that people make, and the editor's schema is tried with it, too.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use mwl_proxy::app::check;
use mwl_proxy::config::{Origin, parse};
use mwl_proxy::language::schema::Schema;
use mwl_proxy::language::temporal::Timestamp;
use mwl_proxy::source::{Format, Sources};
use serde_json::Value;

use crate::layering::sources;
use crate::support::program::run;

const WRONG: &str = include_str!("wrong.txt");
const SOUND: &str = include_str!("sound.txt");
const BROKEN: &str = include_str!("broken.txt");

const PRELUDE: &str = "\
listeners: [{ address: 127.0.0.1:0 }]
upstreams:
  app: { endpoints: [http://127.0.0.1:1] }
  audit: { endpoints: [http://127.0.0.1:2] }
  ledger: { endpoints: [http://127.0.0.1:3], protocol: http2 }
";

const WORDS: [(&str, &str); 5] = [
    ("RETRY", "provider: mwl:provider.middleware/mwl/retry/v1"),
    ("TIMEOUT", "provider: mwl:provider.middleware/mwl/timeout/v1"),
    ("LOOP", "provider: mwl:provider.middleware/mwl/loop/v1"),
    ("FINALLY", "provider: mwl:provider.middleware/mwl/finally/v1"),
    ("HTTP", "provider: mwl:provider.call/mwl-proxy/http/v1"),
];

/// A case: its title, the configuration, and the lines at which something is to be reported, with its name.
struct Case {
    title: String,
    text: String,
    wanted: Vec<(usize, String)>,
}

fn cases(table: &str) -> Vec<Case> {
    table.split("=== ").skip(1).map(Case::of).collect()
}

impl Case {
    fn of(written: &str) -> Self {
        let (title, body) = written.split_once('\n').unwrap();
        let whole = body.lines().any(|line| line.starts_with("routes:"));
        let (prelude, head, indent) = match (title.ends_with("[whole]"), whole) {
            (true, _) => ("", "", ""),
            (false, true) => (PRELUDE, "", ""),
            (false, false) => (PRELUDE, "routes:\n- name: r\n", "  "),
        };
        let mut text = format!("{prelude}{head}");
        let mut wanted = Vec::new();
        for line in body.lines() {
            let (line, name) = match line.split_once("#< ") {
                Some((line, name)) => (line, Some(name.trim())),
                None => (line, None),
            };
            let mut line = format!("{indent}{}\n", line.trim_end());
            for (word, meant) in WORDS {
                let alone = |at: char| !at.is_alphanumeric() && at != '.';
                if let Some((before, after)) = line.split_once(word)
                    && before.chars().next_back().is_none_or(alone)
                    && after.chars().next().is_none_or(alone)
                {
                    line = format!("{before}{meant}{after}");
                }
            }
            text.push_str(&line);
            let line = text.lines().count();
            let names = name.into_iter().flat_map(str::split_whitespace);
            wanted.extend(names.map(|name| (line, name.to_owned())));
        }
        Self { title: title.to_owned(), text, wanted }
    }
}

/// What is reported about `text`: as data, and as a user reads it.
fn reported(name: &Path, text: &str) -> (Vec<Value>, String) {
    let read = |path: &Path| fs::read_to_string(path);
    let variable = |name: &str| match name {
        "LISTEN" | "ADMIN" | "FLAKY" => Some("127.0.0.1:1".to_owned()),
        _ => None,
    };
    let now = || Timestamp::parse("2026-01-15T09:30:00Z").unwrap();
    let origin = Origin { read: &read, variable: &variable, now: &now, ..Origin::system() };
    let (sources, found): (Sources, _) = match parse(name, text, origin).map(check) {
        Ok(Ok(built)) => (built.sources, built.warnings),
        Ok(Err(refused)) | Err(refused) => {
            let refused = mwl_proxy::app::complete(refused);
            (refused.sources, refused.diagnostics)
        }
    };
    let rendered = sources.render(&found);
    let json = sources.to_json(&found);
    (json.as_array().unwrap().clone(), rendered)
}

/// The lines and names of what is reported.
fn lines(found: &[Value]) -> Vec<(usize, String)> {
    let lines = found.iter().map(|one| {
        let line = usize::try_from(one["line"].as_u64().unwrap()).unwrap();
        (line, one["code"].as_str().unwrap().to_owned())
    });
    lines.collect()
}

#[test]
fn each_mistake_is_reported_at_its_line_and_nothing_else_is() {
    let cases = cases(WRONG);
    assert!(cases.len() >= 60, "{}", cases.len());
    let mut wrong = Vec::new();
    for Case { title, text, wanted } in &cases {
        let (found, said) = reported(Path::new("case.yaml"), text);
        let found = lines(&found);
        if found != *wanted || wanted.len() != 1 {
            wrong.push(format!("{title}: {wanted:?} is wanted, {found:?} is reported\n{said}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_breaker_that_is_deaf_on_some_routes_of_its_stack_names_them() {
    let route = |name| {
        format!(
            "  - {{ name: {name}, upstream: {name}, match: {{ path: /{name} }}, middleware: [{{ stack: s }}] }}\n"
        )
    };
    let text = format!(
        "listeners: [{{ address: 127.0.0.1:0 }}]
upstreams:
  quick: {{ endpoints: [http://127.0.0.1:1], responseTimeout: PT1S }}
  slow: {{ endpoints: [http://127.0.0.1:1] }}
  slower: {{ endpoints: [http://127.0.0.1:1], responseTimeout: PT2M }}
stacks:
  s:
    - provider: mwl:provider.middleware/mwl/timeout/v1
      onEntry: {{ with: {{ duration: PT5S }} }}
    - provider: mwl:provider.middleware/mwl-proxy/circuit-breaker/v1
routes:
{}{}{}",
        route("slow"),
        route("quick"),
        route("slower"),
    );
    let (found, said) = reported(Path::new("case.yaml"), &text);
    assert_eq!(lines(&found), [(10, "deaf-breaker".to_owned())]);
    let first = said.lines().next().unwrap();
    insta::assert_snapshot!(first, @"warning[deaf-breaker]: on routes slow, slower, this breaker never counts an upstream that hangs: a bound around it fires after PT5S, which says nothing of the upstream");
}

#[test]
fn nothing_is_reported_about_sound_policies() {
    let cases = cases(SOUND);
    let mut files = sound_files();
    files.extend(cases.into_iter().map(|case| (case.title, PathBuf::from("case.yaml"), case.text)));
    assert!(files.len() >= 60, "{}", files.len());
    let mut wrong = Vec::new();
    for (title, name, text) in files {
        let (found, said) = reported(&name, &text);
        if !found.is_empty() {
            wrong.push(format!("{title}\n{said}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What is to be done is in the help, or in the message itself.
fn advises(found: &Value) -> bool {
    let words = [
        "add",
        "ask",
        "bind",
        "call a",
        "close",
        "compares",
        "declare",
        "did you mean",
        "fields are",
        "give",
        "exactly one",
        "has the keys",
        "in scope",
        "indent",
        "is missing",
        "is not of type",
        "keep",
        "move",
        "must",
        "name it",
        "named relative",
        "names a",
        "needs",
        "put",
        "remove",
        "shapes",
        "takes",
        "there is",
        "use ",
        "wanted",
        "write",
    ];
    let said = |member: &str| found[member].as_str().unwrap_or_default().to_lowercase();
    let said = format!("{} {}", said("message"), said("help"));
    words.iter().any(|word| said.contains(word))
}

/// Each at its place, all of one file at once, with what to do.
#[test]
fn a_hundred_mistakes_of_people_are_told() {
    let cases = cases(BROKEN);
    assert!(cases.len() >= 100, "{}", cases.len());
    let mut wrong = Vec::new();
    for Case { title, text, wanted } in &cases {
        let (all, said) = reported(Path::new("case.yaml"), text);
        let found = lines(&all);
        let told = all.iter().all(|one| one["column"].as_u64() > Some(0) && advises(one));
        if found != *wanted || wanted.is_empty() || !told {
            wrong.push(format!("{title}: {wanted:?} is wanted, {found:?} is reported\n{said}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The schema for editors.
fn schema() -> Schema {
    let printed = run(&["schema"]);
    let schema: Value = serde_json::from_slice(&printed.stdout).unwrap();
    Schema::compile(&mwl_proxy::language::value::Value::from(schema)).unwrap()
}

/// Whether the schema accepts a file. One that is no YAML has no values to check.
fn accepts(schema: &Schema, text: &str) -> Option<Result<(), String>> {
    let node = Sources::default().parse("case.yaml", text, Format::Yaml).ok()?;
    let value = mwl_proxy::language::value::Value::from(node.to_json());
    Some(schema.validate(&value).map_err(|violation| violation.message))
}

#[test]
fn the_schema_alone_finds_most_mistakes_and_none_in_sound_files() {
    let schema = schema();
    let mut refused = Vec::new();
    // Some of what is warned of is also an error.
    let loads = |case: &Case| case.wanted.iter().all(|(_, name)| name != "invalid-with");
    let sound = cases(SOUND).into_iter().chain(cases(WRONG).into_iter().filter(loads));
    let sound = sound.map(|case| (case.title, case.text));
    let files = sound_files().into_iter().map(|(title, _, text)| (title, text));
    for (title, text) in files.chain(sound) {
        if let Some(Err(why)) = accepts(&schema, &text) {
            refused.push(format!("{title}: {why}"));
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    let cases = cases(BROKEN);
    let missed = |cases: &[Case]| -> Vec<String> {
        let missed = cases.iter().filter(|case| accepts(&schema, &case.text) == Some(Ok(())));
        missed.map(|case| case.title.clone()).collect()
    };
    // The first are the commonest.
    let (first, all) = (missed(&cases[..23]), missed(&cases));
    assert!(first.len() <= 23 - 18, "{first:#?}");
    assert!(all.len() <= 30, "{} of {}: {all:#?}", all.len(), cases.len());
}

/// The names of warnings in the program: where one is made, and where a constant is one.
fn names() -> BTreeSet<String> {
    let mut names = BTreeSet::from(["unreadable-binding".to_owned()]);
    let files = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    for file in files.into_iter().filter(|file| !file.display().to_string().contains("tests")) {
        let text = fs::read_to_string(file).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        for maker in ["Diagnostic::warning(", ".warn(", "const CODE: &str ="] {
            let quoted =
                text.split(maker).skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"'));
            names.extend(quoted.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
        }
    }
    names
}

#[test]
fn the_page_of_warnings_has_each() {
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/warnings.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let listed: BTreeSet<String> = rows.map(|(name, _)| name.to_owned()).collect();
    assert_eq!(listed, names());
    let tried: BTreeSet<String> =
        cases(WRONG).into_iter().flat_map(|case| case.wanted).map(|(_, name)| name).collect();
    let untried: Vec<_> = listed.difference(&tried).collect();
    assert_eq!(untried, ["not-valid-yet"], "no case has them");
}

/// Blocks that name certificates which are not there, and one that is the script of an explanation (`e2e::explain`).
const SKIPPED: [&str; 3] =
    ["docs/explain.md, block 1", "docs/http.md, block 2", "docs/proxy-protocol.md, block 1"];

/// The files in `config/`, and the configurations in the documents.
fn sound_files() -> Vec<(String, PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for entry in fs::read_dir(root.join("config")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "yaml") {
            files.push((
                path.display().to_string(),
                path.clone(),
                fs::read_to_string(&path).unwrap(),
            ));
        }
    }
    let docs = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    // The guide has a test of its own.
    let docs = docs.filter(|path| path.extension().is_some_and(|end| end == "md"));
    let docs = docs.filter(|path| !path.ends_with("guide.md"));
    let mut skipped = Vec::new();
    for path in docs.chain(["README.md", "ARCHITECTURE.md"].map(|name| root.join(name))) {
        let text = fs::read_to_string(&path).unwrap();
        let name = path.strip_prefix(root).unwrap().display();
        for (number, block) in text.split("```yaml\n").skip(1).enumerate() {
            let block = block.split("```").next().unwrap();
            let title = format!("{name}, block {}", number + 1);
            match whole(block) {
                Some(text) => files.push((title, root.join("config/block.yaml"), text)),
                None => skipped.push(title),
            }
        }
    }
    skipped.sort();
    assert_eq!(skipped, SKIPPED);
    files
}

/// The configuration of which a document shows a part. `None` if the part needs files that are not there, or is of another file.
fn whole(block: &str) -> Option<String> {
    if block.contains(".pem") || block.contains("as --respond takes it") {
        return None;
    }
    let has = |key: &str| block.lines().any(|line| line.starts_with(key));
    let entries = block.starts_with("- provider:");
    let mut text = String::new();
    if !has("listeners:") {
        text.push_str("listeners: [{ address: 127.0.0.1:0 }]\n");
    }
    if !has("upstreams:") {
        let named = ["app", "billing", "audit", "items"];
        let named = named.map(|name| format!("{name}: {{ endpoints: [http://a] }}"));
        writeln!(text, "upstreams: {{ {} }}", named.join(", ")).unwrap();
    }
    if block.contains("store: fleet") && !has("stores:") {
        text.push_str("stores: { fleet: { redis: \"redis://127.0.0.1:6379\" } }\n");
    }
    if entries {
        let indented: Vec<String> = block.lines().map(|line| format!("  {line}")).collect();
        let indented = indented.join("\n");
        return Some(format!(
            "{text}routes:\n- name: r\n  upstream: app\n  middleware:\n{indented}\n"
        ));
    }
    text.push_str(block);
    if !has("routes:") {
        let own = block.split("upstreams:\n").nth(1).and_then(|rest| rest.split(':').next());
        let upstream = own.map_or("app", str::trim);
        writeln!(text, "routes: [{{ name: r, upstream: {upstream} }}]").unwrap();
    }
    Some(text)
}
