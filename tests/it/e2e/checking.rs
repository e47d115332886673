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

/// What a route says of a store that is not there, or cannot say of one.
#[test]
fn check_says_which_store_is_missing_and_what_cannot_be_computed() {
    let directory = Directory::new();
    let said = |with: &str| {
        let entry = format!(
            "    middleware:\n    - provider: mwl:provider.middleware/mwl-proxy/rate-limit/v1\n      onEntry: {{ with: {{ {with} }} }}\n"
        );
        let file = "listeners: [{ address: 127.0.0.1:0 }]\nstores: { fleet: { redis: 'redis://127.0.0.1' } }\n\
                    upstreams: { u: { endpoints: ['http://127.0.0.1:1'] } }\nroutes:\n  - name: r\n    upstream: u\n";
        let path = directory.write("stores.yaml", &format!("{file}{entry}"));
        let output = run(&["check", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(1));
        stdout(&output).replace(path.to_str().unwrap(), "stores.yaml")
    };
    insta::assert_snapshot!(said("rate: 5, store: flet"), @r"
    error[unknown-store]: there is no store `flet`
     --> stores.yaml:9:42
      |
    9 |       onEntry: { with: { rate: 5, store: flet } }
      |                                          ^^^^
      = help: did you mean `fleet`?

    stores.yaml: 1 error
    ");
    insta::assert_snapshot!(said("rate: 5, store: \"{{ execution.id }}\""), @r#"
    error[computed-state]: `store` cannot be an expression: what is kept across requests is made at load
     --> stores.yaml:9:42
      |
    9 |       onEntry: { with: { rate: 5, store: "{{ execution.id }}" } }
      |                                          ^^^^^^^^^^^^^^^^^^^^
      = help: write a literal; `when` is what a request can decide

    stores.yaml: 1 error
    "#);
    insta::assert_snapshot!(said("rate: 0, key: \"{{ execution.id }}\""), @r#"
    error[invalid-with]: 0 is less than the minimum of 1
     --> stores.yaml:9:32
      |
    9 |       onEntry: { with: { rate: 0, key: "{{ execution.id }}" } }
      |                                ^
      = help: write a number from 1

    stores.yaml: 1 error
    "#);
}
