//! What the log says about failed requests by default.

use serde_json::{Value, json};

use crate::support::client::{Client, request};
use crate::support::h2;
use crate::support::origin::{Origin, Port, State, Turn, answer};
use crate::support::program::{Directory, Program, Proxy, command, configuration};

/// The lines of the log with this message.
fn lines_of(proxy: &Proxy, message: &str) -> Vec<Value> {
    let lines = proxy.program().lines();
    let lines = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["message"] == message).collect()
}

/// What the log said about failed requests, after the proxy has ended, and about how many it said nothing more: of each
/// route, how many.
fn told(mut proxy: Proxy) -> (Vec<Value>, Vec<Value>) {
    proxy.stop();
    let left_out = lines_of(&proxy, LEFT_OUT).into_iter().map(|line| {
        assert_eq!((&line["level"], &line["line"]), (&json!("WARN"), &json!(FAILED)));
        json!([line["about"], line["untold"]])
    });
    (lines_of(&proxy, FAILED), left_out.collect())
}

const FAILED: &str = "A request failed.";
const LEFT_OUT: &str = "More lines of this kind were left out.";

#[test]
fn of_an_upstream_that_is_down_the_log_tells_at_once_and_once() {
    let down = Port::hold();
    let proxy = Proxy::before(
        &[("gone", down.address)],
        "  - { name: down, match: { pathPrefix: /down }, upstream: gone }\n  \
           - name: retried\n    match: { pathPrefix: /retried }\n    upstream: gone\n    middleware:\n      \
             - provider: mwl:provider.middleware/mwl/retry/v1\n        onEntry: { with: { policies: [{ match: \
               { codes: [Provider.Call.Http.ConnectionFailed] }, attempts: 2, backoff: { initial: PT0S } }] } }\n",
    );
    // One connection stays on one worker.
    let mut client = Client::connect(proxy.address);
    for path in ["/down/a?secret=1", "/down/b", "/retried/c", "/down/d", "/retried/e"] {
        let id = &[("x-request-id", path.split('?').next().unwrap())];
        assert_eq!(client.ask(request("GET", path, id, b"")).status, 502);
    }
    let (told, mut left_out) = told(proxy);
    left_out.sort_by_key(Value::to_string);
    assert_eq!(left_out, [json!(["down", 2]), json!(["retried", 1])], "each failure is told");
    let said = |line: &Value| {
        ["level", "route", "method", "path", "status", "untold"].map(|member| line[member].clone())
    };
    assert_eq!(
        told.iter().map(said).collect::<Vec<_>>(),
        [
            [json!("WARN"), json!("down"), json!("GET"), json!("/down/a"), json!(502), json!(0)],
            [
                json!("WARN"),
                json!("retried"),
                json!("GET"),
                json!("/retried/c"),
                json!(502),
                json!(0)
            ],
        ]
    );
    let refused = "Provider.Call.Http.ConnectionFailed: ";
    let text = |line: &Value, member: &str| line[member].as_str().unwrap_or_default().to_owned();
    assert!(text(&told[0], "error").starts_with(refused) && told[0].get("cause").is_none());
    // A policy's failure shows the original failure as its cause.
    assert!(text(&told[1], "error").starts_with("Provider.Middleware."), "{}", told[1]);
    assert!(text(&told[1], "cause").starts_with(refused), "{}", told[1]);
}

/// The HTTP status is 200; gRPC's own status tells the failure.
#[tokio::test]
async fn a_call_of_grpc_that_fails_is_told_too() {
    let down = Port::hold();
    let routes = "  - { name: calls, match: { pathPrefix: / }, upstream: gone }\n";
    let proxy = Proxy::before(&[("gone", down.address)], routes);
    let mut client = h2::Client::connect(proxy.address).await;
    let fields = [("content-type", "application/grpc"), ("te", "trailers")];
    assert_eq!(client.ask(h2::request("POST", "/pay.Till/Charge", &fields), b"").await.status, 200);
    let (told, left_out) = told(proxy);
    assert_eq!((told.len(), left_out.len()), (1, 0), "{told:#?}");
    let said = ["route", "path", "status", "grpc"].map(|member| told[0][member].clone());
    assert_eq!(said, [json!("calls"), json!("/pay.Till/Charge"), json!(200), json!("Unavailable")]);
}

#[test]
fn what_is_no_servers_failure_and_a_client_that_leaves_are_not_told() {
    let origin = Origin::script([
        answer(404, &[], ""),
        answer(200, &[], ""),
        answer(429, &[], ""),
        Turn::Hang,
    ]);
    let routes = "  - { name: all, match: { pathPrefix: / }, upstream: billing }\n";
    let proxy = Proxy::before(&[("billing", origin.address)], routes);
    let mut client = Client::connect(proxy.address);
    for status in [404, 200, 429] {
        assert_eq!(client.ask(request("GET", "/", &[], b"")).status, status);
    }
    client.send(request("GET", "/", &[], b""));
    origin.until_state(3, State::Whole);
    drop(client);
    origin.until_state(3, State::Left);
    assert_eq!(told(proxy), (vec![], vec![]));
}

/// A flood of refusals is a few lines, each of which names what was asked for.
#[test]
fn of_each_reason_one_refusal_is_told_with_what_was_asked_for() {
    let origin = Origin::always(answer(200, &[], ""));
    let routes = "  - { name: pay, match: { pathPrefix: /pay }, upstream: billing }\n";
    let mut proxy = Proxy::before(&[("billing", origin.address)], routes);
    // One connection stays on one worker.
    let mut client = Client::connect(proxy.address);
    for number in 0..100 {
        let path = format!("/nowhere/{number}?token=s3cret");
        assert_eq!(client.ask(request("GET", &path, &[], b"")).status, 404);
    }
    client.send(b"BREW /pot?token=s3cret HTTP/1.1\r\nHost: kitchen.test\r\nno field\r\n\r\n");
    assert_eq!(client.answer().status, 400);
    proxy.stop();
    let refused = lines_of(&proxy, "A request was refused.");
    let said: Vec<_> = refused
        .iter()
        .map(|line| {
            assert!(!line.to_string().contains("s3cret"), "{line}");
            ["reason", "method", "path", "host", "untold"].map(|member| line[member].clone())
        })
        .collect();
    assert_eq!(
        said,
        [
            [json!("noRoute"), json!("GET"), json!("/nowhere/0"), json!("localhost"), json!(0)],
            [json!("malformedHead"), json!("BREW"), json!("/pot"), json!("kitchen.test"), json!(0)],
        ]
    );
    let left_out = lines_of(&proxy, LEFT_OUT);
    let left_out: Vec<_> = left_out
        .iter()
        .map(|line| ["level", "about", "untold"].map(|member| line[member].clone()))
        .collect();
    assert_eq!(left_out, [[json!("INFO"), json!("noRoute"), json!(99)]]);
}

/// Whatever becomes of them: told by themselves, with the next one, or at the end.
#[test]
fn of_sixty_failures_at_once_none_is_lost() {
    let down = Port::hold();
    let routes = "  - { name: down, match: { pathPrefix: / }, upstream: gone }\n";
    let proxy = Proxy::before(&[("gone", down.address)], routes);
    let mut clients: Vec<Client> = (0..60).map(|_| Client::connect(proxy.address)).collect();
    for client in &mut clients {
        client.send(request("GET", "/", &[], b""));
    }
    for client in &mut clients {
        assert_eq!(client.answer().status, 502);
    }
    let (told, left_out) = told(proxy);
    let with_lines: u64 = told.iter().map(|line| 1 + line["untold"].as_u64().unwrap()).sum();
    let at_the_end: u64 = left_out.iter().map(|line| line[1].as_u64().unwrap()).sum();
    assert_eq!((with_lines + at_the_end, told.is_empty()), (60, false));
}

/// A file system that is full stands for a reader that is gone.
#[test]
fn records_that_the_access_log_loses_are_told_with_their_number() {
    let origin = Origin::always(answer(200, &[], ""));
    let routes = "  - { name: all, match: { pathPrefix: / }, upstream: billing }\n";
    let file = configuration(&[("billing", origin.address)], routes);
    let directory = Directory::new();
    let path = directory.write("proxy.yaml", &format!("log: {{ access: {{ }} }}\n{file}"));
    let program = command(&[]).get_program().to_str().unwrap().to_owned();
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &format!("exec {program} run -c {} > /dev/full", path.display())]);
    let program = Program::spawn(shell);
    let (address, _) = program.addresses();
    let mut client = Client::connect(address);
    for _ in 0..5 {
        assert_eq!(client.ask(request("GET", "/", &[], b"")).status, 200);
    }
    let told = program.line("the loss", |line| {
        line.contains("Records of the access log were dropped").then(|| line.to_owned())
    });
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&told["level"], &told["untold"]), (&json!("WARN"), &json!(0)));
    assert!((1..=5).contains(&told["dropped"].as_u64().unwrap()), "{told}");
}
