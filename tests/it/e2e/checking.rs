//! What `check` reads and how it reports.

use std::io::Write;
use std::process::Stdio;

use super::commands::{parsed, sound, stderr, stdout};
use crate::support::program::{Directory, command, run};

/// A pipe can be read only once.
#[test]
fn check_reads_pipes() {
    for name in ["-", "/dev/stdin"] {
        let mut check = command(&["check", name]);
        let mut running = check.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        running.stdin.take().unwrap().write_all(sound().as_bytes()).unwrap();
        let output = running.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
        assert!(stdout(&output).starts_with(&format!("{name}: ok\n")), "{}", stdout(&output));
    }
}

#[test]
fn check_takes_warnings_for_errors_if_it_is_strict() {
    let directory = Directory::new();
    let path = directory.write("warned.yaml", &(sound() + "stacks: { unused: [] }\n"));
    let path = path.to_str().unwrap();
    let output = run(&["check", "--format", "github", path]);
    assert_eq!(output.status.code(), Some(0));
    let wanted = format!("::warning file={path},line=7,col=11,title=unused-stack::no list names");
    assert!(stdout(&output).starts_with(&wanted), "{}", stdout(&output));
    let output = run(&["check", "--strict", path]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).starts_with("error[unused-stack]"), "{}", stdout(&output));
}

#[test]
fn check_and_config_take_variables_from_a_file() {
    let directory = Directory::new();
    let file = sound().replace("name: all", "name: \"${ROUTE_OF_THE_TEST}\"");
    let path = directory.write("variables.yaml", &file);
    let path = path.to_str().unwrap();
    assert_eq!(run(&["check", path]).status.code(), Some(1));
    let variables = directory.write("variables.env", "# the route\nROUTE_OF_THE_TEST=named\n");
    let variables = variables.to_str().unwrap();
    assert_eq!(run(&["check", "--env-file", variables, path]).status.code(), Some(0));
    let shown = parsed(&run(&["config", "--env-file", variables, "-c", path]));
    assert_eq!(shown["routes"][0]["name"], "named");
    let wrong = directory.write("wrong.env", "A=1\nB\n");
    let output = run(&["check", "--env-file", wrong.to_str().unwrap(), path]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("wrong.env:2: this is no variable"), "{}", stderr(&output));
}
