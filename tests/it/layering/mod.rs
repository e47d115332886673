//! Dependencies point inward. With one package the compiler cannot forbid `language` from naming
//! `proxy`; this does.

mod circles;
mod names;
mod tests;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use self::circles::circles;
use self::names::{Files, Place, What};

/// A room and the others that it names.
type Room = (&'static str, &'static [&'static str]);

/// The rooms of the crate, from the lowest up: each names only those before it. Those that are not listed are wiring and
/// commands, and name everybody.
const ROOMS: &[Room] = &[
    ("system", &[]),
    ("source", &[]),
    ("language", &["source"]),
    ("testing", &["language", "source", "system"]),
    ("telemetry", &["language", "system"]),
    ("proxy", &["language", "source", "system", "telemetry"]),
    ("config", &["language", "proxy", "source", "system", "telemetry"]),
];

/// The rooms of `proxy`, from the lowest up.
const ROOMS_OF_PROXY: &[Room] = &[
    ("boxed", &[]),
    ("proxy_header", &[]),
    ("tls", &[]),
    ("settings", &["proxy_header", "tls"]),
    ("io", &["proxy_header", "tls"]),
    ("grpc", &[]),
    ("code", &["grpc"]),
    ("meaning", &["code", "grpc"]),
    ("h1", &["io", "settings"]),
    ("h2", &["h1", "io", "settings"]),
    ("watch", &["io", "settings"]),
    ("store", &["io", "settings"]),
    ("memory", &[]),
    ("message", &["code", "h1", "memory", "settings"]),
    ("stage", &["h2", "io", "settings"]),
    ("body", &["h1", "h2", "io", "memory", "message", "settings"]),
    (
        "upstream",
        &["body", "boxed", "h1", "h2", "io", "message", "proxy_header", "settings", "stage", "tls"],
    ),
    (
        "site",
        &[
            "io",
            "memory",
            "message",
            "proxy_header",
            "settings",
            "stage",
            "tls",
            "upstream",
            "watch",
        ],
    ),
    (
        "request",
        &[
            "body",
            "boxed",
            "grpc",
            "h1",
            "h2",
            "io",
            "memory",
            "message",
            "proxy_header",
            "settings",
            "site",
            "tls",
            "upstream",
        ],
    ),
    (
        "answer",
        &[
            "body", "code", "grpc", "io", "meaning", "message", "request", "settings", "upstream",
            "watch",
        ],
    ),
    (
        "middleware",
        &["answer", "body", "code", "grpc", "meaning", "memory", "request", "settings", "store"],
    ),
    (
        "provider",
        &[
            "answer", "body", "boxed", "code", "grpc", "memory", "message", "request", "settings",
            "upstream",
        ],
    ),
    (
        "run",
        &[
            "answer", "body", "boxed", "code", "io", "message", "request", "site", "stage",
            "upstream", "watch",
        ],
    ),
    (
        "client",
        &[
            "answer",
            "body",
            "boxed",
            "h1",
            "h2",
            "io",
            "message",
            "proxy_header",
            "request",
            "run",
            "settings",
            "site",
            "tls",
            "upstream",
            "watch",
        ],
    ),
    (
        "build",
        &[
            "memory",
            "message",
            "middleware",
            "provider",
            "proxy_header",
            "settings",
            "site",
            "stage",
            "store",
            "tls",
            "upstream",
        ],
    ),
    ("server", &["client", "settings", "site", "upstream", "watch"]),
    ("rehearsal", &["client", "io", "message", "request", "site", "stage", "tls"]),
    (
        "testing",
        &[
            "answer",
            "client",
            "h2",
            "io",
            "message",
            "proxy_header",
            "request",
            "settings",
            "site",
            "watch",
        ],
    ),
];

/// Crates that only these rooms may name.
const CRATES: &[(&str, &[&str])] = &[
    ("cel", &["src/language/expr/"]),
    ("jsonschema", &["src/language/schema"]),
    (
        "hyper",
        &[
            "src/proxy/",
            "src/admin/",
            "src/quickstart/",
            "src/cli/",
            "src/replay/",
            "src/app.rs",
            "src/telemetry/trace/collector.rs",
        ],
    ),
    ("redis", &["src/proxy/store/"]),
    ("rustls", &["src/proxy/tls/"]),
    ("tokio_rustls", &["src/proxy/tls/"]),
    ("rustls_native_certs", &["src/proxy/tls/"]),
    ("x509_cert", &["src/proxy/tls/"]),
    (
        "rustix",
        &[
            "src/proxy/io/acked.rs",
            "src/proxy/io/socket.rs",
            "src/proxy/io/splice.rs",
            "src/system/",
        ],
    ),
    ("prometheus", &["src/telemetry/"]),
];

/// What the language knows nothing of.
const FOREIGN: &[&str] = &["http", "hyper", "prometheus", "tracing"];

/// How many files a circle may have.
const LARGEST_CIRCLE: usize = 8;
/// One matter, and excepted.
const LARGER: &str = "language::expr";
/// How many files may lie beside the folders of `src/proxy`.
const FLAT: usize = 6;
/// A file of more lines is long.
const LONG: usize = 420;
/// How many long files there may be, tests included.
const LONG_FILES: usize = 4;

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

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What is wrong with the names between `rooms`, which are modules of `of`: the wrong names, what is taken from `of` itself
/// instead of its room, and the permissions that nobody uses.
fn misnamed(files: &Files, of: &[&str], rooms: &[Room]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut unused: BTreeSet<(&str, &str)> =
        rooms.iter().flat_map(|(room, may)| may.iter().map(|other| (*room, *other))).collect();
    for (place, file) in &files.0 {
        let Some(room) = within(place, of) else { continue };
        let Some((room, may)) = rooms.iter().find(|(known, _)| known == room) else {
            // One that is wiring, where there is such a thing.
            if !of.is_empty() {
                wrong.push(format!("{}: {room} is no room", file.path));
            }
            continue;
        };
        for named in &file.names {
            let What::Here(what) = &named.what else { continue };
            let Some(other) = within(what, of) else { continue };
            let at = format!("{}:{}: {room} names", file.path, named.line);
            if !files.0.contains_key(&what[..=of.len()]) {
                wrong.push(format!(
                    "{at} {other}, which is of another room, by `{}`",
                    of.join("::")
                ));
            } else if other != room && !may.contains(&other.as_str()) {
                wrong.push(format!("{at} {other}: {}", what.join("::")));
            }
            unused.remove(&(room, other.as_str()));
        }
    }
    wrong.extend(
        unused.iter().map(|(room, other)| format!("{room} may name {other}, and does not")),
    );
    wrong
}

/// What of `of` a place is in.
fn within<'a>(place: &'a [String], of: &[&str]) -> Option<&'a String> {
    let inside = place.len() > of.len() && place.iter().zip(of).all(|(name, of)| name == of);
    if inside { place.get(of.len()) } else { None }
}

/// The room of the crate that a place is in, and that of `proxy` where it is there.
fn rooms_of(place: &[String]) -> (Option<&String>, Option<&String>) {
    (place.first(), within(place, &["proxy"]))
}

/// Re-exports of another room's items: whoever names one there doesn't see where it comes from.
fn re_exports(files: &Files) -> Vec<String> {
    let mut wrong = Vec::new();
    for (place, file) in &files.0 {
        for named in file.names.iter().filter(|named| named.re_export) {
            let What::Here(what) = &named.what else { continue };
            let below = what.starts_with(place);
            if !below && rooms_of(what) != rooms_of(place) {
                let what = what.join("::");
                wrong.push(format!("{}:{}: re-exports {what}", file.path, named.line));
            }
        }
    }
    wrong
}

/// What is wrong with the circles.
fn knots(files: &Files) -> Vec<String> {
    let all = circles(files).into_iter().filter_map(|circle| {
        let written = || circle.iter().map(|place| place.join("::")).collect::<Vec<_>>().join(" ");
        let room = rooms_of(&circle[0]);
        let one = circle.iter().all(|place| place.join("::").starts_with(LARGER));
        if circle.iter().any(|place| rooms_of(place) != room) {
            Some(format!("a circle crosses rooms: {}", written()))
        } else if circle.len() > LARGEST_CIRCLE && !one {
            Some(format!("a circle of {}: {}", circle.len(), written()))
        } else {
            None
        }
    });
    all.collect()
}

#[test]
fn rooms_name_only_what_is_beneath_them() {
    for rooms in [ROOMS, ROOMS_OF_PROXY] {
        for (at, (room, may)) in rooms.iter().enumerate() {
            let beneath: Vec<_> = rooms[..at].iter().map(|(room, _)| room).collect();
            assert!(
                may.iter().all(|other| beneath.contains(&other)),
                "{room} is not above {may:?}"
            );
        }
    }
    let files = Files::read(root());
    let mut wrong = misnamed(&files, &[], ROOMS);
    wrong.extend(misnamed(&files, &["proxy"], ROOMS_OF_PROXY));
    wrong.extend(re_exports(&files));
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// `cargo test --test it layering::circles -- --nocapture` lists them.
#[test]
#[expect(clippy::print_stdout, reason = "what is left is to be seen, too")]
fn circles_are_small_and_within_a_room() {
    let files = Files::read(root());
    for circle in circles(&files) {
        let places: Vec<_> = circle.iter().map(|place| place.join("::")).collect();
        println!("{} {}", places.len(), places.join(" "));
    }
    let wrong = knots(&files);
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn crates_stay_behind_their_walls() {
    let mut wrong = Vec::new();
    for file in Files::read(root()).0.values() {
        for named in &file.names {
            let What::Elsewhere(krate) = &named.what else { continue };
            let walls = CRATES.iter().find(|(known, _)| known == krate);
            let outside = walls
                .is_some_and(|(_, rooms)| !rooms.iter().any(|room| file.path.starts_with(room)));
            let foreign =
                file.path.starts_with("src/language/") && FOREIGN.contains(&krate.as_str());
            if outside || foreign {
                wrong.push(format!("{}:{}: names {krate}", file.path, named.line));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn files_are_short_and_have_a_room() {
    let flat: Vec<_> = fs::read_dir(root().join("src/proxy"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    assert!(flat.len() <= FLAT, "{flat:#?}");
    let all = ["src", "tests"].into_iter().flat_map(|folder| sources(&root().join(folder)));
    let lines = all.map(|path| (fs::read_to_string(&path).unwrap().lines().count(), path));
    let long: Vec<_> = lines.filter(|(lines, _)| *lines > LONG).collect();
    assert!(long.len() <= LONG_FILES, "{long:#?}");
}
