//! Both formats: keys, limits, rendering.

use std::fmt::Write as _;

use super::*;

mod json;
mod laws;
mod yaml;

impl Sources {
    /// What [`Sources::render`] says, but of each place only the text that it marks there (its first line). For
    /// tests of the messages, not of how a place is drawn.
    pub(crate) fn brief(&self, found: &Diagnostics) -> String {
        let marked = |span: Span| {
            let (line, column) = self.position(span);
            let text = self.file(span.source).map_or("", |file| &file.text);
            let text = text.get(span.start as usize..span.end as usize).unwrap_or_default();
            let first = text.lines().next().unwrap_or_default();
            format!("{}:{line}:{column} `{first}`", self.name(span.source))
        };
        let mut out = String::new();
        for found in &found.0 {
            let Diagnostic { severity, code, message, help, related, .. } = found;
            let place = marked(self.place(found));
            writeln!(out, "{}[{code}]: {message}\n --> {place}", severity.as_str()).unwrap();
            for (span, note) in related {
                writeln!(out, " ::: {} {note}", marked(*span)).unwrap();
            }
            if let Some(help) = help {
                writeln!(out, "  = help: {help}").unwrap();
            }
        }
        out
    }
}

fn parse(text: &str, format: Format) -> Result<Node, String> {
    parse_or(Sources::render, text, format)
}

/// The messages for a text that is refused, without excerpts.
fn brief(text: &str, format: Format) -> String {
    parse_or(Sources::brief, text, format).unwrap_err()
}

/// The value, or what `say` makes of the errors.
fn parse_or(
    say: impl Fn(&Sources, &Diagnostics) -> String,
    text: &str,
    format: Format,
) -> Result<Node, String> {
    let mut sources = Sources::default();
    let name = if format == Format::Json { "f.json" } else { "f.yaml" };
    sources.parse(name, text, format).map_err(|found| say(&sources, &found))
}

fn from_yaml(text: &str) -> String {
    parse(text, Format::Yaml).unwrap().to_string()
}

fn refused(text: &str, format: Format) -> String {
    parse(text, format).unwrap_err()
}

#[test]
fn a_byte_order_mark_is_skipped() {
    assert_eq!(parse("\u{feff}[1]", Format::Json).unwrap().to_string(), "[1]");
    assert_eq!(from_yaml("\u{feff}a: 1"), r#"{"a":1}"#);
    let mut sources = Sources::default();
    let node = sources.parse("f", "\u{feff}[1]", Format::Json).unwrap();
    assert_eq!(sources.position(node.as_array().unwrap()[0].span), (1, 2));
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
fn the_format_is_known_by_the_name() {
    assert_eq!(Format::of_name("a/b.JSON"), Format::Json);
    assert_eq!(Format::of_name("a.json/b.yaml"), Format::Yaml);
    assert_eq!(Format::of_name("config"), Format::Yaml);
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
fn the_end_of_a_text_of_any_length_is_a_place() {
    for length in 250..=260 {
        let text = format!("[\"{}\"", "x".repeat(length - 3));
        let place = format!("f.json:1:{}\n", length + 1);
        let rendered = refused(&text, Format::Json);
        assert!(rendered.contains(&place), "{length}: {rendered}");
        let beyond = format!("[\"{}\"]x", "x".repeat(length - 5));
        let rendered = refused(&beyond, Format::Json);
        assert!(rendered.contains(&format!("f.json:1:{length}\n")), "{length}: {rendered}");
    }
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
