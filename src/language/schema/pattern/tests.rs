use super::*;

#[test]
fn what_a_few_characters_repeat_weighs_as_much() {
    let usual = [
        "abc",
        "^[a-z0-9]{1,63}$",
        r"^\\d{4}-\\d{2}-\\d{2}$",
        "^(GET|POST|PUT)$",
        "^(?=.*[0-9]).{8,64}$",
    ];
    for pattern in usual {
        assert!(cost(pattern) < 1_000_000, "{pattern}: {}", cost(pattern));
    }
    let large = [
        "(a{900}){90}",
        "((a{30}){30}){30}",
        r"\\p{L}{100}",
        "(?i)(abc){9999}",
        "(?=a{900}){900}",
        "a{1000000000}",
        r"(?>a{9000})",
    ];
    for pattern in large {
        assert!(cost(pattern) > 2_000_000, "{pattern}: {}", cost(pattern));
    }
}

#[test]
fn patterns_are_found_with_their_places() {
    let schema = serde_json::json!({
        "properties": { "a/b": { "anyOf": [{ "pattern": "x" }] } },
        "patternProperties": { "y": { "pattern": "z" } },
    });
    let mut found = Vec::new();
    each(&schema, &mut |pointer, pattern| found.push(format!("{pointer} {pattern}")));
    found.sort();
    assert_eq!(
        found,
        [
            "/patternProperties y",
            "/patternProperties/y/pattern z",
            "/properties/a~1b/anyOf/0/pattern x"
        ]
    );
}
