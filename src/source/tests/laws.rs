//! Printing and reading are inverse, and no text makes a parser panic.

use super::*;
use proptest::prelude::*;

fn node() -> impl Strategy<Value = Node> {
    let kind = prop_oneof![
        Just(Kind::Null),
        any::<bool>().prop_map(Kind::Bool),
        any::<f64>().prop_filter("finite", |n| n.is_finite()).prop_map(Kind::Number),
        any::<String>().prop_map(|text| Kind::String(text.into())),
    ];
    let leaf = kind.prop_map(|kind| Node { span: Span::default(), kind });
    leaf.prop_recursive(5, 64, 6, |inner| {
        let items = proptest::collection::vec(inner.clone(), 0..6)
            .prop_map(|items| Kind::Array(items.into()));
        let members = proptest::collection::btree_map(any::<String>(), inner, 0..6)
            .prop_map(|map| Kind::Object(map.into_iter().map(member).collect()));
        prop_oneof![items, members].prop_map(|kind| Node { span: Span::default(), kind })
    })
}

fn member((key, value): (String, Node)) -> Member {
    let key_span = Span::default();
    Member { key: key.into(), key_span, value }
}

/// Text that looks like a document, so that the parsers get past its first character.
fn document_like() -> impl Strategy<Value = String> {
    let token = proptest::sample::select(vec![
        "{", "}", "[", "]", ":", ",", "\"", "'", "a", "b: ", "- ", "\n", "  ", "\t", "|", ">",
        "&x ", "*x", "!t ", "? ", "<<", "---", "...", "#", "%", "1", "-", "e9", "0x", "~", "\\u",
        "d83d", "\u{feff}", "é", "\r", "\u{85}", "\u{2028}", "{{", "}}", "null", "\\", "\0",
    ]);
    proptest::collection::vec(token, 0..40).prop_map(|tokens| tokens.concat())
}

proptest! {
    #[test]
    fn what_is_printed_is_read_back(node in node()) {
        let read = parse(&node.to_string(), Format::Json);
        prop_assert_eq!(read, Ok(node));
    }

    #[test]
    fn any_text_is_read_or_refused(text in any::<String>()) {
        for format in [Format::Json, Format::Yaml] {
            let _either = parse(&text, format);
        }
    }

    #[test]
    fn document_like_text_is_read_or_refused(text in document_like()) {
        for format in [Format::Json, Format::Yaml] {
            let _either = parse(&text, format);
        }
    }

    #[test]
    fn places_lie_within_the_text(text in document_like()) {
        let mut sources = Sources::default();
        for format in [Format::Json, Format::Yaml] {
            let found = sources.parse("f", &text, format).err().unwrap_or_default();
            for diagnostic in &found.0 {
                let span = sources.place(diagnostic);
                let range = span.start as usize..span.end as usize;
                prop_assert!(text.get(range).is_some(), "{:?}", diagnostic);
            }
        }
    }
}
