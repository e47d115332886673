//! Makes texts: whole expressions, texts of tokens in any order, and expressions with a part changed.

use proptest::prelude::*;
use proptest::sample::select;

/// Tokens, whole and broken, and some pieces of more than one.
const TOKENS: &[&str] = &[
    "a", "b", "vars", "x", "_y1", "rb", "r", "u", "e5", "in", "true", "false", "null", "if", "as",
    "void", "has", "all", "exists", "map", "filter", "optMap", "sortBy", "math", "greatest",
    "least", "optional", "size", "0", "1", "42", "0x1F", "0X1", "0x", "7u", "0xffU", "1.5", ".5",
    "1.", "1e3", "1e", "2.5e-3", "1e309", "'s'", "\"d\"", "''", "'\\n'", "'\\q'", "'\\x41'",
    "'\\x4'", "'\\101'", "'\\477'", "r'\\d'", "R\"\\\"", "b'by'", "B'\\xff'", "br'\\x'", "bR\"q\"",
    "'open", "'é😀'", "b'é'", "`q`", "``", "`", "+", "-", "*", "/", "%", "!", "?", ":", ".", ",",
    "(", ")", "[", "]", "{", "}", "<", "<=", ">", ">=", "==", "!=", "&&", "||", "=", "&", "|", "é",
    "\\", "#", ".?", "[?", "{?", "()", "[]", "{}", "[,]", "{,}", "(a)", "[a]", "{a: b}", "{a: b,}",
    "a.b", "a.b{", "M{c: 1}", "has(a.b)", "// c\n", "//", "1 in [1]", "-1", "- -1", "!-1", "--1",
];

/// More than one token, and long ones.
const PIECES: &[&str] = &[
    "namespace",
    "exists_one",
    "existsOne",
    "optFlatMap",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615u",
    "18446744073709551616u",
    "'\\u00e9'",
    "'\\ud800'",
    "'\\U0001f600'",
    "b'\\u0041'",
    "'''l\nl'''",
    "\"\"\"d\r\n\"e\"\"\"\"",
    "r'''\\'''",
    "`q-r/s.t u`",
    ".M.N{?c: 1,}",
    "a.map(x, x)",
    "a.all(x, x.y)",
    "a.map(x, b, x)",
    "a.filter(x, b)",
    "math.greatest(1, 2.0, a)",
    "math.least([1])",
    "a.optMap(v, v)",
    "a.b.optFlatMap(v, v)",
    "a.sortBy(x, x)",
    "a.exists(x, x)",
    "a.exists_one(x, x)",
    "a ? b : c",
];

/// What may stand between two tokens.
const BLANKS: &[&str] =
    &["", "", "", " ", " ", " ", "\n", "\r\n\t", "\x0c", "\x0b", "\u{a0}", " // '\n"];

const BINARY: &[&str] = &[
    "+", "-", "*", "/", "%", "<", "<=", ">", ">=", "==", "!=", " in ", "&&", "||", " && ", " - -",
];

const LEAVES: &[&str] = &[
    "a",
    "vars.x",
    ".vars",
    "1",
    "-2",
    "0x1f",
    "3u",
    "1.5",
    "-.5e2",
    "'s'",
    "r'\\d'",
    "b'\\xff'",
    "true",
    "null",
    "'''a\n'b'''",
    "a.`q r`",
    "a.in_",
    "[]",
    "{}",
    "{,}",
    "[,]",
];

fn token() -> impl Strategy<Value = &'static str> {
    prop_oneof![3 => select(TOKENS), 1 => select(PIECES)]
}

/// Tokens in any order.
pub(super) fn soup() -> impl Strategy<Value = String> {
    prop::collection::vec((select(BLANKS), token()), 0..14)
        .prop_map(|parts| parts.into_iter().flat_map(|(blank, token)| [blank, token]).collect())
}

/// An expression of the grammar.
pub(super) fn whole() -> impl Strategy<Value = String> {
    let leaf = select(LEAVES).prop_map(str::to_owned);
    leaf.prop_recursive(6, 60, 4, |inner| {
        let one = inner.clone();
        let two = (inner.clone(), inner.clone());
        let more = prop::collection::vec(inner.clone(), 0..4);
        let three = (inner.clone(), inner.clone(), inner);
        prop_oneof![
            3 => (two.clone(), select(BINARY)).prop_map(|((a, b), operator)| format!("{a}{operator}{b}")),
            1 => prop::collection::vec(one.clone(), 2..9).prop_map(|terms| terms.join("||")),
            1 => (one.clone(), select(&["!", "-", "!!", "- -", "---"][..])).prop_map(|(a, sign)| format!("{sign}{a}")),
            2 => one.clone().prop_map(|a| format!("( {a} )")),
            1 => three.clone().prop_map(|(a, b, c)| format!("{a} ? {b} : {c}")),
            1 => more.clone().prop_map(|items| format!("[{}]", items.join(", "))),
            1 => more.clone().prop_map(|args| format!("f({})", args.join(","))),
            1 => (one.clone(), more).prop_map(|(a, args)| format!("{a}.f({})", args.join(","))),
            1 => two.clone().prop_map(|(a, b)| format!("{{{a}: {b}, ?{b}: {a},}}")),
            1 => two.clone().prop_map(|(a, b)| format!("[?{a}, {b},]")),
            1 => two.clone().prop_map(|(a, b)| format!("{a}[{b}]")),
            1 => two.clone().prop_map(|(a, b)| format!("{a}[?{b}]")),
            2 => (one.clone(), select(&[".b", ".?b", ".`b-c`", " . if"][..])).prop_map(|(a, member)| format!("{a}{member}")),
            1 => one.clone().prop_map(|a| format!("has({a}.b)")),
            1 => one.clone().prop_map(|a| format!("pkg.Message{{field: {a}, ?`odd one`: {a}}}")),
            2 => (two, select(MACROS)).prop_map(|((a, b), name)| format!("{a}.{name}(v, {b})")),
            1 => three.prop_map(|(a, b, c)| format!("{a}.map(v, {b}, {c})")),
            1 => one.prop_map(|a| format!("math.greatest({a}, 1, {a})")),
        ]
    })
}

const MACROS: &[&str] = &[
    "all",
    "exists",
    "exists_one",
    "existsOne",
    "map",
    "filter",
    "optMap",
    "optFlatMap",
    "sortBy",
];

/// An expression of the grammar, in which tokens are put in, doubled and left out.
pub(super) fn changed() -> impl Strategy<Value = String> {
    let change = (any::<prop::sample::Index>(), any::<prop::sample::Index>(), token(), 0..3_u8);
    (whole(), prop::collection::vec(change, 1..4)).prop_map(|(text, changes)| {
        changes.into_iter().fold(text, |text, (at, length, token, kind)| {
            let chars: Vec<char> = text.chars().collect();
            let at = at.index(chars.len() + 1);
            let length = length.index(4).min(chars.len() - at);
            let (before, rest) = chars.split_at(at);
            let (part, after) = rest.split_at(length);
            let of = |chars: &[char]| chars.iter().collect::<String>();
            match kind {
                0 => format!("{}{}", of(before), of(after)),
                1 => format!("{}{token}{}", of(before), of(rest)),
                _ => format!("{}{}{}", of(before), of(part), of(rest)),
            }
        })
    })
}
