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

/// As many clients as the system lets the process have, and more: told at the start, and each is served in the end.
#[test]
fn more_clients_than_descriptors_wait_for_each_other() {
    let origin = Origin::always(answer(200, &[], ""));
    let file = configuration(&[("billing", origin.address)], RETRIED) + "limits: { workers: 1 }\n";
    let directory = Directory::new();
    let path = directory.write("proxy.yaml", &file);
    let limited = |program: &str| format!("ulimit -Sn 64; ulimit -Hn 384; exec {program}");
    let program = command(&[]).get_program().to_str().unwrap().to_owned();
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &limited(&format!("{program} run -c {}", path.display()))]);
    let program = Program::spawn(shell);
    let (address, admin) = program.addresses();
    let told = program
        .line("the warning", |line| line.contains("\"wanted\":16384").then(|| line.to_owned()));
    assert!(told.contains("\"files\":384,") && told.contains("\"connections\":80,"), "{told}");
    program.line("the raise", |line| line.contains("\"from\":64,\"to\":384").then_some(()));
    let held = idle(address, 300);
    probes_answer(admin);
    // Silent ones make room for those that ask.
    let answers = (0..3).map(|_| get(address, "/pay").status);
    assert_eq!(answers.collect::<Vec<_>>(), [200; 3]);
    assert!(program.descriptors() < 384);
    drop(held);
}
