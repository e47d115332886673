//! What is left for others when somebody takes every connection or every descriptor.

use std::net::{SocketAddr, TcpStream};

use mwl_proxy::system::descriptors;
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use super::operators::RETRIED;
use crate::support::client::{Client, get, request};
use crate::support::origin::{Origin, answer};
use crate::support::program::{Directory, Program, Proxy, command, configuration};

/// Connections that say nothing.
fn idle(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    descriptors::raise();
    (0..count).map(|_| TcpStream::connect(address).unwrap()).collect()
}

fn probes_answer(admin: SocketAddr) {
    for page in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(get(admin, page).status, 200, "{page}");
    }
}

#[test]
fn idle_connections_do_not_hold_the_admin_address() {
    let origin = Origin::always(answer(200, &[], ""));
    let proxy = Proxy::before(&[("billing", origin.address)], RETRIED);
    let held = idle(proxy.admin, 400);
    probes_answer(proxy.admin);
    drop(held);
}

#[test]
fn the_admin_address_answers_where_no_descriptor_is_left() {
    let origin = Origin::always(answer(200, &[], ""));
    let proxy = Proxy::before(&[("billing", origin.address)], RETRIED);
    let held = idle(proxy.address, 10);
    let mut kept = Client::connect(proxy.address);
    assert_eq!(kept.ask(request("GET", "/pay", &[], b"")).status, 200);
    // What is open stays open. Whatever is still free beneath the limit is taken by others.
    let most = proxy.program().highest_descriptor() + 1;
    let limit = Rlimit { current: Some(most), maximum: Some(most) };
    prlimit(Pid::from_raw(proxy.program().id()), Resource::Nofile, limit).unwrap();
    let others = idle(proxy.address, 50);
    for _ in 0..5 {
        probes_answer(proxy.admin);
    }
    drop(others);
    drop(held);
}

/// The want of a descriptor is this process's own fault, and no upstream's.
#[test]
fn an_upstream_is_not_blamed_where_no_descriptor_is_left() {
    let origin = Origin::always(answer(200, &[], ""));
    let routes = "  - { name: address, match: { path: /address }, upstream: address }
  - { name: name, match: { path: /name }, upstream: name, exposeFailures: true }
";
    let file = configuration(&[("address", origin.address), ("name", origin.address)], routes);
    let named = format!("name: {{ endpoints: [\"http://localhost:{}\"]", origin.address.port());
    let numbered = format!("name: {{ endpoints: [\"http://{}\"]", origin.address);
    let file = file.replace(&numbered, &named);
    assert!(file.contains(&named), "{file}");
    let proxy = Proxy::start(&file);
    let mut client = Client::connect(proxy.address);
    assert_eq!(client.ask(request("GET", "/", &[], b"")).status, 404);
    let most = proxy.program().next_descriptor();
    let limit = Rlimit { current: Some(most), maximum: Some(most) };
    prlimit(Pid::from_raw(proxy.program().id()), Resource::Nofile, limit).unwrap();
    for path in ["/address", "/name"] {
        let got = client.ask(request("GET", path, &[], b""));
        assert_eq!(got.status, 502);
        assert_eq!(got.field("proxy-status"), Some("mwl-proxy; error=proxy_internal_error"));
        assert_eq!(got.json()["code"], "Provider.Call.Http.ConnectionFailed");
        if path == "/name" {
            assert_eq!(got.json()["failures"][0]["details"]["phase"], "descriptors");
        }
    }
    for route in ["address", "name"] {
        let said = |line: &str| {
            (line.contains("A request failed.") && line.contains(&format!("\"route\":\"{route}\"")))
                .then(|| line.to_owned())
        };
        let told = proxy.program().line("the failure", said);
        assert!(told.contains("this process has no file descriptor left"), "{told}");
    }
    assert_eq!(origin.count(), 0);
}

/// Starts a program with this file in a shell, after these commands.
fn limited(commands: &str, directory: &Directory, file: &str) -> Program {
    let path = directory.write("proxy.yaml", file);
    let program = command(&[]).get_program().to_str().unwrap().to_owned();
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &format!("{commands}; exec {program} run -c {}", path.display())]);
    Program::spawn(shell)
}

/// As many clients as the system lets the process have, and more: told at the start, and each is served in the end.
#[test]
fn more_clients_than_descriptors_wait_for_each_other() {
    let origin = Origin::always(answer(200, &[], ""));
    let file = configuration(&[("billing", origin.address)], RETRIED) + "limits: { workers: 1 }\n";
    let directory = Directory::new();
    let program = limited("ulimit -Sn 64; ulimit -Hn 384", &directory, &file);
    let (address, admin) = program.addresses();
    let said = |line: &str| line.contains("\"connections\":80").then(|| line.to_owned());
    let told = program.line("the number", said);
    assert!(told.contains("INFO") && told.contains("\"files\":384,"), "{told}");
    assert!(told.contains("\"default\":16384,"), "{told}");
    program.line("the raise", |line| line.contains("\"from\":64,\"to\":384").then_some(()));
    let held = idle(address, 300);
    probes_answer(admin);
    // Silent ones make room for those that ask.
    let answers = (0..3).map(|_| get(address, "/pay").status);
    assert_eq!(answers.collect::<Vec<_>>(), [200; 3]);
    assert!(program.descriptors() < 384);
    drop(held);
}

/// What an operator wrote and does not get is a warning.
#[test]
fn more_connections_than_descriptors_are_warned_of_where_they_were_asked_for() {
    let origin = Origin::always(answer(200, &[], ""));
    let limits = "limits: { workers: 1, connections: 1000 }\n";
    let file = configuration(&[("billing", origin.address)], RETRIED) + limits;
    let directory = Directory::new();
    let program = limited("ulimit -Sn 64; ulimit -Hn 384", &directory, &file);
    let said = |line: &str| line.contains("\"connections\":80").then(|| line.to_owned());
    let told = program.line("the warning", said);
    assert!(told.contains("WARN") && told.contains("\"wanted\":1000,"), "{told}");
}

#[test]
fn a_process_with_little_address_space_serves_or_says_what_it_needs() {
    let origin = Origin::always(answer(200, &[], ""));
    let file = configuration(&[("billing", origin.address)], RETRIED) + "limits: { workers: 2 }\n";
    let directory = Directory::new();
    let program = limited("ulimit -v 524288", &directory, &file);
    let (address, admin) = program.addresses();
    assert_eq!(get(address, "/pay").status, 200);
    probes_answer(admin);
    for workers in ["2", "64"] {
        let mebibytes = if workers == "2" { 256 } else { 1024 };
        let file = file.replace("workers: 2", &format!("workers: {workers}"));
        let commands = format!("ulimit -v {}", mebibytes << 10);
        let mut program = limited(&commands, &directory, &file);
        assert_eq!(program.exit().code(), Some(1));
        let lines = program.lines().join("\n");
        let told = format!("the limit of address space is {mebibytes} MiB");
        assert!(lines.contains(&told) && lines.contains("lower `limits.workers`"), "{lines}");
    }
}
