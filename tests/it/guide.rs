//! `docs/guide.md`: each configuration is sound, and each command says what the page shows of it.

use std::path::{Path, PathBuf};

use crate::support::program::{Directory, command};

/// A block of the page between fences.
struct Block<'a> {
    language: &'a str,
    text: &'a str,
}

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guide.md");
    std::fs::read_to_string(path).unwrap()
}

fn blocks(page: &str) -> Vec<Block<'_>> {
    let fenced = page.split("```").skip(1).step_by(2);
    fenced
        .map(|block| {
            let (language, text) = block.split_once('\n').unwrap();
            Block { language, text }
        })
        .collect()
}

/// The file of a `yaml` block: its first line is a comment with the name.
fn write(directory: &Directory, block: &Block<'_>) -> PathBuf {
    let name = block.text.lines().next().and_then(|line| line.strip_prefix("# "));
    directory.write(name.expect("a configuration begins with its name"), block.text)
}

/// The words of a command, as a shell would split them. Only plain words and single quotes are used.
fn words(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for at in command.chars() {
        match at {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            other => words.last_mut().unwrap().push(other),
        }
    }
    assert!(!quoted, "{command}");
    words
}

#[test]
fn each_configuration_is_sound_and_each_command_says_what_is_shown() {
    let (page, directory) = (page(), Directory::new());
    let (mut configurations, mut commands) = (0, 0);
    for block in blocks(&page) {
        match block.language {
            "yaml" => {
                configurations += 1;
                let path = write(&directory, &block);
                let output =
                    command(&["check", "--strict", path.to_str().unwrap()]).output().unwrap();
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{}\n{said}", path.display());
            }
            "console" => {
                commands += 1;
                let mut lines = block.text.lines();
                let written = lines.next().and_then(|line| line.strip_prefix("$ mwl-proxy "));
                let written = written.expect("a command of ours");
                let arguments = words(written);
                let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
                let output = command(&arguments).current_dir(directory.path("")).output().unwrap();
                let said = String::from_utf8(output.stdout).unwrap();
                let mut all = said.lines();
                for line in lines {
                    let found = all.any(|other| other == line);
                    assert!(found, "`{written}` does not say, or not there: {line}\n{said}");
                }
            }
            other => panic!("a block of {other}"),
        }
    }
    assert!(configurations >= 15 && commands >= 15, "{configurations} {commands}");
}

#[test]
fn the_list_at_the_top_has_each_section() {
    let page = page();
    let anchor = |title: &str| {
        let kept = |at: &char| at.is_alphanumeric() || *at == ' ' || *at == '-';
        title.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
    };
    let sections = page.lines().filter_map(|line| line.strip_prefix("## "));
    let listed = page.lines().filter_map(|line| line.strip_prefix("| [")?.split_once("](#"));
    let listed: Vec<(&str, &str)> =
        listed.map(|(title, rest)| (title, rest.split(')').next().unwrap())).collect();
    let wanted: Vec<(&str, String)> = sections.map(|title| (title, anchor(title))).collect();
    let wanted: Vec<(&str, &str)> = wanted.iter().map(|(title, to)| (*title, &**to)).collect();
    assert_eq!(listed, wanted);
}
