//! Parsed texts against the tree that `serde_json` makes, and their account.

use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use super::*;

/// Allows so many bytes, and shows what is taken.
#[derive(Debug)]
struct Counted {
    taken: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    limit: usize,
}

impl Account for Counted {
    fn resize(&mut self, bytes: usize) -> bool {
        if bytes > self.limit {
            return false;
        }
        self.most.fetch_max(bytes, Ordering::Relaxed);
        self.taken.store(bytes, Ordering::Relaxed);
        true
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.taken.store(0, Ordering::Relaxed);
    }
}

fn parse(json: &str) -> Value {
    Value::parse(json.as_bytes(), ()).unwrap()
}

fn counted(limit: usize) -> (Counted, Arc<AtomicUsize>, Arc<AtomicUsize>) {
    let (taken, most) = (Arc::default(), Arc::default());
    let account = Counted { taken: Arc::clone(&taken), most: Arc::clone(&most), limit };
    (account, taken, most)
}

/// `{"a":1,"b":[[[…120 deep…]],…]}` of `size` bytes.
fn nested(size: usize) -> String {
    let deep = format!("{}{}", "[".repeat(120), "]".repeat(120));
    let count = size / (deep.len() + 1);
    format!(r#"{{"a":1,"b":[{}]}}"#, vec![deep; count].join(","))
}

#[test]
fn members_are_found_and_elements_too() {
    let value = parse(r#"{"b":[1,{"x":"y\n"},[]],"a":null,"é":true,"a":-2.5}"#);
    assert_eq!(value.get("a"), Some(Value::Number(-2.5)));
    assert_eq!(value.get("c"), None);
    assert_eq!(value.get("é"), Some(Value::Bool(true)));
    let Some(Value::Array(items)) = value.get("b") else { unreachable!() };
    assert_eq!(items.get(1).unwrap().get("x"), Some(Value::from("y\n")));
    assert_eq!((items.len(), items.get(3)), (3, None));
    assert_eq!(value.to_string(), r#"{"a":-2.5,"b":[1,{"x":"y\n"},[]],"é":true}"#);
}

#[test]
fn what_is_not_json_is_refused_as_serde_json_does() {
    let deep = format!("{}{}", "[".repeat(128), "]".repeat(128));
    for text in ["", "{", "[1,]", "{a:1}", "1 2", "nul", "1e400", "\"\\ud800\"", &deep] {
        let known = serde_json::from_str::<serde_json::Value>(text).unwrap_err();
        match Value::parse(text.as_bytes(), ()) {
            Err(ParseError::Invalid(error)) => assert_eq!(error.to_string(), known.to_string()),
            other => unreachable!("{text}: {other:?}"),
        }
    }
}

#[test]
fn a_mebibyte_of_nested_arrays_takes_less_than_nine() {
    let text = nested(1 << 20);
    let (account, taken, most) = counted(usize::MAX);
    let value = Value::parse(text.as_bytes(), account).unwrap();
    assert!((7 << 20..9 << 20).contains(&taken.load(Ordering::Relaxed)), "{taken:?}");
    assert!(most.load(Ordering::Relaxed) < 9 << 20, "{most:?}");
    let Some(Value::Array(rows)) = value.get("b") else { unreachable!() };
    let row = rows.get(rows.len() / 2);
    drop((value, rows));
    assert_ne!(taken.load(Ordering::Relaxed), 0, "a part of it is still there");
    drop(row);
    assert_eq!(taken.load(Ordering::Relaxed), 0);
}

#[test]
fn an_account_that_refuses_ends_the_parsing() {
    let text = nested(1 << 16);
    let (account, taken, most) = counted(100_000);
    let refused = Value::parse(text.as_bytes(), account);
    assert!(matches!(refused, Err(ParseError::Full)), "{refused:?}");
    assert_eq!(taken.load(Ordering::Relaxed), 0);
    assert!(most.load(Ordering::Relaxed) <= 100_000);
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i32>().prop_map(Into::into),
        (-1e9..1e9).prop_map(|number: f64| number.into()),
        "\\PC{0,6}".prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
            prop::collection::btree_map("[a-c]{0,2}", inner, 0..6)
                .prop_map(|map| map.into_iter().collect::<serde_json::Map<_, _>>().into()),
        ]
    })
}

proptest! {
    #[test]
    fn a_parsed_text_is_the_tree_s_equal(tree in json()) {
        let parsed = parse(&tree.to_string());
        let plain = Value::from(tree);
        prop_assert_eq!(&parsed, &plain);
        prop_assert_eq!(&plain, &parsed);
        prop_assert_eq!(parsed.to_string(), plain.to_string());
        prop_assert_eq!(parsed.to_json(), plain.to_json());
    }
}
