use std::fmt::Write as _;

use super::*;

fn parse(text: &str, format: Format) -> Result<Node, String> {
    let mut sources = Sources::default();
    let name = if format == Format::Json { "f.json" } else { "f.yaml" };
    let parsed = sources.parse(name, text, format);
    parsed.map_err(|found| sources.render(&found))
}

fn yaml(text: &str) -> String {
    parse(text, Format::Yaml).unwrap().to_string()
}

fn refused(text: &str, format: Format) -> String {
    parse(text, format).unwrap_err()
}

#[test]
fn yaml_reads_the_core_schema() {
    for (written, read) in [
        ("no", r#""no""#),
        ("off", r#""off""#),
        ("on", r#""on""#),
        ("y", r#""y""#),
        ("Yes", r#""Yes""#),
        ("010", "10"),
        ("0o10", "8"),
        ("0x1F", "31"),
        ("1:30", r#""1:30""#),
        ("1_000", r#""1_000""#),
        ("0b1", r#""0b1""#),
        ("1e3", "1000"),
        ("-.5", "-0.5"),
        ("+1.", "1"),
        ("1.2.3", r#""1.2.3""#),
        ("2024-01-15", r#""2024-01-15""#),
        ("1-2", r#""1-2""#),
        ("-", r"[null]"),
        (".", r#"".""#),
        ("~", "null"),
        ("NULL", "null"),
        ("nUll", r#""nUll""#),
        ("True", "true"),
        ("'true'", r#""true""#),
        ("\"1\"", r#""1""#),
        ("|\n  a\n  b\n", r#""a\nb\n""#),
        (">-\n  a\n  b\n", r#""a b""#),
        ("\"\\ud83d\\ude00\"", "\"😀\""),
    ] {
        assert_eq!(yaml(written), read, "{written}");
    }
}

#[test]
fn yaml_on_is_a_key_like_any_other() {
    assert_eq!(yaml("on: 1\nno: 2\n\"<<\": 3\n"), r#"{"on":1,"no":2,"<<":3}"#);
}

#[test]
fn aliases_stand_for_what_their_anchor_names() {
    let text = "a: &x { n: 1 }\nb: *x\nc: [*x, *x]\n";
    assert_eq!(yaml(text), r#"{"a":{"n":1},"b":{"n":1},"c":[{"n":1},{"n":1}]}"#);
}

#[test]
fn json_numbers_and_strings_are_read_as_rfc_8259_says() {
    let text = r#"[0, -0.5, 1e2, 12345678901234567890, "\ud83d\ude00\/\u0000", null, true]"#;
    let node = parse(text, Format::Json).unwrap();
    assert_eq!(node.to_string(), r#"[0,-0.5,100,1.2345678901234567e+19,"😀/\u0000",null,true]"#);
}

#[test]
fn a_byte_order_mark_is_skipped() {
    assert_eq!(parse("\u{feff}[1]", Format::Json).unwrap().to_string(), "[1]");
    assert_eq!(yaml("\u{feff}a: 1"), r#"{"a":1}"#);
    let mut sources = Sources::default();
    let node = sources.parse("f", "\u{feff}[1]", Format::Json).unwrap();
    assert_eq!(sources.position(node.as_array().unwrap()[0].span), (1, 2));
}

#[test]
fn what_is_not_json_is_refused_in_its_place() {
    for bad in [
        "[1,]",
        "{\"a\":1,}",
        "[1 2]",
        "{\"a\" 1}",
        "{a:1}",
        "['a']",
        "[01]",
        "[1.]",
        "[.5]",
        "[+1]",
        "[0x1]",
        "[NaN]",
        "[Infinity]",
        "// c\n1",
        "[1] 2",
        "[\"\t\"]",
        "[\"\\x41\"]",
        "[\"\\ud83d\"]",
        "[1",
        "\"a",
        "{\"a\":}",
        "nul",
        "[1}\n",
        "{} {}",
        "{\"a\":{}{}}",
        "[[][]]",
    ] {
        let rendered = refused(bad, Format::Json);
        assert!(rendered.starts_with("error[invalid-json]"), "{bad}: {rendered}");
    }
}

#[test]
fn a_repeated_key_is_shown_in_both_places() {
    let text = "{\n  \"a\": 1,\n  \"\\u0061\": 2,\n  \"b\": { \"c\": 1, \"c\": 2 }\n}\n";
    insta::assert_snapshot!(refused(text, Format::Json), @r#"
    error[duplicate-key]: the key `a` is written twice in one object
     --> f.json:3:3
      |
    3 |   "\u0061": 2,
      |   ^^^^^^^^
     ::: f.json:2:3
      |
    2 |   "a": 1,
      |   ^^^ first written here
      = help: remove one of the two

    error[duplicate-key]: the key `c` is written twice in one object
     --> f.json:4:18
      |
    4 |   "b": { "c": 1, "c": 2 }
      |                  ^^^
     ::: f.json:4:10
      |
    4 |   "b": { "c": 1, "c": 2 }
      |          ^^^ first written here
      = help: remove one of the two
    "#);
    insta::assert_snapshot!(refused("a: 1\nb: 2\n'a': 3\n", Format::Yaml), @r"
    error[duplicate-key]: the key `a` is written twice in one object
     --> f.yaml:3:1
      |
    3 | 'a': 3
      | ^^^
     ::: f.yaml:1:1
      |
    1 | a: 1
      | ^ first written here
      = help: remove one of the two
    ");
}

#[test]
fn json_errors_say_what_to_do() {
    let all = [
        "{\n  \"a\": 1,\n}",
        "{\"a\": 1} x",
        "{\"a\": 'x'}",
        "[1, // one\n2]",
        "{\"a\": [1, 2",
        "[1e999]",
        "",
        " \n",
    ];
    let rendered = all.map(|text| refused(text, Format::Json)).join("\n");
    insta::assert_snapshot!(rendered, @r#"
    error[invalid-json]: not JSON: trailing comma
     --> f.json:3:1
      |
    3 | }
      | ^
      = help: remove the comma before the bracket

    error[invalid-json]: not JSON: trailing characters
     --> f.json:1:10
      |
    1 | {"a": 1} x
      |          ^
      = help: a file holds one value; remove what follows it

    error[invalid-json]: not JSON: expected value
     --> f.json:1:7
      |
    1 | {"a": 'x'}
      |       ^
      = help: JSON strings stand in double quotes

    error[invalid-json]: not JSON: expected value
     --> f.json:1:5
      |
    1 | [1, // one
      |     ^
      = help: JSON has no comments; write a `comment` member, or write YAML

    error[invalid-json]: not JSON: the text ends too early (EOF while parsing a list)
     --> f.json:1:12
      |
    1 | {"a": [1, 2
      |            ^
      = help: close the bracket or the quote that is open

    error[number-out-of-range]: the number `1e999` is not one that a 64-bit double holds
     --> f.json:1:2
      |
    1 | [1e999]
      |  ^^^^^
      = help: write a number between -1.7e308 and 1.7e308, or a string

    error[empty-document]: the file is empty; a JSON value was wanted
     --> f.json:1:1
      |
    1 | 
      | ^

    error[empty-document]: the file is empty; a JSON value was wanted
     --> f.json:1:1
      |
    1 | 
      | ^
    "#);
}

#[test]
fn yaml_that_json_cannot_say_is_refused() {
    let all = [
        "a: {{ step.input }}\n",
        "404: x\n",
        "? [a]\n: b\n",
        "null: x\n",
        "a: &x {b: 1}\nc:\n  <<: *x\n  d: 1\n",
        "a: !!str 1\n",
        "a: 1\n---\nb: 2\n",
        "%YAML 1.1\n---\na: 1\n",
        "a: .inf\n",
        "a: 1e999\n",
    ];
    let rendered = all.map(|text| refused(text, Format::Yaml)).join("\n");
    insta::assert_snapshot!(rendered, @r#"
    error[yaml-key-not-string]: a key must be a string; this one is an object
     --> f.yaml:1:5
      |
    1 | a: {{ step.input }}
      |     ^^^^^^^^^^^^^^
      = help: put an expression in quotes: "{{ … }}"

    error[yaml-key-not-string]: a key must be a string; this one is a number
     --> f.yaml:1:1
      |
    1 | 404: x
      | ^^^
      = help: put the key in quotes

    error[yaml-key-not-string]: a key must be a string; this one is an array
     --> f.yaml:1:3
      |
    1 | ? [a]
      |   ^^^
      = help: put the key in quotes

    error[yaml-key-not-string]: a key must be a string; this one is null
     --> f.yaml:1:1
      |
    1 | null: x
      | ^^^^
      = help: put the key in quotes

    error[yaml-merge-key]: merge keys (`<<`) are not read: YAML 1.2 has none
     --> f.yaml:3:3
      |
    3 |   <<: *x
      |   ^^
      = help: write the members out, or use an alias for the whole value

    error[yaml-tag]: a tag (`!…`) stands before this value; tags are not read
     --> f.yaml:1:10
      |
    1 | a: !!str 1
      |          ^
      = help: remove it; put a string in quotes

    error[multiple-documents]: a second document starts here; a file holds one
     --> f.yaml:2:1
      |
    2 | ---
      | ^^^
      = help: put it into a file of its own

    error[invalid-yaml]: directives (`%…`) are not read
     --> f.yaml:1:1
      |
    1 | %YAML 1.1
      | ^
      = help: remove the line; YAML 1.2 is read without one

    error[number-out-of-range]: the number `.inf` is not one that a 64-bit double holds
     --> f.yaml:1:4
      |
    1 | a: .inf
      |    ^^^^
      = help: write a number between -1.7e308 and 1.7e308, or a string

    error[number-out-of-range]: the number `1e999` is not one that a 64-bit double holds
     --> f.yaml:1:4
      |
    1 | a: 1e999
      |    ^^^^^
      = help: write a number between -1.7e308 and 1.7e308, or a string
    "#);
}

#[test]
fn yaml_errors_say_what_to_do() {
    let all = [
        "a: &x [*x]\n",
        "a: *nothing\n",
        "a:\n\t- b\n",
        "a: [1, 2\n",
        "a: b: c\n",
        "",
        "# nothing\n",
        "---\n",
    ];
    let rendered = all.map(|text| refused(text, Format::Yaml)).join("\n");
    insta::assert_snapshot!(rendered, @r"
    error[yaml-alias-loop]: this alias stands inside the value that it names
     --> f.yaml:1:8
      |
    1 | a: &x [*x]
      |        ^^

    error[invalid-yaml]: this alias names no anchor before it
     --> f.yaml:1:4
      |
    1 | a: *nothing
      |    ^
      = help: put a text that starts with `*` in quotes

    error[invalid-yaml]: a tab indents this line
     --> f.yaml:2:2
      |
    2 |  - b
      |  ^
      = help: indent with spaces

    error[invalid-yaml]: not YAML: unclosed bracket '['
     --> f.yaml:1:4
      |
    1 | a: [1, 2
      |    ^

    error[invalid-yaml]: not YAML: mapping values are not allowed in this context
     --> f.yaml:1:5
      |
    1 | a: b: c
      |     ^

    error[empty-document]: the file is empty; a YAML value was wanted
     --> f.yaml:1:1
      |
    1 | 
      | ^

    error[empty-document]: the file is empty; a YAML value was wanted
     --> f.yaml:1:1
      |
    1 | # nothing
      | ^

    error[empty-document]: the file is empty; a YAML value was wanted
     --> f.yaml:1:1
      |
    1 | ---
      | ^
    ");
}

#[test]
fn the_format_is_known_by_the_name() {
    assert_eq!(Format::of_name("a/b.JSON"), Format::Json);
    assert_eq!(Format::of_name("a.json/b.yaml"), Format::Yaml);
    assert_eq!(Format::of_name("config"), Format::Yaml);
}

#[test]
fn an_alias_bomb_is_refused_at_once() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..40 {
        let inner = vec![format!("*a{}", level - 1); 10].join(", ");
        writeln!(text, "a{level}: &a{level} [{inner}]").unwrap();
    }
    let rendered = refused(&text, Format::Yaml);
    assert!(rendered.starts_with("error[yaml-alias-bomb]"), "{rendered}");
}

#[test]
fn depth_is_bounded_in_both_formats() {
    for (format, deep) in
        [(Format::Json, 101), (Format::Json, 100_000), (Format::Yaml, 101), (Format::Yaml, 100_000)]
    {
        let text = format!("{}{}", "[".repeat(deep), "]".repeat(deep));
        let rendered = refused(&text, format);
        assert!(rendered.starts_with("error[nesting-too-deep]"), "{rendered}");
    }
    for format in [Format::Json, Format::Yaml] {
        let text = format!("{}{}", "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH));
        assert!(parse(&text, format).is_ok());
    }
    let mut text = "a: &a [[[[[[[[[[x]]]]]]]]]]\n".to_owned();
    writeln!(text, "b: {}*a{}", "[".repeat(95), "]".repeat(95)).unwrap();
    assert!(refused(&text, Format::Yaml).starts_with("error[nesting-too-deep]"));
}

#[test]
fn a_file_too_large_is_not_read() {
    let text = format!("\"{}\"", "x".repeat(MAX_BYTES));
    assert!(refused(&text, Format::Json).starts_with("error[file-too-large]"));
}

#[test]
fn long_lines_are_shown_around_the_place_and_control_characters_are_not() {
    let text = format!("[{}, \"\u{1b}[31m\", x]", vec!["1"; 200].join(", "));
    let rendered = refused(&text.replace('\u{1b}', "\u{7f}"), Format::Json);
    insta::assert_snapshot!(rendered, @r#"
    error[invalid-json]: not JSON: expected value
     --> f.json:1:611
      |
    1 | 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, "�[31m", x]
      |                                                             ^
    "#);
}

#[test]
fn machines_get_every_place() {
    let mut sources = Sources::default();
    let text = "{\"a/b\": [1, {\"c\": 2}], \"d\": \"x\\\"y\"}";
    let node = sources.parse("f.json", text, Format::Json).unwrap();
    let inner = node.get("a/b").unwrap().as_array().unwrap()[1].member("c").unwrap();
    let mut found = Diagnostics::default();
    found.push(
        Diagnostic::warning("some-code", inner.key_span, "what was seen")
            .with_help("what to write")
            .with_related(node.span, "the whole"),
    );
    let string = node.get("d").unwrap().span;
    found.push(Diagnostic::error("other-code", string, "m").with_offset(2));
    let json = serde_json::to_string_pretty(&sources.to_json(&found)).unwrap();
    insta::assert_snapshot!(json, @r#"
    [
      {
        "code": "some-code",
        "column": 14,
        "endColumn": 17,
        "endLine": 1,
        "file": "f.json",
        "help": "what to write",
        "line": 1,
        "message": "what was seen",
        "pointer": "/a~1b/1/c",
        "related": [
          {
            "column": 1,
            "endColumn": 36,
            "endLine": 1,
            "file": "f.json",
            "line": 1,
            "message": "the whole"
          }
        ],
        "severity": "warning"
      },
      {
        "code": "other-code",
        "column": 33,
        "endColumn": 34,
        "endLine": 1,
        "file": "f.json",
        "help": null,
        "line": 1,
        "message": "m",
        "pointer": "/d",
        "related": [],
        "severity": "error"
      }
    ]
    "#);
}

#[test]
fn printing_keeps_comments_and_order() {
    let text = r#"{"b":1,"comment":"why","a":[{"comment":"c"}]}"#;
    assert_eq!(parse(text, Format::Json).unwrap().to_string(), text);
}

mod laws {
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
            "&x ", "*x", "!t ", "? ", "<<", "---", "...", "#", "%", "1", "-", "e9", "0x", "~",
            "\\u", "d83d", "\u{feff}", "é", "\r", "\u{85}", "\u{2028}", "{{", "}}", "null", "\\",
            "\0",
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
}
