//! The program as its users run it: a process with its log, addresses and signals.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::client;
use super::watched::{PATIENCE, Watched};
use tokio::time::Instant;

/// A directory that belongs to one test and is removed with it.
#[derive(Debug)]
pub(crate) struct Directory(PathBuf);

/// A running program.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    log: Arc<Watched<Log>>,
}

/// What it wrote to stdout and stderr.
#[derive(Debug, Default)]
struct Log {
    lines: Vec<String>,
    ended: usize,
}

/// A running proxy with a configuration file.
#[derive(Debug)]
pub(crate) struct Proxy {
    program: Program,
    directory: Directory,
    /// The address on which it serves.
    pub(crate) address: SocketAddr,
    /// Its admin address.
    pub(crate) admin: SocketAddr,
}

impl Directory {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("e2e-{}-{number}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file in one step, like a careful editor: nobody sees half of it.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let (path, draft) = (self.path(name), self.path("draft.tmp"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&draft, text).unwrap();
        fs::rename(&draft, &path).unwrap();
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A directory that remains does no harm.
        fs::remove_dir_all(&self.0).ok();
    }
}

/// The program to start: the one that was built with the tests, or the one in `MWL_PROXY_BIN` (an optimised
/// build, to measure its memory).
pub(crate) fn command(arguments: &[&str]) -> Command {
    let built = || env!("CARGO_BIN_EXE_mwl-proxy").into();
    let mut command = Command::new(std::env::var_os("MWL_PROXY_BIN").unwrap_or_else(built));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs the program to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

impl Program {
    pub(crate) fn spawn(mut command: Command) -> Self {
        Self::of(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// A process of whose outputs at least one is piped.
    pub(crate) fn of(mut child: Child) -> Self {
        let log = Arc::new(Watched::<Log>::default());
        match child.stdout.take() {
            Some(out) => follow(out, &log),
            None => log.update(|log| log.ended += 1),
        }
        follow(child.stderr.take().unwrap(), &log);
        Self { child, log }
    }

    /// Waits for the first line in which `find` finds something.
    pub(crate) fn line<R>(&self, what: &str, find: impl Fn(&str) -> Option<R>) -> R {
        let looked = |log: &Log| {
            let found = log.lines.iter().find_map(|line| find(line));
            assert!(found.is_some() || log.ended < 2, "no {what} in all of {:#?}", log.lines);
            found
        };
        self.log.until(what, looked)
    }

    /// The addresses that it logs: the listener and the admin address.
    pub(crate) fn addresses(&self) -> (SocketAddr, SocketAddr) {
        let address = self.line("the address", |line| announced(line, "Listening."));
        (
            address,
            self.line("the admin address", |line| announced(line, "The admin address is served.")),
        )
    }

    /// Every line so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.log.now().lines.clone()
    }

    /// Sends a signal: `TERM`, `HUP`, `INT`.
    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    /// Waits for it to end.
    pub(crate) fn exit(&mut self) -> ExitStatus {
        self.log.until("the program to end", |log| (log.ended == 2).then_some(()));
        self.child.wait().unwrap()
    }

    /// The number of its process.
    pub(crate) fn id(&self) -> i32 {
        self.child.id().try_into().unwrap()
    }

    /// The highest number of a descriptor that it has open.
    pub(crate) fn highest_descriptor(&self) -> u64 {
        let all = fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap();
        all.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap())
            .max()
            .unwrap()
    }

    /// The lowest number that no descriptor of it has: that of the next one.
    pub(crate) fn next_descriptor(&self) -> u64 {
        let open = format!("/proc/{}/fd", self.child.id());
        (0..u64::MAX)
            .find(|number| fs::symlink_metadata(format!("{open}/{number}")).is_err())
            .unwrap()
    }

    /// How many descriptors it has open.
    pub(crate) fn descriptors(&self) -> u64 {
        fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count() as u64
    }

    /// A member of `/proc/PID/status` in KiB.
    pub(crate) fn memory(&self, member: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(member)).unwrap();
        let digits: String = line.chars().filter(char::is_ascii_digit).collect();
        digits.parse().unwrap()
    }
}

#[expect(clippy::print_stderr, reason = "shown with the test that failed")]
impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already.
        self.child.kill().ok();
        self.child.wait().ok();
        if thread::panicking() {
            eprintln!("the program's log: {:#?}", self.lines());
        }
    }
}

fn follow(pipe: impl Read + Send + 'static, log: &Arc<Watched<Log>>) {
    let log = Arc::clone(log);
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines() {
            let Ok(line) = line else { break };
            log.update(|log| log.lines.push(line));
        }
        log.update(|log| log.ended += 1);
    });
}

impl Proxy {
    /// Starts a proxy with these upstreams and these routes (list items in YAML).
    pub(crate) fn before(upstreams: &[(&str, SocketAddr)], routes: &str) -> Self {
        Self::start(&configuration(upstreams, routes))
    }

    /// Starts a proxy with this file.
    pub(crate) fn start(file: &str) -> Self {
        Self::start_in(Directory::new(), file)
    }

    /// Starts a proxy with this file, in a directory that contains other files.
    pub(crate) fn start_in(directory: Directory, file: &str) -> Self {
        directory.write("proxy.yaml", file);
        Self::start_at(directory, "proxy.yaml")
    }

    /// Starts a proxy with an existing file.
    pub(crate) fn start_at(directory: Directory, name: &str) -> Self {
        let path = directory.path(name);
        let program = Program::spawn(command(&["run", "-c", path.to_str().unwrap()]));
        let (address, admin) = program.addresses();
        Self { program, directory, address, admin }
    }

    /// Replaces its file.
    pub(crate) fn rewrite(&self, file: &str) {
        self.directory.write("proxy.yaml", file);
    }

    pub(crate) fn program(&self) -> &Program {
        &self.program
    }

    pub(crate) fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The sum of a metric's series with these labels.
    pub(crate) fn metric(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let page = client::get(self.admin, "/metrics");
        assert_eq!(page.status, 200);
        let labels = labels.iter().map(|(label, value)| format!("{label}=\"{value}\""));
        let labels: Vec<String> = labels.collect();
        let value = |line: &str| {
            let rest = line.strip_prefix(name)?;
            let (series, value) = rest.rsplit_once(' ')?;
            let ours = series.is_empty() || series.starts_with('{');
            (ours && labels.iter().all(|label| series.contains(label.as_str())))
                .then(|| value.parse::<u64>().unwrap())
        };
        page.text().lines().filter_map(value).sum()
    }

    /// Waits until the metric is at least `least`.
    pub(crate) fn until_metric(&self, name: &str, labels: &[(&str, &str)], least: u64) {
        let begun = Instant::now();
        while self.metric(name, labels) < least {
            let late = begun.elapsed() > PATIENCE;
            assert!(!late, "waited {PATIENCE:?} for {name} {labels:?} to be {least}");
            thread::yield_now();
        }
    }

    /// Sends SIGTERM and waits for a clean end: nothing runs any more, and all counts are final.
    pub(crate) fn stop(&mut self) {
        self.program.signal("TERM");
        let status = self.program.exit();
        assert!(status.success(), "{status}");
    }

    /// Waits for the end.
    pub(crate) fn exit(&mut self) -> ExitStatus {
        self.program.exit()
    }
}

/// A file with one listener and the admin address, on ports that the system chooses.
pub(crate) fn configuration(upstreams: &[(&str, SocketAddr)], routes: &str) -> String {
    let mut file = String::from(
        "listeners: [{ address: 127.0.0.1:0 }]\nadmin: { address: 127.0.0.1:0 }\nupstreams:\n",
    );
    for (name, address) in upstreams {
        writeln!(file, "  {name}: {{ endpoints: [\"http://{address}\"] }}").unwrap();
    }
    file + "routes:\n" + routes.trim_start_matches('\n')
}

/// The address in a log line that names `what`.
fn announced(line: &str, what: &str) -> Option<SocketAddr> {
    if !line.contains(what) {
        return None;
    }
    let (_, from) = line.split_once("127.0.0.1:")?;
    let digits: String = from.chars().take_while(char::is_ascii_digit).collect();
    Some(SocketAddr::from(([127, 0, 0, 1], digits.parse().ok()?)))
}
