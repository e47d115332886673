//! What is read as YAML, and the messages for what is refused.

use std::fmt::Write as _;

use super::*;

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
        assert_eq!(from_yaml(written), read, "{written}");
    }
}

#[test]
fn yaml_on_is_a_key_like_any_other() {
    assert_eq!(from_yaml("on: 1\nno: 2\n\"<<\": 3\n"), r#"{"on":1,"no":2,"<<":3}"#);
}

#[test]
fn aliases_stand_for_what_their_anchor_names() {
    let text = "a: &x { n: 1 }\nb: *x\nc: [*x, *x]\n";
    assert_eq!(from_yaml(text), r#"{"a":{"n":1},"b":{"n":1},"c":[{"n":1},{"n":1}]}"#);
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
    let said = all.map(|text| brief(text, Format::Yaml)).concat();
    insta::assert_snapshot!(said, @r#"
    error[yaml-key-not-string]: a key must be a string; this one is an object
     --> f.yaml:1:5 `{ step.input }`
      = help: put an expression in quotes: "{{ … }}"
    error[yaml-key-not-string]: a key must be a string; this one is a number
     --> f.yaml:1:1 `404`
      = help: put the key in quotes
    error[yaml-key-not-string]: a key must be a string; this one is an array
     --> f.yaml:1:3 `[a]`
      = help: put the key in quotes
    error[yaml-key-not-string]: a key must be a string; this one is null
     --> f.yaml:1:1 `null`
      = help: put the key in quotes
    error[yaml-merge-key]: merge keys (`<<`) are not read: YAML 1.2 has none
     --> f.yaml:3:3 `<<`
      = help: write the members out, or use an alias for the whole value
    error[yaml-tag]: a tag (`!…`) stands before this value; tags are not read
     --> f.yaml:1:10 `1`
      = help: remove it; put a string in quotes
    error[multiple-documents]: a second document starts here; a file holds one
     --> f.yaml:2:1 `---`
      = help: put it into a file of its own
    error[invalid-yaml]: directives (`%…`) are not read
     --> f.yaml:1:1 `%`
      = help: remove the line; YAML 1.2 is read without one
    error[number-out-of-range]: the number `.inf` is not one that a 64-bit double holds
     --> f.yaml:1:4 `.inf`
      = help: write a number between -1.7e308 and 1.7e308, or a string
    error[number-out-of-range]: the number `1e999` is not one that a 64-bit double holds
     --> f.yaml:1:4 `1e999`
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
    let said = all.map(|text| brief(text, Format::Yaml)).concat();
    insta::assert_snapshot!(said, @"
    error[yaml-alias-loop]: this alias stands inside the value that it names
     --> f.yaml:1:8 `*x`
    error[invalid-yaml]: this alias names no anchor before it
     --> f.yaml:1:4 `*`
      = help: put a text that starts with `*` in quotes
    error[invalid-yaml]: a tab indents this line
     --> f.yaml:2:2 `-`
      = help: indent with spaces
    error[invalid-yaml]: not YAML: unclosed bracket '['
     --> f.yaml:1:4 `[`
      = help: close each bracket, brace and quote before this place, and put texts with `: ` in quotes
    error[invalid-yaml]: not YAML: mapping values are not allowed in this context
     --> f.yaml:1:5 `:`
      = help: close each bracket, brace and quote before this place, and put texts with `: ` in quotes
    error[empty-document]: the file is empty; a YAML value was wanted
     --> f.yaml:1:1 ``
    error[empty-document]: the file is empty; a YAML value was wanted
     --> f.yaml:1:1 ``
    error[empty-document]: the file is empty; a YAML value was wanted
     --> f.yaml:1:1 ``
    ");
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
