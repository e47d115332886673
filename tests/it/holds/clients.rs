//! Clients that others wrote, through the program: curl and Python's `http.client`.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use crate::support::message::Framing;
use crate::support::origin::{Origin, Turn, answer, bytes};
use crate::support::program::{Directory, Proxy};
use crate::support::stack::retry;

/// Two attempts of whatever may be tried again.
const RETRYING: &str = concat!(
    "  - name: all\n    match: { pathPrefix: / }\n    upstream: u\n    middleware:\n",
    retry!("match: { codes: [Provider.Call.*], retryable: true }, attempts: 2"),
);

fn before(origin: &Origin) -> Proxy {
    Proxy::before(&[("u", origin.address)], RETRYING)
}

/// Runs a program that must be there, with this on its standard input.
fn run(program: &str, arguments: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| {
        panic!("{program} cannot be run ({error}): install it, these tests are about what it makes of the proxy")
    });
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

/// What curl writes to its standard output, given these arguments and then the proxy's URLs of these paths.
fn curl(proxy: &Proxy, arguments: &[&str], paths: &[&str], input: &[u8]) -> String {
    let urls: Vec<String> =
        paths.iter().map(|path| format!("http://{}{path}", proxy.address)).collect();
    let fixed = ["--silent", "--show-error", "--max-time", "20"];
    let all: Vec<&str> =
        fixed.iter().chain(arguments).copied().chain(urls.iter().map(String::as_str)).collect();
    let output = run("curl", &all, input);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "curl {all:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Fails once for each path, then says what was asked.
fn flaky() -> Origin {
    let failed = std::sync::Mutex::new(std::collections::HashSet::new());
    Origin::by(move |head, _| {
        if failed.lock().unwrap().insert(head.line.clone()) {
            answer(503, &[("X-Old", "1")], "not yet")
        } else {
            answer(200, &[("X-New", "1")], &head.line)
        }
    })
}

#[test]
fn curl_gets_what_the_second_attempt_brought_over_one_connection() {
    let origin = flaky();
    let proxy = before(&origin);
    let shown = ["--write-out", " %{http_code} %{http_version} %{num_connects}\n"];
    let said = curl(&proxy, &shown, &["/a", "/b?c=%20", "/d"], b"");
    let wanted =
        "GET /a HTTP/1.1 200 1.1 1\nGET /b?c=%20 HTTP/1.1 200 1.1 0\nGET /d HTTP/1.1 200 1.1 0\n";
    assert_eq!(said, wanted);
    assert_eq!(origin.count(), 6);
}

#[test]
fn curl_of_the_new_protocol_gets_what_the_second_attempt_brought() {
    let origin = flaky();
    let proxy = before(&origin);
    // One URL at a time: curl 7.88 breaks an HTTP/2 connection of prior knowledge that it uses again,
    // whoever the server is.
    let of = |more: &[&str], path, input: &[u8]| {
        let arguments = [&["--http2-prior-knowledge"], more].concat();
        curl(&proxy, &arguments, &[path], input)
    };
    let shown = ["--write-out", " %{http_code} %{http_version}"];
    for path in ["/a", "/b?c=%20"] {
        assert_eq!(of(&shown, path, b""), format!("GET {path} HTTP/1.1 200 2"));
    }
    let body = "0123456789".repeat(200_000);
    assert_eq!(of(&["--upload-file", "-"], "/d", body.as_bytes()), "not yet");
    let seen = origin.seen();
    assert_eq!((seen.len(), seen[4].length), (5, 2_000_000));
    let head = of(&["--head"], "/a", b"");
    assert!(head.starts_with("HTTP/2 200 \r\n") && head.contains("\r\nx-new: 1\r\n"), "{head}");
}

#[test]
fn curl_waits_for_the_word_to_send_a_large_body() {
    let origin = Origin::always(answer(200, &[], "stored"));
    let proxy = before(&origin);
    let directory = Directory::new();
    let body = "nothing is sent before the word ".repeat(200_000);
    let file = directory.write("body", &body);
    let from = format!("@{}", file.display());
    let trace = directory.path("trace");
    let arguments = [
        "--data-binary",
        &from,
        "--header",
        "Expect: 100-continue",
        "--expect100-timeout",
        "15",
        "--trace-ascii",
        trace.to_str().unwrap(),
        "--trace-time",
    ];
    assert_eq!(curl(&proxy, &arguments, &["/up"], b""), "stored");
    let seen = origin.seen();
    assert_eq!((seen.len(), seen[0].length), (1, body.len() as u64));
    assert!(body.as_bytes().starts_with(&seen[0].body));
    let trace = std::fs::read_to_string(trace).unwrap();
    assert!(trace.contains("HTTP/1.1 100 Continue"), "curl was not told to go on:\n{trace:.3000}");
}

#[test]
fn curl_is_not_told_to_send_what_nobody_takes() {
    let origin = Origin::always(answer(200, &[], "never"));
    let routes = RETRYING.replace("pathPrefix: /", "path: /elsewhere");
    let proxy = Proxy::before(&[("u", origin.address)], &routes);
    let body = vec![b'x'; 3 << 20];
    let arguments = [
        "--data-binary",
        "@-",
        "--header",
        "Expect: 100-continue",
        "--expect100-timeout",
        "15",
        "--output",
        "/dev/null",
        "--write-out",
        "%{http_code} %{size_upload}",
    ];
    let said = curl(&proxy, &arguments, &["/up"], &body);
    assert_eq!(said, "404 0");
    assert_eq!(origin.count(), 0);
}

#[test]
fn curl_gets_a_part() {
    let origin = Origin::by(|head, _| match head.field("range") {
        Some("bytes=2-5") => answer(206, &[("Content-Range", "bytes 2-5/10")], "2345"),
        other => answer(400, &[], &format!("{other:?}")),
    });
    let proxy = before(&origin);
    let said = curl(&proxy, &["--range", "2-5", "--include"], &["/digits"], b"");
    let head = said.to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 206 "), "{said}");
    assert!(head.contains("\r\ncontent-range: bytes 2-5/10\r\n"), "{said}");
    assert!(said.ends_with("\r\n\r\n2345"), "{said}");
}

#[test]
fn curl_gets_a_head_and_nothing_after_it() {
    let origin = Origin::by(|head, _| {
        if head.line.starts_with("HEAD ") {
            Turn::Say(b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n".to_vec())
        } else {
            answer(200, &[], "the body")
        }
    });
    let proxy = before(&origin);
    let shown = ["--head", "--write-out", "%{num_connects} %{size_download}\n"];
    let said = curl(&proxy, &shown, &["/a", "/b"], b"").to_ascii_lowercase();
    assert_eq!(said.matches("content-length: 1234\r\n").count(), 2, "{said}");
    assert!(said.ends_with("\r\n\r\n0 0\n") && said.contains("\r\n\r\n1 0\n"), "{said}");
}

#[test]
fn curl_of_the_old_protocol_gets_no_chunks_and_a_closed_connection() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let origin = Origin::always(Turn::Say(chunked.into()));
    let proxy = before(&origin);
    let shown = ["--http1.0", "--include", "--raw", "--write-out", "|%{num_connects}"];
    let said = curl(&proxy, &shown, &["/"], b"");
    assert!(!said.to_ascii_lowercase().contains("transfer-encoding"), "{said}");
    assert!(said.ends_with("\r\n\r\nhello|1"), "{said}");
    assert_eq!(origin.seen()[0].head.line, "GET / HTTP/1.1");
}

#[test]
fn curl_sends_chunks_and_they_are_sent_again() {
    let origin = Origin::script([answer(503, &[], "not yet"), answer(200, &[], "stored")]);
    let proxy = before(&origin);
    let body = "0123456789".repeat(1000);
    let arguments = ["--upload-file", "-", "--header", "Transfer-Encoding: chunked"];
    assert_eq!(curl(&proxy, &arguments, &["/up"], body.as_bytes()), "stored");
    let seen = origin.seen();
    assert_eq!(seen.len(), 2);
    for seen in seen {
        assert_eq!((seen.framing, seen.body.as_slice()), (Some(Framing::Chunked), body.as_bytes()));
    }
}

/// Twenty uploads in chunks, a GET, a HEAD and a 304 on one connection; prints what it got.
const PYTHON: &str = r#"
import http.client, json, sys
connection = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2]), timeout=20)
connection.connect()
socket = connection.sock
said = []
def ask(method, path, **more):
    connection.request(method, path, **more)
    response = connection.getresponse()
    said.append([response.status, response.read().decode()])
    assert connection.sock is socket, "the connection was not kept after %s %s" % (method, path)
for number in range(20):
    pieces = (b"%d;" % piece for piece in range(number))
    ask("PUT", "/%d" % number, body=pieces, encode_chunked=True)
ask("GET", "/get")
ask("HEAD", "/head")
ask("GET", "/unmodified", headers={"If-None-Match": "x"})
ask("POST", "/post", body=b"hello")
print(json.dumps(said))
"#;

#[test]
fn python_keeps_its_connection_through_chunks_failures_and_answers_without_bodies() {
    let failed = std::sync::Mutex::new(std::collections::HashSet::new());
    let origin = Origin::by(move |head, _| {
        let path = head.line.split(' ').nth(1).unwrap().to_owned();
        match path.as_str() {
            "/head" => Turn::Say(bytes(200, &[], "")),
            "/unmodified" => Turn::Say(b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n".to_vec()),
            "/post" => answer(503, &[], "a POST is not sent again"),
            _ if failed.lock().unwrap().insert(path.clone()) => answer(503, &[], "not yet"),
            _ => answer(200, &[], "stored"),
        }
    });
    let proxy = before(&origin);
    let (host, port) = (proxy.address.ip().to_string(), proxy.address.port().to_string());
    let output = run("python3", &["-c", PYTHON, &host, &port], b"");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said: Vec<(u16, String)> = serde_json::from_slice(&output.stdout).unwrap();
    let mut wanted = vec![(200, "stored".to_owned()); 21];
    wanted.push((200, String::new()));
    wanted.push((304, String::new()));
    wanted.push((503, "a POST is not sent again".to_owned()));
    assert_eq!(said, wanted);
    let seen = origin.seen();
    // Each PUT and the first GET twice.
    assert_eq!(seen.len(), 2 * 21 + 3);
    for (number, attempts) in seen[..40].chunks(2).enumerate() {
        let pieces: Vec<String> = (0..number).map(|piece| format!("{piece};")).collect();
        let body = pieces.concat();
        for attempt in attempts {
            assert_eq!(attempt.head.line, format!("PUT /{number} HTTP/1.1"));
            assert_eq!(attempt.body, body.as_bytes());
        }
    }
}
