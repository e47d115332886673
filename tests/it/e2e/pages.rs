//! Runs every command of the README and of the pages in `docs/` as it stands there, and compares what it prints.

use std::path::Path;
use std::process::{Command, Output};
use std::{env, fs};

/// Pages whose commands another test runs, and the file of that test.
const OWN_TESTS: [(&str, &str); 2] =
    [("guide.md", "tests/it/guide.rs"), ("restart.md", "tests/it/e2e/restart.rs")];

/// Commands that serve until they are stopped, or take long, and the test that does the same.
const ELSEWHERE: [(&str, &str, &str); 3] = [
    (
        "cargo run",
        "tests/it/e2e/quickstart.rs",
        "fn the_lines_that_the_quick_start_prints_show_what_the_proxy_does",
    ),
    (
        "cargo run -- run --upstream http://127.0.0.1:3000",
        "tests/it/e2e/commands.rs",
        "fn the_proxy_needs_no_file_before_one_upstream",
    ),
    ("cargo test --locked", ".ci/run", "cargo test.*"),
];

/// A command, and what the page says that it prints. Nothing where the page does not say it.
#[derive(Debug, PartialEq)]
struct Shown {
    command: String,
    prints: Vec<String>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The commands in the page's blocks of `console` (after `$`, with output) and `sh` (each line).
fn shown(page: &str) -> Vec<Shown> {
    let mut found: Vec<Shown> = Vec::new();
    let (mut block, mut continued) = ("", false);
    for line in page.lines() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            block = if block.is_empty() && !language.is_empty() { language } else { "" };
            continue;
        }
        let command = match block {
            "sh" => Some(line).filter(|line| !line.trim().is_empty()),
            "console" => line.strip_prefix("$ "),
            _ => continue,
        };
        match (command, found.last_mut()) {
            (None, Some(last)) if continued => {
                last.command.push('\n');
                last.command.push_str(line);
            }
            (Some(command), _) => {
                found.push(Shown { command: command.to_owned(), prints: Vec::new() });
            }
            (None, Some(last)) => last.prints.push(line.to_owned()),
            (None, None) => panic!("output without a command: {line}"),
        }
        continued = line.ends_with('\\');
    }
    found
}

/// Whether `printed` is as `said`. `…` stands for any number of lines, and at the end of a line for its rest.
fn matches(said: &[String], printed: &[&str]) -> bool {
    let Some((first, rest)) = said.split_first() else {
        return printed.is_empty();
    };
    if first.trim() == "…" {
        return (0..=printed.len()).any(|skipped| matches(rest, &printed[skipped..]));
    }
    let same = |line: &str| match first.strip_suffix('…') {
        Some(begin) => line.starts_with(begin),
        None => line.trim_end() == first.trim_end(),
    };
    printed.split_first().is_some_and(|(line, more)| same(line) && matches(rest, more))
}

fn run(command: &str) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_mwl-proxy")).parent().unwrap();
    let path = env::join_paths(
        std::iter::once(program.to_owned()).chain(env::split_paths(&env::var_os("PATH").unwrap())),
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(root()).env("PATH", path.unwrap());
    shell.output().unwrap()
}

/// What is wrong with a command.
fn wrong(Shown { command, prints }: &Shown) -> Option<String> {
    if let Some((_, file, test)) = ELSEWHERE.iter().find(|(known, ..)| known == command) {
        let there = read(file).contains(test);
        return (!there).then(|| format!("{command}: {file} has no {test}"));
    }
    let output = run(command);
    let printed = String::from_utf8_lossy(&output.stdout);
    let printed: Vec<&str> = printed.trim_end().lines().collect();
    let told = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Some(format!("{command}: {}: {told}", output.status));
    }
    let fits = prints.is_empty() || matches(prints, &printed);
    (!fits).then(|| format!("{command} prints\n{}\n{told}", printed.join("\n")))
}

#[test]
fn every_command_of_the_pages_does_what_they_say() {
    let mut pages = vec!["README.md".to_owned()];
    for entry in fs::read_dir(root().join("docs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        match OWN_TESTS.iter().find(|(known, _)| *known == name) {
            Some((_, test)) => assert!(root().join(test).is_file(), "{test}"),
            None => pages.push(format!("docs/{name}")),
        }
    }
    let all = pages.iter().flat_map(|page| shown(&read(page)));
    let all: Vec<Shown> = all.collect();
    assert!(all.len() >= 8, "{}", all.len());
    let wrong: Vec<String> = all.iter().filter_map(wrong).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn commands_are_found_with_what_they_print() {
    let page = "a\n```console\n$ b \\\n    c\nd\n\n$ e\n```\n```yaml\n$ f\n```\n```sh\ng\n```\n";
    let shown: Vec<_> = shown(page).into_iter().map(|s| (s.command, s.prints)).collect();
    let expected = [("b \\\n    c", vec!["d", ""]), ("e", vec![]), ("g", vec![])];
    let expected = expected.map(|(command, prints)| {
        (command.to_owned(), prints.into_iter().map(str::to_owned).collect::<Vec<_>>())
    });
    assert_eq!(shown, expected);
    let said = ["a", "…", "d 1…"].map(str::to_owned);
    assert!(matches(&said, &["a", "b", "c", "d 12"]));
    assert!(!matches(&said, &["a", "b", "d 2"]));
}
