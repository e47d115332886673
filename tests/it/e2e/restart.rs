//! A restart without an outage: by the sockets of a service manager, and by `--takeover`.
//!
//! Clients ask all the time, on new connections and on kept ones. None may be refused, and no request may be lost.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crate::support::client::{Answer, Client, get, post, request};
use crate::support::origin::{Origin, State, Turn, answer, bytes};
use crate::support::program::{Directory, Program, command, configuration};
use crate::support::watched::{Gate, Watched, pause};

/// Each answer says which process gave it.
const ROUTES: &str = r#"
  - name: all
    upstream: app
    responseHeaders: { set: { x-process: "${PROCESS:-old}" } }
"#;

/// How many requests wait for the upstream while the processes change.
const WAITING: usize = 8;

/// The upstream, whose answers to `/wait` come once the gate is open.
struct App {
    origin: Origin,
    gate: Gate,
}

/// Clients that ask all the time until they are stopped.
struct Load {
    stop: Arc<Watched<bool>>,
    /// Who answered on new connections, in turn; the second kind is of the admin address.
    new: Vec<JoinHandle<Vec<String>>>,
    /// Who answered on kept connections, in turn.
    kept: Vec<JoinHandle<Vec<String>>>,
}

impl App {
    fn start() -> Self {
        let gate = Gate::default();
        let opens = gate.clone();
        let origin = Origin::by(move |head, _| {
            if head.line.contains("/wait") {
                return Turn::Gated(opens.clone(), bytes(200, &[], "waited"));
            }
            answer(200, &[], "done")
        });
        Self { origin, gate }
    }

    fn file(&self, more: &str) -> String {
        format!("{more}\n{}", configuration(&[("app", self.origin.address)], ROUTES))
    }

    /// Requests that wait for the gate, once they are at the upstream.
    fn waiting(&self, address: SocketAddr) -> Vec<Client> {
        let before = self.origin.seen().len();
        let clients = (0..WAITING).map(|_| {
            let mut client = Client::connect(address);
            client.send(request("GET", "/wait", &[], b""));
            client
        });
        let clients = clients.collect();
        for number in before..before + WAITING {
            self.origin.until_state(number, State::Whole);
        }
        clients
    }
}

impl Drop for App {
    fn drop(&mut self) {
        // Nobody waits there any more.
        self.gate.open();
    }
}

fn who(got: &Answer) -> String {
    assert_eq!((got.status, got.text()), (200, "done"));
    got.field("x-process").expect("a process").to_owned()
}

impl Load {
    fn begin(address: SocketAddr, admin: Option<SocketAddr>) -> Self {
        let stop = Arc::new(Watched::new(false));
        let repeat = |ask: Box<dyn FnMut() -> String + Send>| {
            let (stop, mut ask) = (Arc::clone(&stop), ask);
            thread::spawn(move || {
                let mut all = Vec::new();
                while !*stop.now() {
                    all.push(ask());
                    pause(10);
                }
                all
            })
        };
        let mut new: Vec<_> =
            (0..4).map(|_| repeat(Box::new(move || who(&get(address, "/"))))).collect();
        if let Some(admin) = admin {
            new.push(repeat(Box::new(move || {
                let got = get(admin, "/readyz");
                assert_eq!((got.status, got.text()), (200, "ready\n"));
                String::new()
            })));
        }
        let kept = (0..4).map(|_| {
            let mut client = None;
            repeat(Box::new(move || {
                // An idle connection may close while the next request is on its way. Every client asks again then.
                let kept = client.take().and_then(|mut client: Client| {
                    client.send(request("GET", "/", &[], b""));
                    client.answer_or_end().map(|got| (client, got))
                });
                let (kept, got) = kept.unwrap_or_else(|| {
                    let mut client = Client::connect(address);
                    let got = client.ask(request("GET", "/", &[], b""));
                    (client, got)
                });
                if got.field("connection") != Some("close") {
                    client = Some(kept);
                }
                who(&got)
            }))
        });
        let kept = kept.collect();
        Self { stop, new, kept }
    }

    /// Stops, and checks that the old process answered first, then the new one, and nobody went without an answer.
    fn end(self) {
        self.stop.update(|stop| *stop = true);
        for each in self.new.into_iter().chain(self.kept) {
            let all = each.join().expect("no client is refused and no answer is lost");
            assert!(all.len() > 5, "{all:?}");
            if all.iter().any(|who| !who.is_empty()) {
                let mut turns = all.clone();
                // For a moment both accept.
                turns.dedup();
                assert_eq!((&*turns[0], &*turns[turns.len() - 1]), ("old", "new"), "{all:?}");
            }
        }
    }
}

fn run_at(directory: &Directory, file: &str, process: &str) -> Command {
    let (file, socket) = (directory.path(file), directory.path("takeover"));
    let mut command = command(&["run", "-c", file.to_str().unwrap()]);
    command.args(["--takeover", socket.to_str().unwrap()]).env("PROCESS", process);
    command
}

/// The program as a service manager starts it, with these sockets for clients and for the admin address.
fn activated(directory: &Directory, sockets: [&TcpListener; 2], process: &str) -> Program {
    activated_with(&[], directory, sockets, process)
}

fn activated_with(
    arguments: &[&str],
    directory: &Directory,
    sockets: [&TcpListener; 2],
    process: &str,
) -> Program {
    let given = |socket: &TcpListener| OwnedFd::from(socket.try_clone().unwrap());
    let script = "exec 3<&0 4<&1 0</dev/null 1>&2; \
                  export LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=web:admin; exec \"$0\" \"$@\"";
    let program = command(&[]);
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(program.get_program());
    shell.args(["run", "-c"]).arg(directory.path("proxy.yaml")).args(arguments);
    shell.env("PROCESS", process);
    let [clients, admin] = sockets.map(given);
    Program::of(shell.stdin(clients).stdout(admin).stderr(Stdio::piped()).spawn().unwrap())
}

/// A connection without a request, whose next one comes when the old process has begun to stop.
struct Idle(Client);

impl Idle {
    fn new(address: SocketAddr) -> Self {
        let mut client = Client::connect(address);
        assert_eq!(who(&client.ask(request("GET", "/", &[], b""))), "old");
        Self(client)
    }

    /// Each request is answered, and one of them is the last.
    fn loses_nothing(mut self) {
        loop {
            let got = self.0.ask(request("POST", "/", &[], b"once"));
            assert_eq!(who(&got), "old");
            // It may have said that it stops a moment before it does.
            if got.field("connection") == Some("close") {
                break;
            }
        }
        assert!(self.0.ended());
    }
}

fn has_line(program: &Program, what: &str) {
    program.line(what, |line| line.contains(what).then_some(()));
}

fn ends_well(program: &mut Program) {
    assert_eq!(program.exit().code(), Some(0));
    let lines = program.lines();
    let stopping = lines.iter().skip_while(|line| !line.contains("Stopping."));
    let complaints = |line: &&String| line.contains("ERROR") || line.contains("WARN");
    assert_eq!(stopping.into_iter().find(complaints), None, "an orderly stop");
}

#[test]
fn a_new_process_takes_the_sockets_and_no_client_notices() {
    let app = App::start();
    let directory = Directory::new();
    directory.write("old.yaml", &app.file("limits: { workers: 3 }"));
    directory.write("new.yaml", &app.file("limits: { workers: 2 }"));
    let mut old = Program::spawn(run_at(&directory, "old.yaml", "old"));
    let (address, admin) = old.addresses();
    let mut waiting = app.waiting(address);
    let idle = Idle::new(address);
    let load = Load::begin(address, Some(admin));
    pause(200);
    let mut new = Program::spawn(run_at(&directory, "new.yaml", "new"));
    assert_eq!(new.addresses(), (address, admin));
    has_line(&new, "A listening socket is taken over.");
    has_line(&old, "A listening socket was handed over.");
    has_line(&old, "Stopping.");
    idle.loses_nothing();
    pause(300);
    // What was in flight ends on the old process.
    app.gate.open();
    for client in &mut waiting {
        let got = client.answer();
        assert_eq!((got.status, got.text()), (200, "waited"));
        assert_eq!((got.field("x-process"), got.field("connection")), (Some("old"), Some("close")));
    }
    ends_well(&mut old);
    pause(200);
    load.end();
    let names: Vec<_> = ["\"name\":\"listener\"", "\"name\":\"admin\""]
        .iter()
        .map(|name| {
            old.lines()
                .iter()
                .filter(|line| line.contains("handed over") && line.contains(name))
                .count()
        })
        .collect();
    assert_eq!(names, [3, 1], "each worker's socket, and that of the admin address");
    // And again: three sockets, two workers, and then four.
    directory.write("new.yaml", &app.file("limits: { workers: 4 }"));
    let mut third = Program::spawn(run_at(&directory, "new.yaml", "third"));
    assert_eq!(third.addresses(), (address, admin));
    ends_well(&mut new);
    for _ in 0..50 {
        assert_eq!(who(&get(address, "/")), "third");
    }
    third.signal("TERM");
    ends_well(&mut third);
    assert!(!directory.path("takeover").exists());
}

#[test]
fn the_sockets_of_a_service_manager_outlive_the_process() {
    let app = App::start();
    let directory = Directory::new();
    let sockets = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [address, admin] = [0, 1].map(|place: usize| sockets[place].local_addr().unwrap());
    let file = app.file("").replacen("127.0.0.1:0", &address.to_string(), 1);
    directory.write("proxy.yaml", &file.replacen("127.0.0.1:0", &admin.to_string(), 1));
    let start = |process| activated(&directory, [&sockets[0], &sockets[1]], process);
    let mut old = start("old");
    assert_eq!(old.addresses(), (address, admin));
    has_line(&old, "\"name\":\"web\"");
    let mut waiting = app.waiting(address);
    let idle = Idle::new(address);
    let load = Load::begin(address, None);
    pause(200);
    old.signal("TERM");
    has_line(&old, "Stopping.");
    idle.loses_nothing();
    // Who comes now waits for the next process.
    pause(200);
    app.gate.open();
    for client in &mut waiting {
        let got = client.answer();
        assert_eq!((got.status, got.field("x-process")), (200, Some("old")));
    }
    ends_well(&mut old);
    let mut new = start("new");
    assert_eq!(new.addresses(), (address, admin));
    pause(200);
    load.end();
    assert_eq!(get(admin, "/readyz").status, 200);
    new.signal("TERM");
    ends_well(&mut new);
}

#[test]
fn a_reload_removes_a_service_managers_listener_and_adds_it_again() {
    let app = App::start();
    let directory = Directory::new();
    let sockets = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [address, admin] = [0, 1].map(|place: usize| sockets[place].local_addr().unwrap());
    let file = app.file("").replacen(
        "admin: { address: 127.0.0.1:0 }",
        &format!("admin: {{ address: {admin} }}"),
        1,
    );
    let with = file.replacen("[{ address", &format!("[{{ address: {address} }}, {{ address"), 1);
    directory.write("proxy.yaml", &with);
    let proxy = activated(&directory, [&sockets[0], &sockets[1]], "old");
    assert_eq!(who(&get(address, "/")), "old");
    let load = |file: &str| {
        directory.write("proxy.yaml", file);
        assert_eq!(post(admin, "/reload", "").status, 200);
    };
    load(&file);
    has_line(&proxy, "The service manager keeps this address open");
    let mut early = Client::connect(address);
    early.send(request("GET", "/", &[], b""));
    load(&with);
    assert_eq!(who(&early.answer()), "old");
}

#[test]
fn sockets_that_do_not_fit_the_configuration_are_told() {
    let app = App::start();
    let directory = Directory::new();
    let sockets = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let address = sockets[0].local_addr().unwrap();
    directory.write("proxy.yaml", &app.file(""));
    let mut proxy = activated(&directory, [&sockets[0], &sockets[1]], "old");
    assert_eq!(proxy.exit().code(), Some(1));
    let told = format!("the service manager listens on {address} (`web`)");
    assert!(proxy.lines().iter().any(|line| line.contains(&told)), "{:?}", proxy.lines());
    // They come from one place only.
    let socket = directory.path("takeover");
    let takeover = ["--takeover", socket.to_str().unwrap()];
    let mut proxy = activated_with(&takeover, &directory, [&sockets[0], &sockets[1]], "old");
    assert_eq!(proxy.exit().code(), Some(1));
    assert!(proxy.lines().iter().any(|line| line.contains("--takeover and LISTEN_FDS")));
    assert!(!socket.exists());
    // Those of another process are not ours, and a number is a number.
    let file = directory.path("proxy.yaml");
    let start = |pid: &str, count: &str| {
        let script = format!("export LISTEN_PID={pid} LISTEN_FDS={count}; exec \"$0\" \"$@\"");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).arg(command(&[]).get_program()).args(["run", "-c"]).arg(&file);
        Program::spawn(shell)
    };
    let mut proxy = start("1", "2");
    proxy.addresses();
    proxy.signal("TERM");
    ends_well(&mut proxy);
    for (count, problem) in [
        ("many", "LISTEN_FDS is `many`; wanted: a number of sockets, at most 1024"),
        ("4000000000", "LISTEN_FDS is `4000000000`"),
        ("1", "socket 0 of LISTEN_FDS (`unknown`)"),
    ] {
        let mut proxy = start("$$", count);
        assert_eq!(proxy.exit().code(), Some(1));
        assert!(proxy.lines().iter().any(|line| line.contains(problem)), "{:?}", proxy.lines());
    }
}

#[test]
fn a_new_process_that_cannot_start_leaves_the_old_one_serving() {
    let app = App::start();
    let directory = Directory::new();
    directory.write("old.yaml", &app.file(""));
    let mut old = Program::spawn(run_at(&directory, "old.yaml", "old"));
    let (address, admin) = old.addresses();
    let failures = || {
        let page = get(admin, "/metrics");
        let text = page.text().to_owned();
        text.lines().find_map(|line| {
            line.strip_prefix("mwl_takeovers_total{outcome=\"failed\"} ").map(str::to_owned)
        })
    };
    // Its file does not check: it does not even ask.
    directory.write("new.yaml", "listeners: []\n");
    let mut new = Program::spawn(run_at(&directory, "new.yaml", "new"));
    assert_eq!(new.exit().code(), Some(1));
    assert_eq!(failures(), None);
    // It has the sockets, and cannot listen on another address.
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    let more = format!("[{{ address: {} }}, {{ address", elsewhere.local_addr().unwrap());
    directory.write("new.yaml", &app.file("").replacen("[{ address", &more, 1));
    let mut new = Program::spawn(run_at(&directory, "new.yaml", "new"));
    assert_eq!(new.exit().code(), Some(1));
    has_line(&old, "Another process wanted to take over and has not: this one goes on.");
    assert_eq!(failures().as_deref(), Some("1"));
    for _ in 0..20 {
        assert_eq!(who(&get(address, "/")), "old");
    }
    assert_eq!(get(admin, "/readyz").status, 200);
    old.signal("TERM");
    assert_eq!(old.exit().code(), Some(0));
    assert!(!directory.path("takeover").exists());
}
