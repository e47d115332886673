//! `run --record`: exchanges that are kept, looked at, and sent again.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::commands::{parsed, stderr, stdout};
use crate::support::client::{ask, get, post, request};
use crate::support::origin::{Origin, answer};
use crate::support::program::{Directory, Program, command, run};
use crate::support::watched::PATIENCE;

/// A proxy before `origin` that records into `directory`.
fn recording(origin: &Origin, directory: &Directory) -> (Program, SocketAddr, SocketAddr) {
    let upstream = format!("http://{}", origin.address);
    let folder = directory.path("recorded");
    let any = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let record = ["--record", folder.to_str().unwrap()];
    let line = [&["run", "--upstream", &upstream], &any[..], &record].concat();
    let program = Program::spawn(command(&line));
    let (address, admin) = program.addresses();
    (program, address, admin)
}

/// The list, once it has so many.
fn list(admin: SocketAddr, query: &str, count: usize) -> Vec<Value> {
    let until = Instant::now() + PATIENCE;
    loop {
        let page = get(admin, &format!("/recordings{query}")).json();
        let listed = page["recordings"].as_array().unwrap();
        if listed.len() == count {
            return listed.clone();
        }
        assert!(Instant::now() < until, "not {count}: {page}");
    }
}

fn again(admin: SocketAddr, id: &Value) -> crate::support::client::Answer {
    post(admin, &format!("/recordings/{}/replay", id.as_str().unwrap()), "")
}

/// A request with credentials in its fields and its query.
fn charge(address: SocketAddr) -> crate::support::client::Answer {
    let fields = [("Authorization", "Bearer s3cret"), ("X-Tenant", "t"), ("X-Request-Id", "one")];
    ask(address, request("POST", "/charge?a=1&token=s3cret", &fields, b"{\"card\":4}"))
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn an_exchange_is_kept_without_credentials_and_sent_again() {
    let origin = Origin::script([
        answer(429, &[("Retry-After", "0")], ""),
        answer(200, &[("Set-Cookie", "s3cret=1"), ("Content-Type", "text/plain")], "charged"),
    ]);
    let directory = Directory::new();
    let (_program, address, admin) = recording(&origin, &directory);
    assert_eq!(charge(address).text(), "charged");
    let [one] = list(admin, "", 1).try_into().unwrap();
    let told = [&one["execution"], &one["attempts"], &one["status"], &one["replay"]];
    assert_eq!(told, [&json!("one"), &json!(2), &json!(200), &json!(true)]);

    let id = one["id"].as_str().unwrap();
    let folder = directory.path("recorded");
    let file = folder.join(format!("{id}.json"));
    assert_eq!((mode(&folder), mode(&file)), (0o700, 0o600));
    let text = fs::read_to_string(&file).unwrap();
    assert!(!text.contains("s3cret"), "{text}");
    let kept = get(admin, &format!("/recordings/{id}")).json();
    assert_eq!(kept, serde_json::from_str::<Value>(&text).unwrap());
    assert_eq!(kept["request"]["target"], "/charge?a=1&token=***");
    assert_eq!(kept["request"]["body"], json!({ "bytes": 10, "text": "{\"card\":4}" }));
    assert_eq!(kept["answer"]["body"], json!({ "bytes": 7, "text": "charged" }));
    let attempts = &kept["execution"]["attempts"];
    assert_eq!([&attempts[0]["status"], &attempts[1]["waited"]], [&json!(429), &json!(0.0)]);
}

#[test]
fn a_replay_is_an_execution_of_its_own_without_what_is_hidden() {
    let origin = Origin::script([answer(200, &[], "charged"), answer(201, &[], "again")]);
    let directory = Directory::new();
    let (_program, address, admin) = recording(&origin, &directory);
    assert_eq!(charge(address).text(), "charged");
    let [one] = list(admin, "", 1).try_into().unwrap();
    let replayed = again(admin, &one["id"]).json();
    assert_eq!(replayed["answer"]["body"]["text"], "again");
    assert_eq!(replayed["recorded"]["body"]["text"], "charged");
    assert_eq!(replayed["omitted"], json!(["the header authorization", "the query's token"]));
    let execution = replayed["execution"].as_str().unwrap();
    assert_ne!(execution, "one");
    list(admin, &format!("?execution={execution}"), 1);
    let seen = &origin.seen()[1];
    assert_eq!(seen.head.line, "POST /charge?a=1 HTTP/1.1");
    assert_eq!(seen.body, b"{\"card\":4}");
    let fields = ["x-tenant", "host", "authorization"].map(|name| seen.head.field(name));
    assert_eq!(fields, [Some("t"), Some("localhost"), None], "as they were recorded");
}

#[test]
fn a_command_sends_a_recording_again_there_or_elsewhere() {
    let origin = Origin::always(answer(200, &[], "charged"));
    let directory = Directory::new();
    let (program, address, admin) = recording(&origin, &directory);
    assert_eq!(charge(address).status, 200);
    let [one] = list(admin, "", 1).try_into().unwrap();
    let file = directory.path("recorded").join(format!("{}.json", one["id"].as_str().unwrap()));
    let file = file.to_str().unwrap();
    let output = run(&["replay", file, "--format", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(parsed(&output)[0]["to"], format!("http://{address}"));
    let elsewhere = Origin::always(answer(200, &[], "other"));
    let to = format!("http://{}", elsewhere.address);
    let output = run(&["replay", file, "--to", &to, "--header", "authorization: mine"]);
    let told = stdout(&output);
    assert!(told.contains("The body now, 5 bytes:\nother"), "{told}");
    assert!(told.contains("the query's token") && !told.contains("the header"), "{told}");
    let seen = elsewhere.seen();
    let fields = ["authorization", "host"].map(|name| seen[0].head.field(name));
    assert_eq!(fields, [Some("mine"), Some(elsewhere.address.to_string().as_str())]);
    drop(program);
    let output = run(&["replay", file]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("gave no connection"), "{}", stderr(&output));
}

#[test]
fn large_bodies_go_on_and_are_kept_in_part() {
    let large = "x".repeat(200_000);
    let origin = Origin::always(answer(200, &[], &large));
    let directory = Directory::new();
    let (_program, address, admin) = recording(&origin, &directory);
    let got = post(address, "/upload", &large);
    assert_eq!((got.status, got.body.len()), (200, large.len()));
    assert_eq!(origin.seen()[0].length, 200_000);
    let [one] = list(admin, "", 1).try_into().unwrap();
    assert_eq!(one["replay"], json!(false));
    let refused = again(admin, &one["id"]);
    assert_eq!(refused.status, 409);
    let why = "this request cannot be sent again: its body was not kept whole: 65536 of 200000 bytes that passed\n";
    assert_eq!(refused.text(), why);
    let file = directory.path("recorded").join(format!("{}.json", one["id"].as_str().unwrap()));
    let output = run(&["replay", file.to_str().unwrap()]);
    assert_eq!((output.status.code(), stderr(&output).ends_with(why)), (Some(1), true));
    let kept: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let body = &kept["answer"]["body"];
    assert_eq!([&body["bytes"], &body["truncated"]], [&json!(200_000), &json!(true)]);
    assert_eq!(body["text"].as_str().unwrap().len(), 65_536);
    assert_eq!(again(admin, &json!("none")).status, 404);
}
