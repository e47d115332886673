//! The writer, and what readers share.

use proptest::prelude::*;

use super::noetl_when::parse;
use super::read::duration;
use super::yaml::{Entry, Item, Tree};
use crate::language::temporal::Span;
use crate::source::{Format, Sources};

#[test]
fn short_collections_stand_on_a_line_and_others_in_blocks() {
    let long = Tree::texts(["a"; 40]);
    let tree = Tree::Map(vec![
        Entry::new(
            "short",
            Tree::map([("a", Tree::word(1)), ("b", Tree::texts(["x", "5xx", "1"]))]),
        ),
        Entry::block("open", Tree::Map(vec![Entry::new("a", Tree::word(1))])),
        Entry::new(
            "items",
            Tree::List(vec![
                Item::new(vec!["One.".to_owned()], Tree::map([("a", Tree::text("b c"))])),
                Item::new(
                    Vec::new(),
                    Tree::Map(vec![
                        Entry::new("b", Tree::word(2)).below(vec!["Before the dash.".to_owned()]),
                        Entry::block("c", Tree::List(vec![Item::new(Vec::new(), Tree::word(3))])),
                    ]),
                ),
            ]),
        ),
        Entry::new("empty", Tree::list([])),
    ]);
    let written = "\
short: { a: 1, b: [x, 5xx, \"1\"] }
open:
  a: 1
items:
  # One.
  - { a: \"b c\" }
  # Before the dash.
  - b: 2
    c:
      - 3
empty: []
";
    assert_eq!(tree.document(), written);
    let block = Tree::map([("k", long)]).document();
    assert!(block.starts_with("k:\n  - a\n  - a\n"), "{block}");
}

#[test]
fn durations_have_units() {
    let seconds = |text: &str, bare| duration(text, bare).map(|span| span.to_string());
    for (text, bare, wanted) in [
        ("1h30m", None, Some("PT1H30M")),
        ("0.25s", None, Some("PT0.25S")),
        ("250ms", None, Some("PT0.25S")),
        ("10", Some("s"), Some("PT10S")),
        (".5", Some("s"), Some("PT0.5S")),
        ("1m 30s", None, Some("PT1M30S")),
        ("10", None, None),
        ("", Some("s"), None),
        ("-1s", None, None),
        ("5 parsecs", None, None),
    ] {
        assert_eq!(seconds(text, bare).as_deref(), wanted, "{text}");
    }
    assert_eq!(duration("99999999999999999999s", None), None);
    assert!(duration("18446744073709551615w", None) > Some(Span::ZERO));
}

#[test]
fn conditions_of_rules_become_statuses() {
    let said = |text: &str| {
        let holds = parse(text).holds()?;
        let statuses = (holds.statuses.len(), holds.statuses.first().copied());
        Some((statuses.0, statuses.1, holds.transport, holds.success, holds.when))
    };
    let none = || None::<String>;
    for (text, wanted) in [
        ("{{ outcome.status == 'error' }}", Some((200, Some(400), true, false, none()))),
        ("{{ outcome.http.status in [429, 503] }}", Some((2, Some(429), false, false, none()))),
        ("{{ status_code >= 500 or error != None }}", Some((200, Some(400), true, false, none()))),
        (
            "{{ not (status_code < 500) and status_code != 501 }}",
            Some((99, Some(500), true, false, none())),
        ),
        ("{{ outcome.status == 'ok' }}", Some((0, None, false, true, none()))),
        (
            "{{ outcome.pg.code in ['40001'] }}",
            Some((
                200,
                Some(400),
                false,
                false,
                Some("has(response.body.code) && response.body.code in ['40001']".into()),
            )),
        ),
        ("{{ weather == 'fine' }}", None),
        ("{{ status_code >= }}", None),
        ("", None),
    ] {
        assert_eq!(said(text), wanted, "{text}");
    }
}

proptest! {
    #[test]
    fn every_string_is_read_as_it_was_written(key in any::<String>(), text in any::<String>(), list in any::<bool>()) {
        let value = Tree::own(&text);
        let value = if list { Tree::list([value]) } else { value };
        let written = Tree::map([(key.as_str(), value)]).document();
        let node = Sources::default().parse("written.yaml", &written, Format::Yaml);
        let node = node.map_err(|found| TestCaseError::fail(format!("{found:?}\n{written}")))?;
        let member = &node.as_object().unwrap()[0];
        let value = if list { &member.value.as_array().unwrap()[0] } else { &member.value };
        prop_assert_eq!(&*member.key, key.as_str());
        prop_assert_eq!(value.as_str().map(|text| &**text), Some(text.as_str()), "{}", written);
    }
}
