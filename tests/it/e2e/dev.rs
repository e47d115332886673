//! `run --upstream`: the proxy at a laptop.

use std::io::Write;
use std::process::{ChildStdin, Command, Stdio};

use crate::support::client::{get, post};
use crate::support::origin::{Origin, Port, answer};
use crate::support::program::{Directory, Program, command, run};

const ANY: [&str; 4] = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];

fn dev(upstream: &str, more: &[&str]) -> Program {
    let arguments = [&["run", "--upstream", upstream], &ANY[..], more].concat();
    Program::spawn(command(&arguments))
}

fn line(program: &Program, begin: &str) -> String {
    program.line(begin, |line| line.starts_with(begin).then(|| line.to_owned()))
}

#[test]
fn each_request_has_a_line_with_its_attempts() {
    let origin = Origin::script([
        answer(429, &[("Retry-After", "0")], ""),
        answer(200, &[], "fine"),
        answer(503, &[], ""),
    ]);
    let program = dev(&format!("http://{}", origin.address), &[]);
    let (address, _) = program.addresses();
    assert_eq!(get(address, "/report?secret=1").text(), "fine");
    let told = line(&program, "GET /report 200 ");
    assert!(told.ends_with("  429 +0 s(delay) 200"), "{told}");
    assert!(!told.contains("secret") && !told.contains('\u{1b}'), "{told}");
    assert_eq!(post(address, "/charge", "{}").status, 503);
    let told = line(&program, "POST /charge 503 ");
    assert!(told.ends_with("  503  Provider.Call.Http.Unavailable"), "{told}");
}

#[test]
fn a_service_that_is_not_there_is_told_to_the_client_and_on_the_line() {
    let port = Port::hold();
    let program = dev(&format!("http://{}", port.address), &[]);
    let (address, admin) = program.addresses();
    let got = get(address, "/a");
    assert_eq!(got.status, 502);
    assert!(got.text().contains("refused the connection"), "failures are exposed: {}", got.text());
    let told = line(&program, "GET /a 502 ");
    assert!(told.contains("  ConnectionFailed +"), "{told}");
    assert_eq!(get(admin, "/readyz").status, 200);
}

#[test]
fn faults_are_injected_and_retried() {
    let origin = Origin::always(answer(200, &[], "fine"));
    let program = dev(&format!("http://{}", origin.address), &["--fault", "503=100%"]);
    let (address, _) = program.addresses();
    assert_eq!(get(address, "/a").status, 503);
    assert_eq!(origin.count(), 0);
    let told = line(&program, "GET /a 503 ");
    assert!(told.contains("Fault.Injected"), "{told}");
}

#[test]
fn lines_may_be_switched_off_and_a_file_has_none_in_a_pipe() {
    let origin = Origin::always(answer(200, &[], "fine"));
    let upstream = format!("http://{}", origin.address);
    let mut program = dev(&upstream, &["--lines", "never"]);
    let (address, _) = program.addresses();
    assert_eq!(get(address, "/a").status, 200);
    program.signal("TERM");
    assert!(program.exit().success());
    let said = program.lines();
    assert!(!said.iter().any(|line| line.starts_with("GET ")));
    let named = r#""configuration":"built in (--upstream)""#;
    assert!(said.iter().any(|line| line.contains("Started.") && line.contains(named)), "{said:?}");

    let directory = Directory::new();
    let arguments = [&["run", "--upstream", &upstream, "--print-config"], &ANY[..]].concat();
    let printed = run(&arguments);
    let file = directory.write("proxy.yaml", &String::from_utf8(printed.stdout).unwrap());
    let file = file.to_str().unwrap();
    for (more, wanted) in [(&[][..], false), (&["--lines", "always"], true)] {
        let mut program = Program::spawn(command(&[&["run", "-c", file], more].concat()));
        let (address, _) = program.addresses();
        assert_eq!(get(address, "/a").status, 200);
        program.signal("TERM");
        assert!(program.exit().success());
        assert_eq!(program.lines().iter().any(|line| line.starts_with("GET /a 200")), wanted);
    }
}

/// `run` on a terminal, which `script` (util-linux) provides, and its keyboard.
fn on_a_terminal(arguments: &str, no_color: &str, directory: &Directory) -> (Program, ChildStdin) {
    let line = format!("exec {} run {arguments}", env!("CARGO_BIN_EXE_mwl-proxy"));
    let mut terminal = Command::new("script");
    terminal.args(["-qefc", &line]).arg(directory.path("typescript"));
    terminal.env("NO_COLOR", no_color).stdin(Stdio::piped());
    let mut child = terminal.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let keys = child.stdin.take().unwrap();
    (Program::of(child), keys)
}

#[test]
fn a_refused_reload_on_a_terminal_points_at_the_line() {
    let origin = Origin::always(answer(200, &[], "fine"));
    let directory = Directory::new();
    let file = |key: &str| {
        format!(
            "listeners: [{{ address: 127.0.0.1:0 }}]\nadmin: {{ address: 127.0.0.1:0 }}\nupstreams: {{ a: {{ endpoints: [http://{}] }} }}\nroutes:\n  - {{ name: r, {key}: a }}\n",
            origin.address
        )
    };
    let path = directory.write("proxy.yaml", &file("upstream"));
    let arguments = format!("-c {}", path.to_str().unwrap());
    let (mut program, mut keys) = on_a_terminal(&arguments, "1", &directory);
    let (address, _) = program.addresses();
    directory.write("proxy.yaml", &file("upstraem"));
    program.line("the mistake", |line| line.contains("error[unknown-key]").then_some(()));
    program.line("its place", |line| line.trim_start().starts_with("-->").then_some(()));
    program.line("what it marks", |line| line.trim_end().ends_with("^^^^^^^^").then_some(()));
    assert_eq!(get(address, "/a").status, 200);
    keys.write_all(b"\x03").unwrap();
    program.exit();
}

#[test]
fn on_a_terminal_lines_have_colours_unless_nobody_wants_them() {
    let origin = Origin::always(answer(200, &[], "fine"));
    let directory = Directory::new();
    for (no_color, wanted) in [("", "GET /a \u{1b}[32m200\u{1b}[0m "), ("1", "GET /a 200 ")] {
        let arguments = format!("--upstream http://{} {}", origin.address, ANY.join(" "));
        let (mut program, mut keys) = on_a_terminal(&arguments, no_color, &directory);
        let (address, _) = program.addresses();
        assert_eq!(get(address, "/a").status, 200);
        program.line(wanted, |line| line.starts_with(wanted).then_some(()));
        // Ctrl-C
        keys.write_all(b"\x03").unwrap();
        program.exit();
    }
}
