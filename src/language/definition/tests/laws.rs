//! Compilation ends with a plan or with errors, whatever is written.

use proptest::prelude::*;

use super::*;

/// Definitions that the laws start from. They must compile.
const GOOD: [&str; 2] = [
    r#"{"$schema":"https://mwl.dev/v0.1/flow/schema.json","entrypoint":"a","flows":{"F":{"entrypoint":"x","steps":{"x":{"action":"Return"}}}},"middleware":[{"provider":"mwl:provider.middleware/mwl/retry/v1","onEntry":{"with":{"policies":[{"match":{"codes":["A.*"]},"attempts":2}]}},"onFailure":{"code":"B.C","assign":{"n":"{{ middleware.metadata.attempt }}"}}}],"parameters":{"type":"object","properties":{"p":{"type":"string"}}},"steps":{"a":{"action":"Call","call":{"flow":"F","with":{},"onSuccess":{"assign":{"x":"{{ flow.result }}"}}},"catch":[{"match":{"types":["error"]},"next":"b"}],"next":"b"},"b":{"action":"Match","cases":[{"when":"{{ match.input == 1 }}","next":"c"}],"default":{"next":"c"}},"c":{"action":"Gather","over":[1,2],"call":{"provider":"mwl:provider.call/mwl/mock/v1","with":{"value":"{{ call.index }}"}},"completion":{"successes":1},"next":"d"},"d":{"action":"Sleep","for":"PT1S","next":"e"},"e":{"action":"Raise","result":{"code":"X.Y"}}}}"#,
    r#"{"$schema":"https://mwl.dev/v0.1/flow/schema.json","entrypoint":"a","steps":{"a":{"action":"Call","middleware":[{"provider":"mwl:provider.middleware/mwl/finally/v1","onAlways":{"with":{"call":{"provider":"mwl:provider.call/mwl/mock/v1","input":"{{ middleware.result }}"},"middleware":[{"provider":"mwl:provider.middleware/mwl/timeout/v1","onEntry":{"with":{"duration":"PT1S"}}}]}}},{"provider":"mwl:provider.middleware/mwl/loop/v1","onSuccess":{"when":"{{ middleware.metadata.iteration < 2 }}"}}],"call":{"flow":{"entrypoint":"i","steps":{"i":{"action":"Pass","output":{"a":"{{ step.input }}"},"next":"j"},"j":{"action":"Return"}}}},"next":"b"},"b":{"action":"Return","value":"{{ vars.x }}"}}}"#,
];

/// The definitions under `directory`.
fn definitions(directory: std::path::PathBuf) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut open = vec![directory];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.ends_with("definition.json") {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((path.display().to_string(), text));
            }
        }
    }
    found
}

/// The project's own cases, and those of a corpus if `MWL_CONFORMANCE_DIR` names one.
fn cases() -> Vec<(String, String)> {
    let own = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut all = definitions(own);
    assert!(!all.is_empty(), "tests/cases holds no definition.json");
    if let Some(given) = std::env::var_os("MWL_CONFORMANCE_DIR") {
        let given = definitions(given.into());
        assert!(!given.is_empty(), "MWL_CONFORMANCE_DIR holds no definition.json");
        all.extend(given);
    }
    all
}

#[test]
fn every_definition_at_hand_compiles() {
    let own = GOOD.iter().chain([&plans::EVERYTHING]);
    let own = own.map(|text| ("own".to_owned(), (*text).to_owned()));
    let good = cases().into_iter().filter(|(name, _)| !name.contains("ill-formed"));
    let mut wrong = Vec::new();
    for (name, text) in own.chain(good) {
        if let Err(rendered) = compiled(&text, Strictness::Runtime) {
            wrong.push(format!("{name}:\n{rendered}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_ill_formed_definition_is_refused() {
    let bad = cases().into_iter().filter(|(name, _)| name.contains("ill-formed"));
    let bad: Vec<(String, String)> = bad.collect();
    assert!(bad.len() > 40);
    for (name, text) in bad {
        assert!(compiled(&text, Strictness::Runtime).is_err(), "{name} compiles");
    }
}

/// Makes one change to a tree: replaces, removes or renames the value with the number `at`.
fn mutate(node: &mut serde_json::Value, at: &mut usize, change: &Change) {
    if *at == 0 {
        *at = usize::MAX;
        if let Change::Replace(text) = change {
            *node = serde_json::from_str(text).unwrap();
        }
        return;
    }
    *at -= 1;
    match node {
        serde_json::Value::Array(items) => {
            for item in items.iter_mut() {
                if *at != usize::MAX {
                    mutate(item, at, change);
                }
            }
        }
        serde_json::Value::Object(members) => {
            let keys: Vec<String> = members.keys().cloned().collect();
            for key in keys {
                if *at == usize::MAX {
                    break;
                }
                if *at > 0 || matches!(change, Change::Replace(_)) {
                    mutate(&mut members[&key], at, change);
                    continue;
                }
                *at = usize::MAX;
                let value = members.remove(&key).unwrap_or_default();
                if let Change::Rename(name) = change {
                    members.insert(name.clone(), value);
                }
            }
        }
        _ => {}
    }
}

#[derive(Clone, Debug)]
enum Change {
    Replace(String),
    Remove,
    Rename(String),
}

fn change() -> impl Strategy<Value = Change> {
    let values = vec![
        "null",
        "true",
        "0",
        "-1",
        "1.5",
        "\"\"",
        "\"x\"",
        "\"{{ }}\"",
        "\"{{ vars.x }}\"",
        "\"{{ step }}\"",
        "[]",
        "{}",
        "[[]]",
        "\"*\"",
        "\"success\"",
        "\"Call\"",
        "\"a\"",
        "\"F\"",
        "{\"flow\":\"F\"}",
        "\"mwl:\"",
        "{\"call\":3}",
        "{\"action\":\"Return\"}",
        "\"{{\"",
        "\"}}\"",
        "\"{{}}\"",
        "\"PT\"",
    ];
    let names = vec![
        "", "a", "with", "when", "next", "flow", "$schema", "comment", "{{ x }}", "~/", "action",
    ];
    prop_oneof![
        proptest::sample::select(values).prop_map(|text| Change::Replace(text.to_owned())),
        Just(Change::Remove),
        proptest::sample::select(names).prop_map(|name| Change::Rename(name.to_owned())),
    ]
}

proptest! {
    #[test]
    fn a_changed_definition_compiles_or_is_refused(
        which in 0..GOOD.len(),
        changes in proptest::collection::vec((0usize..120, change()), 1..4),
        load in any::<bool>(),
    ) {
        let mut document: serde_json::Value = serde_json::from_str(GOOD[which]).unwrap();
        for (mut at, change) in changes {
            mutate(&mut document, &mut at, &change);
        }
        let strictness = if load { Strictness::Load } else { Strictness::Runtime };
        let mut sources = Sources::default();
        let text = document.to_string();
        let node = sources.parse("f", &text, Format::Json).unwrap();
        let found = match compile(&node, &support::catalog(), strictness) {
            Ok((_, warnings)) => {
                prop_assert!(!warnings.has_errors());
                warnings
            }
            Err(found) => {
                prop_assert!(found.has_errors());
                found
            }
        };
        // Every place is inside the document, and both kinds of report can be made.
        for diagnostic in &found.0 {
            let span = sources.place(diagnostic);
            prop_assert!(text.get(span.start as usize..span.end as usize).is_some());
        }
        prop_assert_eq!(found.is_empty(), sources.render(&found).is_empty());
        prop_assert_eq!(found.0.len(), sources.to_json(&found).as_array().map_or(0, Vec::len));
    }
}
