//! Checks `docs/limits.md`: the bounds, values, metrics and tests in its tables exist, and no key is missing.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use mwl_proxy::source::{Format, Sources};
use serde_json::Value;

use crate::layering::sources;
use crate::requirements::{Row, UNTESTED, file_of, missing, rows_of};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// How the fourth cell of a row begins that names no metric.
const UNCOUNTED: &str = "No metric: ";
/// How a bound begins that a library keeps.
const LIBRARY: &str = "Library: ";
/// Keys of the configuration that bound nothing that others can make the process do.
const OTHER_KEYS: [&str; 10] = [
    "balance",
    "ejection",
    "endpoints",
    "health",
    "host",
    "protocol",
    "proxyProtocol",
    "retryBudget",
    "tls",
    "workers",
];

/// A bound, as a cell names it.
#[derive(Debug, PartialEq, Eq)]
enum Bound<'a> {
    /// A key of the configuration, with its default.
    Key(&'a str, &'a str),
    /// A constant, with its value.
    Constant(&'a str, &'a str),
    /// A crate.
    Crate(&'a str),
}

/// A value, whatever its unit.
#[derive(Debug, PartialEq, Eq)]
enum Amount {
    Number(u64),
    Millis(u64),
}

fn rows() -> Vec<Row> {
    rows_of("docs/limits.md", "What")
}

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(path)).unwrap()
}

/// What stands between backticks in `cell`.
fn spans(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// The bounds that `cell` names: `` `name` (`value`) ``, or `` `crate` `` alone.
fn bounds(cell: &str) -> Vec<Bound<'_>> {
    let pieces: Vec<&str> = cell.split('`').collect();
    let piece = |place: usize| pieces.get(place).copied().unwrap_or_default();
    let mut bounds = Vec::new();
    let mut place = 1;
    while place < pieces.len() {
        let name = piece(place);
        let valued = piece(place + 1) == " (" && piece(place + 3).starts_with(')');
        let value = piece(place + 2);
        match (valued, name.contains("::")) {
            (true, true) => bounds.push(Bound::Constant(name, value)),
            (true, false) => bounds.push(Bound::Key(name, value)),
            (false, _) if cell.contains(LIBRARY) => bounds.push(Bound::Crate(name)),
            (false, _) => {}
        }
        place += if valued { 4 } else { 2 };
    }
    bounds
}

/// The amount that a page or a configuration writes: `1000`, `64KiB`, `PT0.5S`.
fn written(text: &str) -> Option<Amount> {
    if let Some(time) = text.strip_prefix("PT") {
        let unit = time.chars().last()?;
        let number: f64 = time.strip_suffix(unit)?.parse().ok()?;
        let seconds = match unit {
            'S' => 1.0,
            'M' => 60.0,
            'H' => 3600.0,
            _ => return None,
        };
        return format!("{:.0}", number * seconds * 1000.0).parse().ok().map(Amount::Millis);
    }
    let digits = text.find(|sign: char| !sign.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    Some(Amount::Number(number.parse::<u64>().ok()? * unit))
}

/// The amount that the value of a constant stands for: `64 * 1024`, `1 << 20`, `Duration::from_secs(1)`.
fn computed(value: &str) -> Option<Amount> {
    let number = |text: &str| text.trim().replace('_', "").parse::<u64>().ok();
    if let Some(time) = value.strip_prefix("Duration::from_") {
        let (unit, count) = time.strip_suffix(')')?.split_once('(')?;
        let millis = match unit {
            "millis" => 1,
            "secs" => 1000,
            "mins" => 60_000,
            "hours" => 3_600_000,
            _ => return None,
        };
        return Some(Amount::Millis(number(count)? * millis));
    }
    if let Some((base, shift)) = value.split_once("<<") {
        return Some(Amount::Number(number(base)? << number(shift)?));
    }
    let factors: Option<Vec<u64>> = value.split('*').map(number).collect();
    Some(Amount::Number(factors?.iter().product()))
}

/// The value of the constant `path`, as its module writes it.
fn constant(path: &str) -> Option<String> {
    let (module, name) = path.rsplit_once("::")?;
    let text = fs::read_to_string(file_of(module)?).ok()?;
    let (_, rest) = text.split_once(&format!("const {name}: "))?;
    let (declared, _) = rest.split_once(';')?;
    let (_type, value) = declared.split_once(" = ")?;
    Some(value.to_owned())
}

/// The values of the key `path` in `file`. `*` stands for any name.
fn values<'a>(file: &'a Value, path: &str) -> Vec<&'a Value> {
    let mut found = vec![file];
    for name in path.split('.') {
        found = found
            .into_iter()
            .flat_map(|value| match (value, name) {
                (Value::Object(members), "*") => members.values().collect(),
                (Value::Array(items), "*") => items.iter().collect(),
                (value, name) => value.get(name).into_iter().collect::<Vec<_>>(),
            })
            .collect();
    }
    found
}

/// The file with every key and its default.
fn reference() -> Value {
    let text = read("config/reference.yaml");
    Sources::default().parse("reference.yaml", &text, Format::Yaml).unwrap().to_json()
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => format!("{:.0}", number.as_f64().unwrap()),
        other => other.to_string(),
    }
}

/// What is wrong with a bound, if anything is.
fn problem(bound: &Bound<'_>, reference: &Value, manifest: &str) -> Option<String> {
    match *bound {
        Bound::Key(path, value) => {
            let found: Vec<String> = values(reference, path).into_iter().map(shown).collect();
            let holds = found.iter().any(|found| found == value);
            (!holds).then(|| format!("`{path}` is {found:?} in the reference, not {value}"))
        }
        Bound::Constant(path, value) => {
            let found = constant(path);
            let amount = found.as_deref().and_then(computed);
            let holds = amount.is_some() && amount == written(value);
            (!holds).then(|| format!("`{path}` is {found:?} in the source, not {value}"))
        }
        Bound::Crate(name) => {
            let holds = manifest.lines().any(|line| line.starts_with(&format!("{name} = ")));
            (!holds).then(|| format!("`{name}` is no crate of Cargo.toml"))
        }
    }
}

#[test]
fn every_row_is_whole() {
    let rows = rows();
    assert!(rows.len() > 70, "{}", rows.len());
    let mut seen = BTreeSet::new();
    for Row { heading, cells } in rows {
        assert_eq!(cells.len(), 5, "what, bound, answer, metric, tests: {cells:?}");
        assert!(cells.iter().all(|cell| !cell.is_empty()), "empty: {cells:?}");
        assert!(seen.insert((heading, cells[0].clone())), "twice: {cells:?}");
    }
    let page = read("docs/limits.md");
    let last = page.rsplit_once("\n## ").unwrap().1;
    assert!(last.starts_with("Not bounded\n\n- **"), "what has no bound is said at the end");
}

#[test]
fn every_bound_has_the_value_that_is_written() {
    let (reference, manifest) = (reference(), read("Cargo.toml"));
    let rows = rows();
    let all = rows.iter().flat_map(|row| bounds(&row.cells[1]));
    let wrong: Vec<String> =
        all.filter_map(|bound| problem(&bound, &reference, &manifest)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_metric_is_counted_and_every_label_written() {
    let families = read("src/telemetry/families.rs") + &read("src/telemetry/process.rs");
    let files = sources(&Path::new(ROOT).join("src"));
    let source: String = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let mut wrong = Vec::new();
    for Row { cells, .. } in rows() {
        let counted = &cells[3];
        let is_metric = |span: &&str| span.starts_with("mwl_") || span.starts_with("process_");
        if !counted.starts_with(UNCOUNTED) && !spans(counted).any(|span| is_metric(&span)) {
            wrong.push(format!("no metric: {counted}"));
        }
        for span in spans(counted).filter(|span| !span.starts_with('/')) {
            let name = span.strip_prefix("mwl_").unwrap_or(span);
            let place = if is_metric(&span) { &families } else { &source };
            // The labels of statuses are numbers.
            if name.parse::<u16>().is_err() && !place.contains(&format!("\"{name}\"")) {
                wrong.push(format!("{span} is not in the source"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_row_names_its_test() {
    let rows = rows();
    let missing: Vec<String> = rows.iter().flat_map(|row| missing(&row.cells[4])).collect();
    assert!(missing.is_empty(), "no such tests: {missing:#?}");
    let untested = rows.iter().filter(|row| row.cells[4].starts_with(UNTESTED)).count();
    assert!(untested < 8, "{untested} rows have no test");
}

/// A new key comes with its row.
#[test]
fn no_key_that_bounds_something_is_missing() {
    let reference = reference();
    let page = read("docs/limits.md");
    let sections = [
        ("limits", "limits"),
        ("shutdown", "shutdown"),
        ("upstreams.app", "upstreams.*"),
        ("routes.*.buffer", "routes.*.buffer"),
    ];
    let mut missing = Vec::new();
    for (path, section) in sections {
        let keys: BTreeSet<&String> = values(&reference, path)
            .into_iter()
            .flat_map(|value| value.as_object().unwrap().keys())
            .collect();
        assert!(!keys.is_empty(), "{path}");
        let named = |key: &&&String| page.contains(&format!("`{section}.{key}` (`"));
        let other = |key: &&&String| OTHER_KEYS.contains(&key.as_str());
        missing.extend(
            keys.iter()
                .filter(|key| !named(key) && !other(key))
                .map(|key| format!("{section}.{key}")),
        );
    }
    assert!(missing.is_empty(), "no row: {missing:#?}");
}

/// A page that names something that does not exist, or another value, would not pass.
#[test]
fn what_is_wrong_is_found() {
    assert_eq!(
        bounds("At most `a.b` (`1`), or `c::D` (`PT1S`). Library: `h2` counts"),
        [Bound::Key("a.b", "1"), Bound::Constant("c::D", "PT1S"), Bound::Crate("h2")]
    );
    let (reference, manifest) = (reference(), "h2 = 1\n");
    let wrong = |bound| problem(&bound, &reference, manifest).is_some();
    assert!(!wrong(Bound::Key("limits.headTimeout", "PT30S")));
    assert!(!wrong(Bound::Key("routes.*.buffer.request", "1MiB")));
    assert!(!wrong(Bound::Constant("language::engine::gather::MAX_DISPATCHES", "10000")));
    assert!(!wrong(Bound::Constant("proxy::h1::decode::EXTENSIONS", "16KiB")));
    assert!(!wrong(Bound::Constant("proxy::client::listener::PAUSE", "PT0.05S")));
    assert!(!wrong(Bound::Crate("h2")));
    assert!(wrong(Bound::Key("limits.headTimeout", "PT31S")));
    assert!(wrong(Bound::Key("limits.noSuchKey", "1")));
    assert!(wrong(Bound::Constant("language::engine::gather::MAX_DISPATCHES", "10001")));
    assert!(wrong(Bound::Constant("language::engine::gather::NO_SUCH", "1")));
    assert!(wrong(Bound::Constant("no::such::MODULE", "1")));
    assert!(wrong(Bound::Crate("no-such-crate")));
}
