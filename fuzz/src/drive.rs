//! Runs a target on mutated seeds, on a stable toolchain: `drive TARGET SECONDS [SEED]`. It is an example of the main
//! package, so that it is built from what its tests are built from.
//!
//! The seeds are the project's own cases and configurations. The mutations are those of a fuzzer: bytes
//! changed, dropped or doubled, numbers made extreme, pieces of other seeds inserted. The same seed number
//! gives the same sequence. A text that makes a target panic is printed, and the exit code reports it.

#![allow(
    unreachable_pub,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a fuzz target panics when it finds a fault; its driver is a tool, and times what it drives"
)]

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rand::prelude::*;
use rand::rngs::StdRng;

use self::bodies::{TARGETS, Target, frame_seeds};

#[path = "lib.rs"]
mod bodies;

/// An input that takes longer than this is printed whole.
const SLOW: Duration = Duration::from_secs(1);

/// The words from which texts of the small grammars are built.
const WORDS: &[&str] = &[
    "P",
    "T",
    "PT",
    "W",
    "D",
    "H",
    "M",
    "S",
    "-",
    ".",
    ",",
    "0",
    "1",
    "9",
    "99999999999999999999",
    "2024-01-15T09:30:00Z",
    "9999-12-31T23:59:60Z",
    "0000-01-01T00:00:00+23:59",
    "+24:00",
    ":60",
    "P1Y2M3DT4H5M6.789S",
    "PT0.000000001S",
    "mwl:",
    "provider.call/",
    "provider.middleware/",
    "mwl/retry/v1",
    "/",
    "//",
    "%2F",
    "é",
    "*",
    ".*",
    "System.",
    "Provider.Call",
    "{{ ",
    " }}",
    "{{",
    "}}",
    "vars",
    "step.input",
    "[0]",
    ".map(x, ",
    ".all(x, ",
    ")",
    "(",
    "[",
    "]",
    "{",
    "}",
    "'",
    "\"",
    "\\u0000",
    "size(",
    "matches('",
    "(a+)+$",
    "lists.range(",
    "format([",
    "%s",
    "%.99f",
    "toJson(",
    "fromJson(",
    "duration('",
    "timestamp('",
    " + ",
    " - ",
    " ? ",
    " : ",
    " in ",
    "true",
    "null",
    "1e308",
    "18446744073709551615u",
    "-9223372036854775808",
    "b'",
    "optional.of(",
    ".?",
    "?.",
    "\n",
    "  - ",
    ": ",
    "&a ",
    "*a",
    "<<: ",
    "!!str ",
    "---\n",
    "|\n",
    "\r\n",
    "\r\n\r\n",
    "HTTP/1.1",
    "HTTP/1.0 ",
    "Transfer-Encoding: chunked\r\n",
    "Content-Length: 5\r\n",
    "Connection: close, upgrade\r\n",
    "Upgrade: websocket\r\n",
    "Expect: 100-continue\r\n",
    "X-Forwarded-For: \"[::1]\", ",
    "0\r\n\r\n",
    "5\r\nhello\r\n",
    "%2e%2e",
    "%69",
    "..",
    "%2f",
    "%5C",
    "\\",
    ";",
    "%252e",
    "admin",
    "\n",
    "\r",
    "%00",
    "\0",
];

/// Requests, whole and pipelined.
const REQUESTS: &[&str] = &[
    "GET /up/a?b=c HTTP/1.1\r\nHost: t\r\n\r\nHEAD / HTTP/1.1\r\nHost: t\r\n\r\n",
    "POST /up HTTP/1.1\r\nHost: t:80\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n5\r\nhello\r\n0\r\nX: 1\r\n\r\n",
    "PUT /r HTTP/1.1\r\nHost: [::1]:80\r\nContent-Length: 7\r\nContent-Type: application/json\r\n\r\n{\"a\":1}GET / HTTP/1.1\r\nHost: t\r\n\r\n",
    "GET http://u.test/%61/%2F//x HTTP/1.1\r\nHost: t\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    "POST /up HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
    "OPTIONS * HTTP/1.1\r\nHost: t\r\nForwarded: for=\"[::1]\";host=\"a,b\"\r\nX_Forwarded_For: 1\r\n\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
];

/// Responses, whole and broken.
const ANSWERS: &[&str] = &[
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nServer: x\r\n\r\nhello",
    "HTTP/1.1 418 Teapot\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n5\r\nhello\r\n0\r\nX: 1\r\n\r\n",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.0 200 OK\r\n\r\nto the end",
    "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    "HTTP/1.1 429 Slow\r\nRateLimit-Reset: 5\r\nSet-Cookie: a=1\r\nSet-Cookie: b\r\nConnection: x\r\nX: 1\r\nContent-Length: 0\r\n\r\n",
];

/// Targets, with every way to write a dot segment and a slash.
const PATHS: &[&str] = &[
    "/pub/%2e%2E/admin?x=/../",
    "/x%2f..%5C../admin/%252e%252e/b",
    "/admin;a=b/..;/i.txt;c",
    "/;/admin//%61b/",
    "http://t.test:80/a/./b?c#d",
    "/%61dmin/\"<>`{}|^[]\\x",
    "/admin/a%00b%3b%3F",
    "*",
];

/// Chunked bodies.
const CHUNKS: &[&str] = &[
    "5\r\nhello\r\n0\r\n\r\n",
    "1;a=b\r\nx\r\n000A \t;c=\"d\"\r\n0123456789\r\n0\r\nX: 1\r\nY:\r\n\r\n",
    "0x5\r\nhello\r\n0\r\n\r\n",
    "ffffffffffffffff\r\n",
    "2\r\n\r\n\r\n0\r\nTransfer-Encoding: chunked\r\n\r\nGET / HTTP/1.1\r\n",
];

/// Heads of responses, without their ends.
const HEADS: &[&str] = &[
    "HTTP/1.1 200 All Good\r\nContent-Length : 0\r\nX \t: y \r\nX: z",
    "HTTP/1.0 404 \r\nSet-Cookie: a\r\nConnection: x, close\r\nX: 1\r\nContent-Length: 5\r\nContent-Length: 5",
    "HTTP/1.1 103 Soon\r\nLink: </a>\r\n\r\nHTTP/1.1 599 P\u{159}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b",
    "HTTP/1.1 600 Odd\r\nEmpty:\r\nContent-Length: 0",
    "HTTP/1.1 304\r\nContent-Length: 628\r\nETag: \"a\"",
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, seconds, rest @ ..] = arguments.as_slice() else {
        return usage();
    };
    let target = TARGETS.iter().find(|(target, _)| target == name);
    let seconds = seconds.parse().ok();
    let seed = rest.first().map_or(Some(1), |seed| seed.parse().ok());
    match (target, seconds, seed) {
        (Some(target), Some(seconds), Some(seed)) => drive(target, seconds, seed),
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    let names: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
    eprintln!("usage: drive TARGET SECONDS [SEED], where TARGET is one of {}", names.join(", "));
    ExitCode::from(2)
}

fn drive((name, target): &Target, seconds: u64, seed: u64) -> ExitCode {
    let seeds = seeds(name);
    let mut random = StdRng::seed_from_u64(seed);
    let began = Instant::now();
    let (mut runs, mut slowest) = (0_u64, (Duration::ZERO, Vec::new()));
    while began.elapsed() < Duration::from_secs(seconds) {
        let data = mutated(&seeds, &mut random);
        let start = Instant::now();
        if catch_unwind(AssertUnwindSafe(|| target(&data))).is_err() {
            println!("{name}: panicked at run {runs} of seed {seed} on:\n{}", data.escape_ascii());
            return ExitCode::FAILURE;
        }
        let took = start.elapsed();
        if took > SLOW {
            println!("{name}: run {runs} of seed {seed} took {took:?}:\n{}", data.escape_ascii());
        }
        if took > slowest.0 {
            slowest = (took, data);
        }
        runs += 1;
    }
    println!(
        "{name}: {runs} runs from {} seeds in {seconds} s; the slowest took {:?} on:\n{:.400}",
        seeds.len(),
        slowest.0,
        slowest.1.escape_ascii().to_string(),
    );
    ExitCode::SUCCESS
}

/// Headers of both versions.
const PROXY_HEADERS: [&[u8]; 4] = [
    b"PROXY TCP4 192.0.2.1 198.51.100.7 56324 443\r\n",
    b"PROXY UNKNOWN\r\n",
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x01\xc6\x33\x64\x07\xdc\x04\x01\xbb",
    b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00",
];

/// The project's files of the target's kind; for the small grammars, its words.
fn seeds(name: &str) -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    match name {
        "definition" => files(&root.join("tests/cases"), "definition.json", &mut found),
        "request_head" => found.extend(REQUESTS.iter().map(|text| text.as_bytes().to_vec())),
        "request_target" => found.extend(PATHS.iter().map(|text| text.as_bytes().to_vec())),
        "chunked_body" => found.extend(CHUNKS.iter().map(|text| text.as_bytes().to_vec())),
        "proxy_header" => found.extend(PROXY_HEADERS.iter().map(|bytes| bytes.to_vec())),
        "h2_frames" => found.extend(frame_seeds()),
        "answer_head" => found.extend(HEADS.iter().map(|text| text.as_bytes().to_vec())),
        "response_head" => found.extend(ANSWERS.iter().map(|text| text.as_bytes().to_vec())),
        "config" => files(&root.join("config"), "", &mut found),
        "expression" => {
            let mut definitions = Vec::new();
            files(&root.join("tests/cases"), "definition.json", &mut definitions);
            for definition in definitions {
                let text = String::from_utf8_lossy(&definition).into_owned();
                let bodies = text.split("{{").skip(1).filter_map(|rest| rest.split("}}\"").next());
                found.extend(bodies.map(|body| body.trim().as_bytes().to_vec()));
            }
        }
        _ => {}
    }
    if found.is_empty() {
        found = WORDS.iter().map(|word| word.as_bytes().to_vec()).collect();
    }
    found
}

fn files(folder: &Path, name: &str, found: &mut Vec<Vec<u8>>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            files(&path, name, found);
        } else if path.to_string_lossy().ends_with(name) {
            found.extend(fs::read(&path));
        }
    }
}

fn mutated(seeds: &[Vec<u8>], random: &mut StdRng) -> Vec<u8> {
    let mut data = seeds.choose(random).cloned().unwrap_or_default();
    for _ in 0..random.random_range(0..8) {
        mutate(&mut data, seeds, random);
    }
    data.truncate(64 * 1024);
    data
}

fn mutate(data: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut StdRng) {
    let at = random.random_range(0..=data.len());
    let length = random.random_range(0..=(data.len() - at).min(64));
    match random.random_range(0..7) {
        0 => drop(data.drain(at..at + length)),
        1 => {
            let copy = data[at..at + length].to_vec();
            data.splice(at..at, copy);
        }
        2 => {
            if let Some(byte) = data.get_mut(at) {
                *byte = random.random_range(0x20..0x7f);
            }
        }
        3 | 4 => {
            let word = WORDS.choose(random).copied().unwrap_or_default();
            data.splice(at..at + length.min(8), word.bytes());
        }
        5 => {
            let other = seeds.choose(random).cloned().unwrap_or_default();
            let from = random.random_range(0..=other.len());
            let to = (from + random.random_range(0..200)).min(other.len());
            data.splice(at..at + length, other[from..to].iter().copied());
        }
        _ => {
            let digits = data.iter().position(u8::is_ascii_digit);
            let number = ["0", "-1", "1e999", "9007199254740993", "0.1", "4294967296"];
            if let Some(at) = digits {
                data.splice(at..=at, number.choose(random).copied().unwrap_or_default().bytes());
            }
        }
    }
}
