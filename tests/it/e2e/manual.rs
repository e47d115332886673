//! Completions, manual pages, and the version.

use std::process::Command;

use crate::support::program::{Directory, run};

fn printed(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn bash_completes_commands_and_options() {
    let directory = Directory::new();
    let file = directory.write("completions", &printed(&["completions", "bash"]));
    let complete = |words: &str, last: usize| {
        let line = format!(
            "source {}; COMP_WORDS=({words}); COMP_CWORD={last}; _mwl__proxy mwl-proxy \"${{COMP_WORDS[{last}]}}\"; echo \"${{COMPREPLY[@]}}\"",
            file.display()
        );
        let output = Command::new("bash").args(["-c", &line]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(complete("mwl-proxy exp", 1), "explain");
    assert_eq!(complete("mwl-proxy explain --again", 2), "--against");
    for shell in ["zsh", "fish"] {
        assert!(printed(&["completions", shell]).contains("explain"), "{shell}");
    }
    assert_eq!(run(&["completions", "cmd"]).status.code(), Some(2));
}

#[test]
fn the_manual_has_the_words_of_the_help() {
    assert!(printed(&["man"]).contains(".SH SYNOPSIS"));
    assert!(printed(&["man", "explain"]).contains("a draw between two"));
    assert_eq!(run(&["man", "nonsense"]).status.code(), Some(2));
}

#[test]
fn the_version_begins_with_the_number() {
    let version = printed(&["--version"]);
    let number = concat!("mwl-proxy ", env!("CARGO_PKG_VERSION"));
    assert!(version.starts_with(number), "{version}");
}
