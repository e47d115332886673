//! Dependencies point inward. With one package the compiler cannot forbid `language` from naming
//! `proxy`; this does.

use std::fs;
use std::path::{Path, PathBuf};

/// Each room, and what it may name of the others.
const MAY_NAME: &[(&str, &[&str])] = &[
    ("source", &[]),
    ("language", &["source"]),
    ("testing", &["language", "source"]),
    ("telemetry", &["language"]),
    ("proxy", &["language", "source", "telemetry"]),
    ("config", &["language", "proxy", "source"]),
];

/// Each room of `proxy`, and what it may name of the others: only those above it in this list.
const IN_PROXY: &[(&str, &[&str])] = &[
    ("tls", &[]),
    ("settings", &["tls"]),
    ("io", &["tls"]),
    ("grpc", &[]),
    ("code", &["grpc"]),
    ("h2", &[]),
    ("h1", &["io"]),
    ("watch", &["settings"]),
    ("message", &["code", "h1", "settings"]),
    ("stage", &["settings"]),
    ("body", &["h1", "message"]),
    ("upstream", &["body", "h1", "h2", "io", "message", "settings", "stage", "tls"]),
    ("site", &["io", "message", "settings", "stage", "tls", "upstream", "watch"]),
    ("request", &["body", "grpc", "h1", "io", "message", "settings", "site"]),
    (
        "answer",
        &["body", "code", "grpc", "io", "message", "request", "settings", "upstream", "watch"],
    ),
    ("provider", &["answer", "body", "code", "grpc", "message", "request", "settings", "upstream"]),
    ("run", &["answer", "body", "code", "io", "message", "request", "site", "watch"]),
    (
        "client",
        &[
            "answer", "body", "h1", "h2", "io", "message", "request", "run", "settings", "site",
            "tls", "upstream", "watch",
        ],
    ),
    ("build", &["message", "provider", "settings", "site", "stage", "tls", "upstream"]),
    ("server", &["client", "settings", "site", "watch"]),
    ("rehearsal", &["client", "io", "message", "request", "site", "stage"]),
    ("testing", &["answer", "client", "io", "request", "site", "watch"]),
];

/// Crates that only these rooms may name.
const CRATES: &[(&str, &[&str])] = &[
    ("cel::", &["src/language/expr/"]),
    ("jsonschema::", &["src/language/schema"]),
    ("hyper::", &["src/proxy/", "src/admin/", "src/quickstart/", "src/cli/", "src/app.rs"]),
    ("rustls::", &["src/proxy/tls/"]),
    ("tokio_rustls::", &["src/proxy/tls/"]),
    ("rustls_native_certs::", &["src/proxy/tls/"]),
    ("rustix::", &["src/proxy/io/pour.rs"]),
    ("prometheus::", &["src/telemetry/"]),
    ("opentelemetry::", &["src/telemetry/trace/"]),
    ("opentelemetry_otlp::", &["src/telemetry/trace/"]),
    ("opentelemetry_sdk::", &["src/telemetry/trace/"]),
];

/// The Rust files below `folder`.
pub(crate) fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found
}

/// The lines that are code, without comments.
pub(crate) fn code(path: &Path) -> Vec<(usize, String)> {
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().enumerate().map(|(number, line)| {
        let line = line.split("//").next().unwrap_or_default();
        (number + 1, line.to_owned())
    });
    lines.collect()
}

/// What the rooms of `folder`, whose module is `at`, name that they may not.
fn misnamed(folder: &Path, at: &str, may_name: &[(&str, &[&str])]) -> Vec<String> {
    let all: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .filter(|name| name != "lib" && name != "main" && name != "mod")
        .collect();
    let mut wrong = Vec::new();
    for (room, may_name) in may_name {
        let file = folder.join(room).with_extension("rs");
        let files = if file.exists() { vec![file] } else { sources(&folder.join(room)) };
        assert!(!files.is_empty(), "{room} is empty");
        for file in files {
            for (number, line) in code(&file) {
                let paths = line.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
                let named = paths
                    .filter_map(|path| path.strip_prefix(at))
                    .map(|rest| rest.split("::").next().unwrap_or_default());
                for other in named.filter(|other| all.iter().any(|room| room == other)) {
                    if other != *room && !may_name.contains(&other) {
                        wrong.push(format!("{}:{number}: {room} names {other}", file.display()));
                    }
                }
            }
        }
    }
    wrong
}

#[test]
fn rooms_name_only_what_is_beneath_them() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut wrong = misnamed(&src, "crate::", MAY_NAME);
    wrong.extend(misnamed(&src.join("proxy"), "crate::proxy::", IN_PROXY));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn crates_stay_behind_their_walls() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut wrong = Vec::new();
    for file in sources(&root.join("src")) {
        let place = file.strip_prefix(root).unwrap().to_string_lossy().into_owned();
        for (number, line) in code(&file) {
            for (name, rooms) in CRATES {
                let named = line.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
                let named = named.into_iter().any(|path| path.starts_with(name));
                if named && !rooms.iter().any(|room| place.starts_with(room)) {
                    wrong.push(format!("{place}:{number}: names {name}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_language_knows_nothing_of_http() {
    let language = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/language");
    for file in sources(&language) {
        for (number, line) in code(&file) {
            let foreign = ["http::", "hyper", "prometheus", "tracing"];
            let named = foreign.iter().find(|name| line.contains(*name));
            assert!(named.is_none(), "{}:{number}: names {named:?}", file.display());
        }
    }
}
