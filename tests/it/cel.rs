//! Runs the CEL suite (google/cel-spec, `tests/simple`) in the environment of this crate's expressions.
//!
//! The suite is not part of this repository: `CEL_SPEC_TESTS` names a file with its tests as JSON, an array
//! of `{file, section, name, expr, group, feature?, skip?, container?, bindings?, expect}`. Without it, a
//! small table of our own runs, and says so.

use mwl_proxy::language::expr::testing::{NanEqual, Typed, evaluate};
use serde_json::Value as Json;

/// How many tests of the core language can run: all except those that need protobuf messages or only check
/// types.
const CORE: usize = 1_100;

/// How many tests of the `strings`, `math` and `encoders` extensions can run.
const EXTENSIONS: usize = 416;

#[test]
fn the_cel_suite_passes() {
    let Some(path) = std::env::var_os("CEL_SPEC_TESTS") else {
        #[expect(clippy::print_stdout, reason = "a test says what it did not do")]
        {
            println!("CEL_SPEC_TESTS is not set: a table of our own was run, not the CEL suite");
        }
        return own_table();
    };
    let text = std::fs::read_to_string(&path).unwrap();
    let tests: Vec<Json> = serde_json::from_str(&text).unwrap();
    let (core, failed_core) = run(&tests, |test| test["group"] == "core");
    let (extensions, failed_extensions) = run(&tests, |test| {
        let feature = test["feature"].as_str().unwrap_or_default();
        test["group"] == "ext" && matches!(feature, "strings" | "math" | "encoders")
    });
    let failed = [failed_core, failed_extensions].concat();
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
    assert_eq!((core, extensions), (CORE, EXTENSIONS));
}

/// How many of the chosen tests ran, and the messages of those that failed.
fn run(tests: &[Json], chosen: impl Fn(&Json) -> bool) -> (usize, Vec<String>) {
    let chosen: Vec<&Json> =
        tests.iter().filter(|test| chosen(test) && test.get("skip").is_none()).collect();
    let failed = chosen.iter().filter_map(|test| failure(test)).collect();
    (chosen.len(), failed)
}

/// Why `test` failed, if it did.
fn failure(test: &Json) -> Option<String> {
    let expr = test["expr"].as_str().unwrap();
    let empty = serde_json::Map::new();
    let bindings = test.get("bindings").and_then(Json::as_object).unwrap_or(&empty);
    let variables: Vec<_> =
        bindings.iter().map(|(name, value)| (name.clone(), typed(value))).collect();
    let container = test.get("container").and_then(Json::as_str);
    let result = evaluate(expr, &variables, container);
    let expected = match test["expect"].get("value") {
        Some(value) => Ok(typed(value)),
        None if test["expect"].get("error").is_some() => Err(()),
        None => panic!("{test}"),
    };
    let passed = match (&result, &expected) {
        (Ok(result), Ok(expected)) => same(result, expected),
        (Err(_), Err(())) => true,
        _ => false,
    };
    let name = |part: &str| test[part].as_str().unwrap_or_default();
    (!passed).then(|| {
        format!(
            "{}/{}/{}: {expr}\n    gives {result:?}\n    wants {expected:?}",
            name("file"),
            name("section"),
            name("name")
        )
    })
}

/// Equality in which the order of maps does not matter.
fn same(a: &Typed, b: &Typed) -> bool {
    match (a, b) {
        (Typed::List(a), Typed::List(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Typed::Map(a), Typed::Map(b)) => {
            a.len() == b.len()
                && a.iter().all(|(key, value)| {
                    b.iter().any(|(other, found)| same(key, other) && same(value, found))
                })
        }
        (a, b) => a == b,
    }
}

/// A value in the suite's notation: `{"t": type, "v": …}`.
fn typed(value: &Json) -> Typed {
    let v = &value["v"];
    let text = || v.as_str().unwrap();
    match value["t"].as_str().unwrap() {
        "null" => Typed::Null,
        "bool" => Typed::Bool(v.as_bool().unwrap()),
        "int" => Typed::Int(text().parse().unwrap()),
        "uint" => Typed::Uint(text().parse().unwrap()),
        "double" => Typed::Double(NanEqual(text().parse().unwrap())),
        "string" => Typed::String(text().to_owned()),
        "bytes" => Typed::Bytes(base64(text())),
        "list" => Typed::List(v.as_array().unwrap().iter().map(typed).collect()),
        "map" => {
            let entries = v.as_array().unwrap().iter();
            Typed::Map(entries.map(|entry| (typed(&entry[0]), typed(&entry[1]))).collect())
        }
        "timestamp" => {
            let nanos = u32::try_from(v[1].as_i64().unwrap()).unwrap();
            Typed::Timestamp(seconds(&v[0]), nanos)
        }
        "duration" => {
            let nanos = i32::try_from(v[1].as_i64().unwrap()).unwrap();
            Typed::Duration(seconds(&v[0]), nanos)
        }
        "type" => Typed::Type(text().to_owned()),
        "optional" => Typed::Optional((!v.is_null()).then(|| Box::new(typed(v)))),
        other => Typed::Other(other.to_owned()),
    }
}

fn seconds(value: &Json) -> i64 {
    value.as_i64().or_else(|| value.as_str()?.parse().ok()).unwrap()
}

fn base64(text: &str) -> Vec<u8> {
    let digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0_u32, 0);
    for char in text.chars().filter(|char| *char != '=') {
        bits = bits << 6 | u32::try_from(digits.find(char).unwrap()).unwrap();
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push(u8::try_from(bits >> held & 0xff).unwrap());
        }
    }
    bytes
}

/// A small selection of what the suite checks.
fn own_table() {
    let int = |int| Ok(Typed::Int(int));
    let text = |text: &str| Ok(Typed::String(text.to_owned()));
    let bool = |bool| Ok(Typed::Bool(bool));
    let variables = [("x".to_owned(), Typed::List(vec![Typed::Int(1), Typed::Uint(2)]))];
    for (expr, expected) in [
        ("1 + 2 * 3", int(7)),
        ("x[1] == 2", bool(true)),
        ("x.map(i, i == 1)", Ok(Typed::List(vec![Typed::Bool(true), Typed::Bool(false)]))),
        ("'a' in {'a': 1}", bool(true)),
        ("{1: 'a'} == {1u: 'a'}", bool(true)),
        ("[1, 1.0, 1u].distinct().size()", int(1)),
        ("'tacocat'.indexOf('cat')", int(4)),
        ("'tacocat'.lastIndexOf('c', 3)", int(2)),
        ("'%d of %s'.format([1, 'two'])", text("1 of two")),
        ("math.greatest(1, 2.5, 2)", Ok(Typed::Double(NanEqual(2.5)))),
        ("base64.encode(b'hello')", text("aGVsbG8=")),
        ("duration('90s500ms').getMilliseconds()", int(500)),
        ("duration('1h 1s')", Err(())),
        ("timestamp('2024-01-15T09:30:00.25Z').getMilliseconds()", int(250)),
        ("type(x) == list", bool(true)),
        ("1 + 1.0", Err(())),
        ("1 / 0", Err(())),
        ("1 / 0 > 1 || true", bool(true)),
        ("'aaa'.matches('^a+$') && matches('b', 'B' + '?')", bool(true)),
        ("sets.equivalent([1, 2, 2], [2u, 1.0])", bool(true)),
    ] {
        let result = evaluate(expr, &variables, None);
        match expected {
            Ok(expected) => assert_eq!(result.as_ref(), Ok(&expected), "{expr}"),
            Err(()) => assert!(result.is_err(), "{expr}: {result:?}"),
        }
    }
}
