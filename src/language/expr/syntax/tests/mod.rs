//! The grammar: what an error says, and where; the corners of the lexical part; the bounds.

use cel::common::ast::{Expr, LiteralValue};

use super::grammar::NESTING;
use super::tree::DEPTH;
use super::*;

mod oracle;
mod texts;

/// The tree of `text`, without places; or what is wrong with it.
fn tree(text: &str) -> String {
    match parse(text) {
        Ok((expr, _)) => oracle::placed(&expr, |_| 0),
        Err(error) => format!("{}: {}", error.offset, error.message),
    }
}

fn refused(text: &str) -> String {
    let error = parse(text).expect_err(text);
    format!("{}: {}", error.offset, error.message)
}

#[test]
fn an_error_says_what_is_there_and_what_is_wanted() {
    let said = [
        "vars.",
        "vars.in",
        "a b",
        "a +",
        "é",
        "'é😀' + + 1",
        "a = b",
        "a & b",
        "a and b",
        "# a",
        "(a",
        "f(a b)",
        "f(a,)",
        "[a, b",
        "a[0",
        "{'a' 1}",
        "{a: 1, ]",
        "a ? b",
        "a ? b ? c : d : e",
        "-!a",
        "if(a)",
        "a.`b`()",
    ]
    .map(refused);
    insta::assert_snapshot!(said.join("\n"), @r#"
    5: the expression ends here, where the name of a member is wanted
    5: the name of a member is wanted here, not `in`
    2: an operator or the end is wanted here, not `b`
    3: the expression ends here, where a value is wanted
    0: `é` can stand only in a string
    7: a value is wanted here, not `+`
    2: `=` is no operator: `==` compares
    2: `&` is no operator: it is written `&&`
    2: an operator or the end is wanted here, not `and`; that is written `&&`
    0: `#` begins no comment: `//` does
    2: the expression ends here, where an operator or `)` is wanted
    4: an operator, `,` or `)` is wanted here, not `b`
    4: a value is wanted here, not `)`
    5: the expression ends here, where an operator, `,` or `]` is wanted
    3: the expression ends here, where an operator or `]` is wanted
    5: an operator or the `:` between a key and its value is wanted here, not `1`
    7: a value is wanted here, not `]`
    5: the expression ends here, where an operator or the `:` of this condition is wanted
    6: an operator or the `:` of this condition is wanted here, not `?`
    1: a value is wanted here, not `!`
    0: CEL reserves the name `if`: use another
    5: an operator or the end is wanted here, not `(`
    "#);
}

#[test]
fn a_wrong_literal_or_macro_is_explained() {
    let said = [
        "a.`b",
        "has(a)",
        "a.map(1, 2)",
        "'a'.sortBy(x, x)",
        "math.greatest(1, 'a')",
        "math.least()",
        "1 + 9223372036854775808",
        "18446744073709551616u",
        "1e999",
        "a == 'b",
        "'a\nb'",
        r"'\d+'",
        r"'\x4'",
        r"'\ud800'",
        r"'\400'",
        r"b'\u0041'",
    ]
    .map(refused);
    insta::assert_snapshot!(said.join("\n"), @r#"
    2: a name between backticks has letters, digits, `_`, `.`, `-`, `/` and blanks, and ends with a backtick
    4: `has` asks for a member that a dot leads to: `has(vars.name)`
    6: the name of a variable is wanted here: `list.map(x, x + 1)`
    0: `sortBy` sorts a list
    17: `math.greatest` takes numbers, or one list of numbers
    5: `math.least` takes numbers, or one list of numbers
    4: an integer is from -9223372036854775808 to 9223372036854775807, and `9223372036854775808` is not
    0: an unsigned integer is at most 18446744073709551615u, and `18446744073709551616u` is not
    0: `1e999` is too large for a number
    5: the string that begins here is not closed; one that goes over several lines has three quotes at each end
    0: the string that begins here is not closed; one that goes over several lines has three quotes at each end
    0: `\d` is no escape; a backslash is written `\\`, or as it is in a raw string: r'…'
    0: `\x` is followed by two hexadecimal digits
    0: `\u` is followed by the four hexadecimal digits of a code point
    0: `\4` is no escape; a backslash is written `\\`, or as it is in a raw string: r'…'
    0: bytes have no `\u` or `\U`: write the character itself, or its bytes as `\x…`
    "#);
}

#[test]
fn literals_are_what_cel_says() {
    let value = |text: &str| match parse(text).unwrap().0.expr {
        Expr::Literal(LiteralValue::String(text)) => text.inner().to_owned(),
        Expr::Literal(LiteralValue::Bytes(bytes)) => format!("{:?}", bytes.inner()),
        Expr::Literal(LiteralValue::Int(int)) => format!("{}i", int.inner()),
        Expr::Literal(LiteralValue::UInt(uint)) => format!("{}u", uint.inner()),
        Expr::Literal(LiteralValue::Double(double)) => format!("{:?}", double.inner()),
        other => panic!("{text}: {other:?}"),
    };
    for (text, wanted) in [
        (r#""a'b""#, "a'b"),
        (r"'\a\b\f\n\r\t\v\\\'\''", "\x07\x08\x0c\n\r\t\x0b\\''"),
        (r#"'\"\`\?'"#, "\"`?"),
        (r"'\x41\X42\u0043\U00000044\105'", "ABCDE"),
        (r"'\xff\377'", "ÿÿ"),
        (r"b'\xff\377é'", "[255, 255, 195, 169]"),
        (r"r'\n\'", "\\n\\"),
        (r"R'''\n'a' ''b'''", "\\n'a' ''b"),
        ("'''a\r\nb\rc'''", "a\nb\nc"),
        (r"br'\x41'", "[92, 120, 52, 49]"),
        ("\"\"\"\"a\"\"\"", "\"a"),
        ("''", ""),
        ("''''''", ""),
        ("9223372036854775807", "9223372036854775807i"),
        ("-9223372036854775808", "-9223372036854775808i"),
        ("- 1", "-1i"),
        ("-0x8000000000000000", "-9223372036854775808i"),
        ("0xfFu", "255u"),
        ("18446744073709551615U", "18446744073709551615u"),
        (".5", "0.5"),
        ("1.5e+3", "1500.0"),
        ("-1E-2", "-0.01"),
        ("-0.0", "-0.0"),
        ("1 // the rest is a comment: '", "1i"),
    ] {
        assert_eq!(value(text), wanted, "{text}");
    }
}

#[test]
fn the_longest_token_wins() {
    for (text, same) in [
        ("1.e", "1 .e"),
        ("1e", "1 e"),
        ("1in[1]", "1 in [1]"),
        ("a.1", "a .1"),
        ("0x", "0 x"),
        ("1u2", "1u 2"),
        ("rb'a'", "rb 'a'"),
        ("a--1", "a - -1"),
        ("inn", "inn"),
    ] {
        let (one, other) = (parse(text), parse(same));
        assert_eq!(one.is_ok(), other.is_ok(), "{text}");
        assert_eq!(one.ok().map(|_| tree(text)), other.ok().map(|_| tree(same)), "{text}");
    }
}

#[test]
fn brackets_and_chains_have_bounds() {
    let brackets = |n: usize| format!("{}1{}", "(".repeat(n), ")".repeat(n));
    assert!(parse(&brackets(NESTING - 1)).is_ok());
    insta::assert_snapshot!(refused(&brackets(NESTING)), @"96: the expression nests too many brackets, calls or conditions (95 at most): split it, with `assign`, into several");
    let conditions = |n: usize| "a ? b : ".repeat(n) + "c";
    assert!(parse(&conditions(NESTING - 1)).is_ok());
    assert!(parse(&conditions(NESTING)).is_err());
    let sum = |n: usize| vec!["1"; n].join(" + ");
    assert!(parse(&sum(DEPTH)).is_ok());
    insta::assert_snapshot!(refused(&sum(DEPTH + 1)), @"478: the expression nests deeper than 120 levels (each term of a chain such as `a + b + c` is one): split it, with `assign`, into several, or use `join`");
    let members = |n: usize| format!("a{}", ".b".repeat(n));
    assert!(parse(&members(DEPTH - 1)).is_ok());
    assert!(parse(&members(DEPTH)).is_err());
    // Many terms of `&&` and `||` are a flat tree.
    assert!(parse(&vec!["a"; 5000].join("&&")).is_ok());
}
