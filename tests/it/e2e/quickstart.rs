//! `mwl-proxy` without a file: every command that it prints is run.

use std::net::SocketAddr;

use crate::support::client::{Answer, ask, get, request};
use crate::support::program::{Program, command};

/// The request in a printed line.
#[derive(Debug)]
struct Try {
    method: String,
    address: SocketAddr,
    path: String,
    fields: Vec<(String, String)>,
    body: String,
}

/// Splits a line like a shell, with quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (None, ' ') => words.push(String::new()),
            (Some(open), _) if open == c => quote = None,
            _ => words.last_mut().unwrap().push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The curl command in a line, if there is one.
fn curl(line: &str) -> Option<Try> {
    let (_, command) = line.split_once("curl ")?;
    let command = command.split(['#', '|']).next().unwrap();
    let (mut method, mut body, mut url) = (None, String::new(), None);
    let mut fields = Vec::new();
    let mut words = words(command).into_iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-X" | "--request" => method = words.next(),
            "-H" | "--header" => {
                let field = words.next().unwrap();
                let (name, value) = field.split_once(": ").unwrap();
                fields.push((name.to_owned(), value.to_owned()));
            }
            "-d" | "--data" => body = words.next().unwrap(),
            "-i" | "-s" | "-si" | "-is" | "-sS" | "--include" | "--silent" | "-N" => {}
            other => {
                assert!(
                    !other.starts_with('-'),
                    "an option of curl this test does not know: {other}"
                );
                url = Some(other.to_owned());
            }
        }
    }
    let url = url.expect("an URL");
    let rest = url.strip_prefix("http://").unwrap_or(&url);
    let (address, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let default = if body.is_empty() { "GET" } else { "POST" };
    Some(Try {
        method: method.unwrap_or_else(|| default.to_owned()),
        address: address.replace("localhost", "127.0.0.1").parse().unwrap(),
        path: if path.is_empty() { "/".to_owned() } else { path.to_owned() },
        fields,
        body,
    })
}

impl Try {
    fn run(&self) -> Answer {
        let fields: Vec<(&str, &str)> =
            self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        ask(self.address, request(&self.method, &self.path, &fields, self.body.as_bytes()))
    }
}

/// The sum of a metric's series that contain this text.
fn metric(admin: SocketAddr, name: &str, part: &str) -> u64 {
    let page = get(admin, "/metrics");
    let ours = |line: &&str| line.starts_with(&format!("{name}{{")) && line.contains(part);
    let value = |line: &str| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap();
    page.text().lines().filter(ours).map(value).sum()
}

#[test]
fn the_lines_that_the_quick_start_prints_show_what_the_proxy_does() {
    // The system chooses the ports, because 8080 and 9900 may be in use.
    let arguments = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let mut program = Program::spawn(command(&arguments));
    let (address, admin) = program.addresses();
    // The last of the printed lines.
    program.line("the metrics to look at", |line| {
        curl(line).filter(|line| line.path == "/metrics" && line.address == admin)
    });
    let lines = program.lines();
    let tries: Vec<Try> = lines.iter().filter_map(|line| curl(line)).collect();
    assert!(tries.len() >= 5, "{lines:#?}");

    let proxied = tries.iter().filter(|line| line.address == address);
    let statuses: Vec<u16> = proxied.map(|line| line.run().status).collect();
    assert!(statuses.contains(&200), "something succeeds: {statuses:?}");
    assert!(statuses.contains(&402), "a decline is caught: {statuses:?}");
    assert!(statuses.contains(&504), "something takes too long: {statuses:?}");
    for (what, name, part) in [
        ("a 503 is retried", "mwl_retries_total", "Provider.Call.Http.Unavailable"),
        ("a Retry-After is waited for", "mwl_retries_total", "delay=\"override\""),
        ("a bound fires", "mwl_timeouts_total", ""),
        ("a decline has its own code", "mwl_attempts_total", "Declined"),
        ("an audit is written", "mwl_finally_total", "outcome=\"success\""),
    ] {
        assert!(metric(admin, name, part) > 0, "{what}: {name} {part}");
    }
    for line in tries.iter().filter(|line| line.address != address) {
        assert_eq!(line.run().status, 200, "{line:?}");
    }
    program.signal("TERM");
    assert_eq!(program.exit().code(), Some(0));
}
