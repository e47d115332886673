//! Runs every command of the README and of the pages in `docs/` as it stands there, and compares what it prints.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};
use std::{env, fs};

use crate::support::program::Directory;

/// Pages whose commands another test runs, and the file of that test.
const OWN_TESTS: [(&str, &str); 2] =
    [("guide.md", "tests/it/guide.rs"), ("restart.md", "tests/it/e2e/restart.rs")];

/// Commands that serve until they are stopped, or take long, and the test that does the same.
const ELSEWHERE: [(&str, &str, &str); 4] = [
    (
        "mwl-proxy",
        "tests/it/e2e/quickstart.rs",
        "fn the_lines_that_the_quick_start_prints_show_what_the_proxy_does",
    ),
    (
        "mwl-proxy run --upstream http://127.0.0.1:3000",
        "tests/it/e2e/commands.rs",
        "fn the_proxy_needs_no_file_before_one_upstream",
    ),
    (
        "mwl-proxy run -c proxy.yaml",
        "tests/it/e2e/dev.rs",
        "fn lines_may_be_switched_off_and_a_file_has_none_in_a_pipe",
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

/// A folder with everything that the project's has, in which a command may write files of its own.
fn scratch() -> Directory {
    let directory = Directory::new();
    for entry in fs::read_dir(root()).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        symlink(entry.path(), directory.path(&name)).unwrap();
    }
    directory
}

fn run(command: &str, folder: &Path) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_mwl-proxy")).parent().unwrap();
    let path = env::join_paths(
        std::iter::once(program.to_owned()).chain(env::split_paths(&env::var_os("PATH").unwrap())),
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(folder).env("PATH", path.unwrap());
    shell.output().unwrap()
}

/// What is wrong with a command.
fn wrong(Shown { command, prints }: &Shown, folder: &Path) -> Option<String> {
    if let Some((_, file, test)) = ELSEWHERE.iter().find(|(known, ..)| known == command) {
        let there = read(file).contains(test);
        return (!there).then(|| format!("{command}: {file} has no {test}"));
    }
    let output = run(command, folder);
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
    let folder = scratch();
    let wrong: Vec<String> =
        all.iter().filter_map(|shown| wrong(shown, &folder.path(""))).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Blocks of the pages in other languages than `yaml` (`review` and `guide` check those), `console` and `sh`, and who looks at them.
const OTHERS: [(&str, &str, &str); 7] = [
    ("dashboard.md", "json", "tests/it/e2e/admin.rs asks such questions"),
    ("develop.md", "", "tests/it/e2e/dev.rs has such lines"),
    ("develop.md", "", "tests/it/e2e/recorded.rs has such tables"),
    ("develop.md", "lua", "Neovim's own"),
    ("health.md", "http", "tests/it/e2e/drained.rs sends it"),
    ("install.md", "", "docker/check runs it, with a program that is there already"),
    ("restart.md", "ini", "docker/check reads the whole unit"),
];

#[test]
fn every_block_of_the_pages_is_looked_at_by_somebody() {
    let mut others = Vec::new();
    for entry in fs::read_dir(root().join("docs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let page = read(&format!("docs/{name}"));
        let fences = page.lines().filter_map(|line| line.trim_start().strip_prefix("```"));
        let languages = fences.step_by(2).filter(|one| !["yaml", "console", "sh"].contains(one));
        others.extend(languages.map(|language| (name.clone(), language.to_owned())));
    }
    others.sort();
    let listed = OTHERS.map(|(page, language, _)| (page.to_owned(), language.to_owned()));
    assert_eq!(others, listed);
}

/// The folder, the file and the place of each link that a page has to another of ours.
#[test]
fn every_link_between_the_pages_leads_somewhere() {
    let slug = |heading: &str| {
        let kept = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || " _-".contains(*c));
        kept.collect::<String>().replace(' ', "-")
    };
    let docs = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let top =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "benches/README.md"];
    let pages = docs.chain(top.map(|name| root().join(name)));
    let mut wrong = Vec::new();
    for page in pages.filter(|path| path.extension().is_some_and(|end| end == "md")) {
        let text = fs::read_to_string(&page).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") || link.contains(' ') {
                continue;
            }
            let (file, place) = link.split_once('#').unwrap_or((link, ""));
            let target =
                if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let there = target.exists()
                && (place.is_empty()
                    || fs::read_to_string(&target).is_ok_and(|text| {
                        text.lines().any(|l| l.starts_with('#') && slug(l) == place)
                    }));
            if !there {
                wrong.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
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
