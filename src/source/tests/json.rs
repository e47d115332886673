//! What is read as JSON, and the messages for what is not.

use super::*;

#[test]
fn json_numbers_and_strings_are_read_as_rfc_8259_says() {
    let text = r#"[0, -0.5, 1e2, 12345678901234567890, "\ud83d\ude00\/\u0000", null, true]"#;
    let node = parse(text, Format::Json).unwrap();
    assert_eq!(node.to_string(), r#"[0,-0.5,100,1.2345678901234567e+19,"😀/\u0000",null,true]"#);
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
    let said = all.map(|text| brief(text, Format::Json)).concat();
    insta::assert_snapshot!(said, @"
    error[invalid-json]: not JSON: trailing comma
     --> f.json:3:1 `}`
      = help: remove the comma before the bracket
    error[invalid-json]: not JSON: trailing characters
     --> f.json:1:10 `x`
      = help: a file holds one value; remove what follows it
    error[invalid-json]: not JSON: expected value
     --> f.json:1:7 `'`
      = help: JSON strings stand in double quotes
    error[invalid-json]: not JSON: expected value
     --> f.json:1:5 `/`
      = help: JSON has no comments; write a `comment` member, or write YAML
    error[invalid-json]: not JSON: the text ends too early (EOF while parsing a list)
     --> f.json:1:12 ``
      = help: close the bracket or the quote that is open
    error[number-out-of-range]: the number `1e999` is not one that a 64-bit double holds
     --> f.json:1:2 `1e999`
      = help: write a number between -1.7e308 and 1.7e308, or a string
    error[empty-document]: the file is empty; a JSON value was wanted
     --> f.json:1:1 ``
    error[empty-document]: the file is empty; a JSON value was wanted
     --> f.json:1:1 ``
    ");
}
