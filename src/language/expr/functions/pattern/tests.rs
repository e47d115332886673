mod re2;

use super::*;

fn matches(pattern: &str, subject: &str) -> bool {
    Pattern::new(pattern).unwrap().is_match(subject).unwrap()
}

#[test]
fn what_differs_between_re2_and_the_crate_is_as_in_re2() {
    for (pattern, subject, wanted) in [
        (r"^\d$", "٣", false),
        (r"^\D$", "٣", true),
        (r"^\w$", "é", false),
        (r"^[\w-]$", "é", false),
        (r"^[^\d]$", "٣", true),
        (r"^[\D]$", "5", false),
        (r"^[^\W]$", "é", false),
        (r"^\s$", "\u{a0}", false),
        (r"^\s$", "\u{b}", false),
        (r"^\S$", "\u{a0}", true),
        (r"é\b", "é", false),
        (r"\Bé", "é", true),
        (r"a\b", "a", true),
        ("^[a&&b]$", "&", true),
        ("^[+--]$", ",", true),
        ("^[[a]$", "[", true),
        ("^[]a]$", "]", true),
        ("^[^]a]$", "]", false),
        ("^[a-]$", "-", true),
        ("^[-a]$", "-", true),
        ("^[[:alpha:][:^ascii:]]$", "é", true),
        ("^[[:word:]]$", "_", true),
        (r"^\Qa.b\E+$", "a.bb", true),
        (r"^\Qa.b", "a.b", true),
        (r"^\101\060\x41\x{e9}$", "A0Aé", true),
        (r"^\pL\p{Greek}\PL\p{^Lu}$", "éλ1a", true),
        (r"^\p{Yi}\p{Any}$", "\u{a000}x", true),
        ("^{$", "{", true),
        ("^a{,2}$", "a{,2}", true),
        ("^a{x}$", "a{x}", true),
        ("^(?i)K$", "k", true),
        ("^(?i:a)B$", "AB", true),
        ("^(?U)a+?$", "aa", true),
        ("(?m)^b$", "a\nb\nc", true),
        ("(?s)^a.b$", "a\nb", true),
        ("^a.b$", "a\nb", false),
        ("^a$", "a\n", false),
        ("^(?P<n>a)(?<m>b)()(|c)$", "abc", true),
        (r"^[\a\f\n\r\t\v\-\]\\^]+$", "\x07\x0c\n\r\t\x0b-]\\^", true),
        ("#x", "#x", true),
        ("^a b$", "a b", true),
        ("^(a|b)*?c{2,}d??$", "abcc", true),
    ] {
        assert_eq!(matches(pattern, subject), wanted, "{pattern} {subject:?}");
    }
}

#[test]
fn what_re2_refuses_is_refused() {
    let problem = |pattern: &str| match Pattern::new(pattern) {
        Ok(_) => format!("{pattern}: taken"),
        Err(problem) => {
            let problem = problem.trim_start_matches("the pattern is no regular expression: ");
            format!("{pattern}: {problem}")
        }
    };
    let patterns = r"
        a** a+* a{2}{3} a??+ * a|* (*) (?i)* a{1001} a{2,1} (a{40}){40} (?x)a (?i
        (?=a) (?P<>a) ( a) [a [ [] [b-a] [a-\d] [[:nope:]] \ \1 \8 \Z \G \C \y
        \é \x4 \x{} \x{110000} \p{Alphabetic} \pé \p{greek} \p \pL{100} [\x{D800}]
    ";
    let problems: Vec<String> = patterns.split_whitespace().map(problem).collect();
    insta::assert_snapshot!(problems.join("\n"), @r"
    a**: `*` repeats a repetition; put that in a group
    a+*: `*` repeats a repetition; put that in a group
    a{2}{3}: `{3}` repeats a repetition; put that in a group
    a??+: `+` repeats a repetition; put that in a group
    *: `*` has nothing to repeat
    a|*: `*` has nothing to repeat
    (*): `*` has nothing to repeat
    (?i)*: `*` has nothing to repeat
    a{1001}: `{1001}`: the counts fall, or come to more than 1000 turns
    a{2,1}: `{2,1}`: the counts fall, or come to more than 1000 turns
    (a{40}){40}: `{40}`: the counts fall, or come to more than 1000 turns
    (?x)a: `(?x` is no group: its flags are i, m, s and U
    (?i: unclosed group
    (?=a): `(?=a` is no group: its flags are i, m, s and U
    (?P<>a): a group's name is one or more letters, digits and `_`
    (: unclosed group
    a): unopened group
    [a: unclosed character class
    [: unclosed character class
    []: unclosed character class
    [b-a]: the range `b-a` is empty
    [a-\d]: a class ends no range: `a-` begins one
    [[:nope:]]: there is no class `[:nope:]`
    \: a single `\` at the end
    \1: `\1` refers back, which RE2 does not
    \8: `\8` is no escape
    \Z: `\Z` is no escape
    \G: `\G` is no escape
    \C: `\C`, a single byte, is not supported
    \y: `\y` is no escape
    \é: `\é` is no escape
    \x4: two hexadecimal digits, or a code point in braces, must follow `\x`
    \x{}: two hexadecimal digits, or a code point in braces, must follow `\x`
    \x{110000}: two hexadecimal digits, or a code point in braces, must follow `\x`
    \p{Alphabetic}: `Alphabetic` is no category and no script of Unicode
    \pé: `é` is no category and no script of Unicode
    \p{greek}: `greek` is no category and no script of Unicode
    \p: `` is no category and no script of Unicode
    \pL{100}: the pattern is too large
    [\x{D800}]: two hexadecimal digits, or a code point in braces, must follow `\x`
    ");
}

/// Patterns put together from what has a meaning somewhere: what is taken compiles.
#[test]
fn what_passes_compiles() {
    const PARTS: &[&str] = &[
        "a",
        "é",
        "(",
        ")",
        "[",
        "]",
        "^",
        "$",
        "|",
        "*",
        "+",
        "?",
        "{",
        "}",
        "2",
        ",",
        "{2}",
        "{1,}",
        "{0,3}",
        "-",
        "&&",
        "~~",
        ":",
        "[:alpha:]",
        "(?i)",
        "(?:",
        "(?s-m:",
        "(?P<n>",
        ".",
        " ",
        "#",
        "<",
        ">",
        "=",
        "!",
        r"\d",
        r"\W",
        r"\b",
        r"\B",
        r"\pL",
        r"\PN",
        r"\p{^Greek}",
        r"\x41",
        r"\x{e9}",
        r"\Q",
        r"\E",
        r"\\",
        r"\]",
        r"\-",
        r"\07",
        r"\z",
        "\n",
        "\0",
        r"[^\d\D]",
        "{0}",
    ];
    let mut state = 1_u64;
    let mut draw = |most: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % most
    };
    let mut taken = 0;
    for _ in 0..20_000 {
        let length = 1 + draw(9);
        let pattern: String = (0..length).map(|_| PARTS[draw(PARTS.len())]).collect();
        if let Ok(read) = Pattern::new(&pattern) {
            taken += 1;
            assert!(read.is_match("aé5 \n").is_some(), "{pattern:?}: {:?}", read.translated);
        }
    }
    assert!(taken > 3_000, "{taken}");
}

/// The weight is an upper bound of what the crate takes: whatever is light enough compiles.
#[test]
fn the_weight_bounds_what_is_compiled() {
    for part in [
        "a",
        "é",
        "(?i)k",
        ".",
        "[^a]",
        r"\pL",
        r"\PL",
        r"\p{Han}",
        r"\p{Cn}",
        r"[\pL\pN\pM\pS]",
        r"\w",
        r"\W",
        "[a-z0-9]",
        "[é-ü]",
        "(a|b|c)",
        "(a?)",
        "(a*)",
        r"[[:^alpha:]]",
    ] {
        let most =
            (1..=1000).rev().find(|count| Pattern::new(&format!("(?:{part}){{{count}}}")).is_ok());
        if let Some(most) = most {
            let pattern = Pattern::new(&format!("(?:{part}){{{most}}}")).unwrap();
            assert!(pattern.is_match("x").is_some(), "{part} {most}");
        }
    }
}
